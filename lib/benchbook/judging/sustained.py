"""Minutes without a pause: a machine without a fan is not what its first seconds say."""

import pandas

from benchbook.judging import statistics

MINUTE = 60.0


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
