"""Summaries of points, spreads of windows and fits, against sums done by hand."""

import math

import numpy
import pandas
import pytest

from benchbook.judging import intervals, statistics
from benchbook.machine import condition
from made.rows import make_row, make_rows, windows


def test_the_spread_is_half_the_noise_of_windows_around_their_process_without_its_warm_up():
    series = statistics.warmed_up([100, 80, 100, 125, 99, 700, 700, 101], list("aaaabbbb"))
    assert [each.tolist() for each in series] == [
        [100, 80, 100, 125],
        [700, 700, 101],
    ]  # 99 carries a warm-up
    quiet = statistics.warmed_up([100, 80, 100, 125, 700, 700], list("aaaabb"))
    assert statistics.spread(quiet) == pytest.approx(0.6745 * math.log(1.25) * (2 / 4) ** 0.5)
    assert statistics.spread([numpy.array([5.0])]) == 0


def failure(status, message=None, **columns):
    """Return the row of a run that ended so."""
    return make_row(
        samples_per_second=None,
        samples=None,
        seconds=None,
        status=status,
        message=message,
        **columns,
    )


ONE_OF_TWO = "1 of 2 processes failed: crashed"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [*windows([100, 200]), failure("out_of_memory", "9 GB", index=2)],
            ("out_of_memory", "9 GB", 2),
        ),
        (
            [failure("unavailable", "no cuda", phase="setup", batch_size=None)],
            ("unavailable", "no cuda", 0),
        ),
        ([*windows([100, 200]), make_row(index=2, status="diverged")], ("diverged", None, 3)),
        ([*windows([100]), failure("interrupted", index=1)], ("interrupted", None, 1)),
        (
            [*windows([100]), failure("interrupted", index=1), *windows([100], run_id="run-2")],
            ("ok", None, 2),
        ),
        (
            [*windows([100]), failure("crashed", index=1), *windows([100], run_id="run-2")],
            ("ok", ONE_OF_TWO, 2),
        ),
        (
            [failure("crashed", run_id="run-0", phase="setup"), *windows([100, 200])],
            ("ok", ONE_OF_TWO, 2),
        ),
        (
            [failure("out_of_memory", "9 GB", run_id="run-0"), *windows([100, 200])],
            ("ok", "1 of 2 processes failed: out of memory (9 GB)", 2),
        ),
        (
            [
                failure("crashed", run_id="run-0"),
                *windows([1]),
                make_row(index=2, status="diverged"),
            ],
            ("diverged", None, 2),
        ),
    ],
)
def test_a_failure_is_its_points_outcome_unless_another_run_measured_it(rows, expected):
    summary = statistics.summarise(make_rows([*rows, *windows([5], point="another")])).set_index(
        "point"
    )
    line = summary.loc["reference-cpu"]
    message = None if pandas.isna(line["message"]) else line["message"]
    assert (line["status"], message, line["num_windows"]) == expected
    assert pandas.isna(line["samples_per_second"]) == (expected[2] == 0)


@pytest.mark.parametrize(
    ("device", "stolen", "hypervisor", "between"),
    [
        ("cpu", 0.5, None, intervals.VIRTUAL.session),
        ("cpu", 0.0, "WSL", intervals.VIRTUAL.session),
        ("cpu", 0.0, None, intervals.UNPAIRED.session),
        ("cuda", 0.5, "WSL", intervals.UNPAIRED.session),
    ],
)
def test_sessions_of_a_virtual_machines_cpu_differ_by_more(device, stolen, hypervisor, between):
    runs = "run-1", "run-2"
    rows = make_rows([row for run in runs for row in windows([100] * 3, run_id=run, device=device)])
    told = {"cpu_stolen_seconds": stolen, "hypervisor": hypervisor}
    virtual = condition.virtual(pandas.DataFrame([{"run_id": run} | told for run in runs]))
    [line] = statistics.summarise(rows, virtual).to_dict("records")
    assert line["between_sessions"] == between
    parts = 1.96 * between, intervals.half_widths(0.0, 2)[0]
    assert math.log(line["high"] / line["low"]) / 2 == pytest.approx(math.hypot(*parts), rel=1e-3)


def test_a_summary_has_the_medians_of_the_training_windows_alone():
    board = {"energy_method": "nvml", "energy_boundary": "board", "samples": 600, "seconds": 2.0}
    rows = [
        *windows([100, 400, 300], run_id="run-1", input_seconds=0.5, energy_joules=60.0, **board),
        *windows([200], run_id="run-2", input_seconds=1.0, energy_joules=30.0, **board),
        *windows([9999], run_id="run-1", phase="compile"),
        *windows([9999], run_id="run-1", phase="warmup"),
        *(
            make_row(
                phase="evaluate",
                repeat=repeat,
                index=index,
                samples_per_second=9999.0,
                accuracy=accuracy,
            )
            for repeat, *tests in ((0, 0.1, 0.5), (1, 0.2, 0.7), (2, 0.9, 0.6))
            for index, accuracy in enumerate(tests)
        ),
    ]
    summary = statistics.summarise(make_rows(rows))
    assert len(summary) == 1
    line = summary.iloc[0]
    assert line["samples_per_second"] == pytest.approx((300 * 200) ** 0.5)
    assert line["spread"] == pytest.approx(
        0.6745 * math.log(4 / 3) * (1 / 2 / 1) ** 0.5
    )  # of 400 and 300
    assert line["interval"] == line["energy_interval"] == "interval"
    assert (line["num_processes"], line["num_windows"]) == (2, 4)
    assert line["seconds_per_step"] == pytest.approx(64 / (300 * 200) ** 0.5)
    waited = ["waited_low", "input_share_waited", "waited_high"]
    assert line[waited].tolist() == [0.25, 0.25, 0.5]  # of 0.25, 0.25, 0.25, 0.5
    assert line["energy_per_sample"] == pytest.approx((0.1 * 0.05) ** 0.5)
    unmoved = windows([100] * 6, energy_joules=0.0, energy_method="nvml", energy_boundary="board")
    for rows in ([make_row()], unmoved):
        assert (
            statistics.summarise(make_rows(rows))[["energy_low", "energy_high"]]
            .isna()
            .all(axis=None)
        )
    assert line["accuracy"] == 0.6  # the median of the last ones of repeats
    assert (line["status"], line["message"]) == ("ok", None)
    assert (line["machine"], line["batch_size"], line["model"]) == ("desk", 64, "mnist_cnn")


# The second exact line, -2 + 3 x size, starts below zero: the best through zero, of relative
# errors, has this slope.
@pytest.mark.parametrize(
    ("sizes", "times", "expected"),
    [
        ([16, 64, 1024], [2e-3 + 16e-5, 2e-3 + 64e-5, 2e-3 + 1024e-5], (2e-3, 1e-5)),
        ([1, 1, 1000], [1.0, 1.0, 3000.0], (0, (2 + 1 / 3) / (2 + 1 / 9))),
        ([16, 64, 256], [1.0, 1.0, 1.0], (1, 0)),
        ([16, 64, 256], [5.0, 4.0, 3.0], ((1 / 5 + 1 / 4 + 1 / 3) / (1 / 25 + 1 / 16 + 1 / 9), 0)),
    ],
)
def test_a_fit_finds_the_fixed_part_and_the_part_per_sample_neither_negative(
    sizes, times, expected
):
    assert statistics.fit_step_time(sizes, times) == pytest.approx(expected, abs=1e-12)
