"""The costs of a few tasks, such as 90 epochs of ResNet-50, on each machine and chip: time,
memory and prices seen.

Measured times and those of articles are the studies' headlines; other published times come from
the record. For the other chips the time is predicted, and a prediction is an interval.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pandas

from benchbook import studies
from benchbook.judging import intervals, verdicts, wording
from benchbook.record import articles, chips, naming, pairs, predict, prices
from benchbook.record.predict import Question, Unknown
from benchbook.rows import networks, records
from benchbook.studies.results.evidence import Evidence

MEASURED, PUBLISHED, PREDICTED = SOURCES = ("measured", "published", "predicted")
# Families of precisions, see `pairs.FAMILIES`, and the precision in which each is predicted.
PREDICTED_IN = {"fp32": "fp32", "half": "amp_fp16"}
MOST_DEVICES = 16  # of a single machine; above, a rate depends on the connection between machines
MINUTE = 60.0
IMAGENET = 1_281_167
OTHER_CODE = "other code"  # than the study's own: its time decides nothing
LINE = [
    "source",
    "machine",
    "device",
    "device_count",
    "variant",
    "family",
]  # of several points the best is shown


@dataclass(frozen=True)
class Task:
    """A training task that the start page compares machines by.

    Attributes:
        key: its name in addresses and data.
        title: its name for the reader.
        note: what is counted.
        samples: images or sequences to train on, in all epochs together.
        network: the study or network to predict; its name in the record.
        study: whose headline has measured values, and its article's; empty for none.
        work: in that headline's unit, such as epochs; 0: as many as samples.
        where: a query that selects the task's own work from the headline's table; empty: all of it.
        metric: of published times to an accuracy, which are not predicted; empty: times at a rate.
    """

    key: str
    title: str
    note: str
    samples: float
    network: str
    study: str = ""
    work: float = 0
    where: str = ""
    metric: str = ""


TASKS = (
    Task(
        "resnet50", "ResNet-50, 90 epochs",
        "90 epochs of ImageNet, each with 1,281,167 images of 224 x 224 pixels, at the training rate, without tests.",
        90 * IMAGENET, "resnet50_cost", "resnet50_cost", where="image_size == 224",
    ),
    Task(
        "resnet50-accuracy", "ResNet-50 to 75.9 %",
        "Published times until 75.9 % of ImageNet's test images are classified correctly. Batch size and recipe differ"
        " between sources. Nothing is predicted.",
        1, "resnet50_cost", metric="time_to_75.9",
    ),
    Task(
        "simclr", "SimCLR, 200 epochs",
        "A ResNet-18 learns from two views of each of 50,000 CIFAR-10 images, with the article's test. Nothing is"
        " predicted: fewer than five chips have published rates.",
        200 * 50_000, "simclr_epochs", "simclr_epochs", 200, "batch_size == 128",
    ),
    Task(
        "segmentation", "Segmentation, 100,000 images",
        "A U-Net trains on 100,000 grey images of 512 x 512 pixels, at the training rate. Nothing is predicted: fewer"
        " than five chips have published rates.",
        100_000, "segmentation_scaling", "segmentation_scaling",
        where="image_size == 512 and (width == 1 or source == 'published')",
    ),
    Task(
        "gpt2", "GPT-2 small, a billion tokens",
        "124 million weights train on a billion tokens, in sequences of 1,024, at the training rate, without tests."
        " A prediction is left out if its range is over a factor of 8.",
        1e9 / 1024, "gpt2_124m", "gpt_tokens", 1e9,  # articles' figures are in the record
        "source == 'measured' and model == 'gpt2_124m' and sequence_length == 1024 and lora_rank.fillna(0) == 0",
    ),
)  # fmt: skip


def table(
    evidence: Evidence, here: Collection[str], memory: Mapping[str, float]
) -> pandas.DataFrame:
    """Return the cost of each task on each machine and chip in each family of precisions.

    Args:
        evidence: measured and published rows.
        here: the reader's own machines.
        memory: gigabytes of main memory by machine.

    Returns:
        Of each task the measured and published lines first, each by its time; then predictions;
        then other code.
        Columns: task (its key), source (one of SOURCES), family (a key of `pairs.FAMILIES`),
        seconds, low, high (a published number may lack bounds), interval (the kind of the
        bounds: of `intervals`, PREDICTED, OTHER_CODE, or empty without), machine (its id in
        rows, or the chip), name (for people, with device and variant), basis (how many
        processes, windows, figures or publications, and the kind of bounds), sources (citations,
        separated by "|", or the folder of the rows), each (the seconds of each of several
        figures, separated by "|"), chip (its name in the list of chips, else its own; empty if
        unknown), devices (that train together), memory_gb (of one device), time (in words; a
        prediction is a range), fits (the largest batch in that memory, in words), rent (of the
        task, in US dollars), hour, buy and pays (see `prices.in_words`), here (whether the
        reader's own machine measured it).
    """
    lines = []
    for task in TASKS:
        own = [*(of_study(task, evidence, memory) if task.study else ()), *_published(task)]
        taken = {
            (chips.product(line["chip"]), line["family"]) for line in own if line["devices"] == 1
        }
        own += [] if task.metric else _predicted(task, taken)
        own.sort(key=_rank)
        network = networks.describe(task.network)
        lines += [{"task": task.key} | line | _described(line, network) for line in own]
    found = pandas.DataFrame(lines)
    return found.assign(here=found["source"].eq(MEASURED) & found["machine"].isin(here))


def of_study(task: Task, evidence: Evidence, memory: Mapping[str, float]) -> Iterator[dict]:
    """Yield the lines of a study's headline: of several points of a LINE the first, as `_ranked`
    orders them."""
    datasets = evidence.printed(task.study)["dataset"].dropna()
    for line in _ranked(task, evidence, datasets).drop_duplicates(LINE).to_dict("records"):
        told = _of_point if line["source"] == MEASURED else _of_article
        machine, is_cpu = line["machine"], line["device"] == "cpu"
        chip = (
            evidence.names.chips.get((machine, line["device"]))
            or chips.canonical(line["chip"])
            or ""
        )
        if is_cpu and chips.listed(chip):  # a Mac's chip is listed for its GPU
            chip = chips.canonical(f"{chip} CPU")
        numbers = {
            key: line[key] for key in ("source", "family", "seconds", "low", "high", "interval")
        }
        numbers |= {
            "devices": line["device_count"],
            "memory_gb": memory.get(machine) if is_cpu else None,
        }
        yield numbers | {"machine": machine, "chip": chip} | told(task, line, evidence, datasets)


def _ranked(task: Task, evidence: Evidence, datasets: pandas.Series) -> pandas.DataFrame:
    """Return the task's lines of its study's headline with their times: on the article's data,
    proven, stable, fast."""
    study = studies.every()[task.study]
    lines = study.lead.table(evidence)
    lines = lines[lines[study.quantity].notna() & lines["source"].isin([MEASURED, PUBLISHED])]
    lines = lines[lines["status"].isin(records.TRAINED)]
    lines = lines.query(task.where, engine="python") if task.where else lines
    times = study.seconds(
        lines[[study.quantity, "low", "high"]].astype(float), task.work or task.samples
    )
    ranking = {
        "on_other_data": len(datasets) > 0 and ~lines["dataset"].isin(datasets.mode()[:1]),
        "unproven": lines["verdict"].map(verdicts.is_unproven),
        "unstable": lines["verdict"].map(verdicts.is_unstable),
        "seconds": times[study.quantity],
    }
    counts = lines["device_count"].fillna(1).astype(int) if "device_count" in lines else 1
    lines = lines.assign(
        **ranking, device_count=counts, family=lines["precision"].map(pairs.family_of)
    )
    lines = lines.assign(
        low=times[["low", "high"]].min(axis=1), high=times[["low", "high"]].max(axis=1)
    )
    return lines.sort_values(list(ranking), kind="stable")


def _of_point(task: Task, line: dict, evidence: Evidence, datasets: pandas.Series) -> dict:
    """Return the name, basis and sources of a measured line."""
    point = evidence.point(line["machine"], task.study, line["point"])
    is_other = len(datasets) and not datasets.isin([line["dataset"]]).any()
    name = f"{evidence.names.place(line)}, {line['variant']}"
    name += f", on {naming.dataset(line['dataset'])}" if is_other else ""
    starts = wording.count(int(point["num_processes"]), "process")
    kind = "95 % interval" if line["interval"] == intervals.INTERVAL else "range"
    basis = f"{starts}, {wording.count(int(point['num_windows']), 'window')}; bounds are a {kind}"
    doubts = wording.doubts({name: line[name] for name in ("verdict", "status")})
    basis += f" ({'; '.join(doubts)})" if doubts else ""
    sources = f"rows in outputs/runs/{line['machine']}/{task.study}/{line['point']}"
    return {"name": name, "basis": basis, "sources": sources}


def _of_article(task: Task, line: dict, evidence: Evidence, datasets: pandas.Series) -> dict:
    """Return the name, basis and source of a published line; a note says that its code is
    another."""
    printed, note = evidence.printed(task.study), line.get("note")
    basis = "; ".join(filter(None, (note, "one publication; bounds are its rounding")))
    source = printed.loc[printed["machine"].eq(line["machine"]).idxmax(), "reference"]
    told = {"name": evidence.names.place(line), "basis": basis, "sources": source}
    return told | ({"interval": OTHER_CODE} if note else {})


def _published(task: Task) -> Iterator[dict]:
    """Yield a line for each chip, number of devices and family: the median of its published
    figures, least and most."""
    figures = articles.read()
    figures = figures[figures["refused"].eq("") & figures["device_count"].between(1, MOST_DEVICES)]
    if task.metric:
        printed = figures[figures["metric"].eq(task.metric) & figures["unit"].eq("min")]
        printed = printed.assign(seconds=MINUTE * printed["value"], family="unknown")
    else:
        network = networks.describe(task.network)
        size = "sequence_length" if network.sequence_length else "image_size"
        printed = figures[
            figures["network"].eq(network.name)
            & figures["rate"].gt(0)
            & figures["phase"].eq("train")
        ]
        printed = printed[printed[size].eq(getattr(network, size)) & printed["computed"].notna()]
        family = printed["computed"].map(pairs.family_of)
        printed = printed.assign(
            seconds=task.samples / printed["rate"].astype(float), family=family
        )
    printed = printed.assign(cited=[articles.citation(line) for line in printed.to_dict("records")])
    for (chip, count, family), own in printed.groupby(["chip", "device_count", "family"]):
        middles = own.groupby("publication")["seconds"].median()
        seconds = own["seconds"].sort_values()
        bounds = (
            {"low": seconds.min(), "high": seconds.max(), "interval": intervals.RANGE}
            if len(own) > 1
            else {}
        )
        bounds |= {"each": "|".join(map("{:.4g}".format, seconds))} if len(own) > 1 else {}
        basis = (
            f"{wording.count(len(own), 'figure')} in {wording.count(len(middles), 'publication')}"
        )
        basis += "; bounds are the least and most" if bounds else ""
        name = chip if count == 1 else f"{count:.0f} x {chip}"
        cited = " | ".join(sorted(set(own["cited"])))
        yield bounds | {
            "machine": name, "name": name, "source": PUBLISHED, "family": family, "seconds": middles.median(),
            "basis": basis, "sources": cited, "chip": chip, "devices": int(count),
        }  # fmt: skip


def _predicted(task: Task, taken: set[tuple[str, str]]) -> list[dict]:
    """Return predictions for one device of each product without a measured or published time in
    the family."""
    size = networks.describe(task.network).image_size
    asked = [(chip, family) for chip in chips.table().index for family in PREDICTED_IN]
    asked = [(chip, family) for chip, family in asked if (chips.product(chip), family) not in taken]
    questions = [
        Question(chip, task.network, PREDICTED_IN[family], image_size=size)
        for chip, family in asked
    ]
    found = {}
    for (chip, family), rate in zip(asked, predict.rates(questions), strict=True):
        if isinstance(rate, Unknown):
            continue
        seconds, low, high = (task.samples / value for value in (rate.value, rate.high, rate.low))
        line = {
            "machine": chip, "name": chip, "source": PREDICTED, "family": family, "chip": chip, "devices": 1,
            "seconds": seconds, "low": low, "high": high, "interval": PREDICTED,
            "basis": f"{rate.basis}; bounds are a 90 % interval",
            "sources": "Predicted by benchbook from the public record",
        }  # fmt: skip
        # Sizes of a product with the same specifications have the same prediction; the shortest
        # name stands for them.
        key = (chips.product(chip), family, f"{seconds:.4g}")
        found[key] = min(found.get(key, line), line, key=lambda each: len(each["name"]))
    return list(found.values())


def _rank(line: dict) -> tuple:
    is_other, is_predicted = line.get("interval") == OTHER_CODE, line["source"] == PREDICTED
    return is_other, is_predicted, line["seconds"], line["name"], line["family"]


def _described(line: dict, network: networks.Network) -> dict:
    """Return the time of a line in words, the memory of its chip, what fits into it, and what it
    costs."""
    time, low, high = wording.duration(line["seconds"]), line.get("low"), line.get("high")
    ends = [line["seconds"]]
    if pandas.notna(low):
        ends = [low, high]
        span = wording.span(pandas.Series(ends), wording.duration)
        kind = "range " if line.get("interval") == intervals.RANGE else ""
        more = "" if span == time else f" ({kind}{span})"
        time = f"{span}, predicted" if line["source"] == PREDICTED else f"{time}{more}"
    unit = "sequence" if network.sequence_length else "image"
    chip, memory, count, priced = line["chip"], line.get("memory_gb"), line["devices"], {}
    is_known = line["family"] in PREDICTED_IN
    batches = chips.largest_batches(network, chip, line["family"], memory) if is_known else {}
    fits = ""
    for least, most, by in batches.values():
        span = f"{least:,} to " if 0 < least < most else "at most " if least < most else ""
        fits = f"{span}{wording.count(most, unit)} a step" if most else f"not one {unit} a step"
        fits += f"{', with flash attention' if network.sequence_length else ''}{by}"
    if chips.listed(chip) and memory is None:
        memory = chips.specification(chip).get("memory_gb")
        priced = dict(prices.in_words(chip, count))
        if hourly := prices.usual_rent(chip):
            dollars = pandas.Series([prices.rent(seconds, count * hourly) for seconds in ends])
            priced["rent"] = wording.span(dollars, wording.price)
    return {"time": time, "memory_gb": memory, "fits": fits} | priced
