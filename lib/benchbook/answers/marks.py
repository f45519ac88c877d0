"""What each machine takes for each task: a mark with its interval, and what it stands on."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas

from benchbook import chips, headline, intervals, naming, networks, wording
from benchbook.answers.tasks import TASKS, Task
from benchbook.estimate import wall_note
from benchbook.predictions.features import family
from benchbook.study import Evidence, Study

MEASURED, PUBLISHED, PREDICTED = "measured", "published", "predicted"
KINDS = ("Apple", "NVIDIA", "Google TPU", "CPU", "other")
UNKNOWN = "not told"
POINT = ["machine", "study", "variant", "device"]
NO_SENSOR = "no sensor was read"


@dataclass(frozen=True)
class Mark:
    """What one machine takes for one task.

    Attributes:
        task: its key.
        place: the machine's name in rows, or that of a chip and how many; what has one place has one page.
        name: of the machine, for people, with its device and variant.
        machine: its name without these.
        kind: one of KINDS.
        source: measured, published or predicted.
        family: of precisions: fp32, half, or `not told`.
        seconds: for the whole task.
        low, high: bounds of these; None where one number was printed.
        bounds: what the bounds are, in words; empty without.
        stands_on: how many runs, kernels, windows, figures or publications, in a few words.
        apart: why it is not quite the task's work; such a mark is in no comparison. Empty where it is.
        here: whether it is this machine's.
        joules: for the whole task; None without a sensor.
        energy_note: what read them, and what they leave out.
        chip: by its one name; empty for one in no list.
        count: devices together.
        memory_gb: of one device; None where nobody printed it.
        rent: US dollars an hour for all devices together; None without a price.
        rent_note: whose, of when, what it includes.
        purchase: US dollars; None without a price.
        purchase_note: of when, what it includes.
        settings: what else is known of it, by name.
        sources: where it comes from.
        operations: of a training step for an image, at which `curve` has its numbers; for one's own network.
        curve: seconds for a million images with their bounds, at each of `operations`.
    """

    task: str
    place: str
    name: str
    machine: str
    kind: str
    source: str
    family: str
    seconds: float
    low: float | None
    high: float | None
    bounds: str
    stands_on: str
    apart: str = ""
    here: bool = False
    joules: float | None = None
    energy_note: str = NO_SENSOR
    chip: str = ""
    count: int = 1
    memory_gb: float | None = None
    rent: float | None = None
    rent_note: str = ""
    purchase: float | None = None
    purchase_note: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    operations: tuple[float, ...] = ()
    curve: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def watts(self) -> float | None:
        """Return what it draws on average; None where no joules are known."""
        return None if self.joules is None else self.joules / self.seconds


def gather(evidence: Evidence, studies: Mapping[str, Study], here: str, worked_out: dict) -> list[Mark]:
    """Return the marks of all tasks, the shortest time of each task first.

    Args:
        evidence: measured and published rows.
        studies: by name.
        here: the name of this machine in rows.
        worked_out: from `derive.read`.
    """
    printed = worked_out["chips"]
    marks = list(_of_rows(evidence, studies, here, printed))
    marks += [_published_mark(line, printed[line["chip"]]) for line in worked_out["published"]]
    marks += _predicted(worked_out, marks)
    order = [each.key for each in TASKS]
    return sorted(marks, key=lambda mark: (order.index(mark.task), mark.seconds, mark.name, mark.family))


def _of_rows(evidence: Evidence, studies: Mapping[str, Study], here: str, printed: dict) -> Iterator[Mark]:
    """Yield the marks of measured points, and of what the studies' own articles printed."""
    names = naming.of(evidence.rows, evidence.folder)
    points = evidence.summary.set_index("samples_per_second", drop=False)
    by_study = {task.study: task for task in TASKS if task.study}
    for line in headline.table(evidence, studies).to_dict("records"):
        task = by_study.get(line["study"])
        seconds = _seconds(line, task) if task else math.nan
        if not math.isfinite(seconds):
            continue
        point = _point(points, line) if line["source"] == MEASURED else _printed(evidence.published, line)
        called = names.place(line | _count(point)), names.machine(line["machine"])
        yield _row_mark(task, line, point, seconds, called, here, printed)


def _seconds(line: dict, task: Task) -> float:
    """Return the seconds of a task at what a line of the headline says of an epoch, else at its rate; NaN without."""
    if task.epoch and pandas.notna(line["seconds_per_epoch"]):
        return line["seconds_per_epoch"] * task.images / task.epoch
    return task.images / line["images_per_second"]


def _point(points: pandas.DataFrame, line: dict) -> dict:
    """Return the summary's line that speaks in a line of the headline."""
    own = points[(points[POINT] == pandas.Series({name: line[name] for name in POINT})).all(axis=1)]
    same = own[own["samples_per_second"] == line["images_per_second"]]
    return (same if len(same) else own).iloc[0].to_dict()


def _printed(rows: pandas.DataFrame, line: dict) -> dict:
    """Return the published row behind a line of the headline: that of training first."""
    own = rows[(rows["machine"] == line["machine"]) & (rows["study"] == line["study"])]
    own = own[own["device"].eq(line["device"]).fillna(False) | (own["device"].isna() & pandas.isna(line["device"]))]
    rates = own[own["samples_per_second"].eq(line["images_per_second"]).fillna(False)]
    return (rates if len(rates) else own[own["phase"].isin(["train", "total"])]).iloc[0].to_dict()


def _count(point: dict) -> dict:
    return {"device_count": point.get("device_count")}


def _row_mark(
    task: Task, line: dict, point: dict, seconds: float, called: tuple[str, str], here: str, printed: dict
) -> Mark:
    measured = line["source"] == MEASURED
    low, high, bounds = _bounds(line, seconds)
    chip = _chip(point, line)
    count = int(point["device_count"]) if pandas.notna(point.get("device_count")) else 1
    joules = line["joules_per_image"] * task.images if pandas.notna(line["joules_per_image"]) else None
    note = f"read at: {line['energy_boundary']}. {wall_note(line['energy_boundary'])}" if joules else NO_SENSOR
    variant = f", {line['variant']}" if measured and isinstance(line["variant"], str) else ""
    size = point.get("image_size")
    apart = f"{size:g} px instead of {task.image_size:g}" if task.image_size and _differs(size, task.image_size) else ""
    own = printed.get(chip, {})
    return Mark(
        task.key, line["machine"], called[0] + variant, called[1], _kind(line["device"], own.get("vendor"), chip),
        line["source"],        _family(point.get("precision")), seconds, low, high, bounds,
        _stands_on(line, point) if measured else "one printed figure",
        apart, measured and line["machine"] == here, joules, note,
        settings=_settings(line, point), sources=_sources(line, point),
        **_prices(own if line["device"] != "cpu" else {}, chip, count),
    )  # fmt: skip


def _bounds(line: dict, seconds: float) -> tuple[float | None, float | None, str]:
    """Return the bounds of a time in proportion to those of the rate, and what they are."""
    rate, low, high = line["images_per_second"], line["low"], line["high"]
    if pandas.isna(rate) or pandas.isna(low):
        return None, None, ""
    kind = {intervals.INTERVAL: "95 % interval", intervals.RANGE: "range of few windows or starts"}
    return seconds * rate / high, seconds * rate / low, kind.get(line["interval"], "rounding of the printed figure")


def _chip(point: dict, line: dict) -> str:
    """Return the one name of the device, else of the machine's chip."""
    named = chips.canonical(point.get("device_name") if isinstance(point.get("device_name"), str) else None)
    listed = chips.table().index
    return named if named in listed else chips.canonical(line["chip"]) or ""


def _differs(size, expected: float) -> bool:
    return pandas.notna(size) and float(size) != expected


def _kind(device: str | None, vendor: str | None, chip: str) -> str:
    if device == "cpu":
        return "CPU"
    makers = {"Apple": "Apple", "NVIDIA": "NVIDIA", "Google": "Google TPU"}
    cpu = any(word in chip for word in ("Xeon", "Epyc", "EPYC", "Core i", "Threadripper", "Ryzen"))
    return "CPU" if cpu else makers.get(vendor or chip.partition(" ")[0], "other")


def _family(precision: str | None) -> str:
    """Return the family of a precision, in which TF32 counts as fp32, as most publications write it."""
    if not isinstance(precision, str):
        return UNKNOWN
    return "half" if family(precision) == "half" else "fp32"


def _stands_on(line: dict, point: dict) -> str:
    """Return how many starts and windows a measured point has, and what makes it doubtful."""
    kernels, windows = int(point["num_kernels"]), int(point["num_windows"])
    starts = "one run" if kernels == 1 else f"{kernels} starts"
    counted = f"{starts}, {windows} window{'s' * (windows != 1)}"
    return counted + wording.hedged([{name: line[name] for name in ("verdict", "status")}])


def _settings(line: dict, point: dict) -> dict[str, str]:
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


def _sources(line: dict, point: dict) -> tuple[str, ...]:
    if line["source"] == MEASURED:
        return (rows_of(line["machine"], line["study"], point["point"]),)
    return (str(point.get("reference")),)


def rows_of(machine: str, study: str, point: str) -> str:
    """Return where a point's rows lie, in words."""
    return f"rows in outputs/runs/{machine}/{study}/{point}"


def _published_mark(line: dict, own: dict) -> Mark:
    """Return what publications of the record say of a chip and how many of it; `own` is what is printed of it."""
    count = line["count"]
    several = line["figures"] > 1
    publications = f"{line['publications']} publication{'s' * (line['publications'] > 1)}"
    stands_on = f"{line['figures']} figures of {publications}" if several else "one printed figure"
    chip, place = line["chip"], _place(line["chip"], count)
    return Mark(
        line["task"], place, place, place, _kind(None, own.get("vendor"), chip), PUBLISHED,
        UNKNOWN if line["family"] == "any" else line["family"], line["seconds"],
        line["low"] if several else None, line["high"] if several else None,
        "least and most of what was published" if several else "",
        stands_on, sources=tuple(line["sources"]),
        **_energy(own, count, line["seconds"]), **_prices(own, chip, count),
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
        line["task"], _place(chip, 1), chip, chip, _kind(None, own.get("vendor"), chip), PREDICTED, line["family"],
        line["seconds"], line["low"], line["high"], "90 % interval of the prediction", line["basis"],
        sources=("the public record, by benchbook's model; see Predictions in the report",),
        **_energy(own, 1, line["seconds"]), **_prices(own, chip, 1), **further,
    )  # fmt: skip


def _place(chip: str, count: int) -> str:
    return chip if count == 1 else f"{count} x {chip}"


def _energy(own: dict, count: int, seconds: float) -> dict:
    """Return joules at the power that was measured of the chip in training, where somebody did."""
    if "power" not in own:
        return {}
    drawn = own["power"]
    note = f"{drawn['watts']:.0f} W a device, measured in training on: {drawn['boundary']}; {drawn['source']}"
    return {"joules": drawn["watts"] * count * seconds, "energy_note": note}


def _prices(own: dict, chip: str, count: int) -> dict:
    """Return what is paid for so many of a chip."""
    prices = {"chip": chip, "count": count, "memory_gb": own.get("memory_gb")}
    if "rent" in own:
        rent = own["rent"]
        told = [rent["provider"], rent["date"] or "date not told", rent["includes"]]
        note = f"the cheapest of {rent['offers']} offers: " if rent["offers"] > 1 else "the one offer on record: "
        prices |= {"rent": rent["usd_per_hour"] * count, "rent_note": note + ", ".join(filter(None, told))}
    if "purchase" in own:
        bought = own["purchase"]
        note = ", ".join([bought["date"] or "date not told", bought["includes"]])
        prices |= {"purchase": bought["usd"] * count, "purchase_note": note}
    return prices
