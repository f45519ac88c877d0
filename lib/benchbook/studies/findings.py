"""The finding of each study in at most two sentences, and the numbers behind it; all are made from rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas

from benchbook.judging import intervals, verdicts, wording
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.rows import records
from benchbook.studies.figures import view
from benchbook.studies.study import Evidence, Study

# Machines are compared in points that agree in these columns, as far as a table has them.
SAME = ("variant", "loader", "framework", "precision", "dataset", "model", "image_size", "batch_size", "layers")
_STABILITY = ["num_kernels", "interval", "verdict", "variant", "status"]


def table(evidence: Evidence, studies: Iterable[Study], headlines: pandas.DataFrame) -> pandas.DataFrame:
    """Return the finding of each study.

    Args:
        evidence: measured and published rows.
        studies: in the order of the table.
        headlines: from `headline.table`.

    Returns:
        Columns: study, title, finding (at most two sentences), basis (the numbers behind it and their limits).
    """
    lines = []
    for study in studies:
        rows = evidence.rows[evidence.rows["study"] == study.name]
        printed = rows[rows["source"] == "published"]
        lead = headlines[headlines["study"] == study.name]
        own = lead[(lead["source"] == "measured") & lead["images_per_second"].notna()]
        points = evidence.points(study.name)
        unit = "sequence" if points["sequence_length"].notna().any() else "image"
        parts = _measured(own, evidence.names, unit) + _limits(printed, own, points)
        line = {"study": study.name, "title": study.title, "finding": finding(study, evidence)}
        lines.append(line | {"basis": " ".join(filter(None, parts))})
    return pandas.DataFrame(lines, columns=["study", "title", "finding", "basis"])


@dataclass(frozen=True)
class Sentence:
    """A sentence made from a table: on its best line, or on the span of a column. For chart titles and findings.

    Measured lines are used; if there are none, published lines, and the sentence ends in ", published".

    Attributes:
        text: a format string with {value}, {place} (machine and device of the best line), and the line's columns.
        none: the sentence without a value.
        column: the column of {value}.
        show: formats a value.
        best: the line to report, `most` or `least`; empty: the span of all lines.
        where: a query for `pandas.DataFrame.query` that selects lines.
    """

    text: str
    none: str
    column: str
    show: Callable[[float], str] = wording.number
    best: str = ""
    where: str = ""

    def lines(self, table: pandas.DataFrame) -> pandas.DataFrame:
        """Return the lines that trained and have a value: the measured ones, or without any the published ones."""
        own = table.query(self.where, engine="python") if self.where and len(table) else table
        own = own[own[self.column].notna()]
        own = own[own["status"].isin(records.TRAINED)] if "status" in own else own
        measured = own[own["source"] == "measured"] if "source" in own else own
        return measured if len(measured) else own

    def line(self, table: pandas.DataFrame) -> dict | None:
        """Return the best line, from those neither unproven nor unstable if there are any; None without a line."""
        lines = self.lines(table)
        if not self.best or lines.empty:
            return None
        for is_so in (verdicts.is_unproven, verdicts.is_unstable):
            sound = ~lines.get("verdict", pandas.Series("", lines.index)).map(is_so).astype(bool)
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
        lines, line = self.lines(table), self.line(table)
        if lines.empty:
            return self.none
        published = "source" in lines and lines["source"].iloc[0] != "measured"
        values = dict(line or {})
        if "framework" in values:
            values["framework"] = libraries.WORDS.get(values["framework"])
        if line and "machine" in line:
            values |= {"place": place or names.in_sentence(line)}
        value = self.show(line[self.column]) if line else wording.span(lines[self.column].astype(float), self.show)
        return self.text.format(**values | {"value": value}) + (", published" if published else "")


def finding(study: Study, evidence: Evidence) -> str:
    """Return the finding of a study, at most two sentences. The first one is hedged.

    A study that defines no sentences reports its fastest point.
    """
    rate = Sentence(
        f"{study.title} trains {{value}} images a second on {{place}}",
        f"{study.title}: nothing was measured here yet",
        "samples_per_second",
        best="most",
    )
    sentences = []
    for make, sentence in study.sentences or ((lambda evidence: evidence.points(study.name), rate),):
        table, is_first = make(evidence), not sentences
        line = sentence.line(table) if isinstance(sentence, Sentence) else None
        if is_first and line and line.get("source", "measured") == "measured":
            other_data = stand_in(line, study.dataset) if study.dataset else ""
            text = sentence(table, evidence.names, place(evidence, line, sentence.lines(table)))
            hedges = hedged(evidence, [line], other_data)
            text = text.replace(", not confirmed)", ")") if "not confirmed" in hedges else text
        else:
            text, is_on_all = sentence(table, evidence.names), is_first and not isinstance(sentence, Sentence)
            hedges = hedged(evidence, evidence.points(study.name).to_dict("records") if is_on_all else [])
        sentences.append(text + hedges)
    return " ".join(map(wording.sentence, [sentence for sentence in sentences if sentence][:2]))


def place(evidence: Evidence, line: dict, others: pandas.DataFrame) -> str:
    """Return where a line was measured, as a phrase, and that it is the fastest of several machines if it is.

    The machines counted are those with a line in `others` that agrees in the columns SAME.
    """
    same = [name for name in SAME if name in others and pandas.notna(line[name])]
    count = others.loc[(others[same] == pandas.Series(line)[same]).all(axis=1), "machine"].nunique()
    return evidence.names.in_sentence(line) + (f", the fastest of {count} machines" if count > 1 else "")


def hedged(evidence: Evidence, lines: list[dict], *further: str) -> str:
    """Return the reasons for caution about some points, in brackets; see `wording.hedged`.

    Args:
        evidence: its summary has the number of kernels and the verdict of each point.
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


def _measured(own: pandas.DataFrame, names: naming.Names, unit: str) -> list[str]:
    """Return a sentence for each view: the fastest line's median, bounds, number of windows and verdict."""
    views = own.assign(view=[view(line) for line in own.to_dict("records")])
    sentences = []
    for name, lines in views.groupby("view", sort=True):
        line = lines.loc[lines["images_per_second"].idxmax()].to_dict()
        joules, boundary = line["joules_per_image"], line["energy_boundary"]
        each = naming.with_article(unit)
        energy = "no energy was read" if pandas.isna(joules) else f"{wording.number(joules)} J {each} ({boundary})"
        bounds = f"{wording.bounds(line['low'], line['high'], line['interval'])}, n={line['num_windows']:.0f}"
        sentences.append(
            f"Measured, {name}: {wording.number(line['images_per_second'])} {unit}s a second ({bounds},"
            f" {line['verdict']}) on {names.place(line)}, {line['variant']}, {naming.dataset(line['dataset'])};"
            f" {energy}."
        )
    return sentences


def _limits(printed: pandas.DataFrame, own: pandas.DataFrame, summary: pandas.DataFrame) -> list[str]:
    """Return the limits of the measured figures, a sentence each."""
    theirs = set(printed["dataset"].dropna())
    others = sorted(set(own["dataset"].dropna()) - theirs) if theirs else []
    failed = summary[~summary["status"].isin(records.TRAINED)]
    ranges = summary[summary["interval"] == intervals.RANGE]
    unproven, unstable = (
        summary[summary["verdict"].map(is_so).astype(bool)] for is_so in (verdicts.is_unproven, verdicts.is_unstable)
    )
    counted = [
        (ranges, f"Range instead of interval (fewer than {intervals.FEWEST_WINDOWS} windows, or too few kernels)"),
        (unproven, "Unproven (fewer steps compared with float64 than requested)"),
        (unstable, "Unstable"),
        (failed, f"Failed ({', '.join(sorted(set(failed['status'].str.replace('_', ' '))))})"),
    ]
    limits = [f"{words}: {len(lines)} of {len(summary)} points." for lines, words in counted if len(lines)]
    data = [" and ".join(sorted(map(naming.dataset, names))) for names in (others, theirs)]
    return ([f"Data: {data[0]} in place of {data[1]}."] if others else []) + limits
