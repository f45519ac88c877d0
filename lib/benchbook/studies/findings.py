"""What each study says, in at most two sentences; and, apart from them, the numbers behind. All are made from rows."""

from collections.abc import Iterable

import pandas

from benchbook.judging import intervals, verdicts, wording
from benchbook.record import naming
from benchbook.rows import records
from benchbook.studies.figures import view
from benchbook.studies.study import Evidence, Study

_STABILITY = ["num_kernels", "interval", "verdict", "variant", "status"]


def table(evidence: Evidence, studies: Iterable[Study], headlines: pandas.DataFrame) -> pandas.DataFrame:
    """Return the finding of each study.

    Args:
        evidence: measured and published rows.
        studies: in the order of the table.
        headlines: from `headline.table`.

    Returns:
        Columns: study, title, finding (at most two sentences), basis (the numbers behind it, and its limits).
    """
    lines = []
    for study in studies:
        rows = evidence.rows[evidence.rows["study"] == study.name]
        printed = rows[rows["source"] == "published"]
        spoken = headlines[headlines["study"] == study.name]
        own = spoken[(spoken["source"] == "measured") & spoken["images_per_second"].notna()]
        parts = [*_measured(own, evidence.names), _published(printed, spoken, evidence.names)]
        parts += _limits(printed, own, evidence.points(study.name))
        line = {"study": study.name, "title": study.title, "finding": finding(study, evidence)}
        lines.append(line | {"basis": " ".join(filter(None, parts))})
    return pandas.DataFrame(lines, columns=["study", "title", "finding", "basis"])


def finding(study: Study, evidence: Evidence) -> str:
    """Return what a study says of some evidence, in its own sentences, else by its fastest point."""
    if study.finding is not None:
        return study.finding(evidence)
    points = evidence.points(study.name)
    trained = points[points["status"].isin(records.TRAINED) & points["samples_per_second"].notna()]
    if trained.empty:
        return f"{study.title}: nothing was measured here yet."
    best = fastest(trained, "samples_per_second")
    rate = f"{wording.number(best['samples_per_second'])} images a second"
    return f"{study.title} trains {rate} on {place(evidence, best, trained)}{hedged(evidence, [best])}."


def fastest(table: pandas.DataFrame, column: str, *, least: bool = False) -> dict:
    """Return the line that a finding speaks of: the best of those that are not unproven or unstable, if any.

    Args:
        table: with at least one line; verdict where it has it.
        column: what is compared.
        least: whether less is better.
    """
    steady = table
    for is_so in (verdicts.is_unproven, verdicts.is_unstable):
        sound = ~steady.get("verdict", pandas.Series("", steady.index)).map(is_so).astype(bool)
        steady = steady[sound] if sound.any() else steady
    values = steady[column].astype(float)
    return steady.loc[values.idxmin() if least else values.idxmax()].to_dict()


def place(evidence: Evidence, line: dict, others: pandas.DataFrame) -> str:
    """Return where a line was measured, as a sentence names it, and of how many machines it is the fastest."""
    count = others["machine"].nunique()
    return evidence.names.in_sentence(line) + (f", the fastest of {count} machines" if count > 1 else "")


def hedged(evidence: Evidence, lines: list[dict], *further: str) -> str:
    """Return what a reader has to know before trusting some points, in brackets; see `wording.hedged`.

    Args:
        evidence: whose summary says how often a point was started.
        lines: of any table, with machine and point.
        further: hedges that stand first; empty ones are left out.
    """
    summary = evidence.summary.drop_duplicates(["machine", "point"]).set_index(["machine", "point"])[_STABILITY]
    points = [(line["machine"], line.get("point")) for line in lines]
    return wording.hedged([summary.loc[point].to_dict() for point in points if point in summary.index], *further)


def stand_in(line: dict, dataset: str) -> str:
    """Return a hedge that names the data which stood in for a study's own; nothing for its own."""
    other = line.get("dataset")
    if pandas.isna(other) or other == dataset:
        return ""
    return f"{naming.dataset(other)} in place of {naming.dataset(dataset)}"


def _published(printed: pandas.DataFrame, spoken: pandas.DataFrame, names: naming.Names) -> str:
    """Return what was published of time: the least and the most, each with its machine."""
    if printed.empty:
        return ""
    spoken = spoken[spoken["source"] == "published"]
    parts = []
    for column, unit in (("seconds_per_epoch", "s an epoch"), ("images_per_second", "images a second")):
        printed_values = spoken[spoken[column].notna()].sort_values(column, kind="stable")
        ends = printed_values.iloc[[0, -1]] if len(printed_values) > 1 else printed_values
        each = [f"{wording.number(line[column])} ({names.place(line)})" for line in ends.to_dict("records")]
        parts += [f"{' to '.join(each)} {unit}"] if each else []
    return f"Published: {'; '.join(parts)}." if parts else ""


def _measured(own: pandas.DataFrame, names: naming.Names) -> list[str]:
    """Return a sentence for each view: the fastest line's median, bounds, number of windows and verdict."""
    views = own.assign(view=[view(line) for line in own.to_dict("records")])
    sentences = []
    for name, lines in views.groupby("view", sort=True):
        line = lines.loc[lines["images_per_second"].idxmax()].to_dict()
        bounds = f"{wording.bounds(line['low'], line['high'], line['interval'])}, n={line['num_windows']:.0f}"
        sentences.append(
            f"Measured, {name}: {wording.number(line['images_per_second'])} images a second ({bounds},"
            f" {line['verdict']}) on {names.place(line)}, {line['variant']}, {naming.dataset(line['dataset'])}"
            + (f", the fastest of {len(lines)}" if len(lines) > 1 else "")
            + _energy(line)
        )
    return sentences


def _energy(line: dict) -> str:
    if pandas.isna(line["joules_per_image"]):
        return "; no energy was read."
    return f"; {wording.number(line['joules_per_image'])} J an image ({line['energy_boundary']})."


def _limits(printed: pandas.DataFrame, own: pandas.DataFrame, summary: pandas.DataFrame) -> list[str]:
    """Return what the measured figures may not be taken for, a sentence each."""
    theirs = set(printed["dataset"].dropna())
    others = sorted(set(own["dataset"].dropna()) - theirs) if theirs else []
    failed = summary[~summary["status"].isin(records.TRAINED)]
    ranges = summary[summary["interval"] == intervals.RANGE]
    unproven, unstable = (
        summary[summary["verdict"].map(is_so).astype(bool)] for is_so in (verdicts.is_unproven, verdicts.is_unstable)
    )
    counted = [
        (ranges, f"A range and no interval (fewer than {intervals.FEWEST_WINDOWS} windows, or too few kernels)"),
        (unproven, "Unproven (compared with float64 in fewer steps than asked for)"),
        (unstable, "Unstable"),
        (failed, f"Failed ({', '.join(sorted(set(failed['status'].str.replace('_', ' '))))})"),
    ]
    limits = [f"{words}: {len(lines)} of {len(summary)} points." for lines, words in counted if len(lines)]
    data = [" and ".join(sorted(map(naming.dataset, names))) for names in (others, theirs)]
    return ([f"Data: {data[0]} in place of {data[1]}."] if others else []) + limits
