"""What a chip costs, rented or bought: prices with their dates, and never a price where none was read."""

import datetime
import functools

import pandas

from benchbook.machine import layout
from benchbook.record import chips, estimate

OFFERS = ["chip", "provider", "usd_per_hour", "date", "age_years", "includes", "source"]
PURCHASES = ["chip", "usd", "date", "age_years", "includes", "source"]
MARKETPLACES = ("Salad", "vast.ai")  # where strangers let their computers, and may take them back


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
    newest = _of(chip, _offers()).sort_values("date", ascending=False, kind="stable").drop_duplicates("provider")
    lines = [newest]
    if own is not None:
        mine = own[own["kind"].isin(["on_demand", "reserved"]) & own["currency"].eq("USD")]
        mine = _named(mine["machine"], mine).assign(
            provider=mine["machine"] + ", " + mine["kind"],
            usd_per_hour=[estimate.hourly(line) for line in mine.to_dict("records")],
        )
        lines.insert(0, _of(chip, mine))
    return _aged(pandas.concat(lines, ignore_index=True), today, OFFERS)


def usual(offers: pandas.DataFrame) -> pandas.DataFrame:
    """Return the offers that say what an hour usually costs: those of marketplaces only where there are no others.

    Args:
        offers: from `rented`.
    """
    of_strangers = offers["provider"].isin(MARKETPLACES)
    return offers if of_strangers.all() else offers[~of_strangers]


def usual_rent(offers: pandas.DataFrame) -> float:
    """Return what an hour of one device usually costs: the median of the usual offers; NaN without one.

    The cheapest would often be no offer at all: one that was withdrawn, that shares the device, or a slip of its list.

    Args:
        offers: from `rented`.
    """
    return float(usual(offers)["usd_per_hour"].astype(float).median())


def bought(chip: str, today: datetime.date, own: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return the dated purchase prices of a chip, newest first, and the price at its launch.

    Args:
        chip: its one name.
        today: from which ages are counted.
        own: further prices, as `articles.prices` reads them; `machine` names the chip.

    Returns:
        Columns: chip, usd, date, age_years, includes, source. No line where no price was read.
    """
    lines = [_of(chip, _purchases()).sort_values("date", ascending=False, kind="stable")]
    printed = chips.specification(chip)
    if "launch_price_usd" in printed:
        launch = {"usd": printed["launch_price_usd"], "date": printed.get("released", ""), "source": printed["source"]}
        lines.append(pandas.DataFrame([launch | {"chip": chip, "includes": "the chip alone, price at its launch"}]))
    if own is not None:
        mine = own[own["kind"].eq("purchase") & own["currency"].eq("USD")]
        lines.insert(0, _of(chip, _named(mine["machine"], mine).rename(columns={"amount": "usd"})))
    return _aged(pandas.concat(lines, ignore_index=True), today, PURCHASES)


def _of(chip: str, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return the prices of a chip by name, else those of its product that name no memory or board of another."""
    exact = prices[prices["chip"] == chip]
    return exact if len(exact) else prices[prices["product"] == chips.product(chip)]


@functools.cache
def _offers() -> pandas.DataFrame:
    listed = pandas.read_csv(layout.published() / "record" / "cloud_prices.csv", keep_default_na=False)
    listed = listed.assign(usd_per_hour=pandas.to_numeric(listed["usd_per_hour"]) / listed["count"])
    listed["includes"] = [_included(line) for line in listed.to_dict("records")]
    return _named(listed["accelerator"], listed)


@functools.cache
def _purchases() -> pandas.DataFrame:
    listed = pandas.read_csv(layout.published() / "record" / "purchase_prices.csv", keep_default_na=False)
    listed = listed.rename(columns={"price_usd": "usd", "notes": "includes"})
    listed["includes"] = "the chip or its share of a machine: " + listed["includes"].replace("", "not told")
    return _named(listed["chip"], listed)


def _named(names: pandas.Series, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return prices with their chip and its product, by the one name of each."""
    return prices.assign(chip=names.map(chips.canonical), product=names.map(chips.product))


def _aged(prices: pandas.DataFrame, today: datetime.date, columns: list[str]) -> pandas.DataFrame:
    dates = pandas.to_datetime(prices["date"], errors="coerce")
    years = (pandas.Timestamp(today) - dates).dt.days / 365.25
    return prices.assign(age_years=years).reindex(columns=columns)


def _included(line: dict) -> str:
    """Return what an hour's price includes: the host where a machine is rented, the chip's share where chips are."""
    if "per chip" in line["source"] or "per chip" in line["instance"]:
        return "one chip's share as its source divides it; host not told"
    if line["instance"]:
        return f"the machine with its host ({line['instance'][:60]}), divided by {line['count']}"
    return "not told"
