"""What claims are made of: named quantities of each machine, gathered from studies and prices."""

from collections.abc import Iterable, Sequence

import numpy
import pandas

from benchbook.judging import intervals, verdicts
from benchbook.machine.kinds import named_by_driver
from benchbook.record import articles, chips, estimate
from benchbook.rows import networks
from benchbook.studies.study import Evidence, Rule, Study

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
        studies: that say which quantities they have.

    Returns:
        Columns: machine, chip (where the machine has one, the GPU or TPU: that is what a claim is about; by the name
        that all sizes and boards of a chip share), source, name, value, low, high, interval (the kind of these bounds,
        see `intervals.Interval`), note (how it was measured where that matters, as the boundary of joules), session and
        session_width (of measured points). Published ones carry plus or minus half the last printed digit. Counts of
        networks have no machine.
    """
    evidence = evidence.without_wrong()
    values = [exact(row, PRESENT, 1) for row in evidence.published.drop_duplicates("machine").to_dict("records")]
    for study in studies:
        printed = evidence.published[evidence.published["study"] == study.name]
        values += [value for rule in study.published for value in _by_rule(printed, rule)]
        values += study.quantities(evidence)
    table, rows = pandas.DataFrame(values, columns=COLUMNS), evidence.rows
    accelerators = (
        rows[rows["device"].isin(named_by_driver())].groupby("machine")["device_name"].last().dropna().to_dict()
    )
    named = [accelerators.get(*both) for both in zip(table["machine"], table["chip"], strict=True)]
    table["chip"] = [chips.product(name) for name in named]
    further = pandas.DataFrame(_money(evidence.prices, table) + _counts(), columns=COLUMNS)
    return pandas.concat([part for part in (table, further) if len(part)] or [table], ignore_index=True)


def printed(row: dict, name: str, column: str | None) -> dict:
    """Return a quantity that a published row holds in a column, within its rounding; without a column, an event."""
    value, (low, high) = (row[column], articles.bounds(row, column)) if column else (1.0, (1.0, 1.0))
    bounds = {"value": float(value), "low": float(low), "high": float(high), "interval": intervals.ROUNDING}
    return _head(row, name) | bounds


def exact(row: dict, name: str, value: float) -> dict:
    """Return a quantity of a row's machine that has no bounds, such as a count, or 1 for an event."""
    bounds = dict.fromkeys(("value", "low", "high"), float(value))
    return _head(row, name) | bounds | {"interval": intervals.ROUNDING}


def between(point: dict, name: str, column: str, low: str = "low", high: str = "high", kind: str = "interval") -> dict:
    """Return a quantity of a point, with the point's bounds and their kind; its note says if the point is unproven."""
    bounds = {"value": point[column], "low": point[low], "high": point[high], "interval": point[kind]}
    bounds |= {name: point.get(name) for name in ("session", "session_width")}
    if verdicts.is_unproven(verdict := point.get("verdict")):
        bounds["note"] = f"{verdicts.UNPROVEN}: {verdict.text(verdicts.UNPROVEN)}"
    return _head(point, name) | bounds


def of_runs(row: dict, name: str, values: Sequence[float]) -> dict:
    """Return a quantity that each run measured once, such as an accuracy: the mean with Student's t over runs.

    Fewer than FEWEST_RUNS runs have a range.
    """
    array = numpy.asarray(values, float)
    mean, low, high, kind = float(array.mean()), float(array.min()), float(array.max()), intervals.RANGE
    if len(array) >= FEWEST_RUNS:
        reach = float(intervals.half_width(array.var(ddof=1), len(array) - 1, len(array)))
        low, high, kind = mean - reach, mean + reach, intervals.INTERVAL
    return _head(row, name) | {"value": mean, "low": low, "high": high, "interval": kind}


def _by_rule(study_rows: pandas.DataFrame, rule: Rule) -> list[dict]:
    columns = {name: [settings.get(name) for settings in study_rows["settings"]] for name in KEPT}
    matching = study_rows.assign(**columns).query(rule.where, engine="python")
    return [printed(row, rule.name, rule.column) for row in matching.to_dict("records")]


def _head(row: dict, name: str) -> dict:
    return {"machine": row["machine"], "chip": row["chip"], "source": row["source"], "name": name}


def _counts() -> list[dict]:
    """Return what is counted of networks: parameters, and the multiply-adds of a forward pass."""
    head = {"machine": "", "chip": "", "source": "counted", "interval": intervals.ROUNDING}
    counts = {}
    for name, network in networks.table().iterrows():
        counts |= {f"{name}_parameters": network["parameters"]}
        counts |= {f"{name}_operations": network["flops_per_sample"] / FLOPS_PER_MULTIPLY_ADD}
    return [
        head | {"name": name} | dict.fromkeys(("value", "low", "high"), float(count)) for name, count in counts.items()
    ]


def _money(prices: pandas.DataFrame, table: pandas.DataFrame) -> list[dict]:
    """Return hourly prices; a derived price is as exact as it is written."""
    chips = table.drop_duplicates("machine").set_index("machine")["chip"].to_dict()
    values = []
    for price in estimate.in_dollars(prices[prices["kind"].isin(["on_demand", "reserved"])]).to_dict("records"):
        half = articles.half_unit(price["amount"])
        low, value, high = (
            estimate.hourly(price | {"amount": amount})
            for amount in (price["amount"] - half, price["amount"], price["amount"] + half)
        )
        head = {"machine": price["machine"], "chip": chips.get(price["machine"]), "source": "published"}
        values.append(head | {"name": f"{price['kind']}_per_hour", "value": value, "low": low, "high": high})
        values[-1]["interval"] = intervals.ROUNDING
    return values
