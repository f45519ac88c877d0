"""Claims of published articles: recomputed from published rows, and compared with measured ones.

A claim's formula is arithmetic over quantities of a machine, such as `cpu_seconds /
accelerator_seconds`. If a claim compares two machines, quantities of the second begin with
`other_`. The article's own figures test its arithmetic; only a measurement, or a count of a
network, confirms or contradicts a claim.
"""

import itertools
import math
import re
from collections.abc import Iterator

import pandas

from benchbook.judging import intervals, wording
from benchbook.judging.intervals import Interval
from benchbook.record import articles
from benchbook.record.prices import hours_to_pay

HOLDS, FAILS = "arithmetic holds", "arithmetic does not hold"
CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"
NOT_MEASURED = "not measured here"
NOT_RECOMPUTED = "not recomputed"
NOT_COMPARABLE = "not comparable (another chip)"
COUNTED = "counted"  # the source of a network's quantities, which belong to no machine
EVENT = "that it happens"  # the claimed range of an event
TEXTS = ("machine", "other", "reason", "unjudged", "unit")
RANGE_REASON = "one process has no interval, and a range decides nothing"
QUANTITY = re.compile(r"\b[a-z_]\w*\b(?!\()")  # in a formula, not the name of a function
WIDE_REASON = "its interval is wider than the claimed range, so it can contradict the claim but not confirm it"
NEVER_REASON = (
    "one machine's sessions differ by more than the claimed range, so a measurement can "
    "contradict the claim but not confirm it"
)
# How many rates' session parts are in a quantity's interval, by a word in its name; other quantities
# are exact or have intervals of runs. Training is at most nine tenths of an epoch's time.
RATES = {"rate": 1, "seconds": 0.9**2, "joules": 1, "watts": 2}
DERIVED_REASON = "the published rows were derived from this claim, so they cannot test it"


def read() -> pandas.DataFrame:
    """Return the claims.

    Columns: id, study, article, sentence, machine (empty for a count of a network), other (the
    machine to compare with), formula, low, high, tolerance (in the same unit: how far outside
    low and high a repetition with other software may be), unit, relation (equal: within the
    range; at_least: low or more; event: it happened, which is 1), reason (why published rows
    cannot test its arithmetic; empty if they can), unjudged (why no measurement can judge it
    here; empty if one can).
    """
    claims = articles.table("claims.csv", dtype=dict.fromkeys(TEXTS, "str"))
    return claims.fillna(dict.fromkeys(TEXTS, "") | {"tolerance": 0.0})


def recompute(formula: str, quantities: pandas.DataFrame) -> Interval | None:
    """Return a formula's value with its bounds; see `intervals.combine`.

    Args:
        formula: arithmetic over names; it may call `prices.hours_to_pay`.
        quantities: of one machine, with columns name, value, low, high, interval.

    Returns:
        None if the formula has a name that is not among the quantities.
    """
    numbers = {
        line["name"]: Interval.from_row(line, "value") for line in quantities.to_dict("records")
    }
    names = names_in(formula)
    if not set(names) <= set(numbers):
        return None
    # Formulas are the package's own, in claims.csv.
    function = eval(f"lambda {', '.join(names)}: {formula}", {"hours_to_pay": hours_to_pay})
    return intervals.combine(function, *(numbers[name] for name in names))


def names_in(formula: str) -> list[str]:
    """Return the quantities that a formula names."""
    return sorted(set(QUANTITY.findall(formula)))


def judge_arithmetic(claim: dict, low: float, high: float) -> str:
    """Return HOLDS if the result of an article's own figures overlaps the claimed range, else
    FAILS."""
    below = claim["relation"] == "equal" and low > claim["high"]
    return FAILS if below or high < claim["low"] else HOLDS


def judge(claim: dict, measured: Interval) -> str:
    """Return the verdict of a measurement on a claim.

    Returns:
        CONFIRMED if the whole interval is within the claim's bounds and tolerance, CONTRADICTED
        if all of it is outside, else UNDECIDED. A range is always UNDECIDED.
    """
    if measured.kind == intervals.RANGE:
        return UNDECIDED
    low = claim["low"] - claim["tolerance"]
    high = claim["high"] + claim["tolerance"] if claim["relation"] == "equal" else math.inf
    if measured.high < low or measured.low > high:
        return CONTRADICTED
    return CONFIRMED if low <= measured.low and measured.high <= high else UNDECIDED


def can_be_confirmed(claim: dict) -> bool:
    """Return whether the narrowest possible interval, of the sessions' parts alone, fits into a
    claim's range."""
    low, high = claim["low"] - claim["tolerance"], claim["high"] + claim["tolerance"]
    if claim["relation"] != "equal" or low <= 0:
        return True
    names = names_in(claim["formula"])
    rates = sum(count for name in names for word, count in RATES.items() if word in name)
    narrowest = intervals.half_width(rates * intervals.UNPAIRED.session**2, math.inf, 1)
    return math.log(high / low) / 2 >= narrowest


def table(claims: pandas.DataFrame, quantities: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per claim and machine.

    Args:
        claims: from `read`.
        quantities: from `quantities.gather`, of all studies with claims.

    Returns:
        Columns: id, sentence, published (the claimed range), machine, source, value, low, high,
        interval, verdict, reason, arithmetic (with its numbers: `33.4 / 19.6 = 1.704`; missing
        if the formula is one quantity). The article's own machine comes first. A measured
        machine with another chip is `not comparable`. A claim that compares two machines has a
        line for each measured pair of the same two chips. Machines that did not measure the
        quantities are left out. A claim about a network has one line, from our count.
    """
    lines, is_measured = [], quantities["source"].eq("measured").rename("measured")
    groups = dict(
        iter(quantities.groupby(["machine", "chip", is_measured], dropna=False, sort=True))
    )
    for claim in claims.to_dict("records"):
        own = _printed(claim["machine"], groups)
        if claim["reason"]:
            lines.append(
                _head(claim)
                | {"source": "published", "verdict": NOT_RECOMPUTED, "reason": claim["reason"]}
            )
        elif own:
            lines.append(
                _line(claim, "", _joined(claim, own, _printed(claim["other"], groups)), True)
            )
        can_be_judged = claim["machine"] and not claim["unjudged"]
        measured = (
            [_line(claim, *case) for case in _measured(claim, groups, own)] if can_be_judged else []
        )
        measured = [line for line in measured if line["verdict"] != NOT_MEASURED]
        if claim["machine"] and not measured:
            reason = claim["unjudged"] or ("" if can_be_confirmed(claim) else NEVER_REASON)
            none = {"machine": "", "source": "measured", "verdict": NOT_MEASURED, "reason": reason}
            measured = [_head(claim) | none]
        lines += measured
    columns = """id sentence published machine source value low high interval verdict reason
        arithmetic"""
    return pandas.DataFrame(lines, columns=columns.split())


def _printed(machine: str, groups: dict) -> tuple | None:
    """Return the chip and the published quantities of an article's machine."""
    return next(
        ((key[1], group) for key, group in groups.items() if key[0] == machine and not key[2]), None
    )


def _measured(claim: dict, groups: dict, own: tuple | None) -> Iterator[tuple]:
    """Yield name, quantities and whether the chips are the article's, for each measured machine
    or pair of machines."""
    measured = {key[:2]: group for key, group in groups.items() if key[2]}
    if not claim["other"]:
        needed = set(names_in(claim["formula"]))
        for (machine, chip), group in measured.items():
            if needed <= set(group["name"]):
                yield machine, group, own is not None and chip == own[0]
        return
    other = _printed(claim["other"], groups)
    for (machine, chip), (second, second_chip) in itertools.permutations(measured, 2):
        if own and other and (chip, second_chip) == (own[0], other[0]):
            pair = (chip, measured[machine, chip]), (second_chip, measured[second, second_chip])
            yield f"{machine} / {second}", _joined(claim, *pair), True


def _joined(claim: dict, own: tuple, other: tuple | None) -> pandas.DataFrame:
    """Return a machine's quantities, and the second machine's with `other_` before their names."""
    if not claim["other"] or other is None:
        return own[1]
    return pandas.concat(
        [own[1], other[1].assign(name="other_" + other[1]["name"])], ignore_index=True
    )


def _line(claim: dict, machine: str, quantities: pandas.DataFrame, is_same_chip: bool) -> dict:
    used = quantities[quantities["name"].isin(names_in(claim["formula"]))].sort_values("name")
    sources = sorted(set(used["source"] if len(used) else quantities["source"]))
    line = _head(claim, machine) | {"source": ", ".join(sources)}
    if twice := sorted(set(used.loc[used["name"].duplicated(), "name"])):
        return line | {"verdict": UNDECIDED, "reason": f"more than one value of {', '.join(twice)}"}
    result = recompute(claim["formula"], quantities)
    if result is None:
        return line | {"verdict": NOT_MEASURED}
    line |= result.columns("value")
    values = {each["name"]: wording.four_digits(each["value"]) for each in used.to_dict("records")}
    substituted = QUANTITY.sub(lambda name: values[name[0]], claim["formula"])
    if len(values) > 1 or substituted not in values.values():  # else there is nothing to compute
        line |= {"arithmetic": f"{substituted} = {wording.four_digits(result.value)}"}
    if not is_same_chip:
        return line | {"verdict": NOT_COMPARABLE}
    if "measured" in sources or COUNTED in sources:
        noted = used.reindex(columns=["name", "note"]).dropna().to_dict("records")
        reasons = [f"{each['name']}: {each['note']}" for each in noted if each["note"]]
        claimed = (
            claim["high"] - claim["low"] + 2 * claim["tolerance"]
            if claim["relation"] == "equal"
            else math.inf
        )
        if result.kind == intervals.RANGE:
            reasons.append(RANGE_REASON)
        elif result.high - result.low > claimed:
            reasons.append(WIDE_REASON)
        return line | {"verdict": judge(claim, result), "reason": "; ".join(reasons)}
    reason = DERIVED_REASON if sources == ["derived"] else ""
    return line | {"verdict": judge_arithmetic(claim, result.low, result.high), "reason": reason}


def _head(claim: dict, machine: str = "") -> dict:
    low, high, unit = f"{claim['low']:,.8g}", f"{claim['high']:,.8g}", claim["unit"]
    ranges = {
        "equal": f"{low} to {high} {unit}" if low != high else f"{low} {unit}",
        "at_least": f"at least {low} {unit}",
    }
    published = ranges.get(claim["relation"], EVENT).strip()
    if claim["tolerance"] > 0:
        published += f"; a measurement may be {claim['tolerance']:g} farther off"
    machine = machine or " / ".join(filter(None, (claim["machine"], claim["other"])))
    return {
        "id": claim["id"],
        "sentence": claim["sentence"],
        "published": published,
        "machine": machine,
    }
