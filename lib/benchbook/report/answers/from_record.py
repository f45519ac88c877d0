"""Marks of what publications of the record say of chips, and of what is predicted where none does."""

import functools
import math
from collections.abc import Sequence

from benchbook.judging import wording
from benchbook.record import chips, networks
from benchbook.report.answers import derive
from benchbook.report.answers.marks import PREDICTED, PUBLISHED, UNKNOWN, Mark, kind_of, prices


@functools.cache
def refusals(task: str) -> list[dict]:
    """Return why nothing is predicted of a task for some chips: lines of family, reason and chips."""
    return [line for line in derive.read()["refused"] if line["task"] == task]


def of_record(worked_out: dict, marks: list[Mark]) -> list[Mark]:
    """Return the marks of published figures, and of predictions for chips of which a task has none in the family.

    Args:
        worked_out: from `derive.read`.
        marks: those of rows, which also take the place of predictions.
    """
    printed = worked_out["chips"]
    published = [_published_mark(line, printed[line["chip"]]) for line in worked_out["published"]]
    return published + _predicted(worked_out, [*marks, *published])


def _published_mark(line: dict, own: dict) -> Mark:
    """Return what publications of the record say of a chip and how many of it; `own` is what is printed of it."""
    count = line["count"]
    several = line["figures"] > 1
    publications = wording.count(line["publications"], "publication")
    stands_on = f"{line['figures']} figures of {publications}" if several else "one printed figure"
    chip, place = line["chip"], _place(line["chip"], count)
    return Mark(
        line["task"], place, place, place, kind_of(None, own.get("vendor"), chip), PUBLISHED,
        UNKNOWN if line["family"] == "any" else line["family"], line["seconds"],
        line["low"] if several else None, line["high"] if several else None,
        "least and most of what was published" if several else "",
        stands_on, sources=tuple(line["sources"]),
        **_energy(own, count, line["seconds"]), **prices(own, chip, count),
    )  # fmt: skip


def _predicted(worked_out: dict, marks: list[Mark]) -> list[Mark]:
    """Return predictions, for chips of which a task has no published figure in the family."""
    taken = {(mark.task, chips.product(mark.chip), mark.family) for mark in marks if mark.count == 1 and mark.chip}
    lines = [
        _prediction(line, worked_out["chips"][line["chip"]])
        for line in worked_out["predictions"]
        if (line["task"], chips.product(line["chip"]), line["family"]) not in taken
    ]
    middle = worked_out["operations"].index(reference_operations(worked_out["operations"]))
    for line in worked_out["own"]:
        curve = {name: line[name] for name in ("seconds", "low", "high")}
        numbers = {name: values[middle] for name, values in curve.items()}
        further = {"operations": tuple(worked_out["operations"]), "curve": curve}
        lines.append(_prediction(line | numbers | {"task": "own"}, worked_out["chips"][line["chip"]], **further))
    # Sizes of a product whose printed figures are the same have one prediction; the shortest name stands for them.
    lines.sort(key=lambda mark: len(mark.name))
    return list(
        {(mark.task, chips.product(mark.chip), mark.family, mark.seconds): mark for mark in lines[::-1]}.values()
    )


def reference_operations(operations: Sequence[float]) -> float:
    """Return the operations at which one's own network is shown first: those nearest to ResNet-50's."""
    resnet = networks.describe("resnet50").flops_per_sample
    return min(operations, key=lambda value: abs(math.log(value / resnet)))


def _prediction(line: dict, own: dict, **further) -> Mark:
    chip = line["chip"]
    return Mark(
        line["task"], _place(chip, 1), chip, chip, kind_of(None, own.get("vendor"), chip), PREDICTED, line["family"],
        line["seconds"], line["low"], line["high"], "90 % interval of the prediction", line["basis"],
        sources=("the public record, by benchbook's model; see Predictions in the report",),
        **_energy(own, 1, line["seconds"]), **prices(own, chip, 1), **further,
    )  # fmt: skip


def _place(chip: str, count: int) -> str:
    return chip if count == 1 else f"{count} x {chip}"


def _energy(own: dict, count: int, seconds: float) -> dict:
    """Return joules at the power that was measured of the chip in training, where somebody did."""
    if "power" not in own:
        return {}
    drawn = own["power"]
    source, *others = drawn["source"].split("; ")
    further = f" and {len(others)} more" if others else ""
    watts = f"{drawn['watts']:.0f} W a device ({drawn['low']:.0f} to {drawn['high']:.0f})"
    note = f"{watts}, measured in training on: {drawn['boundary']}; {source}{further}"
    return {"joules": drawn["watts"] * count * seconds, "energy_note": note}
