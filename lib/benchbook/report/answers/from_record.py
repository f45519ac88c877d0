"""Marks of published figures of chips, and of predictions for chips without one."""

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

PRECISIONS = {"fp32": "fp32", "half": "amp_fp16"}  # the precision that is predicted for each family
REFERENCE = networks.describe("resnet50").flops_per_sample  # shown first of the user's network
OPERATIONS = tuple(sorted([*(float(f"{value:.3g}") for value in numpy.geomspace(5e8, 2e11, 9)), REFERENCE]))
MOST_DEVICES = 16  # of a machine that a reader may want; beyond, the network between them is measured
TO_ACCURACY = "resnet50-accuracy"
METRIC = "time_to_75.9"
PREDICTION = {"bounds": "90 % interval of the prediction"}
PREDICTION |= {"sources": ("Predicted by benchbook from the public record",)}


def of_record(forecaster: Forecaster, marks: list[Mark]) -> tuple[list[Mark], list[dict[str, object]]]:
    """Return the marks of published figures, and of predictions for chips of which a task has none in the family.

    Args:
        forecaster: that predicts, and has the record's figures.
        marks: those of rows, which also take the place of predictions.

    Returns:
        The marks; and why others are not predicted: task, family, reason and the chips that have this reason.
    """
    published, predicted, refused = [], [], {}
    for this in TASKS:
        published += list(_published(this, forecaster))
        predict = {"own": _own, TO_ACCURACY: _to_accuracy}.get(this.key, _predictions)
        for chip, family, answer, further in predict(this, forecaster):
            if isinstance(answer, Unknown):
                reason = str(answer).removeprefix(f"of {chip} ")
                refused.setdefault((this.key, family, reason), []).append(chip)
            else:
                bounds = {"seconds": answer.value, "low": answer.low, "high": answer.high, "stands_on": answer.basis}
                predicted.append(_mark(this, chip, 1, PREDICTED, family, forecaster, **bounds, **PREDICTION, **further))
    taken = {(mark.task, chips.product(mark.chip), mark.family) for mark in [*marks, *published] if mark.count == 1}
    shown = [mark for mark in predicted if (mark.task, chips.product(mark.chip), mark.family) not in taken]
    # Sizes of a product whose printed figures are the same have one prediction; the shortest name stands for them.
    longest_first = sorted(shown, key=lambda mark: len(mark.name), reverse=True)
    alone = {(mark.task, chips.product(mark.chip), mark.family, mark.seconds): mark for mark in longest_first}
    reasons = [
        dict(zip(("task", "family", "reason"), key, strict=True)) | {"chips": own} for key, own in refused.items()
    ]
    return published + list(alone.values()), reasons


def rounded(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def _times(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the published times until ResNet-50 classifies 75.9 % correctly; they are in minutes."""
    return figures[figures["metric"].eq(METRIC) & figures["refused"].eq("") & figures["unit"].eq("min")]


def _asked() -> list[tuple[str, str]]:
    return [(chip, family) for chip in chips.table().index for family in PRECISIONS]


def _predictions(this: Task, forecaster: Forecaster) -> Iterator[tuple]:
    """Yield chip, family and what the chip would take for a task, or why that is not known."""
    questions = [
        Question(chip, this.work, PRECISIONS[family], image_size=this.image_size, batch_size=this.batch_size)
        for chip, family in _asked()
        if this.work
    ]
    for (chip, family), rate in zip(_asked(), forecaster.rates(questions), strict=True):
        yield chip, family, rate if isinstance(rate, Unknown) else _seconds(rate, this.images), {}


def _to_accuracy(this: Task, forecaster: Forecaster) -> Iterator[tuple]:
    """Yield what one device of each chip would take to 75.9 %, where its rate is predicted: the median epochs at that.

    Times on record are those of recipes, batch sizes and input that were chosen for them. Divided by the predicted
    rate they differ between products by less than the times do.

    The interval adds, in logarithms, that of the rate and the farthest that a product lies from the others' median:
    they are too few for a quantile.
    """
    listed = list(chips.table().index)
    questions = [Question(chip, this.work, PRECISIONS["half"], image_size=this.image_size) for chip in listed]
    said = dict(zip(listed, forecaster.rates(questions), strict=True))
    rates = {chip: rate for chip, rate in said.items() if not isinstance(rate, Unknown)}
    times = _times(forecaster.figures)
    times = times[times["device_count"].between(1, MOST_DEVICES) & times["chip"].isin(list(rates))]
    images = MINUTE * times["value"] * times["device_count"] * times["chip"].map(lambda chip: rates[chip].value)
    worth = (images / IMAGENET).groupby(times["chip"].map(chips.product)).median()
    epochs, logs = float(worth.median()), numpy.log(worth)
    apart = max(abs(logs[product] - logs.drop(product).median()) for product in logs.index)
    for chip, rate in rates.items():
        seconds = epochs * IMAGENET / rate.value
        far = [math.exp(math.hypot(apart, math.log(rate.value / bound))) for bound in (rate.high, rate.low)]
        basis = (
            f"{epochs:.0f} epochs' worth of its predicted rate, as times of {len(worth)} products show; {rate.basis}"
        )
        yield chip, "half", Range(seconds, seconds / far[0], seconds * far[1], basis), {}


def _own(this: Task, forecaster: Forecaster) -> Iterator[tuple]:
    """Yield what each chip would take for a million images of a network, at each number of operations."""
    questions = [
        Question(chip, precision=PRECISIONS[family], flops_per_sample=operations, image_size=224)
        for chip, family in _asked()
        for operations in OPERATIONS
    ]
    said = iter(forecaster.rates(questions))
    for chip, family in _asked():
        rates = [next(said) for _ in OPERATIONS]
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
    """Yield the published figures of a task by chip, number of devices and family: their median, least and most."""
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
            bounds="least and most of what was published" if several else "",
            stands_on=f"{len(own)} figures of {publications}" if several else "one printed figure",
            sources=tuple(sorted(set(own["cited"]))),
        )  # fmt: skip


def _printed(this: Task, figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the record's figures of a task, with the seconds and the family that each is of."""
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
    """Return a mark of so many of a chip; of its numbers, times are rounded."""
    numbers |= {name: numbers[name] and rounded(numbers[name]) for name in ("seconds", "low", "high")}
    place = chip if count == 1 else f"{count} x {chip}"
    kind = kind_of(None, chip)
    energy = _energy(chip, count, numbers["seconds"], forecaster) if this.key.startswith("resnet50") else {}
    return Mark(this.key, place, place, place, kind, source, family, chip=chip, count=count, **energy, **numbers)


def _energy(chip: str, count: int, seconds: float, forecaster: Forecaster) -> dict:
    """Return joules at the power that was measured of the chip in other trainings of ResNet-50, if it was."""
    drawn = forecaster.watts.get((chips.product(chip), "resnet50"))
    if drawn is None:
        return {}
    source, *others = drawn.sources
    further = f" and {len(others)} more" if others else ""
    return {
        "joules": rounded(drawn.median * count * seconds),
        "estimated": True,
        "energy_note": f"estimated from {drawn} in other trainings of ResNet-50, measured on: {drawn.boundary};"
        f" {source}{further}",
    }
