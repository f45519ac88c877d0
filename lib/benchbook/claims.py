"""Claims of published articles: recomputed from published rows, and held against measured ones.

A claim's formula is arithmetic over quantities of one machine, such as `cpu_seconds / accelerator_seconds`.
"""

import itertools
from pathlib import Path

import pandas

NOT_MEASURED = "not measured here"


def read(path: Path) -> pandas.DataFrame:
    """Return the claims: id, study, article, sentence, machine, formula, low, high, unit, relation.

    Raises:
        ValueError: a relation other than equal or at_least, or bounds in the wrong order.
    """
    claims = pandas.read_csv(path)
    wrong = claims[~claims["relation"].isin(["equal", "at_least"]) | (claims["low"] > claims["high"])]
    if len(wrong):
        raise ValueError(
            f"{path.name}: claim {wrong['id'].iloc[0]}: allowed are relation equal or at_least, low <= high"
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
    names = [name for name in known if name in formula]
    try:
        value = _evaluate(formula, {name: known[name]["value"] for name in names})
    except pandas.errors.UndefinedVariableError:
        return None
    corners = itertools.product(*((known[name]["low"], known[name]["high"]) for name in names))
    values = [_evaluate(formula, dict(zip(names, corner, strict=True))) for corner in corners]
    return value, min(values), max(values)


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
        Columns: id, sentence, published (the claimed range), machine, source, value, low, high, verdict. The
        article's own machine comes first. A measured machine of another chip is `not comparable`.
    """
    lines = []
    for claim in claims.to_dict("records"):
        groups = dict(iter(quantities.groupby(["machine", "chip", "source"], dropna=False, sort=True)))
        measured = [key for key in groups if key[2] == "measured"]
        own = next((key for key in groups if key[0] == claim["machine"] and key not in measured), None)
        lines += [_line(claim, key, groups[key], own) for key in ([own] if own else []) + measured]
        if not measured:
            lines.append(_head(claim) | {"machine": "", "source": "measured", "verdict": NOT_MEASURED})
    columns = ["id", "sentence", "published", "machine", "source", "value", "low", "high", "verdict"]
    return pandas.DataFrame(lines, columns=columns)


def _line(claim: dict, key: tuple, quantities: pandas.DataFrame, own: tuple | None) -> dict:
    machine, chip, source = key
    line = _head(claim) | {"machine": machine, "source": source}
    found = recompute(claim["formula"], quantities)
    if found is None:
        return line | {"verdict": NOT_MEASURED}
    value, low, high = found
    alike = own is not None and chip == own[1]
    verdict = judge(claim, low, high) if alike else "not comparable (another chip)"
    return line | {"value": value, "low": low, "high": high, "verdict": verdict}


def _head(claim: dict) -> dict:
    published = f"{claim['low']:g} to {claim['high']:g} {claim['unit']}"
    return {"id": claim["id"], "sentence": claim["sentence"], "published": published}


def _evaluate(formula: str, values: dict) -> float:
    return float(pandas.eval(formula, local_dict=values, global_dict={}, engine="python"))
