"""Charts declared as data, in two kinds: bars, and points with intervals on two axes."""

import itertools
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas
from matplotlib.figure import Figure

from benchbook.judging import wording
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.studies.charts import figures
from benchbook.studies.charts.drawing import Drawing, sources
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.results.tables import are_measured, is_measured

Table = Callable[[Evidence], pandas.DataFrame]
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^vDP*X"
SPAN = "machines"  # the kind of bounds of like machines
MOST_MACHINES = 6  # with lines in one chart: the palette has six colours


@cached
def colours(evidence: Evidence) -> dict[str, str]:
    """Return the colour of each machine with measured rows, the same in all charts."""
    machines = sorted(set(evidence.measured["machine"]))
    return dict(zip(machines, itertools.cycle(figures.MACHINES), strict=False))


def pooled(
    lines: pandas.DataFrame, column: str, alike: list[str], names: Names
) -> pandas.DataFrame:
    """Return lines in which those of like machines without a given name, which agree in `alike`
    and their outcome, are one: the middle one's, whose bounds span those of all. The machines are
    in `pooled`."""
    looks = figures.looks(lines)
    may_agree = looks["is_measured"] & lines[column].astype(float).gt(0)
    same = lines.reindex(columns=["device", "device_count", *alike]).astype("string").fillna("")
    key = [same.agg(" | ".join, axis=1), looks["view"], looks["outcome"]]
    kinds = [
        names.kind(line) if one else place
        for place, one, line in zip(lines.index, may_agree, lines.to_dict("records"), strict=True)
    ]
    key.append(pandas.Series(kinds, lines.index, dtype=object))
    kept = []
    for _, own in lines.sort_values(column, kind="stable").groupby(key, sort=False):
        if len(own) > 1 and own["machine"].is_unique:
            ends = own.reindex(columns=[column, "low", "high"]).astype(float)
            span = {"low": ends.min(axis=None), "high": ends.max(axis=None), "interval": SPAN}
            span |= {"num_windows": own["num_windows"].sum(), "pooled": [own["machine"].tolist()]}
            own = own.iloc[[(len(own) - 1) // 2]].assign(**span)
        kept.append(own)
    return pandas.concat(kept).sort_index()


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A chart of a table's lines; it has no figure unless there are two bars or places to compare.

    Attributes:
        name: file name without extension.
        table: from the evidence to the numbers behind the chart.
        title: the sentence above the figure; labels omit its usual values.
        xlabel, ylabel: of the axes; bars have no ylabel.
        column: the values drawn; empty: the column of the title.
        label: columns that distinguish the lines; see `figures.labels`.
        alike: columns in which all drawn lines agree, such as network, size and data set; see
        `drawn`.
        lines: from the table and the evidence to the lines that may be drawn; None: all.
        ticks: how the axis shows a value, as for `Axis.set_major_formatter`; empty: as
        matplotlib does.
        reference: a value to compare with, marked by a line.
        look: further options of `Axes.set`.
        tables: further tables, by file name.
    """

    name: str = field(kw_only=False)
    table: Table
    title: Template
    xlabel: str
    ylabel: str = ""
    column: str = ""
    label: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    lines: Callable[[pandas.DataFrame, Evidence], pandas.DataFrame] | None = None
    ticks: str | Callable[[float, int], str] = ""
    reference: float | None = None
    look: dict[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)

    num_places: ClassVar[Callable[..., int]]  # these two: each kind's own
    figure: ClassVar[Callable[..., Figure]]

    value = property(
        lambda self: self.column or self.title.column, doc="The column of the values drawn."
    )

    def drawn(self, table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
        """Return the lines of `table` that are drawn: those of one work, so that an axis
        compares like with like.

        Of several works, a measured one comes first if the evidence says so; then one with two
        values to compare, then the one that most machines measured, then the one with most
        values.
        """
        lines = table if self.lines is None else self.lines(table, evidence)
        known = lines[lines[self.value].notna()]
        if not self.alike or known.empty:
            return lines
        work = lines[list(self.alike)].astype("string").fillna("").agg(" | ".join, axis=1)
        ranks = {}
        for name, own in known.groupby(work[known.index]):
            measured = own[are_measured(own)]
            values = self.num_places(own) > 1, measured["machine"].nunique(), len(own)
            ranks[name] = (evidence.own_first and len(measured) > 0, *values)
        return lines[work == max(ranks, key=ranks.get)]

    def draw(self, evidence: Evidence, study: str = "") -> Drawing:
        """Return the chart of some evidence on a study; its figure is None if there is nothing
        to compare."""
        table = self.table(evidence)
        tables = {name: make(evidence) for name, make in self.tables.items()}
        lines = self.drawn(table, evidence)
        if lines[self.value].isna().all() or self.num_places(lines) < 2 - evidence.own_first:
            return Drawing(None, table, "", tables)
        with figures.style():
            figure = self.figure(lines, evidence)
            figure.axes[0].set_title(self.title(lines, evidence, study).removesuffix("."))
            figure.axes[0].set(**self.look)
        note = sources(self.ylabel or self.xlabel, lines, evidence, study)
        kind = f"{self.ylabel} over {self.xlabel}" if self.ylabel else f"Bars: {self.xlabel}"
        return Drawing(figure, table, kind, tables, self.name, note)

    def axis_label(self, lines: pandas.DataFrame, num_drawn: int) -> str:
        """Return the label of the horizontal axis: its quantity, the work of all lines, and how
        many are not drawn."""
        work = naming.words(lines.iloc[0].to_dict(), self.alike)
        rest = len(lines) - num_drawn
        more = f"{rest} more are not drawn" if rest else ""
        told = "; ".join(filter(None, (work, more)))
        lines = [self.xlabel, *([f"({told})"] if told else [])]
        return "\n".join(textwrap.fill(line, figures.LABEL_LETTERS) for line in lines)


@dataclass(frozen=True, kw_only=True)
class Bars(Plot):
    """Bars with their intervals, the best first; see `figures.draw_bars`.

    Attributes:
        text: from a line to the text after its bar; None: the value in the title's unit.
        parts: see `figures.draw_bars`.
    """

    text: Callable[[dict], str] | None = None
    parts: Mapping[str, str] = field(default_factory=dict)

    num_places = staticmethod(len)

    def words(self, line: dict) -> str:
        """Return the text after a line's bar."""
        if pandas.isna(line[self.value]):
            return ""
        if self.text:
            return self.text(line)
        digits = 0 if is_measured(line) else 3
        return wording.quantity([float(line[self.value])], self.title.unit, digits)[0]

    def figure(self, lines: pandas.DataFrame, evidence: Evidence) -> Figure:
        """Return a figure with a bar for each line, as tall as their labels need."""
        if self.title.equal is None:  # else each machine is judged alone
            alike = [*self.label, *self.alike]
            lines = pooled(lines, self.value, alike, evidence.names)
        best = figures.ranked(lines, self.value, least_first=self.title.best == "least")
        best = best.assign(
            label=figures.labels(best, evidence.names, self.label, self.title.usual),
            text=list(map(self.words, best.to_dict("records"))),
        )
        heights = [0.46 + 0.2 * label.count("\n") for label in best["label"]]
        figure, axes = figures.canvas(1.8 + len(best) * max(heights))
        figures.draw_bars(axes, best, self.value, colours(evidence), self.parts)
        axes.set(xlabel=self.axis_label(lines, len(best)))
        if self.ticks:
            axes.xaxis.set_major_formatter(self.ticks)
            axes.locator_params(axis="x", nbins=5)  # "500,000" is wide
        if self.reference is not None:
            axes.axvline(self.reference, color=figures.LINE, linewidth=1)
        return figure


@dataclass(frozen=True, kw_only=True)
class Points(Plot):
    """Points with intervals on two axes, joined to lines; see `figures.draw_points`.

    A machine's lines have one colour and differ in marker and dash.

    Attributes:
        x: the column on the horizontal axis; `column`, or the title's, is on the vertical axis.
            A batch size has a logarithmic axis with a tick for each size.
        by: columns in which the points of one line agree.
        highest: of the vertical axis; a higher value is an arrow with its number at the top.
    """

    x: str
    by: list[str]
    highest: float = math.inf

    def num_places(self, lines: pandas.DataFrame) -> int:
        """Return the number of places x of the line with the most places."""
        return (
            lines[lines[self.value].notna()].groupby(self.by, dropna=False)[self.x].nunique().max()
        )

    def figure(self, lines: pandas.DataFrame, evidence: Evidence) -> Figure:
        """Return a figure with a line for each group of points, of the first machines only if
        there are many. Its vertical axis begins at 0, so that small differences look small."""
        measured = are_measured(lines)
        machines = lines.loc[measured, "machine"].drop_duplicates()[:MOST_MACHINES]
        few = lines[~measured | lines["machine"].isin(machines)]
        groups = [
            points.sort_values(self.x, kind="stable")
            for _, points in few.groupby(self.by, dropna=False)
        ]
        firsts = pandas.DataFrame([points.iloc[0] for points in groups])
        rank = firsts.groupby("machine", sort=False).cumcount()
        labels = figures.labels(firsts, evidence.names, self.label, self.title.usual)
        figure, axes = figures.canvas(4.0 + 0.16 * sum(1 + text.count("\n") for text in labels))
        for points, label, place in zip(groups, labels, rank, strict=True):
            shade = figures.colour(points.iloc[0].to_dict(), colours(evidence))
            style = {
                "color": shade,
                "fmt": MARKERS[place % len(MARKERS)] + DASHES[place % len(DASHES)],
            }
            values = points[self.value].astype(float)
            drawn = points.assign(**{self.value: values.clip(upper=self.highest)})
            figures.draw_points(axes, drawn, self.x, self.value, label, style)
            for line in points[values > self.highest].to_dict("records"):
                at = {"rotation": 90, "va": "top", "ha": "left"}
                axes.text(
                    line[self.x], self.highest, f"\u2003{wording.number(line[self.value])} →", **at
                )
        if self.x == "batch_size":
            sizes = sorted({int(size) for size in lines[self.x].dropna()})
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, list(map(str, sizes)), rotation=45)
            axes.xaxis.minorticks_off()
        if self.ticks:
            axes.yaxis.set_major_formatter(self.ticks)
        axes.grid(visible=True)
        axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
        if self.reference is not None:
            axes.axhline(self.reference, color=figures.PUBLISHED_GREY, linewidth=1)
        axes.set(xlabel=self.axis_label(lines, len(few)), ylabel=self.ylabel)
        entries, _ = axes.get_legend_handles_labels()
        figures.legend(figure, figures.looks(few), entries, on_points=True)
        return figure
