"""Intervals over processes: the formula by hand, how bounds combine, and how often they cover the truth."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from benchbook.judging import intervals
from benchbook.judging.intervals import Interval

SIX = [100.0] * 6


def test_the_interval_is_students_t_over_the_medians_of_processes_and_one_assumed_process():
    from scipy import stats  # its import takes a second

    # medians 100, 110 and 130
    values, processes = [100.0, 100.0, 500.0, 110.0, 110.0, 1.0, 130.0, 130.0, 131.0], list("aaabbbccc")
    levels = numpy.log([100, 110, 130])
    for found, assumed in (
        (intervals.interval(values, processes), 0.05),
        (intervals.interval(values, processes, intervals.PAIRED_DEVIATION), 0.02),
    ):
        half = stats.t.ppf(0.975, 3) * math.sqrt((assumed**2 + 2 * levels.var(ddof=1)) / 3 / 3)
        assert found.kind == "interval"
        assert found.value == pytest.approx(math.exp(levels.mean()))
        assert (found.low, found.high) == pytest.approx((found.value * math.exp(-half), found.value * math.exp(half)))


def test_two_processes_that_agree_by_chance_have_an_interval_all_the_same():
    alike = intervals.interval(SIX, list("aaabbb"))
    assert math.log(alike.high / 100) == pytest.approx(4.303 * 0.05 / 2, rel=1e-3)


def test_one_process_or_fewer_than_six_windows_have_a_range():
    alone = intervals.interval([90.0, *SIX, 120.0], ["a"] * 8)
    assert (alone.low, alone.high, alone.kind) == (90.0, 120.0, "range")
    assert intervals.interval([50.0, 10.0, 20.0, 30.0, 40.0], list("abcde")).kind == "range"
    assert intervals.interval(SIX, list("aaabbb")).kind == "interval"
    assert intervals.interval([10.0], ["a"]) == Interval(pytest.approx(10.0), 10.0, 10.0, "range")


def test_an_interval_has_any_unit_and_any_order_of_windows():
    random = numpy.random.default_rng(7)
    values, processes = random.lognormal(sigma=0.05, size=18), numpy.repeat([3, 1, 2], 6)
    found, order = intervals.interval(values, processes), random.permutation(18)
    turned = intervals.interval(1000 * values[order], processes[order])
    expected = [1000 * bound for bound in (found.value, found.low, found.high)]
    assert [turned.value, turned.low, turned.high] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "processes", "allowed"),
    [
        *(([], [], "as many of each"), ([1.0], [], "as many of each"), ([1.0], ["a", "b"], "as many of each")),
        *(([1.0, value], ["a", "b"], "above 0") for value in (0.0, -1.0, math.nan)),
    ],
)
def test_an_interval_needs_values_above_zero_and_a_process_for_each(values, processes, allowed):
    with pytest.raises(ValueError, match=f"allowed: {allowed}"):
        intervals.interval(values, processes)


def sampled(value, width):
    return Interval(value, value * math.exp(-width), value * math.exp(width), "interval")


def test_a_ratio_adds_errors_in_squares_on_the_log_scale():
    found = intervals.divide(sampled(300.0, 0.03), sampled(100.0, 0.04))
    assert (found.value, found.kind) == (pytest.approx(3.0), "interval")
    assert (found.low, found.high) == pytest.approx((3 * math.exp(-0.05), 3 * math.exp(0.05)))
    back = intervals.divide(sampled(100.0, 0.04), sampled(300.0, 0.03))
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_numbers_of_different_sessions_are_compared_with_what_sessions_differ():
    a, b = (replace(sampled(100.0, 0.03), session=name) for name in ("s1", "s2"))
    found = intervals.divide(b, a)
    between = 1.96 * intervals.SESSION_DEVIATION
    assert math.log(found.high) == pytest.approx(math.hypot(0.03, between, 0.03, between), rel=1e-4)
    assert math.log(intervals.divide(a, a).high) == pytest.approx(math.hypot(0.03, 0.03))
    printed = intervals.divide(a, Interval(50.0, 50.0, 50.0))  # an article has no session
    assert math.log(printed.high / 2) == pytest.approx(0.03)
    line = {"value": 1.0, "low": 0.9, "high": 1.1, "interval": "interval", "session": "s1"}
    assert Interval.from_row(line, "value") == Interval(1.0, 0.9, 1.1, "interval", "s1")
    assert Interval.from_row(line | {"session": None}, "value").session == ""


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


BENCHMARK = runpy.run_path(Path(__file__).parents[1] / "benchmarks" / "intervals.py")


@pytest.mark.parametrize("processes", BENCHMARK["PROCESSES"])
@pytest.mark.parametrize("case", ["5 %", "10 %", "0.7 to 28 %"])
def test_intervals_cover_the_truth_and_equal_code_is_rarely_called_faster(case, processes):
    covered, _, unlike, unlike_across_sessions = BENCHMARK["coverage"](case, processes, 20_000)
    assert covered >= 0.93
    assert max(unlike, unlike_across_sessions) <= 0.05


@pytest.mark.parametrize("processes", BENCHMARK["PROCESSES"])
@pytest.mark.parametrize("case", BENCHMARK["RATIOS"])
def test_a_setting_as_fast_as_the_reference_is_rarely_called_tuned(case, processes):
    covered, tuned = BENCHMARK["paired"](case, processes, 20_000)
    assert covered >= 0.93
    assert tuned <= 0.05
