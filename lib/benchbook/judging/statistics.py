"""What a point's measured windows say: rate, spread, interval, input, energy, accuracy; and fits of step times."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy
import pandas

from benchbook.judging import energy, intervals
from benchbook.judging.intervals import History, Interval
from benchbook.rows import records

POINT_KEY = ["machine", "study", "point"]
TOO_FEW = "too few windows or kernels"


@dataclass(frozen=True)
class Ratio:
    """How two points compare.

    Attributes:
        value: rate of B over that of A.
        low, high: its bounds.
        kind: `interval` (95 %) or `range` (one of the two has too few windows or kernels).
        verdict: `A faster`, `B faster`, `no difference shown` or, of a range, `too few windows or kernels`.
    """

    value: float
    low: float
    high: float
    kind: str
    verdict: str


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median, in the unit of the values."""
    array = numpy.asarray(values, float)
    return float(numpy.median(numpy.abs(array - numpy.median(array))))


def ratio(a: Interval, b: Interval) -> Ratio:
    """Compare the rates of two points, higher being faster: B over A, with a 95 % interval and a verdict."""
    result = intervals.divide(b, a)
    verdict = "B faster" if result.low > 1 else "A faster" if result.high < 1 else "no difference shown"
    verdict = TOO_FEW if result.kind == intervals.RANGE else verdict
    return Ratio(result.value, result.low, result.high, result.kind, verdict)


def newest(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return, for each point of each machine, the rows of the session that started last.

    Sessions without a time stand before those with one; of equal times, that of the larger run id is the last.
    """
    rows = rows[rows["session"].notna()]
    point = rows.groupby(POINT_KEY, sort=False).ngroup().to_numpy()
    session = rows.groupby([*POINT_KEY, "session"], sort=False).ngroup().to_numpy()
    # Numbers in the order of the texts, -1 where one is missing, are compared much faster than the texts.
    started, run = (pandas.factorize(rows[name], sort=True)[0] for name in ("started_at", "run_id"))
    sessions = pandas.DataFrame({"point": point, "session": session, "run": run})
    sessions["started"] = numpy.where(started >= 0, started, len(rows))
    ends = sessions.groupby("session").agg(point=("point", "first"), started=("started", "min"), run=("run", "max"))
    ends["started"] = ends["started"].where(ends["started"] < len(rows), -1)
    last = ends.sort_values(["started", "run"]).reset_index().drop_duplicates("point", keep="last")["session"]
    return rows[numpy.isin(session, last)]


def summarise(
    rows: pandas.DataFrame, phase: str = "train", history: Mapping[tuple[str, str, str], History] | None = None
) -> pandas.DataFrame:
    """Return one line per point: rate, spread, interval, accuracy and outcome.

    Args:
        rows: rows as `records.merge` returns them; measured ones count.
        phase: whose windows to summarise.
        history: from `intervals.histories`, where these rows are a part of all there are; None learns it from them.

    Returns:
        Columns: the point's key and description (of its windows, where it has any), num_kernels, num_windows,
        samples_per_second (of each kernel the median, of kernels the geometric mean), spread (MAD over median of all
        windows), low, high (of samples_per_second), interval (its kind, see `intervals.Interval`), num_samples (in all
        windows), seconds_per_step, input_share_waited (median) and the range of its windows (waited_low, waited_high),
        accuracy (at the end of training, the median of repeats), the columns of `energy.summarise`, the bounds of its
        joules and their kind (energy_low, energy_high, energy_interval), status, message.
    """
    measured = newest(rows[rows["source"] == "measured"])
    deviations = intervals.histories(rows) if history is None else history
    windows = measured[(measured["phase"] == phase) & (measured["samples_per_second"] > 0).fillna(False)]
    described = _describe(measured, windows)
    history_of_phase = deviations if phase == "train" else {}
    measures = {
        key: _measures(of_point, key[0], history_of_phase)
        for key, of_point in divide(windows, POINT_KEY, _MEASURED, _KINDS)
    }
    lines = [line | measures.get(key, {}) for key, line in described.items()]
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
        yield values, {name: column[places] for name, column in columns.items()}


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


_DESCRIPTION = [
    *POINT_KEY,
    *["variant", "chip", "device", "device_name", "framework", "framework_version", "precision", "compiled"],
    *["model", "parameters", "dataset", "dataset_samples", "image_size", "batch_size", "num_workers"],
    *["device_count", "flops_per_sample", "settings", "session", "commit"],
]
_MEASURES = [
    *["num_kernels", "num_windows", "num_samples", "samples_per_second", "spread", "low", "high", "interval"],
    *["seconds_per_step", "input_share_waited", "waited_low", "waited_high", "accuracy"],
    *[
        "energy_per_sample",
        "energy_low",
        "energy_high",
        "energy_interval",
        "energy_method",
        "energy_boundary",
        "idle_watts",
    ],
    *["energy_note", "status", "message"],
]
# Columns of windows: what is measured, and of what kind it is.
_MEASURED = ["seconds", "input_seconds", "samples_per_second", "samples", "batch_size", "energy_joules", "idle_watts"]
_KINDS = ["device", "run_id", "energy_method", "energy_boundary"]
_NUMBERS = ["samples_per_second", "spread", "low", "high", "seconds_per_step", "input_share_waited", "waited_low"]
_NUMBERS += ["waited_high", "accuracy", "energy_per_sample", "energy_low", "energy_high", "idle_watts"]


def _outcomes(measured: pandas.DataFrame) -> dict[tuple[str, str, str], dict]:
    """Return how each point ended that did not end well; that a run was interrupted is over once a later one began."""
    judged = records.without_refusals(measured)
    last_runs = measured.groupby(POINT_KEY)["run_id"].max().rename("last")
    resumed = (judged["status"] == "interrupted") & (judged["run_id"] != judged.join(last_runs, on=POINT_KEY)["last"])
    judged = judged.loc[~resumed, [*POINT_KEY, "status", "message"]]
    diverged, failures = judged[judged["status"] == "diverged"], judged[~judged["status"].isin(records.TRAINED)]
    ends = {}
    for some in (diverged, failures):  # a failure speaks before a divergence
        for *key, status, message in some.itertuples(index=False, name=None):
            ends[tuple(key)] = {"status": status, "message": message}
    return ends


def _describe(measured: pandas.DataFrame, windows: pandas.DataFrame) -> dict[tuple[str, str, str], dict]:
    """Return what each point is and how it ended, in order; what was tried beside its windows has another batch."""
    has_windows = pandas.MultiIndex.from_frame(measured[POINT_KEY]).isin(
        pandas.MultiIndex.from_frame(windows[POINT_KEY])
    )
    described = pandas.concat([windows, measured[~has_windows]])[_DESCRIPTION]
    lasts = described.groupby(POINT_KEY, sort=True).last().reset_index()[_DESCRIPTION].astype(object)
    lasts = lasts.where(lasts.notna(), None)
    tested = measured[measured["phase"] == "evaluate"].groupby([*POINT_KEY, "run_id", "repeat"])["accuracy"].last()
    groups = windows.groupby(POINT_KEY)
    numbers = {
        "num_kernels": groups["run_id"].nunique().to_dict(),
        "num_windows": groups.size().to_dict(),
        "accuracy": tested.dropna().astype(float).groupby(POINT_KEY).median().to_dict(),
    }
    missing, ends, well = {"num_kernels": 0, "num_windows": 0}, _outcomes(measured), {"status": "ok", "message": None}
    points = {}
    for line in lasts.to_dict("records"):
        key = tuple(line[name] for name in POINT_KEY)
        counted = {name: values.get(key, missing.get(name)) for name, values in numbers.items()}
        points[key] = line | counted | ends.get(key, well)
    return points


def _measures(
    windows: Mapping[str, numpy.ndarray], machine: str, history: Mapping[tuple[str, str, str], History]
) -> dict:
    """Return what a point's windows measured."""
    kernels, rates, device = windows["run_id"], windows["samples_per_second"], windows["device"][0]
    rate = intervals.of_values(rates, kernels, history.get((intervals.RATE, machine, device), intervals.NO_HISTORY))
    waited, sizes = _present(windows["input_seconds"] / windows["seconds"]), _present(windows["batch_size"])
    measures = {
        "samples_per_second": rate.value,
        "spread": median_absolute_deviation(rates) / float(numpy.median(rates)),
        "low": rate.low,
        "high": rate.high,
        "interval": rate.kind,
        "num_samples": int(_present(windows["samples"]).sum()),
        "seconds_per_step": sizes[-1] / rate.value if len(sizes) else None,
        "input_share_waited": float(numpy.median(waited)) if len(waited) else None,
        **energy.summarise(windows),
    }
    if len(waited):
        measures |= {"waited_low": waited.min(), "waited_high": waited.max()}
    if len(read := energy.read_places(windows)):
        joules_a_sample = (windows["energy_joules"] / windows["samples"])[read]
        total = history.get((intervals.ENERGY, machine, device), intervals.NO_HISTORY)
        joules = intervals.of_values(joules_a_sample, kernels[read], total)
        measures |= {"energy_per_sample": joules.value, "energy_low": joules.low, "energy_high": joules.high}
        measures["energy_interval"] = joules.kind
    return measures


def _present(values: numpy.ndarray) -> numpy.ndarray:
    return values[~numpy.isnan(values)]
