"""Median, spread, intervals and fits of measured windows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pandas

from benchbook import energy, records

FEWEST_WINDOWS = 6  # with fewer, the range is shown and no interval
RESAMPLES = 2000
LEVEL = 0.95
ONE_KERNEL_ERROR = 0.03  # assumed, as a fraction: what memory layout and clocks move from one process to the next
POINT_KEY = ["machine", "study", "point"]


@dataclass(frozen=True)
class Interval:
    """What is known of a median.

    Attributes:
        low, high: its bounds, in the unit of the values.
        kind: `interval` (95 %, bootstrapped) or `range` (of too few windows).
    """

    low: float
    high: float
    kind: str


@dataclass(frozen=True)
class Ratio:
    """How two sets of windows compare.

    Attributes:
        value: median rate of B over that of A.
        low, high: its bounds.
        kind: `interval` (95 %) or `range` (one of the two has too few windows).
        verdict: `A faster`, `B faster`, `no difference shown` or, of a range, `too few windows`.
    """

    value: float
    low: float
    high: float
    kind: str
    verdict: str


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median, in the unit of the values."""
    array = numpy.asarray(values, float)
    return float(numpy.median(numpy.abs(array - numpy.median(array))))


def interval(values: Sequence[float], kernels: Sequence) -> Interval:
    """Return a 95 % interval of the median, bootstrapped over kernels and then over their windows.

    With few kernels that differ it covers less than it says, because it cannot reach past the kernels it has.
    By simulation of 3 kernels of 6 windows: 98 % where kernels do not differ, 86 % where they differ as much as
    windows do, 74 % where they differ ten times as much; with 10 kernels 94 % and more. Of one kernel it covers
    that kernel's windows alone. `ratio` corrects for this, and verdicts of who is faster come from there.

    Args:
        values: one per window.
        kernels: the run each window belongs to. Windows of one kernel share what that kernel was given, so
            kernels are drawn first.

    Returns:
        The range of the values when they are fewer than 6. Always the same for the same values.

    Raises:
        ValueError: no values, or not one kernel per value.
    """
    array = numpy.asarray(values, float)
    if len(array) == 0 or len(array) != len(kernels):
        raise ValueError(f"{len(array)} values and {len(kernels)} kernels; allowed: as many of each, 1 or more")
    if len(array) < FEWEST_WINDOWS:
        return Interval(float(array.min()), float(array.max()), "range")
    low, high = numpy.quantile(_medians(array, kernels), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), "interval")


def ratio(a_rates: Sequence[float], a_kernels: Sequence, b_rates: Sequence[float], b_kernels: Sequence) -> Ratio:
    """Compare two sets of windows: the median rate of B over that of A, with a 95 % interval and a verdict.

    The interval is symmetric in the logarithm. Its standard error is the bootstrap's over kernels and windows,
    made larger for the few kernels there are (k / (k - 1), and Student's t with Welch's degrees of freedom).
    One kernel alone does not tell how kernels differ: it is taken to lie ONE_KERNEL_ERROR from another.

    Args:
        a_rates, b_rates: one per window; higher is faster.
        a_kernels, b_kernels: the run each window belongs to.

    Returns:
        Fewer than 6 windows on a side give the range of all quotients and no verdict on who is faster.

    Raises:
        ValueError: no rates, not one kernel per rate, or a rate that is not above 0.
    """
    bounds = interval(a_rates, a_kernels), interval(b_rates, b_kernels)
    if min(*a_rates, *b_rates) <= 0:
        raise ValueError(f"rate {min(*a_rates, *b_rates)!r}; allowed: above 0")
    value = float(numpy.median(b_rates) / numpy.median(a_rates))
    if "range" in (bounds[0].kind, bounds[1].kind):
        low, high = min(b_rates) / max(a_rates), max(b_rates) / min(a_rates)
        return Ratio(value, float(low), float(high), "range", "too few windows")
    reach = _reach(_log_variance(a_rates, a_kernels), _log_variance(b_rates, b_kernels))
    low, high = value * numpy.exp(-reach), value * numpy.exp(reach)
    verdict = "B faster" if low > 1 else "A faster" if high < 1 else "no difference shown"
    return Ratio(value, float(low), float(high), "interval", verdict)


def newest(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return, for each point of each machine, the rows of its last session alone.

    A run's id begins with its time, so the last session is that of the largest id.
    """
    last = rows.sort_values("run_id").groupby(POINT_KEY)["session"].transform("last")
    return rows[rows["session"] == last.reindex(rows.index)]


def summarise(rows: pandas.DataFrame, phase: str = "train") -> pandas.DataFrame:
    """Return one line per point: median rate, spread, interval, accuracy and outcome.

    Args:
        rows: rows as `records.merge` returns them; measured ones count.
        phase: whose windows to summarise.

    Returns:
        Columns: the point's key and description (of its windows, where it has any), num_kernels, num_windows,
        samples_per_second (median), spread (MAD over median), low, high (of samples_per_second), interval (its kind),
        num_samples (in all windows), seconds_per_step, input_share_waited and its bounds (waited_low, waited_high),
        accuracy (at the end of training, the median of repeats), the columns of `energy.summarise` and its bounds
        (energy_low, energy_high), status, message.
    """
    measured = newest(rows[rows["source"] == "measured"])
    lines = [_summary(group, phase) for _, group in measured.groupby(POINT_KEY, sort=True)]
    return pandas.DataFrame(lines, columns=[*_DESCRIPTION, *_MEASURES]).astype(dict.fromkeys(_NUMBERS, float))


def fit_step_time(batch_sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Split step time into a fixed part and a part per sample.

    Least squares of relative errors, neither part negative.

    Args:
        batch_sizes: images in a step.
        seconds: that step's time, with the data resident on the device.

    Returns:
        Seconds per step that no batch size removes (launching), and seconds per sample (arithmetic).

    Raises:
        ValueError: fewer than two different batch sizes.
    """
    from scipy.optimize import nnls

    sizes, times = numpy.asarray(batch_sizes, float), numpy.asarray(seconds, float)
    if len(numpy.unique(sizes)) < 2:
        raise ValueError(f"batch sizes {sorted(set(sizes.tolist()))}; allowed: at least two different ones")
    design = numpy.stack([numpy.ones_like(sizes), sizes], axis=1) / times[:, None]
    (fixed, per_sample), _ = nnls(design, numpy.ones_like(times))
    return float(fixed), float(per_sample)


_DESCRIPTION = [
    *POINT_KEY,
    *["variant", "chip", "device", "device_name", "framework", "framework_version", "precision", "compiled"],
    *["model", "parameters", "dataset", "dataset_samples", "image_size", "batch_size", "num_workers"],
    *["device_count", "node_count", "flops_per_sample", "settings", "session", "commit"],
]
_MEASURES = [
    *["num_kernels", "num_windows", "num_samples", "samples_per_second", "spread", "low", "high", "interval"],
    *["seconds_per_step", "input_share_waited", "waited_low", "waited_high", "accuracy"],
    *["energy_per_sample", "energy_low", "energy_high", "energy_method", "energy_boundary", "idle_watts"],
    *["energy_note", "status", "message"],
]
_NUMBERS = ["samples_per_second", "spread", "low", "high", "seconds_per_step", "input_share_waited", "waited_low"]
_NUMBERS += ["waited_high", "accuracy", "energy_per_sample", "energy_low", "energy_high", "idle_watts"]


def _medians(values: numpy.ndarray, kernels: Sequence) -> numpy.ndarray:
    """Return medians of RESAMPLES draws, of kernels and then of as many windows as each has."""
    names = numpy.asarray(kernels)
    groups = [values[names == kernel] for kernel in pandas.unique(names)]
    sizes = numpy.array([len(group) for group in groups])
    table = numpy.full((len(groups), sizes.max()), numpy.nan)
    for line, group in zip(table, groups, strict=True):
        line[: len(group)] = group
    random = numpy.random.default_rng(0)
    drawn = random.integers(len(groups), size=(RESAMPLES, len(groups)))
    places = random.integers(sizes[drawn][..., None], size=(*drawn.shape, sizes.max()))
    windows = table[drawn[..., None], places]
    windows[numpy.arange(sizes.max()) >= sizes[drawn][..., None]] = numpy.nan
    ordered = numpy.sort(windows.reshape(RESAMPLES, -1), axis=1)  # what is missing comes last
    counts, lines = sizes[drawn].sum(axis=1), numpy.arange(RESAMPLES)
    return (ordered[lines, (counts - 1) // 2] + ordered[lines, counts // 2]) / 2


def _log_variance(rates: Sequence[float], kernels: Sequence) -> tuple[float, float]:
    """Return the variance of the median's logarithm, and its degrees of freedom."""
    variance = float(numpy.var(numpy.log(_medians(numpy.asarray(rates, float), kernels))))
    count = len(set(kernels))
    if count == 1:
        return variance + ONE_KERNEL_ERROR**2, float("inf")
    return variance * count / (count - 1), count - 1


def _reach(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return half the width of the interval of a difference, by Welch's approximation."""
    from scipy.stats import t

    total = a[0] + b[0]
    if total == 0:
        return 0.0
    freedom = total**2 / (a[0] ** 2 / a[1] + b[0] ** 2 / b[1] or numpy.finfo(float).tiny)
    return float(t.ppf((1 + LEVEL) / 2, freedom) * total**0.5)


def _summary(group: pandas.DataFrame, phase: str) -> dict:
    judged = records.without_refusals(group)
    failures = judged[~judged["status"].isin(records.TRAINED)]
    windows = group[(group["phase"] == phase) & group["samples_per_second"].notna()]
    tested = group[group["phase"] == "evaluate"]
    outcome = failures if len(failures) else judged[judged["status"] == "diverged"]
    described = windows if len(windows) else group  # what was tried beside them has another batch, another precision
    line = {name: described[name].dropna().iloc[-1] if described[name].notna().any() else None for name in _DESCRIPTION}
    line |= {
        "num_kernels": windows["run_id"].nunique(),
        "num_windows": len(windows),
        "accuracy": _median(tested.groupby(["run_id", "repeat"])["accuracy"].last()),
        "status": outcome["status"].iloc[-1] if len(outcome) else "ok",
        "message": outcome["message"].iloc[-1] if len(outcome) else None,
    }
    if len(windows):
        rates = windows["samples_per_second"].astype(float).to_numpy()
        read, waited = energy.read_windows(windows), windows["input_seconds"] / windows["seconds"]
        bounds, median = interval(rates, windows["run_id"].to_numpy()), float(numpy.median(rates))
        line |= {
            "samples_per_second": median,
            "spread": median_absolute_deviation(rates) / median,
            "low": bounds.low,
            "high": bounds.high,
            "interval": bounds.kind,
            "num_samples": int(windows["samples"].sum()),
            "seconds_per_step": float(line["batch_size"]) / median,
            "input_share_waited": _median(waited),
            **_bounds("waited", waited, windows),
            **energy.summarise(windows),
            **_bounds("energy", read["energy_joules"] / read["samples"], read),
        }
    return line


def _bounds(name: str, values: pandas.Series, windows: pandas.DataFrame) -> dict:
    """Return the interval of a measure's median, or the range of its few values; nothing where there is none."""
    known = values.dropna().astype(float)
    if known.empty:
        return {}
    found = interval(known.to_numpy(), windows.loc[known.index, "run_id"].to_numpy())
    return {f"{name}_low": found.low, f"{name}_high": found.high}


def _median(values: pandas.Series) -> float | None:
    present = values.dropna().astype(float)
    return float(present.median()) if len(present) else None
