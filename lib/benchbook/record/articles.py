"""What articles printed: their figures as rows, how exactly they were printed, and the prices of their time."""

import datetime
import re
from pathlib import Path

import pandas

from benchbook.machine import layout
from benchbook.rows import records

# Kinds of prices, and what each is paid for.
RENT = ("hour", "month")
KINDS = {"on_demand": RENT, "reserved": RENT, "purchase": ("unit",), "electricity": ("kwh",)}
PER = ("hour", "month", "unit", "kwh")
PRICE_COLUMNS = ("machine", "kind", "amount", "currency", "per", "includes", "region", "date", "source")
MOST_PRICE = 1e9
CURRENCIES = ("AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "ILS", "INR", "JPY", "KRW", "MXN")
CURRENCIES += ("NOK", "NZD", "PLN", "SEK", "SGD", "THB", "TRY", "TWD", "USD", "ZAR")  # ISO 4217
FIRST_DAY = datetime.date(2010, 1, 1)
ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def rows() -> pandas.DataFrame:
    """Return the published rows of all studies."""
    return records.merge(layout.published_rows())


def bounds(row: dict, column: str) -> tuple[float, float]:
    """Return what a printed figure may stand for: plus or minus half its last digit.

    Args:
        row: a published row. Where the figure was printed in another unit, or read off a chart, its settings hold
            the distance, in the column's unit, as `rounding`.
        column: which of its measures.
    """
    half = row["settings"].get("rounding", {}).get(column, half_unit(row[column]))
    return row[column] - half, row[column] + half


def half_unit(value: float) -> float:
    """Return half a unit of the last decimal printed: 33.4 stands for 33.35 to 33.45, 34 for 33.5 to 34.5."""
    return 0.5 * 10.0 ** -len(f"{value:.9f}".rstrip("0").partition(".")[2])


def prices(path: Path | None = None) -> pandas.DataFrame:
    """Return the prices: machine, kind, amount, currency, per, includes, region, date, source.

    Args:
        path: a table of prices; None takes the published ones.

    Raises:
        ValueError: a kind, `per` or currency that is not known, a `per` that does not fit its kind, an amount that is
            not above 0, or a date that is none or lies ahead.
    """
    path = path or layout.published() / "prices.csv"
    try:
        table = pandas.read_csv(path, keep_default_na=False, dtype=str)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: no table of prices ({getattr(error, 'strerror', None) or error})") from error
    if missing := [name for name in PRICE_COLUMNS if name not in table]:
        raise ValueError(f"{path.name}: column {missing[0]} is missing; allowed: {', '.join(PRICE_COLUMNS)}")
    table["amount"] = pandas.to_numeric(table["amount"], errors="coerce")
    for column, allowed in (("kind", tuple(KINDS)), ("per", PER), ("currency", CURRENCIES)):
        unknown = sorted(set(table[column].astype(str)) - set(allowed))
        if unknown:
            raise ValueError(f"{path.name}: {column} {unknown[0]!r}; allowed: {', '.join(allowed)}")
    for line in table.to_dict("records"):
        if line["per"] not in KINDS[line["kind"]]:
            allowed = ", ".join(KINDS[line["kind"]])
            raise ValueError(f"{path.name}: {line['kind']} per {line['per']!r}; allowed: {allowed}")
        _check_date(path.name, line["date"])
    if len(wrong := table.loc[~table["amount"].between(1e-9, MOST_PRICE), "amount"]):
        raise ValueError(f"{path.name}: amount {wrong.iloc[0]:g}; allowed: above 0, and up to {MOST_PRICE:g}")
    return table


def _check_date(name: str, text: str) -> None:
    """Refuse a day that is not in the calendar, before the first of these articles, or ahead."""
    try:
        day = datetime.date.fromisoformat(text) if ISO_DAY.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or not FIRST_DAY <= day <= datetime.datetime.now(datetime.UTC).date():
        raise ValueError(f"{name}: date {text!r}; allowed: a day from {FIRST_DAY} to today, as 2018-04-26")
