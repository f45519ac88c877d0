"""What a study tells the report: its charts, the quantities of claims, and how long the article's epoch takes.

Each study makes one `Study`, named STUDY, in `benchbook.studies.<name>.results`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas
from matplotlib.figure import Figure

from benchbook import articles, figures, intervals, layout, verdicts
from benchbook.intervals import History


@dataclass(frozen=True)
class Evidence:
    """All rows that tables and charts are made from, summarised once.

    Attributes:
        rows: measured and published ones, of any studies.
        conditions: from `condition.samples`, for the verdicts; None where there are none.
        folder: that holds the measured rows with their manifests; None where charts need no manifest.
        prices: from `articles.prices`.
    """

    rows: pandas.DataFrame
    conditions: pandas.DataFrame | None = None
    folder: Path | None = None
    prices: pandas.DataFrame = field(default_factory=articles.prices)

    @cached_property
    def measured(self) -> pandas.DataFrame:
        """Return the rows that were measured."""
        return self.rows[self.rows["source"] == "measured"]

    @cached_property
    def published(self) -> pandas.DataFrame:
        """Return the rows that articles printed."""
        return self.rows[self.rows["source"] != "measured"]

    @cached_property
    def summary(self) -> pandas.DataFrame:
        """Return a line for each measured point, with its verdict; see `verdicts.summarise`."""
        return verdicts.summarise(self.rows, self.conditions, self.history)

    @cached_property
    def history(self) -> dict[tuple[str, str, str], History]:
        """Return how much kernels differed on each machine; see `intervals.histories`."""
        return intervals.histories(self.rows)

    def points(self, study: str) -> pandas.DataFrame:
        """Return the lines of the summary that belong to a study."""
        return self.summary[self.summary["study"] == study]


@dataclass(frozen=True)
class Drawing:
    """A chart that was drawn, with the numbers behind it.

    Attributes:
        figure: its first title is the caption; None where there is nothing to draw.
        table: what it was drawn from.
        alt: what it shows, in words, for those who do not see it.
        finding: what it says, as a sentence without its full stop; empty where the study's finding leaves it out.
        tables: further tables that belong to it, by file name.
    """

    figure: Figure | None
    table: pandas.DataFrame
    alt: str
    finding: str = ""
    tables: dict[str, pandas.DataFrame] = field(default_factory=dict)

    @cached_property
    def picture(self) -> bytes | None:
        """Return the figure as PNG, rendered once; None where there is no figure."""
        return None if self.figure is None else figures.render(self.figure)

    def save(self, folder: Path, name: str) -> None:
        """Write figure and tables into a folder; see `figures.save`."""
        if self.figure is not None:
            figures.save(self.figure, self.table, folder, name, self.alt, self.picture)
        for other, table in self.tables.items():
            figures.save_table(table, folder, other)

    def _repr_png_(self) -> bytes | None:
        """Return the figure as a notebook shows it."""
        return self.picture


@dataclass(frozen=True)
class Chart:
    """One question of a study and the chart that answers it.

    Attributes:
        name: of its files, without extension.
        heading: what it asks, or what it is of.
        note: what a reader has to know to read it; may be empty.
        make: from the evidence to the drawing.
    """

    name: str
    heading: str
    note: str
    make: Callable[[Evidence], Drawing]

    def draw(self, evidence: Evidence) -> Drawing:
        """Return the chart, drawn in the house style."""
        with figures.style():
            return self.make(evidence)


@dataclass(frozen=True)
class Rule:
    """Where a quantity stands in a study's published rows.

    Attributes:
        name: what claims call it.
        column: the measure that holds it; None for something that happened, which is 1.
        where: which of the study's rows, as pandas.DataFrame.query takes it.
    """

    name: str
    column: str | None
    where: str


@dataclass(frozen=True)
class Study:
    """One question, with all that its results say.

    Attributes:
        name: of its notebook, without the number.
        title: what people call it.
        charts: in the report's order, the lead chart first.
        article: whose figures it repeats; empty where no article asked.
        published: quantities that stand in published rows.
        quantities: from the evidence to quantities that were measured or computed, as `quantities.gather` returns them.
        epoch_seconds: from the evidence to the seconds of what the article calls an epoch, by machine and point; None
            where that is the images of the article's data set over the rate of training.
    """

    name: str
    title: str
    charts: tuple[Chart, ...]
    article: str = ""
    published: tuple[Rule, ...] = ()
    quantities: Callable[[Evidence], list[dict]] = lambda evidence: []
    epoch_seconds: Callable[[Evidence], dict[tuple[str, str], float]] | None = None

    @property
    def question(self) -> str:
        """Return what its notebook asks."""
        return layout.question(self.name)
