"""The answer pages: what a task costs on every machine, one page a task; the first page of the report holds one."""

import json
import re
from collections import Counter
from dataclasses import asdict
from hashlib import sha256

from benchbook.judging.wording import duration, number
from benchbook.machine import layout
from benchbook.report.answers import axis, costs, words
from benchbook.report.answers.from_record import reference_operations, refusals
from benchbook.report.answers.marks import KINDS, PREDICTED, Mark
from benchbook.report.answers.tasks import TASKS, Task

FIRST = TASKS[0]
NUMBERS = ("seconds", "low", "high", "joules", "rent", "purchase", "memory_gb", "count", "counted")
TEXTS = ("name", "kind", "family", "energy_note", "rent_note", "purchase_note", "stand_in")
SHORT = {"fp32": "fp32", "half": "16 bits"}
FAMILIES = {"fp32": "fp32 (with TF32, as most publications write it)", "half": "16 bits (bf16, fp16, mixed)"}


def address(task: Task) -> str:
    """Return a task's page, from the report's folder."""
    return f"{task.key}.html"


def slug(text: str) -> str:
    """Return a plain name for files and addresses; different texts have different ones."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text and layout.is_name(plain):
        return plain
    return f"{plain[:80]}-{sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


def content(task: Task, every: list[Mark], links: dict[str, str] | None = None) -> dict:
    """Return what the template shows of a task.

    Args:
        task: chosen.
        every: the marks of all tasks.
        links: the notebook's page by the source of a measured mark.

    Returns:
        task, tasks, sentences, rows, ticks, legend (marks by source), axes and choices (for the script), and what is
        not predicted, with its reason.
    """
    own = [mark for mark in every if mark.task == task.key]
    bounds = [value for mark in own for value in (mark.seconds, mark.low, mark.high) if value]
    ticks = axis.steps(bounds, axis.TIME) if bounds else [1.0, 10.0]
    rows = [_row(mark, ticks, links or {}) for mark in own]
    operations = next((list(mark.operations) for mark in own if mark.operations), [])
    return {
        "task": task,
        "tasks": [(each, address(each)) for each in TASKS],
        "sentences": words.sentences(task, own),
        "rows": rows,
        "ticks": [(duration(value), axis.share(value, ticks)) for value in ticks],
        "sources": Counter(mark.source for mark in own),
        "kinds": [kind for kind in KINDS if any(mark.kind == kind for mark in own)],
        "families": {name: text for name, text in FAMILIES.items() if any(mark.family == name for mark in own)},
        "refused": _refused(task, any(mark.source == PREDICTED for mark in own)),
        "terms": asdict(costs.TERMS),
        "operations": operations,
        "first_operations": f"{_first_operations(own, operations):.3g}" if operations else "",
        "script": _script(task, _first_operations(own, operations)),
        "here": next((row["id"] for row in rows if row["here"]), ""),
    }


def _refused(task: Task, predicts: bool) -> list[tuple[str, list[str]]]:
    """Return why chips have no prediction, with their names; one reason without names where no chip has one."""
    lines = refusals(task.key)
    if lines and not predicts:
        most = max(lines, key=lambda line: len(line["chips"]))
        return [(f"Nothing is predicted: {most['reason']}", [])]
    families = {}  # that have one reason for the same chips
    for line in lines:
        families.setdefault((line["reason"], tuple(line["chips"])), []).append(SHORT[line["family"]])
    return [
        (f"Not predicted in {' and '.join(own)}: {reason}", list(chips)) for (reason, chips), own in families.items()
    ]


def _first_operations(marks: list[Mark], operations: list[float]) -> float | None:
    """Return the operations that are chosen first for one's own network: of one that was measured here, if any was.

    Args:
        marks: of the task.
        operations: at which it is predicted; empty for other tasks.
    """
    if not operations:
        return None
    counted = [mark.counted for mark in marks if mark.here and mark.counted]
    inside = [value for value in counted if operations[0] <= value <= operations[-1]]
    return next(iter(inside), reference_operations(operations))


def _script(task: Task, operations: float | None) -> str:
    """Return what the script has to know, as JSON that a page may hold; operations are those chosen first."""
    constants = {"time": axis.TIME, "decades": axis.DECADES, "most": axis.MOST_TICKS, "does": task.does}
    constants |= {"images": task.images, "operations": operations}
    return json.dumps(constants).replace("<", "\\u003c")


def _row(mark: Mark, ticks: list[float], links: dict[str, str]) -> dict:
    """Return a mark as the template shows it: where it stands, its texts, and its numbers for the script."""
    low, high = mark.low or mark.seconds, mark.high or mark.seconds
    left, right = axis.share(low, ticks), axis.share(high, ticks)
    texts = {
        "time": duration(mark.seconds),
        "rented": _dollars(costs.rented(mark)),
        "bought": _dollars(costs.bought(mark)),
        "energy": words.energy(mark.joules) if mark.joules else "",
        "counted": number(mark.counted) if mark.counted else "",
    }
    data = {name.replace("_", "-"): getattr(mark, name) for name in (*NUMBERS, *TEXTS)} | {"basis": words.basis(mark)}
    data |= {"curve": json.dumps({"operations": mark.operations} | dict(mark.curve))} if mark.curve else {}
    return {
        "id": identifier(mark),
        "mark": mark,
        "here": mark.here,
        "place": f"machines/{slug(mark.place)}.html",
        "left": left,
        "width": round(right - left, 2),
        "at": axis.share(mark.seconds, ticks),
        "texts": texts,
        "range": f"{duration(low)} to {duration(high)}" if mark.low else "",
        "data": {
            name: f"{value:.6g}" if isinstance(value, float) else value
            for name, value in data.items()
            if value is not None and value != ""
        },
        "links": [links[source] for source in mark.sources if source in links],
    }


def identifier(mark: Mark) -> str:
    """Return a mark's own anchor: its machine, device, variant and family."""
    parts = [mark.place, mark.name, mark.family, mark.settings.get("precision", ""), mark.source[:4]]
    return slug(" ".join(parts))


def _dollars(value: float | None) -> str:
    return "" if value is None else words.dollars(value)
