"""Marks of networks of one's own: what a million images of each take here, as it was measured."""

import math
from collections.abc import Iterator

import pandas

from benchbook.judging import wording
from benchbook.report.answers import from_rows
from benchbook.report.answers.from_record import reference_operations
from benchbook.report.answers.marks import MEASURED, Mark, kind_of, prices
from benchbook.report.answers.tasks import task
from benchbook.rows import records
from benchbook.studies.study import Evidence

STUDY = "your_network"
ALIKE = 0.1  # of logarithms: operations nearer than this are a network's own; `answer.js` has the same
ONE_NETWORK = ["machine", "device", "model", "family"]


def of_rows(evidence: Evidence, here: str, worked_out: dict) -> Iterator[Mark]:
    """Yield a mark for each network on each machine, device and family of precisions: that of its fastest point.

    Args:
        evidence: measured rows.
        here: the name of this machine in rows.
        worked_out: of the record; see `derive.make`.
    """
    points = evidence.points(STUDY)
    points = points[points["status"].isin(records.TRAINED) & points["samples_per_second"].notna()]
    if points.empty:
        return
    points = points.assign(family=[from_rows.family_of(precision) for precision in points["precision"]])
    for _, alike in points.groupby(ONE_NETWORK, sort=True):
        best = alike.sort_values("samples_per_second").iloc[-1].to_dict()
        yield _mark(best, evidence, here, worked_out)


def _apart(counted: float | None, shown: float) -> str:
    """Return why a network stands apart from predictions at the operations that are shown first; else nothing."""
    if counted is None:
        return "its operations were not counted"
    alike = abs(math.log(counted / shown)) < ALIKE
    return "" if alike else f"{wording.number(counted)} operations an image"


def _mark(point: dict, evidence: Evidence, here: str, worked_out: dict) -> Mark:
    printed, shown = worked_out["chips"], reference_operations(worked_out["operations"])
    own, line = task("own"), point | {"images_per_second": point["samples_per_second"], "source": MEASURED}
    seconds = own.images / point["samples_per_second"]
    chip = from_rows.chip_of(point, line)
    joules = point["energy_per_sample"] * own.images if pandas.notna(point["energy_per_sample"]) else None
    counted = float(point["flops_per_sample"]) if pandas.notna(point["flops_per_sample"]) else None
    device = point["device"]
    money = prices(printed.get(chip, {}) if device != "cpu" else {}, chip, 1)
    return Mark(
        own.key, point["machine"], f"{point['model']}: {evidence.names.place(point)}",
        evidence.names.machine(point["machine"]), kind_of(device, printed.get(chip, {}).get("vendor"), chip),
        MEASURED, point["family"], seconds, *from_rows.bounds_of(line, seconds), from_rows.stands_on(line, point),
        _apart(counted, shown), point["machine"] == here, joules, from_rows.energy_note(point, joules),
        settings=from_rows.settings_of(line, point), sources=from_rows.sources_of(line, point),
        counted=counted, **money,
    )  # fmt: skip
