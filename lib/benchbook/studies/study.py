"""What a study gives the report: charts, quantities for claims, and the answer to its question.

Each study defines one `Study`, named STUDY, in `benchbook.studies.<name>.study`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas

from benchbook.machine import layout
from benchbook.record import observations
from benchbook.rows import networks
from benchbook.studies.results.evidence import SECONDS, Evidence


@dataclass(frozen=True)
class Task:
    """A training task that the start page compares machines by.

    Attributes:
        key: its name in addresses and data.
        title: its name for the reader.
        note: what is counted.
        samples: images or sequences to train on, in all epochs together.
        network: the study or network to predict; its name in the record.
        study: whose headline has measured values; empty for none.
        work: in that headline's unit, such as epochs; 0: as many as samples.
        where: values that the task's own lines of the headline's table have, by column.
        metric: of published times to an accuracy, which are not predicted; empty: times at a rate.
    """

    key: str
    title: str
    note: str
    samples: float
    network: str
    study: str = ""
    work: float = 0
    where: Mapping[str, object] = field(default_factory=dict)
    metric: str = ""

    @property
    def described(self) -> networks.Network:
        """Return what its network takes."""
        return networks.describe(self.network)

    @property
    def work_name(self) -> str:
        """Return the name of its work in the record."""
        return observations.work_name(self.described.name, self.described.image_size or 0)


@dataclass(frozen=True, eq=False)
class Study:
    """One question, with the charts and quantities of its results.

    Attributes:
        name: of its notebook, without the number.
        title: short name for display.
        charts: of `charts`, in the report's order; the first one's title answers the question.
        quantity: the column of the first chart's table that other tables compare.
        unit: of the quantity: a time (a key of SECONDS) over a work, as in minutes/epoch, or a
        work over a second.
        article: whose figures the study repeats; empty if there is no article.
        claim: id of the article's claim that the notebook's title asks about; may be empty.
        quantities: from the evidence to measured or computed quantities, as `quantities.gather`
        returns them.
        priced: how much of the answer's work has its rent named, and its words to begin a
        sentence; 0: none.
        by_accelerator: whether the question asks about a GPU or a TPU.
        tasks: of the start page.
    """

    name: str
    title: str
    charts: tuple
    quantity: str
    unit: str
    article: str = ""
    claim: str = ""
    quantities: Callable[[Evidence], list[dict]] = lambda evidence: []
    priced: tuple[float, str] = (0, "")
    by_accelerator: bool = False
    tasks: tuple[Task, ...] = ()

    @property
    def lead(self):
        """Return the chart whose title answers the question."""
        return self.charts[0]

    @property
    def question(self) -> str:
        """Return the question in the notebook's title."""
        return layout.question(self.name)

    def seconds(self, values: pandas.DataFrame, work: float) -> pandas.DataFrame:
        """Return how many seconds so much work takes at values of the quantity."""
        time = SECONDS.get(self.unit.partition("/")[0])
        return work * time * values if time else work / values
