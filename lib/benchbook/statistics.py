"""Median, spread, intervals and fits of measured windows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pandas

FEWEST_WINDOWS = 6  # with fewer, the range is shown and no interval
RESAMPLES = 2000
LEVEL = 0.95
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


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median, in the unit of the values."""
    array = numpy.asarray(values, float)
    return float(numpy.median(numpy.abs(array - numpy.median(array))))


def interval(values: Sequence[float], kernels: Sequence) -> Interval:
    """Return a 95 % interval of the median, bootstrapped over kernels and then over their windows.

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
    groups = [array[numpy.asarray(kernels) == kernel] for kernel in pandas.unique(numpy.asarray(kernels))]
    random = numpy.random.default_rng(0)
    medians = [
        numpy.median(numpy.concatenate([random.choice(groups[i], len(groups[i])) for i in drawn]))
        for drawn in random.integers(len(groups), size=(RESAMPLES, len(groups)))
    ]
    low, high = numpy.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), "interval")


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
        Columns: the point's key and description, num_kernels, num_windows, samples_per_second (median),
        spread (MAD over median), low, high (of samples_per_second), interval (its kind), seconds_per_step,
        input_share_waited, accuracy, energy_per_sample (J), status, message.
    """
    measured = newest(rows[rows["source"] == "measured"])
    lines = [_summary(group, phase) for _, group in measured.groupby(POINT_KEY, sort=True)]
    return pandas.DataFrame(lines, columns=None if lines else _DESCRIPTION)


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
    *[
        "model",
        "parameters",
        "dataset",
        "dataset_samples",
        "batch_size",
        "num_workers",
        "settings",
        "session",
        "commit",
    ],
]


def _summary(group: pandas.DataFrame, phase: str) -> dict:
    failures = group[~group["status"].isin(["ok", "diverged"])]
    windows = group[(group["phase"] == phase) & group["samples_per_second"].notna()]
    outcome = failures if len(failures) else group[group["status"] == "diverged"]
    line = {name: group[name].dropna().iloc[-1] if group[name].notna().any() else None for name in _DESCRIPTION}
    line |= {
        "num_kernels": windows["run_id"].nunique(),
        "num_windows": len(windows),
        "accuracy": _median(group.loc[group["phase"] == "evaluate", "accuracy"]),
        "status": outcome["status"].iloc[-1] if len(outcome) else "ok",
        "message": outcome["message"].iloc[-1] if len(outcome) else None,
    }
    if len(windows):
        rates = windows["samples_per_second"].astype(float).to_numpy()
        bounds, median = interval(rates, windows["run_id"].to_numpy()), float(numpy.median(rates))
        line |= {
            "samples_per_second": median,
            "spread": median_absolute_deviation(rates) / median,
            "low": bounds.low,
            "high": bounds.high,
            "interval": bounds.kind,
            "seconds_per_step": float(line["batch_size"]) / median,
            "input_share_waited": _median(windows["input_seconds"] / windows["seconds"]),
            "energy_per_sample": _median(windows["energy_joules"] / windows["samples"]),
        }
    return line


def _median(values: pandas.Series) -> float | None:
    present = values.dropna().astype(float)
    return float(present.median()) if len(present) else None
