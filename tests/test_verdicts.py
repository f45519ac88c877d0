"""Verdicts on windows whose faults are known, and counts of how often a steady run is flagged."""

import numpy
import pandas
import pytest

from benchbook.judging import statistics, verdicts
from rows import make_row, make_rows

STEADY = [1000.0, 1004.0, 998.0, 1001.0, 997.0, 1003.0]


def noisy(seed, num_kernels, num_windows, noise, heavy=False):
    """Return rates with noise of windows and as much between kernels, one line per kernel."""
    random = numpy.random.default_rng(seed)
    size = (num_kernels, num_windows)
    windows = random.standard_t(4, size) / 2**0.5 if heavy else random.normal(size=size)
    return 1000 * (1 + noise * windows) * (1 + noise * random.normal(size=(num_kernels, 1)))


def share_flagged(fault, num_kernels, num_windows, noise, seeds=200, **options):
    runs = numpy.repeat(numpy.arange(num_kernels), num_windows)
    rates = [fault(noisy(seed, num_kernels, num_windows, noise, **options)) for seed in range(seeds)]
    return numpy.mean([verdicts.stability(values.ravel(), runs).word == verdicts.UNSTABLE for values in rates])


def drifting(rates):
    return rates * numpy.linspace(1.0, 0.9, rates.shape[1])


def slow_stretch(rates):
    stretch = rates.ravel().copy()
    stretch[len(stretch) // 3 :][: max(1, len(stretch) // 6)] *= 0.8
    return stretch


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("noise", [0.01, 0.02])
@pytest.mark.parametrize(("num_kernels", "num_windows"), [(1, 6), (3, 6), (3, 20)])
def test_a_steady_run_is_flagged_in_one_case_of_twenty_at_most(num_kernels, num_windows, noise, heavy):
    assert share_flagged(lambda rates: rates, num_kernels, num_windows, noise, heavy=heavy) <= 0.05


@pytest.mark.parametrize("fault", [drifting, slow_stretch])
@pytest.mark.parametrize(("num_kernels", "num_windows"), [(1, 6), (3, 6), (3, 20)])
def test_a_drift_of_a_tenth_and_a_slow_stretch_are_found(fault, num_kernels, num_windows):
    assert share_flagged(fault, num_kernels, num_windows, 0.01) >= 0.98


def test_a_drift_is_found_in_noise_of_two_percent_with_three_kernels():
    assert share_flagged(drifting, 3, 6, 0.02) >= 0.98


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (STEADY, "stable"),
        (STEADY[:5], "too few windows"),
        ([], "too few windows"),
        ([1000, 1100, 900, 1120, 880, 1000], "unstable: spread 10%"),
        ([1000, 990, 950, 940, 905, 900], "unstable: drift -9%"),
        ([1000, 1001, 999, 700, 1000, 1002], "unstable: 1 of 6 windows apart"),
    ],
)
def test_the_reason_is_named(rates, expected):
    assert str(verdicts.stability(rates, ["a"] * len(rates))) == expected


def test_kernels_are_not_one_series():
    # Each kernel is steady; only the second is 4 % slower than the first.
    rates = STEADY + [0.96 * rate for rate in STEADY]
    assert str(verdicts.stability(rates, ["a"] * 6 + ["b"] * 6)) == "stable"


def test_as_many_runs_as_rates_are_needed():
    with pytest.raises(ValueError, match="3 rates and 2 runs; allowed: as many of each"):
        verdicts.stability([1, 2, 3], ["a", "a"])


def samples(num_windows=6, **last):
    """Return quiet samples at both ends of each window, ten seconds apart; the last one has these keys changed."""
    lines = [
        {"run_id": "run-1", "index": place - 1 if place else None, "swap_used_bytes": 2**30, "power_source": "mains"}
        | {"awake_seconds": 10.0 * place, "elapsed_seconds": 10.0 * place + 500, "cpu_throttle_count": 7}
        for place in range(num_windows + 1)
    ]
    lines[-1] |= last
    return pandas.DataFrame(lines)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"power_source": "battery"}, "on battery"),
        ({"low_power_mode": True}, "low-power mode"),
        ({"swap_used_bytes": 2**30 + 2**27}, "swap growth"),
        ({"swap_used_bytes": 2**30 + 2**20}, None),
        ({"elapsed_seconds": 4160.0}, "sleep"),
        ({"thermal_pressure": "moderate"}, None),
        ({"thermal_pressure": "heavy"}, "thermal pressure"),
        ({"cpu_speed_limit_percent": 63}, "thermal pressure"),
        ({"cpu_speed_limit_percent": 100}, None),
        ({"cpu_throttle_count": 8}, "thermal pressure"),
        ({"cpu_throttle_count": 8, "cpu_throttle_seconds": 0.1}, None),
        ({"gpus": [{"clock_reasons": ["sw_power_cap", "gpu_idle"], "num_other_processes": 0}]}, None),
        ({"gpus": [{"clock_reasons": ["hw_thermal_slowdown"]}]}, "thermal pressure"),
        ({"gpus": [{"num_other_processes": 2}]}, "another process on the GPU"),
        ({"gpus": [{}, {"num_other_processes": 2}]}, None),
    ],
)
def test_a_disturbed_run_is_unstable(changed, reason):
    expected = f"unstable: {reason}" if reason else "stable"
    assert str(verdicts.stability(STEADY, ["run-1"] * 6, samples(**changed))) == expected


def test_counters_before_the_first_window_do_not_count():
    conditions = samples()
    conditions.loc[0, "swap_used_bytes"] = 2**30
    assert verdicts.stability(STEADY, ["run-1"] * 6, conditions).word == verdicts.STABLE
    other = conditions.assign(run_id="run-2", swap_used_bytes=2**34)  # another run's, not a growth
    both = pandas.concat([conditions, other], ignore_index=True)
    assert verdicts.stability(STEADY, ["run-1"] * 6, both).word == verdicts.STABLE


def test_a_battery_is_named_even_with_few_windows():
    assert str(verdicts.stability([1.0], ["run-1"], samples(1, power_source="battery"))) == "unstable: on battery"


def test_a_point_is_judged_by_the_training_windows_of_its_last_session():
    rows = [make_row(index=index, samples_per_second=rate) for index, rate in enumerate(STEADY)]
    old = [row | {"session": "old", "run_id": "run-0", "samples_per_second": 5.0} for row in rows]
    warm = [make_row(phase="warmup", samples_per_second=1.0)]
    assert verdicts.judge(make_rows(old + warm + rows)).word == verdicts.STABLE
    busy = samples(gpus=[{"num_other_processes": 1}])
    assert verdicts.judge(make_rows(rows), busy).word == verdicts.STABLE  # a run on the CPU
    gpu = make_rows([row | {"device": "cuda"} for row in rows])
    assert verdicts.judge(gpu, busy).reasons == ("another process on the GPU",)
    assert verdicts.judge(gpu, busy.assign(run_id="another")).word == verdicts.STABLE


def test_a_summary_gets_a_verdict_for_each_point():
    rows = [make_row(index=index, samples_per_second=rate) for index, rate in enumerate(STEADY)]
    rows += [make_row(point="short"), make_row(point="failed", samples_per_second=None, status="crashed")]
    frame = make_rows(rows)
    judged = verdicts.add(statistics.summarise(frame), frame).set_index("point")["verdict"]
    assert judged["reference-cpu"] == "stable"
    assert judged["short"] == "too few windows"
    assert judged["failed"] is None
    assert "verdict" in verdicts.add(statistics.summarise(frame[:0]), frame[:0])


@pytest.mark.parametrize(
    ("one", "other", "worse"),
    [
        ("stable", "stable", "stable"),
        ("stable", "too few windows", "too few windows"),
        ("too few windows", "unstable: spread 8%", "unstable: spread 8%"),
        (None, "stable", "stable"),
        (None, None, None),
    ],
)
def test_of_two_verdicts_that_of_the_point_that_is_worse_off_counts(one, other, worse):
    assert verdicts.worse(one, other) == verdicts.worse(other, one) == worse


def test_a_summary_has_a_verdict_a_point():
    rows = make_rows([make_row(index=index, samples_per_second=100.0) for index in range(6)])
    assert verdicts.summarise(rows)[["num_windows", "verdict"]].to_numpy().tolist() == [[6, "stable"]]
