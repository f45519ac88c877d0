"""Sentences made from tables: titles of charts, and the finding of each study, which begins with
its headline."""

import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas

from benchbook.judging import confirmation, intervals, verdicts, wording
from benchbook.judging.intervals import Interval
from benchbook.machine import libraries
from benchbook.record import naming, prices
from benchbook.rows import records
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.results.tables import (
    PREDICTED,
    are_measured,
    bounds_kind,
    is_measured,
    machines_of,
)

if TYPE_CHECKING:
    from benchbook.studies.study import Study

DOUBTS = (verdicts.UNSTABLE.capitalize(), verdicts.UNPROVEN.capitalize())


@dataclass(frozen=True)
class Sentence:
    """A sentence made from a table: on its best line, or on the span of a column.

    Measured lines are used; if there are none, published lines, and the sentence ends in ",
    published". A sentence on a point that is unstable or unproven begins with that word, and one
    without a point that trained says what failed.

    Attributes:
        text: a format string with {value}, {place} (machine and device of the best line), and
        the line's columns.
        none: the sentence without a value.
        column: the column of {value}; columns low, high and interval are its bounds.
        show: formats a value.
        best: the line to report, `most` or `least`; empty: the span of all lines.
        where: a query for `pandas.DataFrame.query` that selects lines.
        work: for a column of rates: so much work, whose time is the value; 0: the column's own
        value.
        more: from the line to what follows it in the sentence, such as its cost.
        equal: the value that means no difference, such as 1 for a ratio. A line whose interval
        holds it, or that has a
            range instead of an interval, supports no sentence.
        undecided: the sentence if no line's interval leaves out `equal`.
        measured: ends a sentence on measured lines, such as ", at the measured rate".
    """

    text: str
    none: str
    column: str
    show: Callable[[float], str] = wording.number
    best: str = ""
    where: str = ""
    work: float = 0
    more: Callable[[dict], str] = lambda line: ""
    equal: float | None = None
    undecided: str = ""
    measured: str = ""

    def lines(self, table: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines that trained and have a value: the measured ones, or without any the
        published ones."""
        own = table.query(self.where, engine="python") if self.where and len(table) else table
        own = own[own[self.column].notna()]
        own = own[own["status"].isin(records.TRAINED)] if "status" in own else own
        measured = own[are_measured(own)]
        return measured if len(measured) else own

    def line(self, table: pandas.DataFrame) -> dict | None:
        """Return the best line, from the stable, proven and confirmed ones if there are any;
        None without a line."""
        lines = self._decided(self.lines(table))
        if not self.best or lines.empty:
            return None
        lines = lines.reindex(columns=[*dict.fromkeys([*lines, "variant"])])
        for sound in (
            ~_has(lines, verdicts.is_unstable),
            ~_has(lines, verdicts.is_unproven),
            lines["variant"].ne(confirmation.UNCONFIRMED),
        ):
            own = sound[lines.index]
            lines = lines[own] if own.any() else lines
        values = lines[self.column].astype(float)
        return lines.loc[values.idxmin() if self.best == "least" else values.idxmax()].to_dict()

    def __call__(self, table: pandas.DataFrame, names: naming.Names) -> str:
        """Return the sentence, without its full stop; the table has the columns named in `text`."""
        every = self.lines(table)
        lines, line, failed = self._decided(every), self.line(table), _failures(table)
        if lines.empty:
            if self.equal is not None and _has(every, verdicts.is_unstable).any():
                return f"{failed}Not decided, because a point of the comparison is unstable"
            return failed + (self.undecided if len(every) else self.none)
        values = dict(line or {})
        if "framework" in values:
            values["framework"] = libraries.WORDS.get(values["framework"])
        if line and "machine" in line:
            values |= {"place": names.in_sentence(line)}
        numbers = lines[self.column].astype(float)
        value = self.show(self.interval(line).value) if line else wording.span(numbers, self.show)
        used = pandas.DataFrame([line]) if line else lines
        doubts = (
            (verdicts.UNSTABLE, verdicts.is_unstable),
            (verdicts.UNPROVEN, verdicts.is_unproven),
        )
        doubt = next((word for word, is_so in doubts if _has(used, is_so).all()), "")
        causes = wording.causes(values.get("verdict"), doubt)
        first = (
            doubt and f"{doubt.capitalize()}{f' ({wording.joined(causes)})' if causes else ''}: "
        )
        last = self.measured if is_measured(lines.iloc[0].to_dict()) else ", published"
        others = len(every) - len(lines)  # a chart draws them as well
        last += f"; undecided on {others} of {len(every)}" if others else self.more(values)
        return failed + first + self.text.format(**values | {"value": value}) + last

    def others(self, table: pandas.DataFrame) -> str:
        """Return the span over other measured machines, in what the sentence names, to end the
        title of a chart."""
        lines, line = self.lines(table), self.line(table)
        if not line or not is_measured(line) or self.equal is not None:
            return ""
        named = [name for _, name, _, _ in string.Formatter().parse(self.text) if name in lines]
        is_same = (
            lines[named].astype(str).eq(pandas.Series(line).reindex(named).astype(str)).all(axis=1)
        )
        machines = machines_of(lines[is_same])
        machines = machines[~machines.isin(machines_of(pandas.DataFrame([line])))]
        if machines.empty:
            return ""
        numbers = lines.loc[machines.index, self.column].astype(float)
        count = wording.count(machines.nunique(), "other machine")
        return (
            f"; {wording.span(self.work / numbers if self.work else numbers, self.show)} on {count}"
        )

    def _decided(self, lines: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines whose interval leaves out `equal`; a range, or an unstable point,
        decides nothing."""
        if self.equal is None or lines.empty:
            return lines
        lines = lines[~_has(lines, verdicts.is_unstable)]
        numbers = map(self.interval, lines.to_dict("records"))
        return lines[
            [
                one.kind != intervals.RANGE and not one.low <= self.equal <= one.high
                for one in numbers
            ]
        ]

    def interval(self, line: dict) -> Interval:
        """Return a line's value with its bounds; a measured value without an interval has a
        range."""
        ends = {"low": -math.inf, "high": math.inf}
        ends |= {name: line[name] for name in ends if pandas.notna(line.get(name))}
        kind = bounds_kind(line)
        kind = (
            intervals.RANGE
            if kind in (PREDICTED, intervals.RANGE)
            else line.get("interval") or intervals.ROUNDING
        )
        value, low, high = line[self.column], ends["low"], ends["high"]
        if self.work:
            value, low, high = (self.work / number for number in (value, high, low))
        return Interval(value, low, high, kind)


def money(seconds: float, per_hour: float | None = None) -> str:
    """Return what so much time costs, in words; without a known price at one dollar an hour."""
    per_hour = per_hour if pandas.notna(per_hour) and per_hour else 1.0
    return f"; {wording.price(prices.rent(seconds, per_hour))} at {wording.price(per_hour)} an hour"


def finding(study: "Study", evidence: Evidence, measured: bool = False) -> list[str]:
    """Return the study's headline, if there is one, and the title of the next chart with another
    value; see `spoken`.

    Args:
        study, evidence: what to report.
        measured: leave out what was only published.
    """
    said = []
    for chart in sorted(study.charts, key=lambda chart: chart is not study.lead):
        title = study.headline.sentence if chart is study.lead else chart.title
        lines = chart.drawn(chart.table(evidence), evidence)
        is_sentence = isinstance(title, Sentence)
        known = title.lines(lines) if is_sentence else lines
        if said and chart.value == study.headline.quantity:  # which the headline has said
            continue
        if (said or measured) and is_sentence and known.empty:
            continue
        if measured and len(known) and not is_measured(known.iloc[0].to_dict()):
            continue
        text = (
            spoken(title, lines, evidence, study) if is_sentence else title(lines, evidence.names)
        )
        devices = set(lines.loc[are_measured(lines), "device"])
        if study.headline.by_accelerator and chart is study.lead and devices == {"cpu"}:
            text = (
                text if text.startswith(DOUBTS) else f"Not decided (needs a GPU or a TPU): {text}"
            )
        said.append(text)
    return list(map(wording.sentence, filter(None, said[:2])))


def spoken(title: Sentence, lines: pandas.DataFrame, evidence: Evidence, study: "Study") -> str:
    """Return a sentence on measured lines with the bounds of its number, and the reasons for
    caution, in brackets."""
    line = title.line(lines)
    if not line or not is_measured(line):
        return title(lines, evidence.names)
    is_named = not study.dataset or verdicts.has(
        line.get("verdict"), "replaced"
    )  # then `hedged` names it
    number, further = title.interval(line), [] if is_named else [stand_in(line, study.dataset)]
    if math.isfinite(number.low) and title.show(number.low) != title.show(number.high):
        further.insert(0, wording.bounds(number.low, number.high, number.kind, title.show))
    point = evidence.point(line["machine"], study.name, line.get("point"))
    point |= {"interval": line["interval"]} if isinstance(line.get("pooled"), list) else {}
    text = title(lines, evidence.names)
    return text + wording.hedged(point, *further, said=text)


def stand_in(line: dict, dataset: str) -> str:
    """Return a hedge that names a line's data set in place of the study's; empty if it is the
    study's."""
    other = line.get("dataset")
    if pandas.isna(other) or other == dataset:
        return ""
    return f"{naming.dataset(other)} in place of {naming.dataset(dataset)}"


def _failures(table: pandas.DataFrame) -> str:
    """Return how all measured lines failed, to begin a sentence; empty if one trained or none
    was measured."""
    statuses = set(table[are_measured(table)].get("status", pandas.Series()).dropna())
    words = ", ".join(sorted(statuses)).replace("_", " ")
    return "" if not statuses or statuses & set(records.TRAINED) else f"{words.capitalize()} here: "


def _has(lines: pandas.DataFrame, is_so: Callable[[object], bool]) -> pandas.Series:
    """Return whether each line's verdict is so."""
    return (
        lines.get("verdict", pandas.Series(None, lines.index, dtype=object)).map(is_so).astype(bool)
    )
