"""What each study says, in a paragraph: asked, published, measured, what follows, and the limit; all from rows."""

from collections.abc import Iterable, Mapping

import pandas

from benchbook import intervals, records, verdicts
from benchbook.figures import view
from benchbook.study import Evidence, Study


def table(
    evidence: Evidence, studies: Iterable[Study], headlines: pandas.DataFrame, sentences: Mapping[str, list[str]]
) -> pandas.DataFrame:
    """Return a paragraph for each study.

    Args:
        evidence: measured and published rows.
        studies: in the order of the table.
        headlines: from `headline.table`.
        sentences: what each study's charts say, by study, without full stops.

    Returns:
        Columns: study, finding.
    """
    lines = []
    for study in studies:
        rows = evidence.rows[evidence.rows["study"] == study.name]
        printed, measured = (rows[rows["source"] == source] for source in _SOURCES)
        spoken = headlines[headlines["study"] == study.name]
        own = spoken[(spoken["source"] == "measured") & spoken["images_per_second"].notna()]
        parts = [study.question, _published(printed, spoken[spoken["source"] == "published"])]
        parts += [*_measured(own)] if len(own) else []
        parts += [f"{title}." for title in sentences.get(study.name, [])]
        parts += _limits(printed, own, evidence.points(study.name))
        parts += [] if len(measured) else ["Nothing of it was measured here yet."]
        lines.append({"study": study.name, "finding": " ".join(part for part in parts if part)})
    return pandas.DataFrame(lines, columns=["study", "finding"])


_SOURCES = ("published", "measured")


def _published(printed: pandas.DataFrame, spoken: pandas.DataFrame) -> str:
    """Return what was published of time: the least and the most, each with its machine."""
    if printed.empty:
        return "Nothing is published of it."
    parts = []
    for column, words in (("seconds_per_epoch", "s an epoch"), ("images_per_second", "images a second")):
        printed_values = spoken[spoken[column].notna()].sort_values(column, kind="stable")
        ends = printed_values.iloc[[0, -1]] if len(printed_values) > 1 else printed_values
        each = [f"{_number(line[column])} ({_place(line)})" for line in ends.to_dict("records")]
        parts += [f"{' to '.join(each)} {words}"] if each else []
    machines = ", ".join(sorted(set(printed["machine"])))
    return f"Published: {'; '.join(parts)}." if parts else f"Published, without a rate or a time: {machines}."


def _measured(own: pandas.DataFrame) -> list[str]:
    """Return a sentence for each view: the fastest line's median, interval, number of windows and verdict."""
    views = own.assign(view=[view(line) for line in own.to_dict("records")])
    sentences = []
    for name, lines in views.groupby("view", sort=True):
        line = lines.loc[lines["images_per_second"].idxmax()].to_dict()
        kind = "95 % interval" if line["interval"] == intervals.INTERVAL else "range"
        machines = lines["machine"].nunique()
        bounds = f"{kind} {_number(line['low'])} to {_number(line['high'])}, n={line['num_windows']:.0f}"
        sentences.append(
            f"Measured, {name}: a median of {_number(line['images_per_second'])} images a second"
            f" ({bounds}, {line['verdict']}) on {_place(line)}, {line['variant']}, {line['dataset']}"
            + (f", the fastest of {len(lines)} on {machines} machine{'s' * (machines > 1)}" if len(lines) > 1 else "")
            + _energy(line)
        )
    return sentences


def _energy(line: dict) -> str:
    if pandas.isna(line["joules_per_image"]):
        return "; no sensor read its energy."
    return f"; {line['joules_per_image']:.3g} J an image ({line['energy_boundary']})."


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
        (ranges, f"have a range and no interval (fewer than {intervals.FEWEST_WINDOWS} windows, or too few kernels)"),
        (unproven, "are unproven (compared with float64 in fewer steps than asked for)"),
        (unstable, "are unstable"),
        (failed, f"failed ({', '.join(sorted(set(failed['status'].str.replace('_', ' '))))})"),
    ]
    limits = [f"{len(lines)} of {len(summary)} points {words}." for lines, words in counted if len(lines)]
    stand_in = f"Data: {', '.join(others)} in place of {', '.join(sorted(theirs))}."
    return ([stand_in] if others else []) + limits


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _place(line: dict) -> str:
    return line["machine"] + (f", {line['device']}" if pandas.notna(line["device"]) else "")
