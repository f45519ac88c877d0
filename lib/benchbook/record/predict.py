"""Predict the training rate of a chip for a work from the public record, as a range, or refuse.

The rules and their errors are in `rules`. An answer whose range would be wider than a factor of WIDEST to each side is
refused.
"""

import difflib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy
import pandas

from benchbook.judging import wording
from benchbook.machine import precisions
from benchbook.record import articles, chips, observations, rules
from benchbook.record.observations import IMAGES, LANGUAGE_MODELS
from benchbook.record.rules import LEARNED, PLAIN
from benchbook.rows import networks

PRECISIONS = tuple(name for name in precisions.PRECISIONS if name != "fp64")  # the record has no rates of fp64
WIDEST = 5.0
BEYOND = 2.0  # allowed factor below the fewest and above the most operations on record
NEAREST = 3
LORA = "LoRA is not predicted: published trainings state neither the lengths of their samples nor their operations"


class Unknown(ValueError):
    """The record lacks something that a prediction needs; the message names it."""


@dataclass(frozen=True)
class Question:
    """A question: which chip, which work, in which precision.

    Attributes:
        chip: any of its names.
        work: a study or a network; empty if the operations are given.
        precision: one of PRECISIONS.
        flops_per_sample: operations of a training step for one image; None: those of the work.
        image_size: pixels of a side; None: the size at which the work's operations were counted.
        batch_size: None: one that keeps the chip busy.
        sequence_length: tokens; None: the length at which the work's operations were counted.
    """

    chip: str
    work: str = ""
    precision: str = "fp32"
    flops_per_sample: float | None = None
    image_size: float | None = None
    batch_size: float | None = None
    sequence_length: float | None = None


@dataclass(frozen=True)
class Range:
    """A predicted rate: images or sequences a second, with its 90 % interval.

    Attributes:
        value: the middle.
        low: the lower bound.
        high: the upper bound.
        rule: its name.
        basis: the rule and its error in words.
    """

    value: float
    low: float
    high: float
    rule: str
    basis: str


def rate(question: Question) -> Range:
    """Return the predicted rate.

    Raises:
        Unknown: there is no prediction; the message says why. This includes an unknown work, and UnknownChip is raised
            for an unknown chip, both with the nearest names.
        ValueError: the precision or the number of operations is not possible.
    """
    (answer,) = rates([question])
    if isinstance(answer, Unknown):
        raise answer
    return answer


def rates(questions: Sequence[Question]) -> list[Range | Unknown]:
    """Return the answer to each question, see `rate`, or the reason why there is none.

    Where a chip has matrix units, fp32 is no faster than TF32, and TF32 no faster than 16 bits: an answer is limited by
    those of faster precisions, because rates in fp32 of chips with TF32 are hardly published.
    """
    asked = [_targets(question) for question in questions]
    targets = [target for each in asked if isinstance(each, list) for target in each]
    for kind, of_kind in rules.by_kind().items():
        if own := [target for target in targets if target["kind"] == kind]:
            table = pandas.DataFrame(own)
            (learned, deviations), (plain, _) = (rule.predict(rule.encode(table)) for rule in of_kind.values())
            for target, *numbers in zip(own, learned, plain, deviations, strict=True):
                target |= zip((LEARNED, PLAIN, "deviation"), numbers, strict=True)
    answers = zip(questions, asked, strict=True)
    return [_answer(question, each) if isinstance(each, list) else each for question, each in answers]


def _targets(question: Question) -> list[dict] | Unknown:
    """Return the question as a line of its kind's table, and those in the precisions that matrix units make no slower.

    Raises:
        UnknownChip, ValueError: see `rate`.
    """
    try:
        first = _target(question)
        faster = {"fp32": ("tf32", "bf16"), "tf32": ("bf16",)}.get(first["family"], ())
        if "matrix_tflops" not in chips.specification(first["chip"]):
            faster = ()
        faster = [name for name in faster if name != "tf32" or chips.has_tf32(first["chip"])]
        return [first, *(_target(replace(question, precision=name)) for name in faster)]
    except Unknown as reason:
        return reason


def _target(question: Question) -> dict:
    """Return the question as a line of its kind's table, without a speed.

    Raises:
        Unknown, UnknownChip, ValueError: see `rate`.
    """
    if question.precision not in PRECISIONS:
        raise ValueError(f"precision {question.precision!r}; allowed: {', '.join(PRECISIONS)}")
    if question.flops_per_sample is not None and not question.flops_per_sample > 0:
        raise ValueError(f"operations {question.flops_per_sample:g}; allowed: more than 0")
    chip = chips.resolve(question.chip)
    if question.precision == "tf32" and not chips.has_tf32(chip):
        raise Unknown(f"{chip} has no units for TF32; ask for fp32")
    if "lora" in question.work.lower():
        raise Unknown(LORA)
    if not question.work and not question.flops_per_sample:
        raise Unknown("no work was given; allowed: a study, a network, or the operations of an image")
    figures = observations.chip_figures(chip, question.precision)
    missing = [name for name in ("fp32 figure", "bandwidth") if math.isnan(figures[name.partition(" ")[0]])]
    if missing:
        raise Unknown(f"{chip}: no {' and no '.join(missing)} was published (chips.csv)")
    work = networks.describe(question.work, question.image_size, question.sequence_length)
    operations = question.flops_per_sample or work.flops_per_sample
    known = figures | {"chip": chip, "precision": question.precision, "network": work.name, "setting": ""}
    if work.sequence_length:
        if operations is None:
            raise _unknown_work(question.work)
        of = {"kind": LANGUAGE_MODELS, "work": f"{LANGUAGE_MODELS} of {figures['vendor']}"}
        return known | of | {"unit": math.log(1e12 / operations)}
    usual, least, most = _on_record()
    if operations is None and work.name not in usual:
        raise _unknown_work(question.work)
    if operations and not least / BEYOND <= operations <= most * BEYOND:
        raise Unknown(
            f"{networks.title(work.name) or 'the network'} takes {wording.number(operations)} operations an image;"
            f" works on record take {wording.number(least)} to {wording.number(most)}, too different for a prediction"
        )
    named = observations.work_name(work.name, work.image_size) if work.image_size else usual.get(work.name, "")
    known |= {"kind": IMAGES, "work": named, "flops_per_sample": operations or math.nan, "unit": 0.0}
    known |= {"publication": "", "framework": "pytorch", "no_update": 0.0}
    return known | {"batch_size": question.batch_size or observations.BATCH}


@functools.cache
def _on_record() -> tuple[dict[str, str], float, float]:
    """Return the usual work of each network on record, and the fewest and most operations of an image."""
    lines = observations.images()
    usual = lines.groupby("network")["work"].agg(lambda own: own.mode()[0]).to_dict()
    return usual, *lines.loc[lines["origin"].eq(observations.RECORD), "flops_per_sample"].agg(["min", "max"])


def _unknown_work(name: str) -> Unknown:
    """Return the refusal of a work that the record does not hold, with the nearest names."""
    listed = networks.table()
    known = {*listed.index, *observations.images()["network"], *"|".join(listed["aliases"]).split("|")} - {""}
    near = difflib.get_close_matches(name.lower(), {each.lower(): each for each in known}, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"allowed: {', '.join(sorted(listed.index))}"
    return Unknown(f"work {name!r} is not on record; {hint}")


def _answer(question: Question, targets: list[dict]) -> Range | Unknown:
    """Return the answer from the question's target, which is the first, and those of faster precisions."""
    group = tuple(targets[0][name] for name in rules.GROUP)
    try:
        ranges = [_by_rule(target) for target in targets]
    except Unknown as reason:
        return reason
    bounds = numpy.min([[middle - width, middle, middle + width] for _, middle, width in ranges], axis=0)
    if question.batch_size:
        bounds = numpy.minimum(bounds, math.log(question.batch_size / _shortest_step()))
    low, value, high = map(float, numpy.exp(bounds))
    rule = ranges[0][0]
    return Range(value, low, high, rules.by_kind()[group[0]][rule].name, rules.basis(rule, *group))


def _by_rule(target: dict) -> tuple[str, float, float]:
    """Return LEARNED or PLAIN, which answers, the logarithm of its rate, and the half-width of its interval.

    Raises:
        Unknown: too few products are on record, or the interval is too wide.
    """
    if math.isnan(target[LEARNED]):
        raise Unknown(
            f"{target['work']} in {target['family']}: fewer than {observations.FEWEST_PRODUCTS} products on record"
        )
    width = rules.DEVIATIONS * target["deviation"]
    if width > math.log(WIDEST):
        raise Unknown(
            f"{target['chip']} in {target['precision']} is too unlike the chips on record: the range would be a factor"
            f" of {math.exp(width):.1f} to each side; allowed: {WIDEST:g}"
        )
    rule = LEARNED if math.isnan(target[PLAIN]) else rules.chosen(*(target[name] for name in rules.GROUP))[0]
    return rule, target[rule] + target["unit"], width


@functools.cache
def _shortest_step() -> float:
    """Return the seconds of the shortest step on record."""
    lines = observations.images()
    return float((lines["batch_size"] / lines["rate"]).min())


def nearest(question: Question) -> pandas.DataFrame:
    """Return the published rates nearest to a question: same network, product and family, then similar chips.

    Returns:
        Columns: chip, work, precision, rate (of one device; images or sequences a second), sequence_length (tokens; NaN
        for images), source.
    """
    network, chip = networks.describe(question.work), chips.specification(question.chip)
    is_lora = "lora" in question.work.lower()
    lines = observations.images()
    if is_lora or network.sequence_length:
        lines = articles.read()
        lines = lines[lines["rate"].gt(0) & lines["refused"].eq("") & lines["sequence_length"].gt(0)]
        lines = lines[lines["network"].str.contains("lora", case=False).eq(is_lora)]
        tokens = lines["sequence_length"].map(", {:,.0f} tokens".format)
        lines = lines.assign(work=lines["network"] + tokens, rate=lines["rate"] / lines["device_count"])
    printed = chips.table().reindex(lines["chip"]).reset_index(drop=True).set_index(lines.index)
    bandwidths = numpy.log(printed["bandwidth_gb_s"] / chip.get("bandwidth_gb_s", math.nan)).abs().fillna(2.0)
    precision = lines["computed"].fillna(lines["precision"])
    families = {name: each.family for name, each in precisions.PRECISIONS.items()}
    other_family = precision.map(families).ne(families.get(question.precision))
    distance = bandwidths + 3.0 * lines["network"].ne(network.name) + 2.0 * printed["product"].ne(chip["product"])
    distance += 1.0 * printed["vendor"].ne(chip["vendor"]) + 1.0 * other_family
    near = lines.assign(precision=precision).loc[distance.sort_values(kind="stable").index[:NEAREST]]
    near["source"] = [articles.citation(line) for line in near.to_dict("records")]
    return near[["chip", "work", "precision", "rate", "sequence_length", "source"]].reset_index(drop=True)
