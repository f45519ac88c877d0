"""Summaries of points, spreads of windows and fits, against sums done by hand."""

import math

import pandas
import pytest
import yaml

from benchbook.judging import intervals, statistics
from benchbook.machine import condition
from made.rows import make_row, make_rows, windows
from made.study_rows import NOTHING

# Windows and failures of a point, and its status, message and number of windows.
OUTCOMES = """
- [[{rates: [100, 200]}, {status: out_of_memory, message: 9 GB, index: 2}], [out_of_memory, 9 GB, 2]]
- [[{status: unavailable, message: no cuda, phase: setup, batch_size: null}], [unavailable, no cuda, 0]]
- [[{rates: [100, 200]}, {status: diverged, index: 2}], [diverged, null, 3]]
- [[{rates: [100]}, {status: interrupted, index: 1}], [interrupted, null, 1]]
- [[{rates: [100]}, {status: interrupted, index: 1}, {rates: [100], run_id: run-2}], [ok, null, 2]]
- [[{rates: [100]}, {status: crashed, index: 1}, {rates: [100], run_id: run-2}],
   [ok, "1 of 2 processes failed: crashed", 2]]
- [[{status: crashed, run_id: run-0, phase: setup}, {rates: [100, 200]}], [ok, "1 of 2 processes failed: crashed", 2]]
- [[{status: out_of_memory, message: 9 GB, run_id: run-0}, {rates: [100, 200]}],
   [ok, "1 of 2 processes failed: out of memory (9 GB)", 2]]
- [[{status: crashed, run_id: run-0}, {rates: [1]}, {status: diverged, index: 2}], [diverged, null, 2]]
"""


@pytest.mark.parametrize(("parts", "expected"), yaml.safe_load(OUTCOMES))
def test_a_failure_is_its_points_outcome_unless_another_run_measured_it(parts, expected):
    rows = windows([5], point="another")
    for part in parts:
        nothing = NOTHING if part.get("status") != "diverged" else {}
        rows += windows(**part) if "rates" in part else [make_row(**nothing | part)]
    line = statistics.summarise(make_rows(rows)).set_index("point").loc["reference-cpu"]
    message = None if pandas.isna(line["message"]) else line["message"]
    assert [line["status"], message, line["num_windows"]] == expected
    assert pandas.isna(line["samples_per_second"]) == (expected[2] == 0)


def test_accuracy_is_the_median_of_last_tests_and_a_counter_that_stands_has_no_joules():
    rows = windows([100] * 3, energy_joules=0.0, energy_method="nvml", energy_boundary="board")
    for repeat, tests in enumerate(([0.1, 0.5], [0.2, 0.7], [0.9, 0.6])):
        of_repeat = {"phase": "evaluate", "repeat": repeat}
        rows += [make_row(index=n, accuracy=each, **of_repeat) for n, each in enumerate(tests)]
    [line] = statistics.summarise(make_rows(rows)).to_dict("records")
    assert line["accuracy"] == 0.6
    assert math.isnan(line["energy_low"])


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
