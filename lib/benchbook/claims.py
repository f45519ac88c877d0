"""Claims of published articles: recomputed from published rows, and held against measured ones.

A claim's formula is arithmetic over quantities of a machine, such as `cpu_seconds / accelerator_seconds`; those of the
second machine, where a claim compares two, begin with `other_`.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pandas

NOT_MEASURED = "not measured here"
NOT_RECOMPUTED = "not recomputed"
RELATIONS = ("equal", "at_least", "event")
TEXTS = ("machine", "other", "reason", "unit")


def read(path: Path) -> pandas.DataFrame:
    """Return the claims.

    Columns: id, study, article, sentence, machine, other (the machine it is compared with), formula, low, high, unit,
    relation (equal: within the range; at_least: low or more; event: it happened, which is 1), reason (why it cannot be
    recomputed from published rows; empty where it can).

    Raises:
        ValueError: an unknown relation, or bounds that are missing or in the wrong order.
    """
    claims = pandas.read_csv(path, dtype=dict.fromkeys(TEXTS, "str"))
    claims = claims.fillna({name: "" for name in TEXTS if name in claims})
    ordered = (claims["low"] <= claims["high"]) | (claims["relation"] != "equal")
    wrong = claims[~claims["relation"].isin(RELATIONS) | ~ordered | claims["low"].isna()]
    if len(wrong):
        raise ValueError(
            f"{path.name}: claim {wrong['id'].iloc[0]}: allowed are relation {', '.join(RELATIONS)}, low <= high"
        )
    return claims


def recompute(formula: str, quantities: pandas.DataFrame) -> tuple[float, float, float] | None:
    """Return a formula's value with its lowest and highest, over all corners of its quantities' bounds.

    Args:
        formula: arithmetic over names.
        quantities: one machine's, with columns name, value, low, high.

    Returns:
        None if a name of the formula is not among the quantities.
    """
    known = {line["name"]: line for line in quantities.to_dict("records")}
    names = names_in(formula)
    if not set(names) <= set(known):
        return None
    value = _evaluate(formula, {name: known[name]["value"] for name in names})
    corners = itertools.product(*((known[name]["low"], known[name]["high"]) for name in names))
    values = [_evaluate(formula, dict(zip(names, corner, strict=True))) for corner in corners]
    return value, min(values), max(values)


def names_in(formula: str) -> list[str]:
    """Return the quantities that a formula names."""
    return sorted(set(re.findall(r"\b[a-z_]\w*", formula)))


def judge(claim: dict, low: float, high: float) -> str:
    """Return `confirmed` if a recomputed range meets the claim's, else `contradicted`."""
    below = claim["relation"] == "equal" and low > claim["high"]
    return "contradicted" if below or high < claim["low"] else "confirmed"


def table(claims: pandas.DataFrame, quantities: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per claim and machine.

    Args:
        claims: from `read`.
        quantities: columns machine, chip, source, name, value, low, high, for all studies claimed about.

    Returns:
        Columns: id, sentence, published (the claimed range), machine, source, value, low, high, verdict, reason. The
        article's own machine comes first. A measured machine of another chip is `not comparable`; of a claim that
        compares two machines, pairs of the same two chips are shown. Machines that measured no such thing are not.
    """
    lines = []
    groups = _groups(quantities)
    for claim in claims.to_dict("records"):
        own = _printed(claim["machine"], groups)
        if claim["reason"]:
            head = _head(claim) | {"machine": _names(claim), "source": "published", "verdict": NOT_RECOMPUTED}
            lines.append(head | {"reason": claim["reason"]})
        elif own:
            lines.append(_line(claim, _names(claim), _joined(claim, own, _printed(claim["other"], groups)), True))
        measured = [_line(claim, *case) for case in _measured(claim, groups, own)]
        lines += [line for line in measured if line["verdict"] != NOT_MEASURED] or [
            _head(claim) | {"machine": "", "source": "measured", "verdict": NOT_MEASURED}
        ]
    columns = ["id", "sentence", "published", "machine", "source", "value", "low", "high", "verdict", "reason"]
    return pandas.DataFrame(lines, columns=columns)


def _groups(quantities: pandas.DataFrame) -> dict[tuple, pandas.DataFrame]:
    """Return the quantities by machine, chip and whether they were measured here."""
    measured = quantities["source"] == "measured"
    keys = ["machine", "chip", measured.rename("measured")]
    return dict(iter(quantities.groupby(keys, dropna=False, sort=True)))


def _printed(machine: str, groups: dict) -> tuple | None:
    """Return the chip and quantities that an article printed of a machine."""
    return next(((key[1], group) for key, group in groups.items() if key[0] == machine and not key[2]), None)


def _measured(claim: dict, groups: dict, own: tuple | None) -> Iterator[tuple]:
    """Yield name, quantities and whether the chips are the article's, for every measured machine, or pair of them."""
    measured = {key[:2]: group for key, group in groups.items() if key[2]}
    if not claim["other"]:
        for (machine, chip), group in measured.items():
            yield machine, group, own is not None and chip == own[0]
        return
    other = _printed(claim["other"], groups)
    for (machine, chip), (second, second_chip) in itertools.permutations(measured, 2):
        if own and other and (chip, second_chip) == (own[0], other[0]):
            pair = (chip, measured[machine, chip]), (second_chip, measured[second, second_chip])
            yield f"{machine} / {second}", _joined(claim, *pair), True


def _joined(claim: dict, own: tuple, other: tuple | None) -> pandas.DataFrame:
    """Return a machine's quantities, with the second machine's as `other_`."""
    if not claim["other"] or other is None:
        return own[1]
    return pandas.concat([own[1], other[1].assign(name="other_" + other[1]["name"])], ignore_index=True)


def _line(claim: dict, machine: str, quantities: pandas.DataFrame, alike: bool) -> dict:
    used = quantities[quantities["name"].isin(names_in(claim["formula"]))]
    sources = used["source"] if len(used) else quantities["source"]
    line = _head(claim) | {"machine": machine, "source": ", ".join(sorted(set(sources)))}
    found = recompute(claim["formula"], quantities)
    if found is None:
        return line | {"verdict": NOT_MEASURED}
    value, low, high = found
    verdict = judge(claim, low, high) if alike else "not comparable (another chip)"
    return line | {"value": value, "low": low, "high": high, "verdict": verdict}


def _names(claim: dict) -> str:
    return f"{claim['machine']} / {claim['other']}" if claim["other"] else claim["machine"]


def _head(claim: dict) -> dict:
    low, unit = f"{claim['low']:.8g}", claim["unit"]
    ranges = {"equal": f"{low} to {claim['high']:.8g} {unit}", "at_least": f"at least {low} {unit}"}
    published = ranges.get(claim["relation"], "that it happens")
    return {"id": claim["id"], "sentence": claim["sentence"], "published": published}


def _evaluate(formula: str, values: dict) -> float:
    return float(pandas.eval(formula, local_dict=values, global_dict={}, engine="python"))
