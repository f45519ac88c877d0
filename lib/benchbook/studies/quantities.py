"""What claims are made of: named quantities of each machine, gathered from studies and prices."""

from collections.abc import Iterable, Sequence

import numpy
import pandas

from benchbook.judging import intervals, verdicts
from benchbook.machine import layout
from benchbook.machine.kinds import named_by_driver
from benchbook.record import articles, chips, estimate
from benchbook.rows import networks
from benchbook.studies import tables
from benchbook.studies.study import Evidence, Study

COLUMNS = ["machine", "chip", "source", "name", "value", "low", "high", "interval", "note", "session", "session_width"]
PRESENT = "is_present"  # a quantity of every machine that articles name, that says which chip it has
FLOPS_PER_MULTIPLY_ADD = 6  # of training: two operations each, forward once and backward twice
FEWEST_RUNS = 3  # with fewer, the least and the most are shown
KEPT = ["epochs", "images_seen_in_epoch", "image_size_over", "reading"]  # settings in which published rows differ


def gather(evidence: Evidence, studies: Iterable[Study]) -> pandas.DataFrame:
    """Return every quantity that claims are made of.

    Points that trained wrong have none.

    Args:
        evidence: published and measured rows of all studies, and prices.
        studies: that say which quantities they measured; record/quantities.csv says which published rows hold some,
            and in which column (without one, something happened).

    Returns:
        Columns: machine, chip (where the machine has one, the GPU or TPU: that is what a claim is about; by the name
        that all sizes and boards of a chip share), source, name, value, low, high, interval (the kind of these bounds,
        see `intervals.Interval`), note (how it was measured where that matters, as the boundary of joules), session and
        session_width (of measured points). Published ones carry plus or minus half the last printed digit. Counts of
        networks have no machine.
    """
    evidence = evidence.without_wrong()
    values = [exact(row, PRESENT, 1) for row in evidence.published.drop_duplicates("machine").to_dict("records")]
    rules = pandas.read_csv(layout.published() / "record" / "quantities.csv", keep_default_na=False)
    for study in studies:
        rows = tables.with_settings(evidence.printed(study.name), KEPT)
        for rule in rules[rules["study"] == study.name].itertuples():
            chosen = rows.query(rule.where, engine="python").to_dict("records")
            values += [printed(row, rule.name, rule.column) for row in chosen]
        values += study.quantities(evidence)
    table = pandas.DataFrame(values, columns=COLUMNS)
    driven = evidence.rows[evidence.rows["device"].isin(named_by_driver())]
    accelerators = driven.groupby("machine")["device_name"].last().dropna().to_dict()
    named = [accelerators.get(*both) for both in zip(table["machine"], table["chip"], strict=True)]
    table["chip"] = [chips.product(name) for name in named]
    further = pandas.DataFrame(_money(evidence.prices, table) + _counts(), columns=COLUMNS)
    return pandas.concat([part for part in (table, further) if len(part)] or [table], ignore_index=True)


def bounded(row: dict, name: str, value: float, low: float, high: float, kind: str = intervals.ROUNDING) -> dict:
    """Return a quantity of a row's machine with its bounds and their kind, see `intervals.Interval`."""
    head = {column: row[column] for column in ("machine", "chip", "source")}
    bounds = {"value": float(value), "low": float(low), "high": float(high), "interval": kind}
    return head | {"name": name} | bounds


def exact(row: dict, name: str, value: float) -> dict:
    """Return a quantity of a row's machine that has no bounds, such as a count, or 1 for an event."""
    return bounded(row, name, value, value, value)


def printed(row: dict, name: str, column: str) -> dict:
    """Return a quantity that a published row holds in a column, within its rounding; without a column, an event."""
    return bounded(row, name, row[column], *articles.bounds(row, column)) if column else exact(row, name, 1)


def between(point: dict, name: str, column: str, low: str = "low", high: str = "high", kind: str = "interval") -> dict:
    """Return a quantity of a point, with the point's bounds and their kind; its note says if the point is unproven."""
    quantity = bounded(point, name, point[column], point[low], point[high], point[kind])
    quantity |= {column: point.get(column) for column in ("session", "session_width")}
    if verdicts.is_unproven(verdict := point.get("verdict")):
        quantity["note"] = f"{verdicts.UNPROVEN}: {verdict.text(verdicts.UNPROVEN)}"
    return quantity


def of_runs(row: dict, name: str, values: Sequence[float]) -> dict:
    """Return a quantity that each run measured once, such as an accuracy: the mean with Student's t over runs.

    Fewer than FEWEST_RUNS runs have a range.
    """
    array = numpy.asarray(values, float)
    if len(array) < FEWEST_RUNS:
        return bounded(row, name, array.mean(), array.min(), array.max(), intervals.RANGE)
    reach = intervals.half_width(array.var(ddof=1), len(array) - 1, len(array))
    return bounded(row, name, array.mean(), array.mean() - reach, array.mean() + reach, intervals.INTERVAL)


def _counts() -> list[dict]:
    """Return what is counted of networks: parameters, and the multiply-adds of a forward pass."""
    place, quantities = {"machine": "", "chip": "", "source": "counted"}, []
    for name, network in networks.table().iterrows():
        quantities.append(exact(place, f"{name}_parameters", network["parameters"]))
        operations = network["flops_per_sample"] / FLOPS_PER_MULTIPLY_ADD
        quantities.append(exact(place, f"{name}_operations", operations))
    return quantities


def _money(prices: pandas.DataFrame, table: pandas.DataFrame) -> list[dict]:
    """Return hourly prices; a derived price is as exact as it is written."""
    chips, quantities = table.drop_duplicates("machine").set_index("machine")["chip"].to_dict(), []
    for price in estimate.in_dollars(prices[prices["kind"].isin(["on_demand", "reserved"])]).to_dict("records"):
        place = {"machine": price["machine"], "chip": chips.get(price["machine"]), "source": "published"}
        half = articles.half_unit(price["amount"])
        hourly = [estimate.hourly(price | {"amount": price["amount"] + change}) for change in (0, -half, half)]
        quantities.append(bounded(place, f"{price['kind']}_per_hour", *hourly))
    return quantities
