"""The costs of a few tasks, such as 90 epochs of ResNet-50, on each machine and chip: time, memory and prices seen.

Measured times come from the headline table, published ones from the headline table and the record; for the other chips
the time is predicted, and a prediction is an interval.
"""

import datetime
import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas

from benchbook import record
from benchbook.judging import intervals, wording
from benchbook.machine import identity
from benchbook.record import articles, chips, estimate, naming, predict
from benchbook.record.observations import Unknown
from benchbook.record.predict import Question
from benchbook.rows import manifests, networks
from benchbook.studies.study import Evidence

MEASURED, PUBLISHED, PREDICTED = SOURCES = ("measured", "published", "predicted")
# Families of precisions by the reader's words for them, and the precision in which each is predicted.
FAMILIES = {"fp32": "fp32 or tf32", "half": "16 bits", "unknown": "the precision of its source"}
PREDICTED_IN = {"fp32": "fp32", "half": "amp_fp16"}
MOST_DEVICES = 16  # of a single machine; above, a rate depends on the connection between machines
MINUTE = 60.0
IMAGENET = 1_281_167
# The work of a published figure differs in recipe, but every source states the time to the same accuracy.
TO_ACCURACY = "time_to_75.9"


@dataclass(frozen=True)
class Task:
    """A training task that the start page compares machines by.

    Attributes:
        key: its name in addresses and data.
        title: its name for the reader.
        note: what is counted.
        samples: images or sequences to train on, in all epochs together.
        work: the study or network to predict; its name in the record.
        study: the study whose headline has measured and published times; empty for none.
        epoch: images in an epoch of the study's article; None: times are at the training rate.
        points: the study whose measured points of `work` have the times; empty for none.
        metric: of published times to an accuracy, which are not predicted; empty: times at a rate.
    """

    key: str
    title: str
    note: str
    samples: float
    work: str
    study: str = ""
    epoch: float | None = None
    points: str = ""
    metric: str = ""


TASKS = (
    Task(
        "resnet50", "ResNet-50, 90 epochs",
        "90 epochs of ImageNet, each with 1,281,167 images of 224 x 224 pixels, at the training rate, without tests.",
        90 * IMAGENET, "resnet50_cost", study="resnet50_cost", epoch=IMAGENET,
    ),
    Task(
        "resnet50-accuracy", "ResNet-50 to 75.9 %",
        "Published times until 75.9 % of ImageNet's test images are classified correctly. Batch size and recipe differ"
        " between sources. Nothing is predicted.",
        1, "resnet50_cost", metric=TO_ACCURACY,
    ),
    Task(
        "simclr", "SimCLR, 200 epochs",
        "A ResNet-18 learns from two views of each of 50,000 CIFAR-10 images, with the article's test.",
        200 * 50_000, "simclr_epochs", study="simclr_epochs", epoch=50_000,
    ),
    Task(
        "segmentation", "Segmentation, 100,000 images",
        "A U-Net trains on 100,000 grey images of 512 x 512 pixels, at the training rate.",
        100_000, "segmentation_scaling", study="segmentation_scaling",
    ),
    Task(
        "gpt2", "GPT-2 small, a billion tokens",
        "124 million weights train on a billion tokens, in sequences of 1,024, at the training rate, without tests.",
        1e9 / 1024, "gpt2_124m", points="gpt_tokens",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """The cost of one task on one machine in one family of precisions.

    Attributes:
        task: the task's key.
        machine: its id in rows, or the chip.
        name: for people, with device and variant.
        source: measured, published or predicted.
        family: a key of FAMILIES.
        seconds, low, high: for the task; a published number without bounds has neither low nor high.
        basis: how many processes, windows, figures or publications, and the kind of bounds.
        chip: its name in the list of chips, else its own; empty if unknown.
        devices: that train together.
        here: whether this computer measured it.
        memory_gb: of one device; None if unknown.
        fits: the largest batch that fits into this memory, in words.
        price: prices seen, with their dates; empty without one.
        sources: citations, or the folder of the rows.
    """

    task: str
    machine: str
    name: str
    source: str
    family: str
    seconds: float
    low: float | None
    high: float | None
    basis: str
    sources: tuple[str, ...]
    chip: str = ""
    devices: int = 1
    here: bool = False
    memory_gb: float | None = None
    fits: str = ""
    price: str = ""

    @property
    def time(self) -> str:
        """Return the time in words: a prediction is a range, and other numbers have their bounds in brackets."""
        span = None if self.low is None else wording.span(pandas.Series([self.low, self.high]), wording.duration)
        if self.source == PREDICTED:
            return f"{span}, predicted"
        value = wording.duration(self.seconds)
        return value if span in (None, value) else f"{value} ({span})"


def marks(
    evidence: Evidence, headlines: pandas.DataFrame, memory: dict[str, float], today: datetime.date
) -> list[Mark]:
    """Return the marks of all tasks: measured and published ones first, each by its time.

    Args:
        evidence: measured and published rows.
        headlines: from `headline.table`.
        memory: gigabytes of main memory by machine.
        today: the day from which the age of prices is counted.
    """
    here = this_machine(evidence.folder)
    found = []
    for task in TASKS:
        known = [*_measured(task, evidence, headlines, here, memory), *_published(task)]
        taken = {(chips.product(mark.chip), mark.family) for mark in known if mark.devices == 1}
        known += _predicted(task, taken) if not task.metric else []
        found += sorted(known, key=lambda mark: (mark.source == PREDICTED, mark.seconds, mark.name, mark.family))
    return [_described(mark, today) for mark in found]


def this_machine(folder: Path | None) -> str:
    """Return this machine's id in the rows of a folder: its own, else that of a machine with the same fingerprint."""
    this = identity.identify()
    if folder is None or (folder / this.name).is_dir():
        return this.name
    for own in sorted(path for path in folder.glob("*") if path.is_dir()):
        _, manifest = next(manifests.files(own), (None, {}))
        if (manifest.get("machine") or {}).get("fingerprint") == this.fingerprint:
            return own.name
    return this.name


def shortest(every: Iterable[Mark]) -> pandas.DataFrame:
    """Return the shortest measured, published and predicted time of one device, in the words of each task's marks."""
    lines = []
    for task in TASKS:
        line = {"to train": task.title}
        for source in SOURCES:
            own = (mark for mark in every if (mark.task, mark.source, mark.devices) == (task.key, source, 1))
            best = min(own, key=lambda mark: mark.seconds, default=None)
            line[source] = f"{best.time}: {best.name}" if best else ""
        lines.append(line)
    return pandas.DataFrame(lines).set_index("to train").rename_axis(None)


def _measured(task: Task, evidence: Evidence, headlines: pandas.DataFrame, here: str, memory: dict) -> Iterator[Mark]:
    """Yield the marks of measured points and of the study's article; other image sizes are other work."""
    if task.points:
        points = evidence.points(task.points)
        adapted = [bool(settings.get("lora_rank")) for settings in points["settings"]]
        alike = points["model"].eq(task.work) & points["sequence_length"].eq(
            networks.describe(task.work).sequence_length
        )
        points = points[alike & ~pandas.Series(adapted, points.index, dtype=bool)]
        lines = points.assign(
            source=MEASURED, images_per_second=points["samples_per_second"], seconds_per_epoch=math.nan
        )
        lines = [line | {"of": line} for line in lines.to_dict("records")]
    else:
        lines = headlines[headlines["study"].eq(task.study)].to_dict("records")
    usual = set(evidence.published.loc[evidence.published["study"].eq(task.study), "dataset"].dropna())
    size = networks.describe(task.work).image_size
    for line in lines:
        point, rate = line["of"], line["images_per_second"]
        timed = task.epoch and pandas.notna(line["seconds_per_epoch"])
        seconds = line["seconds_per_epoch"] * task.samples / task.epoch if timed else task.samples / rate
        own_size = point.get("image_size")
        if not math.isfinite(seconds) or (size and pandas.notna(own_size) and own_size != size):
            continue
        is_measured, data = line["source"] == MEASURED, line["dataset"]
        count = int(point["device_count"]) if pandas.notna(point.get("device_count")) else 1
        words = [evidence.names.place(line | {"device_count": count}), line["variant"] if is_measured else ""]
        words += [f"on {naming.dataset(data)}"] if is_measured and usual and data not in usual else []
        bounded = pandas.notna(rate) and pandas.notna(line["low"])
        low, high = (seconds * rate / line[end] for end in ("high", "low")) if bounded else (None, None)
        yield Mark(
            task.key, line["machine"], ", ".join(filter(None, words)), line["source"],
            family_of(point.get("precision")), seconds, low, high, _basis(line, point), _sources(line, point),
            chip=chips.listed(point.get("device_name")) or chips.canonical(line["chip"]) or "", devices=count,
            here=is_measured and line["machine"] == here,
            memory_gb=memory.get(line["machine"]) if point.get("device") == "cpu" else None,
        )  # fmt: skip


def _basis(line: dict, point: dict) -> str:
    if line["source"] != MEASURED:
        return "one publication; bounds are its rounding"
    kind = "95 % interval" if line["interval"] == intervals.INTERVAL else "range"
    doubts = wording.hedged([{name: line[name] for name in ("verdict", "status")}])
    starts = wording.count(int(point["num_processes"]), "process")
    return f"{starts}, {wording.count(int(point['num_windows']), 'window')}; bounds are a {kind}{doubts}"


def _sources(line: dict, point: dict) -> tuple[str, ...]:
    if line["source"] != MEASURED:
        return (str(point.get("reference")),)
    return (f"rows in outputs/runs/{line['machine']}/{point['study']}/{point['point']}",)


def _published(task: Task) -> Iterator[Mark]:
    """Yield a mark for each chip, number of devices and family: the median of its published figures, least and most."""
    figures = articles.read()
    figures = figures[figures["refused"].eq("") & figures["device_count"].between(1, MOST_DEVICES)]
    if task.metric:
        printed = figures[figures["metric"].eq(task.metric) & figures["unit"].eq("min")]
        printed = printed.assign(seconds=MINUTE * printed["value"], family="unknown")
    else:
        network = networks.describe(task.work)
        size = "sequence_length" if network.sequence_length else "image_size"
        printed = figures[figures["network"].eq(network.name) & figures["rate"].gt(0) & figures["phase"].eq("train")]
        printed = printed[printed[size].eq(getattr(network, size)) & printed["computed"].notna()]
        family = printed["computed"].map(family_of)
        printed = printed.assign(seconds=task.samples / printed["rate"].astype(float), family=family)
    cited = [record.citation(line) for line in printed.to_dict("records")]
    for (chip, count, family), own in printed.assign(cited=cited).groupby(["chip", "device_count", "family"]):
        seconds = float(own.groupby("publication")["seconds"].median().median())
        low, high = (own["seconds"].min(), own["seconds"].max()) if len(own) > 1 else (None, None)
        publications = wording.count(int(own["publication"].nunique()), "publication")
        several = "; bounds are the least and most" if len(own) > 1 else ""
        basis = f"{wording.count(len(own), 'figure')} in {publications}{several}"
        name = chip if count == 1 else f"{count:.0f} x {chip}"
        sources = tuple(sorted(set(own["cited"])))
        yield Mark(
            task.key, name, name, PUBLISHED, family, seconds, low, high, basis, sources, chip=chip, devices=int(count)
        )


def _predicted(task: Task, taken: set[tuple[str, str]]) -> list[Mark]:
    """Return predictions for one device of each product without a measured or published time in the family."""
    size = networks.describe(task.work).image_size
    asked = [(chip, family) for chip in chips.table().index for family in PREDICTED_IN]
    asked = [(chip, family) for chip, family in asked if (chips.product(chip), family) not in taken]
    questions = [Question(chip, task.work, PREDICTED_IN[family], image_size=size) for chip, family in asked]
    found = {}
    for (chip, family), rate in zip(asked, predict.rates(questions), strict=True):
        if isinstance(rate, Unknown):
            continue
        seconds, low, high = (task.samples / value for value in (rate.value, rate.high, rate.low))
        mark = Mark(
            task.key, chip, chip, PREDICTED, family, seconds, low, high, f"{rate.basis}; bounds are a 90 % interval",
            ("Predicted by benchbook from the public record",), chip=chip,
        )  # fmt: skip
        # Sizes of a product with the same specifications have the same prediction; the shortest name stands for them.
        key = (chips.product(chip), family, f"{seconds:.4g}")
        found[key] = min(found.get(key, mark), mark, key=lambda each: len(each.name))
    return list(found.values())


def family_of(precision: object) -> str:
    """Return the family of a precision; TF32 counts as fp32, as in most publications."""
    if not isinstance(precision, str):
        return "unknown"
    return "fp32" if precision in ("fp32", "tf32") else "half"


def _described(mark: Mark, today: datetime.date) -> Mark:
    """Return a mark with the memory of its chip, what fits into it, and the prices seen."""
    network = networks.describe(next(task.work for task in TASKS if task.key == mark.task))
    unit = "sequence" if network.sequence_length else "image"
    batches = {}
    if mark.family in PREDICTED_IN:
        batches = estimate.largest_batches(network, mark.chip, mark.family, mark.memory_gb)
    fits = ""
    for least, most in batches.values():
        span = f"{least:,} to " if 0 < least < most else "at most " if least < most else ""
        fits = f"{span}{wording.count(most, unit)} a step" if most else f"not one {unit} a step"
        fits += ", with flash attention" if network.sequence_length else ""
    memory, price = mark.memory_gb, ""
    if chips.listed(mark.chip) and memory is None:
        memory, price = chips.specification(mark.chip).get("memory_gb"), _prices(mark.chip, mark.devices, today)
    return replace(mark, memory_gb=memory, fits=fits, price=price)


@functools.cache
def _prices(chip: str, count: int, today: datetime.date) -> str:
    """Return the newest purchase price and the usual rent of a chip, with their dates."""
    seen = []
    bought = estimate.purchase_prices(chip, today)
    if len(bought):
        newest = bought.iloc[0]
        seen.append(f"{wording.price(count * float(newest['usd']))} ({_date(newest['date'])})")
    offers = estimate.rental_offers(chip, today).dropna(subset="usd_per_hour")
    if len(offers):
        usual = estimate.usual_offers(offers)
        hourly = wording.price(count * estimate.usual_rent(offers))
        dates = sorted({_date(date) for date in usual["date"]})
        span = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
        seen.append(f"{hourly} an hour ({wording.count(len(usual), 'offer')}, {span})")
    return "; ".join(seen)


def _date(date: object) -> str:
    return date[:7] if isinstance(date, str) and date else "no date"
