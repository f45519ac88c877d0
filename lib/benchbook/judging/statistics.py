"""One line per point: its rate, spread, interval, input, energy, accuracy and outcome, from its
measured windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy

from benchbook.judging import intervals
from benchbook.rows import records

if TYPE_CHECKING:
    import pandas

POINT_KEY = ["machine", "study", "point"]
WARMED_UP_SHARE = 0.95  # a first window slower than this share of its run's median still warms up
MINUTE = 60.0
SHORTEST_WINDOW = 2.0  # seconds; energy counters such as Apple's move every second or two
# The columns of a point's line: what it is, and what is computed; those that are floats.
_DESCRIBED = """machine study point variant chip device device_name framework framework_version
    precision compiled model parameters dataset dataset_samples image_size sequence_length batch_size
    num_workers device_count flops_per_sample settings session started_at commit"""
_DESCRIPTION = _DESCRIBED.split()
_COMPUTED = """num_processes num_windows num_samples samples_per_second spread low high interval
    between_sessions seconds_per_step input_share_waited waited_low waited_high accuracy
    energy_per_sample energy_low energy_high energy_interval energy_method energy_boundary idle_watts
    energy_note status message"""
_FLOATS = """samples_per_second spread low high between_sessions seconds_per_step
    input_share_waited waited_low waited_high accuracy energy_per_sample energy_low energy_high
    idle_watts"""
ENERGY_COLUMNS = ["energy_per_sample", "energy_low", "energy_high", "energy_interval"]
_SUSTAINED = [*POINT_KEY, "device", "framework", "variant"]
# The columns of windows that a point's line is computed from.
_OF_WINDOWS = """seconds input_seconds samples_per_second samples batch_size energy_joules
    idle_watts"""
_WINDOW_TEXTS = ["run_id", "device", "energy_method", "energy_boundary"]


def warmed_up(rates: Sequence[float], runs: Sequence) -> list[numpy.ndarray]:
    """Return the rates of each run's windows, without a first window over 5 % slower than the
    run's median."""
    array, names = numpy.asarray(rates, float), numpy.asarray(runs)
    series = [array[names == run] for run in dict.fromkeys(names.tolist())]
    return [each[1:] if each[0] < WARMED_UP_SHARE * numpy.median(each) else each for each in series]


def spread(series: Sequence[numpy.ndarray]) -> float:
    """Return the probable error of a window, as a fraction: with normal noise half of them lie
    nearer to their mean.

    Args:
        series: the rates of each run; a window is compared with its own run's mean.
    """
    away = [numpy.log(each) - numpy.log(each).mean() for each in series]
    freedom = max(1, sum(map(len, away)) - len(away))
    return 0.6745 * float(numpy.sqrt(numpy.sum(numpy.square(numpy.concatenate(away))) / freedom))


def ranked(points: pandas.DataFrame) -> pandas.DataFrame:
    """Return points so that the last one speaks: without a value, with a range, with an interval,
    each by their start.

    Args:
        points: with interval and started_at, such as lines of a summary.
    """
    ranks = points["interval"].map({intervals.RANGE: 1, intervals.INTERVAL: 2}).fillna(0)
    order = points.assign(rank=ranks.astype(int), start=points["started_at"].astype("string"))
    order = order.sort_values(["rank", "start"], kind="stable", na_position="first")
    return points.loc[order.index]


def speaking(points: pandas.DataFrame, alike: list[str]) -> pandas.DataFrame:
    """Return the point that speaks for each group of points, such as those of quick and paper.

    Args:
        points: see `ranked`.
        alike: columns in which the points of one group agree.
    """
    return ranked(points).drop_duplicates(alike, keep="last").sort_index()


def with_settings(rows: pandas.DataFrame, names: Iterable[str]) -> pandas.DataFrame:
    """Return rows, or lines of a summary, with these settings as columns; None where a line
    lacks the setting."""
    return rows.assign(
        **{name: [settings.get(name) for settings in rows["settings"]] for name in names}
    )


def timed_windows(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the training windows that have a rate."""
    return rows[(rows["phase"] == "train") & (rows["samples_per_second"] > 0).fillna(False)]


def summarise(rows: pandas.DataFrame, virtual: Collection[str] = ()) -> pandas.DataFrame:
    """Return one line per point, from its training windows: rate, spread, interval, energy,
    accuracy and outcome.

    Args:
        rows: measured rows, of one session of each point; see `verdicts.speaking`.
        virtual: runs on virtual machines, see `condition.virtual`.

    Returns:
        Columns: the point's key and description (from its windows, if it has any);
        num_processes; num_windows; samples_per_second (the geometric mean over processes of each
        process's median); spread (of windows); low, high and interval (the bounds of
        samples_per_second and their kind); between_sessions (the deviation between sessions that
        they hold); num_samples (in all windows); seconds_per_step;
        input_share_waited (the median over windows), waited_low and waited_high (its range);
        accuracy (at the end of training, the median over repeats); energy_per_sample (J, idle
        power included; if several methods read it, only windows of the last method count),
        energy_low, energy_high and energy_interval (its bounds and their kind); energy_method;
        energy_boundary; idle_watts; energy_note (a caveat on the energy, or empty); status;
        message.
    """
    import pandas

    windows = timed_windows(rows)
    measures = {
        key: _measures(columns, virtual)
        for key, columns in group_arrays(windows, POINT_KEY, _OF_WINDOWS.split(), _WINDOW_TEXTS)
    }
    lines = [line | measures.get(key, {}) for key, line in _describe(rows, windows).items()]
    table = pandas.DataFrame(lines, columns=[*_DESCRIPTION, *_COMPUTED.split()])
    return table.astype(dict.fromkeys(_FLOATS.split(), float))


def group_arrays(
    table: pandas.DataFrame, key: list[str], numbers: list[str], texts: list[str]
) -> Iterator[tuple[tuple, dict[str, numpy.ndarray]]]:
    """Group a table's columns as arrays: with thousands of groups this is much faster than
    `DataFrame.groupby`.

    Args:
        table: any.
        key: columns that define a group; a line without one of them is left out.
        numbers: columns to return as floats, NaN where missing.
        texts: columns to return unchanged.

    Yields:
        The values of the key, and the group's columns by name, with lines in the table's order.
    """
    columns = {name: table[name].to_numpy(float, na_value=numpy.nan) for name in numbers}
    columns |= {name: table[name].to_numpy(object) for name in texts}
    for values, places in table.groupby(key, sort=False).indices.items():
        values = values if isinstance(values, tuple) else (values,)
        yield values, {name: column[places] for name, column in columns.items()}


def tokens_per_second(table: pandas.DataFrame) -> pandas.Series:
    """Return the tokens per second of windows or points; missing for images."""
    return table["samples_per_second"].astype(float) * table["sequence_length"].astype(float)


def in_units(line: Mapping) -> tuple[float, float, float, str]:
    """Return a point's rate, its bounds, and its unit: tokens for sequences, else images."""
    import pandas

    length = line.get("sequence_length")
    size, unit = (1.0, "images") if pandas.isna(length) else (float(length), "tokens")
    return *(size * float(line[name]) for name in ("samples_per_second", "low", "high")), unit


def day(session: str) -> str:
    """Return the day that a session's name begins with, as 2026-11-28; empty for another name."""
    return f"{session[:4]}-{session[4:6]}-{session[6:8]}" if session[:8].isdigit() else ""


def days(rows: pandas.DataFrame) -> list[str]:
    """Return the days of some rows' sessions, in order; see `day`."""
    return sorted(set(filter(None, map(day, rows["session"].dropna().astype(str)))))


def fit_step_time(batch_sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Split step time into a fixed part and a part per sample, by non-negative least squares of
    relative errors.

    Args:
        batch_sizes: images in a step; at least two different ones.
        seconds: that step's time, with the data resident on the device.

    Returns:
        Seconds per step at any batch size (launching), and seconds per sample (arithmetic).
    """
    from scipy.optimize import nnls

    sizes, times = numpy.asarray(batch_sizes, float), numpy.asarray(seconds, float)
    design = numpy.stack([numpy.ones_like(sizes), sizes], axis=1) / times[:, None]
    (fixed, per_sample), _ = nnls(design, numpy.ones_like(times))
    return float(fixed), float(per_sample)


def sustained(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the windows of each sustained point's last run, with the minutes at which they end.

    Args:
        rows: measured rows, of one session of each point.

    Sustained points train for minutes, since a machine without a fan slows down as it warms up.

    Returns:
        Columns: machine, study, point, device, framework, variant, minutes, samples, seconds,
        samples_per_second.
    """
    import pandas

    long = [settings.get("sustained_minutes", 0) > 0 for settings in rows["settings"]]
    long = pandas.Series(long, rows.index, dtype=bool)
    timed = timed_windows(rows[long])
    timed = timed[timed["run_id"] == timed.groupby(["machine", "point"])["run_id"].transform("max")]
    timed = timed.sort_values(["machine", "point", "index"])
    minutes = timed.groupby(["machine", "point"])["seconds"].cumsum().astype(float) / MINUTE
    columns = [*_SUSTAINED, "minutes", "samples", "seconds", "samples_per_second"]
    return timed.assign(minutes=minutes)[columns].reset_index(drop=True)


def first_and_last(timed: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rate of each sustained point's first minute and of its last.

    The first minute has the windows that ended in it, the last those that began in it. A run of
    under two minutes is split in halves instead.

    Args:
        timed: from `sustained`.

    Returns:
        Columns: machine, study, point, device, framework, variant, minutes (in all), end_minutes
        (length of the first and of the last part), first, last (images a second), change (a
        fraction of the first).
    """
    import pandas

    lines = []
    for values, run in timed.groupby(_SUSTAINED, dropna=False, sort=True):
        total = run["minutes"].max()
        length = min(1.0, total / 2)
        begun = run["minutes"] - run["seconds"] / MINUTE
        first, last = run[run["minutes"] <= length], run[begun >= total - length - 1e-9]
        ends = (part if len(part) else run.iloc[[end]] for part, end in ((first, 0), (last, -1)))
        rates = [float(part["samples"].sum() / part["seconds"].sum()) for part in ends]
        lines.append((*values, total, length, *rates, rates[1] / rates[0] - 1))
    return pandas.DataFrame(
        lines, columns=[*_SUSTAINED, "minutes", "end_minutes", "first", "last", "change"]
    )


def _outcomes(measured: pandas.DataFrame) -> dict[tuple[str, str, str], dict]:
    """Return status and message of each point that failed, or of which a process did.

    A later run cancels an interrupted one. If one process measured windows and did not fail, the
    point is well, and its message says how many processes failed, and the last reason.
    """
    judged = records.without_refusals(measured)
    last_runs = measured.groupby(POINT_KEY)["run_id"].max().rename("last")
    resumed = (judged["status"] == "interrupted") & (
        judged["run_id"] != judged.join(last_runs, on=POINT_KEY)["last"]
    )
    judged = judged.loc[~resumed, [*POINT_KEY, "run_id", "status", "message"]]
    failures = judged[~judged["status"].isin(records.TRAINED)]
    windows = timed_windows(measured)
    whole = (
        windows[~windows["run_id"].isin(failures["run_id"])].groupby(POINT_KEY)["run_id"].nunique()
    )
    failed, ends = failures.groupby(POINT_KEY)["run_id"].nunique(), {}
    for *key, _, status, message in failures.to_numpy().tolist():  # the last one counts
        point = tuple(key)
        if point in whole.index:
            every, reason = failed[point] + whole[point], status.replace("_", " ")
            if isinstance(message, str):
                reason += f" ({message})"
            status, message = "ok", f"{failed[point]} of {every} processes failed: {reason}"
        ends[point] = {"status": status, "message": message}
    diverged = judged.loc[judged["status"] == "diverged", [*POINT_KEY, "status", "message"]]
    for *key, status, message in diverged.to_numpy().tolist():
        if ends.get(tuple(key), {}).get("status", "ok") == "ok":
            ends[tuple(key)] = {"status": status, "message": message}
    return ends


def _describe(
    measured: pandas.DataFrame, windows: pandas.DataFrame
) -> dict[tuple[str, str, str], dict]:
    """Return each point's description and outcome. A point's trials may have another batch size
    than its windows."""
    import pandas

    keys, keys_of_windows = (
        pandas.MultiIndex.from_frame(rows[POINT_KEY]) for rows in (measured, windows)
    )
    has_windows = keys.isin(keys_of_windows)
    described = pandas.concat([windows, measured[~has_windows]])[_DESCRIPTION]
    lasts = (
        described.groupby(POINT_KEY, sort=True).last().reset_index()[_DESCRIPTION].astype(object)
    )
    lasts = lasts.where(lasts.notna(), None)
    tested = (
        measured[measured["phase"] == "evaluate"]
        .groupby([*POINT_KEY, "run_id", "repeat"])["accuracy"]
        .last()
    )
    accuracies = tested.dropna().astype(float).groupby(POINT_KEY).median().to_dict()
    ends = _outcomes(measured)
    well = {"status": "ok", "message": None, "num_processes": 0, "num_windows": 0}
    lines = {tuple(line[name] for name in POINT_KEY): line for line in lasts.to_dict("records")}
    return {
        key: line | {"accuracy": accuracies.get(key)} | well | ends.get(key, {})
        for key, line in lines.items()
    }


def _measures(windows: Mapping[str, numpy.ndarray], virtual: Collection[str]) -> dict:
    runs, rates = windows["run_id"], windows["samples_per_second"]
    on_virtual = windows["device"][0] == "cpu" and not set(runs).isdisjoint(virtual)
    deviations = intervals.VIRTUAL if on_virtual else intervals.UNPAIRED
    rate = intervals.interval(rates, runs, deviations)
    waited = _present(windows["input_seconds"] / windows["seconds"])
    sizes = _present(windows["batch_size"])
    measures = rate.columns("samples_per_second") | {
        "between_sessions": deviations.session,
        "num_processes": len(set(runs)),
        "num_windows": len(runs),
        "spread": spread(warmed_up(rates, runs)),
        "num_samples": int(_present(windows["samples"]).sum()),
        "seconds_per_step": sizes[-1] / rate.value if len(sizes) else None,
    }
    if len(waited):
        names = "input_share_waited", "waited_low", "waited_high"
        ends = float(numpy.median(waited)), waited.min(), waited.max()
        measures |= dict(zip(names, ends, strict=True))
    return measures | _energy(windows, deviations)


def _energy(windows: Mapping[str, numpy.ndarray], deviations: intervals.Deviations) -> dict:
    # 0: the counter did not move within the window
    read = numpy.flatnonzero(windows["energy_joules"] > 0)
    if not len(read):
        return {}
    method, boundary = (windows[name][read[-1]] for name in ("energy_method", "energy_boundary"))
    read = read[windows["energy_method"][read] == method]
    energies = (windows["energy_joules"] / windows["samples"])[read]
    joules = intervals.interval(energies, windows["run_id"][read], deviations)
    idle = _present(windows["idle_watts"][read])
    is_short = float(numpy.fmin.reduce(windows["seconds"][read])) < SHORTEST_WINDOW
    note = f"windows under {SHORTEST_WINDOW:g} s are short for a sensor" if is_short else ""
    return joules.columns(*ENERGY_COLUMNS) | {
        "energy_method": method,
        "energy_boundary": boundary,
        "idle_watts": float(numpy.median(idle)) if len(idle) else None,
        "energy_note": note,
    }


def _present(values: numpy.ndarray) -> numpy.ndarray:
    return values[~numpy.isnan(values)]
