"""What the marks of a task say, in one sentence each, made from their numbers."""

import math

from benchbook.judging.wording import duration, number, times
from benchbook.record import estimate
from benchbook.report.answers import costs
from benchbook.report.answers.marks import MEASURED, PREDICTED, Mark
from benchbook.report.answers.tasks import Task

ELSEWHERE = " on another computer"
UNITS = ((1e6, "MWh"), (1e3, "kWh"), (1.0, "Wh"), (0.0, "mWh"))


def dollars(value: float) -> str:
    """Return US dollars with two or three digits."""
    return f"${number(value)}"


def energy(joules: float) -> str:
    """Return an energy in the unit that fits, from mWh to MWh."""
    watt_hours = joules / estimate.SECONDS_PER_HOUR
    size, unit = next((size, unit) for size, unit in UNITS if watt_hours >= size)
    return f"{number(watt_hours / (size or 1e-3))} {unit}"


def called(mark: Mark) -> str:
    """Return what a sentence calls a mark: this machine, with the data that stood in, else its name."""
    data = f" ({mark.stand_in})" if mark.stand_in else ""
    return f"this machine{data}" if mark.here else mark.name


def surest(marks: list[Mark]) -> list[Mark]:
    """Return the marks that were measured or published; where there is none, those that are predicted."""
    return [mark for mark in marks if mark.source != PREDICTED] or marks


def basis(mark: Mark) -> str:
    """Return where a mark is from and what it stands on, in a few words."""
    if mark.source == PREDICTED:
        return PREDICTED
    return f"{mark.source}{ELSEWHERE if mark.source == MEASURED and not mark.here else ''}, {mark.stands_on}"


def sentences(task: Task, marks: list[Mark]) -> list[tuple[str, str]]:
    """Return what is fastest, cheapest, takes the least energy, and when buying pays, each with what it rests on.

    Args:
        task: what is trained.
        marks: that are compared; those that stand apart are left out.

    Returns:
        Pairs of a heading and a sentence; there is always each of the four.
    """
    compared = [mark for mark in marks if not mark.apart]
    here = next((mark for mark in compared if mark.here), None)
    return [
        ("Fastest", _fastest(task, compared, here)),
        ("Cheapest", _cheapest(compared)),
        ("Least energy", _least_energy(compared)),
        ("Buy or rent", _break_even(compared, here)),
    ]


def _fastest(task: Task, marks: list[Mark], here: Mark | None) -> str:
    if not marks:
        return "no machine is left."
    first = min(surest(marks), key=lambda mark: mark.seconds)
    guess = min(marks, key=lambda mark: mark.seconds)
    beside = ""
    if here and here is not first:
        ratio = here.seconds / first.seconds
        beside = f"; {called(here)} takes {duration(here.seconds)}, {times(ratio)} times as long"
    if guess.seconds < first.seconds:
        beside += f"; {guess.name} is predicted at {duration(guess.seconds)}"
    return f"{first.name} takes {duration(first.seconds)} to {task.does} ({basis(first)}){beside}."


def _cheapest(marks: list[Mark]) -> str:
    priced = [mark for mark in marks if mark.rent is not None]
    if not priced:
        return "of none of these machines a price by the hour was read."
    first = min(surest(priced), key=costs.rented)
    guessed = ", at its predicted time" if first.source == PREDICTED else ""
    price = f"{dollars(first.rent)} an hour: {first.rent_note}"
    return f"renting {first.name}, {dollars(costs.rented(first))}{guessed} ({price})."


def _least_energy(marks: list[Mark]) -> str:
    read = surest([mark for mark in marks if mark.joules is not None])
    if not read:
        return "not known: of none of these machines a sensor was read."
    first = min(read, key=lambda mark: mark.joules)
    return (
        f"{first.name}, {energy(first.joules)}, of the {len(read)} with a sensor ({first.energy_note.split(';')[0]})."
    )


def _break_even(marks: list[Mark], here: Mark | None) -> str:
    """Return when a bought machine pays; without one, what renting an hour of this machine's work costs."""
    priced = [mark for mark in marks if mark.rent is not None]
    if not priced:
        return "no price by the hour to hold a purchase against."
    renting = min(surest(priced), key=costs.rented)
    both = surest([mark for mark in marks if mark.purchase is not None])
    owned = here if here and here.purchase else min(both, key=costs.bought) if both and not here else None
    if owned:
        hours = costs.break_even(owned, renting)
        paid = "" if owned.joules else ", electricity not counted"
        after = f"after {number(hours)} hours of this work" if math.isfinite(hours) else "never"
        return (
            f"{owned.name}, bought at {dollars(owned.purchase)} ({owned.purchase_note.partition(',')[0]}), has cost as"
            f" much as renting {renting.name} {after}{paid}."
        )
    if here:
        worth = costs.rented(renting) / (here.seconds / estimate.SECONDS_PER_HOUR)
        return f"what {called(here)} does in an hour costs {dollars(worth)} on a rented {renting.name}."
    return "no purchase price was read."
