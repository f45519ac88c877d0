"""Answers: a number with its unit, interval, place and day, and the one sentence that says it."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas

from benchbook.judging import confirmation, intervals, statistics, verdicts, wording
from benchbook.judging.intervals import Interval
from benchbook.record import chips, naming, prices
from benchbook.rows import records
from benchbook.studies.results.evidence import SECONDS, Evidence, cached
from benchbook.studies.results.tables import PREDICTED, are_measured, is_measured

if TYPE_CHECKING:
    from benchbook.studies.study import Study

MOST_PUBLISHED, MOST_DOUBTS, MOST_WORDS = 4, 2, 32  # in a sentence


@dataclass(frozen=True)
class Answer:
    """A number that a point, a published figure or a prediction gives.

    Attributes:
        value, low, high: in the unit; bounds may be infinite.
        unit: see `wording.quantity`.
        place: its device, for a sentence.
        day: of its session; empty if it was not measured.
        doubts: in a few words each; they stand behind the number.
        differs: what its work has other than the study's article, in words.
        text: the sentence, with {number}, {bounds}, {place}, {low}, {high} and columns of the line.
        line: of the table.
    """

    value: float
    low: float
    high: float
    unit: str
    place: str
    day: str = ""
    doubts: tuple[str, ...] = ()
    differs: str = ""
    text: str = ""
    line: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def number(self) -> str:
        """Return the value with its unit; a printed one has three digits."""
        digits = 0 if is_measured(self.line) else 3
        return wording.quantity([self.value], self.unit, digits)[0]

    @property
    def bounds(self) -> str:
        """Return the bounds and the doubts in brackets; empty if there are none."""
        low, high = self._ends
        is_known = math.isfinite(self.low) and low != high
        parts = [f"{low} to {high}"] if is_known else []
        return f" ({'; '.join((*parts, *self.doubts))})" if parts or self.doubts else ""

    @property
    def _ends(self) -> list[str]:
        return wording.quantity([self.value, self.low, self.high], self.unit)[1:]

    def __str__(self) -> str:
        """Return the sentence."""
        columns = self.line | dict(zip(("low", "high"), self._ends, strict=True))
        for name in ("framework", "precision", "compiled"):
            columns[name] = naming.words(self.line, [name])
        for name in ("number", "bounds", "place"):
            columns[name] = getattr(self, name)
        said = " ".join(self.text.format(**columns).split())  # without the gaps of empty columns
        return wording.sentence(f"{said}, {self.differs}" if self.differs else said)

    @property
    def dated(self) -> str:
        """Return the sentence, and the day on which it was measured."""
        return f"{self} Measured on {self.day}." if self.day else str(self)


@dataclass(frozen=True)
class Template:
    """How a study says one quantity of a table: which line answers, and in which words.

    A measured line answers if there is one, else a published one. A steady, proven and confirmed
    line speaks before others.

    Attributes:
        text: see `Answer`; it may name columns of the line as well.
        column: of the values; columns low, high and interval are its bounds.
        unit: see `wording.quantity`.
        best: the line that answers, `most` or `least`.
        by: the column of which it has most or least; empty: the value's.
        usual: the article's settings, by column; a line's others end the sentence.
        equal: the value that means no difference, such as 1 for a ratio.
        same: the sentence where the bounds hold that value, with {low} and {high}.
    """

    text: str
    column: str
    unit: str = ""
    best: str = "most"
    by: str = ""
    usual: Mapping[str, object] = field(default_factory=dict)
    equal: float | None = None
    same: str = ""

    def lines(self, table: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines that trained and have a value, or diverged before they had one."""
        known = table[self.column].notna()
        if "status" in table:
            known |= table["status"].eq("diverged")
            known &= table["status"].isin(records.TRAINED)
        return table[known]

    def line(self, table: pandas.DataFrame) -> dict | None:
        """Return the line that answers; None without one."""
        lines = self.lines(table)
        is_own = are_measured(lines)
        lines = lines[is_own] if is_own.any() else lines
        if lines.empty:
            return None
        verdict = lines.get("verdict", pandas.Series(None, lines.index, dtype=object))
        variant, interval = (
            lines.get(name, pandas.Series("", lines.index)) for name in ("variant", "interval")
        )
        ranks = {
            "unstable": verdict.map(verdicts.is_unstable).astype(bool),
            "unproven": verdict.map(verdicts.is_unproven).astype(bool),
            "unconfirmed": variant.eq(confirmation.UNCONFIRMED),
            "a range": interval.eq(intervals.RANGE),
            "value": lines[self.by or self.column].astype(float),
        }
        order = pandas.DataFrame(ranks).sort_values(
            list(ranks), ascending=[True] * 4 + [self.best == "least"], kind="stable"
        )
        return lines.loc[order.index[0]].to_dict()

    def answer(self, table: pandas.DataFrame, evidence: Evidence, study: str = "") -> Answer | None:
        """Return the answer of a table of a study; None without a line that trained."""
        line = self.line(table)
        return None if line is None else self.of_line(line, evidence, study)

    def of_line(self, line: dict, evidence: Evidence, study: str = "") -> Answer:
        """Return the answer that one line of the table gives."""
        number = bounded(line, self.column)
        has_machine = isinstance(line.get("machine"), str)
        place = (
            evidence.names.in_sentence(line)
            if has_machine
            else naming.with_article(str(line.get("chip")))
        )
        point, day = {}, ""
        if is_measured(line):
            place = re.sub(r"^an? ", "this ", place) if evidence.own_first else place
            point = evidence.point(line.get("machine"), study, line.get("point"))
            own = evidence.counting(study)
            days = statistics.days(own[own["machine"].eq(line.get("machine"))])
            day = statistics.day(str(point.get("session", ""))) or "".join(days[-1:])
        count = None if place[:1].isdigit() else line.get("device_count")
        holds = self.equal is not None and number.low <= self.equal <= number.high
        return Answer(
            number.value,
            number.low,
            number.high,
            self.unit,
            place,
            day,
            tuple(wording.doubts(point | line)[:MOST_DOUBTS] if is_measured(line) else ()),
            naming.words(line | {"device_count": count}, self.usual, self.usual),
            self.same if holds else self.text,
            line,
        )

    def __call__(self, table: pandas.DataFrame, evidence: Evidence, study: str = "") -> str:
        """Return the sentence on a table of a study: the answer, or how it failed."""
        return str(self.answer(table, evidence, study) or wording.sentence(failures(table)))


def bounded(line: dict, column: str) -> Interval:
    """Return a line's value with its bounds; a measured one without an interval has a range."""
    value, low, high = (
        float(line[name]) if pandas.notna(line.get(name)) else missing
        for name, missing in ((column, math.nan), ("low", -math.inf), ("high", math.inf))
    )
    kind = line.get("interval")
    return Interval(value, low, high, kind if isinstance(kind, str) else intervals.RANGE)


def failures(table: pandas.DataFrame) -> str:
    """Return how all measured lines failed; empty if one trained or none was measured."""
    own = table[are_measured(table)] if "status" in table else table.iloc[:0]
    statuses = set(own["status"].dropna()) if len(own) else set()
    words = ", ".join(sorted(statuses)).replace("_", " ")
    return "" if statuses & set(records.TRAINED) else words


@cached
def of_study(study: "Study", evidence: Evidence) -> Answer | None:
    """Return the answer to a study's question; None if nothing trained."""
    lead = study.lead
    return lead.title.answer(lead.drawn(lead.table(evidence), evidence), evidence, study.name)


def of_machines(study: "Study", evidence: Evidence) -> list[Answer]:
    """Return the answer of each machine that measured a study, the best first."""
    lead, title = study.lead, study.lead.title
    lines = lead.drawn(lead.table(evidence), evidence)
    own = lines[are_measured(lines)]
    found = (title.answer(part, evidence, study.name) for _, part in own.groupby("machine"))
    sign = 1 if title.best == "least" else -1

    def rank(answer: Answer) -> tuple[bool, float]:
        value = sign * float(answer.line[title.by or title.column])
        return math.isnan(value), value

    return sorted(filter(None, found), key=rank)


def published(study: "Study", evidence: Evidence) -> str:
    """Return in a sentence the published or predicted figures that are nearest to the answer."""
    own, lead = of_study(study, evidence), study.lead
    if own is None or not is_measured(own.line):
        return ""
    lines = lead.drawn(lead.table(evidence), evidence)
    key = [name for name in ("machine", "device", "chip") if name in lines]
    lines = lines[~are_measured(lines)]
    same = [
        lines[name].astype(str).eq(str(own.line[name]))
        for name in lead.title.usual
        if name in lines
    ]
    lines = lines.assign(same=sum(same, start=pandas.Series(0, lines.index)))
    nearest = lines["same"].eq(lines.groupby(key, dropna=False)["same"].transform("max"))
    groups = [part for _, part in lines[nearest].groupby(key, dropna=False)]
    found = list(filter(None, (lead.title.answer(part, evidence, study.name) for part in groups)))
    found.sort(key=lambda one: abs(math.log(one.value / own.value)) if one.value > 0 else math.inf)
    shown = []
    for one in found[:MOST_PUBLISHED]:
        bounds = one.bounds if one.line["source"] == PREDICTED else ""
        differs = f" ({one.differs})" if one.differs else ""
        shown.append(f"{one.number}{bounds} on {one.place}{differs}")
    if not shown:
        return ""
    is_predicted = found[0].line["source"] == PREDICTED
    by = "Predicted" if is_predicted else study.article or "Published"
    while len(" ".join(shown).split()) > MOST_WORDS and len(shown) > 1:
        shown.pop()
    return wording.sentence(f"{by}: {wording.joined(shown)}")


def money(study: "Study", evidence: Evidence) -> str:
    """Return what the answer's work costs to rent, in a sentence: at the run's own price, else at
    those on record for its chip; empty if the study asks for no price or none is known."""
    own, (work, words) = of_study(study, evidence), study.priced
    if own is None or not work or not is_measured(own.line):
        return ""
    line, values = own.line, (own.value, own.low, own.high)
    time = SECONDS.get(own.unit)
    seconds = [work * time * value if time else work / value for value in values]
    stated = prices.price_of_hour(
        line["machine"], line.get("price_per_hour"), prices.on_demand(evidence.prices)
    )
    if stated > 0:
        dollars = [
            prices.rent(seconds[0], stated),
            *sorted(prices.rent(x, stated) for x in seconds[1:]),
        ]
        cost, low, high = wording.quantity(dollars, "$")
        return f"{words or 'It'} costs {cost} ({low} to {high}) at {wording.price(stated)} an hour."
    chip = evidence.names.chips.get((line["machine"], line["device"]))
    offers = prices.usual_offers(chips.canonical(chip))["usd_per_hour"] if chip else ()
    if not len(offers):
        return "No price by the hour is known (price_per_hour)." if "price_per_hour" in line else ""
    hourly = float(line.get("device_count") or 1) * offers.astype(float)
    dollars = wording.span(prices.rent(seconds[0], hourly), wording.price)
    rents = wording.span(hourly, wording.price)
    return f"{words or 'It'} costs {dollars} at the {rents} an hour that this chip is rented for."
