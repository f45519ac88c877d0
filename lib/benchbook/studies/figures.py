"""The look of figures: house style, bars with intervals, points on two axes, lines over steps; and their files."""

import functools
import io
import itertools
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib
import numpy
import pandas
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchbook.judging import intervals, verdicts
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.rows import records

# Okabe and Ito's palette, distinguishable with any colour vision: https://jfly.uni-koeln.de/color/
COLOURS = {
    "cpu": "#0072B2",
    "accelerator": "#D55E00",
    "published": "#999999",
    "other": "#56606B",
    "line": "#000000",
}
MACHINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # of the same palette
SHADES = (1.0, 0.55, 0.3)  # opacity of a bar's parts
STYLE = {
    "figure.figsize": (8.0, 4.0),
    "figure.dpi": 120,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.14,  # text is wider in the SVG than in the PNG, for which the layout is made
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "hatch.linewidth": 1.5,
    "legend.frameon": False,
    "svg.hashsalt": "benchbook",  # without it, element ids differ from run to run
    "svg.fonttype": "path",
}
MOST_BARS = 30
MOST_MACHINES = 6  # with lines in one chart: the palette has six colours
TALLEST = 18.0  # inches, enough for MOST_BARS
SAME, BEST = "same precision everywhere", "the best each device can do"
VIEW_GAP = 0.8  # between the two views, in bars, for a heading

HATCHES = {"unstable": "///", "unproven": "...", "diverged": "xxx"}
MARKS = {"unstable": {"marker": "o", "markerfacecolor": "white"}, "diverged": {"marker": "X"}}
MARKS |= {"unproven": {"marker": "d", "markerfacecolor": "white"}, "failed": {"marker": "X"}}
MEANINGS = {name: name for name in HATCHES} | {"failed": "failed or wrong, no measure"}
# The kinds of bounds, with their legend. A range has no caps: it is no estimate of random error.
PUBLISHED, PREDICTED = "published", "predicted"
WHISKERS = {intervals.INTERVAL: "95 % interval", intervals.RANGE: "range: minimum to maximum"}
WHISKERS |= {PUBLISHED: "published: its rounding", PREDICTED: "predicted: 90 % interval"}
LABEL_HEIGHT = 0.17  # inches per line of text at the right of a panel
MARK_WIDTH, LETTER_WIDTH = 0.6, 0.063  # inches of a legend entry's mark with its space, and of each letter
SOURCES = {"secondary": "published by others", "digitised": "read off a published chart"}
LABEL_LETTERS = 56  # in each line of a label
LABEL_LINES = 3  # that fit next to a bar
# Formats of the columns in labels; other columns show their value.
FORMATS = {
    "batch_size": "batch {:.0f}".format,
    "image_size": "{:.0f} px".format,
    "sequence_length": "{:.0f} tokens".format,
    "framework": lambda name: libraries.WORDS.get(name, name),
    "lora_rank": "LoRA of rank {}".format,
    "width": "width {:g}".format,
    "learning_rate": "rate {:g}".format,
    "device_count": lambda count: f"{count:.0f} processes" if count > 1 else "",
    "sustained_minutes": "{:g} min".format,
    "trainable": lambda trainable: "all layers" if trainable else "last layer",
    "compiled": lambda compiled: "compiled" if compiled else "",
    "dataset": naming.dataset,
    "kind": lambda kind: kind.replace("_", " "),
}
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


style = functools.partial(matplotlib.rc_context, STYLE)  # for a `with` block that draws in the house style


def canvas(height: float, width: float = 8.0, panels: int = 1, **options) -> tuple[Figure, numpy.ndarray | Axes]:
    """Return a figure and its axes, or an array of axes if there are several panels.

    Args:
        height, width: in inches; no figure is taller than TALLEST.
        panels: number of axes side by side.
        options: of `Figure.subplots`.
    """
    figure = Figure(figsize=(width, min(height, TALLEST)))
    FigureCanvasAgg(figure)  # so that layout and PNG share the measured sizes of texts
    return figure, figure.subplots(**{"ncols": panels, **options})


def colour(line: dict, colours: Mapping[str, str]) -> str:
    """Return the colour of a table's line: its machine's, from `machine_colours`, or grey if it was not measured."""
    return colours.get(line.get("machine"), COLOURS["other"]) if _is_measured(line) else COLOURS["published"]


def machine_colours(machines: Iterable[str]) -> dict[str, str]:
    """Return a colour for each machine; the same machines always get the same colours."""
    return dict(zip(sorted(machines), itertools.cycle(MACHINES), strict=False))


def outcome(line: dict) -> str:
    """Return the outcome of a table's line: ok, unproven, unstable, diverged or failed (which includes wrong).

    Args:
        line: with status and verdict if it has them.
    """
    status = line.get("status")
    if isinstance(status, str) and status != "ok":
        return "diverged" if status == "diverged" else "failed"
    if verdicts.is_unproven(line.get("verdict")):
        return "unproven"
    return "unstable" if verdicts.is_unstable(line.get("verdict")) else "ok"


def view(line: dict) -> str:
    """Return the view of a line, SAME or BEST, by its variant; a chart with both views labels them."""
    return BEST if str(line.get("variant")).startswith("tuned") else SAME


def labels(lines: pandas.DataFrame, names: Names, columns: Iterable[str], usual: Mapping[str, object]) -> list[str]:
    """Return the label of each line: its machine and device, and below them the values that distinguish it.

    Args:
        lines: with machine, device, and source if some were not measured.
        names: of machines.
        columns: that may distinguish lines; a column with one value is omitted, unless it is in `usual`.
        usual: default values of columns, which labels omit.
    """
    shown = [name for name in columns if name in lines and (name in usual or lines[name].nunique() > 1)]
    texts = []
    for line in lines.to_dict("records"):
        values = {name: line[name] for name in shown if pandas.notna(line[name]) and line[name] != usual.get(name)}
        place = names.place(line) if pandas.notna(line.get("machine")) else ""
        if place.startswith(f"{values.get('device_count', 0):.0f} x"):  # the place has the number of chips already
            del values["device_count"]
        words = [FORMATS[name](value) if name in FORMATS else str(value) for name, value in values.items()]
        words += [] if _is_measured(line) else [SOURCES.get(line["source"], line["source"])]
        texts.append("\n".join(filter(None, (place, ", ".join(filter(None, words))))))
    return texts


def window_counts(points: pandas.DataFrame) -> str:
    """Return the text after a line's label: the numbers of windows of its points, and of runs; none if published."""
    runs = points["num_runs"].max() if "num_runs" in points else 1
    counts = points["num_windows"].dropna().astype(int) if "num_windows" in points else pandas.Series(dtype=int)
    counts = counts[counts > 0]
    windows = "" if counts.empty else f", n={counts.min()}" + f" to {counts.max()}" * bool(counts.max() > counts.min())
    return windows + (f", range of {runs} runs" if runs > 1 else "")


def looks(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how each line is drawn, in columns: view, outcome, is_measured, and bounds (their kind, if any)."""
    each = [(view(line), outcome(line), _is_measured(line), _bounds_kind(line)) for line in table.to_dict("records")]
    look = pandas.DataFrame(each, table.index, columns=["view", "outcome", "is_measured", "bounds"])
    bounded = table.reindex(columns=["low", "high"]).notna().all(axis=1) & look["outcome"].ne("failed")
    return look.assign(bounds=look["bounds"].where(bounded))


def ranked(table: pandas.DataFrame, column: str, *, least_first: bool = False) -> pandas.DataFrame:
    """Return the lines to draw as bars, at most MOST_BARS, the best of each view first and failures last.

    If there are more lines, the worst measured ones are left out, failures first.

    Args:
        table: the lines.
        column: the bars' lengths.
        least_first: whether less is better.
    """
    table = table.reset_index(drop=True)
    look = looks(table)
    order = look.assign(value=table[column].astype(float), failed=look["outcome"].eq("failed"))
    rank = {"ascending": [True, True, least_first], "kind": "stable", "na_position": "last"}
    kept = order.sort_values(["is_measured", "failed", "value"], **rank)[:MOST_BARS]
    best = kept.sort_index().sort_values(["view", "failed", "value"], **rank)  # SAME is before BEST in the alphabet
    return table.loc[best.index]


def first_machines(axes: Axes, table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines of the first MOST_MACHINES machines and the published ones; a note in the chart says so."""
    is_measured = looks(table)["is_measured"].astype(bool)
    machines = table.loc[is_measured, "machine"].drop_duplicates()
    if len(machines) <= MOST_MACHINES:
        return table
    write_note(axes, f"the first {MOST_MACHINES} of {len(machines)} machines are drawn; the table has all")
    return table[~is_measured | table["machine"].isin(machines[:MOST_MACHINES])]


def draw_bars(
    axes: Axes,
    table: pandas.DataFrame,
    column: str,
    *,
    labels: list[str],
    texts: list[str],
    colours: Mapping[str, str],
    parts: Mapping[str, str] | None = None,
) -> None:
    """Draw a bar for each line of a table, the first on top, with its interval and its number of windows.

    Published bars are grey and predicted bars hollow. The bar of an unstable point is hatched, of an unproven one
    dotted, of a diverged one crossed. A point that failed has a cross and its status at the axis instead of a bar.
    Tuned bars form a group under its own heading.

    Args:
        axes: where to draw; the legend is below its figure.
        table: from `ranked`; with the columns device and `column`, and optionally source, variant, status, verdict,
            low, high and num_windows.
        column: the bars' lengths.
        labels: of the bars.
        texts: after the bars; not shown for lines that failed.
        colours: of machines.
        parts: columns that add up to a measured bar, with their names in the legend; the first is the darkest.
    """
    lines, look = table.to_dict("records"), looks(table)
    both = look["view"].nunique() > 1
    places = len(lines) - 1.0 - numpy.arange(len(lines)) + VIEW_GAP * (both & look["view"].eq(SAME).to_numpy())
    drawn = set()
    for line, place, text in zip(lines, places, texts, strict=True):
        drawn |= _draw_bar(axes, line, place, column, text, colour(line, colours), parts or {column: ""})
    for heading in (SAME, BEST) if both else ():
        words = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "style": "italic", "va": "bottom"}
        axes.text(0.01, places[look["view"] == heading].max() + 0.45, f"{heading}:", **words)
    for kind, part in table.set_axis(places).groupby(look["bounds"].array, sort=False):
        values = part[[column, "low", "high"]].astype(float)
        whiskers = {"fmt": "none", "color": COLOURS["line"], "capsize": 0 if kind == intervals.RANGE else 3}
        axes.errorbar(values[column], values.index, xerr=_errors(values, column), **whiskers)
    wrapped = ["\n".join(textwrap.fill(line, LABEL_LETTERS) for line in label.split("\n")) for label in labels]
    lines_of_most = 1 + max((label.count("\n") for label in wrapped), default=0)
    if lines_of_most > LABEL_LINES:
        axes.figure.set_figheight(min(TALLEST, axes.figure.get_figheight() * lines_of_most / LABEL_LINES))
    axes.set_yticks(places, wrapped, fontsize=8)
    axes.tick_params(axis="y", length=0)
    if not axes.patches:
        axes.set(xlim=(0, 1), xticks=[])
    axes.set_ylim(-0.6, max([1.0, *places]) + (1.1 if both else 0.6))  # at least 1, so that a lone bar is not thicker
    axes.margins(x=0.35)  # room for the texts after the bars
    shade = next((colour(line, colours) for line in lines if _is_measured(line)), COLOURS["line"])
    named = zip((parts or {}).values(), SHADES, strict=False)
    shades = [Patch(color=shade, alpha=alpha, label=label) for label, alpha in named if label in drawn]
    shades += [Patch(color=COLOURS["published"], label="published")] if "published" in drawn else []
    _add_legend(axes.figure, shades, drawn, look["bounds"].dropna())


def draw_points(axes: Axes, points: pandas.DataFrame, x: str, y: str, style: dict) -> None:
    """Draw points with their intervals: unstable points hollow, diverged ones crossed, failed ones at the foot.

    Args:
        axes: where to draw; the legend is below its figure.
        points: with columns x and y, and optionally low and high (of y), status and verdict.
        x, y: two of its columns.
        style: options of `Axes.errorbar`, with color and fmt, which begins with a marker.
    """
    look = looks(points)
    outcomes, placed = look["outcome"], points[x].notna()
    failed = outcomes == "failed"
    drawn = points[points[y].notna() & placed & ~failed]
    values = drawn.reindex(columns=[x, y, "low", "high"]).astype(float)
    axes.errorbar(values[x], values[y], _errors(values, y), **{"capsize": 3, **style})
    for name, mark in MARKS.items():
        some = values[outcomes[values.index] == name]
        if len(some):
            mark = mark | {"marker": style["fmt"][0]} if name == "unstable" else mark
            axes.plot(some[x], some[y], color=style["color"], linestyle="none", zorder=3, **mark)
    foot = axes.get_xaxis_transform()  # heights are shares of the chart's height
    for line in points[failed & placed].to_dict("records"):
        axes.plot(float(line[x]), 0.03, "X", color=style["color"], transform=foot)
        words = {"rotation": 90, "fontsize": 7, "ha": "center", "va": "bottom", "transform": foot}
        axes.text(float(line[x]), 0.07, line["status"].replace("_", " "), **words)
    shown = {*outcomes[drawn.index], *outcomes[failed & placed]}
    _add_legend(axes.figure, [], shown, look.loc[drawn.index, "bounds"].dropna(), on_points=True)


def draw_line(axes: Axes, curve: pandas.DataFrame, x: str, y: str, style: dict) -> None:
    """Draw a line over steps, with a thin vertical line from low to high (over runs) if the curve has these.

    Args:
        axes: where to draw.
        curve: with columns x and y, in the order of x.
        x, y: two of its columns.
        style: options of `Axes.plot`, with color and fmt.
    """
    values = curve.reindex(columns=[x, y, "low", "high"]).astype(float)
    look = {name: value for name, value in style.items() if name != "fmt"}
    axes.plot(values[x], values[y], style["fmt"], **look)
    axes.vlines(values[x], values["low"], values["high"], color=style["color"], linewidth=1)


def label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write each line's label next to its right end, in its colour, without overlaps.

    Args:
        axes: with its final limits.
        ends: x, y, text and colour of each line.
    """
    axes.autoscale_view()
    to_share = (axes.transData + axes.transAxes.inverted()).transform
    ends = [(x, y, textwrap.fill(text, LABEL_LETTERS), shade) for x, y, text, shade in ends]
    ends.sort(key=lambda end: to_share(end[:2])[1])
    gap, height = LABEL_HEIGHT / axes.figure.get_figheight(), -1.0
    heights = [height := max(to_share((x, y))[1], height + gap * (1 + text.count("\n"))) for x, y, text, _ in ends]
    beyond = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for (x, y, text, shade), at in zip(ends, heights, strict=True):
        line = {"arrowstyle": "-", "color": shade, "linewidth": 0.5, "alpha": 0.5}
        look = {"color": shade, "fontsize": 7, "va": "center", "arrowprops": line}
        axes.annotate(text, (x, y), (1.03, at - beyond), textcoords="axes fraction", **look)


def render(figure: Figure, form: str = "png") -> bytes:
    """Return a figure as the content of a PNG or SVG file; the same figure gives the same bytes.

    Layout takes most of the time, so the first call's is kept for all files of a figure. Titles are wrapped at the
    figure's edge; the first title begins at the figure's left edge.
    """
    file = io.BytesIO()
    with style():
        if figure.get_layout_engine() is not None:
            for axes in figure.axes:
                title = axes.set_title(axes.get_title(loc="left"), wrap=True)
                if axes is figure.axes[0]:
                    math = {"parse_math": title.get_parse_math()}
                    figure.suptitle(title.get_text(), x=0.01, horizontalalignment="left", wrap=True, **math)
                    title.set(visible=False, in_layout=False)
            figure.get_layout_engine().execute(figure)
        # Else matplotlib would give the figure a new layout engine, because of the house style's constrained layout.
        with matplotlib.rc_context({"figure.constrained_layout.use": False}):
            figure.set_layout_engine(None)
            figure.savefig(file, format=form, metadata=METADATA[form])
    return file.getvalue()


def save_table(table: pandas.DataFrame, folder: Path, name: str) -> None:
    """Write a table as CSV with all digits; a verdict becomes its kind and its reasons."""
    folder.mkdir(parents=True, exist_ok=True)
    records.as_text(table).to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")


def _draw_bar(
    axes: Axes, line: dict, place: float, column: str, text: str, shade: str, parts: Mapping[str, str]
) -> set[str]:
    """Draw a bar with its text, or the cross of a failure; return the outcome and the parts drawn, for the legend."""
    ending, count = outcome(line), line.get("num_windows")
    if ending == "failed":
        axes.plot(0, place, "X", color=COLOURS["line"], clip_on=False)
        axes.text(0.0, place, f"   {line['status'].replace('_', ' ')}", va="center", fontsize=8)
        return {ending}
    kind, left, drawn = _bounds_kind(line), 0.0, {ending}
    look = {"color": shade, "edgecolor": "white", "linewidth": 0}
    if kind == PREDICTED:
        look = {"facecolor": "none", "edgecolor": shade, "linestyle": "--"}
    look |= {"hatch": HATCHES[ending]} if ending in HATCHES else {}
    own = parts if _is_measured(line) else {column: "published" if kind == PUBLISHED else ""}
    for (part, called), alpha in zip(own.items(), SHADES, strict=False):
        if pandas.notna(line[part]):
            axes.barh(place, line[part], left=left, alpha=alpha, **look)
            left, drawn = left + line[part], drawn | {called}
    counted = f"n={count:.0f}" if pandas.notna(count) and pandas.notna(line[column]) else ""
    words = [text, counted, "diverged" if ending == "diverged" else ""]
    end = next(float(value) for value in (line.get("high"), line[column], 0.0) if pandas.notna(value))
    axes.text(max(0.0, end), place, "   " + ", ".join(filter(None, words)), va="center", fontsize=8, parse_math=False)
    return drawn


def _add_legend(
    figure: Figure, shades: list[Artist], outcomes: Iterable[str], kinds: Iterable[str], *, on_points: bool = False
) -> None:
    """Add entries to the figure's one legend, without duplicates: colours, then lines and markers, then hatches."""
    entries, outcomes, kinds = list(shades), set(outcomes), set(kinds)
    for name in (name for name in MEANINGS if name in outcomes):
        if name == "failed" or on_points:
            label = MEANINGS[name] + (" (at the foot)" if name == "failed" and on_points else "")
            entries.append(Line2D([], [], color=COLOURS["line"], linestyle="none", label=label, **MARKS[name]))
        else:
            look = {"facecolor": COLOURS["published"], "edgecolor": "white", "hatch": HATCHES[name] * 2}
            entries.append(Patch(label=MEANINGS[name], **look))
    for kind in (kind for kind in WHISKERS if kind in kinds):
        marker = "" if kind == intervals.RANGE else "|"
        entries.append(Line2D([], [], color=COLOURS["line"], marker=marker, label=WHISKERS[kind]))
    if not entries:
        return
    marks = {}
    for legend in list(figure.legends):
        marks |= {text.get_text(): mark for mark, text in zip(legend.legend_handles, legend.get_texts(), strict=True)}
        legend.remove()
    marks |= {entry.get_label(): entry for entry in entries}
    rank = {label: 1 if isinstance(mark, Line2D) else 2 if mark.get_hatch() else 0 for label, mark in marks.items()}
    marks = dict(sorted(marks.items(), key=lambda entry: rank[entry[0]]))
    columns = int(figure.get_figwidth() / (MARK_WIDTH + LETTER_WIDTH * max(map(len, marks))))
    columns = max(1, min(len(marks), columns))
    figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _errors(values: pandas.DataFrame, column: str) -> numpy.ndarray:
    """Return the distances from a column to low and to high, for `Axes.errorbar`."""
    return numpy.maximum([values[column] - values["low"], values["high"] - values[column]], 0)


def _bounds_kind(line: dict) -> str:
    """Return the kind of a line's bounds, a key of WHISKERS."""
    if not _is_measured(line):
        return PREDICTED if str(line["source"]).startswith(PREDICTED) else PUBLISHED
    return intervals.INTERVAL if line.get("interval") == intervals.INTERVAL else intervals.RANGE


def _is_measured(line: dict) -> bool:
    source = line.get("source")
    return source == "measured" or pandas.isna(source)


def write_note(axes: Axes, text: str) -> None:
    """Write a note in a corner of a chart."""
    axes.text(0.99, 0.01, text, ha="right", va="bottom", fontsize=8, style="italic", transform=axes.transAxes)
