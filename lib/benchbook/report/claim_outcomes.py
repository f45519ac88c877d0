"""The outcome of each published claim (confirmed, contradicted, undecided or out of reach) and
its reason."""

import pandas

from benchbook import studies
from benchbook.judging import wording
from benchbook.record import articles, claims
from benchbook.record.naming import Names, with_article
from benchbook.report import tables
from benchbook.studies.results import quantities
from benchbook.studies.results.evidence import Evidence, cached

OUT_OF_REACH = "out of reach"
OUTCOMES = (claims.CONFIRMED, claims.CONTRADICTED, claims.UNDECIDED, OUT_OF_REACH)
ARITHMETIC = (claims.HOLDS, claims.FAILS, claims.NOT_RECOMPUTED)
_COLUMNS = "id study article link sentence published unit outcome why arithmetic holds"
COLUMNS = _COLUMNS.split()


@cached
def judged(evidence: Evidence) -> pandas.DataFrame:
    """Return `claims.table` for all studies."""
    printed = claims.read()
    return claims.table(printed, quantities.gather(evidence, studies.every().values()))


def table(lines: pandas.DataFrame, names: Names) -> pandas.DataFrame:
    """Return one line for each claim, in the order of OUTCOMES.

    Args:
        lines: from `judged`.
        names: of machines.

    Returns:
        Columns: COLUMNS. link and unit: empty if there is none. outcome: one of OUTCOMES. why: a
        sentence. arithmetic: the formula with the article's own figures, else with the measured
        ones. holds: the result of the article's figures, one of ARITHMETIC, empty without
        figures.
    """
    printed = claims.read().set_index("id")[["study", "article", "unit"]]
    counts = articles.rows().groupby("machine")["device_count"].max().dropna().to_dict()
    lines = lines.groupby("id", sort=False)
    told = [
        _outcome(own.to_dict("records"), names, counts, printed["unit"].get(name, ""))
        for name, own in lines
    ]
    told = pandas.DataFrame(
        told, columns=[name for name in COLUMNS if name not in (*printed, "link")]
    )
    told = told.join(printed, on="id").assign(link=lambda own: own["article"].map(articles.links()))
    told = told.fillna({"unit": "", "link": ""})[COLUMNS]
    return told.sort_values(
        "outcome", key=lambda own: own.map(OUTCOMES.index), kind="stable", ignore_index=True
    )


def _outcome(lines: list[dict], names: Names, counts: dict[str, int], unit: str) -> dict:
    """Return the line of one claim, from its lines of `judged`; `counts` has the devices of each
    article's machine."""
    deciding = [line for line in lines if line["verdict"] in OUTCOMES]
    verdicts = {line["verdict"] for line in deciding}
    printed = [
        line["machine"]
        for line in lines
        if line["source"] != "measured" and isinstance(line["machine"], str)
    ]
    first = next(filter(None, printed), "")
    chips = {name: names.chip(name) for name in first.split(" / ") if name}
    needed = [
        f"{counts[name]} {chip}" if counts.get(name, 1) > 1 else with_article(chip)
        for name, chip in chips.items()
    ]
    if deciding:
        counted = [claims.COUNTED in str(line["source"]) for line in deciding]
        machines = [
            " and ".join(map(names.machine, str(line["machine"]).split(" / "))) for line in deciding
        ]
        by = [
            "Counted" if own else f"Measured here on {name}"
            for own, name in zip(counted, machines, strict=True)
        ]
        bounds = [
            f"{_bounds(line)} {unit}".rstrip() if line["value"] == line["value"] else ""
            for line in deciding
        ]
        reasons = [
            line["reason"] if line["verdict"] == claims.UNDECIDED else "" for line in deciding
        ]
        bounds = ["; ".join(filter(None, pair)) for pair in zip(bounds, reasons, strict=True)]
        results = [f"{who}: {what}".strip() for who, what in zip(by, bounds, strict=True)]
        why = wording.sentence("; ".join(results))
    elif any(line["verdict"] == claims.NOT_COMPARABLE for line in lines):
        why = "Measured, but not on the article's chip."
    elif unjudged := [
        line["reason"] for line in lines if line["source"] == "measured" and line["reason"]
    ]:
        why = wording.sentence(unjudged[0])
    else:
        why = (
            f"Needs {wording.joined(list(dict.fromkeys(needed)))}."
            if needed
            else "Not measured here."
        )
    sums = [line["arithmetic"] for line in lines if isinstance(line.get("arithmetic"), str)]
    return {
        **{name: lines[0][name] for name in ("id", "sentence", "published")},
        "outcome": OUT_OF_REACH
        if not verdicts
        else verdicts.pop()
        if len(verdicts) == 1
        else claims.UNDECIDED,
        "why": why,
        "arithmetic": next(iter(sums), ""),
        "holds": next((line["verdict"] for line in lines if line["verdict"] in ARITHMETIC), ""),
    }


def _bounds(line: dict) -> str:
    value, low, high = (tables.text(line[name]) for name in ("value", "low", "high"))
    return value if low == high else f"{value} ({low} to {high})"
