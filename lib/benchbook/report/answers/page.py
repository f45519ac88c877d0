"""The pages of the answers: one a task, the first of which is the report's first page, and one a machine."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from benchbook.judging import wording
from benchbook.report.answers.from_record import OPERATIONS
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

USD_PER_KWH = 0.30  # of electricity, until the reader states another price
# Where the ticks of the axis may be, in seconds.
TIME = (1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 21_600, 86_400, 259_200, 864_000, 8.64e6, 8.64e7, 8.64e8)
MOST_TICKS = 6


def machines(every: Iterable[Mark]) -> list[dict]:
    """Return what the page of each machine shows: its name (and whether several have it), and its marks."""
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
    """Return what the template shows of a task.

    Args:
        this: the task.
        every: the marks of all tasks.
        refused: why others are not predicted; see `answers.gather`.
    """
    own, order = [mark for mark in every if mark.task == this.key], list(BY_KEY)
    lines = {}  # one for each machine, device and number of devices; of a family the first mark is the fastest
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
            "operations": OPERATIONS if this.key == "own" else [],
            "large": wording.LARGE,
            "lengths": [(unit, length, end if end < 1e300 else None) for unit, length, end in wording.LENGTHS],
        },
    }


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


def _row(this: Task, marks: list[Mark]) -> dict:
    """Return a line of the table: its fastest mark for the template, and all numbers for the script."""
    first = marks[0]
    epoch = f"{wording.duration(first.seconds / this.epochs)} an epoch" if this.epochs > 1 else ""
    data = {
        "id": first.anchor, "name": first.name, "kind": first.kind, "count": first.count, "here": first.here,
        "apart": first.apart, "counted": first.counted, "standIn": first.stand_in, "price": first.purchase,
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
    """Return what the script knows of a mark; numbers with six digits, so that two round to what the page has."""
    numbers = {"seconds": mark.seconds, "low": mark.low, "high": mark.high, "joules": mark.joules}
    data = {name: float(f"{value:.6g}") for name, value in numbers.items() if value is not None}
    others = {name: getattr(mark, name) for name in ("family", "source", "basis", "fits", "estimated", "curve")}
    return data | {"id": mark.anchor} | {name: value for name, value in others.items() if value}
