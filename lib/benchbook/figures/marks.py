"""How a point looks in every figure: its bar or mark, its interval, its number of windows, what may be said of it."""

from collections.abc import Callable, Sequence

import pandas
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchbook import verdicts
from benchbook.figures.house import COLOURS

SAME, BEST = "same precision everywhere", "the best each device can do"
HATCHES = {"unstable": "///", "diverged": "xxx"}
MEANINGS = {"unstable": "unstable", "diverged": "diverged", "failed": "failed, no measure"}
WHISKERS = {True: "95 % interval (n < 6: range)", False: "published: its rounding"}
LEGEND_MARK, LEGEND_LETTER = 0.6, 0.063  # inches that an entry's mark and space, and each of its letters, take
NAMES = {"cpu": "CPU", "accelerator": "accelerator", "published": "published"}


def outcome(line: dict) -> str:
    """Return how a line of a table is drawn: ok, unstable, diverged or failed.

    Args:
        line: with status and, where its windows were judged, verdict.
    """
    status = line.get("status")
    if isinstance(status, str) and status != "ok":
        return "diverged" if status == "diverged" else "failed"
    return "unstable" if str(line.get("verdict")).startswith(verdicts.UNSTABLE) else "ok"


def view(line: dict) -> str:
    """Return which of the two views a line belongs to: they are never mixed without this label.

    Args:
        line: with variant; one that begins with `tuned` is the best of its device.
    """
    return BEST if str(line.get("variant")).startswith("tuned") else SAME


def size(line: dict) -> str:
    """Return a line's pixels and images a step, to stand after a label; a point that failed early may not know them."""
    known = {"image_size": "{:.0f} px", "batch_size": "batch {:.0f}"}
    return "".join(f", {text.format(line[name])}" for name, text in known.items() if pandas.notna(line[name]))


def num_windows(table: pandas.DataFrame) -> str:
    """Return how many windows the points of a table have, to stand after a label; of published ones nothing."""
    counts = table["num_windows"].dropna().astype(int)
    counts = counts[counts > 0]
    if counts.empty:
        return ""
    return f", n={counts.min()}" + (f" to {counts.max()}" if counts.max() > counts.min() else "")


def draw_bars(
    axes: Axes,
    table: pandas.DataFrame,
    column: str,
    labels: Sequence[str],
    text: Callable[[dict], str],
    parts: dict[str, str] | None = None,
    names: dict[str, str] | None = None,
) -> None:
    """Draw a bar for each line of a table, the first on top, with its interval and its number of windows.

    Published bars are grey, an unstable point's is hatched, a diverged one's crossed. A point that failed has no bar,
    but a cross and its status at the axis. Where both views are there, each stands under its name.

    Args:
        axes: where to draw; the legend stands below its figure.
        table: with columns device and the bars' lengths; source, variant, status, verdict, low, high, num_windows and
            shade (a name of COLOURS, in place of the device's) where they are known.
        column: the bars' lengths.
        labels: what each line is called.
        text: what stands beside the bar of a line that did not fail.
        parts: columns that a measured bar is made of, each with a name of COLOURS; empty is the device's.
        names: what the legend calls names of COLOURS, where it is not NAMES.
    """
    lines = table.to_dict("records")
    places = _places(lines)
    drawn = set()
    for line, place in sorted(zip(lines, places, strict=True), key=lambda both: both[1]):
        drawn |= _draw_bar(axes, line, place, column, parts or {column: ""})
        _draw_words(axes, line, place, column, text)
    _draw_views(axes, lines, places)
    draw_whiskers(axes, table.set_axis(places), column)
    ticks = sorted(zip(places, labels, strict=True))
    axes.set_yticks([place for place, _ in ticks], [label for _, label in ticks], fontsize=8)
    axes.tick_params(axis="y", length=0)
    if not axes.patches:
        axes.set(xlim=(0, 1), xticks=[])
    top = max([1.0, *places]) + (0.6 if len(set(map(view, lines))) < 2 else 1.1)  # a lone bar is no thicker than others
    axes.set_ylim(-0.6, top)
    called = NAMES | (names or {})
    shades = [Patch(color=COLOURS[name], label=words) for name, words in called.items() if name in drawn]
    add_legend(axes.figure, shades + [_meaning(way) for way in MEANINGS if way in drawn] + _whiskers(table))


def draw_points(axes: Axes, points: pandas.DataFrame, x: str, y: str, style: dict) -> None:
    """Draw points with their intervals: an unstable one is hollow, a diverged one crossed, a failed one at the foot.

    Args:
        axes: where to draw; the legend of what the marks mean stands below its figure.
        points: with columns x, y, low and high (of y); status and verdict where they are known.
        x, y: two of its columns.
        style: for `Axes.errorbar`, with color and fmt, which begins with a marker.
    """
    ways = pandas.Series([outcome(line) for line in points.to_dict("records")], points.index, dtype=object)
    known = points[points[y].notna() & points[x].notna() & (ways != "failed")]
    values = known[[x, y, "low", "high"]].astype(float)
    errors = [(values[y] - values["low"]).clip(lower=0), (values["high"] - values[y]).clip(lower=0)]
    axes.errorbar(values[x], values[y], errors, **{"capsize": 3, **style})
    marks = {"unstable": {"marker": style["fmt"][0], "markerfacecolor": "white"}, "diverged": {"marker": "X"}}
    for way, mark in marks.items():
        some = values[ways[values.index] == way]
        if len(some):
            axes.plot(some[x], some[y], color=style["color"], linestyle="none", zorder=3, **mark)
    failed = points[(ways == "failed") & points[x].notna()]
    along = axes.get_xaxis_transform()  # at the foot of the chart, whatever the values are
    for place, status in zip(failed[x].astype(float), failed["status"], strict=True):
        axes.plot(place, 0.03, "X", color=style["color"], transform=along)
        axes.text(place, 0.07, _words(status), transform=along, rotation=90, fontsize=7, ha="center", va="bottom")
    drawn = {*ways[values.index], *ways[failed.index]}
    meanings = [_meaning(way, on_points=True) for way in MEANINGS if way in drawn]
    add_legend(axes.figure, meanings + _whiskers(known))


def draw_whiskers(axes: Axes, order: pandas.DataFrame, column: str) -> None:
    """Draw each bar's interval; where a line has none, or failed, none is drawn.

    Args:
        axes: with a horizontal bar for each line of the table.
        order: the table, its index the bars' positions, with columns low and high.
        column: the bars' lengths.
    """
    kept = order[_bounded(order)]
    if len(kept):
        value, low, high = (kept[name].astype(float) for name in (column, "low", "high"))
        errors = [(value - low).clip(lower=0), (high - value).clip(lower=0)]
        axes.errorbar(value, kept.index, xerr=errors, fmt="none", color=COLOURS["line"], capsize=3)


def add_legend(figure: Figure, entries: list[Artist]) -> None:
    """Add entries to the legend below a figure; what stands there already stays, and stands there once."""
    if not entries:
        return
    known = {}
    for legend in list(figure.legends):
        known |= {text.get_text(): mark for mark, text in zip(legend.legend_handles, legend.get_texts(), strict=True)}
        legend.remove()
    known |= {entry.get_label(): entry for entry in entries}
    known = dict(sorted(known.items(), key=lambda both: isinstance(both[1], Line2D) or 2 * _is_hatched(both[1])))
    widest = LEGEND_MARK + LEGEND_LETTER * max(map(len, known))
    columns = max(1, min(len(known), int(figure.get_figwidth() / widest)))
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _places(lines: list[dict]) -> list[float]:
    """Return the bars' places, the first on top, the tuned ones below the others with room for a heading between."""
    both = len(set(map(view, lines))) > 1
    lower = [number for number, line in enumerate(lines) if view(line) == BEST] if both else []
    order = [number for number in range(len(lines)) if number not in lower] + lower
    places = {number: len(lines) - 1.0 - rank for rank, number in enumerate(order)}
    return [places[number] + (0.8 if both and number not in lower else 0) for number in range(len(lines))]


def _draw_views(axes: Axes, lines: list[dict], places: list[float]) -> None:
    """Write each view's name above its bars, where both are there."""
    tops = {
        name: max(p for line, p in zip(lines, places, strict=True) if view(line) == name) for name in map(view, lines)
    }
    for name, top in tops.items() if len(tops) > 1 else ():
        style = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "style": "italic", "va": "bottom"}
        axes.text(0.01, top + 0.45, f"{name}:", **style)


def _draw_bar(axes: Axes, line: dict, place: float, column: str, parts: dict[str, str]) -> set[str]:
    """Draw one bar, or the cross of a failure; return the names of colours and marks that it needs in the legend."""
    way = outcome(line)
    if way == "failed":
        axes.plot(0, place, "X", color=COLOURS["line"], clip_on=False)
        return {way}
    own = line.get("shade") or ("cpu" if line["device"] == "cpu" else "accelerator")
    own, parts = (own, parts) if _is_measured(line) else ("published", {column: ""})
    left, names = 0.0, set()
    for part, name in parts.items():
        if pandas.notna(line[part]):
            look = {"color": COLOURS[name or own], "hatch": HATCHES.get(way), "edgecolor": "white", "linewidth": 0}
            axes.barh(place, line[part], left=left, **{key: value for key, value in look.items() if value is not None})
            left, names = left + line[part], names | {name or own, way}
    return names


def _draw_words(axes: Axes, line: dict, place: float, column: str, text: Callable[[dict], str]) -> None:
    """Write beside a bar what it says, how many windows that is from, and how it ended where it did not end well."""
    way, count = outcome(line), line.get("num_windows")
    counted = f"n={count:.0f}" if pandas.notna(count) and pandas.notna(line[column]) else ""
    words = [_words(line["status"])] if way == "failed" else [text(line), counted]
    words += ["diverged"] if way == "diverged" else []
    ends = [0.0] if way == "failed" else [line.get("high"), line[column], 0.0]
    end = next(float(value) for value in ends if pandas.notna(value))
    axes.text(max(0.0, end), place, "   " + ", ".join(word for word in words if word), va="center", fontsize=8)


def _bounded(table: pandas.DataFrame) -> pandas.Series:
    """Return which lines have bounds and are drawn."""
    known = table.reindex(columns=["low", "high"]).notna().all(axis=1)
    return known & pandas.Series(
        [outcome(line) != "failed" for line in table.to_dict("records")], table.index, dtype=bool
    )


def _is_measured(line: dict) -> bool:
    return line.get("source", "measured") == "measured"


def _meaning(way: str, on_points: bool = False) -> Artist:
    if way == "failed" or on_points:
        marker = {"marker": "o", "markerfacecolor": "white"} if way == "unstable" else {"marker": "X"}
        words = f"{MEANINGS[way]} (at the foot)" if way == "failed" and on_points else MEANINGS[way]
        return Line2D([], [], color=COLOURS["line"], linestyle="none", label=words, **marker)
    return Patch(facecolor=COLOURS["published"], edgecolor="white", hatch=HATCHES[way] * 2, label=MEANINGS[way])


def _is_hatched(mark: Artist) -> bool:
    return isinstance(mark, Patch) and bool(mark.get_hatch())


def _whiskers(table: pandas.DataFrame) -> list[Artist]:
    """Return a legend's entries for the intervals of lines that have one: measured, or printed."""
    own = {_is_measured(line) for line in table[_bounded(table)].to_dict("records")}
    return [Line2D([], [], color=COLOURS["line"], marker="|", label=WHISKERS[kind]) for kind in WHISKERS if kind in own]


def _words(status: str) -> str:
    return status.replace("_", " ")
