"""The claims as a picture: confirmed, contradicted, undecided or out of reach, each with its sentence."""

import textwrap

import pandas
from matplotlib.axes import Axes

from benchbook import studies
from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import claims
from benchbook.record.naming import Names, with_article
from benchbook.studies import figures, quantities
from benchbook.studies.study import Chart, Drawing, Evidence, once

OUT_OF_REACH = "out of reach"
OUTCOMES = (claims.CONFIRMED, claims.CONTRADICTED, claims.UNDECIDED, OUT_OF_REACH)
# Marker and colour of each outcome; colours of Okabe and Ito, and no two outcomes share a marker.
LOOKS = {
    claims.CONFIRMED: ("o", "#009E73"),
    claims.CONTRADICTED: ("X", "#D55E00"),
    claims.UNDECIDED: ("D", "#E69F00"),
    OUT_OF_REACH: ("s", "#999999"),
}
MEANS = {
    claims.CONFIRMED: "a measurement, or a count of the network, agrees",
    claims.CONTRADICTED: "a measurement, or a count of the network, disagrees",
    claims.UNDECIDED: "measured, but not closely enough, or with different results",
    OUT_OF_REACH: "nobody measured it here on the article's chip",
}
WIDTH, LETTERS, LINE = 10.0, 145, 0.19  # inches, letters of a line, inches of a line


@once
def judged(evidence: Evidence) -> pandas.DataFrame:
    """Return `claims.table` of all studies."""
    printed = claims.read(layout.published() / "claims.csv")
    return claims.table(printed, quantities.gather(evidence, studies.every().values()))


def outcomes(table: pandas.DataFrame, names: Names) -> pandas.DataFrame:
    """Return one line for each claim: what is to be made of it.

    Args:
        table: from `claims.table`.
        names: of machines.

    Returns:
        Columns: id, sentence, published, outcome (of OUTCOMES), why (a sentence), arithmetic (what the article's own
        figures give: `claims.HOLDS`, `claims.FAILS`, `claims.NOT_RECOMPUTED`; empty where it has none). Those that are
        decided come first.
    """
    groups = {}
    for line in table.to_dict("records"):
        groups.setdefault(line["id"], []).append(line)
    columns = ["id", "sentence", "published", "outcome", "why", "arithmetic"]
    ranked = pandas.DataFrame([_outcome(lines, names) for lines in groups.values()], columns=columns)
    return ranked.sort_values("outcome", key=lambda own: own.map(OUTCOMES.index), kind="stable", ignore_index=True)


def draw(evidence: Evidence) -> Drawing:
    """Draw a bar of how many claims ended how, and every claim below it with its mark."""
    table = outcomes(judged(evidence), evidence.names)
    blocks = [_block(outcome, table[table["outcome"] == outcome]) for outcome in OUTCOMES]
    written = [line for block in blocks for line in block]
    with figures.style():
        figure, (bar, text) = figures.canvas(
            1.6 + LINE * len(written), WIDTH, panels=1, nrows=2, height_ratios=[0.5, max(1.0, LINE * len(written))]
        )
        _draw_counts(bar, table)
        bar.set_title(title(table))
        _draw_sentences(text, written)
    return Drawing.titled(figure, table, "A mark and the sentence of each claim, by what is to be made of it")


def title(table: pandas.DataFrame) -> str:
    """Return how many claims are decided.

    Args:
        table: from `outcomes`.
    """
    counts = table["outcome"].value_counts()
    decided = [f"{counts[name]} {name}" for name in (claims.CONFIRMED, claims.CONTRADICTED) if counts.get(name)]
    reach = counts.get(OUT_OF_REACH, 0)
    if not decided:
        return f"None of {len(table)} published claims is decided here; {reach} are out of reach"
    return f"Of {len(table)} published claims, {wording.joined(decided)}; {reach} are out of reach"


def _outcome(lines: list[dict], names: Names) -> dict:
    """Return what is to be made of one claim, given its lines of the table, and a sentence of why."""
    deciding = [line for line in lines if line["verdict"] in OUTCOMES]
    ends = {line["verdict"] for line in deciding}
    printed = [line["machine"] for line in lines if line["source"] != "measured" and isinstance(line["machine"], str)]
    chips = dict.fromkeys(
        with_article(names.chip(name)) for name in next(filter(None, printed), "").split(" / ") if name
    )
    if deciding:
        parts = [f"{_measured_by(line, names)} {_bounds(line)}" for line in deciding]
        why = wording.sentence(f"{'; '.join(parts)}. Claimed: {deciding[0]['published']}")
    elif any(line["verdict"] == claims.NOT_COMPARABLE for line in lines):
        why = "Measured on another chip than the article's alone."
    else:
        why = f"It takes {wording.joined(list(chips))}." if chips else "Nobody measured it here."
    arithmetic = (claims.HOLDS, claims.FAILS, claims.NOT_RECOMPUTED)
    return {
        **{name: lines[0][name] for name in ("id", "sentence", "published")},
        "outcome": OUT_OF_REACH if not ends else ends.pop() if len(ends) == 1 else claims.UNDECIDED,
        "why": why,
        "arithmetic": next((line["verdict"] for line in lines if line["verdict"] in arithmetic), ""),
    }


def _measured_by(line: dict, names: Names) -> str:
    if claims.COUNTED in str(line["source"]):
        return "Counted:"
    return f"Measured on {' and '.join(map(names.machine, str(line['machine']).split(' / ')))}:"


def _bounds(line: dict) -> str:
    value, low, high = (
        f"{line[name]:,.4g}" if line[name] < 1e4 else f"{line[name]:,.0f}" for name in ("value", "low", "high")
    )
    return value if low == high else f"{value} ({low} to {high})"


def _block(outcome: str, lines: pandas.DataFrame) -> list[tuple[str, str, str]]:
    """Return what is written of one outcome: outcome, kind of line (heading, claim, more) and text."""
    if lines.empty:
        return []
    written = [(outcome, "heading", f"{outcome.capitalize()}, {len(lines)}: {MEANS[outcome]}")]
    for line in lines.to_dict("records"):
        fails = " (The article's own figures do not give it.)" if line["arithmetic"] == claims.FAILS else ""
        why = f" {line['why']}" if outcome != OUT_OF_REACH else ""
        first, *others = textwrap.wrap(f"{line['sentence']}{why}{fails}", LETTERS)
        written += [(outcome, "claim", first), *((outcome, "more", other) for other in others)]
    return [*written, (outcome, "more", "")]


def _draw_counts(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw one bar whose parts are the claims of each outcome, with their number."""
    left = 0
    for outcome in OUTCOMES:
        count = int((table["outcome"] == outcome).sum())
        axes.barh(0, count, left=left, color=LOOKS[outcome][1])
        if count:
            axes.text(left + count / 2, 0, str(count), ha="center", va="center", color="black", fontweight="bold")
        left += count
    axes.set(xlim=(0, max(1, left)), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_sentences(axes: Axes, written: list[tuple[str, str, str]]) -> None:
    """Write the claims below each other, each with the mark of its outcome."""
    for place, (outcome, kind, text) in enumerate(written):
        marker, colour = LOOKS[outcome]
        if kind != "more":
            axes.plot(0.0, place, marker, color=colour, markersize=9 if kind == "heading" else 5, clip_on=False)
        weight = "bold" if kind == "heading" else "normal"
        axes.text(0.015, place, text, va="center", fontsize=8, fontweight=weight, parse_math=False)
    axes.set(xlim=(0, 1), ylim=(max(1, len(written)) - 0.5, -0.5))
    axes.axis("off")


CHART = Chart(
    "claims-outcomes",
    "Do the published claims hold?",
    "A claim is decided where its article's chip, or its network, was measured here closely enough.",
    draw,
)
