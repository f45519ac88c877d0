"""What the chart of predictions draws and says: nothing predicted looks like a bar that was measured."""

import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from benchbook import articles, figures, predictions, statistics
from benchbook.figures import predictions as charts
from benchbook.studies.segmentation_scaling import scaling
from rows import make_rows


def tables(rows):
    found = predictions.table(rows, statistics.summarise(rows))
    return found, predictions.errors(found, scaling.pairs(rows))


@pytest.fixture(scope="module")
def published():
    return tables(articles.rows())


def axes_of(draw, *data):
    with figures.style():
        axes = Figure().subplots()
        draw(axes, *data)
    return axes


def test_every_held_out_prediction_is_a_hollow_mark_with_a_dashed_interval(published):
    found, judged = published
    axes = axes_of(charts.draw_held_out, found, judged)
    marks = [bars.lines[0] for bars in axes.containers]
    assert sum(len(mark.get_xdata()) for mark in marks) == found["measured"].notna().sum()
    assert {mark.get_markerfacecolor() for mark in marks} == {"none"}
    assert all(bars.lines[2][0].get_linestyle()[0][1] is not None for bars in axes.containers)


def test_the_title_tells_the_errors_of_the_table(published):
    _, judged = published
    text = charts.title(judged)
    for line in judged[(judged["judged_on"] == "all held out") & (judged["num_pairs"] > 0)].to_dict("records"):
        assert f"{line['median_error']:.0%} on" in text
        assert f"(median of {line['num_pairs']})" in text


def test_what_nobody_measured_is_hollow_and_dashed_and_not_hatched_as_what_is_unstable(published):
    found, _ = published
    axes = axes_of(charts.draw_unmeasured, found)
    shown = charts.shown(found)
    assert len(axes.patches) == len(shown) == (found["source"].eq("predicted") & found["predicted"].notna()).sum()
    for bar, line in zip(axes.patches, shown.to_dict("records"), strict=True):
        assert not bar.get_hatch()
        assert bar.get_linestyle() == "--"
        assert bar.get_facecolor() == to_rgba("none")
        assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((line["low"], line["high"]))
    assert "PREDICTED" in axes.get_xlabel()
    refused = found["reason"].notna() @ found["processor"].str.split(", ").str.len()
    assert axes.get_title(loc="left").startswith(f"{len(shown)} speeds that nobody measured")
    assert axes.get_title(loc="left").endswith(f"; {refused} more refused")


def test_a_chart_with_more_than_it_has_room_for_says_how_many_it_draws(published, monkeypatch):
    monkeypatch.setattr(charts, "MOST", 5)
    found, _ = published
    axes = axes_of(charts.draw_unmeasured, found)
    assert len(axes.patches) == 5
    assert ", 5 of them drawn:" in axes.get_title(loc="left")


def test_nothing_to_predict_is_drawn_and_said():
    found, judged = tables(make_rows([]))
    assert charts.title(judged) == "Predictions: nothing to judge them by"
    assert axes_of(charts.draw_held_out, found, judged).get_title(loc="left") == charts.title(judged)
    assert axes_of(charts.draw_unmeasured, found).get_title(loc="left").startswith("No speed is predicted; 0 refused")
