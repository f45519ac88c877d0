"""Marks of measured points, of figures in the studies' articles, and of the user's networks."""

import math
from collections.abc import Iterator

import numpy
import pandas

from benchbook.judging import intervals, wording
from benchbook.record import chips, naming
from benchbook.record.estimate import wall_note
from benchbook.report import tables
from benchbook.report.answers.from_record import REFERENCE
from benchbook.report.answers.marks import MEASURED, NOT_MEASURED, TASKS, UNKNOWN, Mark, Task, kind_of
from benchbook.rows import networks, records
from benchbook.studies.study import Evidence

ALIKE = 0.1  # numbers of operations whose logarithms differ by less are the same work
BOUNDS = {intervals.INTERVAL: "95 % interval", intervals.RANGE: "range of few windows or starts"}
# The columns of a point on a machine's page, and their labels.
SETTINGS = {
    "device": "device",
    "framework": "framework",
    "framework_version": "version",
    "precision": "precision",
    "batch_size": "batch size",
    "image_size": "image size",
    "dataset": "data",
    "point": "point",
    "compiled": "compiled",
    "commit": "commit",
    "session": "session",
    "verdict": "verdict",
}


def of_studies(evidence: Evidence, headlines: pandas.DataFrame, here: str) -> Iterator[Mark]:
    """Yield the marks of measured points, and of figures in the studies' articles.

    Args:
        evidence: measured and published rows.
        headlines: from `headline.table`.
        here: the id of this machine in rows.
    """
    names = evidence.names
    datasets = {study: set(own.dropna()) for study, own in evidence.published.groupby("study")["dataset"]}
    by_study = {each.study: each for each in TASKS if each.study}
    for line in headlines.to_dict("records"):
        this = by_study.get(line["study"])
        if this is None:
            continue
        timed = this.epoch and pandas.notna(line["seconds_per_epoch"])  # else at the rate of training
        epoch = line["seconds_per_epoch"] * this.images / this.epoch if timed else math.nan
        seconds = epoch if timed else this.images / line["images_per_second"]
        if not math.isfinite(seconds):
            continue
        measured, point = line["source"] == MEASURED, line["of"]
        theirs, data = datasets.get(line["study"]), line["dataset"]
        differs = measured and theirs and isinstance(data, str) and data not in theirs
        stand_in = f"on {naming.dataset(data)}" if differs else ""  # a data set that no publication of the study used
        variant = f", {line['variant']}" if measured and isinstance(line["variant"], str) else ""
        place = names.place(line | {"device_count": point.get("device_count")}) + variant
        size, expected = point.get("image_size"), this.image_size
        other_size = expected and pandas.notna(size) and float(size) != expected
        yield _mark(
            this, line, seconds, here,
            name=", ".join(filter(None, (place, stand_in))), machine=names.machine(line["machine"]),
            joules=line["joules_per_image"], difference=f"{size:g} px instead of {expected:g}" if other_size else "",
            stand_in=stand_in,
        )  # fmt: skip


def of_networks(evidence: Evidence, here: str) -> Iterator[Mark]:
    """Yield the marks of the user's networks and of language models.

    Each network has one mark per machine, device and family of precisions: its fastest point.

    Args:
        evidence: measured rows.
        here: the id of this machine in rows.
    """
    for this in TASKS:
        points = evidence.points(this.points) if this.points else evidence.summary.iloc[:0]
        points = points[points["status"].isin(records.TRAINED) & points["samples_per_second"].notna()]
        if this.key != "own":
            frozen = [bool(settings.get("lora_rank")) for settings in points["settings"]]
            length = networks.describe(this.work).sequence_length
            same_work = points["model"].eq(this.work) & points["sequence_length"].eq(length)
            points = points[same_work & ~numpy.array(frozen, bool)]
        points = points.assign(family=[family_of(precision) for precision in points["precision"]], source=MEASURED)
        for _, alike in points.groupby(["machine", "device", "model", "family"], sort=True):
            point = alike.sort_values("samples_per_second").iloc[-1].to_dict()
            line = point | {"images_per_second": point["samples_per_second"], "of": point}
            own = _other_operations(point) if this.key == "own" else {}
            name = evidence.names.place(point)
            yield _mark(
                this, line, this.images / point["samples_per_second"], here,
                name=f"{point['model']}: {name}" if own else name, machine=evidence.names.machine(point["machine"]),
                joules=point["energy_per_sample"], **own,
            )  # fmt: skip


def _other_operations(point: dict) -> dict:
    """Return the operations of a user's network, and how they differ from the network that the page shows at first."""
    if pandas.isna(point["flops_per_sample"]):
        return {"counted": None, "difference": "its operations were not counted"}
    counted = float(point["flops_per_sample"])
    near = abs(math.log(counted / REFERENCE)) < ALIKE
    return {"counted": counted, "difference": "" if near else f"{wording.number(counted)} operations an image"}


def _mark(this: Task, line: dict, seconds: float, here: str, joules: float, **named) -> Mark:
    """Return the mark of a line of the headline, or of a line with the same columns.

    Args:
        this: the task.
        line: `of` is the measured point or the published row of the line.
        seconds: for the task.
        here: see `of_studies`.
        joules: of one image; may be missing.
        named: further fields of the mark.
    """
    measured, device, point = line["source"] == MEASURED, line["device"], line["of"]
    chip = chips.listed(point.get("device_name")) or chips.canonical(line["chip"]) or ""
    count = int(point["device_count"]) if pandas.notna(point.get("device_count")) else 1
    based_on, energy_note = "1 figure in 1 publication", NOT_MEASURED
    if pandas.notna(joules):
        boundary = line["energy_boundary"]
        energy_note = "; ".join(filter(None, (f"measured at: {boundary}", wall_note(boundary))))
    if measured:
        kernels, windows = int(point["num_kernels"]), int(point["num_windows"])
        starts = "one run" if kernels == 1 else f"{kernels} starts"
        doubts = wording.hedged([{name: line[name] for name in ("verdict", "status")}])
        based_on = f"{starts}, {wording.count(windows, 'window')}{doubts}"
    return Mark(
        task=this.key,
        place=line["machine"],
        kind=kind_of(device, chip),
        source=line["source"],
        family=family_of(point.get("precision")),
        seconds=seconds,
        **_bounds(line, seconds),
        based_on=based_on,
        here=measured and line["machine"] == here,
        chip=chip,
        count=count,
        joules=joules * this.images if pandas.notna(joules) else None,
        energy_note=energy_note,
        settings={
            label: tables.cell_text(name, value)
            for name, label in SETTINGS.items()
            if pandas.notna(value := (point | {"verdict": line["verdict"]}).get(name))
        },
        sources=(rows_of(line["machine"], line["study"], point["point"]) if measured else str(point.get("reference")),),
        **named,
    )


def _bounds(line: dict, seconds: float) -> dict:
    """Return the bounds of a time, in proportion to those of the rate, and their kind."""
    rate, low, high = line["images_per_second"], line["low"], line["high"]
    if pandas.isna(rate) or pandas.isna(low):
        return {"low": None, "high": None, "bounds": ""}
    kind = BOUNDS.get(line["interval"], "rounding of the published figure")
    return {"low": seconds * rate / high, "high": seconds * rate / low, "bounds": kind}


def family_of(precision: str | None) -> str:
    """Return the family of a precision; TF32 counts as fp32, as in most publications."""
    if not isinstance(precision, str):
        return UNKNOWN
    return "fp32" if precision in ("fp32", "tf32") else "half"


def rows_of(machine: str, study: str, point: str) -> str:
    """Return the folder of a point's rows, in words."""
    return f"rows in outputs/runs/{machine}/{study}/{point}"
