"""The pages of the answers: one a task, the first of which is the report's first page, and one a machine."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import groupby

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import estimate
from benchbook.report.answers.from_record import OPERATIONS
from benchbook.report.answers.marks import FAMILIES, KINDS, MEASURED, PREDICTED, PRESETS, PUBLISHED, TASKS, Mark, Task
from benchbook.report.answers.marks import task as task_of

FIRST = TASKS[0]
SOURCES = (MEASURED, PUBLISHED, PREDICTED)
USD_PER_KWH = 0.30  # of electricity, until the reader states another price
# Where the ticks of the axis may be, in seconds.
TIME = (1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 21_600, 86_400, 259_200, 864_000, 8.64e6, 8.64e7, 8.64e8)
MOST_TICKS = 6


def address(this: Task) -> str:
    """Return a task's page, from the report's folder."""
    return "index.html" if this == FIRST else f"{this.key}.html"


def slug(text: str) -> str:
    """Return a plain name for files and addresses; different texts have different ones."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text and layout.is_name(plain):
        return plain
    return f"{plain[:80]}-{sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


def machines(every: Iterable[Mark], links: Mapping[str, str]) -> list[dict]:
    """Return what the page of each machine shows: file, name (and whether several have it), and a line for each mark.

    `links` is as of `content`.
    """
    order, pages = [each.key for each in TASKS], {}
    for place, own in groupby(sorted(every, key=lambda mark: mark.place), key=lambda mark: mark.place):
        marks = sorted(own, key=lambda mark: order.index(mark.task))
        lines = [
            {"id": identifier(mark), "mark": mark, "task": task_of(mark.task), "address": address(task_of(mark.task))}
            | {"links": [links[source] for source in mark.sources if source in links]}
            for mark in marks
        ]
        named = {"place": place, "name": marks[0].machine, "measured": any(mark.source == MEASURED for mark in marks)}
        named["together"] = marks[0].count > 1 and not named["measured"]
        chip = marks[0].machine.rpartition(" x ")[2]
        key = (not named["measured"], marks[0].count > 1, chip, marks[0].count)
        pages[key, place] = named | {"file": f"machines/{slug(place)}.html", "lines": lines}
    counts = Counter(page["name"] for page in pages.values())
    return [pages[key] | {"several": counts[pages[key]["name"]] > 1} for key in sorted(pages)]


def content(this: Task, every: list[Mark], refused: list[dict], links: Mapping[str, str]) -> dict:
    """Return what the template shows of a task.

    Args:
        this: the task.
        every: the marks of all tasks.
        refused: why others are not predicted; see `answers.gather`.
        links: the notebook's page by the source of a measured mark.
    """
    own = [mark for mark in every if mark.task == this.key]
    lines = {}  # one for each machine, device and number of devices; of a family the first mark is the fastest
    for mark in own:
        lines.setdefault(mark.name, {}).setdefault(mark.family, mark)
    rows = [_row(this, list(marks.values()), links) for marks in lines.values()]
    elsewhere = {}
    for mark in every:
        if mark.task != this.key:
            elsewhere.setdefault(mark.name, set()).add(TASKS.index(task_of(mark.task)))
    return {
        "task": this,
        "tasks": [(each, address(each)) for each in TASKS],
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
            "tasks": [[each.short, address(each)] for each in TASKS],
            "elsewhere": {name: sorted(tasks) for name, tasks in elsewhere.items() if name not in lines},
            "time": TIME,
            "most": MOST_TICKS,
            "families": FAMILIES,
            "images": this.images,
            "epochs": this.epochs,
            "operations": OPERATIONS if this.key == "own" else [],
            "large": wording.LARGE,
            "lengths": [(unit, length, end if end < 1e300 else None) for unit, length, end in wording.LENGTHS],
        },
    }


def identifier(mark: Mark) -> str:
    """Return a mark's own anchor: its task, machine, device, variant and family."""
    parts = [mark.task, mark.place, mark.name, mark.family, mark.settings.get("precision", ""), mark.source[:4]]
    return slug(" ".join(parts))


def _refused(this: Task, refused: list[dict], predicts: bool) -> list[tuple[str, list[str]]]:
    """Return why chips have no prediction, with their names; one reason without names where no chip has one."""
    lines = [line for line in refused if line["task"] == this.key]
    if lines and not predicts:
        most = max(lines, key=lambda line: len(line["chips"]))
        return [(f"Nothing is predicted: {most['reason']}", [])]
    families = {}  # that have one reason for the same chips
    for line in lines:
        families.setdefault((line["reason"], tuple(line["chips"])), []).append(FAMILIES[line["family"]])
    return [
        (f"Not predicted in {' and '.join(own)}: {reason}", list(chips)) for (reason, chips), own in families.items()
    ]


def _row(this: Task, marks: list[Mark], links: Mapping[str, str]) -> dict:
    """Return a line of the table: what the template shows of its fastest mark, and all numbers for the script."""
    first = marks[0]
    dollars = None if first.joules is None else first.joules / estimate.JOULES_PER_KWH * USD_PER_KWH
    epoch = f"{wording.duration(first.seconds / this.epochs)} an epoch" if this.epochs > 1 else ""
    data = {
        "id": identifier(first), "name": first.name, "kind": first.kind, "count": first.count, "here": first.here,
        "apart": first.apart, "counted": first.counted, "standIn": first.stand_in, "price": first.purchase,
        "priceNote": first.purchase_note, "rent": first.rent, "rentNote": first.rent_note,
        "market": first.marketplace, "page": f"machines/{slug(first.place)}.html", "marks": list(map(_numbers, marks)),
    }  # fmt: skip
    return {
        "mark": first,
        "sources": sorted({mark.source for mark in marks}, key=SOURCES.index),
        "page": f"{data['page']}#{data['id']}",
        "data": {name: value for name, value in data.items() if value not in (None, "", False)},
        "time": wording.duration(first.seconds),
        "note": ", ".join(filter(None, [epoch, FAMILIES.get(first.family)])),
        "price": "" if first.purchase is None else wording.price(first.purchase),
        "rent": "" if first.rented is None else wording.price(first.rented),
        "electricity": "" if dollars is None else wording.price(dollars),
        "links": [links[source] for source in first.sources if source in links],
    }


def _numbers(mark: Mark) -> dict:
    """Return what the script knows of a mark; numbers with six digits, so that two round to what the page has."""
    numbers = {"seconds": mark.seconds, "low": mark.low, "high": mark.high, "joules": mark.joules}
    data = {name: float(f"{value:.6g}") for name, value in numbers.items() if value is not None}
    others = {name: getattr(mark, name) for name in ("family", "source", "basis", "fits", "estimated", "curve")}
    return data | {"id": identifier(mark)} | {name: value for name, value in others.items() if value}
