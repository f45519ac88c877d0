"""Intervals over kernels: the formula by hand, what a machine's other points and sessions say, how bounds combine."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from benchbook.judging import intervals
from benchbook.judging.intervals import Interval, Prior
from rows import make_rows, windows

SIX = [100.0] * 6
PRIOR = Prior(variance=0.002, freedom=0.8, session_width=0.1)


def kernel(run_id, rate, num_windows=6, **columns):
    """Return the windows of one kernel, all at this rate."""
    return windows([rate] * num_windows, run_id=run_id, **columns)


def quantile(freedom):
    """Return the quantile of Student's t that bounds of 96.5 % are made of."""
    from scipy import stats  # its import takes a second

    return stats.t.ppf(0.9825, freedom)


@pytest.mark.parametrize(("true_variance", "true_freedom"), [(1e-3, 0.8), (0.01, 0.5)])
def test_the_prior_is_found_from_variances_that_were_drawn_from_it(monkeypatch, true_variance, true_freedom):
    monkeypatch.setattr(intervals, "LEAST_DEVIATION", 1e-9)
    random, freedoms = numpy.random.default_rng(2), numpy.tile([1, 2, 5], 20_000)
    own = true_variance * true_freedom / random.chisquare(true_freedom, len(freedoms))
    variances = own * random.chisquare(freedoms) / freedoms
    assert intervals.fit(variances, freedoms) == pytest.approx((true_variance, true_freedom), rel=0.1)


def test_few_points_leave_the_prior_between_its_bounds():
    variance, freedom = intervals.fit(numpy.empty((2, 0)), numpy.empty((2, 0)))
    weak = intervals.weak_prior()
    assert (variance.tolist(), freedom.tolist()) == ([weak.variance] * 2, [weak.freedom] * 2)
    assert weak.freedom == pytest.approx(0.975, abs=0.01)  # deviations of 0.7 to 27.7 %, each order as likely
    alike, wild = (intervals.fit(numpy.array(each), numpy.ones(60)) for each in ([0.003] * 60, [1e-4, 400.0] * 30))
    assert (alike[1], wild[1]) == (1.0, pytest.approx(0.3))
    assert alike[0] > variance[0]


def test_the_interval_is_students_t_over_the_medians_of_kernels():
    # medians 100, 110 and 130
    values = [100.0, 100.0, 500.0, 110.0, 110.0, 1.0, 130.0, 130.0, 131.0]
    found = intervals.interval(values, list("aaabbbccc"), PRIOR)
    levels = numpy.log([100, 110, 130])
    variance = (0.8 * 0.002 + 2 * levels.var(ddof=1)) / 2.8
    half = quantile(2.8) * math.sqrt(variance / 3)
    assert found.kind == "interval"
    assert found.value == pytest.approx(math.exp(levels.mean()))
    assert (found.low, found.high) == pytest.approx((found.value * math.exp(-half), found.value * math.exp(half)))
    weak = intervals.interval(values, list("aaabbbccc"))
    assert weak == intervals.interval(values, list("aaabbbccc"), intervals.weak_prior())


@pytest.mark.parametrize("prior", [PRIOR, None])
def test_one_kernel_or_fewer_than_six_windows_have_a_range(prior):
    alone = intervals.interval([90.0, *SIX, 120.0], ["a"] * 8, prior)
    assert (alone.low, alone.high, alone.kind) == (90.0, 120.0, "range")
    assert intervals.interval([50.0, 10.0, 20.0, 30.0, 40.0], list("abcde"), prior).kind == "range"
    assert intervals.interval(SIX, list("aaabbb"), prior).kind == "interval"
    assert intervals.interval([10.0], ["a"]) == Interval(pytest.approx(10.0), 10.0, 10.0, "range")


def test_an_interval_has_any_unit_and_any_order_of_windows():
    random = numpy.random.default_rng(7)
    values, kernels = random.lognormal(sigma=0.05, size=18), numpy.repeat([3, 1, 2], 6)
    found, order = intervals.interval(values, kernels, PRIOR), random.permutation(18)
    turned = intervals.interval(1000 * values[order], kernels[order], PRIOR)
    expected = [1000 * bound for bound in (found.value, found.low, found.high)]
    assert [turned.value, turned.low, turned.high] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "kernels", "allowed"),
    [
        *(([], [], "as many of each"), ([1.0], [], "as many of each"), ([1.0], ["a", "b"], "as many of each")),
        *(([1.0, value], ["a", "b"], "above 0") for value in (0.0, -1.0, math.nan)),
    ],
)
def test_an_interval_needs_values_above_zero_and_a_kernel_for_each(values, kernels, allowed):
    with pytest.raises(ValueError, match=f"allowed: {allowed}"):
        intervals.interval(values, kernels)


def variance(*rates):
    return numpy.log(rates).var(ddof=1)


def test_a_prior_is_learnt_from_how_kernels_of_the_same_work_differed_in_one_session():
    start = {"phase": "calibrate", "model": "kernel_start", "study": "calibrate", "point": "cpu"}
    rows = [
        *(*kernel("a", 100), *kernel("b", 110)),
        *kernel("c", 200, session="another"),
        *(*kernel("d", 50, point="other"), *kernel("e", 60, point="other"), *kernel("f", 70, point="other")),
        *kernel("g", 900, commit="later"),  # other code may have another speed
        *(*kernel("h", 900, device="cuda"), *kernel("i", 900, machine="attic"), *kernel("j", 900, source="published")),
        *(*kernel("k", 900, phase="warmup"), *kernel("l", 9, **start), *kernel("m", 99, **start)),
    ]
    found = intervals.priors(make_rows(rows))
    prior = found["samples_per_second", "desk", "cpu"]
    expected = intervals.fit(numpy.array([variance(100, 110), variance(50, 60, 70)]), numpy.array([1, 2]))
    assert (prior.variance, prior.freedom) == pytest.approx(expected)
    weak = intervals.weak_prior()
    cuda = found["samples_per_second", "desk", "cuda"]
    assert (cuda.variance, cuda.freedom) == (weak.variance, weak.freedom)
    assert "published" not in str(found)


def sessions(*rates, **columns):
    """Return two kernels, 1 % apart, of each session."""
    pairs = [(f"s{place}", rate * (1 + 0.01 * one), one) for place, rate in enumerate(rates) for one in (0, 1)]
    return [row for name, rate, one in pairs for row in kernel(f"{name}-{one}", rate, session=name, **columns)]


def session_width(rows, **options):
    return intervals.priors(make_rows(rows), **options)["samples_per_second", "desk", "cpu"].session_width


def test_how_much_sessions_differ_is_learnt_from_points_that_were_repeated():
    stated = quantile(4) * 0.03
    assert session_width(sessions(100)) == pytest.approx(stated)
    assert session_width(sessions(100, 150)) > 3 * stated
    assert session_width(sessions(100, 150), excluded_sessions={"s1"}) == pytest.approx(stated)
    assert session_width(sessions(100, 100.5, 99.5, 100, 100.4)) < 0.7 * stated
    pairs = {"s0": (50, 150), "s1": (80, 200)}  # kernels differ, and sessions no more than that makes them
    wild = [
        row for name, pair in pairs.items() for rate in pair for row in kernel(f"{name}-{rate}", rate, session=name)
    ]
    alike = sessions(100, 100.5, 99.5, 100, 100.4, point="p")
    assert session_width([*wild, *alike]) < 0.7 * stated


def test_energy_has_a_prior_of_its_own():
    read = {"energy_method": "nvml", "energy_boundary": "board"}
    rows = [*kernel("a", 100, energy_joules=64.0, **read), *kernel("b", 100, energy_joules=128.0, **read)]
    found = intervals.priors(make_rows(rows))
    rate, energy = (found[measure, "desk", "cpu"] for measure in ("samples_per_second", "energy_per_sample"))
    expected = [intervals.fit(numpy.array([each]), numpy.ones(1))[0] for each in (0, variance(1, 2))]
    assert (rate.variance, energy.variance) == pytest.approx(expected)


def sampled(value, width):
    return Interval(value, value * math.exp(-width), value * math.exp(width), "interval")


def test_a_ratio_adds_errors_in_squares_on_the_log_scale():
    found = intervals.divide(sampled(300.0, 0.03), sampled(100.0, 0.04))
    assert (found.value, found.kind) == (pytest.approx(3.0), "interval")
    assert (found.low, found.high) == pytest.approx((3 * math.exp(-0.05), 3 * math.exp(0.05)))
    back = intervals.divide(sampled(100.0, 0.04), sampled(300.0, 0.03))
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_numbers_of_different_sessions_are_compared_with_what_sessions_differ():
    a, b = (replace(sampled(100.0, 0.03), session=name, session_width=0.04) for name in ("s1", "s2"))
    found = intervals.divide(b, a)
    assert math.log(found.high) == pytest.approx(math.hypot(0.03, 0.04, 0.03, 0.04))
    assert math.log(intervals.divide(a, a).high) == pytest.approx(math.hypot(0.03, 0.03))
    printed = intervals.divide(a, Interval(50.0, 50.0, 50.0))  # an article has no session
    assert math.log(printed.high / 2) == pytest.approx(0.03)
    line = {"value": 1.0, "low": 0.9, "high": 1.1, "interval": "interval", "session": "s1", "session_width": 0.2}
    assert Interval.from_row(line, "value") == Interval(1.0, 0.9, 1.1, "interval", "s1", 0.2)
    assert Interval.from_row(line | {"session": None, "session_width": math.nan}, "value").session_width == 0


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


BENCHMARK = runpy.run_path(Path(__file__).parents[1] / "benchmarks" / "intervals.py")


@pytest.mark.parametrize("kernels", [2, 3])
@pytest.mark.parametrize("points", [4, 20])
def test_intervals_cover_the_truth_of_points_that_vary_differently(points, kernels):
    covered, covered_of_wildest, _, unlike = BENCHMARK["coverage"]("unlike", points, kernels, 1000)
    assert covered >= 0.90
    assert covered_of_wildest >= 0.85
    assert unlike <= 0.05


def test_one_bad_kernel_does_not_widen_the_intervals_of_other_points():
    without, beside = BENCHMARK["bad_kernel"](10, 2, 500)
    assert beside < 1.25 * without


@pytest.mark.parametrize("earlier", [0, 1, 4])
def test_equal_code_in_another_session_is_rarely_called_faster(earlier):
    assert BENCHMARK["across_sessions"](0.05, earlier, True, 10, 500) <= 0.05


@pytest.mark.parametrize("kernels", [1, 2, 3])
def test_a_setting_as_fast_as_the_reference_is_rarely_called_tuned(kernels):
    assert BENCHMARK["false_tuned"](kernels, 300) <= (0.05 if kernels > 1 else 0)
