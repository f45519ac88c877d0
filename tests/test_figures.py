"""How points look: hatched, hollow, or a cross and a word; the number of windows, the legend, the two views."""

import itertools

import matplotlib
import pandas
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from benchbook.judging import intervals
from benchbook.judging.verdicts import Verdict
from benchbook.record.naming import Name, Names
from benchbook.studies import figures
from benchbook.studies.charts import Bars, Points
from benchbook.studies.mobilenetv2_energy import study as mobilenet
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

COLOURS = figures.machine_colours({"desk", "attic"})


def line(value=2.0, **columns):
    told = {"machine": "desk", "device": "cpu", "source": "measured", "variant": "reference", "status": "ok"}
    told |= {"verdict": Verdict(), "low": 1.5, "high": 2.5, "num_windows": 6, "batch_size": 8}
    return told | {"value": value} | columns


PRINTED = line(source="published", verdict=None, num_windows=None)
FAILED = line(status="out_of_memory", value=None, low=None, high=None, num_windows=0, verdict=None)
LINES = {
    "stable": line(),
    "unstable": line(verdict=Verdict((("drift", 0.09),))),
    "diverged": line(status="diverged"),
    "failed": FAILED,
    "stopped midway": line(status="interrupted"),
    "published": PRINTED,
}


def drawn(*lines, draw=figures.draw_bars):
    table = pandas.DataFrame(lines)
    with figures.style():
        axes = Figure().subplots()
        if draw is figures.draw_bars:
            named = {"label": list(map(str, range(len(lines)))), "text": table["value"].fillna(0).map("{:.1f}".format)}
            draw(axes, figures.ranked(table.assign(**named), "value"), "value", COLOURS, {})
        else:
            draw(axes, table, "batch_size", "value", "a label", {"fmt": "o-", "color": "black"})
            figures.legend(axes.figure, figures.looks(table), [], on_points=True)
        axes.figure.draw_without_rendering()
    return axes


def figure_of(table, column, kind=Bars, **options):
    """Return a study's figure of a table."""
    chart = kind("name", table=lambda _: table, title=lambda *_: "A title", column=column, **options)
    return chart.draw(Evidence(make_rows([make_row()]))).figure


def words(axes):
    return [text.get_text().strip() for text in axes.texts]


def legend(axes):
    return [text.get_text() for found in axes.figure.legends for text in found.get_texts()]


@pytest.mark.parametrize(
    ("name", "hatch", "text"),
    [
        ("stable", None, "2.0, n=6"),
        ("unstable", "///", "2.0, n=6, unstable"),
        ("diverged", "///", "2.0, n=6, diverged"),
        ("published", None, "2.0"),
    ],
)
def test_a_bar_shows_what_may_be_said_of_its_point(name, hatch, text):
    axes = drawn(LINES[name])
    assert [(bar.get_width(), bar.get_hatch()) for bar in axes.patches] == [(2.0, hatch)]
    assert words(axes) == [text]
    assert (figures.WHISKERS[figures.PUBLISHED] in legend(axes)) == (name == "published")


@pytest.mark.parametrize("name", ["failed", "stopped midway"])
def test_a_failure_is_a_cross_and_its_status_at_the_axis_never_a_bar(name):
    axes = drawn(LINES[name])
    assert not axes.patches
    assert words(axes) == [LINES[name]["status"].replace("_", " ")]
    assert [text.get_position()[0] for text in axes.texts] == [0]
    assert [(mark.get_marker(), mark.get_xdata()[0]) for mark in axes.lines] == [("X", 0)]
    assert legend(axes) == [figures.FAILED]


def test_a_line_that_diverged_without_a_length_says_so_at_the_axis():
    (text,) = drawn(line(None, low=None, high=None, status="diverged")).texts
    assert text.get_text().endswith("diverged")
    assert text.get_position()[0] == 0


def test_whiskers_reach_from_low_to_high_and_the_legend_tells_intervals_from_rounding():
    axes = drawn(line(interval="interval"), line(interval="range"), PRINTED, FAILED)
    bars = [container.lines[2][0] for container in axes.containers if isinstance(container, ErrorbarContainer)]
    segments = [segment[:, 0].tolist() for part in bars for segment in part.get_segments()]
    assert segments == [[1.5, 2.5]] * 3
    kinds = set(figures.WHISKERS.values())
    assert kinds & set(legend(axes)) == kinds - {figures.WHISKERS[figures.PREDICTED]}
    for one, kind in (
        (PRINTED, figures.PUBLISHED),
        (line(interval="interval"), intervals.INTERVAL),
        (line(), intervals.RANGE),  # what is not called an interval is none
        (line(source="predicted"), figures.PREDICTED),
    ):
        assert kinds & set(legend(drawn(one))) == {figures.WHISKERS[kind]}
    assert legend(drawn(line(low=None, high=None))) == []


def test_both_views_stand_apart_each_under_its_name_and_one_alone_has_no_heading():
    axes = drawn(line(variant="tuned"), line(), line(variant="tuned, other"), line(variant="controlled"))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["1", "3", "0", "2"]  # from the top
    heads = {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_text().endswith(":")}
    ticks = dict(zip(labels, axes.get_yticks(), strict=True))
    assert set(heads) == {f"{figures.SAME}:", f"{figures.BEST}:"}
    assert ticks["1"] < heads[f"{figures.SAME}:"]
    assert ticks["0"] < heads[f"{figures.BEST}:"] < ticks["3"]
    assert not [text for text in words(drawn(line(), line(variant="controlled"))) if text.endswith(":")]


def test_a_machine_has_one_colour_published_is_grey_and_predicted_hollow():
    lines = [line(), line(device="cuda"), line(machine="attic"), PRINTED, line(source="predicted")]
    axes = drawn(*(one | {"value": 9.0 - place} for place, one in enumerate(lines)))
    shades = [
        matplotlib.colors.to_hex(bar.get_edgecolor() if not bar.get_fill() else bar.get_facecolor())
        for bar in axes.patches
    ]
    own, same, other, grey, _ = shades
    assert own == same == COLOURS["desk"].lower()
    assert other == COLOURS["attic"].lower() != own
    assert grey == figures.PUBLISHED_GREY
    assert axes.patches[4].get_facecolor()[3] == 0
    assert figures.machine_colours(["b", "a"]) == figures.machine_colours(["a", "b"])


def test_bars_stand_by_value_and_failures_last():
    lines = [line(1.0), FAILED, line(3.0), line(2.0), line(5.0, variant="tuned")]
    assert figures.ranked(pandas.DataFrame(lines), "value").index.tolist() == [2, 3, 0, 1, 4]
    assert figures.ranked(pandas.DataFrame(lines), "value", least_first=True).index.tolist() == [0, 3, 2, 1, 4]


def test_a_label_says_where_a_line_differs_from_the_others():
    lines = pandas.DataFrame([line(dataset="mnist", loader="a"), line(dataset="digits-28px", loader="a"), PRINTED])
    names = Names({"desk": Name("Chip A")}, {})
    first, second, printed = figures.labels(lines, names, ("loader", "dataset", "batch_size"), {"dataset": "mnist"})
    assert first == "Chip A, CPU"
    assert "digits" in second
    assert "published" in printed


@pytest.mark.parametrize("count", [4, 4.0])
def test_a_label_counts_the_chips_of_a_machine_once(count):
    lines = pandas.DataFrame([line(device="cuda", device_count=count), line(device="cuda", device_count=1)])
    names = Names({"desk": Name("Chip A")}, {("desk", "cuda"): "Chip B"})
    assert figures.labels(lines, names, ("device_count",), {}) == ["4 x Chip B", "Chip B"]


@pytest.mark.parametrize("name", ["stable", "unstable", "diverged"])
def test_a_doubtful_point_is_hollow(name):
    axes = drawn(LINES[name], draw=figures.draw_points)
    hollow = [one for one in axes.lines if one.get_markerfacecolor() == "white" and len(one.get_xdata())]
    assert bool(hollow) == (name != "stable")
    assert (figures.DOUBTFUL in legend(axes)) == (name != "stable")


def test_a_failed_point_is_a_cross_at_the_foot_with_its_status():
    axes = drawn(line(), FAILED | {"batch_size": 16}, draw=figures.draw_points)
    assert words(axes) == ["out of memory"]
    cross = next(one for one in axes.lines if one.get_marker() == "X")
    assert cross.get_xdata()[0] == 16
    assert cross.get_transform() == axes.get_xaxis_transform()
    assert figures.FAILED in legend(axes)


def test_of_very_many_bars_the_best_and_all_published_ones_are_drawn_and_the_rest_is_counted():
    lines = [
        {"device": "cpu", "rate": float(number), "source": "measured", "num_windows": 6} for number in range(1, 100)
    ]
    table = pandas.DataFrame([*lines, {"device": "cpu", "rate": 0.5, "source": "published", "num_windows": None}])
    assert set(figures.ranked(table, "rate")["rate"]) == {0.5, *range(71, 100)}
    assert figures.ranked(table, "rate", least_first=True)["rate"].max() == 29
    (axes,) = figure_of(table.assign(machine="desk"), "rate", text="{rate}", xlabel="rate").axes
    assert axes.get_xlabel() == "rate\n(70 more are not drawn)"
    assert figures.canvas(1000.0)[0].get_figheight() < 20


@pytest.mark.parametrize("kind", [Bars, Points])
def test_an_axis_has_one_work_that_of_most_machines_and_names_it(kind):
    sizes = [("desk", 64), ("attic", 64), ("desk", 64), ("desk", 128), ("desk", 128), ("desk", 128), ("desk", 128)]
    rows = [{"machine": one, "image_size": size, "batch_size": 2**n} for n, (one, size) in enumerate(sizes)]
    table = pandas.DataFrame(rows).assign(value=1.0, device="cpu")
    more = {"x": "batch_size", "by": ["machine"], "ylabel": "value"} if kind is Points else {"text": "{value}"}
    (axes,) = figure_of(table, "value", kind, alike=("image_size",), xlabel="images", **more).axes
    assert axes.get_xlabel() == "images\n(64 px)"
    assert len(axes.patches or axes.get_legend().get_texts()) == (2 if kind is Points else 3)


@pytest.mark.parametrize(("last", "is_drawn"), [(2.29, False), (1.5, True)])
def test_a_loss_that_stays_that_of_guessing_has_no_figure(last, is_drawn):
    chart = next(chart for chart in mobilenet.STUDY.charts if chart.name == "mobilenetv2-loss")
    columns = {"study": "mobilenetv2_energy", "framework": "torch", "dataset": "cifar10", "image_size": 64}
    lines = [make_row(index=index, loss=loss, **columns) for index, loss in enumerate((2.31, last))]
    assert (chart.draw(Evidence(make_rows(lines))).figure is not None) == is_drawn


def test_long_labels_are_wrapped_and_do_not_touch_and_the_figure_is_no_taller_without_them():
    heights = {}
    for count in (3, 20):
        lines = pandas.DataFrame({"machine": "desk", "device": "cpu", "value": [1.0, 2.0, 3.0], "source": "measured"})
        lines["setting"] = [", ".join([f"a setting {n}"] * count) for n in range(3)]
        figure = figure_of(lines, "value", label=("setting",), text="{value}", xlabel="value")
        figure.draw_without_rendering()
        labels = figure.axes[0].get_yticklabels()
        assert max(len(text) for label in labels for text in label.get_text().split("\n")) <= figures.LABEL_LETTERS
        boxes = [label.get_window_extent() for label in labels]
        assert all(below.y1 <= above.y0 for above, below in itertools.pairwise(boxes))
        heights[count] = figure.get_figheight()
    assert heights[3] < heights[20]


@pytest.mark.parametrize(("machines", "is_drawn"), [("aba", True), ("abc", False)])
def test_a_line_needs_two_points(machines, is_drawn):
    table = pandas.DataFrame({"machine": list(machines), "batch_size": (8, 8, 16), "value": 1.0, "device": "cpu"})
    figure = figure_of(table, "value", Points, x="batch_size", by=["machine"], xlabel="batch", ylabel="value")
    assert (figure is not None) == is_drawn
