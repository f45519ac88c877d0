"""Charts declared as data: which columns, which words. Three kinds: bars, points with intervals, lines over steps."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas
from matplotlib.axes import Axes

from benchbook.record.naming import Names
from benchbook.studies import figures
from benchbook.studies.study import Drawing, Evidence

Table = Callable[[Evidence], pandas.DataFrame]
LETTERS, LABELS = 11.5, 0.6  # of a title in an inch of a panel; inches for the labels of its axis
LEGEND_LINE = 0.15  # inches


def plot(
    table: Table,
    *panels: "Bars | Points",
    shows: str,
    width: float = 8.0,
    height: float | None = None,
    tables: Mapping[str, Table] = {},
    legend: str = "best",
    sharey: bool = False,
) -> Callable[[Evidence], Drawing]:
    """Return what draws a chart: its panels side by side, with the table behind it.

    Args:
        table: from the evidence to the numbers behind the chart.
        panels: each shows lines of the table.
        shows: what kind of chart it is, for those who do not see it; the titles follow.
        width, height: in inches; without height, there is room for every bar.
        tables: further tables, by file name.
        legend: where the lines of a chart are named: in the panel, or `right` of all panels.
        sharey: whether panels show the same lines at the same heights.
    """

    def make(evidence: Evidence) -> Drawing:
        every = table(evidence)
        drawn = [every if panel.lines is None else panel.lines(every, evidence) for panel in panels]
        inches = height or 1.6 + 0.45 * max(1, *map(len, drawn), 1)
        figure, axes = figures.canvas(inches, width, len(panels), sharey=sharey, squeeze=False)
        if sharey and isinstance(panels[0], Bars):
            best = figures.shown(drawn[0], panels[0].column)
            figures.say_left_out(axes[0, -1], best, drawn[0], "the best")
            drawn = [lines.loc[best.index] for lines in drawn]
        for panel, own, lines in zip(panels, axes[0], drawn, strict=True):
            panel.draw(own, lines, evidence.names)
            title, places = panel.title(every, evidence.names), len(panels) + (legend == "right") + 0.5 * sharey
            own.set_title(title if places == 1 else textwrap.fill(title, int(LETTERS * (width / places - LABELS))))
        entries = axes[0, 0].get_legend_handles_labels()
        if entries[1] and legend == "right":
            num_lines = len("\n".join(entries[1]).splitlines())
            figure.set_figheight(min(figures.TALLEST, max(inches, 1 + LEGEND_LINE * num_lines)))
            place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "handlelength": 4}
            axes[0, -1].legend(*entries, fontsize=7, **place)
        else:
            for own in axes[0]:
                if own.get_legend_handles_labels()[1]:
                    own.legend(fontsize=7, loc=legend)
        return Drawing.titled(figure, every, shows, {name: make(evidence) for name, make in tables.items()})

    return make


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars with their intervals; see `figures.draw_bars`.

    Attributes:
        column: the bars' lengths.
        label: from a line of the table to what its bar is called.
        text: what follows a bar: a format string over the line's columns, or a function of the line.
        title: from the table to the sentence above the panel.
        xlabel: what the lengths are.
        lines: from the table to the lines with bars; all without.
        parts, names, least_first: see `figures.draw_bars`.
        percent: whether lengths are shares.
        formatter: of the lengths at the axis, as `Axis.set_major_formatter` takes it.
        reference: a length to compare with, marked by a vertical line.
        margin: room for the text, as a share of the width.
        look: further settings for `Axes.set`, where there are bars.
    """

    column: str
    label: Callable[[dict, Names], str]
    text: str | Callable[[dict], str]
    title: Callable[[pandas.DataFrame, Names], str]
    xlabel: str
    lines: Callable[[pandas.DataFrame, Evidence], pandas.DataFrame] | None = None
    parts: dict[str, str] | None = None
    names: dict[str, str] | None = None
    least_first: bool = False
    percent: bool = False
    formatter: Callable[[float, int], str] | None = None
    reference: float | None = None
    margin: float = 0.25
    look: dict[str, Any] = field(default_factory=dict)

    def draw(self, axes: Axes, lines: pandas.DataFrame, names: Names) -> None:
        """Draw a bar for each line."""
        text = (lambda line: self.text.format(**line)) if isinstance(self.text, str) else self.text
        options = {"parts": self.parts, "names": self.names, "least_first": self.least_first}
        figures.draw_bars(axes, lines, self.column, name=lambda line: self.label(line, names), text=text, **options)
        axes.set(xlabel=self.xlabel, **self.look if len(lines) else {})
        axes.margins(x=self.margin)
        if self.percent or self.formatter:
            axes.xaxis.set_major_formatter(self.formatter or "{x:.0%}")
        if self.reference is not None:
            axes.axvline(self.reference, color=figures.COLOURS["line"], linewidth=1)


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points on two axes, joined where they are alike, each with its interval; see `figures.draw_points`.

    Attributes:
        x, y: columns of the table.
        by: columns in which the points of one line agree.
        label: from the points of a line to its entry in the legend; without it there is none.
        fmt: marker and dash of a line, by its first point.
        title: from the table to the sentence above the panel.
        xlabel, ylabel: what the axes are.
        lines: from the table to the points that are drawn; all without.
        percent: whether y is a share.
        from_zero: whether the axis of y begins at 0, so that small differences look small.
        reference: a value of y to compare with, marked by a grey line.
        batches: whether x is a batch size, with a tick for each on an axis of powers of two.
        look: further settings for `Axes.set`, where there are points.
        also: what draws more of a line, from the axes, its points and its style.
    """

    x: str
    y: str
    by: list[str]
    title: Callable[[pandas.DataFrame, Names], str]
    xlabel: str
    ylabel: str
    label: Callable[[pandas.DataFrame, Names], str] | None = None
    fmt: Callable[[dict], str] = lambda line: "o-"
    lines: Callable[[pandas.DataFrame, Evidence], pandas.DataFrame] | None = None
    percent: bool = False
    from_zero: bool = False
    reference: float | None = None
    batches: bool = False
    look: dict[str, Any] = field(default_factory=dict)
    also: Callable[[Axes, pandas.DataFrame, dict], None] | None = None
    draw_one: ClassVar[Callable] = staticmethod(figures.draw_points)

    def draw(self, axes: Axes, lines: pandas.DataFrame, names: Names) -> None:
        """Draw a line for each group of points; of many machines, the first."""
        few = figures.of_few_machines(axes, lines)
        for _, points in few.groupby(self.by, dropna=False, sort=True):
            points, first = points.sort_values(self.x, kind="stable"), points.iloc[0].to_dict()
            style = {"color": figures.colour(first), "fmt": self.fmt(first), "markersize": 5}
            if self.label:
                style["label"] = self.label(points, names)
            self.draw_one(axes, points, self.x, self.y, style)
            if self.also:
                self.also(axes, points, style)
        if self.reference is not None:
            axes.axhline(self.reference, color=figures.COLOURS["published"], linewidth=1)
        sizes = sorted({int(size) for size in lines[self.x].dropna()}) if self.batches else []
        if sizes:
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, list(map(str, sizes)), rotation=45)
            axes.xaxis.minorticks_off()
        if self.percent:
            axes.yaxis.set_major_formatter("{x:.0%}")
        if self.x == "step":
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True)
        axes.margins(y=0.15)
        if self.from_zero and len(few):
            axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
        axes.set(xlabel=self.xlabel, ylabel=self.ylabel, **self.look if lines[self.y].notna().any() else {})


class Lines(Points):
    """Lines over steps: of a loss, an accuracy or a rate; see `figures.draw_line`."""

    draw_one = staticmethod(figures.draw_line)
