"""What a study tells the report: its charts, the quantities of claims, and how long the article's epoch takes.

Each study makes one `Study`, named STUDY, in `benchbook.studies.<name>.study`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy
import pandas
from matplotlib.figure import Figure

from benchbook.judging import intervals, statistics, verdicts
from benchbook.machine import layout
from benchbook.record import articles, naming
from benchbook.rows import ceilings, records
from benchbook.studies import figures

COUNTS = ["batch_size", "image_size", "sequence_length", "num_workers", "device_count", "dataset_samples", "parameters"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """All rows that tables and charts are made from; what is made of them is made once, when it is asked for.

    Attributes:
        rows: measured and published ones, of any studies.
        conditions: from `condition.samples`, for the verdicts; None where there are none.
        folder: that holds the measured rows with their manifests; None where charts need no manifest.
        prices: from `articles.prices`.
        measured, published: the rows of each source.
        priors: how much kernels of points differ on each machine; see `intervals.priors`.
        summary: a line for each measured point, with its verdict; see `verdicts.summarise`.
        ceilings: the best rates that devices were measured at; see `rows.ceilings`.
        names: what machines and devices are called for people; see `naming.of`.
        colours: the colour of each machine that measured; see `figures.machine_colours`.
    """

    rows: pandas.DataFrame
    conditions: pandas.DataFrame | None = None
    folder: Path | None = None
    prices: pandas.DataFrame = field(default_factory=articles.prices)

    measured = cached_property(lambda self: self.rows[self.rows["source"] == "measured"])
    published = cached_property(lambda self: self.rows[self.rows["source"] != "measured"])
    priors = cached_property(lambda self: intervals.priors(self.rows))
    _newest = cached_property(lambda self: statistics.newest(self.measured))
    summary = cached_property(lambda self: verdicts.summarise(self.rows, self.conditions, self.priors))
    ceilings = cached_property(lambda self: ceilings.ceilings(self.measured))
    names = cached_property(lambda self: naming.of(self.rows, self.folder))
    colours = cached_property(lambda self: figures.machine_colours(set(self.measured["machine"])))

    @classmethod
    def of_machine(cls, machine: str = "", study: str = "") -> "Evidence":
        """Return what a machine or all measured, in one study or in all, and what was printed, without bad files."""
        folder = layout.runs(machine) if machine else layout.outputs() / "runs"
        rows = records.gather(records.find(folder / study))
        return cls(pandas.concat([rows, articles.rows()], ignore_index=True), folder=folder)

    def newest(self, study: str) -> pandas.DataFrame:
        """Return the measured rows of each point's last session; see `statistics.newest`."""
        return self._newest[self._newest["study"] == study]

    def printed(self, study: str, query: str = "") -> pandas.DataFrame:
        """Return the published rows of a study, all or those of a query as `pandas.DataFrame.query` takes it."""
        rows = self.published[self.published["study"] == study]
        return rows.query(query, engine="python") if query else rows

    def without_wrong(self) -> "Evidence":
        """Return the same evidence without the rows of points that trained wrong; see `verdicts`."""
        wrong = self.summary.loc[self.summary["status"] == verdicts.WRONG, statistics.POINT_KEY]
        if wrong.empty:
            return self
        keys = pandas.MultiIndex.from_frame(self.rows[statistics.POINT_KEY])
        left_out = keys.isin(pandas.MultiIndex.from_frame(wrong)) & (self.rows["source"] == "measured").array
        return replace(self, rows=self.rows[~left_out])

    def points(self, study: str) -> pandas.DataFrame:
        """Return the lines of the summary that belong to a study, with the peak of their memory in training.

        Counts are whole numbers, as in the rows.
        """
        lines, rows = self.summary[self.summary["study"] == study], self.newest(study)
        peaks = rows[rows["phase"] == "train"].groupby(["machine", "point"])["peak_memory_bytes"].max()
        return lines.astype(dict.fromkeys(COUNTS, "Int64")).join(peaks, on=["machine", "point"])


# Makes a table once for each evidence: charts, quantities and headline ask for the same ones.
once = lru_cache(maxsize=8)


def longest(points: pandas.DataFrame, alike: list[str]) -> pandas.DataFrame:
    """Return, of points that are alike (quick and paper, say), the one that measured more images.

    Args:
        points: lines of a summary; num_samples may be missing, as of a point that failed.
        alike: columns in which points have to differ to be kept side by side.
    """
    longest_last = points.sort_values("num_samples", kind="stable", na_position="first")
    return longest_last.drop_duplicates(alike, keep="last").sort_index()


@dataclass(frozen=True)
class Drawing:
    """A chart that was drawn, with the numbers behind it.

    Attributes:
        figure: its titles say what it shows, the first one is the caption; None where there is nothing to draw.
        table: what it was drawn from.
        shows: what kind of chart it is.
        tables: further tables that belong to it, by file name.
    """

    figure: Figure | None
    table: pandas.DataFrame
    shows: str
    tables: dict[str, pandas.DataFrame] = field(default_factory=dict)

    @property
    def alt(self) -> str:
        """Return what it shows, in words, for those who do not see it: the kind of chart, and its titles."""
        titles = (" ".join(axes.get_title(loc="left").split()) for axes in self.figure.axes)
        return " ".join(f"{text}." for text in (self.shows, *titles) if text)

    @classmethod
    def of_pictures(cls, rows: dict[str, numpy.ndarray], title: str, **look) -> "Drawing":
        """Return rows of pictures, one above the other, with what each row is called at its left.

        Args:
            rows: pixels 0 to 1 by name, all of one shape: (n, height, width), or (n, height, width, 3) in colour.
            title: what they show.
            look: for `Axes.imshow`.
        """
        height = next(iter(rows.values())).shape[1]
        with figures.style():
            figure, axes = figures.canvas(0.4 + 0.9 * len(rows))
            axes.imshow(numpy.vstack([numpy.hstack(row) for row in rows.values()]), **look)
            axes.set(xticks=[], title=title)
            axes.set_yticks([height * (place + 0.5) for place in range(len(rows))], list(rows))
            axes.spines[:].set_visible(False)
        return cls(figure, pandas.DataFrame(), f"Rows of pictures: {', '.join(rows)}")

    def save(self, folder: Path, name: str) -> None:
        """Write the figure as SVG, what a page needs of it as JSON, and tables as CSV, in place of those of before.

        Without a figure only tables are written.

        Args:
            folder: where to write; it is made.
            name: file name without extension; further tables have names of their own.
        """
        for old in folder.glob(f"{name}.*"):  # of an earlier report
            old.unlink()
        own = {name: self.table} if self.figure or len(self.table) else {}
        for other, table in (own | self.tables).items():
            figures.save_table(table, folder, other)
        if self.figure:
            title = " ".join(next(axes.get_title(loc="left") for axes in self.figure.axes).split())
            page = json.dumps({"title": title, "alt": self.alt}, indent=1)
            (folder / f"{name}.svg").write_bytes(figures.render(self.figure, "svg"))
            (folder / f"{name}.json").write_text(f"{page}\n")

    def _repr_png_(self) -> bytes | None:
        """Return the figure as a notebook shows it."""
        return figures.render(self.figure) if self.figure else None


@dataclass(frozen=True)
class Chart:
    """One question of a study and the chart that answers it; `charts` has the kinds.

    Attributes:
        name: of its files, without extension.
        heading: what it asks, or what it is of.
        note: what a reader has to know to read it; may be empty.
        make: from the evidence to the drawing, where no kind of `charts` fits.
    """

    name: str
    heading: str
    note: str = ""
    make: Callable[[Evidence], Drawing] | None = None

    def draw(self, evidence: Evidence) -> Drawing:
        """Return the chart, drawn in the house style."""
        with figures.style():
            return self.make(evidence)


@dataclass(frozen=True)
class Study:
    """One question, with all that its results say.

    Attributes:
        name: of its notebook, without the number.
        title: what people call it.
        charts: in the report's order, the lead chart first.
        article: whose figures it repeats; empty where no article asked.
        dataset: the article's, for which others stand in; empty where that is nothing to warn of.
        says: what it finds: one or two sentences, each with the table that it is made of; see `findings.finding`.
        quantities: from the evidence to quantities that were measured or computed, as `quantities.gather` returns them.
        epoch_seconds: from the evidence to the seconds of what the article calls an epoch, by machine and point; None
            where that is the images of the article's data set over the rate of training.
    """

    name: str
    title: str
    charts: tuple[Chart, ...]
    article: str = ""
    dataset: str = ""
    says: tuple[tuple[Callable[[Evidence], pandas.DataFrame], Callable], ...] = ()
    quantities: Callable[[Evidence], list[dict]] = lambda evidence: []
    epoch_seconds: Callable[[Evidence], dict[tuple[str, str], float]] | None = None

    @property
    def question(self) -> str:
        """Return what its notebook asks."""
        return layout.question(self.name)

    def lead(self, evidence: Evidence) -> Drawing | None:
        """Return the drawing of the first chart for which the evidence has enough numbers."""
        drawings = (chart.draw(evidence) for chart in self.charts)
        return next((drawing for drawing in drawings if drawing.figure), None)
