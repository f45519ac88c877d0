"""What may be said of measured joules: per image, with method and boundary, and of ratios with what they mix."""

from collections.abc import Mapping

import numpy
import pandas

from benchbook.judging import intervals
from benchbook.judging.intervals import Interval

SHORTEST_WINDOW = 2.0  # seconds; counters such as Apple's move every second or two


def summarise(windows: pandas.DataFrame | Mapping[str, numpy.ndarray]) -> dict:
    """Return a point's energy.

    Args:
        windows: its training windows, by column: energy_joules, samples, seconds and idle_watts (of arrays, NaN where
            missing), energy_method and energy_boundary.

    Returns:
        energy_per_sample (J, median; idle power is not subtracted), energy_method, energy_boundary, idle_watts and
        energy_note (what keeps the figure from being taken as it stands, empty if nothing does). All are None where no
        window was read. Of windows read by several methods those of the last one count.
    """
    places = read_places(windows)
    if not len(places):
        return dict.fromkeys(("energy_per_sample", "energy_method", "energy_boundary", "idle_watts", "energy_note"))
    measures = ("energy_joules", "samples", "idle_watts", "seconds")
    joules, samples, idle, seconds = (_numbers(windows[name])[places] for name in measures)
    method = numpy.asarray(windows["energy_method"])[places[-1]]
    return {
        "energy_per_sample": _median(joules / samples),
        "energy_method": method,
        "energy_boundary": numpy.asarray(windows["energy_boundary"])[places[-1]],
        "idle_watts": _median(idle) if not numpy.isnan(idle).all() else None,
        "energy_note": _note(method, float(numpy.fmin.reduce(seconds))),
    }


def read_windows(windows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the windows whose joules were read; of several methods, by that of the last one."""
    return windows.iloc[read_places(windows)]


def read_places(windows: pandas.DataFrame | Mapping[str, numpy.ndarray]) -> numpy.ndarray:
    """Return which windows, by their places, `read_windows` returns; arguments as of `summarise`."""
    places = numpy.flatnonzero(~numpy.isnan(_numbers(windows["energy_joules"])))
    methods = numpy.asarray(windows["energy_method"])[places]
    return places[methods == methods[-1]] if len(places) else places


def sentence(point: dict) -> str:
    """Return a point's energy in words, with method, boundary and idle power.

    Args:
        point: a line of `statistics.summarise`.
    """
    if pandas.isna(point["energy_per_sample"]):
        return "Energy: no sensor measures it here, so it is missing"
    idle = "not measured" if pandas.isna(point["idle_watts"]) else f"{point['idle_watts']:.3g} W"
    note = f"; {point['energy_note']}" if point["energy_note"] else ""
    return (
        f"Energy: {point['energy_per_sample']:.3g} J an image, idle power included "
        f"({point['energy_method']}, {point['energy_boundary']}; idle: {idle}{note})"
    )


def ratio(a: dict, b: dict) -> tuple[Interval | None, str]:
    """Return the joules an image of B over those of A, with bounds, and what the two do not have in common.

    Args:
        a, b: points with energy_per_sample, its bounds energy_low and energy_high and their kind energy_interval,
            energy_method, energy_boundary and energy_note.

    Returns:
        None where one of the two has no energy. The note is empty if both were read by one method at one boundary.
    """
    if pandas.isna(a["energy_per_sample"]) or pandas.isna(b["energy_per_sample"]):
        return None, ""
    notes = [
        f"different {words}: {a[name]}, {b[name]}"
        for name, words in (("energy_boundary", "boundaries"), ("energy_method", "methods"))
        if a[name] != b[name]
    ]
    notes += [f"{side}: {point['energy_note']}" for side, point in (("A", a), ("B", b)) if point["energy_note"]]
    names = ("energy_per_sample", "energy_low", "energy_high", "energy_interval")
    return intervals.divide(Interval.of(b, *names), Interval.of(a, *names)), "; ".join(notes)


def _note(method: str, shortest: float) -> str:
    if method == "estimate_tdp":
        return "an estimate from a stated power, not measured"
    return f"windows under {SHORTEST_WINDOW:g} s are short for a sensor" if shortest < SHORTEST_WINDOW else ""


def _numbers(values: pandas.Series | numpy.ndarray) -> numpy.ndarray:
    """Return a column as floats, NaN where it is missing."""
    return values.to_numpy(float, na_value=numpy.nan) if isinstance(values, pandas.Series) else values


def _median(values: numpy.ndarray) -> float:
    """Return the median of those that are not missing."""
    present = values[~numpy.isnan(values)]
    return float(numpy.median(present)) if len(present) else numpy.nan
