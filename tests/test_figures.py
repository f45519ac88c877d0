"""What labels say, how they fit, and what is not drawn; how points look is in the golden set
(edges.py)."""

import matplotlib
import pandas
import pytest

from benchbook.judging.verdicts import Verdict
from benchbook.record.naming import Name, Names
from benchbook.studies.charts import figures
from benchbook.studies.charts.plots import pooled
from benchbook.studies.mobilenetv2_energy import study as mobilenet
from benchbook.studies.results.evidence import Evidence
from made.edges import line
from made.rows import make_row, make_rows


def test_a_label_says_where_a_line_differs_from_the_others():
    lines = pandas.DataFrame(
        [
            line(dataset="mnist", loader="a"),
            line(dataset="digits-28px", loader="a"),
            line(source="published"),
        ]
    )
    names = Names({"desk": Name("Chip A")}, {})
    first, second, printed = figures.labels(
        lines, names, ("loader", "dataset", "batch_size"), {"dataset": "mnist"}
    )
    assert first == "Chip A, CPU"
    assert "digits" in second
    assert "published" in printed


def test_like_machines_are_one_bar_with_their_span_and_an_unstable_or_another_one_is_its_own():
    kinds = {
        "a": Name("Chip A", suffix=" (no. 1)"),
        "b": Name("Chip A", suffix=" (no. 2)"),
        "c": Name("Chip C"),
    }
    numbers = [
        line(machine=name, value=value, low=value - 1, high=value + 1)
        for value, name in enumerate("abc", 5)
    ]
    lines = pandas.DataFrame([*numbers, numbers[1] | {"verdict": Verdict((("battery",),))}])
    one, other, unstable = pooled(lines, "value", [], Names(kinds, {})).to_dict("records")
    assert (one["machine"], one["value"], one["low"], one["high"], one["pooled"]) == (
        "a",
        5,
        4,
        7,
        ["a", "b"],
    )
    assert figures.labels(pandas.DataFrame([one]), Names(kinds, {}), (), {}) == [
        "Chip A (2 machines), CPU"
    ]
    assert (other["machine"], unstable["machine"]) == ("c", "b")

    given = Names(kinds, {}, given=frozenset("ab"))
    assert pooled(lines, "value", [], given)["machine"].tolist() == ["a", "b", "c", "b"]


@pytest.mark.parametrize(("last", "is_drawn"), [(2.29, False), (1.5, True)])
def test_a_loss_that_stays_that_of_guessing_has_no_figure(last, is_drawn):
    chart = next(chart for chart in mobilenet.STUDY.charts if chart.name == "mobilenetv2-loss")
    columns = {
        "study": "mobilenetv2_energy",
        "framework": "torch",
        "dataset": "cifar10",
        "image_size": 64,
    }
    lines = [make_row(index=index, loss=loss, **columns) for index, loss in enumerate((2.31, last))]
    assert (chart.draw(Evidence(make_rows(lines))).figure is not None) == is_drawn


DARK = {"text.usetex": True, "figure.facecolor": "black", "axes.facecolor": "black"}
DARK |= {"savefig.facecolor": "black", "text.color": "white", "xtick.color": "white"}


@pytest.mark.parametrize("draw", [figures.render, figures.as_svg])
def test_a_matplotlibrc_changes_no_figure(draw):
    def drawn():
        with figures.style():
            figure, axes = figures.canvas(2)
            axes.plot([1, 2], [3, 4], label="a")
            axes.set_title("title")
            axes.legend()
        return draw(figure)

    plain = drawn()
    with matplotlib.rc_context(DARK):
        assert drawn() == plain
