"""How figures look: the house style, bars with intervals, points on two axes, lines over steps; and their files."""

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

from benchbook.judging import verdicts
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.rows import records

# Okabe and Ito's palette, told apart with any colour vision: https://jfly.uni-koeln.de/color/
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
    "figure.constrained_layout.w_pad": 0.14,  # an SVG's text is wider than the PNG's that its place was measured for
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
MOST_MACHINES = 6  # whose lines one chart can tell apart
TALLEST = 18.0  # inches, room for as many bars
SAME, BEST = "same precision everywhere", "the best each device can do"
VIEW_GAP = 0.8  # of a bar, between the two views, for a heading

HATCHES = {"unstable": "///", "unproven": "...", "diverged": "xxx"}
MARKS = {"unstable": {"marker": "o", "markerfacecolor": "white"}, "diverged": {"marker": "X"}}
MARKS |= {"unproven": {"marker": "d", "markerfacecolor": "white"}, "failed": {"marker": "X"}}
MEANINGS = {"unstable": "unstable", "unproven": "unproven", "diverged": "diverged"}
MEANINGS |= {"failed": "failed or wrong, no measure"}
# Bounds by their kind. A range is drawn without caps: its ends are not an estimate of chance.
INTERVAL, RANGE, PUBLISHED, PREDICTED = "interval", "range", "published", "predicted"
WHISKERS = {INTERVAL: "95 % interval", RANGE: "range: least and most", PUBLISHED: "published: its rounding"}
WHISKERS |= {PREDICTED: "predicted: 90 % of such figures"}
LABEL_HEIGHT = 0.17  # inches of a line at the right of a panel
MARK_WIDTH, LETTER_WIDTH = 0.6, 0.063  # inches of a legend entry's mark with its space, and of each letter
SOURCES = {"secondary": "published by others", "digitised": "read off a published chart"}
LABEL_LETTERS = 56  # of a line at the left of a bar, or at the right end of a line
LABEL_LINES = 3  # for which a bar has room
# How labels say a column, where its value alone does not.
SAID = {
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


style = functools.partial(matplotlib.rc_context, STYLE)  # draws in the house style inside a `with` block


def canvas(height: float, width: float = 8.0, panels: int = 1, **options) -> tuple[Figure, numpy.ndarray | Axes]:
    """Return a figure and its axes, side by side where there are several panels.

    Args:
        height, width: in inches; no figure is taller than TALLEST.
        panels: how many axes.
        options: for `Figure.subplots`.
    """
    figure = Figure(figsize=(width, min(height, TALLEST)))
    FigureCanvasAgg(figure)  # placing the parts and drawing the PNG then measure each text once
    return figure, figure.subplots(**{"ncols": panels, **options})


def colour(line: dict, colours: Mapping[str, str]) -> str:
    """Return the colour of a line of a table: its machine's, of `machine_colours`; grey if it was not measured."""
    return colours.get(line.get("machine"), COLOURS["other"]) if _is_measured(line) else COLOURS["published"]


def machine_colours(machines: Iterable[str]) -> dict[str, str]:
    """Return one colour for each machine, the same in every figure of a report."""
    return dict(zip(sorted(machines), itertools.cycle(MACHINES), strict=False))


def outcome(line: dict) -> str:
    """Return how a line of a table is drawn: ok, unproven, unstable, diverged or failed (which includes wrong).

    Args:
        line: with status and, where its windows were judged, verdict.
    """
    status = line.get("status")
    if isinstance(status, str) and status != "ok":
        return "diverged" if status == "diverged" else "failed"
    if verdicts.is_unproven(line.get("verdict")):
        return "unproven"
    return "unstable" if verdicts.is_unstable(line.get("verdict")) else "ok"


def view(line: dict) -> str:
    """Return which of the two views a line belongs to, by its variant; they are never mixed without this label."""
    return BEST if str(line.get("variant")).startswith("tuned") else SAME


def labels(lines: pandas.DataFrame, names: Names, said: Iterable[str], usual: Mapping[str, object]) -> list[str]:
    """Return what each line is called: its machine and device, and below it what tells it from the others.

    Args:
        lines: with machine, device, and source where some were not measured.
        names: of machines.
        said: columns in which lines may differ; one in which all agree is left out, unless it is in `usual`.
        usual: values of columns that go without saying.
    """
    told = [name for name in said if name in lines and (name in usual or lines[name].nunique() > 1)]
    called = []
    for line in lines.to_dict("records"):
        kept = {name: line[name] for name in told if pandas.notna(line[name]) and line[name] != usual.get(name)}
        place = names.place(line) if pandas.notna(line.get("machine")) else ""
        if place.startswith(f"{kept.get('device_count')} x"):  # several chips of their own are counted there
            del kept["device_count"]
        words = [SAID[name](value) if name in SAID else str(value) for name, value in kept.items()]
        words += [] if _is_measured(line) else [SOURCES.get(line["source"], line["source"])]
        called.append("\n".join(filter(None, (place, ", ".join(filter(None, words))))))
    return called


def counted(points: pandas.DataFrame) -> str:
    """Return how many windows, or runs, the points of a line have, to follow its label; nothing for published ones."""
    runs = points["num_runs"].max() if "num_runs" in points else 1
    counts = points["num_windows"].dropna().astype(int) if "num_windows" in points else pandas.Series(dtype=int)
    counts = counts[counts > 0]
    windows = "" if counts.empty else f", n={counts.min()}" + f" to {counts.max()}" * bool(counts.max() > counts.min())
    return windows + (f", range of {runs} runs" if runs > 1 else "")


def looks(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how each line is drawn: its view, outcome, whether it is_measured, and the kind of its bounds if any."""
    each = [(view(line), outcome(line), _is_measured(line), bounds_kind(line)) for line in table.to_dict("records")]
    look = pandas.DataFrame(each, table.index, columns=["view", "outcome", "is_measured", "bounds"])
    bounded = table.reindex(columns=["low", "high"]).notna().all(axis=1) & look["outcome"].ne("failed")
    return look.assign(bounds=look["bounds"].where(bounded))


def ranked(table: pandas.DataFrame, column: str, *, least_first: bool = False) -> pandas.DataFrame:
    """Return the lines for which bars are drawn, the best of each view first: all, or the best MOST_BARS of them.

    Args:
        table: lines that were not measured are the last to be left out; one that failed is last.
        column: what the bars show.
        least_first: whether less is better.
    """
    table = table.reset_index(drop=True)
    look = looks(table)
    order = look.assign(value=table[column].astype(float), failed=look["outcome"].eq("failed"))
    rank = {"ascending": [True, True, least_first], "kind": "stable", "na_position": "last"}
    kept = order.sort_values(["is_measured", "failed", "value"], **rank)[:MOST_BARS]
    best = kept.sort_index().sort_values(["view", "failed", "value"], **rank)  # SAME is before BEST in the alphabet
    return table.loc[best.index]


def of_few_machines(axes: Axes, table: pandas.DataFrame) -> pandas.DataFrame:
    """Return what lines are drawn of: published ones, and the first MOST_MACHINES machines; the chart says so."""
    is_measured = looks(table)["is_measured"].astype(bool)
    machines = table.loc[is_measured, "machine"].drop_duplicates()
    if len(machines) <= MOST_MACHINES:
        return table
    say(axes, f"the first {MOST_MACHINES} of {len(machines)} machines are drawn; the table has all")
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

    Published bars are grey, predicted ones hollow, an unstable point's is hatched, an unproven one's dotted, a diverged
    one's crossed. A point that failed has no bar, but a cross and its status at the axis. Tuned bars form a group under
    a heading of its own.

    Args:
        axes: where to draw; the legend is below its figure.
        table: from `ranked`; with columns device and the bars' lengths; source, variant, status, verdict, low, high and
            num_windows where it has them.
        column: the bars' lengths.
        labels: of the bars.
        texts: what follows the bar of a line that did not fail.
        colours: of machines.
        parts: columns that a measured bar is made of, with what the legend calls them; the first is the darkest.
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
        whiskers = {"fmt": "none", "color": COLOURS["line"], "capsize": 0 if kind == RANGE else 3}
        axes.errorbar(values[column], values.index, xerr=_errors(values, column), **whiskers)
    wrapped = ["\n".join(textwrap.fill(line, LABEL_LETTERS) for line in label.split("\n")) for label in labels]
    lines_of_most = 1 + max((label.count("\n") for label in wrapped), default=0)
    if lines_of_most > LABEL_LINES:
        axes.figure.set_figheight(min(TALLEST, axes.figure.get_figheight() * lines_of_most / LABEL_LINES))
    axes.set_yticks(places, wrapped, fontsize=8)
    axes.tick_params(axis="y", length=0)
    if not axes.patches:
        axes.set(xlim=(0, 1), xticks=[])
    axes.set_ylim(-0.6, max([1.0, *places]) + (1.1 if both else 0.6))  # a lone bar is no thicker than others
    axes.margins(x=0.35)  # room for the words after the bars
    shade = next((colour(line, colours) for line in lines if _is_measured(line)), COLOURS["line"])
    named = zip((parts or {}).values(), SHADES, strict=False)
    shades = [Patch(color=shade, alpha=alpha, label=label) for label, alpha in named if label in drawn]
    shades += [Patch(color=COLOURS["published"], label="published")] if "published" in drawn else []
    _add_legend(axes.figure, shades, drawn, look["bounds"].dropna())


def draw_points(axes: Axes, points: pandas.DataFrame, x: str, y: str, style: dict) -> None:
    """Draw points with their intervals: an unstable one is hollow, a diverged one crossed, a failed one at the foot.

    Args:
        axes: where to draw; the legend of what the marks mean is below its figure.
        points: with columns x, y, low and high (of y); status and verdict where it has them.
        x, y: two of its columns.
        style: for `Axes.errorbar`, with color and fmt, which begins with a marker.
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
    foot = axes.get_xaxis_transform()  # at the foot of the chart, whatever the values are
    for line in points[failed & placed].to_dict("records"):
        axes.plot(float(line[x]), 0.03, "X", color=style["color"], transform=foot)
        words = {"rotation": 90, "fontsize": 7, "ha": "center", "va": "bottom", "transform": foot}
        axes.text(float(line[x]), 0.07, line["status"].replace("_", " "), **words)
    shown = {*outcomes[drawn.index], *outcomes[failed & placed]}
    _add_legend(axes.figure, [], shown, look.loc[drawn.index, "bounds"].dropna(), on_points=True)


def draw_line(axes: Axes, curve: pandas.DataFrame, x: str, y: str, style: dict) -> None:
    """Draw a line over steps, with a thin vertical line from low to high (over runs) where the curve has them.

    Args:
        axes: where to draw.
        curve: with columns x and y, in the order of x.
        x, y: two of its columns.
        style: for `Axes.plot`, with color and fmt.
    """
    values = curve.reindex(columns=[x, y, "low", "high"]).astype(float)
    look = {name: value for name, value in style.items() if name != "fmt"}
    axes.plot(values[x], values[y], style["fmt"], **look)
    axes.vlines(values[x], values["low"], values["high"], color=style["color"], linewidth=1)


def label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write what each line is called next to its right end, in its colour, and apart from the others.

    Args:
        axes: with the limits that it will keep.
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


def bounds_kind(line: dict) -> str:
    """Return what a line's bounds are, a key of WHISKERS.

    Args:
        line: with source, and with interval where its bounds may be one.
    """
    if not _is_measured(line):
        return PREDICTED if str(line["source"]).startswith(PREDICTED) else PUBLISHED
    return INTERVAL if line.get("interval") == INTERVAL else RANGE


def render(figure: Figure, form: str = "png") -> bytes:
    """Return a figure as the content of a PNG or SVG file; the same figure gives the same bytes.

    Placing titles, labels and legends takes most of the time, so it is done once for all files of a figure. Titles are
    wrapped at the figure's edge; the first one begins at its left edge, whatever room the labels take.
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
        # With the house style's constrained layout, matplotlib would give the figure a new layout engine afterwards.
        with matplotlib.rc_context({"figure.constrained_layout.use": False}):
            figure.set_layout_engine(None)
            figure.savefig(file, format=form, metadata=METADATA[form])
    return file.getvalue()


def save_table(table: pandas.DataFrame, folder: Path, name: str) -> None:
    """Write a table as CSV, with all digits; a verdict as its kind and its reasons."""
    folder.mkdir(parents=True, exist_ok=True)
    records.as_text(verdicts.as_columns(table)).to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")


def _draw_bar(
    axes: Axes, line: dict, place: float, column: str, text: str, shade: str, parts: Mapping[str, str]
) -> set[str]:
    """Draw a bar with its words, or the cross of a failure; return what the legend has to explain."""
    ending, count = outcome(line), line.get("num_windows")
    if ending == "failed":
        axes.plot(0, place, "X", color=COLOURS["line"], clip_on=False)
        axes.text(0.0, place, f"   {line['status'].replace('_', ' ')}", va="center", fontsize=8)
        return {ending}
    kind, left, drawn = bounds_kind(line), 0.0, {ending}
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
    """Add entries to the one legend below a figure, each once: colours, then lines and markers, then hatches."""
    entries, outcomes, kinds = list(shades), set(outcomes), set(kinds)
    for name in (name for name in MEANINGS if name in outcomes):
        if name == "failed" or on_points:
            label = MEANINGS[name] + (" (at the foot)" if name == "failed" and on_points else "")
            entries.append(Line2D([], [], color=COLOURS["line"], linestyle="none", label=label, **MARKS[name]))
        else:
            look = {"facecolor": COLOURS["published"], "edgecolor": "white", "hatch": HATCHES[name] * 2}
            entries.append(Patch(label=MEANINGS[name], **look))
    for kind in (kind for kind in WHISKERS if kind in kinds):
        marker = "" if kind == RANGE else "|"
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
    """Return how far low and high are from a column, as `Axes.errorbar` takes them."""
    return numpy.maximum([values[column] - values["low"], values["high"] - values[column]], 0)


def _is_measured(line: dict) -> bool:
    source = line.get("source")
    return source == "measured" or pandas.isna(source)


def say(axes: Axes, text: str) -> None:
    """Write into a corner of a chart what of its table is not drawn."""
    axes.text(0.99, 0.01, text, ha="right", va="bottom", fontsize=8, style="italic", transform=axes.transAxes)
