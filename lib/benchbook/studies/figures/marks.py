"""How a point looks in every figure: its bar or mark, its interval, its number of windows, what may be said of it."""

from collections.abc import Callable

import pandas
from matplotlib.axes import Axes

from benchbook.judging import verdicts
from benchbook.studies.figures import legends, limits
from benchbook.studies.figures.house import COLOURS
from benchbook.studies.figures.legends import HATCHES

SAME, BEST = "same precision everywhere", "the best each device can do"
VIEW_GAP = 0.8  # of a bar, between the two views, for a heading


def outcome(line: dict) -> str:
    """Return how a line of a table is drawn: ok, unproven, unstable, diverged or failed (wrong, too).

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
    """Return which of the two views a line belongs to: they are never mixed without this label.

    Args:
        line: with variant; one that begins with `tuned` is the best of its device.
    """
    return BEST if str(line.get("variant")).startswith("tuned") else SAME


def size(line: dict) -> str:
    """Return a line's pixels and images a step, to stand after a label; a point that failed early may lack them."""
    forms = {"image_size": "{:.0f} px", "batch_size": "batch {:.0f}"}
    return "".join(f", {form.format(line[name])}" for name, form in forms.items() if pandas.notna(line[name]))


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
    *,
    name: Callable[[dict], str],
    text: Callable[[dict], str],
    parts: dict[str, str] | None = None,
    names: dict[str, str] | None = None,
    least_first: bool = False,
) -> None:
    """Draw a bar for each line of a table, the first on top, with its interval and its number of windows.

    Published bars are grey, an unstable point's is hatched, an unproven one's dotted, a diverged one's crossed. A point
    that failed has no bar, but a cross and its status at the axis. Where both views are there, each stands under its
    name. Of more lines than can be read the best are drawn, and how many that are is said; see `limits.shown`.

    Args:
        axes: where to draw; the legend stands below its figure.
        table: with columns device and the bars' lengths; source, variant, status, verdict, low, high, num_windows and
            shade (a name of COLOURS, in place of the device's) where it has them.
        column: the bars' lengths.
        name: what a line is called.
        text: what stands beside the bar of a line that did not fail.
        parts: columns that a measured bar is made of, each with a name of COLOURS; empty is the device's.
        names: what the legend calls names of COLOURS, where it is not `legends.NAMES`.
        least_first: whether less is better, where only the best are drawn.
    """
    every, table = table, limits.shown(table, column, least_first=least_first)
    limits.say_left_out(axes, table, every, "the best")
    lines = table.to_dict("records")
    places = _places(lines)
    drawn = set()
    for place, line in sorted(zip(places, lines, strict=True), key=lambda pair: pair[0]):
        drawn |= _draw_bar(axes, line, place, column, parts or {column: ""})
        _draw_words(axes, line, place, column, text)
    num_views = _name_views(axes, lines, places)
    kinds = _draw_whiskers(axes, table.set_axis(places), column)
    ticks = sorted(zip(places, map(name, lines), strict=True))
    axes.set_yticks([place for place, _ in ticks], [called for _, called in ticks], fontsize=8)
    axes.tick_params(axis="y", length=0)
    if not axes.patches:
        axes.set(xlim=(0, 1), xticks=[])
    top = max([1.0, *places]) + (1.1 if num_views > 1 else 0.6)  # a lone bar is no thicker than others
    axes.set_ylim(-0.6, top)
    axes.margins(x=0.25)  # room for the words beside the bars
    entries = legends.shades(drawn, names) + legends.meanings(drawn) + legends.whiskers(kinds)
    legends.add_legend(axes.figure, entries)


def draw_points(axes: Axes, points: pandas.DataFrame, x: str, y: str, style: dict) -> None:
    """Draw points with their intervals: an unstable one is hollow, a diverged one crossed, a failed one at the foot.

    Args:
        axes: where to draw; the legend of what the marks mean stands below its figure.
        points: with columns x, y, low and high (of y); status and verdict where it has them.
        x, y: two of its columns.
        style: for `Axes.errorbar`, with color and fmt, which begins with a marker.
    """
    outcomes = pandas.Series(map(outcome, points.to_dict("records")), points.index, dtype=object)
    placed, failed = points[x].notna(), outcomes == "failed"
    drawn = points[points[y].notna() & placed & ~failed]
    values = drawn[[x, y, "low", "high"]].astype(float)
    axes.errorbar(values[x], values[y], _errors(values, y), **{"capsize": 3, **style})
    marks = {"unstable": {"marker": style["fmt"][0], "markerfacecolor": "white"}, "diverged": {"marker": "X"}}
    marks["unproven"] = {"marker": "d", "markerfacecolor": "white"}
    for name, mark in marks.items():
        some = values[outcomes[values.index] == name]
        if len(some):
            axes.plot(some[x], some[y], color=style["color"], linestyle="none", zorder=3, **mark)
    foot = axes.get_xaxis_transform()  # at the foot of the chart, whatever the values are
    for place, status in points.loc[failed & placed, [x, "status"]].itertuples(index=False):
        axes.plot(float(place), 0.03, "X", color=style["color"], transform=foot)
        words = {"rotation": 90, "fontsize": 7, "ha": "center", "va": "bottom", "transform": foot}
        axes.text(float(place), 0.07, _spaced(status), **words)
    seen = {*outcomes[values.index], *outcomes[failed & placed]}
    kinds = map(bounds_kind, drawn[_has_bounds(drawn)].to_dict("records"))
    legends.add_legend(axes.figure, legends.meanings(seen, on_points=True) + legends.whiskers(kinds))


def _places(lines: list[dict]) -> list[float]:
    """Return the bars' places, the first on top, the tuned ones below the others with room for a heading between."""
    is_best = [view(line) == BEST for line in lines]
    if all(is_best):
        is_best = [False] * len(lines)
    ranks = sorted(range(len(lines)), key=lambda number: is_best[number])
    gap = VIEW_GAP if any(is_best) else 0
    places = {number: len(lines) - 1.0 - rank for rank, number in enumerate(ranks)}
    return [places[number] + (0 if is_best[number] else gap) for number in range(len(lines))]


def _name_views(axes: Axes, lines: list[dict], places: list[float]) -> int:
    """Write each view's name above its bars, where both are there; return how many are."""
    tops = {}
    for line, place in zip(lines, places, strict=True):
        tops[view(line)] = max(place, tops.get(view(line), place))
    for name, top in tops.items() if len(tops) > 1 else ():
        style = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "style": "italic", "va": "bottom"}
        axes.text(0.01, top + 0.45, f"{name}:", **style)
    return len(tops)


def _draw_bar(axes: Axes, line: dict, place: float, column: str, parts: dict[str, str]) -> set[str]:
    """Draw one bar, or the cross of a failure; return the names of colours and outcomes that the legend explains."""
    ending = outcome(line)
    if ending == "failed":
        axes.plot(0, place, "X", color=COLOURS["line"], clip_on=False)
        return {ending}
    shade = line.get("shade") or ("cpu" if line["device"] == "cpu" else "accelerator")
    if not _is_measured(line):
        shade, parts = "published", {column: ""}
    hatch = {"hatch": HATCHES[ending]} if ending in HATCHES else {}
    left, drawn = 0.0, set()
    for part, name in parts.items():
        if pandas.notna(line[part]):
            look = {"color": COLOURS[name or shade], "edgecolor": "white", "linewidth": 0, **hatch}
            axes.barh(place, line[part], left=left, **look)
            left, drawn = left + line[part], drawn | {name or shade, ending}
    return drawn


def _draw_words(axes: Axes, line: dict, place: float, column: str, text: Callable[[dict], str]) -> None:
    """Write beside a bar what it says, how many windows that is from, and how it ended where it did not end well."""
    ending, count, end = outcome(line), line.get("num_windows"), 0.0
    if ending == "failed":
        words = [_spaced(line["status"])]
    else:
        counted = f"n={count:.0f}" if pandas.notna(count) and pandas.notna(line[column]) else ""
        words = [text(line), counted, "diverged" if ending == "diverged" else ""]
        end = next(float(value) for value in (line.get("high"), line[column], 0.0) if pandas.notna(value))
    axes.text(max(0.0, end), place, "   " + ", ".join(filter(None, words)), va="center", fontsize=8)


def _draw_whiskers(axes: Axes, table: pandas.DataFrame, column: str) -> list[str]:
    """Draw the bounds of bars, whose places are the table's index; return the kind of each, see `bounds_kind`."""
    bounded = table[_has_bounds(table)]
    kinds = pandas.Series([bounds_kind(line) for line in bounded.to_dict("records")], bounded.index, dtype=object)
    for kind, part in bounded.groupby(kinds, sort=False):
        values = part[[column, "low", "high"]].astype(float)
        whiskers = {"fmt": "none", "color": COLOURS["line"], "capsize": 0 if kind == legends.RANGE else 3}
        axes.errorbar(values[column], values.index, xerr=_errors(values, column), **whiskers)
    return kinds.tolist()


def _errors(values: pandas.DataFrame, column: str) -> list[pandas.Series]:
    """Return how far low and high are from a column, as `Axes.errorbar` takes them."""
    return [(values[column] - values["low"]).clip(lower=0), (values["high"] - values[column]).clip(lower=0)]


def _has_bounds(table: pandas.DataFrame) -> pandas.Series:
    """Return which lines have bounds and did not fail."""
    ended = [outcome(line) != "failed" for line in table.to_dict("records")]
    return table.reindex(columns=["low", "high"]).notna().all(axis=1) & pandas.Series(ended, table.index, dtype=bool)


def bounds_kind(line: dict) -> str:
    """Return what a line's bounds are, as the legend names them: an interval, a range, a printed
    figure's rounding, or a prediction's interval.

    Args:
        line: with source, and with interval where its bounds may be one.
    """
    if not _is_measured(line):
        return legends.PREDICTED if line["source"] == legends.PREDICTED else legends.PUBLISHED
    return legends.INTERVAL if line.get("interval") == legends.INTERVAL else legends.RANGE


def _is_measured(line: dict) -> bool:
    return line.get("source", "measured") == "measured"


def _spaced(status: str) -> str:
    return status.replace("_", " ")
