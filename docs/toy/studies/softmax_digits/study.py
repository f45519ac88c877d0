"""The results: one table, one chart, one sentence."""

from benchbook.studies.charts.plots import Bars
from benchbook.studies.results.answers import Template
from benchbook.studies.results.tables import inverse
from benchbook.studies.study import Study

IMAGES = 60_000
ANSWER = Template(
    f"{{number}}{{bounds}} to train softmax regression on {IMAGES:,} images on {{place}}",
    "seconds",
    "s",
    "least",
)
CHART = Bars(
    "softmax-times",
    table=lambda evidence: evidence.points("softmax_digits"),
    lines=lambda points, evidence: points.assign(
        **inverse(points, "samples_per_second", "seconds", IMAGES)
    ),
    title=ANSWER,
    xlabel=f"seconds for {IMAGES:,} images",
)
STUDY = Study(
    "softmax_digits", "Softmax regression", (CHART,), "samples_per_second", "images/second"
)
