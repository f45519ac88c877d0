"""One kind of interval for rates, ratios and everything computed from them.

What is estimated is the mean, over starts of a kernel (a Python process), of the logarithm of the rate. Windows of one
kernel share what that kernel was given (memory layout, clocks, placement of threads), so each kernel counts once, by
the median of its windows, and the interval is Student's t over kernels. How much kernels differ seldom follows from
the few kernels of one point, so their variance is pooled with that of all other kernels on the same device of the same
machine (its history), and with a prior that stands for two more degrees of freedom. This is the estimate of a variance
under a scaled inverse chi-square prior (Gelman et al., Bayesian Data Analysis, 2013, section 2.6).

`make bench STUDIES=statistics` shows how often such intervals cover the truth.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy
import pandas

# What is called a 95 % interval is computed at this level, so that it holds where kernels fall into two modes, too.
LEVEL = 0.965
PRIOR_DEVIATION = 0.06  # standard deviation of log rates between kernels, where nothing else says so
PRIOR_FREEDOM = 2  # as many degrees of freedom the prior counts
FEWEST_WINDOWS = 6  # with fewer, the range is shown and no interval
FEWEST_FREEDOM = 4  # of the history and the point's own kernels together; with fewer, the range is shown
STARTS = "kernel_start"  # the model of calibration's rows about how kernels differ
INTERVAL, RANGE, ROUNDING = "interval", "range", "rounding"
# What two kernels have in common that ran the same work. A search may choose other settings in each.
WORK = ["machine", "device", "study", "point", "phase", "dataset", "framework_version", "commit"]
RATE, ENERGY = "samples_per_second", "energy_per_sample"
_NUDGE = 1e-4  # of a logarithm, for derivatives


@dataclass(frozen=True)
class Interval:
    """A number with its bounds.

    Attributes:
        value: the estimate.
        low, high: its bounds, in the same unit.
        kind: `interval` (95 %), `range` (least and most of too few windows or kernels), or `rounding` (of a printed
            figure, or an exact number).
    """

    value: float
    low: float
    high: float
    kind: str = ROUNDING

    @classmethod
    def from_row(
        cls, line: Mapping, value: str, low: str = "low", high: str = "high", kind: str = "interval"
    ) -> "Interval":
        """Return a number of a table's line; the arguments name its columns.

        A line whose column `kind` is missing has bounds of rounding.
        """
        named = line.get(kind)
        return cls(
            *(float(line[name]) for name in (value, low, high)), kind=named if isinstance(named, str) else ROUNDING
        )


@dataclass(frozen=True)
class History:
    """How much kernels of one device of a machine differed.

    Attributes:
        squares: sum of the squared distances of kernels' log rates from the mean of kernels that ran the same work.
        freedom: degrees of freedom of that sum: kernels less works.
    """

    squares: float = 0.0
    freedom: int = 0

    def without(self, part: "History") -> "History":
        """Return this history without a part of it."""
        return History(max(0.0, self.squares - part.squares), max(0, self.freedom - part.freedom))


NO_HISTORY = History()


def reach(variance, freedom, num_kernels):
    """Return half the width of the interval of a mean log rate, elementwise.

    Args:
        variance: of kernels' log rates.
        freedom: degrees of freedom of that variance.
        num_kernels: of the point.
    """
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + LEVEL) / 2) * numpy.sqrt(variance / num_kernels)


def variance(squares, freedom, windows_variance=0.0):
    """Return the variance between kernels and its degrees of freedom, elementwise, the prior included.

    Args:
        squares, freedom: of the history and the point's own kernels together.
        windows_variance: the squared standard error of a kernel's median from its own windows; kernels are never taken
            to be more alike than that.
    """
    total = freedom + PRIOR_FREEDOM
    pooled = (squares + PRIOR_FREEDOM * PRIOR_DEVIATION**2) / total
    return numpy.maximum(pooled, windows_variance), total


def interval(values: Sequence[float], kernels: Sequence, history: History = NO_HISTORY) -> Interval:
    """Return a number's mean over kernels (of its logarithm) with a 95 % interval.

    Args:
        values: one per window, above 0.
        kernels: the run each window belongs to.
        history: of other kernels of the same device and machine.

    Returns:
        The range of the values where they are fewer than FEWEST_WINDOWS, or where history and kernels have fewer than
        FEWEST_FREEDOM degrees of freedom together.

    Raises:
        ValueError: no values, not one kernel per value, or a value that is not above 0.
    """
    array = numpy.asarray(values, float)
    if len(array) == 0 or len(array) != len(kernels):
        raise ValueError(f"{len(array)} values and {len(kernels)} kernels; allowed: as many of each, 1 or more")
    if not array.min() > 0:
        raise ValueError(f"value {array.min()!r}; allowed: above 0")
    groups = _by_kernel(array, kernels)
    medians = numpy.array([numpy.median(group) for group in groups])
    value = float(medians[0] * numpy.exp(numpy.mean(numpy.log(medians / medians[0]))))  # of one kernel its median
    own = spread(array, kernels)
    freedom = history.freedom + own.freedom
    if len(array) < FEWEST_WINDOWS or freedom < FEWEST_FREEDOM:
        return Interval(value, float(array.min()), float(array.max()), RANGE)
    errors = numpy.mean([median_error(numpy.log(group)) ** 2 for group in groups])
    width = float(reach(*variance(history.squares + own.squares, freedom, errors), len(groups)))
    return Interval(value, value * float(numpy.exp(-width)), value * float(numpy.exp(width)), INTERVAL)


def median_error(values):
    """Return the standard error of the median of windows, from their median absolute deviation.

    1.4826 turns that deviation into a standard deviation of normal noise, and a median's error is sqrt(pi / 2) of a
    mean's.

    Args:
        values: windows along the last axis; of one window alone nothing can be said, and the error is 0.
    """
    array = numpy.asarray(values, float)
    deviation = numpy.median(numpy.abs(array - numpy.median(array, axis=-1, keepdims=True)), axis=-1)
    return 1.4826 * (numpy.pi / 2) ** 0.5 * deviation / array.shape[-1] ** 0.5


def windows_width(values):
    """Return how wide, as a fraction, the 95 % interval of the median of one kernel's windows alone is.

    It is that of order statistics (by the binomial distribution), which noise of any shape obeys; infinite with fewer
    than 6 windows. More windows make it narrower; it says nothing of other kernels.

    Args:
        values: windows along the last axis.
    """
    from scipy.special import bdtr

    logs = numpy.sort(numpy.log(numpy.asarray(values, float)))
    count = logs.shape[-1]
    # Values below the lower bound, and it.
    outside = int(numpy.sum(bdtr(numpy.arange(count // 2), count, 0.5) <= 0.025))
    if outside == 0:
        return numpy.full(logs.shape[:-1], numpy.inf)[()]
    return logs[..., count - outside] - logs[..., outside - 1]


def combine(function: Callable[..., float], *numbers: Interval) -> Interval:
    """Return what a function of several numbers may be.

    Independent errors of intervals are added in squares on the log scale of each number, by the rule that Zou and
    Donner call MOVER (Statistics in Medicine 27, 2008): for a ratio on one machine that is exactly Student's t of the
    difference of logarithms. Ranges and printed figures enter with both their ends.

    Args:
        function: of as many floats; monotone in each over its bounds.
        numbers: independent of each other, except for the history that they share.

    Returns:
        A `range` if one of the numbers is one, else an `interval` if one is, else a `rounding`.
    """
    value = float(function(*(number.value for number in numbers)))
    sampled = [place for place, number in enumerate(numbers) if number.kind == INTERVAL and number.low > 0]
    ends = [
        (number.value,) if place in sampled or number.low == number.high else (number.low, number.high)
        for place, number in enumerate(numbers)
    ]
    results = [value]
    for corner in itertools.product(*ends):
        slopes = [_slope(function, [*corner], place) for place in sampled]
        for side in (-1, 1):
            widths = [
                float(numpy.log(one.high / one.value) if side * slope > 0 else numpy.log(one.value / one.low))
                for one, slope in zip((numbers[place] for place in sampled), slopes, strict=True)
            ]
            length = float(numpy.hypot.reduce(numpy.multiply(slopes, widths))) if sampled else 0.0
            moved = list(corner)
            for place, slope, width in zip(sampled, slopes, widths, strict=True) if length > 0 else ():
                moved[place] = corner[place] * float(numpy.exp(side * slope * width**2 / length))
            results.append(float(function(*moved)))
    kinds = {number.kind for number in numbers}
    kind = next((word for word in (RANGE, INTERVAL) if word in kinds), ROUNDING)
    return Interval(value, min(results), max(results), kind)


def _slope(function: Callable, point: list[float], place: int) -> float:
    """Return the derivative of a function by the logarithm of one of its numbers."""
    up, down = ([*point[:place], point[place] * numpy.exp(step), *point[place + 1 :]] for step in (_NUDGE, -_NUDGE))
    return float((function(*up) - function(*down)) / (2 * _NUDGE))


def divide(numerator: Interval, denominator: Interval) -> Interval:
    """Return the ratio of two numbers, such as a speed-up; see `combine`."""
    return combine(lambda one, other: one / other, numerator, denominator)


def spread(values: Sequence[float], kernels: Sequence) -> History:
    """Return how much the kernels of one point differ; arguments as of `interval`."""
    levels = numpy.log([numpy.median(group) for group in _by_kernel(values, kernels)])
    return History(float(numpy.sum(numpy.square(levels - levels.mean()))), len(levels) - 1)


def histories(rows: pandas.DataFrame, apart: Collection[str] = ()) -> dict[tuple[str, str, str], History]:
    """Return how much kernels differed, by measure (RATE, ENERGY), machine and device.

    Kernels are compared that ran the same work with the same software at the same commit, in whatever session:
    training windows of one point, and the starts that calibration measures.

    Args:
        rows: rows as `records.merge` returns them, all that there are; measured ones count.
        apart: sessions whose difference from others is a question and no noise: their kernels are compared within the
            session alone.
    """
    windows = rows[(rows["source"] == "measured") & rows["device"].notna()]
    started = (windows["phase"] == "calibrate") & (windows["model"] == STARTS).fillna(False)
    windows = windows[started | (windows["phase"] == "train")]
    runs = windows["run_id"].astype(str)
    runs = runs.where(windows["phase"] == "train", runs + "/" + windows["repeat"].astype(str))
    rates = {RATE: windows[RATE], ENERGY: windows["energy_joules"] / windows["samples"]}
    sums_by_device = {}
    for measure, values in rates.items():
        measured = windows.assign(run_id=runs, level=values.astype(float))
        kernels = measured[measured["level"] > 0].groupby([*WORK, "session", "run_id"], dropna=False, sort=False)
        levels = numpy.log(kernels["level"].median()).reset_index()
        work = [levels[name].fillna("") for name in WORK]
        work.append(levels["session"].where(levels["session"].isin(apart), ""))
        squares = (levels["level"] - levels.groupby(work)["level"].transform("mean")) ** 2
        first = ~pandas.concat(work, axis=1).duplicated()
        sums = levels.assign(squares=squares, freedom=(~first).astype(int)).groupby(["machine", "device"])
        for key, (total, freedom) in sums[["squares", "freedom"]].sum().iterrows():
            sums_by_device[measure, *key] = History(float(total), int(freedom))
    return sums_by_device


def _by_kernel(values: Sequence[float], kernels: Sequence) -> list[numpy.ndarray]:
    """Return the values of each kernel, in the order of their first windows."""
    array, names = numpy.asarray(values, float), numpy.asarray(kernels)
    return [array[names == kernel] for kernel in dict.fromkeys(names.tolist())]
