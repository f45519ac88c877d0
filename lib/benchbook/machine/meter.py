"""Energy from the log of a wall meter: watts over time, in a file that the user's logger writes.

The file is CSV with the columns `timestamp` (ISO 8601 with a zone: 2026-11-21T15:00:00Z) and `watts`; other columns
are ignored. The timestamps must come from the clock of the machine that trains.
"""

import os
from pathlib import Path

import numpy
import pandas

MIN_INTERVALS = 2  # between samples, in a window: samples further apart than half a window do not measure it


def read(path: Path) -> pandas.DataFrame:
    """Return the log: columns seconds (since 1970, ascending) and watts. An incomplete last line is left out.

    Raises:
        ValueError: a column is missing, a timestamp has no zone, or watts are not a finite number from 0 on.
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
    """Return the energy between two moments by the trapezoid rule; watts at both ends are interpolated.

    Args:
        log: from `read`.
        begun, ended: seconds since 1970.

    Returns:
        Joules; None if the log does not cover the whole time, or two samples are more than half of it apart.
    """
    seconds, watts = log["seconds"].to_numpy(), log["watts"].to_numpy()
    if ended <= begun or not len(seconds) or seconds[0] > begun or seconds[-1] < ended:
        return None
    first = numpy.searchsorted(seconds, begun, side="right") - 1
    last = numpy.searchsorted(seconds, ended, side="left")
    if numpy.diff(seconds[first : last + 1]).max() > (ended - begun) / MIN_INTERVALS:
        return None
    inside = (seconds > begun) & (seconds < ended)
    times = numpy.concatenate([[begun], seconds[inside], [ended]])
    levels = numpy.interp(times, seconds, watts)
    return float(numpy.sum((levels[1:] + levels[:-1]) / 2 * numpy.diff(times)))  # NumPy 1.26 has no trapezoid


def fill(rows: pandas.DataFrame, machine: str, file: str = "") -> pandas.DataFrame:
    """Return the rows with the meter's joules in each window of a machine that has no energy and that the log covers.

    It is for a meter whose log is available only after the run. The rows on disk do not change.

    Args:
        rows: of any machines.
        machine: the machine that was plugged into the meter.
        file: the log; empty: BENCHBOOK_METER. Without a log the rows are returned unchanged.
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
