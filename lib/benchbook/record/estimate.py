"""Costs: prices of chips to rent or buy, the cost of training, and when buying is cheaper than renting.

Prices have their dates, and there is none where none was read. Rates are images a second; prices are of one currency.
Tables are in US dollars, and leave other prices out: see `in_dollars`.
"""

import datetime
import functools
import math
from collections.abc import Mapping

import pandas

from benchbook.machine import layout
from benchbook.record import chips

HOURS = {"hour": 1, "month": 365 * 24 / 12}
SECONDS_PER_HOUR = 3600
JOULES_PER_KWH = 3.6e6
NOT_AT_THE_WALL = {
    "board": "electricity of the GPU's board alone: the rest of the computer and its power supply are not paid",
    "soc": "electricity of the chip and its memory alone: the rest of the computer is not paid",
    "package": "electricity of the CPU's package alone: the rest of the computer is not paid",
}
OFFERS = ["chip", "provider", "usd_per_hour", "date", "age_years", "includes", "source"]
PURCHASES = ["chip", "usd", "date", "age_years", "includes", "source"]
MARKETPLACES = ("Salad", "vast.ai")  # marketplaces on which private persons rent out computers


def in_dollars(prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return the prices in US dollars; no rate of exchange is assumed for others."""
    return prices[prices["currency"] == "USD"]


def hourly(price: dict) -> float:
    """Return what an hour of a rented machine costs.

    Args:
        price: a line of `articles.prices`, with amount and per (hour or month).
    """
    return price["amount"] / HOURS[price["per"]]


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
    return epochs * dataset_samples / rate / SECONDS_PER_HOUR


def cost_per_million(rate: float, per_hour: float) -> float:
    """Return what a million training images cost on a machine rented by the hour."""
    return run_hours(1, 1_000_000, rate) * per_hour


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
    """Return the price of electricity for an hour at this power."""
    return watts * SECONDS_PER_HOUR / JOULES_PER_KWH * per_kwh


def rented(chip: str, today: datetime.date, own: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return the dated offers of a chip by the hour, the newest of each provider, one's own first.

    Args:
        chip: its one name; offers that name the product without its memory or board count where the chip has none.
        today: from which ages are counted.
        own: further prices, as `articles.prices` reads them; `machine` names the chip.

    Returns:
        Columns: chip, provider, usd_per_hour (of one device), date, age_years, includes, source. No line where no
        price was read.
    """
    listed = _of(chip, _offers(today)).drop_duplicates("provider")
    return pandas.concat([_own(chip, own, ("on_demand", "reserved"), today), listed], ignore_index=True)[OFFERS]


def usual(offers: pandas.DataFrame) -> pandas.DataFrame:
    """Return the offers that say what an hour usually costs: those of marketplaces only where there are no others.

    Their median is that cost. The cheapest would often be no offer at all: one that was withdrawn, that shares the
    device, or a slip of its list.

    Args:
        offers: from `rented`.
    """
    of_strangers = offers["provider"].isin(MARKETPLACES)
    return offers if of_strangers.all() else offers[~of_strangers]


def bought(chip: str, today: datetime.date, own: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return the dated purchase prices of a chip, newest first, and the price at its launch.

    Args:
        chip: its one name.
        today: from which ages are counted.
        own: further prices, as `articles.prices` reads them; `machine` names the chip.

    Returns:
        Columns: chip, usd, date, age_years, includes, source. No line where no price was read.
    """
    launched = _launches(today)
    listed = [_of(chip, _purchases(today)), launched[launched["chip"] == chip]]
    return pandas.concat([_own(chip, own, ("purchase",), today), *listed], ignore_index=True)[PURCHASES]


def _own(
    chip: str, prices: pandas.DataFrame | None, kinds: tuple[str, ...], today: datetime.date
) -> pandas.DataFrame | None:
    """Return the user's prices of a chip in US dollars, as offers and as purchases."""
    if prices is None:
        return None
    own = in_dollars(prices[prices["kind"].isin(kinds)])
    own = _named(own["machine"], own, today).assign(
        provider=own["machine"] + ", " + own["kind"],
        usd=own["amount"],
        usd_per_hour=own["amount"] / own["per"].map(HOURS),
    )
    return _of(chip, own)


def _of(chip: str, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return the prices of a chip by name, else those of its product that name no memory or board of another."""
    exact = prices[prices["chip"] == chip]
    return exact if len(exact) else prices[prices["product"] == chips.product(chip)]


@functools.cache
def _offers(today: datetime.date) -> pandas.DataFrame:
    listed = pandas.read_csv(layout.published() / "record" / "cloud_prices.csv", keep_default_na=False)
    listed = listed.assign(usd_per_hour=pandas.to_numeric(listed["usd_per_hour"]) / listed["count"])
    machine = (
        "the machine with its host (" + listed["instance"].str[:60] + "), divided by " + listed["count"].astype(str)
    )
    per_chip = (listed["source"] + listed["instance"]).str.contains("per chip")
    listed["includes"] = machine.where(listed["instance"].ne(""), "not stated")
    listed.loc[per_chip, "includes"] = "one chip's share as its source divides it; host not stated"
    return _named(listed["accelerator"], listed, today).sort_values("date", ascending=False, kind="stable")


@functools.cache
def _purchases(today: datetime.date) -> pandas.DataFrame:
    listed = pandas.read_csv(layout.published() / "record" / "purchase_prices.csv", keep_default_na=False)
    listed = listed[~listed["notes"].str.contains("Estimat")]  # as of chips that were never sold: no price
    listed = listed.rename(columns={"price_usd": "usd", "notes": "includes"})
    listed["includes"] = "the chip or its share of a machine: " + listed["includes"].replace("", "not stated")
    return _named(listed["chip"], listed, today).sort_values("date", ascending=False, kind="stable")


@functools.cache
def _launches(today: datetime.date) -> pandas.DataFrame:
    printed = chips.table().dropna(subset="launch_price_usd")
    listed = printed[["launch_price_usd", "released", "source"]]
    listed = listed.rename(columns={"launch_price_usd": "usd", "released": "date"})
    return _named(printed["chip"], listed.assign(includes="the chip alone, price at its launch"), today)


def _named(names: pandas.Series, prices: pandas.DataFrame, today: datetime.date) -> pandas.DataFrame:
    """Return prices with their chip and its product, by the one name of each, and their age."""
    age = pandas.Timestamp(today) - pandas.to_datetime(prices["date"], errors="coerce")
    named = prices.assign(chip=names.map(chips.canonical), product=names.map(chips.product))
    return named.assign(age_years=age.dt.days / 365.25)
