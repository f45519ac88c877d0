"""Predictions for the report: their errors, our studies on chips without measurements, and the rule of cores."""

import pandas

from benchbook.judging import wording
from benchbook.record import chips, observations, predict
from benchbook.record.naming import Names
from benchbook.record.observations import RECORD, Unknown
from benchbook.record.predict import BOTH, CHIP, REGRESSION, Question
from benchbook.studies.charts import Bars
from benchbook.studies.study import Evidence, cached

# The work of our studies in questions to the record: work, precision, side of the images.
WORKS = (
    ("resnet50_cost", "amp_fp16", 224),
    ("resnet50_cost", "fp32", 224),
    ("mobilenetv2_energy", "fp32", 128),
    ("simclr_epochs", "fp32", 32),
    ("segmentation_scaling", "fp32", 512),
    ("mnist_speedup", "fp32", None),
    ("vae_stability", "fp32", None),
)
# The report shows predictions for these chips.
SHOWN = ("Apple M1", "Apple M1 Max", "Apple M3 Max", "NVIDIA P100", "NVIDIA T4", "NVIDIA V100", "NVIDIA RTX 3090")
SHOWN += ("NVIDIA A100", "NVIDIA RTX 4090", "NVIDIA H100 80GB SXM", "NVIDIA H200 141GB SXM", "NVIDIA RTX 5090")
COLUMNS = ["study", "work", "chip", "precision", "predicted", "low", "high", "rule", "basis", "reason"]


@cached
def predictions(evidence: Evidence) -> pandas.DataFrame:
    """Return the predicted rate of each of our studies on each chip, or the reason why there is none.

    Returns:
        Columns: study, work (its name, side and precision), chip, precision, predicted, low, high (images a second,
        90 %), rule, basis, reason.
    """
    questions = [Question(chip, *work, image_size=size) for *work, size in WORKS for chip in SHOWN]
    lines = []
    for question, rate in zip(questions, predict.rates(questions), strict=True):
        size = f", {question.image_size} px" if question.image_size else ""
        work = f"{question.work}{size}, {question.precision}"
        line = {"study": question.work, "work": work, "chip": question.chip, "precision": question.precision}
        if isinstance(rate, Unknown):
            lines.append(line | {"reason": str(rate)})
        else:
            line |= {"predicted": rate.value, "low": rate.low, "high": rate.high}
            lines.append(line | {"rule": rate.rule, "basis": rate.basis})
    return pandas.DataFrame(lines, columns=COLUMNS)


@cached
def errors(evidence: Evidence) -> pandas.DataFrame:
    """Return the errors of the rules that predict, see `predict.errors`."""
    return predict.errors()


def error_title(table: pandas.DataFrame, names: Names | None = None) -> str:
    """Return the median errors of predictions of the record's rates, in a sentence; `table` is from `errors`."""
    own = table[table["group"].eq(RECORD) & table["rule"].eq(REGRESSION)].set_index("situation")
    chip, both = (wording.percent(own.loc[hidden, "median_error"]) for hidden in (CHIP, BOTH))
    return f"Predictions miss a hidden chip's speed by {chip} (median), and by {both} with its publication hidden too"


@cached
def core_pairs(evidence: Evidence) -> pandas.DataFrame:
    """Return the pairs of chips of one architecture that trained the same work in one publication.

    Returns:
        Columns: vendor, publication, setting, chip, chip_larger, core_ratio and speed_ratio (the chip with more cores
        over the other). A chip sold in several sizes counts as the largest, unless the publication names the size.
    """
    lines = observations.published()
    lines = lines.merge(chips.table()[["architecture", "cores"]].dropna(), left_on="chip", right_index=True)
    alike = ["vendor", "architecture", "publication", "setting", "batch_size"]
    rates = lines.groupby([*alike, "chip", "cores"], as_index=False)["rate"].median()
    pairs = rates.merge(rates, on=alike, suffixes=("", "_larger"))
    pairs = pairs[pairs["cores"] < pairs["cores_larger"]]
    ratios = {"core_ratio": pairs["cores_larger"] / pairs["cores"], "speed_ratio": pairs["rate_larger"] / pairs["rate"]}
    pairs = pairs.assign(**ratios)
    columns = ["vendor", "publication", "setting", "chip", "chip_larger", "core_ratio", "speed_ratio"]
    return pairs[columns].reset_index(drop=True)


CHARTS = (
    Bars(
        "prediction-errors",
        "How fast is a machine that was not measured?",
        "Predictions use the public record: the chip's published specifications, the work's operations, and published"
        " measurements. To test them, each published rate is predicted with its chip hidden, and with its publication"
        " hidden as well; the plain ratio is tested on the same rates, and answers where it is as good.",
        table=errors,
        lines=lambda table, evidence: table[table["group"].eq(RECORD) & table["situation"].isin([CHIP, BOTH])],
        title=error_title,
        column="median_error",
        label=("rule", "situation"),
        text="{median_error:.0%} of {pairs:.0f}",
        least_first=True,
        percent=True,
        xlabel="median error, with the published rate hidden",
        tables={"predictions": predictions, "scaling": core_pairs},
    ),
)
