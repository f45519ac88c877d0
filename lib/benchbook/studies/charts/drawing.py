"""A chart that was drawn, as notebooks and the report show it."""

import html
from dataclasses import dataclass, field

import numpy
import pandas
from matplotlib.figure import Figure

from benchbook.judging import statistics, wording
from benchbook.record import articles
from benchbook.studies.charts import figures
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.results.tables import PREDICTED, are_measured, machines_of


def sources(unit: str, lines: pandas.DataFrame, evidence: Evidence, study: str) -> str:
    """Return in HTML what a study's lines are in, which machines and articles they are of, and
    the newest day."""
    is_own, printed = are_measured(lines), evidence.printed(study)
    rows = evidence.measured[evidence.measured["study"].eq(study)]
    rows = rows[rows["machine"].isin(machines_of(lines[is_own]))]
    own = (
        "this machine"
        if evidence.own_first
        else wording.count(rows["machine"].nunique(), "machine")
    )
    told = [f"{own}, newest row {''.join(statistics.days(rows)[-1:])}"] if len(rows) else []
    links, printed = articles.links(), printed[printed["machine"].isin(lines["machine"][~is_own])]
    names = [reference.partition("; ")[0] for reference in printed["reference"]]
    texts = {name: html.escape(name) for name in names}
    told += [
        f'<a href="{links[name]}">{text}</a>' if name in links else text
        for name, text in texts.items()
    ]
    told += ["predictions"] if lines.get("source", pandas.Series()).eq(PREDICTED).any() else []
    return f"<small>{html.escape(wording.sentence(unit))} Source: {'; '.join(told)}.</small>"


@dataclass(frozen=True, repr=False)
class Drawing:
    """A chart that was drawn, with the numbers behind it.

    Attributes:
        figure: the title of its first axes is the caption; None if there is nothing to draw.
        table: the numbers in the figure.
        kind: of chart, in words, for the alternative text.
        tables: further tables of the chart, by file name.
        name: of the file of `table`; empty if there is none.
        note: unit, source and day of its numbers, in HTML; see `sources`.
    """

    figure: Figure | None
    table: pandas.DataFrame
    kind: str
    tables: dict[str, pandas.DataFrame] = field(default_factory=dict)
    name: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.figure:
            figures.take_literally(self.figure)

    @property
    def alt(self) -> str:
        """Return the alternative text for readers who cannot see the figure: kind of chart and
        titles."""
        titles = [" ".join(axes.get_title(loc="left").split()) for axes in self.figure.axes]
        return " ".join(f"{text}." for text in (self.kind, *titles) if text)

    @classmethod
    def of_pictures(cls, rows: dict[str, numpy.ndarray], title: str, **look) -> "Drawing":
        """Return rows of pictures, one above the other, with each row's name at its left.

        Args:
            rows: pixels from 0 to 1 by name, all of one shape: (n, height, width), or (n,
            height, width, 3) in colour.
            title: of the figure.
            look: options of `Axes.imshow`.
        """
        height = next(iter(rows.values())).shape[1]
        with figures.style():
            figure, axes = figures.canvas(0.4 + 0.9 * len(rows))
            axes.imshow(numpy.vstack([numpy.hstack(row) for row in rows.values()]), **look)
            axes.set(xticks=[], title=title)
            axes.set_yticks([height * (place + 0.5) for place in range(len(rows))], list(rows))
            axes.spines[:].set_visible(False)
        return cls(figure, pandas.DataFrame(), f"Rows of pictures: {', '.join(rows)}")

    def __repr__(self) -> str:
        """Return the alternative text, as a terminal shows the drawing."""
        return self.alt if self.figure else "no figure"

    def _repr_png_(self) -> tuple[bytes, dict] | None:
        """Return the figure as a notebook shows it, with its alternative text."""
        return (
            (figures.render(self.figure), {"alt": self.alt, "table": self.name})
            if self.figure
            else None
        )
