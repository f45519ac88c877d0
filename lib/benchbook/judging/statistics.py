"""One line per point: its rate, spread, interval, input, energy, accuracy and outcome, from its measured windows."""

from collections.abc import Iterator, Mapping, Sequence

import numpy
import pandas

from benchbook.judging import intervals
from benchbook.judging.intervals import ENERGY, RATE, Prior
from benchbook.rows import records

POINT_KEY = ["machine", "study", "point"]
ESTIMATE = "estimate_tdp"  # the energy method without a sensor
WARMED_UP = 0.95  # a first window slower than this share of its kernel carries the warm-up
MINUTE = 60.0
SHORTEST_WINDOW = 2.0  # seconds; energy counters such as Apple's move every second or two
_DESCRIPTION = [
    *POINT_KEY,
    *["variant", "chip", "device", "device_name", "framework", "framework_version", "precision", "compiled"],
    *["model", "parameters", "dataset", "dataset_samples", "image_size", "sequence_length", "batch_size"],
    *["num_workers", "device_count", "flops_per_sample", "settings", "session", "commit"],
]
ENERGY_COLUMNS = ["energy_per_sample", "energy_low", "energy_high", "energy_interval"]
_COUNTS = ["num_kernels", "num_windows", "num_samples"]
_TEXTS = ["interval", "energy_interval", "energy_method", "energy_boundary", "energy_note", "status", "message"]
_MEASURES = [*_COUNTS, "samples_per_second", "spread", "low", "high", "interval", "session_width", "seconds_per_step"]
_MEASURES += ["input_share_waited", "waited_low", "waited_high", "accuracy", *ENERGY_COLUMNS, "energy_method"]
_MEASURES += ["energy_boundary", "idle_watts", "energy_note", "status", "message"]
_NUMBERS = [name for name in _MEASURES if name not in (*_COUNTS, *_TEXTS)]
_SUSTAINED = [*POINT_KEY, "device", "framework", "variant"]
# Columns of windows: what is measured, and of what kind it is.
_MEASURED = ["seconds", "input_seconds", "samples_per_second", "samples", "batch_size", "energy_joules", "idle_watts"]
_KINDS = ["device", "run_id", "energy_method", "energy_boundary"]


def settled(rates: Sequence[float], runs: Sequence) -> list[numpy.ndarray]:
    """Return the rates of each run's windows, without a first window that is over 5 % slower than the rest."""
    array, names = numpy.asarray(rates, float), numpy.asarray(runs)
    series = [array[names == run] for run in dict.fromkeys(names.tolist())]
    return [each[1:] if each[0] < WARMED_UP * numpy.median(each) else each for each in series]


def spread(series: Sequence[numpy.ndarray]) -> float:
    """Return how far windows lie from the mean of their run, as a fraction: of normal noise half of them lie nearer."""
    away = [numpy.log(each) - numpy.log(each).mean() for each in series]
    freedom = max(1, sum(map(len, away)) - len(away))
    return 0.6745 * float(numpy.sqrt(numpy.sum(numpy.square(numpy.concatenate(away))) / freedom))


def newest(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return, for each point of each machine, the rows of the session that started last.

    Sessions without a time stand before those with one; of equal times, that of the larger run id is the last.
    """
    rows = rows[rows["session"].notna()]
    point = rows.groupby(POINT_KEY, sort=False).ngroup().to_numpy()
    session = rows.groupby([*POINT_KEY, "session"], sort=False).ngroup().to_numpy()
    # Codes in the order of the texts (-1: missing) are compared much faster than the texts.
    started, run = (pandas.factorize(rows[name], sort=True)[0] for name in ("started_at", "run_id"))
    sessions = pandas.DataFrame({"point": point, "session": session, "run": run})
    sessions["started"] = numpy.where(started >= 0, started, len(rows))
    ends = sessions.groupby("session").agg(point=("point", "first"), started=("started", "min"), run=("run", "max"))
    ends["started"] = ends["started"].where(ends["started"] < len(rows), -1)
    last = ends.sort_values(["started", "run"]).reset_index().drop_duplicates("point", keep="last")["session"]
    return rows[numpy.isin(session, last)]


def summarise(rows: pandas.DataFrame, priors: Mapping[tuple[str, str, str], Prior] | None = None) -> pandas.DataFrame:
    """Return one line per point, from its training windows: rate, spread, interval, energy, accuracy and outcome.

    Args:
        rows: rows as `records.merge` returns them; measured ones count.
        priors: from `intervals.priors`, where these rows are a part of all there are; None learns them from these.

    Returns:
        Columns: the point's key and description (of its windows, where it has any), num_kernels, num_windows,
        samples_per_second (of each kernel the median, of kernels the geometric mean), spread (of windows), low, high
        (of samples_per_second), interval (its kind) and session_width (see `intervals.Interval`), num_samples (in all
        windows), seconds_per_step, input_share_waited (median) and the range of its windows (waited_low, waited_high),
        accuracy (at the end of training, the median of repeats), energy_per_sample (J; idle power is not subtracted;
        of windows read by several methods those of the last one count) with its bounds and their kind (energy_low,
        energy_high, energy_interval), energy_method, energy_boundary, idle_watts, energy_note (what keeps the figure
        from being taken as it is, empty if nothing does), status, message.
    """
    priors = intervals.priors(rows) if priors is None else priors
    measured = newest(rows[rows["source"] == "measured"])
    windows = measured[(measured["phase"] == "train") & (measured["samples_per_second"] > 0).fillna(False)]
    measures = {
        key: _measures(of_point, key[0], priors) for key, of_point in divide(windows, POINT_KEY, _MEASURED, _KINDS)
    }
    lines = [line | measures.get(key, {}) for key, line in _describe(measured, windows).items()]
    return pandas.DataFrame(lines, columns=[*_DESCRIPTION, *_MEASURES]).astype(dict.fromkeys(_NUMBERS, float))


def divide(
    table: pandas.DataFrame, key: list[str], numbers: list[str], texts: list[str]
) -> Iterator[tuple[tuple, dict[str, numpy.ndarray]]]:
    """Divide a table's columns by key: arrays of thousands of groups are made much faster than tables.

    Args:
        table: any.
        key: columns in which the lines of a group agree; a line that lacks one is left out.
        numbers: columns that become floats, NaN where they are missing.
        texts: columns that are kept as they are.

    Yields:
        The values of the key, and the group's columns by name, its lines in the table's order.
    """
    columns = {name: table[name].to_numpy(float, na_value=numpy.nan) for name in numbers}
    columns |= {name: table[name].to_numpy(object) for name in texts}
    for values, places in table.groupby(key, sort=False).indices.items():
        values = values if isinstance(values, tuple) else (values,)
        yield values, {name: column[places] for name, column in columns.items()}


def tokens_per_second(table: pandas.DataFrame) -> pandas.Series:
    """Return the tokens a second of windows or points: sequences a second times their length; missing for images."""
    return table["samples_per_second"].astype(float) * table["sequence_length"].astype(float)


def in_units(line: Mapping) -> tuple[float, float, float, str]:
    """Return a point's rate with its bounds, and its unit: tokens for sequences, else images."""
    length = line.get("sequence_length")
    size, unit = (1.0, "images") if pandas.isna(length) else (float(length), "tokens")
    return *(size * float(line[name]) for name in ("samples_per_second", "low", "high")), unit


def fit_step_time(batch_sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Split step time into a fixed part and a part per sample.

    Least squares of relative errors, neither part negative.

    Args:
        batch_sizes: images in a step.
        seconds: that step's time, with the data resident on the device.

    Returns:
        Seconds per step that no batch size removes (launching), and seconds per sample (arithmetic).

    Raises:
        ValueError: fewer than two different batch sizes.
    """
    from scipy.optimize import nnls

    sizes, times = numpy.asarray(batch_sizes, float), numpy.asarray(seconds, float)
    if len(numpy.unique(sizes)) < 2:
        raise ValueError(f"batch sizes {sorted(set(sizes.tolist()))}; allowed: at least two different ones")
    design = numpy.stack([numpy.ones_like(sizes), sizes], axis=1) / times[:, None]
    (fixed, per_sample), _ = nnls(design, numpy.ones_like(times))
    return float(fixed), float(per_sample)


def sustained(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the windows of each sustained point's last run, with the minutes at which they end.

    A machine without a fan is not what its first seconds say.

    Returns:
        Columns: machine, study, point, device, framework, variant, minutes, samples, seconds, samples_per_second.
    """
    long = [settings.get("sustained_minutes", 0) > 0 for settings in rows["settings"]]
    long = pandas.Series(long, rows.index, dtype=bool)
    timed = newest(rows[long & (rows["source"] == "measured")])
    timed = timed[(timed["phase"] == "train") & timed["samples_per_second"].notna()]
    timed = timed[timed["run_id"] == timed.groupby(["machine", "point"])["run_id"].transform("max")]
    timed = timed.sort_values(["machine", "point", "index"])
    minutes = timed.groupby(["machine", "point"])["seconds"].cumsum().astype(float) / MINUTE
    columns = [*_SUSTAINED, "minutes", "samples", "seconds", "samples_per_second"]
    return timed.assign(minutes=minutes)[columns].reset_index(drop=True)


def first_and_last(timed: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rate of each sustained point's first minute and of its last, side by side.

    A window belongs to the minute in which it ended, or in the last minute began. A run of under two minutes is halved
    instead, and `stretch` says so.

    Args:
        timed: from `sustained`.

    Returns:
        Columns: machine, study, point, device, framework, variant, minutes (in all), stretch (minutes at each end),
        first, last (images a second), change (a fraction of the first).
    """
    lines = []
    for values, run in timed.groupby(_SUSTAINED, dropna=False, sort=True):
        total = run["minutes"].max()
        stretch = min(1.0, total / 2)
        begun = run["minutes"] - run["seconds"] / MINUTE
        first, last = run[run["minutes"] <= stretch], run[begun >= total - stretch - 1e-9]
        ends = (part if len(part) else run.iloc[[end]] for part, end in ((first, 0), (last, -1)))
        rates = [float(part["samples"].sum() / part["seconds"].sum()) for part in ends]
        lines.append((*values, total, stretch, *rates, rates[1] / rates[0] - 1))
    return pandas.DataFrame(lines, columns=[*_SUSTAINED, "minutes", "stretch", "first", "last", "change"])


def _outcomes(measured: pandas.DataFrame) -> dict[tuple[str, str, str], dict]:
    """Return the failure of each point that failed; an interrupted run does not count once a later run began."""
    judged = records.without_refusals(measured)
    last_runs = measured.groupby(POINT_KEY)["run_id"].max().rename("last")
    resumed = (judged["status"] == "interrupted") & (judged["run_id"] != judged.join(last_runs, on=POINT_KEY)["last"])
    judged = judged.loc[~resumed, [*POINT_KEY, "status", "message"]]
    diverged, failures = judged[judged["status"] == "diverged"], judged[~judged["status"].isin(records.TRAINED)]
    ends = pandas.concat([diverged, failures]).to_numpy().tolist()  # a later one replaces one before: a failure is told
    return {tuple(key): {"status": status, "message": message} for *key, status, message in ends}


def _describe(measured: pandas.DataFrame, windows: pandas.DataFrame) -> dict[tuple[str, str, str], dict]:
    """Return what each point is and how it ended, in order; its windows tell its batch size, not its trials."""
    has_windows = pandas.MultiIndex.from_frame(measured[POINT_KEY]).isin(
        pandas.MultiIndex.from_frame(windows[POINT_KEY])
    )
    described = pandas.concat([windows, measured[~has_windows]])[_DESCRIPTION]
    lasts = described.groupby(POINT_KEY, sort=True).last().reset_index()[_DESCRIPTION].astype(object)
    lasts = lasts.where(lasts.notna(), None)
    tested = measured[measured["phase"] == "evaluate"].groupby([*POINT_KEY, "run_id", "repeat"])["accuracy"].last()
    accuracies = tested.dropna().astype(float).groupby(POINT_KEY).median().to_dict()
    ends, well = _outcomes(measured), {"status": "ok", "message": None, "num_kernels": 0, "num_windows": 0}
    lines = {tuple(line[name] for name in POINT_KEY): line for line in lasts.to_dict("records")}
    return {key: line | {"accuracy": accuracies.get(key)} | well | ends.get(key, {}) for key, line in lines.items()}


def _measures(windows: Mapping[str, numpy.ndarray], machine: str, priors: Mapping[tuple, Prior]) -> dict:
    """Return what a point's windows measured."""
    known = {measure: priors.get((measure, machine, windows["device"][0])) for measure in (RATE, ENERGY)}
    runs, rates = windows["run_id"], windows["samples_per_second"]
    rate = intervals.interval(rates, runs, known[RATE])
    waited, sizes = _present(windows["input_seconds"] / windows["seconds"]), _present(windows["batch_size"])
    measures = rate.columns("samples_per_second") | {
        "num_kernels": len(set(runs)),
        "num_windows": len(runs),
        "spread": spread(settled(rates, runs)),
        "session_width": (known[RATE] or intervals.weak_prior()).session_width,
        "num_samples": int(_present(windows["samples"]).sum()),
        "seconds_per_step": sizes[-1] / rate.value if len(sizes) else None,
    }
    if len(waited):
        median = float(numpy.median(waited))
        measures |= {"input_share_waited": median, "waited_low": waited.min(), "waited_high": waited.max()}
    read = numpy.flatnonzero(~numpy.isnan(windows["energy_joules"]))
    if not len(read):
        return measures
    method, boundary = (windows[name][read[-1]] for name in ("energy_method", "energy_boundary"))
    read = read[windows["energy_method"][read] == method]
    joules = intervals.interval((windows["energy_joules"] / windows["samples"])[read], runs[read], known[ENERGY])
    idle = _present(windows["idle_watts"][read])
    note = "an estimate from a stated power, not measured" if method == ESTIMATE else ""
    if not note and float(numpy.fmin.reduce(windows["seconds"][read])) < SHORTEST_WINDOW:
        note = f"windows under {SHORTEST_WINDOW:g} s are short for a sensor"
    return (
        measures
        | joules.columns(*ENERGY_COLUMNS)
        | {
            "energy_method": method,
            "energy_boundary": boundary,
            "idle_watts": float(numpy.median(idle)) if len(idle) else None,
            "energy_note": note,
        }
    )


def _present(values: numpy.ndarray) -> numpy.ndarray:
    return values[~numpy.isnan(values)]
