"""What a study gives the report: charts, quantities for claims, and the time of the article's epoch.

Each study defines one `Study`, named STUDY, in `benchbook.studies.<name>.study`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy
import pandas
from matplotlib.figure import Figure

from benchbook.judging import statistics, verdicts
from benchbook.machine import condition, layout
from benchbook.record import articles, naming
from benchbook.rows import ceilings, crosschecks
from benchbook.studies import figures

SECONDS = {"milliseconds": 1e-3, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}  # in units of time
COUNTS = ["batch_size", "image_size", "sequence_length", "num_workers", "device_count", "dataset_samples", "parameters"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The rows behind all tables and charts. Attributes derived from them are computed on first use, then cached.

    Attributes:
        rows: measured and published rows of any studies.
        conditions: from `condition.samples`, for the verdicts; None if there are no samples.
        folder: with the measured rows and their manifests; None if no chart needs a manifest.
        is_point: whether the measured rows are of one point, in whose notebook they are shown.
        prices: from `articles.prices`.
        measured, published: the rows of each source.
        summary: one line per measured point, with its verdict; see `verdicts.summarise`.
        ceilings: the best rates measured on each device; see `rows.ceilings`.
        names: display names of machines and devices; see `naming.from_rows`.
        colours: the colour of each machine with measured rows; see `figures.machine_colours`.
    """

    rows: pandas.DataFrame
    conditions: pandas.DataFrame | None = None
    folder: Path | None = None
    is_point: bool = False
    prices: pandas.DataFrame = field(default_factory=articles.prices)

    measured = cached_property(lambda self: self.rows[self.rows["source"] == "measured"])
    published = cached_property(lambda self: self.rows[self.rows["source"] != "measured"])
    _newest = cached_property(lambda self: verdicts.undisturbed(statistics.newest(self.measured), self.conditions))
    summary = cached_property(lambda self: verdicts.summarise(self.rows, self.conditions))
    ceilings = cached_property(lambda self: ceilings.ceilings(self.measured))
    names = cached_property(lambda self: naming.from_rows(self.rows, self.folder))
    colours = cached_property(lambda self: figures.machine_colours(set(self.measured["machine"])))

    @classmethod
    def of_machine(cls, machine: str = "", point: str = "", session: str = "") -> "Evidence":
        """Return the rows of one machine or all, and the published rows; what `crosschecks.read` leaves out is printed.

        Sessions that do not count are left out, see `verdicts.counting`.

        Args:
            machine: its name; empty: all machines.
            point: study and name, such as `calibrate/cpu-fp32`, of the only point; empty: all.
            session: the only one of the rows; empty: those that count.

        Raises:
            ValueError: all of the rows are left out; the message says why.
        """
        folder = layout.runs(machine) if machine else layout.outputs() / "runs"
        said = []
        rows, described = crosschecks.read(folder / point, said.append)
        if rows.empty and said:
            raise ValueError("; ".join(said))
        for line in said:
            print(line)
        conditions = condition.samples(described)
        rows = rows[rows["session"] == session] if session else verdicts.counting(rows, conditions)
        return cls(pandas.concat([rows, articles.rows()], ignore_index=True), conditions, folder, bool(point))

    def newest(self, study: str) -> pandas.DataFrame:
        """Return a study's measured rows, of each point's last session; see `statistics.newest`."""
        return self._newest[self._newest["study"] == study]

    def printed(self, study: str, query: str = "") -> pandas.DataFrame:
        """Return the published rows of a study, filtered by a query for `pandas.DataFrame.query` if there is one."""
        rows = self.published[self.published["study"] == study]
        return rows.query(query, engine="python") if query else rows

    def without_wrong(self) -> "Evidence":
        """Return the evidence without the measured rows of points that trained wrong; see `verdicts`."""
        wrong = self.summary.loc[self.summary["status"] == verdicts.WRONG, statistics.POINT_KEY]
        if wrong.empty:
            return self
        keys = pandas.MultiIndex.from_frame(self.rows[statistics.POINT_KEY])
        left_out = keys.isin(pandas.MultiIndex.from_frame(wrong)) & (self.rows["source"] == "measured").array
        return replace(self, rows=self.rows[~left_out])

    def points(self, study: str) -> pandas.DataFrame:
        """Return a study's lines of the summary, with the peak memory of training; counts are whole numbers."""
        lines, rows = self.summary[self.summary["study"] == study], self.newest(study)
        peaks = rows[rows["phase"] == "train"].groupby(["machine", "point"])["peak_memory_bytes"].max()
        return lines.astype(dict.fromkeys(COUNTS, "Int64")).join(peaks, on=["machine", "point"])


# Caches a table for each evidence: charts, quantities and costs ask for the same tables.
cached = lru_cache(maxsize=8)


def most_samples(points: pandas.DataFrame, alike: list[str]) -> pandas.DataFrame:
    """Return the point with the most images among points that agree, such as those of quick and paper.

    Args:
        points: lines of a summary; num_samples may be missing, as for a point that failed.
        alike: columns in which points of one group agree.
    """
    most_last = points.sort_values("num_samples", kind="stable", na_position="first")
    return most_last.drop_duplicates(alike, keep="last").sort_index()


@dataclass(frozen=True, repr=False)
class Drawing:
    """A chart that was drawn, with the numbers behind it.

    Attributes:
        figure: the title of its first axes is the caption; None if there is nothing to draw.
        table: the numbers in the figure.
        kind: of chart, in words, for the alternative text.
        tables: further tables of the chart, by file name.
    """

    figure: Figure | None
    table: pandas.DataFrame
    kind: str
    tables: dict[str, pandas.DataFrame] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.figure:
            figures.take_literally(self.figure)

    @property
    def alt(self) -> str:
        """Return the alternative text for readers who cannot see the figure: kind of chart and titles."""
        titles = [" ".join(axes.get_title(loc="left").split()) for axes in self.figure.axes]
        return " ".join(f"{text}." for text in (self.kind, *titles) if text)

    @classmethod
    def of_pictures(cls, rows: dict[str, numpy.ndarray], title: str, **look) -> "Drawing":
        """Return rows of pictures, one above the other, with each row's name at its left.

        Args:
            rows: pixels from 0 to 1 by name, all of one shape: (n, height, width), or (n, height, width, 3) in colour.
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
        return (figures.render(self.figure), {"alt": self.alt}) if self.figure else None


@dataclass(frozen=True)
class Headline:
    """The quantity that answers a study's question, wherever an answer is shown.

    Attributes:
        chart: the name of the chart that draws it; see `Study.lead`.
        quantity: its column in the table of that chart.
        unit: of the quantity: a time (a key of SECONDS) over a work, as in minutes/epoch, or a work over a second.
        sentence: from the drawn lines to the answer, in the unit that the question asks for; see `findings.Sentence`.
        by_accelerator: whether a CPU alone leaves the question undecided.
    """

    chart: str
    quantity: str
    unit: str
    sentence: Callable[[pandas.DataFrame, naming.Names], str]
    by_accelerator: bool = False

    def seconds(self, values: pandas.DataFrame, work: float) -> pandas.DataFrame:
        """Return how many seconds so much work takes at values of the quantity."""
        time = SECONDS.get(self.unit.partition("/")[0])
        return work * time * values if time else work / values


@dataclass(frozen=True, eq=False)
class Study:
    """One question, with the charts and quantities of its results.

    Attributes:
        name: of its notebook, without the number.
        title: short name for display.
        charts: of `charts`, in the report's order.
        headline: the answer to its question.
        article: whose figures the study repeats; empty if there is no article.
        claim: id of the article's claim that the notebook's title asks about; may be empty.
        dataset: the article's. A finding on other data names the stand-in; empty: it does not.
        quantities: from the evidence to measured or computed quantities, as `quantities.gather` returns them.
    """

    name: str
    title: str
    charts: tuple
    headline: Headline
    article: str = ""
    claim: str = ""
    dataset: str = ""
    quantities: Callable[[Evidence], list[dict]] = lambda evidence: []

    @property
    def lead(self):
        """Return the chart of the headline."""
        return next(chart for chart in self.charts if chart.name == self.headline.chart)

    @property
    def question(self) -> str:
        """Return the question in the notebook's title."""
        return layout.question(self.name)
