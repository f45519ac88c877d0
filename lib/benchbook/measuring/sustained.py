"""Train for minutes without a pause: a machine without a fan is not what its first seconds say."""

import itertools

import pandas

from benchbook.frameworks.workload import Workload
from benchbook.judging import statistics
from benchbook.measuring import measure, protocol
from benchbook.measuring.runs import Run
from benchbook.rows import records

WINDOW_SECONDS = 10.0
LEAST_WINDOWS = 6  # so that a short run has a first and a last part, too
MINUTE = 60.0


def measure_minutes(workload: Workload, record: Run, minutes: float) -> pandas.DataFrame:
    """Train for so long, in windows of about ten seconds, or a sixth of the time, each appended as a row.

    Args:
        workload: warmed up.
        record: the run that takes the rows.
        minutes: of training; the window under way at the end is finished.

    Returns:
        This run's rows; a loss that is not finite ends it early, in a row of status `diverged`.

    Raises:
        ValueError: the minutes are not above 0.
    """
    if minutes <= 0:
        raise ValueError(f"sustained_minutes {minutes!r}; allowed: above 0")
    sensor, stream = measure.open_sensor(workload.device), protocol.endless(workload)
    seconds, num_steps = 0.0, 1
    length = min(WINDOW_SECONDS, minutes * MINUTE / LEAST_WINDOWS)
    with record.during("train"):
        while seconds < minutes * MINUTE:
            measures = protocol.train_window(workload, sensor, itertools.islice(stream, num_steps))
            record.append(epoch=workload.epoch + 1, **measures)
            if measures["status"] == "diverged":
                break
            seconds += measures["seconds"]
            num_steps = max(1, round(num_steps * length / measures["seconds"]))
    stream.close()
    return records.read(record.path)


def windows(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the windows of each sustained point's last run, with the minutes at which they end.

    Returns:
        Columns: machine, study, point, device, framework, variant, minutes, samples, seconds, samples_per_second.
    """
    long = [settings.get("sustained_minutes", 0) > 0 for settings in rows["settings"]]
    long = pandas.Series(long, rows.index, dtype=bool)
    timed = statistics.newest(rows[long & (rows["source"] == "measured")])
    timed = timed[(timed["phase"] == "train") & timed["samples_per_second"].notna()]
    timed = timed[timed["run_id"] == timed.groupby(["machine", "point"])["run_id"].transform("max")]
    timed = timed.sort_values(["machine", "point", "index"])
    minutes = timed.groupby(["machine", "point"])["seconds"].cumsum().astype(float) / MINUTE
    kept = ["machine", "study", "point", "device", "framework", "variant"]
    columns = [*kept, "minutes", "samples", "seconds", "samples_per_second"]
    return timed.assign(minutes=minutes)[columns].reset_index(drop=True)


def first_and_last(timed: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rate of each sustained point's first minute and of its last, side by side.

    A window belongs to the minute in which it ended, or in the last minute began. A run of under two minutes is halved
    instead, and `stretch` says so.

    Args:
        timed: from `windows`.

    Returns:
        Columns: machine, study, point, device, framework, variant, minutes (in all), stretch (minutes at each end),
        first, last (images a second), change (a fraction of the first).
    """
    key = ["machine", "study", "point", "device", "framework", "variant"]
    lines = []
    for values, run in timed.groupby(key, dropna=False, sort=True):
        total = run["minutes"].max()
        stretch = min(1.0, total / 2)
        begun = run["minutes"] - run["seconds"] / MINUTE
        first, last = run[run["minutes"] <= stretch], run[begun >= total - stretch - 1e-9]
        rates = [_rate(part if len(part) else run.iloc[[end]]) for part, end in ((first, 0), (last, -1))]
        line = dict(zip(key, values, strict=True)) | {"minutes": total, "stretch": stretch}
        lines.append(line | {"first": rates[0], "last": rates[1], "change": rates[1] / rates[0] - 1})
    return pandas.DataFrame(lines, columns=[*key, "minutes", "stretch", "first", "last", "change"])


def _rate(windows: pandas.DataFrame) -> float:
    return float(windows["samples"].sum() / windows["seconds"].sum())
