"""The look of figures: house style, bars with intervals, points on two axes, the legend; and
their files."""

import io
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import matplotlib.style
import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, NullFormatter
from PIL import Image

from benchbook.judging import intervals, verdicts
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.studies.results.tables import PREDICTED, PUBLISHED, bounds_kind, is_measured

# Okabe and Ito's palette, distinguishable with any colour vision: https://jfly.uni-koeln.de/color/
MACHINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINE, PUBLISHED_GREY, OTHER = "#000000", "#999999", "#56606B"
SHADES = (1.0, 0.55, 0.3)  # opacity of a bar's parts
WIDTH = 4.4  # inches; a phone shows it at 81 pixels an inch, and a letter of 8 points with 9
STYLE = Path(__file__).with_name("house.mplstyle")
MOST_BARS = 24
TALLEST = 18.0  # inches, enough for MOST_BARS
SAME, BEST = "same precision everywhere", "the best each device can do"
BAR_HEIGHT = 0.45  # of a line's; its label stands above
VIEW_GAP = 0.9  # between the two views, in bars, for a heading
HATCH = "///"  # of the bar of a doubtful point: unstable, unproven or diverged
DOUBTFUL, FAILED = "unstable, unproven or diverged", "failed or wrong, no measure"
# The kinds of bounds, with their legend. A range has no caps: it is no estimate of random error.
WHISKERS = {intervals.INTERVAL: "95 % interval", intervals.RANGE: "range: minimum to maximum"}
WHISKERS |= {PUBLISHED: "published: its rounding", PREDICTED: "predicted: 90 % interval"}
SOURCES = {"secondary": "published by others", "digitised": "read off a published chart"}
LABEL_LETTERS = 66  # in each line of a label
WORDY = 26  # letters; a longer entry has a line of the legend for itself


def style(more: Mapping[str, object] = MappingProxyType({})):
    """Return a `with` block that draws in the house style, and with more of Matplotlib's
    settings, whatever a matplotlibrc says."""
    return matplotlib.style.context([STYLE, dict(more)], after_reset=True)


def canvas(height: float, panels: int = 1) -> tuple[Figure, numpy.ndarray | Axes]:
    """Return a figure of WIDTH and its axes, or an array of axes if there are several panels;
    titles are wrapped at its edge.

    Args:
        height: in inches; no figure is taller than TALLEST.
        panels: number of axes side by side.
    """
    figure = Figure(figsize=(WIDTH, min(height, TALLEST)))
    FigureCanvasAgg(figure)  # so that layout and PNG share the measured sizes of texts
    every = figure.subplots(ncols=panels)
    for axes in numpy.ravel(every):
        axes.set_title("", wrap=True)
    return figure, every


def colour(line: dict, colours: Mapping[str, str]) -> str:
    """Return the colour of a table's line: its machine's, from `plots.colours`, or grey if it
    was not measured."""
    return colours.get(line.get("machine"), OTHER) if is_measured(line) else PUBLISHED_GREY


def view(line: dict) -> str:
    """Return the view of a line, SAME or BEST, by its variant; a chart with both views labels
    them."""
    return BEST if str(line.get("variant")).startswith("tuned") else SAME


def outcome(line: dict) -> str:
    """Return the outcome of a table's line: ok, unproven, unstable, diverged or failed, as if
    wrong; other data are named by the label."""
    status, verdict = line.get("status"), line.get("verdict")
    if isinstance(status, str) and status != "ok":
        return "diverged" if status == "diverged" else "failed"
    is_doubtful = isinstance(verdict, verdicts.Verdict) and verdict.is_doubtful
    return verdict.kind if is_doubtful and verdict.kind != verdicts.CHANGED else "ok"


def labels(
    lines: pandas.DataFrame, names: Names, columns: Iterable[str], usual: Mapping[str, object]
) -> list[str]:
    """Return the label of each line: its machine and device, and below them the values that
    distinguish it.

    Args:
        lines: with machine, device, and source if some were not measured.
        names: of machines.
        columns: that may distinguish lines; a column with one value is omitted, unless it is in
        `usual`.
        usual: default values of columns, which labels omit.
    """
    shown = [
        name for name in columns if name in lines and (name in usual or lines[name].nunique() > 1)
    ]
    texts = []
    for line in lines.to_dict("records"):
        place = names.place(line) if pandas.notna(line.get("machine")) else ""
        counted = pandas.notna(line.get("device_count")) and place.startswith(
            f"{line['device_count']:.0f} x"
        )
        own = naming.words(
            line, [name for name in shown if name != "device_count" or not counted], usual
        )
        source = "" if is_measured(line) else SOURCES.get(line["source"], line["source"])
        told = ", ".join(filter(None, (own, source)))
        texts.append(textwrap.fill(", ".join(filter(None, (place, told))), LABEL_LETTERS))
    return texts


def looks(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how each line is drawn, in columns: view, outcome, is_measured, and bounds (their
    kind, if any)."""
    each = [
        (view(line), outcome(line), is_measured(line), bounds_kind(line))
        for line in table.to_dict("records")
    ]
    look = pandas.DataFrame(each, table.index, columns=["view", "outcome", "is_measured", "bounds"])
    bounded = table.reindex(columns=["low", "high"]).notna().all(axis=1) & look["outcome"].ne(
        "failed"
    )
    return look.assign(bounds=look["bounds"].where(bounded))


def ranked(table: pandas.DataFrame, column: str, *, least_first: bool = False) -> pandas.DataFrame:
    """Return the lines to draw as bars, at most MOST_BARS, the best of each view first and
    failures last.

    If there are more lines, the worst measured ones are left out, failures first.
    """
    table = table.reset_index(drop=True)
    look = looks(table)
    order = look.assign(value=table[column].astype(float), failed=look["outcome"].eq("failed"))
    rank = {"ascending": [True, True, least_first], "kind": "stable", "na_position": "last"}
    kept = order.sort_values(["is_measured", "failed", "value"], **rank)[:MOST_BARS]
    best = kept.sort_index().sort_values(
        ["view", "failed", "value"], **rank
    )  # SAME is before BEST in the alphabet
    return table.loc[best.index]


def draw_bars(
    axes: Axes,
    table: pandas.DataFrame,
    column: str,
    colours: Mapping[str, str],
    parts: Mapping[str, str],
) -> None:
    """Draw a bar for each line of a table, the first on top, with its interval and its number of
    windows.

    Published bars are grey and predicted bars hollow. The bar of a doubtful or diverged point is
    hatched and followed by that word. A point that failed has a cross and its status at the axis
    instead of a bar. Tuned bars form a group under its own heading.

    Args:
        axes: where to draw; the legend is below its figure.
        table: from `ranked`; with the columns device, `column`, label and text (after the bar,
        unless the point
            failed), and optionally source, variant, status, verdict, low, high and num_windows.
        column: the bars' lengths.
        colours: of machines.
        parts: columns that add up to a measured bar, with their names in the legend; the first
        is the darkest. Empty:
            bars have no parts.
    """
    lines, look = table.to_dict("records"), looks(table)
    both = look["view"].nunique() > 1
    above = VIEW_GAP * (both & look["view"].eq(SAME).to_numpy())
    places = numpy.arange(len(lines) - 1.0, -1.0, -1.0) + above
    foot = {"transform": axes.get_yaxis_transform()}  # a logarithmic axis has no 0
    for line, place, ending in zip(lines, places, look["outcome"], strict=True):
        if ending == "failed":
            axes.plot(0, place, "X", color=LINE, clip_on=False, **foot)
            end, told, at = 0.0, line["status"].replace("_", " "), foot
        else:
            shown = parts if parts and is_measured(line) else [column]
            _bar(axes, line, place, shown, colour(line, colours), ending)
            ends = pandas.Series([line.get("high"), line[column], 0.0], dtype=float)
            end, told, at = max(0.0, ends.dropna().iloc[0]), _after(line, column, ending), {}
        axes.text(end, place, f"\u2003{told}", va="center", **at)  # an SVG drops leading spaces
    for heading in (SAME, BEST) if both else ():
        top = places[look["view"] == heading].max() + 0.85
        axes.text(0.01, top, f"{heading}:", style="italic", va="bottom", **foot)
    _whiskers(axes, table.set_axis(places), column, look["bounds"])
    axes.set_yticks(places + 0.27, table["label"], ha="left", va="bottom")
    axes.tick_params(axis="y", length=0, pad=-2)  # each above its bar, so that a phone fits both
    if not axes.patches:
        axes.set(xlim=(0, 1), xticks=[])
    top = max([1.0, *places])  # at least 1, so that a lone bar is not thicker
    axes.set_ylim(-0.6, top + (1.4 if both else 0.8))
    axes.margins(x=0.35)  # room for the texts after the bars
    measured = table[look["is_measured"]]
    shade = next((colour(line, colours) for line in measured.to_dict("records")), LINE)
    shades = [
        Patch(color=shade, alpha=alpha, label=word)
        for (part, word), alpha in zip(parts.items(), SHADES, strict=False)
        if len(measured) and table[part].notna().any()
    ]
    legend(axes.figure, look, shades)


def _bar(
    axes: Axes, line: dict, place: float, parts: Iterable[str], shade: str, ending: str
) -> None:
    """Draw a line's bar from its parts: hollow if it was predicted, hatched if it is doubtful."""
    style = {"color": shade, "edgecolor": "white", "linewidth": 0}
    if bounds_kind(line) == PREDICTED:
        style = {"facecolor": "none", "edgecolor": shade, "linewidth": 1, "linestyle": "--"}
    if ending != "ok":
        style["hatch"] = HATCH
    left = 0.0
    for part, alpha in zip(parts, SHADES, strict=False):
        if pandas.notna(line[part]):
            axes.barh(place, line[part], BAR_HEIGHT, left, alpha=alpha, **style)
            left += line[part]


def _after(line: dict, column: str, ending: str) -> str:
    """Return what follows a line's bar: its text, its number of windows, and why it is doubtful."""
    count = line.get("num_windows")
    counted = f"n={count:.0f}" if pandas.notna(count) and pandas.notna(line[column]) else ""
    return ", ".join(filter(None, (line["text"], counted, ending.removeprefix("ok"))))


def _whiskers(axes: Axes, table: pandas.DataFrame, column: str, bounds: pandas.Series) -> None:
    """Draw the intervals of bars at the places in a table's index, by the kind of their bounds."""
    for kind, part in table.groupby(bounds.array, sort=False):
        values = part[[column, "low", "high"]].astype(float)
        style = {"fmt": "none", "color": LINE, "capsize": 0 if kind == intervals.RANGE else 3}
        axes.errorbar(values[column], values.index, xerr=_errors(values, column), **style)


def draw_points(
    axes: Axes, points: pandas.DataFrame, x: str, y: str, label: str, style: dict
) -> None:
    """Draw points with their bounds: doubtful ones are hollow; those without a value are crosses
    at the foot.

    Args:
        axes: where to draw.
        points: with columns x and y, and optionally low and high (of y), status and verdict.
        x, y: two of its columns.
        label: of the line in the legend.
        style: options of `Axes.errorbar`, with color and fmt, which begins with a marker.
    """
    outcomes = looks(points)["outcome"]
    drawn = points[y].notna() & points[x].notna() & outcomes.ne("failed")
    values = points[drawn].reindex(columns=[x, y, "low", "high"]).astype(float)
    axes.errorbar(
        values[x],
        values[y],
        _errors(values, y),
        label=label,
        **{"capsize": 2, "markersize": 5, **style},
    )
    doubtful = values[outcomes[values.index] != "ok"]
    hollow = {"linestyle": "none", "markerfacecolor": "white", "zorder": 3}
    axes.plot(doubtful[x], doubtful[y], style["fmt"][0], color=style["color"], **hollow)
    foot = {"transform": axes.get_xaxis_transform()}  # heights are shares of the chart's height
    for line in points[~drawn & points[x].notna() & outcomes.ne("ok")].to_dict("records"):
        axes.plot(float(line[x]), 0.03, "X", color=style["color"], **foot)
        told = str(line["status"]).replace("_", " ")
        axes.text(float(line[x]), 0.07, told, rotation=90, ha="center", va="bottom", **foot)


def legend(
    figure: Figure, look: pandas.DataFrame, shades: list, *, on_points: bool = False
) -> None:
    """Add a legend below a figure: colours, then kinds of bounds, then marks.

    Args:
        figure: without a legend.
        look: of the lines drawn, from `looks`.
        shades: entries for colours.
        on_points: whether doubtful points are hollow; else their bars are hatched, and the word
        follows the bar.
    """
    outcomes, kinds, entries = set(look["outcome"]), set(look["bounds"].dropna()), list(shades)
    for kind in (kind for kind in WHISKERS if kind in kinds):
        marker = "" if kind == intervals.RANGE and not on_points else "|"
        entries.append(Line2D([], [], color=LINE, marker=marker, label=WHISKERS[kind]))
    mark = {"color": LINE, "linestyle": "none"}
    if on_points and outcomes - {"ok", "failed"}:
        entries.append(Line2D([], [], marker="o", markerfacecolor="white", label=DOUBTFUL, **mark))
    if "failed" in outcomes:
        entries.append(Line2D([], [], marker="X", label=FAILED, **mark))
    if entries:
        columns = 1 if max(len(entry.get_label()) for entry in entries) > WORDY else 2
        figure.legend(handles=entries, loc="outside lower center", ncols=columns)


def take_literally(figure: Figure) -> None:
    """Let no text of a figure be read as mathematics; a logarithmic axis has plain numbers."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if axis.get_scale() == "log" and not isinstance(axis.get_major_locator(), FixedLocator):
            axis.set_major_formatter("{x:,g}")
            axis.set_minor_formatter(NullFormatter())
    for text in figure.findobj(Text):
        text.set_parse_math(False)


def render(figure: Figure) -> bytes:
    """Return a figure as the content of a PNG."""
    with style():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # `savefig` draws it twice
    return as_png(Image.fromarray(numpy.asarray(canvas.buffer_rgba())))


def as_png(image: Image.Image, colours: int = 256) -> bytes:
    """Return a picture as the content of a PNG with few colours, a third of its size with all."""
    file = io.BytesIO()
    image.convert("RGB").quantize(colours).save(file, "PNG", optimize=True)
    return file.getvalue()


def as_svg(figure: Figure) -> str:
    """Return a figure as an SVG, whose text stays text."""
    file = io.StringIO()
    with style({"svg.fonttype": "none", "svg.hashsalt": "benchbook"}):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return file.getvalue()


def _errors(values: pandas.DataFrame, column: str) -> numpy.ndarray:
    """Return the distances from a column to low and to high, for `Axes.errorbar`."""
    return numpy.maximum([values[column] - values["low"], values["high"] - values[column]], 0)
