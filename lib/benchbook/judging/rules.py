"""The rules that a point is judged by: each takes a point, and returns a reason or None.

A reason is a code of `verdicts.REASONS`, and the values that its text takes.

A steady run must not be flagged: every rule requires a difference that matters (5 %) and that
chance rarely makes. `make bench STUDIES=intervals` counts how often the rules are wrong.
"""

import itertools
import math
import statistics as middle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy

from benchbook.judging import intervals, statistics
from benchbook.judging.agreement import (
    LATER_STEP_FACTOR,
    LEAST_LOSS,
    TOLERANCES,
    Agreement,
    number,
)
from benchbook.machine import condition, contention, nvidia
from benchbook.rows import titles
from benchbook.rows.ceilings import ARITHMETIC

# Standard deviations of steady windows and of steady processes; the first is also the largest drift
# of a steady point.
STEADY, STEADY_PROCESSES = 0.05, 0.04
FALSE_ALARMS = 0.005  # the share of steady points that exceed one of these by chance
SWAPPED_BYTES = 64 * 2**20  # an idle computer swaps less
ASLEEP_SECONDS = 1.0
THROTTLED_SHARE = 0.01  # of the windows' time
# accuracy of guessing; other data sets with labels have ten classes
CHANCE = {"imagenet": 1 / 1000}
TEN_CLASSES = 1 / 10
UNLEARNABLE = ("synthetic",)  # labels drawn at random
DIGITS_OF_FLOAT32 = 2**13 - 1  # the bits of a float32 that no 16-bit type has
STANDARD_ERRORS = 3  # above chance, for an accuracy to be more than guessing
# times the rate of a matrix product: fast convolutions (Winograd) save at most that much
CEILING_FACTOR = 2.5
# of a device, by boundary; the sockets of a computer are one package
MAX_WATTS = {"board": 2_000.0, "soc": 500.0, "package": 5_000.0}
# By how much the machine's clock may differ from windows' seconds: down in a window, up in the
# median of a process, which may lose the CPU between two clocks.
CLOCK_ROUNDING, CLOCK_SECONDS, CLOCK_SHARE = 0.002, 0.02, 0.02

Reason = tuple
Row = Mapping


@dataclass(frozen=True)
class Point:
    """What a point is judged by.

    Attributes:
        windows: its training windows that count, as `rows`.
        samples: lines of `condition.samples` of their runs, with None for a missing value; None:
        unknown.
        rows: its measured rows of the session that speaks, with None for a missing value.
        agreements: of its runs with float64, in the precision that it trained in.
        products: the best rate of matrix products (FLOP/s) by machine, session, device and
        precision.
    """

    windows: Sequence[Row] = ()
    samples: Sequence[dict] | None = None
    rows: Sequence[Row] = ()
    agreements: Sequence[Agreement] = ()
    products: Mapping[tuple, float] = field(default_factory=dict)

    @cached_property
    def rates(self) -> list[float]:
        """Return the images a second of each window."""
        return [row["samples_per_second"] for row in self.windows]

    @cached_property
    def runs(self) -> list[str]:
        """Return the run of each window."""
        return [row["run_id"] for row in self.windows]

    @cached_property
    def trained(self) -> list[Row]:
        """Return the training windows, also those that do not count."""
        return [row for row in self.rows if row["phase"] == "train" and row["samples"] is not None]

    @cached_property
    def pairs(self) -> list[tuple[dict, dict]]:
        """Return the samples at both ends of each window."""
        return [
            (before, after)
            for before, after in itertools.pairwise(self.samples or ())
            if before["run_id"] == after["run_id"] and after.get("index") is not None
        ]

    @cached_property
    def lengths(self) -> list[float]:
        """Return the seconds between the samples at both ends of each window."""
        return [
            after["elapsed_seconds"] - before["elapsed_seconds"] for before, after in self.pairs
        ]

    def values(self, name: str) -> list:
        """Return the values of this name that samples have."""
        found = [sample.get(name) for sample in self.samples or ()]
        return [value for value in found if value is not None]

    def of_gpu(self, name: str) -> list:
        """Return a value of the first visible GPU, which the run uses, from samples that have it."""
        return [
            gpus[0][name] for gpus in self.values("gpus") if gpus and gpus[0].get(name) is not None
        ]


Rule = Callable[[Point], Reason | None]


def _parity(point: Point) -> Reason | None:
    return next((("parity", each.reason) for each in point.agreements if not each.passed), None)


def _guessing(point: Point) -> Reason | None:
    """Accuracy is that of guessing, after a whole epoch of labels that can be learnt.

    On frozen features the head may never do better: whether it does is a question of its study.
    """
    trained = {row["run_id"] for row in point.trained}
    tests = [
        row for row in point.rows if row["phase"] == "evaluate" and row["accuracy"] is not None
    ]
    last = next((row for row in reversed(tests) if row["run_id"] in trained), None)
    if last is None or last["accuracy_metric"] != "top1" or last["dataset"] in (None, *UNLEARNABLE):
        return None
    seen: dict[int, int] = {}
    for row in point.trained:
        if row["run_id"] == last["run_id"]:
            seen[row["repeat"]] = seen.get(row["repeat"], 0) + row["samples"]
    most, epoch = max(seen.values()), last["dataset_samples"]
    if epoch is None or most < epoch or last["settings"].get("trainable") is False:
        return None
    chance = CHANCE.get(last["dataset"], TEN_CLASSES)
    error = (chance * (1 - chance) / max(1, last["samples"] or 1)) ** 0.5
    if last["accuracy"] > chance + STANDARD_ERRORS * error:
        return None
    return "guessing", last["accuracy"], most, chance


def _constant(point: Point) -> Reason | None:
    """Different batches of all runs have the same loss. A synthetic batch is repeated."""
    own = [
        row
        for row in point.trained
        if row["loss"] is not None and row["dataset"] not in UNLEARNABLE
    ]
    losses = numpy.array([row["loss"] for row in own], "float32")
    # A loss of few digits, such as 0 or one in bfloat16, may repeat by itself.
    digits = losses.view("uint32") & DIGITS_OF_FLOAT32
    begun = {(row["run_id"], row["repeat"]) for row in own}  # each from the same weights
    if len(own) > len(begun) and digits.all() and (losses == losses[0]).all():
        return "constant", float(losses[0])
    return None


def _frozen(point: Point) -> Reason | None:
    """A window changed fewer tensors than fewer steps did elsewhere; steps that no window has
    prove nothing."""
    windows = [row for row in point.rows if row["phase"] == "train"]
    shortest = min((row["steps"] for row in windows if row["steps"] is not None), default=-1)
    others = [
        row
        for row in point.rows
        if row["phase"] != "train" and row["steps"] is not None and row["steps"] <= shortest
    ]
    moved, could = (
        [count for row in own if (count := number(row["settings"], "moved_tensors")) is not None]
        for own in (windows, others)
    )
    if moved and could and max(could) > min(moved):
        return "frozen", max(could) - min(moved), max(could)
    return None


def _undropped(point: Point) -> Reason | None:
    """Dropout drops nothing. Features of frozen random weights may vanish, with or without it."""
    for row in point.rows:
        given = row["settings"] if row["phase"] == "evaluate" else {}
        if given.get("dropout_acts") is False and given.get("trainable") is not False:
            return ("undropped",)
    return None


def _strayed(point: Point) -> Reason | None:
    """The loss of the last batch is not the reference's, as `parity.last_losses` measured it; a
    loss near zero counts as a share of the first window's."""
    first = next((row["loss"] for row in point.trained if row["loss"] is not None), math.nan)
    allowed = TOLERANCES.get(point.trained[0]["precision"]) if point.trained else None
    for row in point.rows if allowed else ():
        names = ("last_loss", "last_reference_loss") if row["phase"] == "evaluate" else ()
        losses = [each for name in names if (each := number(row["settings"], name)) is not None]
        if len(losses) == 2:
            scale = numpy.fmax(abs(losses[1]), LEAST_LOSS * abs(first))
            if abs(losses[0] - losses[1]) > LATER_STEP_FACTOR * allowed.loss * scale:
                return "strayed", *losses
    return None


def _comparison(point: Point) -> Reason | None:
    """Training was not compared with float64, or in part.

    An operation that a device lacks in float64 proves nothing either way. A point whose settings
    have no number of steps needs no comparison.
    """
    asked = point.trained[0]["settings"].get("num_parity_steps") if point.trained else None
    count = max((each.num_steps for each in point.agreements), default=0)
    if asked is not None and count < max(1, asked):
        refused = [
            row["message"]
            for row in point.rows
            if row["phase"] == "parity" and row["status"] == "unsupported" and row["message"]
        ]
        none = ("refused", refused[0]) if refused else ("not_compared",)
        return ("few_steps", count, asked) if count else none
    is_part = point.trained and any(
        "whole_samples" in row["settings"] and "whole_loss" not in row["settings"]
        for row in point.rows
        if row["phase"] == "parity" and row["precision"] == point.trained[0]["precision"]
    )
    return ("part",) if is_part else None


def _replaced(point: Point) -> Reason | None:
    given = point.trained[0]["settings"].get("replaced", {}) if point.trained else {}
    named = [
        f"{titles.dataset(used)} in place of {titles.dataset(name)}" for name, used in given.items()
    ]
    return ("replaced", ", ".join(named)) if named else None


def _unrecorded(point: Point) -> Reason | None:
    known = {sample["run_id"] for sample in point.samples or ()}
    return None if point.samples is None or known.issuperset(point.runs) else ("unrecorded",)


def _ceiling(point: Point) -> Reason | None:
    """Its arithmetic is faster than any product of the session: the clock did not wait."""
    times = [0.0]
    for row in point.windows:
        done = (row["flops_per_sample"] or 0.0) * row["samples_per_second"]
        precision = ARITHMETIC.get(row["precision"], row["precision"])
        key = row["machine"], row["session"], row["device"], precision
        ceiling = point.products.get(key) or math.inf
        times.append(done / ceiling / (1 if row["device"] == "cpu" else row["device_count"] or 1))
    return ("ceiling", max(times)) if max(times) > CEILING_FACTOR else None


def _watts(point: Point) -> Reason | None:
    """It drew more than any such device does: mJ were read as J."""
    for row in point.windows:
        most = MAX_WATTS.get(row["energy_boundary"], math.inf) * (row["device_count"] or 1)
        if (watts := (row["energy_joules"] or 0.0) / row["seconds"]) > most:
            return "watts", watts, row["energy_boundary"]
    return None


def _clock(point: Point) -> Reason | None:
    """The seconds of windows are not those of the machine's clock, which stops in sleep, and
    which nothing sets."""
    names = "run_id", "repeat", "index"
    known = {
        tuple(map(sample.get, names)): sample.get("window_awake_seconds")
        for sample in point.samples or ()
    }
    pairs = [
        (row["seconds"] - own, row["seconds"])
        for row in point.windows
        if (own := known.get(tuple(map(row.get, names))))
    ]
    errors, seconds = zip(*pairs, strict=True) if pairs else ([0.0], [0.0])
    error = middle.median(errors)
    is_short = -error > CLOCK_SECONDS + CLOCK_SHARE * middle.median(seconds)
    most = max(errors)
    return ("clock", error if is_short else most) if is_short or most > CLOCK_ROUNDING else None


def _series(point: Point) -> list[numpy.ndarray]:
    """Return the log rates of each process's windows that are warm."""
    return [numpy.log(each) for each in statistics.warmed_up(point.rates, point.runs)]


def _spread(point: Point) -> Reason | None:
    series = _series(point)
    squares = sum(float(numpy.square(each - each.mean()).sum()) for each in series)
    if is_beyond(squares, sum(map(len, series)) - len(series), STEADY):
        return "spread", statistics.spread([numpy.exp(each) for each in series])
    return None


def _drift(point: Point) -> Reason | None:
    """The line through the windows of all processes falls or rises."""
    from scipy.special import stdtrit

    series = _series(point)
    freedom = sum(map(len, series)) - len(series)
    if freedom < 2:
        return None
    away = numpy.concatenate([each - each.mean() for each in series])
    places = numpy.concatenate(
        [numpy.linspace(-0.5, 0.5, len(each)) * (len(each) > 1) for each in series]
    )
    slope = float(away @ places) / float(places @ places)
    left = float(away @ away) / float(places @ places) - slope**2
    error = math.sqrt(max(0.0, left) / (freedom - 1))
    chance = stdtrit(freedom - 1, 1 - FALSE_ALARMS) * error
    is_drift = abs(math.expm1(slope)) > STEADY and abs(slope) > chance
    return ("drift", math.expm1(slope)) if is_drift else None


def _processes(point: Point) -> Reason | None:
    """Processes differ; if their page faults explain it, these are named."""
    if not len(point.rates):
        return None
    levels = numpy.log(intervals.medians(point.rates, point.runs))
    if not is_beyond(len(levels) * float(levels.var()), len(levels) - 1, STEADY_PROCESSES):
        return None
    faults: dict[str, list[float]] = {run: [] for run in point.runs}
    for row in point.windows:
        count = row["page_faults"] if row["samples"] else None
        faults[row["run_id"]].append(math.nan if count is None else count / row["samples"])
    code = (
        "faults"
        if _follow(levels, numpy.array([*map(numpy.median, faults.values())]))
        else "processes"
    )
    return code, math.expm1(float(levels.max() - levels.min()))


def _follow(levels: numpy.ndarray, faults: numpy.ndarray) -> bool:
    """Return whether processes' log rates fall with their page faults, and are steady besides."""
    if len(levels) < 3 or not numpy.ptp(faults) > 0:
        return False
    slope, offset = numpy.polyfit(faults, levels, 1)
    left = levels - slope * faults - offset
    return slope < 0 and not is_beyond(float(left @ left), len(left) - 2, STEADY_PROCESSES)


def is_beyond(squares: float, freedom: int, deviation: float) -> bool:
    """Return whether a sum of squares is larger than a standard deviation makes it by chance."""
    from scipy.special import chdtri

    return freedom > 0 and squares > deviation**2 * chdtri(freedom, FALSE_ALARMS)


def _thermal(point: Point) -> Reason | None:
    """Heat lowered the clocks, or throttled for over 1 % of the windows' time; a long steady load
    alone causes `moderate` pressure. The count of throttlings matters only without their time."""
    heavy = condition.PRESSURES[condition.PRESSURES.index("heavy") :]
    is_hot = any(each in heavy for each in point.values("thermal_pressure"))
    is_hot |= any(
        nvidia.THERMAL_REASONS.intersection(each) for each in point.of_gpu("clock_reasons")
    )

    def slowed(sample: Mapping) -> float:
        return (sample.get("gpus") or [{}])[0].get("thermal_slowdown_seconds") or 0

    slow = sum(slowed(end) - slowed(begin) for begin, end in point.pairs)
    seconds = max(_growth(point, "cpu_throttle_seconds"), slow)
    counted = not point.values("cpu_throttle_seconds") and _growth(point, "cpu_throttle_count") > 0
    is_hot |= counted or seconds > THROTTLED_SHARE * sum(point.lengths)
    return ("thermal",) if is_hot else None


def _swap(point: Point) -> Reason | None:
    grown = _growth(point, "swap_used_bytes", "swapped_in_bytes", "swapped_out_bytes")
    return ("swap",) if grown > SWAPPED_BYTES else None


def _growth(point: Point, *counters: str) -> float:
    """Return the growth within windows of the counter that grew most."""
    return max(
        sum((after.get(name) or 0) - (before.get(name) or 0) for before, after in point.pairs)
        for name in counters
    )


def _sleep(point: Point) -> Reason | None:
    asleep = sum(condition.seconds_asleep(*pair) for pair in point.pairs)
    return ("sleep",) if asleep > ASLEEP_SECONDS else None


def _sampled(code: str, name: str, *wrong: object) -> Rule:
    """Return the rule that no sample has one of these values; none given: any that is true."""
    return lambda point: (
        (code,) if any(each in wrong if wrong else each for each in point.values(name)) else None
    )


def _gpu_shared(point: Point) -> Reason | None:
    """Others used the device: in the windows if the driver tells processes apart, else before."""
    known = point.of_gpu("others_share") or point.values("device_busy") or [0.0]
    busy = float(numpy.mean(known))
    return ("gpu_shared", busy) if busy > contention.DEVICE_SHARE else None


def _variables(point: Point) -> Reason | None:
    found = "; ".join(dict.fromkeys(point.values("variables")))
    return ("variables", found) if found else None


def _taken(code: str, place: int, most: float) -> Rule:
    """Return the rule that others, or the hypervisor, took little of the CPU; windows may be too
    short for the system's counters."""

    def rule(point: Point) -> Reason | None:
        if sum(point.lengths) < contention.SAMPLE_SECONDS:
            return None
        ends = zip(point.pairs, point.lengths, strict=True)
        taken = [contention.shares(*pair, seconds)[place] for pair, seconds in ends]
        share = float(numpy.average(taken, weights=point.lengths))
        return (code, share) if share > most else None

    return rule


OUTSIDE: tuple[Rule, ...] = (  # not of the work's making
    _sleep,
    _sampled("cores_taken", "missing_cores"),
    _gpu_shared,
    _taken("cpu_shared", 0, contention.OTHERS_SHARE),
    _taken("cpu_stolen", 1, contention.STOLEN_SHARE),
)
OF_SPEED: tuple[Rule, ...] = (
    *(_spread, _drift, _processes, _thermal, _swap, _sampled("battery", "power_source", "battery")),
    *(_sampled("low_power", "low_power_mode"), *OUTSIDE[:2], _sampled("translated", "translated")),
    *(_gpu_shared, _variables, *OUTSIDE[3:]),
)
OF_WORK: tuple[Rule, ...] = (
    *(_parity, _guessing, _constant, _frozen, _undropped, _strayed),
    *(_comparison, _replaced, _ceiling, _watts, _clock, _unrecorded),
)


def reasons(point: Point, rules: Collection[Rule]) -> Iterator[Reason]:
    """Yield the reasons of these rules against a point."""
    return filter(None, (rule(point) for rule in rules))
