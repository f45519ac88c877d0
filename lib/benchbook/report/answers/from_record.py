"""Marks of published figures, and of predictions for chips without a published figure."""

import math
from collections.abc import Iterator

import numpy
import pandas

from benchbook import record
from benchbook.judging import wording
from benchbook.record import chips
from benchbook.record.forecast import Forecaster, Question, Range
from benchbook.record.rates import Unknown
from benchbook.report.answers.marks import IMAGENET, MINUTE, PREDICTED, PUBLISHED, TASKS, UNKNOWN, Mark, Task, kind_of
from benchbook.rows import networks

PRECISIONS = {"fp32": "fp32", "half": "amp_fp16"}  # the predicted precision of each family
REFERENCE = networks.describe("resnet50").flops_per_sample  # of the network that the user's page shows at first
OPERATIONS = tuple(sorted([*(float(f"{value:.3g}") for value in numpy.geomspace(5e8, 2e11, 9)), REFERENCE]))
MOST_DEVICES = 16  # of a single machine; above, a rate depends on the connection between machines
TO_ACCURACY = "resnet50-accuracy"
METRIC = "time_to_75.9"
PREDICTION = {"bounds": "90 % interval", "sources": ("Predicted by benchbook from the public record",)}


def of_record(forecaster: Forecaster, marks: list[Mark]) -> tuple[list[Mark], list[dict[str, object]]]:
    """Return the marks of published figures, and predictions for chips without another mark in the task and family.

    Args:
        forecaster: has the record's figures, and predicts.
        marks: of rows; they replace predictions, too.

    Returns:
        The marks; and dictionaries with task, family, reason and chips for what is not predicted.
    """
    published, predicted, refused = [], [], {}
    for this in TASKS:
        published += list(_published(this, forecaster))
        predict = {"own": _users_network, TO_ACCURACY: _to_accuracy}.get(this.key, _predictions)
        for chip, family, answer, further in predict(this, forecaster):
            if isinstance(answer, Unknown):
                reason = str(answer).removeprefix(f"{chip}: ")
                refused.setdefault((this.key, family, reason), []).append(chip)
            else:
                bounds = {"seconds": answer.value, "low": answer.low, "high": answer.high, "based_on": answer.basis}
                predicted.append(_mark(this, chip, 1, PREDICTED, family, forecaster, **bounds, **PREDICTION, **further))
    taken = {(mark.task, chips.product(mark.chip), mark.family) for mark in [*marks, *published] if mark.count == 1}
    shown = [mark for mark in predicted if (mark.task, chips.product(mark.chip), mark.family) not in taken]
    # Sizes of a product with the same specifications have the same prediction; only the shortest name is shown.
    longest_first = sorted(shown, key=lambda mark: len(mark.name), reverse=True)
    unique = {(mark.task, chips.product(mark.chip), mark.family, mark.seconds): mark for mark in longest_first}
    names = ("task", "family", "reason")
    reasons = [dict(zip(names, key, strict=True)) | {"chips": own} for key, own in refused.items()]
    return published + list(unique.values()), reasons


def rounded(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def _times(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the published times, in minutes, until ResNet-50 classifies 75.9 % correctly."""
    return figures[figures["metric"].eq(METRIC) & figures["refused"].eq("") & figures["unit"].eq("min")]


def _chips_and_families() -> list[tuple[str, str]]:
    return [(chip, family) for chip in chips.table().index for family in PRECISIONS]


def _predictions(this: Task, forecaster: Forecaster) -> Iterator[tuple]:
    """Yield chip, family, predicted seconds (a Range, or the error Unknown) and further fields of the mark."""
    questions = [
        Question(chip, this.work, PRECISIONS[family], image_size=this.image_size, batch_size=this.batch_size)
        for chip, family in _chips_and_families()
    ]
    for (chip, family), rate in zip(_chips_and_families(), forecaster.rates(questions), strict=True):
        yield chip, family, rate if isinstance(rate, Unknown) else _seconds(rate, this.images), {}


def _to_accuracy(this: Task, forecaster: Forecaster) -> Iterator[tuple]:
    """Yield, like `_predictions`, the time of one device to 75.9 %: the median number of epochs at the predicted rate.

    Published times differ in recipe, batch size and input. As numbers of epochs at the predicted rate, products differ
    by less.

    The interval combines, in logarithms, that of the rate and the largest distance of a product from the median of the
    others, because there are too few products for a quantile.
    """
    listed = list(chips.table().index)
    questions = [Question(chip, this.work, PRECISIONS["half"], image_size=this.image_size) for chip in listed]
    predicted = dict(zip(listed, forecaster.rates(questions), strict=True))
    rates = {chip: rate for chip, rate in predicted.items() if not isinstance(rate, Unknown)}
    times = _times(forecaster.figures)
    times = times[times["device_count"].between(1, MOST_DEVICES) & times["chip"].isin(list(rates))]
    images = MINUTE * times["value"] * times["device_count"] * times["chip"].map(lambda chip: rates[chip].value)
    by_product = (images / IMAGENET).groupby(times["chip"].map(chips.product)).median()
    epochs, logs = float(by_product.median()), numpy.log(by_product)
    distance = max(abs(logs[product] - logs.drop(product).median()) for product in logs.index)
    for chip, rate in rates.items():
        seconds = epochs * IMAGENET / rate.value
        factors = [math.exp(math.hypot(distance, math.log(rate.value / bound))) for bound in (rate.high, rate.low)]
        basis = (
            f"{epochs:.0f} epochs at its predicted rate, the median of {len(by_product)} products with published times;"
            f" {rate.basis}"
        )
        yield chip, "half", Range(seconds, seconds / factors[0], seconds * factors[1], basis), {}


def _users_network(this: Task, forecaster: Forecaster) -> Iterator[tuple]:
    """Yield, like `_predictions`, the time for a million images at each number of operations."""
    questions = [
        Question(chip, precision=PRECISIONS[family], flops_per_sample=operations, image_size=224)
        for chip, family in _chips_and_families()
        for operations in OPERATIONS
    ]
    predicted = iter(forecaster.rates(questions))
    for chip, family in _chips_and_families():
        rates = [next(predicted) for _ in OPERATIONS]
        if not any(isinstance(rate, Unknown) for rate in rates):
            times = [_seconds(rate, this.images) for rate in rates]
            own = times[OPERATIONS.index(REFERENCE)]
            names = {"seconds": "value", "low": "low", "high": "high"}
            curve = {name: [rounded(getattr(each, of)) for each in times] for name, of in names.items()}
            basis = rates[0].basis.partition(", and ")[0]
            yield chip, family, Range(own.value, own.low, own.high, basis), {"curve": curve}


def _seconds(rate: Range, images: float) -> Range:
    return Range(images / rate.value, images / rate.high, images / rate.low, rate.basis)


def _published(this: Task, forecaster: Forecaster) -> Iterator[Mark]:
    """Yield a mark for each chip, number of devices and family: the median of its published figures, least and most."""
    printed = _printed(this, forecaster.figures)
    printed = printed.assign(cited=[record.citation(line) for line in printed.to_dict("records")])
    for (chip, count, family), own in printed.groupby(["chip", "device_count", "family"], sort=True):
        medians = own.groupby("publication")["seconds"].median()
        several = len(own) > 1
        publications = wording.count(int(own["publication"].nunique()), "publication")
        yield _mark(
            this, chip, int(count), PUBLISHED, family, forecaster,
            seconds=float(medians.median()),
            low=float(own["seconds"].min()) if several else None,
            high=float(own["seconds"].max()) if several else None,
            bounds="least and most of the published figures" if several else "",
            based_on=f"{wording.count(len(own), 'figure')} in {publications}",
            sources=tuple(sorted(set(own["cited"]))),
        )  # fmt: skip


def _printed(this: Task, figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the record's figures of a task, with columns seconds and family added."""
    if this.key == TO_ACCURACY:
        times = _times(figures)
        return times.assign(seconds=MINUTE * times["value"], family=UNKNOWN)
    network = networks.describe(this.work)
    size = "sequence_length" if network.sequence_length else "image_size"
    kept = figures[figures["network"].eq(network.name) & figures["rate"].gt(0) & figures["refused"].eq("")]
    kept = kept[kept["phase"].eq("train") & kept[size].eq(getattr(network, size)) & kept["computed"].notna()]
    kept = kept[kept["device_count"].between(1, MOST_DEVICES)]
    family = kept["computed"].map({"fp32": "fp32", "tf32": "fp32"}, na_action="ignore").fillna("half")
    return kept.assign(seconds=this.images / kept["rate"].astype(float), family=family)


def _mark(this: Task, chip: str, count: int, source: str, family: str, forecaster: Forecaster, **numbers) -> Mark:
    """Return the mark of `count` devices; times are rounded."""
    numbers |= {name: numbers[name] and rounded(numbers[name]) for name in ("seconds", "low", "high")}
    place = chip if count == 1 else f"{count} x {chip}"
    kind = kind_of(None, chip)
    energy = _energy(chip, count, numbers["seconds"], forecaster) if this.key.startswith("resnet50") else {}
    return Mark(this.key, place, place, place, kind, source, family, chip=chip, count=count, **energy, **numbers)


def _energy(chip: str, count: int, seconds: float, forecaster: Forecaster) -> dict:
    """Return estimated joules, from the power of the chip in other trainings of ResNet-50; empty if unknown."""
    watts = forecaster.watts.get((chips.product(chip), "resnet50"))
    if watts is None:
        return {}
    source, *others = watts.sources
    further = f" and {len(others)} more" if others else ""
    return {
        "joules": rounded(watts.median * count * seconds),
        "estimated": True,
        "energy_note": f"estimated from {watts} in other trainings of ResNet-50, measured at: {watts.boundary};"
        f" {source}{further}",
    }
