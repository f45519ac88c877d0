"""Judge whether a tuned point is faster than its reference, from windows of both that alternate
in one process.

A search only promises a speed-up, from short windows of small batches. Rows of phase `confirm`
in each process then compare its choice with the study's reference, including its loader. If a
pair of windows in the first process is not faster, the point trains like the reference. It is
called tuned only if an interval over processes shows that it is faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchbook.judging import intervals, statistics
from benchbook.judging.intervals import Interval

if TYPE_CHECKING:
    import pandas

PHASE = "confirm"
REFERENCE, TUNED = (
    "reference",
    "tuned",
)  # the two sides of that phase, one of which the point then measures
NOTHING_FASTER = "tuned: nothing faster found"
# it trained the search's choice, but no interval shows that it is faster
UNCONFIRMED = "tuned, not confirmed"
UNSEARCHED = "not tuned"  # requested as tuned, without time for a search
TUNED_NAMES = (TUNED, NOTHING_FASTER, UNCONFIRMED, UNSEARCHED)
NAMES = {None: UNCONFIRMED, TUNED: TUNED, REFERENCE: NOTHING_FASTER}
_COLUMNS = """machine study point device framework dataset promised confirmed low high interval
    num_pairs outcome"""
COLUMNS = _COLUMNS.split()
# The columns that `table` reads: grouping a table of few columns is much faster.
READ = """machine study point run_id index phase status variant settings device framework dataset
    samples_per_second"""


def ratio(rows: pandas.DataFrame) -> Interval | None:
    """Return the speed-up of tuned over the reference, from neighbouring windows of both.

    Args:
        rows: of one point; other phases are ignored.

    Returns:
        None if there are no pairs of windows, or if a window diverged.
    """
    windows = rows[rows["phase"] == PHASE]
    if windows.empty or (windows["status"] != "ok").any():
        return None
    ratios, processes = [], []
    for run_id, run in windows.sort_values("index").groupby("run_id", sort=True):
        sides = [settings.get("side") for settings in run["settings"]]
        measured = list(zip(sides, run["samples_per_second"].astype(float), strict=True))
        pairs = [dict(measured[place : place + 2]) for place in range(0, len(measured) - 1, 2)]
        known = [
            pair for pair in pairs if pair.keys() == {REFERENCE, TUNED} and pair[REFERENCE] > 0
        ]
        ratios += [pair[TUNED] / pair[REFERENCE] for pair in known]
        processes += [run_id] * len(known)
    return intervals.interval(ratios, processes, intervals.PAIRED) if ratios else None


def is_faster(tuned_over_reference: Interval | None) -> bool:
    """Return whether the whole interval is above 1; a range, such as that of one process,
    decides nothing."""
    known = tuned_over_reference is not None and tuned_over_reference.kind == intervals.INTERVAL
    return known and tuned_over_reference.low > 1


def name(line: Mapping) -> str | None:
    """Return a point's variant, named by what its first process chose; `table` has what was
    confirmed.

    Args:
        line: a row, or a line of a summary, with variant and settings.
    """
    variant, settings = line["variant"], line["settings"]
    if variant != TUNED:
        return variant
    settings = settings if isinstance(settings, dict) else {}
    if settings.get("search_seconds") == 0:
        return UNSEARCHED
    return NAMES.get(settings.get("chosen"), UNCONFIRMED)


def table(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return a line for each tuned point: the search's promise and the confirmed speed-up.

    Args:
        rows: measured rows, of one session of each point.

    Returns:
        Columns COLUMNS: promised is the search's speed-up, from the settings alone; confirmed is
        tuned over the reference, with bounds; both are missing if the two were not compared.
        outcome is tuned only if an interval shows that it is faster.
    """
    import pandas

    tuned = rows.loc[rows["variant"] == TUNED, READ.split()]
    lines = []
    for key, point in tuned.groupby(statistics.POINT_KEY, sort=True):
        last = point.iloc[-1].to_dict()
        line = dict(zip(statistics.POINT_KEY, key, strict=True)) | {"outcome": name(last)}
        line |= {column: last[column] for column in ("device", "framework", "dataset")}
        confirmed = ratio(point)
        if line["outcome"] == TUNED and not is_faster(confirmed):
            line["outcome"] = UNCONFIRMED
        if confirmed is not None:
            windows = point.loc[point["phase"] == PHASE, "settings"]
            line |= {"promised": windows.iloc[0].get("promised"), "num_pairs": len(windows) // 2}
            line |= confirmed.columns("confirmed")
        lines.append(line)
    return pandas.DataFrame(lines, columns=COLUMNS)
