"""Verdicts on windows whose faults are known, and counts of how often a steady run is flagged."""

import json
import math

import numpy
import pandas
import pytest
import yaml

from benchbook.judging import compare, verdicts
from benchbook.judging.rules import Point
from benchbook.judging.verdicts import Verdict
from benchbook.rows import records
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.results.evidence import Evidence
from made.rows import make_row, make_rows, samples, windows, write

STEADY = [1000.0, 1004.0, 998.0, 1001.0, 997.0, 1003.0]


def judge(rates, runs, samples=None) -> Verdict:
    """Return the verdict on windows of these rates and runs."""
    empty = dict.fromkeys(verdicts.READ) | {"seconds": 1.0}
    windows = [
        empty | {"samples_per_second": rate, "run_id": run}
        for rate, run in zip(rates, runs, strict=True)
    ]
    return verdicts.judge(Point(windows, samples))


def drawn(kind, seeds, num_processes, num_windows, noise):
    """Return rates with noise of windows and as much between processes: normal, heavy-tailed, or
    correlated by 0.8."""
    random = numpy.random.default_rng(5)
    size = (seeds, num_processes, num_windows)
    windows = random.standard_t(4, size) / 2**0.5 if kind == "heavy" else random.normal(size=size)
    for place in range(1, num_windows if kind == "correlated" else 0):
        windows[..., place] = 0.8 * windows[..., place - 1] + 0.6 * windows[..., place]
    return 1000 * (1 + noise * windows) * (1 + noise * random.normal(size=(*size[:2], 1)))


@pytest.mark.parametrize(
    ("ends", "kind", "noise", "least", "most"),  # the factors of the first window and of the last
    [
        ((1.0, 1.0), "normal", 0.02, 0, 0.05),
        ((1.0, 1.0), "heavy", 0.02, 0, 0.05),
        ((1.0, 1.0), "correlated", 0.03, 0, 0.10),  # most of them where one process is all there is
        ((0.78, 1.0), "normal", 0.01, 0, 0.05),
        ((1.0, 0.9), "normal", 0.01, 0.80, 1),
    ],
)
@pytest.mark.parametrize(("num_processes", "num_windows"), [(1, 6), (3, 6), (3, 20)])
def test_faults_are_found_and_steady_runs_are_flagged_in_one_case_of_twenty(
    num_processes, num_windows, ends, kind, noise, least, most
):
    runs = numpy.repeat(numpy.arange(num_processes), num_windows)
    factors = numpy.linspace(1.0, ends[1], num_windows)
    factors[0] = ends[0]
    rates = [
        (factors * each).ravel() for each in drawn(kind, 400, num_processes, num_windows, noise)
    ]
    share = numpy.mean([judge(each, runs).kind == verdicts.UNSTABLE for each in rates])
    assert least <= share <= most


def processes(levels=(1, 1, 1), falls=(1,) * 6):
    """Return the rates of processes of six windows, at these levels and with the last third
    slower by these factors."""
    return [
        1000 * level * f
        for level, end in zip(levels, falls, strict=False)
        for f in (1, 1, 1, 1, end, end)
    ]


@pytest.mark.parametrize(
    ("rates", "kind", "reasons"),
    [
        (2 * STEADY, "stable", ()),
        (STEADY, "too few processes", (("few_processes",),)),
        ([], "too few processes", (("few_processes",),)),
        (
            [1000, 1150, 850, 1170, 830, 1000],
            "unstable",
            (("spread", pytest.approx(0.0977, 1e-2)),),
        ),
        ([1000, 990, 950, 940, 905, 900], "unstable", (("drift", pytest.approx(-0.109, 1e-2)),)),
        (
            [*STEADY, *(0.86 * rate for rate in STEADY)],
            "stable",
            (),
        ),  # the second process is steady, and 14 % slower
        (
            [*STEADY, *(0.78 * rate for rate in STEADY)],
            "unstable",
            (("processes", pytest.approx(1 / 0.78 - 1)),),
        ),
        *(
            (
                processes([1.27, *[1.13] * middle, 1]),
                "unstable",
                (("processes", pytest.approx(0.27)),),
            )
            for middle in range(5)
        ),
        (processes(falls=(0.9, 0.9, 0.9)), "unstable", (("drift", pytest.approx(-0.113, 1e-2)),)),
        (processes(falls=(0.9, 0.9, 1.1)), "stable", ()),  # not in all
        (processes(levels=(1, 0.98, 0.95, 0.92)), "stable", ()),
    ],
)
def test_the_reason_is_a_code_with_its_numbers(rates, kind, reasons):
    verdict = judge(rates, [place // 6 for place in range(len(rates))])
    assert (verdict.kind, verdict.reasons) == (kind, reasons)


# MobileNetV2 in six processes that gave memory back: images a second, and page faults a step.
LOTTERY = {1406: 0, 1664: 2, 1486: 10, 1077: 7585, 987: 10401, 957: 12109}


@pytest.mark.parametrize(
    ("faults", "code", "repeats"),
    [
        (list(LOTTERY.values()), "faults", False),
        (list(LOTTERY.values())[::-1], "processes", True),  # the fast ones have most
        ([0] * 6, "processes", True),
        ([math.nan] * 6, "processes", True),
    ],
)
def test_page_faults_are_named_where_they_explain_how_far_processes_are_apart(
    faults, code, repeats
):
    rows = [
        make_row(phase="train", run_id=str(place), samples=32, samples_per_second=rate)
        | {"page_faults": None if math.isnan(count) else count}
        for place, (rate, count) in enumerate(zip(LOTTERY, faults, strict=True))
        for _ in range(3)
    ]
    [verdict] = verdicts.summarise(make_rows(rows))["verdict"]
    assert [reason[0] for reason in verdict.reasons if reason[0] != "unrecorded"] == [code]
    assert verdicts.can_be_repeated(verdict) is repeats


@pytest.mark.parametrize(
    ("changed", "code"),
    yaml.safe_load("""
- [{}, null]
- [{power_source: battery}, battery]
- [{low_power_mode: true}, low_power]
- [{swap_used_bytes: 1207959552}, swap]
- [{swap_used_bytes: 1074790400}, null]
- [{elapsed_seconds: 4160.0}, sleep]
- [{thermal_pressure: moderate}, null]
- [{thermal_pressure: heavy}, thermal]
- [{cpu_throttle_count: 8}, thermal]
- [{cpu_throttle_count: 8, cpu_throttle_seconds: 0.1}, null]
- [{gpus: [{clock_reasons: [sw_power_cap, gpu_idle], others_share: 0.0}]}, null]
- [{gpus: [{clock_reasons: [hw_thermal_slowdown]}]}, thermal]
- [{gpus: [{others_share: 0.5}]}, [gpu_shared, 0.5]]
- [{gpus: [{others_share: 0.05}]}, null]
- [{gpus: [{others_share: null}], device_busy: 0.5}, [gpu_shared, 0.5]]
- [{gpus: [{others_share: 0.0}], device_busy: 0.5}, null]  # it ended before the windows
- [{device_busy: 0.5}, [gpu_shared, 0.5]]
- [{device_busy: null}, null]
- [{missing_cores: 1}, cores_taken]
- [{gpus: [{}, {others_share: 0.5}]}, null]
"""),
)
def test_a_disturbed_run_is_unstable(changed, code):
    code = tuple(code) if isinstance(code, list) else (code,) if code else None
    quiet = [sample | {"run_id": "run-2"} for sample in samples()]
    runs = ["run-1"] * 6 + ["run-2"] * 6
    verdict = judge(2 * STEADY, runs, samples(**changed) + quiet)
    assert verdict.reasons == ((code,) if code else ())
    assert verdict.kind == (verdicts.UNSTABLE if code else verdicts.STABLE)
    short = judge(STEADY[:1], ["run-1"], samples(1, **changed))
    assert short.reasons == ((code or ("few_processes",)),)


def test_counters_before_the_first_window_do_not_count():
    conditions = samples()
    conditions[0]["swap_used_bytes"] = 2**20
    other = [
        sample | {"run_id": "run-2", "swap_used_bytes": 2**34} for sample in conditions
    ]  # not a growth
    assert judge(STEADY, ["run-1"] * 6, conditions[1:] + other).kind == verdicts.TOO_FEW
    assert judge(STEADY, ["run-1"] * 6, conditions).reasons == (("swap",),)


def test_a_window_of_fewer_steps_may_move_fewer_tensors():
    # ResNet-50's rate rises from nearly 0: five scales round to what they were after one step, and
    # not after three
    for steps, moved, is_frozen in (
        (3, 113, False),
        (1, 108, False),
        (1, 107, True),
        (3, 107, True),
    ):
        counts = [
            ("compile", 1, 108),
            ("warmup", 2, 110),
            ("train", steps, moved),
            ("train", 3, 113),
        ]
        lines = [
            make_row(phase=phase, steps=n, settings={"moved_tensors": m}, index=i)
            for i, (phase, n, m) in enumerate(counts)
        ]
        assert (
            verdicts.has(verdicts.summarise(make_rows(lines))["verdict"].item(), "frozen")
            is is_frozen
        )


def test_a_point_is_judged_by_the_training_windows_of_its_last_session():
    rows = [*windows(STEADY), *windows(STEADY, run_id="run-2")]
    old = [row | {"session": "old", "run_id": "run-0", "samples_per_second": 5.0} for row in rows]
    warm = [make_row(phase="warmup", samples_per_second=1.0)]

    def kinds(lines, conditions=None):
        return [
            verdict.reasons
            for verdict in verdicts.summarise(make_rows(lines), conditions)["verdict"]
        ]

    assert kinds(old + warm + rows) == [()]
    shared = samples(gpus=[{"others_share": 0.5}], device_busy=0.5)
    busy = pandas.DataFrame(
        [sample | {"run_id": run} for run in ("run-1", "run-2") for sample in shared]
    )
    assert kinds(rows, busy) == [()]  # a run on the CPU
    gpu = [row | {"device": "cuda"} for row in rows]
    assert kinds(gpu, busy) == [(("gpu_shared", 0.5),)]
    assert kinds(gpu, busy.assign(run_id="another")) == [(("unrecorded",),)]


def session(name, *rates, **columns):
    """Return a session of a point: a process of six windows at each of these rates."""
    runs = [
        (f"{name}-{number}", [rate * each / 1000 for each in STEADY])
        for number, rate in enumerate(rates)
    ]
    return [
        row for run_id, own in runs for row in windows(own, run_id=run_id, session=name, **columns)
    ]


BUSY, SLEEP = {"power_source": "battery"}, {"elapsed_seconds": 4160.0}


def test_a_disturbed_repeat_of_one_process_changes_no_reader_of_rows(outputs):
    write(*session("s1", 1190, 1200), *session("s2", 209))
    assert Evidence.of_machine("desk").summary["samples_per_second"].item() == pytest.approx(
        1195, rel=1e-3
    )
    rows = records.gather(outputs / "runs")
    assert set(compare.rows_of("desk", rows)["session"]) == {"s1"}
    assert set(compare.rows_of("s2", rows)["session"]) == {"s2"}


def test_a_point_that_lost_its_patience_is_known_by_its_undisturbed_processes(outputs):
    given = {"device": "cpu", "num_processes": 5, "fewest_processes": 2, "processes_part": 0.09}
    measurement = Measurement("mnist_speedup", "desk", given, "sZ", patience=0.0)
    write(*session("sZ", 209, 1199, 1201, point=measurement.folder.name))
    assert measurement.left()
    slept = [sample | {"run_id": "sZ-0"} for sample in samples(**SLEEP)]
    (measurement.folder / "sZ-0.json").write_text(json.dumps({"conditions": slept}))
    assert measurement.left() == []


WRONG, UNPROVEN = Verdict((("parity", "off"),)), Verdict((("drift", 0.1), ("few_steps", 1, 3)))
UNSTABLE, FEW, STABLE = Verdict((("spread", 0.08),)), Verdict((("few_processes",),)), Verdict()


@pytest.mark.parametrize(
    ("one", "other", "worse"),
    [
        (STABLE, STABLE, STABLE),
        (STABLE, FEW, FEW),
        (FEW, UNSTABLE, UNSTABLE),
        (UNSTABLE, UNPROVEN, UNPROVEN),
        (UNPROVEN, WRONG, WRONG),
        (None, STABLE, STABLE),
        (None, None, None),
    ],
)
def test_the_worse_of_two_verdicts_counts(one, other, worse):
    assert verdicts.worse(one, other) == verdicts.worse(other, one) == worse


def test_a_verdict_says_its_kinds_the_worst_first():
    both = Verdict((("drift", -0.09), ("thermal",), ("few_steps", 1, 3)))
    assert (
        str(both)
        == "unproven: 1 of 3 steps compared with float64; unstable: drift -9%, thermal pressure"
    )
    assert (
        verdicts.is_unproven(both),
        verdicts.is_unstable(both),
        verdicts.has(both, "thermal"),
    ) == (True,) * 3
    assert [str(verdict) for verdict in (STABLE, FEW)] == ["stable", "too few processes"]
    assert not any(
        verdicts.has(verdict, word) for verdict in (STABLE, None) for word in verdicts.KINDS
    )


def test_every_reason_has_a_kind_and_a_text_that_takes_its_values():
    values = yaml.safe_load("""
        {parity: ["off"], constant: [2.3], strayed: [2.1, 2.0], guessing: [0.1, 60000, 0.1], frozen: [1, 5],
         refused: [F.linear], few_steps: [1, 3], replaced: [digits in place of mnist], ceiling: [3.0],
         watts: [9.0, soc], clock: [1.0], variables: [A=1], spread: [0.1], drift: [0.1],
         processes: [0.27], faults: [0.27], cpu_shared: [0.3], gpu_shared: [0.4], cpu_stolen: [0.1]}
    """)
    for code, (kind, _, spoken) in verdicts.REASONS.items():
        assert bool(spoken) == (kind in (verdicts.UNSTABLE, verdicts.CHANGED, verdicts.UNPROVEN))
        assert Verdict(((code, *values.get(code, ())),)).kind == kind
        assert kind in str(Verdict(((code, *values.get(code, ())),)))
