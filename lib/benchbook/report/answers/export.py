"""The marks as data for machines: one CSV, and one JSON that says what its fields mean, with licence and citation."""

import csv
import io
import json
from collections.abc import Iterable

from benchbook.report.answers import costs
from benchbook.report.answers.marks import KINDS, MEASURED, PREDICTED, PUBLISHED, Mark
from benchbook.report.answers.tasks import TASKS

NUMBER = {"type": ["number", "null"]}
TEXT = {"type": "string"}
# Each field of a line, as JSON Schema describes it.
FIELDS = {
    "task": {"enum": [task.key for task in TASKS], "description": "what is trained; see tasks"},
    "machine": TEXT | {"description": "its name in rows, or a chip and how many"},
    "name": TEXT | {"description": "the machine for people"},
    "source": {"enum": [MEASURED, PUBLISHED, PREDICTED]},
    "kind": {"enum": list(KINDS)},
    "chip": TEXT | {"description": "by its one name in the list of chips; empty for one in no list"},
    "devices": {"type": "integer", "minimum": 1, "description": "that train together"},
    "precision": TEXT | {"description": "fp32 (TF32 counts as such), half (16 bits), or not told"},
    "seconds": {"type": "number", "exclusiveMinimum": 0, "description": "for the whole task"},
    "seconds_low": NUMBER | {"description": "bound of seconds; null where one number was printed"},
    "seconds_high": NUMBER | {"description": "bound of seconds"},
    "bounds": TEXT | {"description": "what the bounds are"},
    "joules": NUMBER | {"description": "for the whole task; null without a sensor"},
    "energy_note": TEXT,
    "rent_usd_per_hour": NUMBER | {"description": "of all devices together; null without a price"},
    "rent_note": TEXT,
    "purchase_usd": NUMBER | {"description": "of all devices together; null without a price"},
    "purchase_note": TEXT,
    "rent_usd": NUMBER | {"description": "of rent for the whole task"},
    "memory_gb": NUMBER | {"description": "of one device"},
    "stands_on": TEXT | {"description": "how many runs, kernels, windows, figures or publications"},
    "apart": TEXT | {"description": "why it is not quite the task's work; empty where it is"},
    "sources": {"type": "array", "items": TEXT},
}


def lines(marks: Iterable[Mark]) -> list[dict]:
    """Return a line for each mark with the fields of FIELDS."""
    return [
        {
            "task": mark.task,
            "machine": mark.place,
            "name": mark.name,
            "source": mark.source,
            "kind": mark.kind,
            "chip": mark.chip,
            "devices": mark.count,
            "precision": mark.family,
            "seconds": mark.seconds,
            "seconds_low": mark.low,
            "seconds_high": mark.high,
            "bounds": mark.bounds,
            "joules": mark.joules,
            "energy_note": mark.energy_note,
            "rent_usd_per_hour": mark.rent,
            "rent_note": mark.rent_note,
            "purchase_usd": mark.purchase,
            "purchase_note": mark.purchase_note,
            "rent_usd": costs.rented(mark),
            "memory_gb": mark.memory_gb,
            "stands_on": mark.stands_on,
            "apart": mark.apart,
            "sources": list(mark.sources),
        }
        for mark in marks
    ]


def as_csv(table: list[dict]) -> str:
    """Return the lines as CSV; sources are separated by `` | ``, what is missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(FIELDS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(line | {"sources": " | ".join(line["sources"])} for line in table)
    return text.getvalue()


def as_json(table: list[dict], licence: str, citation: str) -> str:
    """Return the lines as one JSON document, which `schema` describes."""
    tasks = [{"key": task.key, "does": task.does, "images": task.images, "note": task.note} for task in TASKS]
    head = {"$schema": "answers.schema.json", "licence": licence, "citation": citation, "tasks": tasks}
    return json.dumps(head | {"answers": table}, ensure_ascii=False, indent=0)


def schema() -> dict:
    """Return the JSON Schema of the document."""
    task = {"key": TEXT, "does": TEXT, "images": {"type": "number"}, "note": TEXT}
    head = {"$schema": TEXT, "licence": TEXT, "citation": TEXT}
    answer = {"type": "object", "properties": FIELDS, "required": list(FIELDS), "additionalProperties": False}
    tasks = {"type": "array", "items": {"type": "object", "properties": task, "required": list(task)}}
    properties = head | {"tasks": tasks, "answers": {"type": "array", "items": answer}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What training costs",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
