"""Marks of measured points, and of what the studies' own articles printed."""

import math
from collections.abc import Iterator

import pandas

from benchbook.judging import intervals, wording
from benchbook.record import chips, naming
from benchbook.record.estimate import wall_note
from benchbook.record.predictions.features import family
from benchbook.report.answers.marks import MEASURED, NO_SENSOR, UNKNOWN, Mark, kind_of, prices
from benchbook.report.answers.tasks import TASKS, Task
from benchbook.studies.study import Evidence

POINT = ["machine", "study", "variant", "device"]


def of_rows(evidence: Evidence, headlines: pandas.DataFrame, here: str, printed: dict) -> Iterator[Mark]:
    """Yield the marks of measured points, and of what the studies' own articles printed.

    Args:
        evidence: measured and published rows.
        headlines: from `headline.table`.
        here: the name of this machine in rows.
        printed: of each chip what is printed and paid; see `derive.make`.
    """
    names, points = evidence.names, {}
    for point in evidence.summary.to_dict("records"):
        points.setdefault(tuple(point[name] for name in POINT), []).append(point)
    datasets = {study: set(own.dropna()) for study, own in evidence.published.groupby("study")["dataset"]}
    by_study = {task.study: task for task in TASKS if task.study}
    for line in headlines.to_dict("records"):
        task = by_study.get(line["study"])
        seconds = _seconds(line, task) if task else math.nan
        if not math.isfinite(seconds):
            continue
        point = _point(points, line) if line["source"] == MEASURED else _printed(evidence.published, line)
        called = names.place(line | _count(point)), names.machine(line["machine"]), _stand_in(line, datasets)
        yield _row_mark(task, line, point, seconds, called, here, printed)


def _seconds(line: dict, task: Task) -> float:
    """Return the seconds of a task at what a line of the headline says of an epoch, else at its rate; NaN without."""
    if task.epoch and pandas.notna(line["seconds_per_epoch"]):
        return line["seconds_per_epoch"] * task.images / task.epoch
    return task.images / line["images_per_second"]


def _point(points: dict[tuple, list[dict]], line: dict) -> dict:
    """Return the summary's line that speaks in a line of the headline."""
    own = points[tuple(line[name] for name in POINT)]
    return next((point for point in own if point["samples_per_second"] == line["images_per_second"]), own[0])


def _printed(rows: pandas.DataFrame, line: dict) -> dict:
    """Return the published row behind a line of the headline: that of training first."""
    own = rows[(rows["machine"] == line["machine"]) & (rows["study"] == line["study"])]
    own = own[own["device"].eq(line["device"]).fillna(False) | (own["device"].isna() & pandas.isna(line["device"]))]
    rates = own[own["samples_per_second"].eq(line["images_per_second"]).fillna(False)]
    return (rates if len(rates) else own[own["phase"].isin(["train", "total"])]).iloc[0].to_dict()


def _stand_in(line: dict, datasets: dict[str, set[str]]) -> str:
    """Return the data that a measured line was trained on where no publication of its study has it; else nothing."""
    own = datasets.get(line["study"])
    other = line["source"] == MEASURED and own and isinstance(line["dataset"], str) and line["dataset"] not in own
    return f"on {naming.dataset(line['dataset'])}" if other else ""


def energy_note(line: dict, joules: float | None) -> str:
    """Return where joules were read and what they leave out."""
    return f"read at: {line['energy_boundary']}. {wall_note(line['energy_boundary'])}" if joules else NO_SENSOR


def _count(point: dict) -> dict:
    return {"device_count": point.get("device_count")}


def _row_mark(
    task: Task, line: dict, point: dict, seconds: float, called: tuple[str, str, str], here: str, printed: dict
) -> Mark:
    measured = line["source"] == MEASURED
    low, high, bounds = bounds_of(line, seconds)
    chip = chip_of(point, line)
    count = int(point["device_count"]) if pandas.notna(point.get("device_count")) else 1
    joules = line["joules_per_image"] * task.images if pandas.notna(line["joules_per_image"]) else None
    note = energy_note(line, joules)
    variant = f", {line['variant']}" if measured and isinstance(line["variant"], str) else ""
    size = point.get("image_size")
    apart = f"{size:g} px instead of {task.image_size:g}" if task.image_size and _differs(size, task.image_size) else ""
    own = printed.get(chip, {})
    return Mark(
        task.key, line["machine"], ", ".join(filter(None, (called[0] + variant, called[2]))), called[1],
        kind_of(line["device"], own.get("vendor"), chip),
        line["source"], family_of(point.get("precision")), seconds, low, high, bounds,
        stands_on(line, point) if measured else "one printed figure",
        apart, measured and line["machine"] == here, joules, note,
        settings=settings_of(line, point), sources=sources_of(line, point),
        stand_in=called[2], **prices(own if line["device"] != "cpu" else {}, chip, count),
    )  # fmt: skip


def bounds_of(line: dict, seconds: float) -> tuple[float | None, float | None, str]:
    """Return the bounds of a time in proportion to those of the rate, and what they are."""
    rate, low, high = line["images_per_second"], line["low"], line["high"]
    if pandas.isna(rate) or pandas.isna(low):
        return None, None, ""
    kind = {intervals.INTERVAL: "95 % interval", intervals.RANGE: "range of few windows or starts"}
    return seconds * rate / high, seconds * rate / low, kind.get(line["interval"], "rounding of the printed figure")


def chip_of(point: dict, line: dict) -> str:
    """Return the one name of the device, else of the machine's chip."""
    named = chips.canonical(point.get("device_name") if isinstance(point.get("device_name"), str) else None)
    listed = chips.table().index
    return named if named in listed else chips.canonical(line["chip"]) or ""


def _differs(size, expected: float) -> bool:
    return pandas.notna(size) and float(size) != expected


def family_of(precision: str | None) -> str:
    """Return the family of a precision, in which TF32 counts as fp32, as most publications write it."""
    if not isinstance(precision, str):
        return UNKNOWN
    return "half" if family(precision) == "half" else "fp32"


def stands_on(line: dict, point: dict) -> str:
    """Return how many starts and windows a measured point has, and what makes it doubtful."""
    kernels, windows = int(point["num_kernels"]), int(point["num_windows"])
    starts = "one run" if kernels == 1 else f"{kernels} starts"
    counted = f"{starts}, {windows} window{'s' * (windows != 1)}"
    return counted + wording.hedged([{name: line[name] for name in ("verdict", "status")}])


def settings_of(line: dict, point: dict) -> dict[str, str]:
    names = {"device": "device", "framework": "framework", "framework_version": "version", "precision": "precision"}
    names |= {"batch_size": "batch size", "image_size": "image size", "dataset": "data", "point": "point"}
    names |= {"compiled": "compiled", "commit": "commit", "session": "session"}
    shown = {label: point.get(name) for name, label in names.items()}
    shown["verdict"] = line["verdict"]
    return {
        label: f"{value:g}" if isinstance(value, float) else str(value)
        for label, value in shown.items()
        if value is not None and pandas.notna(value)
    }


def sources_of(line: dict, point: dict) -> tuple[str, ...]:
    if line["source"] == MEASURED:
        return (rows_of(line["machine"], line["study"], point["point"]),)
    return (str(point.get("reference")),)


def rows_of(machine: str, study: str, point: str) -> str:
    """Return where a point's rows lie, in words."""
    return f"rows in outputs/runs/{machine}/{study}/{point}"
