"""The costs of a few tasks, such as 90 epochs of ResNet-50, on each machine and chip: time,
memory and prices seen.

Measured times are the studies' headlines; all other evidence comes from `record.estimates`.
"""

import functools
import math
from collections.abc import Collection, Iterable, Mapping

import pandas

from benchbook import studies
from benchbook.judging import intervals, statistics, verdicts, wording
from benchbook.record import articles, chips, estimates, naming, observations, prices
from benchbook.record.estimates import MEASURED, MOST_DEVICES, PREDICTED, Estimate
from benchbook.record.predict import Question, Unknown
from benchbook.report import tables
from benchbook.rows import records, titles
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.study import Task

# Families of precisions, see `observations.FAMILIES`, and the precision in which each is asked for.
PREDICTED_IN = {"fp32": "fp32", "half": "amp_fp16"}
MINUTE = 60.0
LINE = ["machine", "device", "device_count", "variant", "family"]  # of several points the best


@functools.cache
def tasks() -> tuple[Task, ...]:
    """Return the tasks of all studies, those with most published figures first."""
    every = (task for study in studies.every().values() for task in study.tasks)
    return tuple(sorted(every, key=lambda task: -len(estimates.published(task.described))))


def table(
    evidence: Evidence, here: Collection[str], memory: Mapping[str, float]
) -> pandas.DataFrame:
    """Return the cost of each task on each machine and chip in each family of precisions.

    Args:
        evidence: measured and published rows.
        here: the reader's own machines.
        memory: gigabytes of main memory by machine.

    Returns:
        Of each task the measured and published lines first, each by its time; then predictions.
        Columns: task (its key), source (a kind of `estimates`), family (a key of
        `observations.FAMILIES`), seconds, low, high, interval (the kind of the bounds: of
        `intervals`, PUBLISHED or PREDICTED), machine (its id in rows, or the chip),
        name (for people, with device and variant), basis (how many processes, windows, figures
        or publications, and the kind of bounds), sources (citations, separated by "|", or the
        folder of the rows), address (of a measured line, in the report), each (the seconds of
        each of several figures, separated by "|"), chip
        (its name in the list of chips, else its own; empty if unknown), devices (that train
        together), memory_gb (of one device), time (in words), fits (the largest batch in that
        memory, in words), energy (kilowatt-hours that were measured or published, else a bound),
        usd and rent (of the task: number and words), hour, buy, noted and pays (see
        `prices.in_words`), here (whether the reader's own machine measured it), estimate
        (the `Estimate`).
    """
    lines = []
    for task in tasks():
        own = of_task(task, evidence, memory)
        lines += [{"task": task.key} | line | _described(task, line) for line in own]
    found = pandas.DataFrame(lines)
    return found.assign(here=found["source"].eq(MEASURED) & found["machine"].isin(here))


def of_task(task: Task, evidence: Evidence, memory: Mapping[str, float]) -> list[dict]:
    """Return the lines of a task in the order of `table`, without what follows from their chip."""
    own = of_study(task, evidence, memory) if task.study else []
    return sorted([*own, *_of_chips(task, own)], key=_rank)


def fastest(lines: Iterable[dict], family: str = "") -> list[dict]:
    """Return the fastest line of each name, in a family of precisions or any; the fastest first.

    The start page (start.js) chooses in the same way.
    """
    found: dict[str, dict] = {}
    for line in sorted(lines, key=lambda line: line["seconds"]):
        if family in ("", line["family"]):
            found.setdefault(line["name"], line)
    return list(found.values())


def of_chip(task: Task, chip: str) -> list[dict]:
    """Return the lines of one device of a chip in the list, by its name."""
    if task.metric:
        found = [each for each in _to_accuracy(task) if (each.chip, each.devices) == (chip, 1)]
    else:
        found = estimates.find([question(task, chip, family) for family in PREDICTED_IN])
    return [_of_estimate(task, each) for each in found if not isinstance(each, Unknown)]


def of_study(task: Task, evidence: Evidence, memory: Mapping[str, float]) -> list[dict]:
    """Return the measured lines of a study's headline: of several points of a LINE the first, as
    `_ranked` orders them."""
    datasets, found = evidence.printed(task.study)["dataset"].dropna(), []
    for line in _ranked(task, evidence, datasets).drop_duplicates(LINE).to_dict("records"):
        machine = line["machine"]
        chip = evidence.names.chips.get((machine, line["device"])) or chips.canonical(line["chip"])
        chip = observations.processor(chip or "", line["device"])
        numbers = {
            key: line[key] for key in ("source", "family", "seconds", "low", "high", "interval")
        }
        numbers |= {
            "devices": line["device_count"],
            "memory_gb": memory.get(machine) if line["device"] == "cpu" else None,
            "machine": machine,
            "chip": chip,
        }
        found.append(numbers | _of_point(task, numbers | line | {"chip": chip}, evidence, datasets))
    return found


def _ranked(task: Task, evidence: Evidence, datasets: pandas.Series) -> pandas.DataFrame:
    """Return the task's lines of its study's headline with their times: on the article's data,
    proven, stable, fast."""
    study = studies.every()[task.study]
    lines = study.lead.table(evidence)
    lines = lines[lines[study.quantity].notna() & lines["source"].eq(MEASURED)]
    lines = lines[lines["status"].isin(records.TRAINED)]
    lines = records.having(lines, **task.where)
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
        **ranking, device_count=counts, family=lines["precision"].map(observations.family_of)
    )
    lines = lines.assign(
        low=times[["low", "high"]].min(axis=1), high=times[["low", "high"]].max(axis=1)
    )
    return lines.sort_values(list(ranking), kind="stable")


def _of_point(task: Task, line: dict, evidence: Evidence, datasets: pandas.Series) -> dict:
    """Return the name, basis and sources of a measured line."""
    point = evidence.point(line["machine"], task.study, line["point"])
    is_other = len(datasets) and not datasets.isin([line["dataset"]]).any()
    told = naming.words(line | {"batch_size": point["batch_size"]}, ("variant", "batch_size"))
    name = f"{evidence.names.place(line)}, {told}"
    name += f", on {titles.dataset(line['dataset'])}" if is_other else ""
    starts = wording.count(int(point["num_processes"]), "process")
    kind = "95 % interval" if line["interval"] == intervals.INTERVAL else "range"
    counted = starts, wording.count(int(point["num_windows"]), "window")
    day = statistics.day(str(point["session"]))
    basis = f"{', '.join(filter(None, (*counted, day)))}; bounds are a {kind}"
    doubts = wording.doubts({name: line[name] for name in ("verdict", "status")})
    basis += f" ({'; '.join(doubts)})" if doubts else ""
    sources = f"rows in outputs/runs/{line['machine']}/{task.study}/{line['point']}"
    value, low, high = (task.samples / line[key] for key in ("seconds", "high", "low"))
    if line["interval"] == intervals.RANGE:  # of one process: the next may be as far off
        factor = math.exp(intervals.half_widths(0.0, 1)[1])
        low, high = min(low, value / factor), max(high, value * factor)
    estimate = Estimate(
        value, low, high, MEASURED, basis, sources, chip=line["chip"], work=task.work_name,
        family=line["family"], devices=int(line["device_count"]),
    )  # fmt: skip
    named = {"name": name, "basis": basis, "sources": sources, "estimate": estimate}
    named["address"] = tables.address(line["machine"], task.study, line["point"])
    if point["energy_per_sample"] > 0:
        read = f"measured; {point['energy_boundary']}"
        named["energy"] = _kilowatt_hours(task.samples * point["energy_per_sample"], read)
    return named


def _of_estimate(task: Task, estimate: Estimate) -> dict:
    """Return the columns of a line that follow from its estimate."""
    seconds, low, high = (
        task.samples / rate for rate in (estimate.value, estimate.high, estimate.low)
    )
    each = [f"{task.samples / rate:.4g}" for rate in reversed(estimate.each)]
    name = f"{estimate.devices} x {estimate.chip}" if estimate.devices > 1 else estimate.chip
    return {
        "machine": name, "name": name, "source": estimate.kind, "family": estimate.family,
        "seconds": seconds, "low": low, "high": high, "interval": estimate.kind,
        "basis": f"{estimate.basis}; bounds are a 90 % interval", "sources": estimate.sources,
        "each": "|".join(each) if len(each) > 1 else None, "chip": estimate.chip,
        "devices": estimate.devices, "estimate": estimate,
    }  # fmt: skip


def _of_chips(task: Task, own: list[dict]) -> list[dict]:
    """Return the published lines, and for chips without any the predicted ones, but for products
    that were measured."""
    if task.metric:
        return [_of_estimate(task, each) for each in _to_accuracy(task)]
    published = estimates.published(task.described)
    single = {chip for chip, count, _ in published if count == 1}
    found = [
        each for (chip, count, _), each in published.items() if count > 1 or not chips.listed(chip)
    ]
    known = {(chips.product(line["chip"]), line["family"]) for line in own if line["devices"] == 1}
    asked = [(chip, family) for chip in chips.table().index for family in PREDICTED_IN]
    answers, predicted = estimates.find([question(task, *each) for each in asked]), {}
    for (chip, family), answer in zip(asked, answers, strict=True):
        if isinstance(answer, Unknown):
            continue
        # Sizes of a product with the same specifications have the same prediction; the shortest
        # name stands for them.
        key = (chips.product(chip), family, f"{answer.value:.4g}")
        if answer.kind != PREDICTED:
            found += [answer] if chip in single else []
        elif key[:2] not in known:
            predicted[key] = min(predicted.get(key, answer), answer, key=lambda one: len(one.chip))
    return [_of_estimate(task, each) for each in [*found, *predicted.values()]]


def question(task: Task, chip: str, family: str) -> Question:
    """Return what is asked of a chip: a task's work, in the precision that frameworks take for a
    family by default, which for convolutions in fp32 is TF32 where a chip has it."""
    precision = "tf32" if family == "fp32" and chips.has_tf32(chip) else PREDICTED_IN[family]
    return Question(chip, task.network, precision)


def _to_accuracy(task: Task) -> list[Estimate]:
    """Return the published times to an accuracy, whose rate is a whole training a second."""
    figures = observations.usable()
    own = figures[figures["metric"].eq(task.metric) & figures["unit"].eq("min")]
    own = own[own["device_count"].between(1, MOST_DEVICES)]
    cited = [articles.citation(line) for line in own.to_dict("records")]
    own = own.assign(rate=1 / (MINUTE * own["value"]), family="unknown", cited=cited)
    return [
        estimates.of_figures(lines, chip=chip, family="unknown", devices=int(count))
        for (chip, count), lines in own.groupby(["chip", "device_count"])
    ]


def _rank(line: dict) -> tuple:
    return line["source"] == PREDICTED, line["seconds"], line["name"], line["family"]


def _kilowatt_hours(joules: float, read: str) -> str:
    return f"{wording.number(joules / 3.6e6)} kWh, {read}"


def _energy(task: Task, line: dict) -> str:
    """Return the published energy of a chip's line in words, else what its board's power and its
    time allow; empty if neither is known."""
    chip, count, seconds = line["chip"], line["devices"], line["seconds"]
    published = estimates.joules(task.described).get((chip, line["family"]))
    if published and count == 1:
        return _kilowatt_hours(task.samples * published[0], f"published; {published[1]}")
    if not (watts := chips.specification(chip).get("tdp_watts")):
        return ""
    most = wording.number(count * watts * seconds / 3.6e6)
    each = f"{count} x " if count > 1 else ""
    return f"at most {most} kWh: {each}{watts:g} W x {wording.duration(seconds)}"


def _described(task: Task, line: dict) -> dict:
    """Return the time of a line in words, the memory of its chip, what fits into it, and what it
    costs."""
    ends, network = (line["seconds"], line["low"], line["high"]), task.described
    time, seconds = wording.duration_within(*ends), pandas.Series(ends)
    time += ", predicted" if line["source"] == PREDICTED else ""
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
        energy = line.get("energy") or _energy(task, line)
        priced = {"energy": energy, **prices.in_words(chip, count)}
        if hourly := prices.usual_rent(chip):
            dollars = prices.rent(seconds, count * hourly)
            priced |= {"usd": dollars[0], "rent": wording.price(dollars[0])}
            priced["rent"] += f" ({wording.span(dollars[1:], wording.price)})"
    return {"time": time, "memory_gb": memory, "fits": fits} | priced
