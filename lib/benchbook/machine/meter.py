"""A wall meter's log: watts over time, from a file that the user's own logger writes.

The file is CSV with the columns `timestamp` (ISO 8601 with a zone: 2026-11-21T15:00:00Z) and `watts`; others are
ignored. It must be written by the clock of the machine that trains. The trapezoid rule joins the samples.
"""

import os
from pathlib import Path

import numpy
import pandas

FEWEST_STEPS = 2  # samples further apart than half a window do not measure it


def read(path: Path) -> pandas.DataFrame:
    """Return the log: columns seconds (since 1970, ascending) and watts. A last line cut short is left out.

    Raises:
        ValueError: a column is missing, or a value is no time with a zone or no watts.
    """
    log = pandas.read_csv(path, dtype=str, keep_default_na=False)
    missing = {"timestamp", "watts"} - set(log)
    if missing:
        raise ValueError(f"{path.name}: no column {', '.join(sorted(missing))}; allowed: timestamp, watts")
    if not path.read_bytes().endswith(b"\n"):
        log = log[:-1]  # the logger is still writing it
    seconds = pandas.Series([_seconds(text, path.name) for text in log["timestamp"]], log.index, dtype=float)
    watts = pandas.to_numeric(log["watts"], errors="coerce").astype(float)
    if len(wrong := log.loc[~(watts.ge(0) & watts.lt(float("inf"))), "watts"]):
        raise ValueError(f"{path.name}: watts {wrong.iloc[0]!r}; allowed: numbers from 0")
    return pandas.DataFrame({"seconds": seconds, "watts": watts}).sort_values("seconds", ignore_index=True)


def joules(log: pandas.DataFrame, begun: float, ended: float) -> float | None:
    """Return the energy between two moments, by the trapezoid rule; at the ends watts lie on the line between samples.

    Args:
        log: from `read`.
        begun, ended: seconds since 1970.

    Returns:
        None where the log does not reach from one moment to the other, or samples lie over half of that time apart.
    """
    seconds, watts = log["seconds"].to_numpy(), log["watts"].to_numpy()
    if ended <= begun or not len(seconds) or seconds[0] > begun or seconds[-1] < ended:
        return None
    first = numpy.searchsorted(seconds, begun, side="right") - 1
    last = numpy.searchsorted(seconds, ended, side="left")
    if numpy.diff(seconds[first : last + 1]).max() > (ended - begun) / FEWEST_STEPS:
        return None
    inside = (seconds > begun) & (seconds < ended)
    times = numpy.concatenate([[begun], seconds[inside], [ended]])
    levels = numpy.interp(times, seconds, watts)
    return float(numpy.sum((levels[1:] + levels[:-1]) / 2 * numpy.diff(times)))  # NumPy 1.26 has no trapezoid


def fill(rows: pandas.DataFrame, machine: str, file: str = "") -> pandas.DataFrame:
    """Return rows with the meter's joules in a machine's windows that have none and that the log covers.

    For a meter whose log is had only after the run. The rows on disk stay as they are.

    Args:
        rows: of any machines.
        machine: the one that the meter was plugged into.
        file: the log; empty takes BENCHBOOK_METER. Without one the rows come back as they are.
    """
    file = file or os.environ.get("BENCHBOOK_METER", "")
    if not file:
        return rows
    log, rows = read(Path(file)), rows.copy()
    unread = rows["started_at"].notna() & rows["seconds"].notna() & rows["energy_joules"].isna()
    for place in rows.index[unread & (rows["machine"] == machine)]:
        begun = _seconds(rows.loc[place, "started_at"], "rows")
        measured = joules(log, begun, begun + float(rows.loc[place, "seconds"]))
        if measured is not None:
            rows.loc[place, ["energy_joules", "energy_method", "energy_boundary"]] = [measured, "meter", "wall"]
    return rows


def _seconds(text: str, source: str) -> float:
    try:
        time = pandas.Timestamp(text)
    except ValueError:
        time = None
    if time is None or pandas.isna(time) or time.tzinfo is None:
        raise ValueError(f"{source}: timestamp {text!r}; allowed: ISO 8601 with a zone, such as 2026-11-21T15:00:00Z")
    return time.timestamp()
