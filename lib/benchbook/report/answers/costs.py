"""What a mark costs: rented, bought and shared out over its years, in electricity; at prices that a reader states."""

from dataclasses import dataclass

from benchbook.record import estimate
from benchbook.report.answers.marks import Mark

HOURS_PER_YEAR = 365 * 24


@dataclass(frozen=True)
class Terms:
    """What a reader states of money; these are the page's first values, not anybody's prices.

    Attributes:
        years: over which a bought machine is used up.
        hours_per_day: that it works.
        usd_per_kwh: the price of electricity.
    """

    years: float = 3.0
    hours_per_day: float = 24.0
    usd_per_kwh: float = 0.30


TERMS = Terms()


def rented(mark: Mark) -> float | None:
    """Return US dollars of rent for the task; None without a price."""
    return None if mark.rent is None else estimate.rent(mark.seconds, mark.rent)


def electricity(mark: Mark, terms: Terms = TERMS) -> float | None:
    """Return US dollars of electricity for the task; None where nobody read joules."""
    return None if mark.joules is None else mark.joules / estimate.JOULES_PER_KWH * terms.usd_per_kwh


def bought(mark: Mark, terms: Terms = TERMS) -> float | None:
    """Return the task's share of the purchase price, with electricity where it is known; None without a price."""
    if mark.purchase is None:
        return None
    hours = terms.years * HOURS_PER_YEAR * terms.hours_per_day / 24
    return estimate.rent(mark.seconds, mark.purchase / hours) + (electricity(mark, terms) or 0.0)


def break_even(owned: Mark, renting: Mark, terms: Terms = TERMS) -> float:
    """Return the hours of work after which a bought machine has cost as much as renting another one for that work.

    Args:
        owned: with a purchase price; electricity that nobody read is not counted.
        renting: with a rent.
    """
    ratio = renting.seconds / owned.seconds
    return estimate.break_even_hours(owned.purchase, owned.watts or 0.0, terms.usd_per_kwh, renting.rent, ratio)
