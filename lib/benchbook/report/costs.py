"""The costs of a few tasks, such as 90 epochs of ResNet-50, on each machine and chip: time, memory and prices seen.

Measured times and those of articles are the values of the studies' lead charts; other published times come from the
record. For the other chips the time is predicted, and a prediction is an interval.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pandas

from benchbook import studies
from benchbook.judging import intervals, statistics, verdicts, wording
from benchbook.machine import identity
from benchbook.record import articles, chips, estimate, naming, predict
from benchbook.record.predict import Question, Unknown
from benchbook.rows import networks, records
from benchbook.studies.study import Evidence

MEASURED, PUBLISHED, PREDICTED = SOURCES = ("measured", "published", "predicted")
# Families of precisions by the reader's words for them, and the precision in which each is predicted.
FAMILIES = {"fp32": "fp32 or tf32", "half": "16 bits", "unknown": "the precision of its source"}
PREDICTED_IN = {"fp32": "fp32", "half": "amp_fp16"}
MOST_DEVICES = 16  # of a single machine; above, a rate depends on the connection between machines
MINUTE = 60.0
IMAGENET = 1_281_167
LINE = ["source", "machine", "device", "device_count", "variant", "family"]  # a mark each, of the best of its points


@dataclass(frozen=True)
class Task:
    """A training task that the start page compares machines by.

    Attributes:
        key: its name in addresses and data.
        title: its name for the reader.
        note: what is counted.
        samples: images or sequences to train on, in all epochs together.
        work: the study or network to predict; its name in the record.
        study: whose lead chart has measured values, and its article's; empty for none.
        seconds: from a value of that chart to the seconds of the task.
        where: a query that selects the task's own work from the chart's table; empty: all of it.
        metric: of published times to an accuracy, which are not predicted; empty: times at a rate.
    """

    key: str
    title: str
    note: str
    samples: float
    work: str
    study: str = ""
    seconds: Callable[[pandas.Series], pandas.Series] | None = None
    where: str = ""
    metric: str = ""


TASKS = (
    Task(
        "resnet50", "ResNet-50, 90 epochs",
        "90 epochs of ImageNet, each with 1,281,167 images of 224 x 224 pixels, at the training rate, without tests.",
        90 * IMAGENET, "resnet50_cost", "resnet50_cost", lambda rate: 90 * IMAGENET / rate, "image_size == 224",
    ),
    Task(
        "resnet50-accuracy", "ResNet-50 to 75.9 %",
        "Published times until 75.9 % of ImageNet's test images are classified correctly. Batch size and recipe differ"
        " between sources. Nothing is predicted.",
        1, "resnet50_cost", metric="time_to_75.9",
    ),
    Task(
        "simclr", "SimCLR, 200 epochs",
        "A ResNet-18 learns from two views of each of 50,000 CIFAR-10 images, with the article's test.",
        200 * 50_000, "simclr_epochs", "simclr_epochs", lambda minutes: 200 * MINUTE * minutes,
    ),
    Task(
        "segmentation", "Segmentation, 100,000 images",
        "A U-Net trains on 100,000 grey images of 512 x 512 pixels, at the training rate.",
        100_000, "segmentation_scaling", "segmentation_scaling", lambda milliseconds: 100_000 * milliseconds / 1000,
        "image_size == 512 and (width == 1 or source == 'published')",
    ),
    Task(
        "gpt2", "GPT-2 small, a billion tokens",
        "124 million weights train on a billion tokens, in sequences of 1,024, at the training rate, without tests.",
        1e9 / 1024, "gpt2_124m", "gpt_tokens", lambda rate: 1e9 / rate,  # articles' figures are in the record
        "source == 'measured' and model == 'gpt2_124m' and sequence_length == 1024 and lora_rank.fillna(0) == 0",
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
        sources: citations, separated by "|", or the folder of the rows.
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
    sources: str
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


def marks(evidence: Evidence, here: str, memory: Mapping[str, float]) -> list[Mark]:
    """Return the marks of all tasks: measured and published ones first, each by its time.

    Args:
        evidence: measured and published rows.
        here: the name of this machine.
        memory: gigabytes of main memory by machine.
    """
    found = []
    for task in TASKS:
        known = [*(of_study(task, evidence, here, memory) if task.study else ()), *_published(task)]
        taken = {(chips.product(mark.chip), mark.family) for mark in known if mark.devices == 1}
        known += _predicted(task, taken) if not task.metric else []
        known = sorted(known, key=lambda mark: (mark.source == PREDICTED, mark.seconds, mark.name, mark.family))
        found += [_described(mark, networks.describe(task.work)) for mark in known]
    return found


def this_machine(measured: pandas.DataFrame, manifests: Mapping[str, dict]) -> str:
    """Return this machine's name in measured rows: its own, else that of a machine with the same fingerprint."""
    this, machines = identity.identify(), measured.drop_duplicates("run_id").set_index("run_id")["machine"]
    known = {run: (manifest.get("machine") or {}).get("fingerprint") for run, manifest in manifests.items()}
    alike = sorted(name for run, name in machines.items() if known.get(run) == this.fingerprint)
    return this.name if this.name in machines.array or not alike else alike[0]


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


def of_study(task: Task, evidence: Evidence, here: str, memory: Mapping[str, float]) -> Iterator[Mark]:
    """Yield the marks of a study's lead chart: of several points of a LINE the first in the ranking below."""
    chart = studies.every()[task.study].charts[0]
    lines = chart.table(evidence)
    lines = lines[lines[chart.value].notna() & lines["source"].isin([MEASURED, PUBLISHED])]
    lines = lines[lines["status"].isin(records.TRAINED)]
    lines = lines.query(task.where, engine="python") if task.where else lines
    ends = task.seconds(lines[["low", "high"]].astype(float))
    datasets = evidence.printed(task.study)["dataset"].dropna()
    ranking = {
        "on_other_data": len(datasets) > 0 and ~lines["dataset"].isin(datasets.mode()[:1]),
        "unproven": lines["verdict"].map(verdicts.is_unproven),
        "unstable": lines["verdict"].map(verdicts.is_unstable),
        "seconds": task.seconds(lines[chart.value].astype(float)),
    }
    counts = lines["device_count"].fillna(1).astype(int) if "device_count" in lines else 1
    lines = lines.assign(**ranking, device_count=counts, family=lines["precision"].map(family_of))
    lines = lines.assign(low=ends.min(axis=1), high=ends.max(axis=1))
    lines = lines.sort_values(list(ranking), kind="stable").drop_duplicates(LINE)
    points = evidence.summary.set_index(statistics.POINT_KEY)
    references = evidence.printed(task.study).drop_duplicates("machine").set_index("machine")["reference"]
    for line in lines.to_dict("records"):
        machine, is_measured = line["machine"], line["source"] == MEASURED
        words, basis, sources = [evidence.names.place(line)], "one publication; bounds are its rounding", ""
        if is_measured:
            point = points.loc[(machine, task.study, line["point"])]
            words += [line["variant"]]
            is_other = len(datasets) and not datasets.isin([line["dataset"]]).any()
            words += [f"on {naming.dataset(line['dataset'])}"] if is_other else []
            starts = wording.count(int(point["num_processes"]), "process")
            kind = "95 % interval" if line["interval"] == intervals.INTERVAL else "range"
            basis = f"{starts}, {wording.count(int(point['num_windows']), 'window')}; bounds are a {kind}"
            basis += wording.hedged({name: line[name] for name in ("verdict", "status")})
            sources = f"rows in outputs/runs/{machine}/{task.study}/{line['point']}"
        low, high = (line["low"], line["high"]) if pandas.notna(line["low"]) else (None, None)
        yield Mark(
            task.key, machine, ", ".join(words), line["source"], line["family"], line["seconds"], low, high, basis,
            sources or references[machine], devices=line["device_count"], here=is_measured and machine == here,
            chip=evidence.names.chips.get((machine, line["device"])) or chips.canonical(line["chip"]) or "",
            memory_gb=memory.get(machine) if line["device"] == "cpu" else None,
        )  # fmt: skip


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
    printed = printed.assign(cited=[articles.citation(line) for line in printed.to_dict("records")])
    key = ["chip", "device_count", "family"]
    middle = printed.groupby([*key, "publication"])["seconds"].median().groupby(key).median()
    groups = printed.groupby(key)
    ends = groups["seconds"].agg(["min", "max", "size"]).assign(publications=groups["publication"].nunique())
    cited = groups["cited"].agg(lambda own: " | ".join(sorted(set(own))))
    for (chip, count, family), least, most, number, publications in ends.itertuples(name=None):
        basis = f"{wording.count(number, 'figure')} in {wording.count(publications, 'publication')}"
        basis += "; bounds are the least and most" if number > 1 else ""
        low, high = (least, most) if number > 1 else (None, None)
        name, of = chip if count == 1 else f"{count:.0f} x {chip}", (chip, count, family)
        yield Mark(
            task.key, name, name, PUBLISHED, family, float(middle[of]), low, high, basis, cited[of], chip=chip,
            devices=int(count),
        )  # fmt: skip


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
            "Predicted by benchbook from the public record", chip=chip,
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


def _described(mark: Mark, network: networks.Network) -> Mark:
    """Return a mark with the memory of its chip, what fits into it, and the prices seen."""
    unit = "sequence" if network.sequence_length else "image"
    is_known, fits = mark.family in PREDICTED_IN, ""
    batches = estimate.largest_batches(network, mark.chip, mark.family, mark.memory_gb) if is_known else {}
    for least, most in batches.values():
        span = f"{least:,} to " if 0 < least < most else "at most " if least < most else ""
        fits = f"{span}{wording.count(most, unit)} a step" if most else f"not one {unit} a step"
        fits += ", with flash attention" if network.sequence_length else ""
    memory, price = mark.memory_gb, ""
    if chips.listed(mark.chip) and memory is None:
        memory, price = chips.specification(mark.chip).get("memory_gb"), _prices(mark.chip, mark.devices)
    return replace(mark, memory_gb=memory, fits=fits, price=price)


@functools.cache
def _prices(chip: str, count: int) -> str:
    """Return the newest purchase price and the usual rent of a chip, with their dates."""
    newest = estimate.purchase_prices(chip)[:1].to_dict("records")
    seen = [f"{wording.price(count * float(price['usd']))} ({_date(price['date'])})" for price in newest]
    offers = estimate.rental_offers(chip)
    if len(offers):
        usual = estimate.usual_offers(offers)
        hourly = wording.price(count * float(usual["usd_per_hour"].median()))
        dates = sorted({_date(date) for date in usual["date"]})
        span = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
        seen.append(f"{hourly} an hour ({wording.count(len(usual), 'offer')}, {span})")
    return "; ".join(seen)


def _date(date: object) -> str:
    return date[:7] if isinstance(date, str) and date else "no date"
