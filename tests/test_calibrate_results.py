"""Charts of ceilings: what they say comes from the rows, and nothing calibrated is drawn too."""

import pandas
import pytest
from matplotlib.figure import Figure

from benchbook import figures, roofline
from benchbook.studies.calibrate import charts as calibration
from rows import make_rows
from test_roofline import calibration as windows

COPIES = {"model": "copy", "flops_per_sample": None, "bytes_per_sample": 2e9, "precision": None}


def table() -> pandas.DataFrame:
    rows = [*windows([4e7, 5e7, 6e7], 64), *windows([2e8], 64, "bf16"), *windows([10], 8, **COPIES)]
    return roofline.ceilings(make_rows([*rows, *windows([1], 64, session="session-0")]))


def drawn(draw, data) -> tuple:
    with figures.style():
        axes = Figure().subplots()
        draw(axes, data)
    return (
        axes,
        [label.get_text() for label in axes.get_yticklabels()],
        [text.get_text().strip() for text in axes.texts],
    )


def test_the_last_session_of_each_device_counts():
    assert set(table()["session"]) == {"session-0", "session-1"}
    assert set(calibration.latest(table())["session"]) == {"session-1"}


def test_arithmetic_is_a_bar_per_precision_and_the_title_names_the_fastest():
    axes, labels, texts = drawn(calibration.draw_arithmetic, calibration.latest(table()))
    assert [bar.get_width() for bar in axes.patches] == [2e11, 5e10]
    assert [label.rpartition(", ")[2] for label in labels] == ["bf16", "fp32"]
    assert texts == ["200 GFLOP/s, n=1", "50 GFLOP/s, n=3"]
    assert axes.get_title(loc="left") == "Up to 200 GFLOP/s (cpu, torch, bf16)"


def test_memory_is_a_bar_per_way():
    axes, labels, texts = drawn(calibration.draw_memory, calibration.latest(table()))
    assert [bar.get_width() for bar in axes.patches] == [2e10]
    assert labels[0].endswith("cpu, torch, memory copy")
    assert texts == ["20 GB/s, n=1"]
    assert axes.get_title(loc="left") == "Memory copies 20 GB/s"


def test_efficiency_leaves_out_points_without_a_ceiling():
    lines = {"machine": "desk", "device": "cpu", "point": ["a-12345678", "b-12345678"], "efficiency": [0.25, None]}
    axes, labels, texts = drawn(calibration.draw_efficiency, pandas.DataFrame(lines))
    assert (labels, texts) == (["desk\na"], ["25.0%"])
    assert axes.get_title(loc="left") == "Training reaches 25.0% of the ceiling measured in its session"


@pytest.mark.parametrize("draw", [calibration.draw_arithmetic, calibration.draw_memory])
def test_nothing_calibrated_is_drawn_and_said(draw):
    axes, _, _ = drawn(draw, calibration.latest(roofline.ceilings(make_rows([]))))
    assert axes.get_title(loc="left").endswith("nothing calibrated yet")


def test_no_efficiency_is_drawn_and_said():
    empty = calibration.efficiency_table(pandas.DataFrame())
    axes, _, _ = drawn(calibration.draw_efficiency, empty)
    assert axes.get_title(loc="left") == "Efficiency: no point was calibrated in its own session"


@pytest.mark.parametrize(
    ("value", "text"), [(2e15, "2 P"), (5.9e10, "59 G"), (1.5e6, "1.5 M"), (2e3, "2 k"), (7, "7 ")]
)
def test_amounts_have_decimal_prefixes(value, text):
    assert calibration._amount(value) == text
