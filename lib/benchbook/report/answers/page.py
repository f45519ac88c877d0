"""The pages of the answers: one a task, the first of which is the report's first page, and one a machine."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from itertools import groupby

import jinja2

from benchbook.judging import wording
from benchbook.judging.wording import duration, number, times
from benchbook.machine import layout
from benchbook.record import estimate
from benchbook.report.answers.from_record import reference_operations, refusals
from benchbook.report.answers.marks import KINDS, MEASURED, PREDICTED, TERMS, Mark
from benchbook.report.answers.tasks import TASKS, Task, task

FIRST = TASKS[0]
SENTENCES = "sentences.html"  # the template that has them
# What `answer.js` knows of a mark.
NUMBERS = ("seconds", "low", "high", "joules", "rent", "purchase", "memory_gb", "count", "counted")
TEXTS = ("name", "kind", "family", "energy_note", "rent_note", "purchase_note", "stand_in")
SHORT = {"fp32": "fp32", "half": "16 bits"}
FAMILIES = {"fp32": "fp32 (with TF32, as most publications write it)", "half": "16 bits (bf16, fp16, mixed)"}
ENERGIES = ((1e6, "MWh"), (1e3, "kWh"), (1.0, "Wh"), (0.0, "mWh"))
# Where the ticks of a logarithmic axis may stand.
TIME = (1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 86_400, 864_000, 8.64e6, 8.64e7, 8.64e8)
DECADES = tuple(10.0**power for power in range(-9, 13))
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


def machines(every: list[Mark], environment: jinja2.Environment) -> dict[str, str]:
    """Return a page for each machine, with all that is known of it, by its file's name."""
    template, order = environment.get_template("machine.html"), [each.key for each in TASKS]
    pages = {}
    for place, own in groupby(sorted(every, key=lambda mark: mark.place), key=lambda mark: mark.place):
        lines = [
            {"id": _identifier(mark), "mark": mark, "task": task(mark.task), "time": duration(mark.seconds)}
            | {"address": address(task(mark.task)), "range": _range(mark)}
            for mark in sorted(own, key=lambda mark: order.index(mark.task))
        ]
        pages[f"{slug(place)}.html"] = template.render(place=place, name=lines[0]["mark"].machine, lines=lines)
    return pages


def content(this: Task, every: list[Mark], environment: jinja2.Environment, links: Mapping[str, str]) -> dict:
    """Return what the template shows of a task.

    Args:
        this: the task.
        every: the marks of all tasks.
        environment: of the templates.
        links: the notebook's page by the source of a measured mark.
    """
    own = [mark for mark in every if mark.task == this.key]
    bounds = [value for mark in own for value in (mark.seconds, mark.low, mark.high) if value]
    ticks = steps(bounds, TIME) if bounds else [1.0, 10.0]
    operations = next((list(mark.operations) for mark in own if mark.operations), [])
    chosen = _first_operations(own, operations) if operations else None
    macros = vars(environment.get_template(SENTENCES).module)
    macros = {name: macro for name, macro in macros.items() if not name.startswith("_")}
    constants = {
        "time": TIME,
        "decades": DECADES,
        "most": MOST_TICKS,
        "images": this.images,
        "operations": chosen,
        "large": wording.LARGE,
        "lengths": [(unit, length, end if math.isfinite(end) else None) for unit, length, end in wording.LENGTHS],
        "energies": ENERGIES,
        # Each sentence with the names of its numbers in braces, where the script fills them in.
        "sentences": {
            name: macro(**{part: this.does if part == "does" else f"{{{part}}}" for part in macro.arguments}).unescape()
            for name, macro in macros.items()
        },
    }
    return {
        "task": this,
        "tasks": [(each, address(each)) for each in TASKS],
        "sentences": sentences(this, own, macros),
        "rows": [_row(mark, ticks, links) for mark in own],
        "ticks": [(duration(value), share(value, ticks)) for value in ticks],
        "sources": Counter(mark.source for mark in own),
        "kinds": [kind for kind in KINDS if any(mark.kind == kind for mark in own)],
        "families": {name: text for name, text in FAMILIES.items() if any(mark.family == name for mark in own)},
        "refused": _refused(this, any(mark.source == PREDICTED for mark in own)),
        "terms": asdict(TERMS),
        "operations": operations,
        "first_operations": f"{chosen:.3g}" if chosen else "",
        "constants": constants,
        "here": any(mark.here for mark in own),
    }


def steps(values: list[float], candidates: tuple[float, ...]) -> list[float]:
    """Return the ticks of an axis that holds all values: the first lies at its start, the last at its end."""
    least, most = min(values), max(values)
    first = max((each for each in candidates if each <= least), default=candidates[0])
    last = min((each for each in candidates if each >= most and each > first), default=candidates[-1])
    inside = [each for each in candidates if first <= each <= last]
    apart = math.ceil((len(inside) - 1) / MOST_TICKS)
    return [*inside[:-1:apart], inside[-1]] if apart > 1 else inside


def share(value: float, ticks: list[float]) -> float:
    """Return how far along a logarithmic axis a value lies, in percent."""
    first, last = math.log(ticks[0]), math.log(ticks[-1])
    return round(100 * min(1.0, max(0.0, (math.log(value) - first) / (last - first))), 2)


def called(mark: Mark) -> str:
    """Return what a sentence calls a mark: this machine, with the data that stood in, else its name."""
    data = f" ({mark.stand_in})" if mark.stand_in else ""
    return f"this machine{data}" if mark.here else mark.name


def sentences(this: Task, marks: list[Mark], say: Mapping[str, Callable[..., str]]) -> list[tuple[str, str]]:
    """Return what is fastest, cheapest, takes the least energy, and when buying pays: headings with a sentence each.

    `answer.js` says the same, with the same macros, of the machines that a reader chooses.

    Args:
        this: the task.
        marks: that are compared; those that are not quite the task's work are left out.
        say: the macros of SENTENCES.
    """
    compared = [mark for mark in marks if not mark.apart]
    here = next((mark for mark in compared if mark.here), None)
    cheapest = min(_certain([mark for mark in compared if mark.rent]), key=lambda mark: mark.rented, default=None)
    said = {
        "Fastest": _fastest(this, compared, here, say),
        "Cheapest": _rented(cheapest, say),
        "Least energy": _least_energy(compared, say),
        "Buy or rent": _break_even(compared, here, cheapest, say),
    }
    return list(said.items())


def _certain(marks: list[Mark]) -> list[Mark]:
    """Return the marks that were measured or published; where there is none, those that are predicted."""
    return [mark for mark in marks if mark.source != PREDICTED] or marks


def _fastest(this: Task, marks: list[Mark], here: Mark | None, say: Mapping[str, Callable[..., str]]) -> str:
    if not marks:
        return say["no_machine"]()
    first = min(_certain(marks), key=lambda mark: mark.seconds)
    guess = min(marks, key=lambda mark: mark.seconds)
    said = say["fastest"](first.name, duration(first.seconds), this.does, _basis(first))
    if here and here is not first:
        said += say["slower"](called(here), duration(here.seconds), times(here.seconds / first.seconds))
    if guess.seconds < first.seconds:
        said += say["predicted"](guess.name, duration(guess.seconds))
    return said + "."


def _rented(cheapest: Mark | None, say: Mapping[str, Callable[..., str]]) -> str:
    if cheapest is None:
        return say["no_rent"]()
    kind = "cheapest_predicted" if cheapest.source == PREDICTED else "cheapest"
    return say[kind](cheapest.name, _dollars(cheapest.rented), _dollars(cheapest.rent), cheapest.rent_note)


def _least_energy(marks: list[Mark], say: Mapping[str, Callable[..., str]]) -> str:
    read = _certain([mark for mark in marks if mark.joules is not None])
    if not read:
        return say["no_energy"]()
    first = min(read, key=lambda mark: mark.joules)
    return say["least_energy"](first.name, _energy(first.joules), len(read), first.energy_note.split(";")[0])


def _break_even(
    marks: list[Mark], here: Mark | None, renting: Mark | None, say: Mapping[str, Callable[..., str]]
) -> str:
    """Return when a bought machine pays; without one, what renting an hour of this machine's work costs."""
    if renting is None:
        return say["no_comparison"]()
    if here and not here.purchase:
        worth = renting.rented / here.seconds * estimate.SECONDS_PER_HOUR
        return say["worth"](called(here), _dollars(worth), renting.name)
    owned = here or min(_certain([mark for mark in marks if mark.purchase]), key=Mark.bought, default=None)
    if not owned:
        return say["no_purchase"]()
    hours = owned.break_even(renting)
    bought = owned.name, _dollars(owned.purchase), owned.purchase_note.split(",")[0], renting.name
    said = say["pays"](*bought, number(hours)) if math.isfinite(hours) else say["never"](*bought)
    return said + ("" if owned.joules else say["uncounted"]()) + "."


def _basis(mark: Mark) -> str:
    """Return where a mark is from and what it stands on, in a few words."""
    if mark.source == PREDICTED:
        return PREDICTED
    elsewhere = " on another computer" if mark.source == MEASURED and not mark.here else ""
    return f"{mark.source}{elsewhere}, {mark.stands_on}"


def _energy(joules: float) -> str:
    """Return an energy in the unit that fits, from mWh to MWh."""
    watt_hours = joules / estimate.SECONDS_PER_HOUR
    size, unit = next((size, unit) for size, unit in ENERGIES if watt_hours >= size)
    return f"{number(watt_hours / (size or 1e-3))} {unit}"


def _dollars(value: float | None) -> str:
    return "" if value is None else wording.price(value)


def _range(mark: Mark) -> str:
    return f"{duration(mark.low)} to {duration(mark.high)}" if mark.low else ""


def _identifier(mark: Mark) -> str:
    """Return a mark's own anchor: its task, machine, device, variant and family."""
    parts = [mark.task, mark.place, mark.name, mark.family, mark.settings.get("precision", ""), mark.source[:4]]
    return slug(" ".join(parts))


def _refused(this: Task, predicts: bool) -> list[tuple[str, list[str]]]:
    """Return why chips have no prediction, with their names; one reason without names where no chip has one."""
    lines = refusals(this.key)
    if lines and not predicts:
        most = max(lines, key=lambda line: len(line["chips"]))
        return [(f"Nothing is predicted: {most['reason']}", [])]
    families = {}  # that have one reason for the same chips
    for line in lines:
        families.setdefault((line["reason"], tuple(line["chips"])), []).append(SHORT[line["family"]])
    return [
        (f"Not predicted in {' and '.join(own)}: {reason}", list(chips)) for (reason, chips), own in families.items()
    ]


def _first_operations(marks: list[Mark], operations: list[float]) -> float:
    """Return the operations that are chosen first for the user's network: of one measured here, if any was.

    Args:
        marks: of the task.
        operations: at which it is predicted.
    """
    counted = [mark.counted for mark in marks if mark.here and mark.counted]
    inside = [value for value in counted if operations[0] <= value <= operations[-1]]
    return next(iter(inside), reference_operations(operations))


def _row(mark: Mark, ticks: list[float], links: Mapping[str, str]) -> dict:
    """Return a mark as the template shows it: its place on the axis, its texts, and its numbers for the script."""
    left, right = (share(bound or mark.seconds, ticks) for bound in (mark.low, mark.high))
    data = {name.replace("_", "-"): getattr(mark, name) for name in (*NUMBERS, *TEXTS)} | {"basis": _basis(mark)}
    if mark.curve:
        data["curve"] = json.dumps({"operations": mark.operations} | dict(mark.curve))
    return {
        "id": _identifier(mark),
        "mark": mark,
        "place": f"machines/{slug(mark.place)}.html",
        "left": left,
        "width": round(right - left, 2),
        "at": share(mark.seconds, ticks),
        "texts": {
            "time": duration(mark.seconds),
            "rented": _dollars(mark.rented),
            "bought": _dollars(mark.bought()),
            "energy": _energy(mark.joules) if mark.joules else "",
            "counted": number(mark.counted) if mark.counted else "",
        },
        "range": _range(mark),
        "data": {
            name: f"{value:.6g}" if isinstance(value, float) else value
            for name, value in data.items()
            if value is not None and value != ""
        },
        "links": [links[source] for source in mark.sources if source in links],
    }
