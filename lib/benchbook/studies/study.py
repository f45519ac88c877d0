"""What a study gives the report: charts, quantities for claims, and the answer to its question.

Each study defines one `Study`, named STUDY, in `benchbook.studies.<name>.study`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas

from benchbook.machine import layout
from benchbook.record import naming
from benchbook.studies.results.evidence import SECONDS, Evidence


@dataclass(frozen=True)
class Headline:
    """The quantity that answers a study's question, wherever an answer is shown.

    Attributes:
        chart: the name of the chart that draws it; see `Study.lead`.
        quantity: its column in the table of that chart.
        unit: of the quantity: a time (a key of SECONDS) over a work, as in minutes/epoch, or a
        work over a second.
        sentence: from the drawn lines to the answer, in the unit that the question asks for; see
        `findings.Sentence`.
        by_accelerator: whether a CPU alone leaves the question undecided.
        samples: in the unit's work, such as the images of an epoch.
    """

    chart: str
    quantity: str
    unit: str
    sentence: Callable[[pandas.DataFrame, naming.Names], str]
    by_accelerator: bool = False
    samples: int = 1

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
        quantities: from the evidence to measured or computed quantities, as `quantities.gather`
        returns them.
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
