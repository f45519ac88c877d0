"""Predictions for the report: their errors, our studies on chips without measurements, and the rule of cores."""

import warnings

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook.judging import wording
from benchbook.record import chips, model, rates
from benchbook.record.forecast import Forecaster, Question, of_the_record
from benchbook.record.model import BOTH, CHIP, ONE_KNOWN
from benchbook.record.naming import Names
from benchbook.record.rates import RECORD, Unknown
from benchbook.studies import figures
from benchbook.studies.charts import Bars, Points
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
    """Return the median errors of predictions of the record's rates, in a sentence; `table` is from `errors`."""
    own = table[table["group"].eq(RECORD) & table["rule"].eq(MODEL)].set_index("situation")
    chip, both = (wording.percent(own.loc[hidden, "median_error"]) for hidden in (CHIP, BOTH))
    return f"Predictions miss a hidden chip's speed by {chip} (median), and by {both} with its publication hidden too"


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


def cores_title(pairs: pandas.DataFrame, names: Names | None = None) -> str:
    """Return the rule of cores' median error by maker of chips, in a sentence; `pairs` is from `core_pairs`."""
    errors = numpy.log(pairs["core_ratio"] / pairs["speed_ratio"]).abs().groupby(pairs["vendor"])
    factors = numpy.exp(errors.median())
    parts = [f"{factors[vendor]:.1f} ({vendor}, {count} pairs)" for vendor, count in errors.size().items()]
    return f"Dividing a time by GPU cores is off by a factor of {wording.joined(parts)}"


def _draw_rule(axes: Axes, pairs: pandas.DataFrame, style: dict) -> None:
    most = pairs["core_ratio"].max()
    if not axes.texts:
        axes.text(most, most, "in proportion to cores ", fontsize=8, ha="right", va="bottom")
    axes.plot([1, most], [1, most], color=figures.COLOURS["line"])


CHARTS = (
    Bars(
        "prediction-errors",
        "How fast is a machine that was not measured?",
        "Predictions use the public record: the chip's published specifications, the work's operations, and published"
        " measurements. To test them, each published rate is predicted with its chip hidden, and with its publication"
        " hidden as well; simple rules are tested on the same rates. The answer pages show the predictions. Questions"
        " too unlike the record are refused.",
        table=errors,
        lines=lambda table, evidence: table[table["group"].eq(RECORD) & table["situation"].isin([CHIP, BOTH])],
        title=error_title,
        column="median_error",
        label=("rule", "situation"),
        text="{median_error:.0%} of {pairs:.0f}",
        least_first=True,
        percent=True,
        xlabel="median error, with the published rate hidden",
        tables={"predictions": lambda evidence: predictions(learn(evidence))},
    ),
    Points(
        "scaling",
        "Can the speed of a bigger chip be guessed?",
        "Each dot compares two chips of one architecture that trained the same work in one publication. On the line,"
        " speed is proportional to cores, as the segmentation article assumed.",
        table=core_pairs,
        lines=lambda pairs, evidence: pairs.assign(machine=pairs["vendor"]),
        title=cores_title,
        x="core_ratio",
        column="speed_ratio",
        by=["vendor"],
        joined=False,
        also=_draw_rule,
        xlabel="GPU cores, larger chip over smaller",
        ylabel="speed, larger chip over smaller",
        from_zero=True,
    ),
)
