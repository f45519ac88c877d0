"""Predict the training rate of a chip for a work from the public record, as a range, or refuse.

The rules and their errors are in `rules`. A refusal has the nearest published rate.
"""

import difflib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy
import pandas

from benchbook.machine import precisions
from benchbook.record import articles, chips, observations, rules
from benchbook.record.observations import FEWEST_PRODUCTS
from benchbook.rows import networks

PRECISIONS = tuple(
    name for name in precisions.PRECISIONS if name != "fp64"
)  # the record has no rates of fp64
MEASURED, PUBLISHED, PREDICTED = "measured", "published", "predicted"
NEAREST = 3


@dataclass(frozen=True)
class Question:
    """A question: which chip, which work, in which precision.

    Attributes:
        chip: any of its names.
        work: a study or a network.
        precision: one of PRECISIONS.
        image_size: pixels of a side; None: the usual size of the work.
        batch_size: None: one that keeps the chip busy.
        sequence_length: tokens; None: the length at which the work's operations were counted.

    Raises:
        ValueError: an unknown precision.
    """

    chip: str
    work: str = ""
    precision: str = "fp32"
    image_size: float | None = None
    batch_size: float | None = None
    sequence_length: float | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r}; allowed: {', '.join(PRECISIONS)}")


class Unknown(ValueError):
    """The record lacks something that a prediction needs; the message names it."""

    def __init__(self, message: str, question: Question | None = None):
        super().__init__(message)
        self.question = question

    @property
    def nearest(self) -> str:
        """The nearest published rate with its source; empty if the work has an unknown name."""
        return nearest_rate(self.question) if self.question else ""


@dataclass(frozen=True)
class Estimate:
    """A rate with its 90 % interval, and the evidence for it.

    Attributes:
        value, low, high: samples a second of all devices together.
        kind: MEASURED, PUBLISHED or PREDICTED.
        basis: how sure it is, in words.
        sources: citations, separated by " | ".
        publications: how many published it; a prediction has none.
        chip: its canonical name, or any other name.
        work: a name of `observations.work_name`.
        family: of precisions; a key of `observations.FAMILIES`.
        devices: that train together.
        expected: the rate that the chip's specifications predict; NaN without.
        each: the rate of each figure.
    """

    value: float
    low: float
    high: float
    kind: str
    basis: str = ""
    sources: str = ""
    publications: int = 0
    chip: str = ""
    work: str = ""
    family: str = ""
    devices: int = 1
    expected: float = math.nan
    each: tuple[float, ...] = ()


def rate(question: Question) -> Estimate:
    """Return the predicted rate.

    Raises:
        Unknown: there is no prediction; the message says why. This includes an unknown work, and
        UnknownChip is raised
            for an unknown chip, both with the nearest names.
    """
    (answer,) = rates([question])
    if isinstance(answer, Unknown):
        raise answer
    return answer


def rates(questions: Sequence[Question]) -> list[Estimate | Unknown]:
    """Return the answer to each question, see `rate`, or the reason why there is none.

    No answer is above the chip's peak. Where a chip has matrix units, fp32 is no faster than
    TF32, and TF32 no faster than 16 bits: an answer is limited by those of faster precisions,
    because rates in fp32 of chips with TF32 are hardly published.
    """
    asked = [_targets(question) for question in questions]
    targets = [target for each in asked if isinstance(each, list) for target in each]
    found = rules.regression().predict(pandas.DataFrame(targets)) if targets else ((), ())
    for target, speed, deviation in zip(targets, *found, strict=True):
        width = rules.DEVIATIONS * deviation
        bounds = speed + numpy.array([-width, 0, width])
        target["bounds"] = numpy.minimum(bounds, target["limit"])
    answers = zip(questions, asked, strict=True)
    return [
        _answer(question, each) if isinstance(each, list) else each for question, each in answers
    ]


def _targets(question: Question) -> list[dict] | Unknown:
    """Return the question as a line of `observations.images`, and those in the precisions that
    matrix units make no slower.

    Raises:
        UnknownChip: see `rate`.
    """
    try:
        targets = [_target(question)]
    except Unknown as reason:
        return reason
    faster = {"fp32": ("tf32", "bf16"), "tf32": ("bf16",)}.get(targets[0]["family"], ())
    for precision in faster if "matrix_tflops" in chips.specification(targets[0]["chip"]) else ():
        try:
            targets.append(_target(replace(question, precision=precision)))
        except Unknown:  # such a precision limits nothing
            continue
    return targets


def _target(question: Question) -> dict:
    """Return the question as a line of `observations.images`, without a speed.

    Returns:
        Also: limit (the logarithm of images a second at the chip's peak).

    Raises:
        Unknown, UnknownChip: see `rate`.
    """
    chip = chips.resolve(question.chip)
    if not question.work:
        raise Unknown("no work was given; allowed: a study or a network")
    work = networks.describe(question.work, question.image_size, question.sequence_length)
    if work.sequence_length or _is_lora(question):
        raise Unknown(
            "no rate of a language model is predicted: those on record vary too much", question
        )
    operations, named = work.flops_per_sample, _usual_work(work)
    if operations is None and named not in _products():
        raise _unknown_work(question.work)
    known = observations.chip_figures(chip, question.precision)
    known = known | {"chip": chip, "work": named, "framework": "pytorch", "no_update": 0.0}
    if reason := _missing(question, work, known):
        raise Unknown(reason, question)
    most = math.log(1e12 / operations) if operations else math.inf
    return known | {"limit": known["peak"] + most}


def _missing(question: Question, work: networks.Network, line: dict) -> str:
    """Return what the record lacks for an answer; empty if it lacks nothing."""
    chip, vendor, family = (line[name] for name in ("chip", "vendor", "family"))
    if question.precision == "tf32" and not chips.has_tf32(chip):
        return f"{chip} has no units for TF32; ask for fp32"
    if missing := [name for name in ("fp32", "bandwidth") if math.isnan(line[name])]:
        return f"{chip}: no {' and no '.join(missing)} figure was published (chips.csv)"
    if family != "fp32" and (reason := chips.contradiction(chip)):
        return reason
    title = networks.title(work.name)
    shown: dict[str, str | tuple[str, str]] = {line["work"].replace(work.name, title): line["work"]}
    shown[f"images on chips of {vendor} in {family.replace('half', '16 bits')}"] = (vendor, family)
    for what, key in shown.items():
        if _products().get(key, 0) < FEWEST_PRODUCTS:
            return f"{what}: fewer than {FEWEST_PRODUCTS} products on record"
    return ""


def _is_lora(question: Question) -> bool:
    return "lora" in question.work.lower()


@functools.cache
def _products() -> dict[str | tuple[str, str], int]:
    """Return the number of products with rates on record by work, and by vendor and family of
    precisions."""
    lines = observations.images()
    grouped = (
        lines.groupby(names)["product"].nunique() for names in ("work", ["vendor", "family"])
    )
    return {key: count for counts in grouped for key, count in counts.items()}


@functools.cache
def _usual_work(network: networks.Network) -> str:
    """Return a network's work on record; without a size the most usual one."""
    lines = observations.images()
    usual = lines.loc[lines["network"].eq(network.name), "work"].mode()
    is_sized = network.image_size or usual.empty
    return observations.work_name(network.name, network.image_size or 0) if is_sized else usual[0]


def _unknown_work(name: str) -> Unknown:
    """Return the refusal of a work that the record does not hold, with the nearest names."""
    listed = networks.table()
    known = {
        *listed.index,
        *observations.images()["network"],
        *"|".join(listed["aliases"]).split("|"),
    } - {""}
    near = difflib.get_close_matches(
        name.lower(), {each.lower(): each for each in known}, n=2, cutoff=0.5
    )
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"allowed: {', '.join(sorted(listed.index))}"
    )
    return Unknown(f"work {name!r} is not on record; {hint}")


def _answer(question: Question, targets: list[dict]) -> Estimate:
    """Return the answer from the question's target, which is the first, and those of faster
    precisions."""
    bounds = numpy.min([target["bounds"] for target in targets], axis=0)
    if question.batch_size:
        bounds -= max(0.0, bounds[2] - math.log(question.batch_size / shortest_step()))
    low, high = map(float, numpy.exp(bounds[[0, 2]]))
    chip, vendor, family = (targets[0][name] for name in ("chip", "vendor", "family"))
    value = min(float(numpy.exp(bounds[1])), math.sqrt(low * high))
    work = networks.describe(question.work, question.image_size, question.sequence_length)
    return Estimate(
        value, low, high, PREDICTED, rules.basis(vendor, family),
        "Predicted by benchbook from the public record", chip=chip,
        work=observations.work_name(work.name, work.image_size or 0),
        family=observations.family_of(question.precision), expected=value,
    )  # fmt: skip


@functools.cache
def shortest_step() -> float:
    """Return the seconds of the shortest step on record."""
    lines = observations.images()
    return float((lines["batch_size"] / lines["rate"]).min())


def nearest(question: Question) -> pandas.DataFrame:
    """Return the published rates nearest to a question: same network, product and family, then
    similar chips.

    Returns:
        Columns: chip, work, precision, rate (of one device; images or sequences a second),
        sequence_length (tokens; NaN for images), source.
    """
    network, chip = networks.describe(question.work), chips.specification(question.chip)
    lines = _published(bool(network.sequence_length), _is_lora(question))
    family = precisions.PRECISIONS[question.precision].family
    distance = numpy.abs(numpy.log(lines["bandwidth_gb_s"] / chip.get("bandwidth_gb_s", math.nan)))
    distance = distance.fillna(2.0) + 3.0 * lines["network"].ne(network.name)
    distance += 2.0 * lines["product"].ne(chip["product"])
    distance += 1.0 * lines["vendor"].ne(chip["vendor"]) + 1.0 * lines["family"].ne(family)
    near = lines.loc[distance.sort_values(kind="stable").index[:NEAREST]]
    return near[["chip", "work", "precision", "rate", "sequence_length", "source"]].reset_index(
        drop=True
    )


@functools.cache
def _published(of_tokens: bool, is_lora: bool) -> pandas.DataFrame:
    """Return the published rates of one device with the figures of their chips."""
    lines = observations.images().drop(columns=["product", "vendor"])
    if is_lora or of_tokens:
        lines = articles.read()
        lines = lines[
            lines["rate"].gt(0) & lines["refused"].eq("") & lines["sequence_length"].gt(0)
        ]
        lines = lines[lines["network"].str.contains("lora", case=False).eq(is_lora)]
        tokens = lines["sequence_length"].map(", {:,.0f} tokens".format)
        lines = lines.assign(
            work=lines["network"] + tokens, rate=lines["rate"] / lines["device_count"]
        )
    families = {name: each.family for name, each in precisions.PRECISIONS.items()}
    precision = lines["computed"].fillna(lines["precision"])
    cited = [articles.citation(line) for line in lines.to_dict("records")]
    lines = lines.assign(precision=precision, family=precision.map(families), source=cited)
    columns = [
        "chip",
        "network",
        "work",
        "precision",
        "family",
        "rate",
        "sequence_length",
        "source",
    ]
    known = chips.table()[["product", "vendor", "bandwidth_gb_s"]]
    return lines[columns].join(known, on="chip").reset_index(drop=True)


@functools.cache
def nearest_rate(question: Question) -> str:
    """Return the published rate that is nearest to a question, with its source."""
    line = nearest(question).iloc[0]
    tokens = line["sequence_length"]
    rate = (
        f"{line['rate'] * tokens:,.0f} tokens/s" if tokens > 0 else f"{line['rate']:,.0f} images/s"
    )
    return f"{rate}: {line['chip']}, {line['work']}, {line['precision']} ({line['source']})"
