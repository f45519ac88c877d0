"""Charts declared as data, in three kinds: bars, points with intervals, and lines over steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas
from matplotlib.axes import Axes

from benchbook.judging import wording
from benchbook.record.naming import Names
from benchbook.studies import figures
from benchbook.studies.study import Chart, Drawing, Evidence

Table = Callable[[Evidence], pandas.DataFrame]
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^vDP*X"


@dataclass(frozen=True, kw_only=True)
class Plot(Chart):
    """A chart of a table's lines; it has no figure unless there are two bars or places to compare.

    Attributes:
        table: from the evidence to the numbers behind the chart.
        title: from the table to the sentence above the figure; see `findings.Sentence`.
        column: the values drawn; empty: the column of the title.
        label: columns that distinguish the lines; see `figures.labels`.
        usual: default values of these columns, which labels omit.
        lines: from the table and the evidence to the lines that are drawn; None: all.
        bounds: the columns with low, high and the kind of bounds.
        xlabel: of the axis.
        percent: whether values are shares.
        reference: a value to compare with, marked by a line.
        look: further options of `Axes.set`.
        tables: further tables, by file name.
        width: inches.
    """

    table: Table
    title: Callable[[pandas.DataFrame, Names], str]
    column: str = ""
    label: tuple[str, ...] = ()
    usual: Mapping[str, object] = field(default_factory=dict)
    lines: Callable[[pandas.DataFrame, Evidence], pandas.DataFrame] | None = None
    bounds: tuple[str, str, str] = ("low", "high", "interval")
    xlabel: str
    percent: bool = False
    reference: float | None = None
    look: dict[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    width: float = 9.0

    value = property(lambda self: self.column or self.title.column, doc="The column of the values drawn.")

    def draw(self, evidence: Evidence) -> Drawing:
        """Return the chart of some evidence; its figure is None if there is nothing to compare."""
        every = self.table(evidence)
        tables = {name: make(evidence) for name, make in self.tables.items()}
        lines = every if self.lines is None else self.lines(every, evidence)
        bounds = zip(("low", "high", "interval"), self.bounds, strict=True)
        lines = lines.assign(**{name: lines[column] for name, column in bounds if column in lines})
        places, height = self.extent(lines)
        if lines[self.value].isna().all() or places < 2:
            return Drawing(None, every, "", tables)
        with figures.style():
            figure, axes = figures.canvas(height, self.width)
            axes.set_title(self.title(every, evidence.names), parse_math=False)  # dollars are money
            axes.set(**self.look)
            self.draw_lines(axes, lines, evidence)
        return Drawing(figure, every, self.kind, tables)


@dataclass(frozen=True, kw_only=True)
class Bars(Plot):
    """Bars with their intervals, the best first; see `figures.draw_bars`.

    Attributes:
        text: after each bar: a format string over the line's columns, or a function of the line; empty: the value in
            the title's format, and the line's dollars.
        parts: see `figures.draw_bars`.
        least_first: whether less is better; also true if the title's `best` is `least`.
        formatter: of the axis ticks, for `Axis.set_major_formatter`.
    """

    text: str | Callable[[dict], str] = ""
    parts: Mapping[str, str] | None = None
    least_first: bool = False
    formatter: Callable[[float, int], str] | None = None

    kind = property(lambda self: f"Bars: {self.xlabel}", doc="The kind of chart, in words.")

    def extent(self, lines: pandas.DataFrame) -> tuple[int, float]:
        """Return the number of bars, and the height in inches that they need."""
        return len(lines), 1.6 + 0.42 * min(len(lines), figures.MOST_BARS)

    def words(self, line: dict) -> str:
        """Return the text after a line's bar."""
        if self.text:
            return self.text(line) if callable(self.text) else self.text.format(**line)
        dollars = line.get("dollars") or 0
        return self.title.show(line[self.value]) + (f", {wording.price(dollars)}" if dollars > 0 else "")

    def draw_lines(self, axes: Axes, lines: pandas.DataFrame, evidence: Evidence) -> None:
        """Draw a bar for each line."""
        least_first = self.least_first or getattr(self.title, "best", "") == "least"
        best = figures.ranked(lines, self.value, least_first=least_first)
        if len(best) < len(lines):
            figures.write_note(axes, f"the best {len(best)} of {len(lines)} are drawn; the table has all")
        texts = [self.words(line) if pandas.notna(line[self.value]) else "" for line in best.to_dict("records")]
        labels = figures.labels(best, evidence.names, self.label, self.usual)
        named = {"labels": labels, "texts": texts, "colours": evidence.colours, "parts": self.parts}
        figures.draw_bars(axes, best, self.value, **named)
        axes.set(xlabel=self.xlabel)
        if self.percent or self.formatter:
            axes.xaxis.set_major_formatter(self.formatter or "{x:.0%}")
        if self.reference is not None:
            axes.axvline(self.reference, color=figures.COLOURS["line"], linewidth=1)


@dataclass(frozen=True, kw_only=True)
class Points(Plot):
    """Points with intervals on two axes, joined to lines; see `figures.draw_points`.

    Each line has its label at its right end. A machine's lines have one colour and differ in marker and dash.

    Attributes:
        x: the column on the horizontal axis; `column`, or the title's, is on the vertical axis.
        by: columns in which the points of one line agree.
        ylabel: of the vertical axis.
        from_zero: whether the vertical axis begins at 0, so that small differences look small.
        batches: whether x is a batch size, on a logarithmic axis with a tick for each size.
        joined: whether the points of a line are joined.
        also: a function that draws more of each line, given the axes, the line's points and its style.
    """

    x: str
    by: list[str]
    ylabel: str
    from_zero: bool = False
    batches: bool = False
    joined: bool = True
    also: Callable[[Axes, pandas.DataFrame, dict], None] | None = None
    draw_one: ClassVar[Callable] = staticmethod(figures.draw_points)

    kind = property(lambda self: f"{self.ylabel} over {self.xlabel}", doc="The kind of chart, in words.")

    def extent(self, lines: pandas.DataFrame) -> tuple[int, float]:
        """Return the number of places x with a point, and the height in inches that the labels need.

        If points are joined, the number is that of the line with the most places.
        """
        known = lines[lines[self.value].notna()]
        counts = known.groupby(self.by, dropna=False)[self.x].nunique() if self.joined else known[[self.x]].nunique()
        num_labels = len(lines[self.by].drop_duplicates())
        return counts.max(), max(4.2, 1.2 + 2 * figures.LABEL_HEIGHT * num_labels)

    def draw_lines(self, axes: Axes, lines: pandas.DataFrame, evidence: Evidence) -> None:
        """Draw a line for each group of points, of the first machines only if there are many."""
        few = figures.first_machines(axes, lines)
        groups = [points.sort_values(self.x, kind="stable") for _, points in few.groupby(self.by, dropna=False)]
        firsts = pandas.DataFrame([points.iloc[0] for points in groups])
        labels, ends = figures.labels(firsts, evidence.names, self.label, self.usual), []
        colours = figures.machine_colours(set(firsts["machine"])) | evidence.colours
        rank = firsts.groupby("machine", sort=False).cumcount().tolist()
        for points, label, place in zip(groups, labels, rank, strict=True):
            shade = figures.colour(points.iloc[0].to_dict(), colours)
            style = {"color": shade, "markersize": 5}
            style["fmt"] = MARKERS[place % len(MARKERS)] + (DASHES[place % len(DASHES)] if self.joined else "")
            self.draw_one(axes, points, self.x, self.value, style)
            if self.also:
                self.also(axes, points, style)
            drawn = points[points[self.value].notna() & points[self.x].notna()]
            if len(drawn):
                end = drawn.iloc[-1]
                text = label.replace("\n", ", ") + figures.window_counts(points)
                ends.append((end[self.x], end[self.value], text, shade))
        self._set_axes(axes, lines)
        figures.label_ends(axes, ends)

    def _set_axes(self, axes: Axes, lines: pandas.DataFrame) -> None:
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
        if self.from_zero:
            axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
        axes.set(xlabel=self.xlabel, ylabel=self.ylabel)


class Lines(Points):
    """Lines over steps, such as of a loss, an accuracy or a rate; see `figures.draw_line`."""

    draw_one = staticmethod(figures.draw_line)
