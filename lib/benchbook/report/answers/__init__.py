"""What would it cost? Tasks that a reader chooses from, and what each machine takes for them: time, money, energy.

The aggregation gathers the marks of all tasks and saves them; the report loads them, and publishes them as a CSV and as
a JSON that says what its fields mean, with licence and citation.
"""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas

from benchbook.machine import identity
from benchbook.report import tables
from benchbook.report.answers import derive, from_record, from_rows
from benchbook.report.answers.marks import KINDS, MEASURED, PREDICTED, PUBLISHED, Mark
from benchbook.report.answers.tasks import TASKS
from benchbook.rows import manifests
from benchbook.studies import predictions
from benchbook.studies.study import Evidence

FILE = "answers.json"
NUMBER = {"type": ["number", "null"]}
TEXT = {"type": "string"}
# Each field of a line: the mark's attribute that it holds, and how JSON Schema describes it.
FIELDS = {
    "task": ("task", {"enum": [task.key for task in TASKS], "description": "what is trained; see tasks"}),
    "machine": ("place", TEXT | {"description": "its name in rows, or a chip and how many"}),
    "name": ("name", TEXT | {"description": "the machine for people"}),
    "source": ("source", {"enum": [MEASURED, PUBLISHED, PREDICTED]}),
    "kind": ("kind", {"enum": list(KINDS)}),
    "chip": ("chip", TEXT | {"description": "by its one name in the list of chips; empty for one in no list"}),
    "devices": ("count", {"type": "integer", "minimum": 1, "description": "that train together"}),
    "precision": ("family", TEXT | {"description": "fp32 (TF32 counts as such), half (16 bits), or not told"}),
    "seconds": ("seconds", {"type": "number", "exclusiveMinimum": 0, "description": "for the whole task"}),
    "seconds_low": ("low", NUMBER | {"description": "bound of seconds; null where one number was printed"}),
    "seconds_high": ("high", NUMBER | {"description": "bound of seconds"}),
    "bounds": ("bounds", TEXT | {"description": "what the bounds are"}),
    "joules": ("joules", NUMBER | {"description": "for the whole task; null without a sensor"}),
    "energy_note": ("energy_note", TEXT),
    "rent_usd_per_hour": ("rent", NUMBER | {"description": "of all devices together; null without a price"}),
    "rent_note": ("rent_note", TEXT),
    "purchase_usd": ("purchase", NUMBER | {"description": "of all devices together; null without a price"}),
    "purchase_note": ("purchase_note", TEXT),
    "rent_usd": ("rented", NUMBER | {"description": "of rent for the whole task"}),
    "memory_gb": ("memory_gb", NUMBER | {"description": "of one device"}),
    "stands_on": ("stands_on", TEXT | {"description": "how many runs, kernels, windows, figures or publications"}),
    "apart": ("apart", TEXT | {"description": "why it is not quite the task's work; empty where it is"}),
    "sources": ("sources", {"type": "array", "items": TEXT}),
}


def gather(evidence: Evidence, headlines: pandas.DataFrame, here: str) -> list[Mark]:
    """Return the marks of all tasks, the shortest time of each task first.

    Args:
        evidence: measured and published rows.
        headlines: from `headline.table`.
        here: the name of this machine in rows.
    """
    worked_out = derive.read(predictions.learn(evidence))
    marks = list(from_rows.of_studies(evidence, headlines, here, worked_out["chips"]))
    marks += from_rows.of_own_networks(evidence, here, worked_out)
    marks += from_record.of_record(worked_out, marks)
    order = [each.key for each in TASKS]
    return sorted(marks, key=lambda mark: (order.index(mark.task), mark.seconds, mark.name, mark.family))


def save(marks: Iterable[Mark], folder: Path) -> None:
    """Write marks into a folder, where the report reads them: what the aggregation has read need not be read again."""
    lines = [json.dumps(asdict(mark), default=lambda number: number.item()) for mark in marks]
    (folder / FILE).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def load(folder: Path) -> list[Mark]:
    """Return the marks that `save` wrote into a folder; none where it wrote none."""
    if not (folder / FILE).exists():
        return []
    lines = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return [Mark(**line | {name: tuple(line[name]) for name in ("sources", "operations")}) for line in lines]


def here(folder: Path) -> str:
    """Return this machine's name in the rows of a folder: its own, else that of a machine of its very kind."""
    this = identity.identify()
    if (folder / this.name).is_dir():
        return this.name
    for own in sorted(path for path in folder.glob("*") if path.is_dir()):
        _, manifest = next(manifests.files(own), (None, {}))
        if (manifest.get("machine") or {}).get("fingerprint") == this.fingerprint:
            return own.name
    return this.name


def lines(marks: Iterable[Mark]) -> list[dict]:
    """Return a line for each mark with the fields of FIELDS."""
    table = [{name: getattr(mark, attribute) for name, (attribute, _) in FIELDS.items()} for mark in marks]
    return [line | {"sources": list(line["sources"])} for line in table]


def as_csv(table: list[dict]) -> str:
    """Return the lines as CSV; sources are separated by `` | ``, what is missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(FIELDS), lineterminator="\n")
    writer.writeheader()
    for line in table:
        cells = line | {"sources": " | ".join(line["sources"])}
        writer.writerow({name: tables.harmless(cell) for name, cell in cells.items()})
    return text.getvalue()


def as_json(table: list[dict], licence: str, citation: str) -> str:
    """Return the lines as one JSON document, which `schema` describes."""
    tasks = [{"key": task.key, "does": task.does, "images": task.images, "note": task.note} for task in TASKS]
    head = {"$schema": "answers.schema.json", "licence": licence, "citation": citation, "tasks": tasks}
    return json.dumps(head | {"answers": table}, ensure_ascii=False, indent=0)


def schema() -> dict:
    """Return the JSON Schema of the document."""
    described = {name: schema for name, (_, schema) in FIELDS.items()}
    task = {"key": TEXT, "does": TEXT, "images": {"type": "number"}, "note": TEXT}
    answer = {"type": "object", "properties": described, "required": list(FIELDS), "additionalProperties": False}
    tasks = {"type": "array", "items": {"type": "object", "properties": task, "required": list(task)}}
    properties = {"$schema": TEXT, "licence": TEXT, "citation": TEXT}
    properties |= {"tasks": tasks, "answers": {"type": "array", "items": answer}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What training costs",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
