"""Charts of ceilings: what they say comes from the rows, and nothing calibrated is drawn too."""

import pytest

from benchbook.studies.calibrate import charts, tables
from benchbook.studies.calibrate.results import STUDY
from benchbook.studies.study import Evidence
from rows import make_row, make_rows
from test_calibration import calibrated as windows

COPIES = {"model": "copy", "flops_per_sample": None, "bytes_per_sample": 2e9, "precision": None}


def calibrated(*further) -> Evidence:
    rows = [*windows([4e7, 5e7, 6e7], 64), *windows([2e8], 64, "bf16"), *windows([10], 8, **COPIES)]
    return Evidence(make_rows([*rows, *windows([1], 64, session="session-0"), *further]))


def drawn(place: int, evidence: Evidence, panel: int = 0) -> tuple:
    """Return a panel's axes, its bars' names and the words beside them."""
    axes = STUDY.charts[place].draw(evidence).figure.axes[panel]
    names = [label.get_text() for label in axes.get_yticklabels()]
    return axes, names, [text.get_text().strip() for text in axes.texts]


def test_the_last_session_of_each_device_counts():
    assert set(tables.ceilings(calibrated())["session"]) == {"session-1"}


def test_arithmetic_is_a_bar_per_precision_and_the_title_names_the_fastest():
    axes, names, words = drawn(0, calibrated())
    assert [bar.get_width() for bar in axes.patches] == [2e11, 5e10]
    assert [name.rpartition(", ")[2] for name in names] == ["bf16", "fp32"]
    assert words == ["200 GFLOP/s, n=1", "50 GFLOP/s, n=3"]
    assert "200 GFLOP/s (CPU, torch, bf16)" in axes.get_title(loc="left")


def test_memory_is_a_bar_per_way():
    axes, names, words = drawn(0, calibrated(), panel=1)
    assert [bar.get_width() for bar in axes.patches] == [2e10]
    assert names[0] == "Chip A, CPU\ntorch, memory copy"
    assert words == ["20 GB/s, n=1"]
    assert "20 GB/s" in axes.get_title(loc="left")


def test_efficiency_leaves_out_points_without_a_ceiling():
    trained = {"flops_per_sample": 1e8, "precision": "fp32", "samples_per_second": 125.0}
    points = [make_row(**trained, session="session-1"), make_row(**trained, session="s", point="b-1", run_id="b")]
    axes, names, words = drawn(1, calibrated(*points))
    assert (names, words) == (["Chip A\nMNIST, reference-cpu"], ["25.0%, n=1"])
    assert "25 %" in axes.get_title(loc="left")
    assert len(tables.efficiency(calibrated(*points))) == 2


@pytest.mark.parametrize(("place", "panel"), [(0, 0), (0, 1), (1, 0)])
def test_nothing_calibrated_is_drawn_and_said(place, panel):
    axes, names, _ = drawn(place, Evidence(make_rows([])), panel)
    assert names == []
    assert "calibrated" in axes.get_title(loc="left")


@pytest.mark.parametrize(
    ("value", "text"), [(2e15, "2 P"), (5.9e10, "59 G"), (1.5e6, "1.5 M"), (2e3, "2 k"), (7, "7 ")]
)
def test_amounts_have_decimal_prefixes(value, text):
    assert charts.amount(value) == text
