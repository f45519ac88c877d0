"""What articles printed: their figures as rows, how exactly they were printed, and the prices of their time."""

from pathlib import Path

import pandas

from benchbook import layout, records

KINDS = ("on_demand", "reserved", "purchase", "electricity")
PER = ("hour", "month", "unit", "kwh")


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
        ValueError: a kind or `per` that is not known, or an amount that is not above 0.
    """
    path = path or layout.published() / "prices.csv"
    table = pandas.read_csv(path, keep_default_na=False, dtype={"amount": float})
    for column, allowed in (("kind", KINDS), ("per", PER)):
        unknown = sorted(set(table[column]) - set(allowed))
        if unknown:
            raise ValueError(f"{path.name}: {column} {unknown[0]!r}; allowed: {', '.join(allowed)}")
    if not (table["amount"] > 0).all():
        raise ValueError(f"{path.name}: amount {table['amount'].min()}; allowed: above 0")
    return table
