"""Sentences made from tables: titles of charts, and the finding of each study, which is its first charts' titles."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas

from benchbook.judging import intervals, verdicts, wording
from benchbook.judging.intervals import Interval
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.rows import records
from benchbook.studies.figures import PREDICTED, bounds_kind, is_measured
from benchbook.studies.study import Evidence, Study

# Machines are compared in points that agree in these columns, as far as a table has them.
SAME = ("variant", "loader", "framework", "precision", "dataset", "model", "image_size", "batch_size", "layers")
_STABILITY = ["num_processes", "interval", "verdict", "variant", "status"]


def table(evidence: Evidence, studies: Iterable[Study]) -> pandas.DataFrame:
    """Return the finding of each study, in columns study, title and finding (at most two sentences)."""
    lines = [(study.name, study.title, finding(study, evidence)) for study in studies]
    return pandas.DataFrame(lines, columns=["study", "title", "finding"])


@dataclass(frozen=True)
class Sentence:
    """A sentence made from a table: on its best line, or on the span of a column.

    Measured lines are used; if there are none, published lines, and the sentence ends in ", published". A sentence on
    a point that is unstable or unproven begins with that word, and one without a point that trained says what failed.

    Attributes:
        text: a format string with {value}, {place} (machine and device of the best line), and the line's columns.
        none: the sentence without a value.
        column: the column of {value}; columns low, high and interval are its bounds.
        show: formats a value.
        best: the line to report, `most` or `least`; empty: the span of all lines.
        where: a query for `pandas.DataFrame.query` that selects lines.
        equal: the value that means no difference, such as 1 for a ratio. A line whose interval holds it, or that has a
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
    equal: float | None = None
    undecided: str = ""
    measured: str = ""

    def lines(self, table: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines that trained and have a value: the measured ones, or without any the published ones."""
        own = table.query(self.where, engine="python") if self.where and len(table) else table
        own = own[own[self.column].notna()]
        own = own[own["status"].isin(records.TRAINED)] if "status" in own else own
        measured = own[[is_measured(line) for line in own.to_dict("records")]]
        return measured if len(measured) else own

    def line(self, table: pandas.DataFrame) -> dict | None:
        """Return the best line, from those neither unproven nor unstable if there are any; None without a line."""
        lines = self._decided(self.lines(table))
        if not self.best or lines.empty:
            return None
        for is_so in (verdicts.is_unproven, verdicts.is_unstable):
            sound = ~_has(lines, is_so)
            lines = lines[sound] if sound.any() else lines
        values = lines[self.column].astype(float)
        return lines.loc[values.idxmin() if self.best == "least" else values.idxmax()].to_dict()

    def __call__(self, table: pandas.DataFrame, names: naming.Names, place: str = "") -> str:
        """Return the sentence, without its full stop.

        Args:
            table: with the columns named in `text`.
            names: of machines.
            place: replaces `Names.in_sentence` of the best line.
        """
        every = self.lines(table)
        lines, line, failed = self._decided(every), self.line(table), _failures(table)
        if lines.empty:
            return failed + (self.undecided if len(every) else self.none)
        values = dict(line or {})
        if "framework" in values:
            values["framework"] = libraries.WORDS.get(values["framework"])
        if line and "machine" in line:
            values |= {"place": place or names.in_sentence(line)}
        value = self.show(line[self.column]) if line else wording.span(lines[self.column].astype(float), self.show)
        used = pandas.DataFrame([line]) if line else lines
        doubts = (verdicts.UNSTABLE, verdicts.is_unstable), (verdicts.UNPROVEN, verdicts.is_unproven)
        first = next((f"{word.capitalize()}: " for word, is_so in doubts if _has(used, is_so).all()), "")
        last = self.measured if is_measured(lines.iloc[0].to_dict()) else ", published"
        return failed + first + self.text.format(**values | {"value": value}) + last

    def _decided(self, lines: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines whose interval leaves out `equal`."""
        if self.equal is None or lines.empty:
            return lines
        return lines[[decides(_interval(line, self.column), self.equal) for line in lines.to_dict("records")]]


def decides(number: Interval, equal: float = 1.0) -> bool:
    """Return whether a number differs from `equal` by more than chance; a range of one process decides nothing."""
    return number.kind != intervals.RANGE and not number.low <= equal <= number.high


def finding(study: Study, evidence: Evidence, measured: bool = False) -> str:
    """Return the title of the study's first chart, see `spoken`, and that of the next chart that has a value.

    Args:
        study, evidence: what to report.
        measured: leave out what was only published.
    """
    said = []
    for chart in (chart for chart in study.charts if hasattr(chart, "title")):
        lines = chart.drawn(chart.table(evidence), evidence)
        is_sentence = isinstance(chart.title, Sentence)
        known = chart.title.lines(lines) if is_sentence else lines
        if (said or measured) and is_sentence and known.empty:
            continue
        if measured and len(known) and not is_measured(known.iloc[0].to_dict()):
            continue
        is_first = is_sentence and not said
        said.append(spoken(chart.title, lines, evidence, study) if is_first else chart.title(lines, evidence.names))
    return " ".join(map(wording.sentence, filter(None, said[:2])))


def spoken(title: Sentence, lines: pandas.DataFrame, evidence: Evidence, study: Study) -> str:
    """Return a sentence on measured lines with the bounds of its number, and the reasons for caution, in brackets."""
    line = title.line(lines)
    if not line or not is_measured(line):
        return title(lines, evidence.names)
    is_named = not study.dataset or verdicts.has(line.get("verdict"), "replaced")  # then `hedged` names it
    number, further = _interval(line, title.column), [] if is_named else [stand_in(line, study.dataset)]
    if math.isfinite(number.low) and title.show(number.low) != title.show(number.high):
        further.insert(0, wording.bounds(number.low, number.high, number.kind, title.show))
    hedges = hedged(evidence, [line], *further)
    text = title(lines, evidence.names, place(evidence, line, lines, title))
    return (text.replace(", not confirmed", "") if "not confirmed" in hedges else text) + hedges


def place(evidence: Evidence, line: dict, others: pandas.DataFrame, title: Sentence) -> str:
    """Return where a line was measured, as a phrase; and that it is the fastest of several machines, if it is.

    It is if the ratio to the best line of each other machine has an interval that leaves out 1. Machines are compared
    in lines that agree in the columns SAME.
    """
    same = [name for name in SAME if name in others and pandas.notna(line[name])]
    alike = title.lines(others)
    alike = alike[(alike[same] == pandas.Series(line)[same]).all(axis=1) & alike["machine"].ne(line["machine"])]
    own, sign = _interval(line, title.column), -1 if title.best == "least" else 1
    ratios = [intervals.divide(own, _interval(other, title.column)) for other in alike.to_dict("records")]
    fastest = ratios and all(decides(ratio) and (ratio.value - 1) * sign > 0 for ratio in ratios)
    count = 1 + alike["machine"].nunique()
    return evidence.names.in_sentence(line) + (f", the fastest of {count} machines" if fastest else "")


def hedged(evidence: Evidence, lines: list[dict], *further: str) -> str:
    """Return the reasons for caution about some points, in brackets; see `wording.hedged`.

    Args:
        evidence: its summary has the number of processes and the verdict of each point.
        lines: of any table, with machine and point.
        further: hedges that come first; empty ones are left out.
    """
    summary = evidence.summary.drop_duplicates(["machine", "point"]).set_index(["machine", "point"])[_STABILITY]
    points = [(line["machine"], line.get("point")) for line in lines]
    return wording.hedged([summary.loc[point].to_dict() for point in points if point in summary.index], *further)


def stand_in(line: dict, dataset: str) -> str:
    """Return a hedge that names a line's data set in place of the study's; empty if it is the study's."""
    other = line.get("dataset")
    if pandas.isna(other) or other == dataset:
        return ""
    return f"{naming.dataset(other)} in place of {naming.dataset(dataset)}"


def _failures(table: pandas.DataFrame) -> str:
    """Return how all measured lines failed, to begin a sentence; empty if one trained or none was measured."""
    own = [line for line in table.to_dict("records") if is_measured(line)]
    statuses = {line["status"] for line in own if isinstance(line.get("status"), str)}
    words = ", ".join(sorted(statuses)).replace("_", " ")
    return "" if not statuses or statuses & set(records.TRAINED) else f"{words.capitalize()} here: "


def _interval(line: dict, column: str) -> Interval:
    """Return a table's value with its bounds; a measured value without an interval has a range."""
    number = {"low": float("-inf"), "high": float("inf")} | {"value": line[column]}
    number |= {name: line[name] for name in ("low", "high") if pandas.notna(line.get(name))}
    kind = bounds_kind(line)
    kind = intervals.RANGE if kind in (PREDICTED, intervals.RANGE) else line.get("interval") or intervals.ROUNDING
    session = line.get("session") or line.get("machine")  # two machines are two sessions
    return Interval.from_row(number | {"kind": kind, "session": session}, "value", kind="kind")


def _has(lines: pandas.DataFrame, is_so: Callable[[object], bool]) -> pandas.Series:
    """Return whether each line's verdict is so."""
    return lines.get("verdict", pandas.Series(None, lines.index, dtype=object)).map(is_so).astype(bool)
