"""Prices: of an hour on a machine, and of chips to rent or buy.

Each price has its date; no price is guessed. Tables are in US dollars, without prices in other
currencies: see `rented`.
"""

import datetime
import functools
import math
import re
from collections.abc import Callable, Mapping

import pandas

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import chips
from benchbook.rows import records

HOURS = {"hour": 1, "month": 365 * 24 / 12}
SECONDS_PER_HOUR = 3600
RENTED = ("on_demand", "reserved")  # kinds of prices
OLD = datetime.timedelta(days=548)  # 18 months; an older price says that it is old
MARKETPLACES = ("Salad", "Spheron", "vast.ai")  # which rent out the computers of others


def rented(prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines of `articles.prices` on rented machines that are in US dollars; others
    are not converted."""
    return prices[prices["kind"].isin(RENTED) & prices["currency"].eq("USD")]


def hourly(price: dict) -> float:
    """Return the price of an hour of a rented machine.

    Args:
        price: a line of `articles.prices`, with amount and per (hour or month).
    """
    return price["amount"] / HOURS[price["per"]]


def on_demand(prices: pandas.DataFrame) -> dict[str, float]:
    """Return the price of an hour on demand in US dollars, by machine; the first of several prices.

    Args:
        prices: from `articles.prices`.
    """
    listed = records.having(rented(prices), kind="on_demand").drop_duplicates("machine")
    return {price["machine"]: hourly(price) for price in listed.to_dict("records")}


def price_of_hour(machine: str, stated: float | None, listed: Mapping[str, float]) -> float:
    """Return the price of an hour of a machine in US dollars: the run's own price, else the one
    on demand, else NaN.

    Args:
        machine: its name.
        stated: the run's own price in US dollars; None, NaN and 0 mean no price.
        listed: from `on_demand`.
    """
    return float(stated) if pandas.notna(stated) and stated else listed.get(machine, math.nan)


def rent(seconds: float, per_hour: float) -> float:
    """Return the cost of renting a machine for this time."""
    return seconds / SECONDS_PER_HOUR * per_hour


def hours_to_pay(usd: float, rent_per_hour: float, cost_per_hour: float = 0.0) -> float:
    """Return the hours of use after which a purchase has cost less than renting: its price over
    the rent saved.

    Args:
        usd: the purchase price in US dollars.
        rent_per_hour: of what would be rented instead, for as much work.
        cost_per_hour: of using the own hardware, such as its electricity; infinity is returned
        if rent is no dearer.
    """
    saved = rent_per_hour - cost_per_hour
    return usd / saved if saved > 0 else math.inf


@functools.cache
def rental_offers(chip: str) -> pandas.DataFrame:
    """Return the hourly offers for a chip: of each provider the newest, in its smallest and
    cheapest instance.

    Args:
        chip: its canonical name; without offers for this memory size or board, those for its
        product count.

    Returns:
        Columns: chip, provider, usd_per_hour (of one device), date, source, and others. No lines
        if no price is known.
    """
    return _of_chip(chip, _offers).drop_duplicates("provider").reset_index(drop=True)


@functools.cache
def usual_offers(chip: str) -> pandas.DataFrame:
    """Return the offers whose median is the usual price: those of marketplaces count only if
    there are no others.

    The cheapest offer is not used: often it was withdrawn, shares the device, or is an error in
    the list.

    Args:
        chip: see `rental_offers`.
    """
    offers = rental_offers(chip)
    of_marketplace = offers["provider"].isin(MARKETPLACES)
    return offers if of_marketplace.all() else offers[~of_marketplace]


@functools.cache
def usual_rent(chip: str) -> float | None:
    """Return the usual price of an hour of one device, see `usual_offers`; None without offers."""
    prices = usual_offers(chip)["usd_per_hour"].astype(float)
    return float(prices.median()) if len(prices) else None


@functools.cache
def purchase_prices(chip: str) -> pandas.DataFrame:
    """Return the purchase prices of a chip: the newest first, then the launch price, then those
    whose source does not say what was sold.

    Args:
        chip: its canonical name.

    Returns:
        Columns: chip, usd, date, of (what, in a few words), includes (the record's note), source,
        and others. No lines if no price is known.
    """
    bought, launched = _of_chip(chip, _purchases), _by(_launches, "chip").get(chip)
    every = [each for each in (bought, launched) if each is not None and len(each)]
    found = pandas.concat(every or [bought], ignore_index=True)
    order = found["of"].str.endswith("not stated").sort_values(kind="stable").index
    return found.loc[order].reset_index(drop=True)


@functools.cache
def in_words(chip: str, count: int = 1) -> dict[str, str]:
    """Return the prices of a chip in words, with their dates; without what is unknown.

    A computer with other memory is another configuration; it is named, without being this one's
    price.

    Args:
        chip: its canonical name.
        count: devices.

    Returns:
        hour (the rent of an hour), buy (the newest purchase price of exactly this configuration,
        with what it is of), noted (the record's note on that price), pays (the hours after which
        buying beats renting).
    """
    bought = purchase_prices(chip).to_dict("records")
    own, found = next((line for line in bought if _is_of(chip, line)), None), {}
    if hourly := usual_rent(chip):
        usual = usual_offers(chip)
        providers = (
            f"{wording.count(len(usual), 'provider')}, {'newest ' if len(usual) > 1 else ''}"
        )
        found["hour"] = (
            f"{wording.price(count * hourly)} an hour ({providers}{_age(usual['date'].max())})"
        )
    for line in [own or bought[0]] if bought else ():
        dollars = (
            f"{wording.price(count * line['usd'] if own else line['usd'])} ({_age(line['date'])})"
        )
        each = f"{count} x " if own and count > 1 else ""
        found["buy"] = (
            f"{'' if own else 'none of this configuration; '}{dollars}, {each}{line['of']}"
        )
        found["noted"] = line["includes"]
    if own and hourly:
        found["pays"] = (
            f"{wording.number(hours_to_pay(own['usd'], hourly))} hours of use, without electricity"
        )
    return found


def _is_of(chip: str, line: dict) -> bool:
    """Return whether a purchase price is of exactly this chip with its memory; a Mac's must name
    its memory."""
    named, own = re.search(r"\b(\d+) GB\b", line["includes"]), chips.table().loc[chip, "memory_gb"]
    if not named:
        return not chip.startswith("Apple")
    return line["chip"] == chip and float(named[1]) == own


def _age(date: object) -> str:
    """Return the month of a date, with a word if it is old."""
    if not isinstance(date, str) or not date:
        return "no date"
    old = datetime.date.fromisoformat(date[:10]) < datetime.date.today() - OLD
    return f"{date[:7]}, over 18 months old" if old else date[:7]


def _of_chip(chip: str, read: Callable[[], pandas.DataFrame]) -> pandas.DataFrame:
    """Return the prices of a chip, else the prices of its product."""
    own = _by(read, "chip").get(chip)
    return (
        own if own is not None else _by(read, "product").get(chips.product(chip), read().iloc[:0])
    )


@functools.cache
def _by(read: Callable[[], pandas.DataFrame], column: str) -> dict[str, pandas.DataFrame]:
    return dict(iter(read().groupby(column)))


def _listed(file: str, named: str) -> pandas.DataFrame:
    """Return the prices in a file of the record, the newest first, with chip and product by the
    names in a column."""
    prices = pandas.read_csv(layout.published() / "record" / file, keep_default_na=False)
    prices = prices.assign(
        chip=prices[named].map(chips.canonical), product=prices[named].map(chips.product)
    )
    return prices.sort_values("date", ascending=False, kind="stable")


@functools.cache
def _offers() -> pandas.DataFrame:
    listed = _listed("cloud_prices.csv", "accelerator")
    of_device = pandas.to_numeric(listed["usd_per_hour"]) / listed["count"]
    listed = listed.assign(usd_per_hour=of_device).dropna(subset="usd_per_hour")
    order = ["date", "count", "usd_per_hour"]
    return listed.sort_values(order, ascending=[False, True, True], kind="stable")


@functools.cache
def _purchases() -> pandas.DataFrame:
    listed = _listed("purchase_prices.csv", "chip")
    listed = listed[listed["of"].ne("")]  # an estimate, as for chips never sold, is not a price
    notes = listed["notes"].str.replace(r"\S*https?:\S*", "", regex=True).str.strip()
    return listed.rename(columns={"price_usd": "usd"}).assign(includes=notes)


@functools.cache
def _launches() -> pandas.DataFrame:
    launched = chips.table().dropna(subset="launch_price_usd")
    launched = launched.rename(columns={"launch_price_usd": "usd", "released": "date"})
    return launched.assign(includes="price at its launch", of="card")
