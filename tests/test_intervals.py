"""Intervals over kernels: the formula by hand, what counts as history, and how bounds are combined."""

import math

import numpy
import pytest

from benchbook.judging import intervals, statistics
from benchbook.judging.intervals import History, Interval
from rows import make_row, make_rows

SIX = [100.0] * 6
ENOUGH = History(0.02, 10)


def kernel(run_id, rate, num_windows=6, **columns):
    """Return the windows of one kernel, all at this rate."""
    return [
        make_row(run_id=run_id, index=index, samples_per_second=float(rate)) | columns for index in range(num_windows)
    ]


def quantile(freedom):
    """Return the quantile of Student's t that bounds of 96.5 % are made of."""
    from scipy import stats  # its import takes a second

    return stats.t.ppf(0.9825, freedom)


def by_hand(levels, history):
    """Return half the width of the interval: Student's t, the variance pooled with history and prior."""
    squares = sum((level - numpy.mean(levels)) ** 2 for level in levels) + history.squares + 2 * 0.06**2
    freedom = len(levels) - 1 + history.freedom + 2
    return quantile(freedom) * math.sqrt(squares / freedom / len(levels))


def test_the_interval_is_students_t_over_the_medians_of_kernels():
    # medians 100, 110 and 130
    values = [100.0, 100.0, 500.0, 110.0, 110.0, 1.0, 130.0, 130.0, 131.0]
    found = intervals.interval(values, list("aaabbbccc"), ENOUGH)
    levels = numpy.log([100, 110, 130])
    half = by_hand(levels, ENOUGH)
    assert found.kind == "interval"
    assert found.value == pytest.approx(math.exp(levels.mean()))
    assert (found.low, found.high) == pytest.approx((found.value * math.exp(-half), found.value * math.exp(half)))


def test_one_kernel_has_the_interval_of_its_history_and_a_range_without_one():
    found = intervals.interval(SIX, ["a"] * 6, ENOUGH)
    assert math.log(found.high / 100) == pytest.approx(by_hand([0.0], ENOUGH))
    alone = intervals.interval([90.0, *SIX, 120.0], ["a"] * 8)
    assert (alone.low, alone.high, alone.kind) == (90.0, 120.0, "range")
    thin = History(0.02, intervals.FEWEST_FREEDOM - 1)
    assert intervals.interval(SIX, ["a"] * 6, thin).kind == "range"
    assert intervals.interval(SIX, list("aaabbb"), thin).kind == "interval"  # its own kernels are the fourth degree


def test_fewer_than_six_windows_have_a_range():
    assert intervals.interval([50.0, 10.0, 20.0], list("abc"), ENOUGH).kind == "range"
    assert intervals.interval([10.0], ["a"]) == Interval(pytest.approx(10.0), 10.0, 10.0, "range")


def test_windows_that_scatter_more_than_kernels_ever_did_widen_the_interval():
    scattered = 100 * numpy.exp(numpy.random.default_rng(3).normal(scale=0.5, size=8))
    quiet = History(0.0, 100)
    found = intervals.interval(scattered, ["a"] * 8, quiet)
    error = intervals.median_error(numpy.log(scattered))
    assert error > 0.1
    assert math.log(found.high / found.value) == pytest.approx(quantile(102) * error)
    assert math.log(found.high / found.value) > 5 * by_hand([0.0], quiet)


def test_an_interval_has_any_unit_and_any_order_of_windows():
    random = numpy.random.default_rng(7)
    values, kernels = random.lognormal(sigma=0.05, size=18), numpy.repeat([3, 1, 2], 6)
    found, order = intervals.interval(values, kernels, ENOUGH), random.permutation(18)
    turned = intervals.interval(1000 * values[order], kernels[order], ENOUGH)
    expected = [1000 * bound for bound in (found.value, found.low, found.high)]
    assert [turned.value, turned.low, turned.high] == pytest.approx(expected)


@pytest.mark.parametrize(("values", "kernels"), [([], []), ([1.0], []), ([1.0], ["a", "b"])])
def test_an_interval_needs_values_and_a_kernel_for_each(values, kernels):
    with pytest.raises(ValueError, match="allowed: as many of each"):
        intervals.interval(values, kernels)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_an_interval_needs_values_above_zero(value):
    with pytest.raises(ValueError, match="allowed: above 0"):
        intervals.interval([1.0, value], ["a", "b"])


def test_history_is_how_kernels_of_the_same_work_differed():
    rows = [
        *kernel("a", 100),
        *kernel("b", 110, session="another"),
        *kernel("c", 50, point="other"),
        *kernel("d", 60, point="other"),
        *kernel("e", 70, point="alone"),
        *kernel("f", 900, commit="later"),  # other code may have another speed
        *kernel("g", 900, device="cuda"),
        *kernel("h", 900, machine="attic"),
        *kernel("i", 900, source="published"),
        *kernel("j", 900, phase="warmup"),
    ]
    deviations = intervals.histories(make_rows(rows))
    squares = math.log(110 / 100) ** 2 / 2 + math.log(60 / 50) ** 2 / 2
    found = deviations["samples_per_second", "desk", "cpu"]
    assert (found.squares, found.freedom) == (pytest.approx(squares), 2)
    assert deviations["samples_per_second", "desk", "cuda"] == History(0.0, 0)
    assert "published" not in str(deviations)


def test_sessions_that_are_compared_are_no_history_of_each_other():
    rows = [*kernel("a", 100), *kernel("b", 110), *kernel("c", 200, session="new"), *kernel("d", 210, session="new")]
    found = intervals.histories(make_rows(rows), apart={"new"})["samples_per_second", "desk", "cpu"]
    squares = (math.log(1.1) ** 2 + math.log(2.1 / 2) ** 2) / 2
    assert (found.squares, found.freedom) == (pytest.approx(squares), 2)


def test_the_starts_of_a_calibration_are_kernels_and_its_products_are_not():
    start = {"phase": "calibrate", "model": intervals.STARTS, "study": "calibrate", "point": "cpu"}
    rows = [row for repeat, rate in enumerate([100, 110, 120]) for row in kernel("one", rate, repeat=repeat, **start)]
    product = start | {"model": "matmul", "repeat": 9}
    rows += [*kernel("one", 9, **product), *kernel("two", 99, **product)]
    found = intervals.histories(make_rows(rows))["samples_per_second", "desk", "cpu"]
    levels = numpy.log([100, 110, 120])
    assert (found.squares, found.freedom) == (pytest.approx(2 * levels.var(ddof=1)), 2)


def test_a_points_own_kernels_count_once():
    rows = [row for place, rate in enumerate([100, 104, 99, 103, 101]) for row in kernel(f"run-{place}", rate)]
    frame = make_rows(rows)
    alone = intervals.interval(frame["samples_per_second"].to_numpy(float), frame["run_id"].tolist())
    assert alone.kind == "interval"
    found = statistics.summarise(frame).iloc[0]
    assert (found["low"], found["high"]) == pytest.approx((alone.low, alone.high))


def test_energy_has_a_history_of_its_own():
    read = {"energy_method": "nvml", "energy_boundary": "board"}
    rows = [*kernel("a", 100, energy_joules=64.0, **read), *kernel("b", 100, energy_joules=128.0, **read)]
    found = intervals.histories(make_rows(rows))
    assert found["samples_per_second", "desk", "cpu"].squares == 0
    assert found["energy_per_sample", "desk", "cpu"].squares == pytest.approx(math.log(2) ** 2 / 2)


def sampled(value, width):
    return Interval(value, value * math.exp(-width), value * math.exp(width), "interval")


def test_a_ratio_adds_errors_in_squares_on_the_log_scale():
    found = intervals.divide(sampled(300.0, 0.03), sampled(100.0, 0.04))
    assert (found.value, found.kind) == (pytest.approx(3.0), "interval")
    assert (found.low, found.high) == pytest.approx((3 * math.exp(-0.05), 3 * math.exp(0.05)))
    back = intervals.divide(sampled(100.0, 0.04), sampled(300.0, 0.03))
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_a_ratio_of_one_history_is_students_t_of_the_difference():
    a, b = (intervals.interval(values, list("aaabbb"), ENOUGH) for values in ([100.0] * 6, [120.0] * 6))
    found = intervals.divide(b, a)
    freedom = ENOUGH.freedom + 1 + 2
    error = math.sqrt((ENOUGH.squares + 2 * 0.06**2) / freedom * (1 / 2 + 1 / 2))
    assert math.log(found.high / found.value) == pytest.approx(quantile(freedom) * error)


def test_a_monotone_function_of_a_ratio_has_the_ratios_bounds():
    a, b = sampled(1.02, 0.02), sampled(1.0, 0.02)
    plain = intervals.divide(a, b)
    percent = intervals.combine(lambda one, other: (one / other - 1) * 100, a, b)
    assert (percent.low, percent.high) == pytest.approx(((plain.low - 1) * 100, (plain.high - 1) * 100), rel=1e-3)


def test_bounds_that_are_not_symmetric_are_kept():
    lopsided = Interval(10.0, 9.0, 20.0, "interval")
    found = intervals.combine(lambda value: 60 / value, lopsided)
    assert (found.low, found.high) == pytest.approx((3.0, 60 / 9))


def test_ranges_and_printed_figures_enter_with_their_ends():
    printed = intervals.divide(Interval(10.0, 9.5, 10.5), Interval(5.0, 4.5, 5.5))
    assert (printed.low, printed.high) == pytest.approx((9.5 / 5.5, 10.5 / 4.5))
    assert printed.kind == "rounding"
    found = intervals.divide(sampled(10.0, 0.1), Interval(5.0, 4.0, 6.0, "range"))
    assert (found.low, found.high) == pytest.approx((10 * math.exp(-0.1) / 6, 10 * math.exp(0.1) / 4))
    assert found.kind == "range"
    assert intervals.divide(sampled(10.0, 0.1), Interval(5.0, 5.0, 5.0)).kind == "interval"


def test_the_width_of_windows_alone_is_that_of_order_statistics():
    # Of 6 windows the least and the most enclose the median in 62 of 64 cases; of 11 the second and the tenth.
    values = [float(value) for value in range(1, 12)]
    assert intervals.windows_width(values[:6]) == pytest.approx(math.log(6))
    assert intervals.windows_width(values) == pytest.approx(math.log(10 / 2))
    assert intervals.windows_width(values[:5]) == math.inf
    one_apart = [100.0] * 11 + [1000.0]
    assert intervals.windows_width(one_apart) == 0
    both = numpy.array([values, [value * 7 for value in values]])
    assert intervals.windows_width(both).tolist() == pytest.approx([math.log(5)] * 2)


@pytest.mark.parametrize("deviation", [0.01, 0.05, 0.1])
def test_intervals_cover_the_truth_where_there_is_a_history(deviation):
    random, covered = numpy.random.default_rng(1), []
    for _ in range(200):
        past = deviation * random.normal(size=6)
        history = History(float(numpy.sum((past - past.mean()) ** 2)), 5)
        levels = numpy.repeat(deviation * random.normal(size=2), 6)
        values = numpy.exp(levels + 0.01 * random.normal(size=12))
        found = intervals.interval(values, list("aaaaaabbbbbb"), history)
        covered.append(found.low <= 1 <= found.high)
    assert numpy.mean(covered) >= 0.9
