"""What claims are made of: named quantities of each machine, gathered from studies and prices."""

from collections.abc import Iterable

import pandas

from benchbook import articles, estimate
from benchbook.devices.kinds import named_by_driver
from benchbook.study import Evidence, Rule, Study

COLUMNS = ["machine", "chip", "source", "name", "value", "low", "high"]
KEPT = ["epochs", "images_seen_in_epoch", "image_size_over", "reading"]  # settings that tell published rows apart


def gather(evidence: Evidence, studies: Iterable[Study]) -> pandas.DataFrame:
    """Return every quantity that claims are made of.

    Args:
        evidence: published and measured rows of all studies, and prices.
        studies: that say which quantities they have.

    Returns:
        Columns: machine, chip (where the machine has one, the GPU or TPU: that is what a claim is about), source, name,
        value, low, high. Published ones carry plus or minus half the last printed digit, measured ones their interval.
    """
    values = []
    for study in studies:
        printed = evidence.published[evidence.published["study"] == study.name]
        values += [value for rule in study.published for value in _by_rule(printed, rule)]
        values += study.quantities(evidence)
    table, rows = pandas.DataFrame(values, columns=COLUMNS), evidence.rows
    accelerators = (
        rows[rows["device"].isin(named_by_driver())].groupby("machine")["device_name"].last().dropna().to_dict()
    )
    table["chip"] = [accelerators.get(*both) for both in zip(table["machine"], table["chip"], strict=True)]
    money = pandas.DataFrame(_money(evidence.prices, table), columns=COLUMNS)
    return pandas.concat([part for part in (table, money) if len(part)] or [table], ignore_index=True)


def printed(row: dict, name: str, column: str | None) -> dict:
    """Return a quantity that a published row holds in a column, within its rounding; without a column, an event."""
    value, (low, high) = (row[column], articles.bounds(row, column)) if column else (1.0, (1.0, 1.0))
    return _head(row, name) | {"value": float(value), "low": float(low), "high": float(high)}


def exact(row: dict, name: str, value: float) -> dict:
    """Return a quantity of a row's machine that has no bounds, such as a count, or 1 for an event."""
    return _head(row, name) | dict.fromkeys(("value", "low", "high"), float(value))


def between(point: dict, name: str, column: str) -> dict:
    """Return a quantity of a point, with the point's bounds low and high."""
    return _head(point, name) | {"value": point[column], "low": point["low"], "high": point["high"]}


def _by_rule(study_rows: pandas.DataFrame, rule: Rule) -> list[dict]:
    columns = {name: [settings.get(name) for settings in study_rows["settings"]] for name in KEPT}
    matching = study_rows.assign(**columns).query(rule.where, engine="python")
    return [printed(row, rule.name, rule.column) for row in matching.to_dict("records")]


def _head(row: dict, name: str) -> dict:
    return {"machine": row["machine"], "chip": row["chip"], "source": row["source"], "name": name}


def _money(prices: pandas.DataFrame, table: pandas.DataFrame) -> list[dict]:
    """Return hourly prices; a derived price is as exact as it is written."""
    chips = table.drop_duplicates("machine").set_index("machine")["chip"].to_dict()
    values = []
    for price in prices[prices["kind"].isin(["on_demand", "reserved"])].to_dict("records"):
        half = articles.half_unit(price["amount"])
        low, value, high = (
            estimate.hourly(price | {"amount": amount})
            for amount in (price["amount"] - half, price["amount"], price["amount"] + half)
        )
        head = {"machine": price["machine"], "chip": chips.get(price["machine"]), "source": "published"}
        values.append(head | {"name": f"{price['kind']}_per_hour", "value": value, "low": low, "high": high})
    return values
