"""Predictions for the report: their errors, our studies on chips without measurements, and the rule of cores."""

import warnings

import numpy
import pandas

from benchbook.judging import wording
from benchbook.record import chips, model, rates
from benchbook.record.forecast import Forecaster, Question, of_the_record
from benchbook.record.model import BOTH, CHIP, ONE_KNOWN
from benchbook.record.naming import Names
from benchbook.record.rates import RECORD, Unknown
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
MODEL = "benchbook"
RULES = ("ratio of cores", "ratio of peaks", "ratio of bandwidths", "half peak, half bandwidth")
WORDS = {
    MODEL: "prediction from the record",
    "ratio of cores": "in proportion to cores",
    "ratio of peaks": "in proportion to peak arithmetic",
    "ratio of bandwidths": "in proportion to memory bandwidth",
    "half peak, half bandwidth": "in proportion to peak and bandwidth, half each",
}
COLUMNS = ["study", "work", "chip", "precision", "predicted", "low", "high", "basis", "reason"]


@cached
def learn(evidence: Evidence) -> Forecaster:
    """Return a forecaster fitted to the record and the measured rows."""
    own = rates.of_points(evidence.summary, evidence.ceilings)
    return Forecaster(own) if len(own) else of_the_record()


def predictions(forecaster: Forecaster) -> pandas.DataFrame:
    """Return the predicted rate of each of our studies on each chip, or the reason why there is none.

    Returns:
        Columns: study, work (its name, side and precision), chip, precision, predicted, low, high (images a second,
        90 %), basis, reason.
    """
    questions = [Question(chip, *work, image_size=size) for *work, size in WORKS for chip in chips.SHOWN]
    lines = []
    for question, rate in zip(questions, forecaster.rates(questions), strict=True):
        size = f", {question.image_size} px" if question.image_size else ""
        work = f"{question.work}{size}, {question.precision}"
        line = {"study": question.work, "work": work, "chip": question.chip, "precision": question.precision}
        if isinstance(rate, Unknown):
            lines.append(line | {"reason": str(rate)})
        else:
            lines.append(line | {"predicted": rate.value, "low": rate.low, "high": rate.high, "basis": rate.basis})
    return pandas.DataFrame(lines, columns=COLUMNS)


@cached
def errors(evidence: Evidence) -> pandas.DataFrame:
    """Return the errors of predictions of the record's rates, and of the simple rules on the same rates.

    Returns:
        Columns: situation, group (all of the record, the articles, a family of precisions, or a maker), rule (MODEL or
        one of RULES), pairs, publications, median_error (of predicted over printed, less 1, without sign), within_2
        (the share within a factor of 2), coverage (of the 90 % intervals), half_width (the median factor from the
        middle to a bound; for a rule, the factor that covers 90 % of its errors).
    """
    lines, parts = of_the_record().model.observations, []
    by_rules = {same_setting: rules(lines, same_setting) for same_setting in (True, False)}
    for situation, some in of_the_record().published.groupby("situation", sort=False):
        estimates = by_rules[situation in (CHIP, ONE_KNOWN)].loc[some["place"]].set_index(some.index)
        some = some.assign(**estimates.sub(some["printed"], axis=0))[estimates[RULES[1]].notna()]
        for group, own in model.groups(some, ("origin", "family", "vendor")):
            head = {"situation": situation, "group": group}
            parts.append(head | {"rule": MODEL} | model.error_measures(own))
            for rule in RULES:
                off = own[[rule, "publication"]].dropna().rename(columns={rule: "off"})
                half = float(numpy.exp(model.quantile(off["off"].abs(), off["publication"])))
                parts.append(head | {"rule": rule} | model.error_measures(off) | {"half_width": half})
    return pandas.DataFrame(parts)


def rules(lines: pandas.DataFrame, same_setting: bool) -> pandas.DataFrame:
    """Return the simple rules' estimates of each observation's rate, in logarithms.

    A rule scales the rate of another chip by the ratio of the chips' figures; the estimate is the median over chips.

    Args:
        lines: observations with a new index.
        same_setting: whether to scale rates of the same setting; else rates of the same work and family of precisions
            from other publications.

    Returns:
        A column for each of RULES; missing if there is no other chip, or if the cores of a chip are not published.
    """
    logs, publications = numpy.log(lines["rate"].to_numpy(float)), lines["publication"].to_numpy()
    cores = numpy.log(chips.table()["cores"].reindex(lines["chip"]).to_numpy(float))
    peaks, bandwidths = lines["peak"].to_numpy(float), lines["bandwidth"].to_numpy(float)
    scales = numpy.column_stack([cores, peaks, bandwidths, (peaks + bandwidths) / 2])
    starts, estimates = logs[:, None] - scales, numpy.full((len(lines), len(RULES)), numpy.nan)
    products, alike = lines["product"].to_numpy(), ["setting"] if same_setting else ["work", "family"]
    for places in lines.groupby(alike).indices.values():
        hidden = lines.iloc[places].groupby(["product"] if same_setting else ["product", "publication"]).indices
        for own in (places[among] for among in hidden.values()):
            others = places[products[places] != products[own[0]]]
            others = others if same_setting else others[publications[others] != publications[own[0]]]
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # the median of no chips
                estimates[own] = numpy.nanmedian(starts[others], axis=0) + scales[own]
    return pandas.DataFrame(estimates, index=lines.index, columns=list(RULES))


def error_title(table: pandas.DataFrame, names: Names | None = None) -> str:
    """Return the median error of predictions of the record's rates, in a sentence; `table` is from `errors`."""
    own = table[table["group"].eq(RECORD) & table["rule"].isin([MODEL, WORDS[MODEL]]) & table["situation"].eq(BOTH)]
    error = wording.percent(own["median_error"].iloc[0])
    return f"Predictions miss the speed of a chip that the record does not hold by {error} (median)"


@cached
def core_pairs(evidence: Evidence) -> pandas.DataFrame:
    """Return the pairs of chips of one architecture that trained the same work in one publication.

    Returns:
        Columns: vendor, publication, setting, chip, chip_larger, core_ratio and speed_ratio (the chip with more cores
        over the other). A chip sold in several sizes counts as the largest, unless the publication names the size.
    """
    lines = learn(evidence).model.observations
    lines = lines.merge(chips.table()[["architecture", "cores"]].dropna(), left_on="chip", right_index=True)
    alike = ["vendor", "architecture", "publication", "setting", "batch_size"]
    rates = lines.groupby([*alike, "chip", "cores"], as_index=False)["rate"].median()
    pairs = rates.merge(rates, on=alike, suffixes=("", "_larger"))
    pairs = pairs[pairs["cores"] < pairs["cores_larger"]]
    ratios = {"core_ratio": pairs["cores_larger"] / pairs["cores"], "speed_ratio": pairs["rate_larger"] / pairs["rate"]}
    pairs = pairs.assign(**ratios)
    columns = ["vendor", "publication", "setting", "chip", "chip_larger", "core_ratio", "speed_ratio"]
    return pairs[columns].reset_index(drop=True)


def _in_words(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the errors with chip and publication hidden, with each rule in words."""
    own = table[table["group"].eq(RECORD) & table["situation"].eq(BOTH)]
    return own.assign(rule=own["rule"].map(WORDS))


CHARTS = (
    Bars(
        "prediction-errors",
        "How fast is a machine that was not measured?",
        "Predictions use the public record: the chip's published specifications, the work's operations, and published"
        " measurements. To test them, each published rate is predicted with its chip and its publication hidden; simple"
        " rules are tested on the same rates. The table has further situations; that of scaling compares pairs of chips"
        " of one architecture.",
        table=errors,
        lines=_in_words,
        title=error_title,
        column="median_error",
        label=("rule",),
        usual={"rule": ""},
        text="{median_error:.0%} ({pairs:.0f} rates)",
        least_first=True,
        percent=True,
        xlabel="median error of a rate whose chip and publication are hidden",
        tables={"predictions": lambda evidence: predictions(learn(evidence)), "scaling": core_pairs},
    ),
)
