"""Money: what training costs on a rented machine, and when one that was bought pays.

Rates are images a second; prices are of one currency. Tables are in US dollars, and leave other prices out: see
`in_dollars`.
"""

import math
from collections.abc import Mapping

import pandas

HOURS_PER_MONTH = 365 * 24 / 12
SECONDS_PER_HOUR = 3600
JOULES_PER_KWH = 3.6e6
NOT_AT_THE_WALL = {
    "board": "electricity of the GPU's board alone: the rest of the computer and its power supply are not paid",
    "soc": "electricity of the chip and its memory alone: the rest of the computer is not paid",
    "package": "electricity of the CPU's package alone: the rest of the computer is not paid",
}


def in_dollars(prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return the prices in US dollars; no rate of exchange is assumed for others."""
    return prices[prices["currency"] == "USD"]


def hourly(price: dict) -> float:
    """Return what an hour of a rented machine costs.

    Args:
        price: a line of `articles.prices`, with amount and per.

    Raises:
        ValueError: the price is not one of time.
    """
    hours = {"hour": 1, "month": HOURS_PER_MONTH}
    if price["per"] not in hours:
        raise ValueError(f"a price per {price['per']!r}; allowed: {', '.join(hours)}")
    return price["amount"] / hours[price["per"]]


def on_demand(prices: pandas.DataFrame) -> dict[str, float]:
    """Return US dollars for an hour on demand, by machine: of several prices the first.

    Args:
        prices: from `articles.prices`.
    """
    listed = in_dollars(prices[prices["kind"].eq("on_demand")]).drop_duplicates("machine")
    return {price["machine"]: hourly(price) for price in listed.to_dict("records")}


def price_of_hour(machine: str, stated: float | None, listed: Mapping[str, float]) -> float:
    """Return US dollars for an hour of a machine: what its run states, else what is listed on demand; NaN without.

    Args:
        machine: its name.
        stated: the run's own price in US dollars; None, NaN and 0 are none.
        listed: from `on_demand`.
    """
    return float(stated) if pandas.notna(stated) and stated else listed.get(machine, math.nan)


def rent(seconds: float, per_hour: float) -> float:
    """Return what some seconds of a machine rented by the hour cost."""
    return seconds / SECONDS_PER_HOUR * per_hour


def run_hours(epochs: float, dataset_samples: int, rate: float) -> float:
    """Return the hours that some epochs take at a rate, evaluation left out."""
    if rate <= 0:
        raise ValueError(f"rate {rate!r}; allowed: above 0")
    return epochs * dataset_samples / rate / SECONDS_PER_HOUR


def cost_per_million(rate: float, per_hour: float) -> float:
    """Return what a million training images cost on a machine rented by the hour."""
    return run_hours(1, 1_000_000, rate) * per_hour


def rate_per_dollar(rate: float, per_hour: float) -> float:
    """Return images a second for each unit of money an hour costs."""
    return rate / per_hour


def epochs_to_accuracy(rows: pandas.DataFrame, accuracy: float) -> float | None:
    """Return the first epoch of a run whose measured accuracy is at least this one.

    The raw curve is read, never smoothed and never continued: None where the run did not get there.

    Args:
        rows: one run's, with columns phase, epoch and accuracy.
        accuracy: a fraction.
    """
    reached = rows[(rows["phase"] == "evaluate") & (rows["accuracy"] >= accuracy).fillna(False)]
    return float(reached["epoch"].min()) if len(reached) else None


def wall_note(boundary: str | None) -> str:
    """Return what a price of electricity leaves out where joules were not read at the wall; empty at the wall.

    Args:
        boundary: of the joules: board, soc, package or wall.
    """
    return NOT_AT_THE_WALL.get(boundary, "")


def electricity(watts: float, per_kwh: float) -> float:
    """Return what an hour at this power costs."""
    return watts * SECONDS_PER_HOUR / JOULES_PER_KWH * per_kwh


def break_even_hours(
    purchase: float, watts: float, per_kwh: float, rent_per_hour: float, rate_ratio: float = 1.0
) -> float:
    """Return the hours of training at which a bought machine has cost as much as a rented one for the same work.

    Args:
        purchase: its price; what it can be sold for later is not counted.
        watts: what it draws in training, at the wall.
        per_kwh: the price of electricity.
        rent_per_hour: the rented machine's price.
        rate_ratio: images a second of the bought machine over those of the rented one.

    Returns:
        Hours of the bought machine; infinite where its electricity alone costs more than renting.

    Raises:
        ValueError: a number that is not above 0 (electricity may be free).
    """
    for name, value in (("purchase", purchase), ("rent_per_hour", rent_per_hour), ("rate_ratio", rate_ratio)):
        if value <= 0:
            raise ValueError(f"{name} {value!r}; allowed: above 0")
    saved = rent_per_hour * rate_ratio - electricity(watts, per_kwh)
    return purchase / saved if saved > 0 else math.inf
