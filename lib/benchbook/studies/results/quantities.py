"""Quantities for claims: named values of each machine, from published rows, studies, prices and
counts."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy
import pandas

from benchbook.judging import intervals, statistics, verdicts
from benchbook.machine.kinds import named_by_driver
from benchbook.record import articles, chips, prices
from benchbook.rows import networks
from benchbook.studies.results.evidence import Evidence

if TYPE_CHECKING:
    from benchbook.studies.study import Study

COLUMNS = ["machine", "chip", "source", "name", "value", "low", "high", "interval", "note"]
PRESENT = "is_present"  # a quantity of every machine in an article; it carries the machine's chip
FLOPS_PER_MULTIPLY_ADD = 6  # in training: two operations, computed once forward and twice backward
FEWEST_RUNS = 3  # fewer runs have a range
SETTINGS = [
    "epochs",
    "images_seen_in_epoch",
    "image_size_over",
    "reading",
]  # that the rules may query


def gather(evidence: Evidence, studies: Iterable["Study"]) -> pandas.DataFrame:
    """Return every quantity that the formulas of claims can name.

    Points that trained wrong have no quantities. The rules in record/quantities.csv select
    published rows and name the column with the value; a rule without a column records an event.

    Args:
        evidence: published and measured rows of all studies, and prices.
        studies: each computes its measured quantities.

    Returns:
        Columns: machine, chip (the machine's GPU or TPU if it has one, since claims are about
        that; by the name that all sizes and boards of a chip share), source, name, value, low,
        high, interval (the kind of bounds, see `intervals.Interval`), note (how it was measured
        where that matters, such as the boundary of joules). The bounds of a published value are
        plus or minus half its last printed digit. Counts of networks have no machine.
    """
    evidence = evidence.without_wrong()
    values = [
        exact(row, PRESENT, 1)
        for row in evidence.published.drop_duplicates("machine").to_dict("records")
    ]
    rules = articles.table("record/quantities.csv", keep_default_na=False)
    for study in studies:
        rows = statistics.with_settings(evidence.printed(study.name), SETTINGS)
        for rule in rules[rules["study"] == study.name].itertuples():
            chosen = rows.query(rule.where, engine="python").to_dict("records")
            values += [printed(row, rule.name, rule.column) for row in chosen]
        values += study.quantities(evidence)
    table = pandas.DataFrame(values, columns=COLUMNS)
    driven = evidence.rows[evidence.rows["device"].isin(named_by_driver())]
    accelerators = driven.groupby("machine")["device_name"].max().dropna().to_dict()
    named = [accelerators.get(*both) for both in zip(table["machine"], table["chip"], strict=True)]
    table["chip"] = [chips.product(name) for name in named]
    further = pandas.DataFrame(_money(evidence, table) + _counts(), columns=COLUMNS)
    return pandas.concat(
        [part for part in (table, further) if len(part)] or [table], ignore_index=True
    )


def bounded(
    row: dict, name: str, value: float, low: float, high: float, kind: str = intervals.ROUNDING
) -> dict:
    """Return a quantity of a row's machine with its bounds and their kind; see
    `intervals.Interval`."""
    head = {column: row[column] for column in ("machine", "chip", "source")}
    bounds = {"value": float(value), "low": float(low), "high": float(high), "interval": kind}
    return head | {"name": name} | bounds


def exact(row: dict, name: str, value: float) -> dict:
    """Return a quantity of a row's machine that is exact, such as a count, or 1 for an event."""
    return bounded(row, name, value, value, value)


def event(row: dict, name: str, happened: Sequence[bool]) -> dict:
    """Return the quantity of an event in several processes or points: 1 in all, 0 in none; some
    decide nothing."""
    quantity = bounded(row, name, numpy.mean(happened), min(happened), max(happened))
    return quantity | {
        "note": "" if min(happened) == max(happened) else f"in {sum(happened)} of {len(happened)}"
    }


def printed(row: dict, name: str, column: str) -> dict:
    """Return the quantity in a column of a published row, with the bounds of its rounding; no
    column: an event."""
    return (
        bounded(row, name, row[column], *articles.bounds(row, column))
        if column
        else exact(row, name, 1)
    )


def between(
    point: dict,
    name: str,
    column: str,
    low: str = "low",
    high: str = "high",
    kind: str = "interval",
) -> dict:
    """Return a quantity of a point, with the point's bounds and their kind; a note marks an
    unproven point."""
    quantity = bounded(point, name, point[column], point[low], point[high], point[kind])
    if verdicts.is_unproven(verdict := point.get("verdict")):
        quantity["note"] = f"{verdicts.UNPROVEN}: {verdict.text(verdicts.UNPROVEN)}"
    return quantity


def of_runs(row: dict, name: str, values: Sequence[float]) -> dict:
    """Return the mean of a quantity that each run measured once, such as an accuracy.

    Its bounds are a Student's t interval over runs; with fewer than FEWEST_RUNS runs, their range.
    """
    array = numpy.asarray(values, float)
    if len(array) < FEWEST_RUNS:
        return bounded(row, name, array.mean(), array.min(), array.max(), intervals.RANGE)
    half = intervals.half_width(array.var(ddof=1), len(array) - 1, len(array))
    return bounded(
        row, name, array.mean(), array.mean() - half, array.mean() + half, intervals.INTERVAL
    )


def _counts() -> list[dict]:
    """Return the counts of each network: parameters, and multiply-adds of a forward pass."""
    place, quantities = {"machine": "", "chip": "", "source": "counted"}, []
    for name, network in networks.table().iterrows():
        quantities.append(exact(place, f"{name}_parameters", network["parameters"]))
        operations = network["flops_per_sample"] / FLOPS_PER_MULTIPLY_ADD
        quantities.append(exact(place, f"{name}_operations", operations))
    return quantities


def _money(evidence: Evidence, table: pandas.DataFrame) -> list[dict]:
    """Return hourly prices, with the rounding of the listed amount as bounds."""
    chips, quantities = table.drop_duplicates("machine").set_index("machine")["chip"].to_dict(), []
    for price in prices.rented(evidence.prices).to_dict("records"):
        place = {
            "machine": price["machine"],
            "chip": chips.get(price["machine"]),
            "source": "published",
        }
        half = articles.half_unit(price["amount"])
        hourly = [
            prices.hourly(price | {"amount": price["amount"] + change})
            for change in (0, -half, half)
        ]
        quantities.append(bounded(place, f"{price['kind']}_per_hour", *hourly))
    return quantities
