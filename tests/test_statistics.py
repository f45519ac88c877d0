"""Medians, intervals, summaries and fits, against sums done by hand."""

from math import comb

import numpy
import pandas
import pytest

from benchbook import statistics
from rows import make_row, make_rows


def windows(*rates, **columns):
    """Return training windows of these rates, in images a second."""
    return [make_row(index=index, samples_per_second=float(rate), **columns) for index, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5], 0), ([1, 1, 2, 2, 4, 6, 9], 1), ([1, 2, 3, 100], 1), ([0.5, 0.25], 0.125)],
)
def test_the_median_absolute_deviation_is_the_median_distance_from_the_median(values, expected):
    assert statistics.median_absolute_deviation(values) == expected


def test_fewer_than_six_windows_have_a_range_and_six_an_interval():
    values = [30.0, 10.0, 50.0, 20.0, 40.0, 60.0]
    assert statistics.interval(values[:5], ["a", "a", "b", "b", "b"]) == statistics.Interval(10.0, 50.0, "range")
    assert statistics.interval([7.0], ["a"]) == statistics.Interval(7.0, 7.0, "range")
    assert statistics.interval(values, ["a", "a", "b", "b", "c", "c"]).kind == "interval"


def test_the_interval_of_one_kernel_is_that_of_the_binomial_distribution():
    # The median of 11 drawn from 1..11 is at most k when 6 or more of them are: a binomial probability.
    chances = [sum(comb(11, n) * (k / 11) ** n * (1 - k / 11) ** (11 - n) for n in range(6, 12)) for k in range(12)]
    low = next(k for k, chance in enumerate(chances) if chance > 0.025)
    high = next(k for k, chance in enumerate(chances) if chance > 0.975)
    assert (low, high) == (3, 9)
    assert statistics.interval(range(1, 12), ["a"] * 11) == statistics.Interval(3.0, 9.0, "interval")


def test_kernels_that_differ_widen_the_interval():
    values = [1.0] * 12 + [2.0] * 12 + [3.0] * 12
    apart = statistics.interval(values, ["a"] * 12 + ["b"] * 12 + ["c"] * 12)
    together = statistics.interval(values, ["a"] * 36)
    # With three kernels, the median is 1 when two or three of those drawn are the first: in 7 draws of 27.
    assert (apart.low, apart.high) == (1.0, 3.0)
    assert together.high - together.low < apart.high - apart.low


@pytest.mark.parametrize("num_kernels", [1, 2, 5])
def test_the_interval_contains_the_median_and_is_the_same_each_time(num_kernels):
    values = numpy.random.default_rng(7).lognormal(size=25)
    kernels = [f"kernel-{index % num_kernels}" for index in range(25)]
    first = statistics.interval(values, kernels)
    assert values.min() <= first.low < numpy.median(values) < first.high <= values.max()
    assert first == statistics.interval(values, kernels)


@pytest.mark.parametrize(("values", "kernels"), [([], []), ([1.0], []), ([1.0], ["a", "b"])])
def test_an_interval_needs_values_and_a_kernel_for_each(values, kernels):
    with pytest.raises(ValueError, match="allowed: as many of each"):
        statistics.interval(values, kernels)


def test_only_a_points_last_session_is_newest():
    rows = make_rows(
        [
            make_row(session="old", run_id="20260101-a"),
            make_row(session="new", run_id="20260301-a"),
            make_row(session="new", run_id="20260302-b"),
            make_row(session="old", run_id="20260102-b"),
            make_row(session="old", run_id="20260101-c", machine="attic"),
            make_row(session="old", run_id="20260101-d", point="other"),
        ]
    )
    assert statistics.newest(rows)["run_id"].tolist() == ["20260301-a", "20260302-b", "20260101-c", "20260101-d"]
    assert statistics.newest(rows[:0]).empty


def test_a_summary_has_the_medians_of_the_training_windows_alone():
    board = {"energy_method": "nvml", "energy_boundary": "board", "samples": 600, "seconds": 2.0}
    rows = [
        *windows(100, 400, 300, run_id="run-1", input_seconds=0.5, energy_joules=60.0, **board),
        *windows(200, run_id="run-2", input_seconds=1.0, energy_joules=30.0, **board),
        *windows(9999, run_id="run-1", phase="compile"),
        *windows(9999, run_id="run-1", phase="warmup"),
        make_row(run_id="run-1", phase="evaluate", samples_per_second=9999.0, accuracy=0.75),
        make_row(run_id="run-2", phase="evaluate", samples_per_second=9999.0, accuracy=0.25),
        make_row(run_id="article", point="published", source="published", phase="total"),
    ]
    summary = statistics.summarise(make_rows(rows))
    assert len(summary) == 1
    line = summary.iloc[0]
    assert line["samples_per_second"] == 250
    assert line["spread"] == 100 / 250
    assert (line["low"], line["high"], line["interval"]) == (100, 400, "range")
    assert (line["num_kernels"], line["num_windows"]) == (2, 4)
    assert line["seconds_per_step"] == 64 / 250
    assert line["input_share_waited"] == 0.25  # of 0.25, 0.25, 0.25, 0.5
    assert line["energy_per_sample"] == 0.1
    assert line["accuracy"] == 0.5
    assert (line["status"], line["message"]) == ("ok", None)
    assert (line["machine"], line["batch_size"], line["model"]) == ("desk", 64, "mnist_cnn")


def test_a_summary_describes_the_windows_and_not_what_was_tried_after_them():
    settings = '{"tried": "matrix"}'
    trial = make_row(phase="calibrate", precision="amp_bf16", batch_size=4, samples_per_second=9.0, settings=settings)
    trained = windows(128, 128, precision="fp32", image_size=32, settings="{}")
    line = statistics.summarise(make_rows([*trained, trial])).iloc[0]
    assert line[["precision", "batch_size", "image_size", "settings"]].tolist() == ["fp32", 64, 32, "{}"]
    assert line["seconds_per_step"] == 0.5


def test_the_accuracy_is_that_at_the_end_the_median_of_repeats():
    tests = [(0, 1, 0.1), (0, 2, 0.5), (1, 1, 0.2), (1, 2, 0.7), (2, 1, 0.9), (2, 2, 0.6)]
    rows = [
        make_row(phase="evaluate", repeat=repeat, epoch=epoch, index=epoch, accuracy=accuracy)
        for repeat, epoch, accuracy in tests
    ]
    assert statistics.summarise(make_rows([*windows(100), *rows]))["accuracy"].tolist() == [0.6]


def test_a_summary_may_be_of_another_phase():
    rows = [*windows(100), *windows(700, 900, phase="evaluate")]
    assert statistics.summarise(make_rows(rows), "evaluate")["samples_per_second"].tolist() == [800]


def test_each_point_of_each_machine_has_its_own_line():
    rows = [*windows(1), *windows(2, machine="attic"), *windows(3, point="another")]
    summary = statistics.summarise(make_rows(rows))
    keys = summary[["machine", "point", "samples_per_second"]].to_numpy().tolist()
    assert keys == [["attic", "reference-cpu", 2], ["desk", "another", 3], ["desk", "reference-cpu", 1]]


def test_what_no_sensor_measured_stays_missing():
    line = statistics.summarise(make_rows(windows(100, 200))).iloc[0]
    assert pandas.isna(line["energy_per_sample"])
    assert pandas.isna(line["accuracy"])


def test_a_failure_gives_its_point_status_and_message_and_keeps_the_windows_before_it():
    failure = {"samples": None, "seconds": None, "samples_per_second": None, "status": "out_of_memory"}
    rows = [*windows(100, 200), make_row(index=2, message="allocating 9 GB", **failure)]
    line = statistics.summarise(make_rows(rows)).iloc[0]
    assert (line["status"], line["message"], line["num_windows"]) == ("out_of_memory", "allocating 9 GB", 2)


def test_a_point_that_only_failed_is_a_line_without_a_rate():
    failure = make_row(phase="setup", samples_per_second=None, batch_size=None, status="unavailable", message="no cuda")
    summary = statistics.summarise(make_rows([failure, *windows(5, point="another")])).set_index("point")
    assert summary.loc["reference-cpu", ["status", "message", "num_windows"]].tolist() == ["unavailable", "no cuda", 0]
    assert pandas.isna(summary.loc["reference-cpu", "samples_per_second"])


def test_a_diverged_window_makes_its_point_diverged():
    rows = [*windows(100, 200), make_row(index=2, status="diverged"), make_row(phase="evaluate", accuracy=0.1)]
    assert statistics.summarise(make_rows(rows))["status"].tolist() == ["diverged"]


def test_no_rows_make_an_empty_summary_with_the_points_key():
    summary = statistics.summarise(make_rows([]))
    assert summary.empty
    assert list(summary)[:3] == ["machine", "study", "point"]


def test_a_fit_finds_the_fixed_part_and_the_part_per_sample():
    sizes = numpy.array([16, 64, 256, 1024])
    assert statistics.fit_step_time(sizes, 2e-3 + 1e-5 * sizes) == pytest.approx((2e-3, 1e-5))


def test_a_fit_weighs_relative_errors():
    # The exact line, -2 + 3 x size, starts below zero; the best through zero has this slope.
    sizes, times = numpy.array([1, 1, 1000]), numpy.array([1.0, 1.0, 3000.0])
    slope = (sizes / times).sum() / ((sizes / times) ** 2).sum()
    assert statistics.fit_step_time(sizes, times) == (0, pytest.approx(slope))


@pytest.mark.parametrize("times", [[0.1, 1.0, 20.0], [5.0, 4.0, 3.0], [1.0, 1.0, 1.0]])
def test_neither_part_of_a_fit_is_negative(times):
    fixed, per_sample = statistics.fit_step_time([16, 64, 256], times)
    assert fixed >= 0
    assert per_sample >= 0
    assert fixed + per_sample > 0


def test_a_fit_refuses_a_single_batch_size():
    with pytest.raises(ValueError, match=r"batch sizes \[64\.0\]; allowed: at least two different ones"):
        statistics.fit_step_time([64, 64], [1.0, 1.1])


def drawn(seed, between, within=0.02, num_kernels=3, num_windows=6):
    """Return rates around 1000 and their kernels, with this noise between kernels and between windows."""
    random = numpy.random.default_rng(seed)
    kernels = numpy.repeat(numpy.arange(num_kernels), num_windows)
    noise = between * random.normal(size=num_kernels)[kernels] + within * random.normal(size=len(kernels))
    return 1000 * (1 + noise), kernels


@pytest.mark.parametrize(("between", "least", "most"), [(0.0, 0.94, 1.0), (0.02, 0.80, 0.92), (0.2, 0.66, 0.82)])
def test_the_interval_of_three_kernels_covers_as_often_as_its_description_says(between, least, most):
    intervals = [statistics.interval(*drawn(seed, between)) for seed in range(250)]
    covered = numpy.mean([found.low <= 1000 <= found.high for found in intervals])
    assert least <= covered <= most


@pytest.mark.parametrize("num_kernels", [1, 3])
@pytest.mark.parametrize("between", [0.0, 0.02])
def test_two_sets_of_the_same_code_show_no_difference(num_kernels, between):
    pairs = [
        (drawn(2 * n, between, 0.01, num_kernels), drawn(2 * n + 1, between, 0.01, num_kernels)) for n in range(150)
    ]
    verdicts = [statistics.ratio(*a, *b).verdict for a, b in pairs]
    assert verdicts.count("no difference shown") >= 0.95 * len(verdicts)


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "B faster"), (1 / 1.1, "A faster")])
def test_a_difference_of_a_tenth_is_shown(factor, verdict):
    for seed in range(20):
        (a, kernels), (b, _) = drawn(2 * seed, 0.01, 0.01), drawn(2 * seed + 1, 0.01, 0.01)
        found = statistics.ratio(a, kernels, factor * b, kernels)
        assert found.verdict == verdict
        assert found.low < found.value < found.high


def test_a_ratio_is_that_of_the_medians_and_turns_round_with_its_sides():
    (a, kernels), (b, _) = drawn(1, 0.01), drawn(2, 0.01)
    there, back = statistics.ratio(a, kernels, 3 * b, kernels), statistics.ratio(3 * b, kernels, a, kernels)
    assert there.value == pytest.approx(3 * numpy.median(b) / numpy.median(a))
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    assert (there.verdict, back.verdict) == ("B faster", "A faster")


def test_one_kernel_a_side_shows_only_what_kernels_would_hardly_differ_by():
    rates = [1000.0, 1001, 999, 1000, 1002, 998]
    least = numpy.exp(1.96 * (2 * statistics.ONE_KERNEL_ERROR**2) ** 0.5)
    for factor, verdict in ((least * 0.99, "no difference shown"), (least * 1.01, "B faster")):
        found = statistics.ratio(rates, ["a"] * 6, [factor * rate for rate in rates], ["b"] * 6)
        assert found.verdict == verdict


def test_the_ratio_of_too_few_windows_is_a_range_without_a_verdict():
    found = statistics.ratio([10.0, 20.0], ["a", "a"], [30.0] * 6, ["b"] * 6)
    assert found == statistics.Ratio(2.0, 1.5, 3.0, "range", "too few windows")


def test_equal_windows_differ_in_nothing():
    assert statistics.ratio([5.0] * 6, [1, 2] * 3, [5.0] * 6, [1, 2] * 3).verdict == "no difference shown"
    assert statistics.ratio([5.0] * 6, [1, 2] * 3, [6.0] * 6, [1, 2] * 3).verdict == "B faster"


@pytest.mark.parametrize("rates", [[], [0.0] * 6, [-1.0] * 6])
def test_a_ratio_needs_rates_above_zero(rates):
    with pytest.raises(ValueError, match="allowed: "):
        statistics.ratio(rates, ["a"] * len(rates), [1.0] * 6, ["b"] * 6)


def test_waiting_and_joules_have_bounds_over_windows():
    energy = {"energy_method": "nvml", "energy_boundary": "board"}
    windows = [
        make_row(index=index, input_seconds=waited, energy_joules=joules, **energy)
        for index, (waited, joules) in enumerate([(0.2, 64.0), (0.4, 128.0), (0.6, 320.0)])
    ]
    line = statistics.summarise(make_rows(windows)).iloc[0]
    assert line[["waited_low", "input_share_waited", "waited_high"]].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert line[["energy_low", "energy_per_sample", "energy_high"]].tolist() == pytest.approx([0.1, 0.2, 0.5])
    unread = statistics.summarise(make_rows([make_row()])).iloc[0]
    assert unread[["energy_low", "energy_high"]].isna().all()
