"""One kind of interval for rates, ratios and everything computed from them.

The estimate is the mean log rate over processes. Windows of one process share its memory layout,
clocks and thread placement. So each process counts once, by the median of its windows. One
process alone has a range, and a range decides nothing.

Half the width of an interval has two parts, which add in squares. The processes' part is
Student's t over processes. A few of them give a poor estimate of their variance: two may agree
by chance. So one further process is assumed, with a stated deviation, and K processes have K
degrees of freedom. The session's part is a stated deviation, because more processes of one
session know nothing of the next. Only what alternates within a process cancels it.

`make bench STUDIES=intervals` shows how often such intervals cover the truth, and how wide they
are.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy

LEVEL = 0.95


class Deviations(NamedTuple):
    """Stated standard deviations on the log scale: of the assumed process, and between sessions
    of one machine."""

    process: float
    session: float


# Of rates, and of ratios whose sides were measured in different processes. Between sessions it is
# an assumption: no row tests it yet.
UNPAIRED = Deviations(0.03, 0.04)
# Of the same on the CPU of a virtual machine, whose host others use: from the committed rows.
VIRTUAL = Deviations(0.03, 0.10)
PAIRED = Deviations(0.02, 0.0)  # of ratios whose sides alternate in each process
# Of what a session measures once, such as an evaluation, between two sessions: 16 pairs of them in
# the committed rows.
ONCE = 0.17
FEWEST_OTHERS = 4  # ratios from which a scatter is estimated
INTERVAL, RANGE, ROUNDING = "interval", "range", "rounding"


@dataclass(frozen=True)
class Interval:
    """A number with its bounds.

    Attributes:
        value: the estimate.
        low, high: its bounds, in the same unit.
        kind: `interval` (95 %), `range` (least and most windows of one process), or `rounding`
        (of a printed figure, or
            an exact number).
    """

    value: float
    low: float
    high: float
    kind: str = ROUNDING

    @classmethod
    def from_row(
        cls, line: Mapping, value: str, low: str = "low", high: str = "high", kind: str = "interval"
    ) -> "Interval":
        """Return the number in a table's line; the arguments name its columns.

        Without a value in column `kind` the bounds are of rounding.
        """
        numbers, named = (float(line[name]) for name in (value, low, high)), line.get(kind)
        return cls(*numbers, kind=named if isinstance(named, str) else ROUNDING)

    def columns(
        self, value: str, low: str = "low", high: str = "high", kind: str = "interval"
    ) -> dict:
        """Return the number as columns of a table's line, which `from_row` reads; the arguments
        name the columns."""
        return {value: self.value, low: self.low, high: self.high, kind: self.kind}


def half_width(variance, freedom, number):
    """Return half the width of the interval of a mean of `number` values, elementwise.

    Args:
        variance, freedom: of the values, and the degrees of freedom of that variance.
        number: of the values.
    """
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + LEVEL) / 2) * numpy.sqrt(variance / number)


def half_widths(variance, num_processes, deviations: Deviations = UNPAIRED):
    """Return the processes' part of half the interval of a mean over processes, and the whole
    half, elementwise.

    Args:
        variance: of the processes' log values.
        num_processes: 2 or more.
        deviations: UNPAIRED or PAIRED.
    """
    pooled = (deviations.process**2 + (num_processes - 1) * variance) / num_processes
    part = half_width(pooled, num_processes, num_processes)
    return part, numpy.hypot(part, half_width(deviations.session**2, numpy.inf, 1))


def processes_half(line: Mapping) -> float:
    """Return the processes' part of half the interval of a summary's rate."""
    session = half_width(line["between_sessions"] ** 2, math.inf, 1)
    whole = math.log(line["high"] / line["samples_per_second"])
    return math.sqrt(max(0.0, whole**2 - session**2))


def processes_variance(line: Mapping) -> float:
    """Return the processes' part of the variance of a summary's rate, on the log scale."""
    return (processes_half(line) / half_width(1.0, line["num_processes"], 1)) ** 2


def sessions_parts(
    logs: numpy.ndarray, variances: numpy.ndarray, stated: numpy.ndarray
) -> numpy.ndarray:
    """Return the sessions' part of half the interval of each ratio of two sessions of a machine.

    With enough other points, the scatter of their ratios that their processes do not explain
    counts in place of the stated variance, and at least that of UNPAIRED.

    Args:
        logs: of the points' ratios.
        variances: the processes' part of the variance of each.
        stated: the sessions' part of the variance of each.
    """
    least, others = 2 * UNPAIRED.session**2, len(logs) - 1
    if others < FEWEST_OTHERS:
        return half_width(stated, numpy.inf, 1)
    parts = numpy.full(len(logs), half_width(least, numpy.inf, 1))
    for place in range(len(logs)):
        rest = (numpy.delete(each, place) for each in (logs, variances))
        scatter = next(rest).var(ddof=1) - next(rest).mean()
        if scatter > least:
            parts[place] = half_width(scatter, others - 1, 1)
    return parts


def medians(values: Sequence[float], processes: Sequence) -> numpy.ndarray:
    """Return the median value of each process, in their order; for the arguments see `interval`."""
    array, names = numpy.asarray(values, float), numpy.asarray(processes)
    return numpy.array(
        [numpy.median(array[names == process]) for process in dict.fromkeys(names.tolist())]
    )


def processes_part(values: Sequence[float], processes: Sequence) -> float:
    """Return the processes' part of half the interval that `interval` returns; infinite for
    fewer than two processes.

    A point ends when this is narrow enough: more processes do not narrow the session's part.
    """
    logs = numpy.log(medians(values, processes))
    return half_widths(numpy.var(logs, ddof=1), len(logs))[0] if len(logs) > 1 else math.inf


def processes_needed(deviation: float, part: float, fewest: int, most: int) -> int:
    """Return after how many processes with this deviation their part of half the interval is
    narrow enough."""
    counts = range(max(2, fewest), most)
    return next((count for count in counts if half_widths(deviation**2, count)[0] <= part), most)


def interval(
    values: Sequence[float], processes: Sequence, deviations: Deviations = UNPAIRED
) -> Interval:
    """Return the geometric mean over processes of their median values, with a 95 % interval.

    Args:
        values: one per window, above 0.
        processes: the run of each window.
        deviations: PAIRED for ratios of windows that alternate in each process.

    Returns:
        The range of the values instead, if they are of one process.
    """
    levels = medians(values, processes)
    # Relative to the first median, so that the value of one process is exactly its median.
    value = float(levels[0] * numpy.exp(numpy.mean(numpy.log(levels / levels[0]))))
    if len(levels) < 2:
        return Interval(value, float(min(values)), float(max(values)), RANGE)
    factor = math.exp(half_widths(numpy.log(levels).var(ddof=1), len(levels), deviations)[1])
    return Interval(value, value / factor, value * factor, INTERVAL)


def of_processes(value: float, values: Sequence[float], processes: Sequence) -> Interval:
    """Return a part of a longer time with the relative error of its values, see `interval`; of
    one process, that of what a session measures ONCE."""
    if len(set(processes)) > 1:
        found = interval(values, processes)
        return Interval(
            value, value * found.low / found.value, value * found.high / found.value, INTERVAL
        )
    factor = math.exp(half_width(ONCE**2, math.inf, 1))
    return Interval(value, value / factor, value * factor, INTERVAL)


def _widest(numbers: Sequence[Interval]) -> str:
    """Return the kind of the bounds of a result of these numbers."""
    kinds = {number.kind for number in numbers}
    return next((word for word in (RANGE, INTERVAL) if word in kinds), ROUNDING)


def total(*numbers: Interval) -> Interval:
    """Return the sum of independent numbers: errors of intervals add in squares, other bounds
    enter with both their ends."""
    value = sum(number.value for number in numbers)
    sampled = [number for number in numbers if number.kind == INTERVAL]
    others = [number for number in numbers if number.kind != INTERVAL]
    low = value - math.hypot(*(number.value - number.low for number in sampled))
    high = value + math.hypot(*(number.high - number.value for number in sampled))
    low += sum(number.low - number.value for number in others)
    high += sum(number.high - number.value for number in others)
    return Interval(value, low, high, _widest(numbers))


def combine(function: Callable[..., float], *numbers: Interval) -> Interval:
    """Return a function's value for several numbers, with its bounds.

    Independent errors of intervals add in squares, on the log scale: each rate carries its
    session's part. Ranges and printed figures enter with both their ends.

    Args:
        function: of as many floats: products and quotients of independent numbers, and constants.

    Returns:
        A `range` if one of the numbers is one, else an `interval` if one is, else a `rounding`.
    """
    sampled = [
        place for place, number in enumerate(numbers) if number.kind == INTERVAL and number.low > 0
    ]
    ends = [
        (number.value,)
        if place in sampled or number.low == number.high
        else (number.low, number.high)
        for place, number in enumerate(numbers)
    ]
    results = [value := float(function(*(number.value for number in numbers)))]
    for corner in itertools.product(*ends):
        raised = [
            function(*corner[:place], numbers[place].high, *corner[place + 1 :])
            for place in sampled
        ]
        rises = [1 if result >= function(*corner) else -1 for result in raised]
        for side in (-1, 1):  # the result's lower bound, then its upper one
            widths = []
            for place, sign in zip(sampled, rises, strict=True):
                end = numbers[place].high if sign == side else numbers[place].low
                widths.append(math.log(end / numbers[place].value))
            length, moved = math.hypot(*widths), [*corner]
            for place, width in zip(sampled, widths, strict=True) if length else ():
                moved[place] *= math.exp(width * abs(width) / length)
            results.append(float(function(*moved)))
    return Interval(value, min(results), max(results), _widest(numbers))


def divide(numerator: Interval, denominator: Interval) -> Interval:
    """Return the ratio of two numbers, such as a speed-up; see `combine`."""
    return combine(lambda one, other: one / other, numerator, denominator)
