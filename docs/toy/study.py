"""The results: one table, one chart, one sentence."""

from benchbook.judging import wording
from benchbook.studies.charts.plots import Bars
from benchbook.studies.results.findings import Sentence
from benchbook.studies.study import Headline, Study

IMAGES = 60_000
ANSWER = Sentence(
    f"Softmax regression reads {IMAGES:,} images in {{value}} on {{place}}", "Nothing was measured here yet",
    "samples_per_second", wording.duration, "most", work=IMAGES,
)  # fmt: skip
CHART = Bars(
    "softmax-rates",
    table=lambda evidence: evidence.points("softmax_digits"),
    title=ANSWER,
    xlabel="images a second",
)
ANSWERED = Headline(CHART.name, CHART.value, "images/second", ANSWER)
STUDY = Study("softmax_digits", "Softmax regression", (CHART,), ANSWERED)
