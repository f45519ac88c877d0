"""What may be said of measured joules: per image, with method and boundary, and of ratios with what they mix."""

import pandas

from benchbook import intervals
from benchbook.intervals import Interval

SHORTEST_WINDOW = 2.0  # seconds; counters such as Apple's move every second or two


def summarise(windows: pandas.DataFrame) -> dict:
    """Return a point's energy.

    Args:
        windows: its training windows, with energy_joules, energy_method, energy_boundary, idle_watts, samples, seconds.

    Returns:
        energy_per_sample (J, median; idle power is not subtracted), energy_method, energy_boundary, idle_watts and
        energy_note (what keeps the figure from being taken as it stands, empty if nothing does). All are None where no
        window was read. Of windows read by several methods those of the last one count.
    """
    read = read_windows(windows)
    if read.empty:
        return dict.fromkeys(("energy_per_sample", "energy_method", "energy_boundary", "idle_watts", "energy_note"))
    method, boundary = read["energy_method"].iloc[-1], read["energy_boundary"].iloc[-1]
    idle = read["idle_watts"].dropna().astype(float)
    return {
        "energy_per_sample": float((read["energy_joules"] / read["samples"]).astype(float).median()),
        "energy_method": method,
        "energy_boundary": boundary,
        "idle_watts": float(idle.median()) if len(idle) else None,
        "energy_note": _note(method, read["seconds"].astype(float).min()),
    }


def read_windows(windows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the windows whose joules were read; of several methods, by that of the last one."""
    read = windows[windows["energy_joules"].notna()]
    return read[read["energy_method"] == read["energy_method"].iloc[-1]] if len(read) else read


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
