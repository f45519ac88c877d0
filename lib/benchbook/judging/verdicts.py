"""What may be said of a point's windows: stable, or unstable and why. Computed from rows, never stored in them.

Before it stands whether the point is unproven; that it is wrong is its status, see `correctness`.

A steady run must not be flagged: every rule asks for a difference that matters (5 %) and that noise alone
would hardly make. tests/test_verdicts.py counts how often each is wrong.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy
import pandas

from benchbook.judging import confirmation, correctness, intervals, statistics
from benchbook.judging.intervals import History
from benchbook.machine import condition, contention, nvidia

LIMIT = 0.05  # spread or drift over 5 % is unstable
OUTLIER = 0.10  # a window this far from the median, and
OUTLIER_SCORE = 3.5  # with a modified z-score over this (Iglewicz and Hoaglin, 1993), lies apart
OUTLIER_SHARE = 0.10
DRIFT_ERRORS = 3  # a drift is one if it is over three of its standard errors
SWAPPED_BYTES = 64 * 2**20  # less than this comes and goes on an idle computer
ASLEEP_SECONDS = 1.0
THROTTLED_SHARE = 0.01  # of the time of the windows
STABLE, UNSTABLE, TOO_FEW = "stable", "unstable", "too few windows"
UNPROVEN = correctness.UNPROVEN


@dataclass(frozen=True)
class Verdict:
    """What may be said of some windows.

    Attributes:
        word: stable, unstable or too few windows.
        reasons: why it is unstable; may be several.
    """

    word: str
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it as a table shows it."""
        return f"{self.word}: {', '.join(self.reasons)}" if self.reasons else self.word


def stability(
    rates: Sequence[float], runs: Sequence, conditions: pandas.DataFrame | Sequence[dict] | None = None
) -> Verdict:
    """Judge the windows of one point.

    Args:
        rates: images a second, one per window, in the order measured.
        runs: the run each window belongs to.
        conditions: samples of these runs, from `condition.samples`, or the same as dictionaries, in which what is
            missing is None; None where there are none.

    Raises:
        ValueError: not one run per rate.
    """
    rates, runs = numpy.asarray(rates, float), numpy.asarray(runs)
    if len(rates) != len(runs):
        raise ValueError(f"{len(rates)} rates and {len(runs)} runs; allowed: as many of each")
    few = len(rates) < intervals.FEWEST_WINDOWS
    reasons = [] if few else [*_spread(rates), *_drift(rates, runs), *_outliers(rates)]
    if conditions is not None:
        is_table = isinstance(conditions, pandas.DataFrame)
        reasons += _disturbances(_dictionaries(_columns(conditions)) if is_table else conditions)
    if reasons:
        return Verdict(UNSTABLE, tuple(reasons))
    return Verdict(TOO_FEW if few else STABLE)


def judge(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> Verdict:
    """Judge the training windows of one point; of its last session, the measured ones count.

    Args:
        rows: rows of one point of one machine.
        conditions: from `condition.samples`, of any runs.
    """
    judged = [verdict for _, verdict in _each(rows, conditions)]
    return judged[0] if judged else stability([], [], [])


def add(
    summary: pandas.DataFrame,
    rows: pandas.DataFrame,
    conditions: pandas.DataFrame | None = None,
    unproven: Mapping[tuple[str, str, str], str] | None = None,
) -> pandas.DataFrame:
    """Return a summary from `statistics.summarise` with a column `verdict`, as text; empty where no window is.

    It is `unproven: why; ` before the rest of a point that is unproven.

    Args:
        summary: one line per point of `rows`.
        rows, conditions: see `judge`.
        unproven: from `correctness.judge`; None judges the rows.
    """
    missing = correctness.judge(rows).unproven if unproven is None else unproven
    verdicts = {key: with_proof(str(verdict), missing.get(key)) for key, verdict in _each(rows, conditions)}
    lines = summary.reindex(columns=[*statistics.POINT_KEY, "num_windows"]).itertuples(index=False)
    words = [verdicts[tuple(key)] if count else None for *key, count in lines]
    return summary.assign(verdict=pandas.Series(words, summary.index, dtype="object"))


def _each(
    rows: pandas.DataFrame, conditions: pandas.DataFrame | None
) -> Iterator[tuple[tuple[str, str, str], Verdict]]:
    """Judge the training windows of each point's last session; yield the point's key and its verdict.

    What the conditions say of GPUs is no matter to a run on the CPU.
    """
    measured = statistics.newest(rows[rows["source"] == "measured"])
    on_cpu = measured["device"].eq("cpu").fillna(False).groupby([measured[name] for name in statistics.POINT_KEY]).all()
    windows = measured[(measured["phase"] == "train") & measured["samples_per_second"].notna()]
    samples_of = None if conditions is None else _by_run(conditions)
    for key, of_point in statistics.divide(windows, statistics.POINT_KEY, ["samples_per_second"], ["run_id"]):
        rates, runs, samples = of_point["samples_per_second"], of_point["run_id"].astype(str), None
        if samples_of:
            samples = [sample for run in sorted(set(runs)) for sample in samples_of(run)]
            samples = [sample | {"gpus": None} for sample in samples] if on_cpu[key] else samples
        yield key, stability(rates, runs, samples)


def _by_run(conditions: pandas.DataFrame) -> Callable[[str], list[dict]]:
    """Return what gives the samples of a run: those of thousands of runs are not all made dictionaries at once."""
    columns, places = _columns(conditions), conditions.groupby("run_id").indices

    def samples(run: str) -> list[dict]:
        return _dictionaries({name: column[places[run]] for name, column in columns.items()}) if run in places else []

    return samples


def _columns(conditions: pandas.DataFrame) -> dict[str, numpy.ndarray]:
    plain = conditions.astype(object).where(conditions.notna(), None)
    return {name: plain[name].to_numpy() for name in plain}


def _dictionaries(columns: Mapping[str, numpy.ndarray]) -> list[dict]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def summarise(
    rows: pandas.DataFrame,
    conditions: pandas.DataFrame | None = None,
    history: Mapping[tuple[str, str, str], History] | None = None,
) -> pandas.DataFrame:
    """Return the lines of `statistics.summarise`, each with its verdict; a point that trained wrong has that status.

    A tuned point is called so only where it was confirmed to be faster; see `confirmation.name`.

    Args:
        rows, conditions: see `judge`; the rows may be of many points.
        history: see `statistics.summarise`.
    """
    summary, judged = confirmation.name_variants(statistics.summarise(rows, history=history)), correctness.judge(rows)
    return add(correctness.mark(summary, judged.complaints), rows, conditions, judged.unproven)


def is_unstable(text: object) -> bool:
    """Return whether a verdict, as text or missing, says unstable, whatever else it says."""
    return isinstance(text, str) and text.rpartition("; ")[2].startswith(UNSTABLE)


def is_unproven(text: object) -> bool:
    """Return whether a verdict, as text or missing, says unproven."""
    return isinstance(text, str) and text.startswith(UNPROVEN)


def with_proof(text: str, missing: str | None) -> str:
    """Return a verdict as text, after what is missing to show that the point trained the right thing."""
    return f"{UNPROVEN}: {missing}; {text}" if missing else text


def worse(one: str | None, other: str | None) -> str | None:
    """Return what may be said of a figure that two points make: what is said of the one that is worse off.

    Args:
        one, other: verdicts as text, None where no window is.
    """
    words = (UNPROVEN, UNSTABLE, TOO_FEW, STABLE)
    judged = [text for text in (one, other) if isinstance(text, str)]
    return min(judged, key=lambda text: words.index(text.partition(":")[0]), default=None)


def drift(rates: Sequence[float]) -> float:
    """Return by what fraction a run's last third of windows is faster than its first; 0 with fewer than 3."""
    third = len(rates) // 3
    if not third:
        return 0.0
    return float(numpy.median(rates[-third:]) / numpy.median(rates[:third]) - 1)


def _spread(rates: numpy.ndarray) -> list[str]:
    spread = statistics.median_absolute_deviation(rates) / numpy.median(rates)
    return [f"spread {spread:.0%}"] if spread > LIMIT else []


def _drift(rates: numpy.ndarray, runs: numpy.ndarray) -> list[str]:
    """Flag one run that drifts, or all of them together.

    Noise is what the windows of a run are away from a straight line through them, which a drift does not touch.
    """
    series = [rates[runs == run] for run in dict.fromkeys(runs.tolist())]
    series = [values for values in series if len(values) >= 3]
    if not series:
        return []
    noise = _noise(series)
    drifts = [drift(values) for values in series]
    errors = [noise * (2 / (len(values) // 3)) ** 0.5 for values in series]
    together = numpy.mean(drifts), numpy.sqrt(numpy.sum(numpy.square(errors))) / len(series)
    changes = [change for change, error in [together, *zip(drifts, errors, strict=True)] if _is_drift(change, error)]
    return [f"drift {max(changes, key=abs):+.0%}"] if changes else []


def _is_drift(change: float, error: float) -> bool:
    return abs(change) > max(LIMIT, DRIFT_ERRORS * error)


def _noise(series: list[numpy.ndarray]) -> float:
    """Return the standard deviation of a window, as a fraction, around a line through each run."""
    squares, freedom = 0.0, 0
    for values in series:
        places = numpy.arange(len(values))
        away = values - numpy.polyval(numpy.polyfit(places, values, 1), places)
        squares += float(numpy.sum(numpy.square(away / numpy.median(values))))
        freedom += len(values) - 2
    return (squares / freedom) ** 0.5


def _outliers(rates: numpy.ndarray) -> list[str]:
    """Flag windows far from the median, if they are over a tenth of all: fewer do not move the median.

    0.6745 turns the median absolute deviation into a standard deviation.
    """
    median, spread = numpy.median(rates), statistics.median_absolute_deviation(rates)
    away = numpy.abs(rates - median)
    apart = (away > OUTLIER * median) & (0.6745 * away > OUTLIER_SCORE * spread)
    return [f"{apart.sum()} of {len(rates)} windows apart"] if apart.mean() > OUTLIER_SHARE else []


def _disturbances(samples: Sequence[dict]) -> list[str]:
    """Return what disturbed the runs, from samples at both ends of their windows."""
    pairs = [
        (before, after)
        for before, after in itertools.pairwise(samples)
        if before["run_id"] == after["run_id"] and after.get("index") is not None
    ]
    disturbances = {
        "thermal pressure": any(map(_is_hot, samples)) or _was_throttled(pairs),
        "swap growth": _grew(pairs, "swap_used_bytes", "swapped_in_bytes", "swapped_out_bytes") > SWAPPED_BYTES,
        "on battery": any(sample.get("power_source") == "battery" for sample in samples),
        "low-power mode": any(sample.get("low_power_mode") for sample in samples),
        "sleep": sum(_asleep(*pair) for pair in pairs) > ASLEEP_SECONDS,
        "another process on the GPU": any(gpu.get("num_other_processes") for gpu in _gpus(samples)),
        "under Rosetta": any(sample.get("translated") for sample in samples),
    }
    return [reason for reason, is_so in disturbances.items() if is_so] + _taken_by_others(pairs)


def _taken_by_others(pairs: list[tuple[dict, dict]]) -> list[str]:
    """Return what other processes and the hypervisor took of the CPU within windows, where it is too much."""
    lengths = [after["elapsed_seconds"] - before["elapsed_seconds"] for before, after in pairs]
    if sum(lengths) <= 0:
        return []
    taken = [contention.shares(*pair, seconds) for pair, seconds in zip(pairs, lengths, strict=True)]
    others, stolen = (
        sum(share * seconds for share, seconds in zip(part, lengths, strict=True)) / sum(lengths)
        for part in zip(*taken, strict=True)
    )
    return [
        *([f"other processes took {others:.0%} of the CPU"] if others > contention.OTHERS_SHARE else []),
        *([f"the hypervisor took {stolen:.0%} of the CPU"] if stolen > contention.STOLEN_SHARE else []),
    ]


def _is_hot(sample: dict) -> bool:
    """Return whether heat held clocks down; `moderate` pressure is what a long steady load brings."""
    pressure, limit = sample.get("thermal_pressure"), sample.get("cpu_speed_limit_percent")
    heavy = pressure in condition.PRESSURES[condition.PRESSURES.index("heavy") :]
    gpu = any(nvidia.THERMAL_REASONS & set(gpu.get("clock_reasons") or ()) for gpu in _gpus([sample]))
    return heavy or gpu or (limit is not None and limit < 100)


def _was_throttled(pairs: list[tuple[dict, dict]]) -> bool:
    """Return whether counters of throttled time grew by more than 1 % of the windows' time.

    A count of throttlings is judged only where the time is not recorded.
    """
    seconds = sum(after["elapsed_seconds"] - before["elapsed_seconds"] for before, after in pairs)
    gpu = sum(_gpu_slowdown(after) - _gpu_slowdown(before) for before, after in pairs)
    throttled = _grew(pairs, "cpu_throttle_seconds")
    timed = any(after.get("cpu_throttle_seconds") is not None for _, after in pairs)
    counted = not timed and _grew(pairs, "cpu_throttle_count") > 0
    return counted or max(throttled, gpu) > THROTTLED_SHARE * seconds


def _grew(pairs: list[tuple[dict, dict]], *counters: str) -> float:
    """Return by how much the counter that grew most has grown within windows."""
    growths = [
        sum((after.get(counter) or 0) - (before.get(counter) or 0) for before, after in pairs) for counter in counters
    ]
    return max(growths, default=0)


def _asleep(before: dict, after: dict) -> float:
    awake, elapsed = ((before[name], after[name]) for name in ("awake_seconds", "elapsed_seconds"))
    return condition.seconds_asleep(awake, elapsed)


def _gpu_slowdown(sample: dict) -> float:
    return sum(gpu.get("thermal_slowdown_seconds") or 0 for gpu in _gpus([sample]))


def _gpus(samples: list[dict]) -> list[dict]:
    """Return the GPU that each sample's run computed on: the first visible one."""
    return [gpu for sample in samples for gpu in (sample.get("gpus") or [])[:1]]
