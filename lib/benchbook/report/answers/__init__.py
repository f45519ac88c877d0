"""The answers: the time, money and energy that each machine takes for each task.

The aggregation gathers the marks of all tasks and saves them. The report loads them and shows them on a page for each
task (the first task has the start page) and for each machine. It publishes them as CSV, and as JSON with a schema,
licence and citation.
"""

import datetime
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pandas

from benchbook.judging import wording
from benchbook.machine import identity
from benchbook.record import chips, estimate
from benchbook.report import tables
from benchbook.report.answers import from_record, from_rows
from benchbook.report.answers.marks import (
    BY_KEY,
    FAMILIES,
    KINDS,
    MEASURED,
    PREDICTED,
    PRESETS,
    SOURCES,
    TASKS,
    Mark,
    Task,
)
from benchbook.rows import manifests
from benchbook.studies import predictions
from benchbook.studies.study import Evidence

FILE = "answers.json"
USD_PER_KWH = 0.30  # of electricity, until the reader states another price
# The possible ticks of the time axis, in seconds.
TIME = (1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 21_600, 86_400, 259_200, 864_000, 8.64e6, 8.64e7, 8.64e8)
MOST_TICKS = 6
NUMBER = {"type": ["number", "null"]}
TEXT = {"type": "string"}
# Each field of a line: the mark's attribute that it holds, and how JSON Schema describes it.
FIELDS = {
    "task": ("task", {"enum": [task.key for task in TASKS], "description": "what is trained; see tasks"}),
    "machine": ("place", TEXT | {"description": "the machine's id in rows, or the chip and the number of devices"}),
    "name": ("name", TEXT | {"description": "the machine's name for people"}),
    "source": ("source", {"enum": list(SOURCES)}),
    "kind": ("kind", {"enum": list(KINDS)}),
    "chip": ("chip", TEXT | {"description": "name in the list of chips, else the chip's own name; empty if unknown"}),
    "devices": ("count", {"type": "integer", "minimum": 1, "description": "number of devices that train together"}),
    "precision": ("family", TEXT | {"description": "fp32 (includes TF32), half (16 bits), or unknown"}),
    "seconds": ("seconds", {"type": "number", "exclusiveMinimum": 0, "description": "for the whole task"}),
    "seconds_low": ("low", NUMBER | {"description": "lower bound; null if there is one published number"}),
    "seconds_high": ("high", NUMBER | {"description": "upper bound; null if there is one published number"}),
    "bounds": ("bounds", TEXT | {"description": "the kind of bounds"}),
    "joules": ("joules", NUMBER | {"description": "of this work on this chip, for the whole task; null if unknown"}),
    "energy_estimated": ("estimated", {"type": "boolean", "description": "computed from a power and the time"}),
    "energy_note": ("energy_note", TEXT),
    "rent_usd_per_hour": ("rent", NUMBER | {"description": "of all devices together; null without a price"}),
    "rent_note": ("rent_note", TEXT),
    "purchase_usd": ("purchase", NUMBER | {"description": "of all devices together; null without a price"}),
    "purchase_note": ("purchase_note", TEXT),
    "rent_usd": ("rented", NUMBER | {"description": "rent for the whole task; null without a price"}),
    "memory_gb": ("memory_gb", NUMBER | {"description": "of one device; null if unknown"}),
    "based_on": ("based_on", TEXT | {"description": "number of runs, kernels, windows, figures or publications"}),
    "difference": ("difference", TEXT | {"description": "how its work differs from the task's; empty if it does not"}),
    "sources": ("sources", {"type": "array", "items": TEXT}),
}


def gather(evidence: Evidence, headlines: pandas.DataFrame, here: str) -> tuple[list[Mark], list[dict]]:
    """Return the marks of all tasks, without prices, and the reasons why others are not predicted.

    Args:
        evidence: measured and published rows.
        headlines: from `headline.table`.
        here: the id of this machine in rows.

    Returns:
        The marks, sorted by task and time; and dictionaries with task, family, reason and chips.
    """
    order = list(BY_KEY)
    marks = [*from_rows.of_studies(evidence, headlines, here), *from_rows.of_networks(evidence, here)]
    recorded, refused = from_record.of_record(predictions.learn(evidence), marks)
    ranked = sorted(marks + recorded, key=lambda mark: (order.index(mark.task), mark.seconds, mark.name, mark.family))
    return ranked, refused


def priced(marks: Iterable[Mark], today: datetime.date) -> list[Mark]:
    """Return marks with the prices and the memory of their chips; marks of CPUs, which are not in the list, stay.

    Args:
        marks: without prices.
        today: the day from which the age of prices is counted.
    """
    marks, known = list(marks), {}
    for place, mark in enumerate(marks):
        if mark.kind == "CPU" or not chips.listed(mark.chip):
            continue
        if mark.chip not in known:
            offers = estimate.rental_offers(mark.chip, today).dropna(subset="usd_per_hour")
            known[mark.chip] = prices(offers, estimate.purchase_prices(mark.chip, today))
            known[mark.chip]["memory_gb"] = chips.specification(mark.chip).get("memory_gb")
        own = known[mark.chip]
        together = {name: own[name] * mark.count for name in ("rent", "purchase") if name in own}
        marks[place] = replace(mark, **own | together)
    return marks


def prices(offers: pandas.DataFrame, purchases: pandas.DataFrame) -> dict:
    """Return rent and purchase price of one device, as fields of a mark.

    Args:
        offers: from `estimate.rental_offers`.
        purchases: from `estimate.purchase_prices`.
    """
    fields = {}
    if len(offers):
        usual = estimate.usual_offers(offers)
        hourly = usual["usd_per_hour"].astype(float)
        marketplace = bool(usual["provider"].isin(estimate.MARKETPLACES).all())
        years = sorted({str(date)[:4] for date in usual["date"] if isinstance(date, str) and date})
        dated = " to ".join(dict.fromkeys([years[0], years[-1]])) if years else "no stated date"
        whose = usual["provider"].iloc[0] if len(usual) == 1 else wording.count(len(usual), "listed offer")
        span = "" if len(usual) == 1 else f", {wording.span(hourly, wording.price)} a device"
        kind = ", a marketplace for private owners' computers" if marketplace else ""
        fields |= {"rent": float(hourly.median()), "rent_note": f"{whose}{kind}, {dated}{span}"}
        fields |= {"marketplace": marketplace}
    if len(purchases):
        newest = purchases.iloc[0]
        date = newest["date"] if isinstance(newest["date"], str) and newest["date"] else "no stated date"
        fields |= {"purchase": float(newest["usd"]), "purchase_note": f"list price of {date}"}
    return fields


def save(marks: Iterable[Mark], refused: list[dict], folder: Path) -> None:
    """Write marks, and the reasons why others are not predicted, into a folder; `load` reads them."""
    lines = [vars(mark) for mark in marks]
    text = json.dumps({"marks": lines, "refused": refused}, default=lambda number: number.item())
    (folder / FILE).write_text(text, encoding="utf-8")


def load(folder: Path) -> tuple[list[Mark], list[dict]]:
    """Return what `save` wrote into a folder; empty lists if it wrote nothing."""
    if not (folder / FILE).exists():
        return [], []
    saved = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return [Mark(**line | {"sources": tuple(line["sources"])}) for line in saved["marks"]], saved["refused"]


def here(folder: Path) -> str:
    """Return this machine's id in the rows of a folder: its own, else that of a machine with the same fingerprint."""
    this = identity.identify()
    if (folder / this.name).is_dir():
        return this.name
    for own in sorted(path for path in folder.glob("*") if path.is_dir()):
        _, manifest = next(manifests.files(own), (None, {}))
        if (manifest.get("machine") or {}).get("fingerprint") == this.fingerprint:
            return own.name
    return this.name


def lines(marks: Iterable[Mark]) -> list[dict]:
    """Return a dictionary for each mark, with the fields of FIELDS."""
    table = ({name: getattr(mark, attribute) for name, (attribute, _) in FIELDS.items()} for mark in marks)
    return [line | {"sources": list(line["sources"])} for line in table]


def as_csv(table: list[dict]) -> str:
    """Return the lines as CSV; sources are separated by ` | `, missing values are empty."""
    flat = [line | {"sources": " | ".join(line["sources"])} for line in table]
    flat = [{name: tables.harmless(cell) for name, cell in line.items()} for line in flat]
    return pandas.DataFrame(flat, columns=list(FIELDS), dtype=object).to_csv(index=False, lineterminator="\n")


def as_json(table: list[dict], licence: str, citation: str) -> str:
    """Return the lines as one JSON document, which `schema` describes."""
    tasks = [{"key": task.key, "does": task.does, "images": task.images, "note": task.note} for task in TASKS]
    head = {"$schema": "answers.schema.json", "licence": licence, "citation": citation, "tasks": tasks}
    return json.dumps(head | {"answers": table}, ensure_ascii=False, indent=0)


def schema() -> dict:
    """Return the JSON Schema of the document."""
    described = {name: schema for name, (_, schema) in FIELDS.items()}
    task = {"key": TEXT, "does": TEXT, "images": {"type": "number"}, "note": TEXT}
    closed = {"type": "object", "additionalProperties": False}
    answer = closed | {"properties": described, "required": list(FIELDS)}
    tasks = {"type": "array", "items": {"type": "object", "properties": task, "required": list(task)}}
    properties = {"$schema": TEXT, "licence": TEXT, "citation": TEXT}
    properties |= {"tasks": tasks, "answers": {"type": "array", "items": answer}}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What training costs"}
    return head | closed | {"properties": properties, "required": list(properties)}


def machines(every: Iterable[Mark]) -> list[dict]:
    """Return the content of each machine's page: place, file, name, marks, and three facts for the list of machines.

    Measured machines come first. `measured`: whether it measured; `together`: whether it is a group of devices that did
    not; `several`: whether other machines have the same name.
    """
    order, pages = list(BY_KEY), {}
    for place, own in groupby(sorted(every, key=lambda mark: mark.place), key=lambda mark: mark.place):
        marks = sorted(own, key=lambda mark: order.index(mark.task))
        first, measured = marks[0], any(mark.source == MEASURED for mark in marks)
        key = (not measured, first.count > 1, first.machine.rpartition(" x ")[2], first.count)
        pages[key, place] = {"place": place, "file": first.page, "name": first.machine, "marks": marks}
        pages[key, place] |= {"measured": measured, "together": first.count > 1 and not measured}
    counts = Counter(page["name"] for page in pages.values())
    return [pages[key] | {"several": counts[pages[key]["name"]] > 1} for key in sorted(pages)]


def content(this: Task, every: list[Mark], refused: list[dict]) -> dict:
    """Return the content of a task's page.

    Args:
        this: the task.
        every: the marks of all tasks.
        refused: the reasons why others are not predicted; see `gather`.
    """
    own, order = [mark for mark in every if mark.task == this.key], list(BY_KEY)
    lines = {}  # one for each machine, device and number of devices, with the fastest mark of each family
    for mark in own:
        lines.setdefault(mark.name, {}).setdefault(mark.family, mark)
    rows = [_row(this, list(marks.values())) for marks in lines.values()]
    elsewhere = {}
    for mark in every:
        if mark.task != this.key:
            elsewhere.setdefault(mark.name, set()).add(order.index(mark.task))
    return {
        "task": this,
        "tasks": TASKS,
        "rows": rows,
        "counts": Counter(mark.source for mark in own),
        "kinds": [kind for kind in KINDS if any(mark.kind == kind for mark in own)],
        "families": {key: text for key, text in FAMILIES.items() if any(mark.family == key for mark in own)},
        "devices": sorted({mark.count for mark in own}),
        "refused": _refused(this, refused, any(mark.source == PREDICTED for mark in own)),
        "presets": PRESETS if this.key == "own" else {},
        "usd_per_kwh": USD_PER_KWH,
        "constants": {
            "rows": [row["data"] for row in rows],
            "tasks": [[each.short, each.address] for each in TASKS],
            "elsewhere": {name: sorted(tasks) for name, tasks in elsewhere.items() if name not in lines},
            "time": TIME,
            "most": MOST_TICKS,
            "families": FAMILIES,
            "images": this.images,
            "epochs": this.epochs,
            "operations": from_record.OPERATIONS if this.key == "own" else [],
            "alike": from_rows.ALIKE,
            "large": wording.LARGE,
            "lengths": [(unit, length, end if end < 1e300 else None) for unit, length, end in wording.LENGTHS],
        },
    }


def _refused(this: Task, refused: list[dict], predicts: bool) -> list[tuple[str, list[str]]]:
    """Return reasons and the names of the chips without a prediction; if no chip has one, one reason without names."""
    lines = [line for line in refused if line["task"] == this.key]
    if lines and not predicts:
        most = max(lines, key=lambda line: len(line["chips"]))
        return [(f"Nothing is predicted: {most['reason']}", [])]
    families = {}  # by reason and chips
    for line in lines:
        families.setdefault((line["reason"], tuple(line["chips"])), []).append(FAMILIES[line["family"]])
    named = [(" and ".join(own), reason, list(chips)) for (reason, chips), own in families.items()]
    return [(f"Not predicted in {family}: {reason}", chips) for family, reason, chips in named]


def _row(this: Task, marks: list[Mark]) -> dict:
    """Return a row of the table: its fastest mark for the template, and all numbers for the script."""
    first = marks[0]
    epoch = f"{wording.duration(first.seconds / this.epochs)} an epoch" if this.epochs > 1 else ""
    data = {
        "id": first.anchor, "name": first.name, "kind": first.kind, "count": first.count, "here": first.here,
        "difference": first.difference, "counted": first.counted, "standIn": first.stand_in, "price": first.purchase,
        "priceNote": first.purchase_note, "rent": first.rent, "rentNote": first.rent_note,
        "market": first.marketplace, "page": first.page, "marks": list(map(_numbers, marks)),
    }  # fmt: skip
    return {
        "mark": first,
        "sources": sorted({mark.source for mark in marks}, key=SOURCES.index),
        "data": {name: value for name, value in data.items() if value not in (None, "", False)},
        "note": ", ".join(filter(None, [epoch, FAMILIES.get(first.family)])),
    }


def _numbers(mark: Mark) -> dict:
    """Return a mark's data for the script; six digits are enough to be rounded to the two or three that pages show."""
    numbers = {"seconds": mark.seconds, "low": mark.low, "high": mark.high, "kwh": mark.kwh}
    data = {name: float(f"{value:.6g}") for name, value in numbers.items() if value is not None}
    others = {name: getattr(mark, name) for name in ("family", "source", "basis", "fits", "estimated", "curve")}
    return data | {"id": mark.anchor} | {name: value for name, value in others.items() if value}
