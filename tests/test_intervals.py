"""Intervals over processes: the formula by hand, how bounds combine, and how often they cover
the truth."""

import math
import runpy
from pathlib import Path

import numpy
import pytest
import yaml

from benchbook.judging import intervals
from benchbook.judging.intervals import Interval


def test_the_interval_is_students_t_over_the_medians_of_processes_and_one_assumed_process_and_the_session():
    from scipy import stats  # its import takes a second

    # medians 100, 110 and 130
    values, processes = (
        [100.0, 110.0, 130.0, 100.0, 110.0, 130.0, 500.0, 1.0, 131.0],
        list("abcabcabc"),
    )
    levels = numpy.log([100, 110, 130])
    assert (intervals.UNPAIRED.session, intervals.PAIRED.session) == (
        0.04,
        0.0,
    )  # the session's part is a constant
    for deviations in (intervals.UNPAIRED, intervals.PAIRED, intervals.VIRTUAL):
        part = stats.t.ppf(0.975, 3) * math.sqrt(
            (deviations.process**2 + 2 * levels.var(ddof=1)) / 3 / 3
        )
        half = math.hypot(part, stats.norm.ppf(0.975) * deviations.session)
        found = intervals.interval(values, processes, deviations)
        assert found.kind == "interval"
        assert found.value == pytest.approx(math.exp(levels.mean()))
        assert (found.low, found.high) == pytest.approx(
            (found.value * math.exp(-half), found.value * math.exp(half))
        )
        if deviations is intervals.UNPAIRED:
            assert intervals.processes_part(values, processes) == pytest.approx(part)


def test_one_process_has_a_range_and_is_never_known():
    alone = intervals.interval([90.0, *[100.0] * 6, 120.0], ["a"] * 8)
    assert (alone.low, alone.high, alone.kind) == (90.0, 120.0, "range")
    assert intervals.interval([10.0], ["a"]) == Interval(pytest.approx(10.0), 10.0, 10.0, "range")
    assert [intervals.processes_part([1.0] * count, ["a"] * count) for count in range(3)] == [
        math.inf
    ] * 3


def sampled(value, width):
    return Interval(value, value * math.exp(-width), value * math.exp(width), "interval")


def test_a_ratio_adds_errors_in_squares_on_the_log_scale():
    found = intervals.divide(sampled(300.0, 0.03), sampled(100.0, 0.04))
    assert (found.value, found.kind) == (pytest.approx(3.0), "interval")
    assert (found.low, found.high) == pytest.approx((3 * math.exp(-0.05), 3 * math.exp(0.05)))
    back = intervals.divide(sampled(100.0, 0.04), sampled(300.0, 0.03))
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


BENCHMARK = runpy.run_path(Path(__file__).parents[1] / "benchmarks" / "intervals.py")
# What docs/measuring.md prints, in percent: the coverage of the mean and of a second session's
# centre, by profile.
PRINTED = yaml.safe_load("""
quick: [[100, 100], [100, 97], [96, 84], [93, 80], [89, 75], [87, 75], [98, 92], [96, 86], [91, 79]]
paper: [[100, 100], [99, 94], [90, 75], [89, 75], [91, 77], [93, 81], [95, 84], [95, 83], [95, 84]]
""")


@pytest.mark.parametrize("rule", PRINTED)
@pytest.mark.parametrize("place", range(9))
def test_intervals_cover_the_truth_as_often_as_printed_and_equal_code_is_rarely_called_faster(
    rule, place
):
    case = [*BENCHMARK["CASES"], *BENCHMARK["SECOND"]][place]
    covers, holds, *_, unlike = BENCHMARK["coverage"](rule, *case, 20_000)
    assert (100 * covers, 100 * holds) == pytest.approx(tuple(PRINTED[rule][place]), abs=1.5)
    assert unlike <= (0.05 if case[0] <= 0.1 else 0.08)


@pytest.mark.parametrize("processes", BENCHMARK["PROCESSES"])
@pytest.mark.parametrize("deviation", BENCHMARK["RATIOS"])
def test_a_setting_as_fast_as_the_reference_is_rarely_called_tuned(deviation, processes):
    covered, tuned = BENCHMARK["paired"](deviation, processes, 20_000)
    assert covered >= 0.93
    assert tuned <= 0.05


@pytest.mark.parametrize(("processes", "deviation"), [("a", 0.17), ("aaa", 0.17), ("ab", 0.04)])
def test_what_one_process_measured_has_the_error_of_what_a_session_measures_once(
    processes, deviation
):
    part = intervals.of_processes(7.0, [2.0] * len(processes), list(processes))
    assert part.value == 7.0
    least = math.exp(1.96 * deviation)
    assert part.high / 7.0 == pytest.approx(7.0 / part.low)
    assert least * 0.999 < part.high / 7.0 < least * (1.001 if deviation == 0.17 else 1.1)
