"""One kind of interval for rates, ratios and everything computed from them.

The estimate is the mean log rate over processes. Windows of one process share its memory layout, clocks and thread
placement. So each process counts once, by the median of its windows, and the interval is Student's t over processes.
One process alone has a range, and a range decides nothing.

A few processes give a poor estimate of their variance: two may agree by chance. So one further process is assumed, with
a stated deviation, and K processes have K degrees of freedom. Sessions differ as well: a comparison across sessions
adds a stated deviation for each number.

`make bench STUDIES=intervals` shows how often such intervals cover the truth, and how wide they are.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy

LEVEL = 0.95
FEWEST_WINDOWS = 6  # with fewer windows, or one process, a range is shown and no interval
# Standard deviations on the log scale: of the assumed process; of the assumed process's ratio, if both sides of a ratio
# alternate in each process (the least that covers 93 % where such ratios differ by up to 3 %); and between sessions.
PROCESS_DEVIATION, PAIRED_DEVIATION, SESSION_DEVIATION = 0.05, 0.02, 0.05
INTERVAL, RANGE, ROUNDING = "interval", "range", "rounding"


@dataclass(frozen=True)
class Interval:
    """A number with its bounds.

    Attributes:
        value: the estimate.
        low, high: its bounds, in the same unit.
        kind: `interval` (95 %), `range` (least and most of too few windows or processes), or `rounding` (of a printed
            figure, or an exact number).
        session: the session that measured it; empty: unknown.
    """

    value: float
    low: float
    high: float
    kind: str = ROUNDING
    session: str = ""

    @classmethod
    def from_row(
        cls, line: Mapping, value: str, low: str = "low", high: str = "high", kind: str = "interval"
    ) -> "Interval":
        """Return the number in a table's line; the arguments name its columns.

        Without a value in column `kind` the bounds are of rounding. Column session is optional.
        """
        named, session = line.get(kind), line.get("session")
        return cls(
            *(float(line[name]) for name in (value, low, high)),
            kind=named if isinstance(named, str) else ROUNDING,
            session=session if isinstance(session, str) else "",
        )

    def columns(self, value: str, low: str = "low", high: str = "high", kind: str = "interval") -> dict:
        """Return the number as columns of a table's line, which `from_row` reads; the arguments name the columns."""
        return {value: self.value, low: self.low, high: self.high, kind: self.kind}


def half_width(variance, freedom, number):
    """Return half the width of the interval of a mean of `number` values, elementwise.

    Args:
        variance, freedom: of the values, and the degrees of freedom of that variance.
        number: of the values.
    """
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + LEVEL) / 2) * numpy.sqrt(variance / number)


def half_width_of_processes(variance, num_processes, assumed: float = PROCESS_DEVIATION):
    """Return half the width of the interval of a mean over processes, elementwise, on the log scale.

    Args:
        variance: of the processes' log values.
        num_processes: 2 or more.
        assumed: the deviation of one further process.
    """
    pooled = (assumed**2 + (num_processes - 1) * variance) / num_processes
    return half_width(pooled, num_processes, num_processes)


def interval(values: Sequence[float], processes: Sequence, assumed: float = PROCESS_DEVIATION) -> Interval:
    """Return the geometric mean over processes of their median values, with a 95 % interval.

    Args:
        values: one per window, above 0.
        processes: the run of each window.
        assumed: PAIRED_DEVIATION for ratios of windows that alternate in each process.

    Returns:
        The range of the values instead, if there are fewer than FEWEST_WINDOWS or if they are of one process.

    Raises:
        ValueError: no values, not one process per value, or a value that is not above 0.
    """
    array, names = numpy.asarray(values, float), numpy.asarray(processes)
    if len(array) == 0 or len(array) != len(names):
        raise ValueError(f"{len(array)} values and {len(names)} processes; allowed: as many of each, 1 or more")
    if not array.min() > 0:
        raise ValueError(f"value {array.min()!r}; allowed: above 0")
    medians = numpy.array([numpy.median(array[names == process]) for process in dict.fromkeys(names.tolist())])
    # Relative to the first median, so that the value of one process is exactly its median.
    value = float(medians[0] * numpy.exp(numpy.mean(numpy.log(medians / medians[0]))))
    if len(array) < FEWEST_WINDOWS or len(medians) < 2:
        return Interval(value, float(array.min()), float(array.max()), RANGE)
    factor = math.exp(half_width_of_processes(numpy.log(medians).var(ddof=1), len(medians), assumed))
    return Interval(value, value / factor, value * factor, INTERVAL)


def combine(function: Callable[..., float], *numbers: Interval) -> Interval:
    """Return a function's value for several numbers, with its bounds.

    Independent errors of intervals add in squares, on the log scale. Where several sessions are compared, each interval
    is first widened by SESSION_DEVIATION. Ranges and printed figures enter with both their ends.

    Args:
        function: of as many floats: products and quotients of independent numbers, and constants.

    Returns:
        A `range` if one of the numbers is one, else an `interval` if one is, else a `rounding`.
    """
    sampled = [place for place, number in enumerate(numbers) if number.kind == INTERVAL and number.low > 0]
    several = len({numbers[place].session for place in sampled}) > 1
    added = half_width(SESSION_DEVIATION**2, numpy.inf, 1) if several else 0.0
    ends = [
        (number.value,) if place in sampled or number.low == number.high else (number.low, number.high)
        for place, number in enumerate(numbers)
    ]
    results = [value := float(function(*(number.value for number in numbers)))]
    for corner in itertools.product(*ends):
        raised = [function(*corner[:place], numbers[place].high, *corner[place + 1 :]) for place in sampled]
        rises = [1 if result >= function(*corner) else -1 for result in raised]
        for side in (-1, 1):  # the result's lower bound, then its upper one
            widths = []
            for place, sign in zip(sampled, rises, strict=True):
                end = numbers[place].high if sign == side else numbers[place].low
                widths.append(side * sign * math.hypot(math.log(end / numbers[place].value), added))
            length, moved = math.hypot(*widths), [*corner]
            for place, width in zip(sampled, widths, strict=True) if length else ():
                moved[place] *= math.exp(width * abs(width) / length)
            results.append(float(function(*moved)))
    kinds = {number.kind for number in numbers}
    kind = next((word for word in (RANGE, INTERVAL) if word in kinds), ROUNDING)
    return Interval(value, min(results), max(results), kind)


def divide(numerator: Interval, denominator: Interval) -> Interval:
    """Return the ratio of two numbers, such as a speed-up; see `combine`."""
    return combine(lambda one, other: one / other, numerator, denominator)
