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
STUDY = Study(
    name="softmax_digits",
    title="Softmax regression",
    headline=Headline("softmax-rates", "samples_per_second", "images/second", ANSWER),
    charts=(
        Bars(
            "softmax-rates", table=lambda evidence: evidence.points("softmax_digits"), title=ANSWER,
            text="{samples_per_second:,.0f} images/s", label=("variant",), alike=("dataset",), xlabel="images a second",
        ),
    ),
)  # fmt: skip
