"""Estimates: the best evidence on a work and a chip or machine, and the ratio of two of them.

Evidence is ranked: measured, published, predicted. The factors of 90 % intervals hold for
publications that were hidden; `benchmarks/predictions.py` fits them and writes their table.
"""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy
import pandas

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import articles, chips, observations, pairs, predict
from benchbook.record.predict import MEASURED, PREDICTED, PUBLISHED, Estimate, Question, Unknown
from benchbook.rows import networks

FIGURE, PAIRS, OTHER_PAIRS, FIGURES, SPECIFICATIONS = KINDS = (
    "a figure",
    "pairs of this work",
    "pairs of other works",
    "two figures",
    "specifications",
)
BY_BOUNDS = "two intervals"  # of which one is measured
ONE_VENDOR, TWO_VENDORS, WIDEST = "one vendor", "two vendors", "the widest"
OLD = 3  # years from a publication to the record's newest, above which a figure is old
MOST_DEVICES = 16  # of a single machine; above, a rate depends on the connection between machines
NEAR = 1.25  # ratio up to which two are about as fast
ASKED = (  # which people compare, the slower first
    ("Apple M1", "NVIDIA A100"), ("Apple M3", "NVIDIA L4"), ("Apple M4", "NVIDIA RTX 4090"),
    ("NVIDIA RTX 3090", "NVIDIA A100"), ("NVIDIA RTX 4090", "NVIDIA A100"), ("NVIDIA V100", "NVIDIA A100"),
    ("NVIDIA A100", "NVIDIA H100"),
)  # fmt: skip
# What is said of a ratio: 1 is outside its interval, or inside and near, or inside and far. The
# start page (start.js) fills them in the same way.
FORMS = {
    "faster": "{one} is about {middle} times as fast as {other} ({low} to {high}), {basis}",
    "alike": "{one} is about as fast as {other} ({low} to {high} times), {basis}",
    "open": "{one} may be {low} to {high} times as fast as {other} (middle {middle}), {basis}",
}


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one is as another, with its 90 % interval, kind and basis in
    words."""

    value: float
    low: float
    high: float
    kind: str
    basis: str

    def in_words(self, one: str, other: str) -> str:
        """Return the sentence that says how many times as fast `one` is as `other`."""
        if self.value < 1:
            turned = Ratio(1 / self.value, 1 / self.high, 1 / self.low, self.kind, self.basis)
            return turned.in_words(other, one)
        form = "faster" if self.low > 1 else "alike" if self.value <= NEAR else "open"
        names = zip(("low", "middle", "high"), (self.low, self.value, self.high), strict=True)
        told = {name: wording.times(value) for name, value in names}
        return FORMS[form].format(one=one, other=other, basis=self.basis, **told)


@functools.cache
def bounds() -> pandas.DataFrame:
    """Return the factors below and above a value that hold in 90 % of hidden publications.

    Returns:
        Columns: kind (one of KINDS) and group, which are the index too; comparisons,
        publications (of the hidden figures or pairs); median (factor); below, above (factors).
    """
    path = layout.published() / "record" / "bounds.csv"
    return pandas.read_csv(path).set_index(["kind", "group"], drop=False)


@functools.cache
def factors(kind: str, group: str) -> tuple[float, float]:
    """Return the logarithms of the factors of a kind and group; a group with fewer than five
    publications has those of the kind's widest."""
    table = bounds()
    line = table.loc[(kind, group if (kind, group) in table.index else WIDEST)]
    return math.log(line["below"]), math.log(line["above"])


def group_of(vendor: object, other: object) -> str:
    """Return the group of a ratio by the vendors of its chips."""
    return ONE_VENDOR if vendor == other else TWO_VENDORS


def figure_group(line: dict) -> str:
    """Return the group of a published figure: vendor and family, or WIDEST if it is old."""
    is_old = not observations.year(line["article"]) >= articles.sources()["date"].max() - OLD
    vendor = chips.table()["vendor"].get(line["chip"], "")
    return WIDEST if is_old else f"{vendor}, {line['family']}"


def of_figures(lines: pandas.DataFrame, **named) -> Estimate:
    """Return the estimate of published rates of one chip and work: the median of the
    publications' fastest.

    Several publications move the middle and do not narrow the interval.

    Args:
        lines: with rate, rounding, publication, article, chip, family and cited (the citation).
        named: other attributes of the estimate.
    """
    best = lines.sort_values("rate").drop_duplicates("publication", keep="last")
    rates = best["rate"].to_numpy(float)
    value = float(numpy.exp(numpy.median(numpy.log(rates))))
    known = [factors(FIGURE, figure_group(line)) for line in best.to_dict("records")]
    widths = numpy.hypot(
        numpy.min(known, axis=0), numpy.log1p(best["rounding"].astype(float).max())
    )
    low, high = value * numpy.exp(widths * (-1, 1))
    counts = wording.count(len(lines), "figure"), wording.count(len(best), "publication")
    return Estimate(
        value, float(low), float(high), PUBLISHED, f"{counts[0]} in {counts[1]}",
        " | ".join(sorted(set(best["cited"]))), len(best), each=tuple(sorted(lines["rate"])), **named,
    )  # fmt: skip


@functools.cache
def published(work: networks.Network, by: str = "chip") -> dict[tuple[str, int, str], Estimate]:
    """Return the published estimates of a work by chip, number of devices and family.

    Args:
        work: with its image size or sequence length.
        by: chip, or product.
    """
    figures, size = (
        observations.usable(),
        "sequence_length" if work.sequence_length else "image_size",
    )
    is_work = figures["network"].eq(work.name) & figures[size].eq(getattr(work, size))
    is_rate = figures["rate"].gt(0) & figures["computed"].notna()
    own = figures[is_work & is_rate & figures["device_count"].between(1, MOST_DEVICES)]
    own = own.assign(cited=[articles.citation(line) for line in own.to_dict("records")])
    name = observations.work_name(work.name, work.image_size or 0)
    return {
        (chip, int(count), family): of_figures(
            lines, chip=chip, work=name, family=family, devices=int(count)
        )
        for (chip, count, family), lines in own.groupby([by, "device_count", "family"])
    }


@functools.cache
def joules(work: networks.Network) -> dict[tuple[str, str], tuple[float, str]]:
    """Return the published joules of training on an image, and where they were read, by chip and
    family."""
    figures = observations.usable()
    is_work = figures["network"].eq(work.name) & figures["image_size"].eq(work.image_size)
    own = figures[is_work & figures["metric"].eq("energy_per_image") & figures["phase"].eq("train")]
    return {
        key: (float(lines["value"].median()), lines["details"].iloc[0].get("energy_boundary"))
        for key, lines in own.groupby(["chip", "family"])
    }


def find(questions: Sequence[Question]) -> list[Estimate | Unknown]:
    """Return the best evidence on each question: what is published, else a prediction, or the
    reason why there is none.

    Raises:
        UnknownChip: see `predict.rate`.
    """
    answers = []
    for question, expected in zip(questions, predict.rates(questions), strict=True):
        rate = math.nan if isinstance(expected, Unknown) else expected.value
        found = of_record(question)
        answers.append(replace(found, expected=rate) if found else expected)
    return answers


def of_record(question: Question) -> Estimate | None:
    """Return what was published of a chip at a work, or of other chips of its product; None without
    any."""
    if not question.work:
        return None
    chip, family = chips.resolve(question.chip), observations.family_of(question.precision)
    work = networks.describe(question.work, question.image_size, question.sequence_length)
    found = published(work).get((chip, 1, family))
    found = found or published(work, "product").get((chips.product(chip), 1, family))
    if not found:
        return None
    most = question.batch_size / predict.shortest_step() if question.batch_size else math.inf
    part = min(1.0, most / found.high)
    value, low, high = (part * each for each in (found.value, found.low, found.high))
    return replace(found, chip=chip, value=value, low=low, high=high)


def neighbour(network: str, image_size: float, precision: str) -> Estimate | None:
    """Return the product whose rate at this work most publications printed; the arguments are
    columns of a row."""
    of_products = published(networks.describe(network, image_size), "product").values()
    family = observations.family_of(precision)
    own = [each for each in of_products if each.devices == 1 and each.family == family]
    return max(own, key=lambda each: (each.publications, each.value), default=None)


def ratio(a: Estimate, b: Estimate) -> Ratio:
    """Return how many times as fast `b` is as `a`: the narrowest tested evidence.

    Two measured rates answer for themselves. Else: pairs that one publication measured with one
    script, the two estimates, and what specifications predict. The start page (start.js) chooses
    in the same way.
    """
    found = _of_estimates(a, b)
    if (a.kind, b.kind) != (MEASURED, MEASURED) and a.devices == b.devices == 1:
        found += [*_of_pairs(a, b), *_of_specifications(a, b)]
    return min(found, key=lambda each: float(f"{each.high / each.low:.4g}"))


def asked() -> pandas.DataFrame:
    """Return the pairs that people compare, in words: chip, over, and published; by pairs of all
    works in the most published precision."""
    lines = []
    for slow, fast in ASKED:
        found = of_any_work(slow, fast)
        ends = wording.times(found.low), wording.times(found.high)
        said = f"{wording.times(found.value)} times ({' to '.join(ends)}), {found.basis}"
        lines.append((fast, slow, said))
    return pandas.DataFrame(lines, columns=["chip", "over", "published"])


def of_any_work(chip: str, other: str) -> Ratio:
    """Return how many times as fast the other chip is: by pairs of all works in the most
    published precision, else at ResNet-50.

    Raises:
        Unknown: the record has neither.
    """
    published_in = pairs.between(chip, other).groupby("family")["publication"].nunique()
    if found := of_pairs(chip, other, published_in.idxmax()) if len(published_in) else None:
        return found
    sides = []
    for name in (chip, other):
        of_chip = find([Question(name, "resnet50", precision) for precision in ("tf32", "fp32")])
        known = [each for each in of_chip if not isinstance(each, Unknown)]
        if not known:
            raise of_chip[-1]
        sides.append(known[0])
    return ratio(*sides)


def narrower(publications: int) -> float:
    """Return the part of the width that is left with several publications' pairs of one work: a
    further one is nearer to their mean than to one of them."""
    return math.sqrt((1 + 1 / publications) / 2)


def between(value: float, kind: str, group: str, basis: str, publications: int = 1) -> Ratio:
    """Return a ratio with the interval of its kind."""
    widths = narrower(publications) * numpy.array(factors(kind, group))
    low, high = value * numpy.exp(widths * (-1, 1))
    return Ratio(value, float(low), float(high), kind, basis)


def _of_estimates(a: Estimate, b: Estimate) -> list[Ratio]:
    value, kinds = b.value / a.value, {a.kind, b.kind}
    basis = f"by the {' and '.join(sorted(kinds))} rates of each"
    if MEASURED in kinds:
        low = value / math.exp(math.hypot(math.log(b.value / b.low), math.log(a.high / a.value)))
        high = value * math.exp(math.hypot(math.log(b.high / b.value), math.log(a.value / a.low)))
        return [Ratio(value, low, high, BY_BOUNDS, basis)]
    if PREDICTED in kinds and not math.isnan(a.expected * b.expected):
        return []  # specifications answer
    return [between(value, FIGURES, _vendors(a, b), basis)]


def _of_pairs(a: Estimate, b: Estimate) -> list[Ratio]:
    if a.family != b.family:
        return []
    of_works = (of_pairs(a.chip, b.chip, a.family, work) for work in dict.fromkeys((a.work, "")))
    return [each for each in of_works if each]


@functools.cache
def of_pairs(chip: str, other: str, family: str, work: str = "") -> Ratio | None:
    """Return how many times as fast the other chip is by published pairs: the mean of the
    publications' medians; None without any.

    Args:
        chip, other: names of two chips.
        family: of precisions; a key of `observations.FAMILIES`.
        work: pairs of this work alone; empty: of all.
    """
    lines = pairs.between(chip, other, family=family)
    lines = lines[lines["task"].eq(work)] if work else lines
    if lines.empty:
        return None
    logs = numpy.log(lines["ratio"]).groupby(lines["publication"]).median()
    value, count = float(numpy.exp(logs.mean())), len(logs)
    works = list(dict.fromkeys(re.split(" [(]|, ", each)[0] for each in lines["work"]))
    named = ", ".join(works[:2]) + (f" and {len(works) - 2} more" if len(works) > 2 else "")
    basis = f"by pairs of {wording.count(count, 'publication')} ({named})"
    group = group_of(*lines[["vendor", "vendor_over"]].iloc[0])
    if work:
        return between(value, PAIRS, group, basis, count)
    return between(value, OTHER_PAIRS, group, basis)


def _of_specifications(a: Estimate, b: Estimate) -> list[Ratio]:
    value = b.expected / a.expected
    basis = "by their specifications"
    return [] if math.isnan(value) else [between(value, SPECIFICATIONS, _vendors(a, b), basis)]


def _vendors(a: Estimate, b: Estimate) -> str:
    vendors = chips.table()["vendor"]
    return group_of(vendors.get(a.chip, a.chip), vendors.get(b.chip, b.chip))
