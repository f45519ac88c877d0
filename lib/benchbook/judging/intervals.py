"""One kind of interval for rates, ratios and everything computed from them.

The estimate is the mean log rate over kernels (Python processes). Windows of one kernel share its memory layout, clocks
and thread placement. So each kernel counts once, by the median of its windows, and the interval is Student's t over
kernels. One kernel alone has a range, and a range decides nothing.

A few kernels give a poor estimate of their variance, and points of one machine differ: the standard deviations between
their kernels were 0.7 to 27.7 %. So a point's variance is shrunk towards that of the machine's other points, the more
so the better these agree (a moderated variance: Smyth, Statistical Applications in Genetics and Molecular Biology 3,
2004). Sessions differ as well: a comparison across sessions adds the variance between sessions.

`make bench STUDIES=intervals` shows how often such intervals cover the truth, and how wide they are.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy
import pandas

# The level of what is shown as a 95 % interval: a little higher, so that it also holds for the points that vary most.
LEVEL = 0.965
FEWEST_WINDOWS = 6  # with fewer windows, or one kernel, a range is shown and no interval
LEAST_DEVIATION = 0.01  # between kernels, on the log scale; smaller ones count as this
# The weak prior, for a machine with few measured points: a log-uniform distribution of the deviation, from the smallest
# to the largest that was seen. It counts as PRIOR_POINTS points.
SEEN_DEVIATIONS = (0.007, 0.277)
PRIOR_POINTS = 8
PRIOR_FREEDOMS = (0.3, 1.0)  # bounds: a few points can show neither close agreement nor none at all
# The prior deviation between sessions, on the log scale, and its degrees of freedom: two sessions of equal code were 3
# to 5 % apart.
SESSION_DEVIATION, SESSION_FREEDOM = 0.03, 4
INTERVAL, RANGE, ROUNDING = "interval", "range", "rounding"
# Columns that are equal for kernels of the same work. Settings are not: a search may choose others in each kernel.
WORK = ["machine", "device", "study", "point", "phase", "dataset", "framework_version", "commit"]
NO_POINTS = numpy.empty(0)
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
        session: the session that measured it; empty: unknown.
        session_width: half the width, on the log scale, that a comparison with another session adds.
    """

    value: float
    low: float
    high: float
    kind: str = ROUNDING
    session: str = ""
    session_width: float = 0.0

    @classmethod
    def from_row(
        cls, line: Mapping, value: str, low: str = "low", high: str = "high", kind: str = "interval"
    ) -> "Interval":
        """Return the number in a table's line; the arguments name its columns.

        Without a value in column `kind` the bounds are of rounding. Columns session and session_width are optional.
        """
        named, session, width = line.get(kind), line.get("session"), line.get("session_width")
        return cls(
            *(float(line[name]) for name in (value, low, high)),
            kind=named if isinstance(named, str) else ROUNDING,
            session=session if isinstance(session, str) else "",
            session_width=0.0 if pandas.isna(width) else float(width),
        )

    def columns(self, value: str, low: str = "low", high: str = "high", kind: str = "interval") -> dict:
        """Return the number as columns of a table's line, which `from_row` reads; the arguments name the columns."""
        return {value: self.value, low: self.low, high: self.high, kind: self.kind}


@dataclass(frozen=True)
class Prior:
    """The deviation between kernels of a point, estimated from the other points of its machine and device.

    Attributes:
        variance: of kernels' log rates.
        freedom: its degrees of freedom: few if the points' variances differ.
        session_width: see `Interval`.
    """

    variance: float
    freedom: float
    session_width: float


def fit(variances, freedoms):
    """Return the variance and degrees of freedom of the points' prior, by the moments of their log variances.

    The weak prior counts as PRIOR_POINTS further points, and the degrees of freedom are bounded by PRIOR_FREEDOMS.

    Source: Smyth 2004, section 6.2.

    Args:
        variances: between the kernels of each point, shape (..., points); points may be 0.
        freedoms: the number of kernels of each point, less one.
    """
    from scipy.special import digamma, polygamma

    freedoms = numpy.asarray(freedoms, float)
    logs = numpy.log(numpy.maximum(variances, LEAST_DEVIATION**2)) - digamma(freedoms / 2) + numpy.log(freedoms / 2)
    least, most = 2 * numpy.log(SEEN_DEVIATIONS)
    weight, middle = PRIOR_POINTS + logs.shape[-1], (least + most) / 2
    mean = (PRIOR_POINTS * middle + logs.sum(axis=-1)) / weight
    squares = ((logs - mean[..., None]) ** 2 - polygamma(1, freedoms / 2)).sum(axis=-1)
    squares += PRIOR_POINTS * ((most - least) ** 2 / 12 + (middle - mean) ** 2)
    halves = numpy.linspace(*PRIOR_FREEDOMS)[::-1] / 2
    half = numpy.interp(squares / (weight - 1), polygamma(1, halves), halves)
    return numpy.exp(mean + digamma(half) - numpy.log(half)), 2 * half


def session_width(variances, errors, num_sessions):
    """Return half the width, on the log scale, that a comparison with another session adds to a number.

    A slow session slows all its points, so the degrees of freedom count sessions and not points.

    Args:
        variances: of each point between its sessions, shape (..., points).
        errors: the squared standard error of each point's level in one session.
        num_sessions: the sessions of these points; with 1, only SESSION_DEVIATION is known.
    """
    own, freedom = num_sessions - 1, num_sessions - 1 + SESSION_FREEDOM
    weights = 1 / (SESSION_DEVIATION**2 + errors) ** 2
    found = numpy.average(variances - errors, axis=-1, weights=weights) if own else 0.0
    pooled = (SESSION_FREEDOM * SESSION_DEVIATION**2 + own * numpy.maximum(found, 0.0)) / freedom
    return half_width(pooled, freedom, 1)


@functools.cache
def weak_prior() -> Prior:
    """Return the prior of a machine without measured points."""
    return Prior(*map(float, fit(NO_POINTS, NO_POINTS)), float(session_width(NO_POINTS, NO_POINTS, 1)))


def half_width(variance, freedom, num_kernels):
    """Return half the width of a mean log rate's interval, elementwise.

    Args:
        variance: of kernels' log rates.
        freedom: degrees of freedom of that variance.
        num_kernels: of the point.
    """
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + LEVEL) / 2) * numpy.sqrt(variance / num_kernels)


def moderate(variance, num_kernels, prior_variance, prior_freedom):
    """Return a point's variance between kernels, shrunk towards its prior, and its degrees of freedom, elementwise.

    Args:
        variance, num_kernels: of the point.
        prior_variance, prior_freedom: see `Prior`.
    """
    freedom = prior_freedom + num_kernels - 1
    return (prior_freedom * prior_variance + (num_kernels - 1) * variance) / freedom, freedom


def interval(values: Sequence[float], kernels: Sequence, prior: Prior | None = None) -> Interval:
    """Return the geometric mean over kernels of their median values, with a 95 % interval.

    Args:
        values: one per window, above 0.
        kernels: the run of each window.
        prior: of the device and machine, see `priors`; None: `weak_prior`.

    Returns:
        The range of the values instead, if there are fewer than FEWEST_WINDOWS or if they are of one kernel.

    Raises:
        ValueError: no values, not one kernel per value, or a value that is not above 0.
    """
    array, medians = numpy.asarray(values, float), _medians(values, kernels)
    value = float(medians[0] * numpy.exp(numpy.mean(numpy.log(medians / medians[0]))))  # one kernel: exactly its median
    if len(array) < FEWEST_WINDOWS or len(medians) < 2:
        return Interval(value, float(array.min()), float(array.max()), RANGE)
    prior, variance = prior or weak_prior(), numpy.log(medians).var(ddof=1)
    moderated = moderate(variance, len(medians), prior.variance, prior.freedom)
    factor = float(numpy.exp(half_width(*moderated, len(medians))))
    return Interval(value, value / factor, value * factor, INTERVAL)


def _medians(values: Sequence[float], kernels: Sequence) -> numpy.ndarray:
    array, names = numpy.asarray(values, float), numpy.asarray(kernels)
    if len(array) == 0 or len(array) != len(names):
        raise ValueError(f"{len(array)} values and {len(names)} kernels; allowed: as many of each, 1 or more")
    if not array.min() > 0:
        raise ValueError(f"value {array.min()!r}; allowed: above 0")
    return numpy.array([numpy.median(array[names == kernel]) for kernel in dict.fromkeys(names.tolist())])


def windows_width(values: Sequence[float]) -> float:
    """Return the width, as a fraction, of the 95 % interval of one kernel's median window.

    The bounds are order statistics (by the binomial distribution), so they hold for noise of any shape. With fewer than
    6 windows the width is infinite. It says nothing about other kernels.
    """
    from scipy.special import bdtr

    logs = numpy.sort(numpy.log(numpy.asarray(values, float)))
    # The lower bound's place among the sorted values, from 1.
    outside = int(numpy.sum(bdtr(numpy.arange(len(logs) // 2), len(logs), 0.5) <= 0.025))
    return float(logs[-outside] - logs[outside - 1]) if outside else numpy.inf


def combine(function: Callable[..., float], *numbers: Interval) -> Interval:
    """Return a function's value for several numbers, with its bounds.

    Independent errors of intervals add in squares, on the log scale of each number: the MOVER rule of Zou and Donner
    (Statistics in Medicine 27, 2008). Intervals from several sessions are first widened by how much sessions differ.
    Ranges and printed figures enter with both their ends.

    Args:
        function: takes as many floats; monotone in each between its bounds.
        numbers: independent of each other, except for the prior that they share.

    Returns:
        A `range` if one of the numbers is one, else an `interval` if one is, else a `rounding`.
    """
    value = float(function(*(number.value for number in numbers)))
    sampled = [place for place, number in enumerate(numbers) if number.kind == INTERVAL and number.low > 0]
    ends = [
        (number.value,) if place in sampled or number.low == number.high else (number.low, number.high)
        for place, number in enumerate(numbers)
    ]
    if len({numbers[place].session for place in sampled}) > 1:
        numbers = [_widened(one) if place in sampled else one for place, one in enumerate(numbers)]
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


def _widened(number: Interval) -> Interval:
    """Return an interval widened for a comparison with another session."""
    factors = (numpy.hypot(numpy.log(end / number.value), number.session_width) for end in (number.low, number.high))
    down, up = map(float, numpy.exp([*factors]))
    return replace(number, low=number.value / down, high=number.value * up)


def _slope(function: Callable, point: list[float], place: int) -> float:
    """Return a function's derivative by the logarithm of one argument."""
    up, down = ([*point[:place], point[place] * numpy.exp(step), *point[place + 1 :]] for step in (_NUDGE, -_NUDGE))
    return float((function(*up) - function(*down)) / (2 * _NUDGE))


def divide(numerator: Interval, denominator: Interval) -> Interval:
    """Return the ratio of two numbers, such as a speed-up; see `combine`."""
    return combine(lambda one, other: one / other, numerator, denominator)


def priors(rows: pandas.DataFrame, excluded_sessions: Collection[str] = ()) -> dict[tuple[str, str, str], Prior]:
    """Return the prior of each measure (RATE, ENERGY), machine and device.

    Only kernels that ran the same work with the same software at the same commit are compared, within a session and
    then across sessions.

    Args:
        rows: all rows, as `records.merge` returns them; only measured rows count.
        excluded_sessions: sessions left out of the deviation between sessions, because their difference is the
            question.
    """
    windows = rows[(rows["source"] == "measured") & rows["device"].notna() & (rows["phase"] == "train")]
    rates = {RATE: windows[RATE], ENERGY: windows["energy_joules"] / windows["samples"]}
    fitted = {}
    for measure, values in rates.items():
        measured = windows.assign(level=values.astype(float))
        kernels = measured[measured["level"] > 0].groupby([*WORK, "session", "run_id"], dropna=False)
        levels = numpy.log(kernels["level"].median()).reset_index()
        sets = levels.groupby([*WORK, "session"], dropna=False)["level"].agg(["mean", "var", "count"]).reset_index()
        for key, own in sets.groupby(["machine", "device"]):
            several = own[own["count"] > 1]
            variance, freedom = fit(several["var"].to_numpy(), several["count"].to_numpy() - 1)
            pooled, _ = moderate(own["var"].fillna(0), own["count"], variance, freedom)
            own = own.assign(error=pooled / own["count"])[~own["session"].isin(excluded_sessions)]
            works = own.groupby(WORK, dropna=False)
            repeated = works["mean"].transform("count") > 1
            points = own[repeated].groupby(WORK, dropna=False).agg(variance=("mean", "var"), error=("error", "mean"))
            sessions = max(1, own.loc[repeated, "session"].nunique())
            width = session_width(points["variance"].to_numpy(), points["error"].to_numpy(), sessions)
            fitted[measure, *key] = Prior(float(variance), float(freedom), float(width))
    return fitted
