"""The support matrix as a table and a chart: precision by compiler and device, each cell with its speed-up."""

import pandas

from benchbook.judging import wording
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import support
from benchbook.studies import quantities
from benchbook.studies.charts import Bars
from benchbook.studies.findings import Says
from benchbook.studies.study import Evidence, once

_SPOKEN = ["dataset", "batch_size", "status", "message"]  # what a row says of its field


@once
def table(evidence: Evidence) -> pandas.DataFrame:
    """Return what each device supports: every precision that was tried, with and without the compiler.

    Returns:
        One line per machine, study, device, framework version, compiler and precision, of the last run that tried:
        chip, dataset, batch_size, status, samples_per_second, speedup (over fp32
        without the compiler in the same run), low, high (range over windows), num_windows, message.
    """
    tried = support.rows_tried(evidence.measured, support.MATRIX)
    key = ["machine", "chip", "study", "device", "framework_version"]
    tried = tried[tried["run_id"] == tried.groupby(key, dropna=False)["run_id"].transform("max")]
    tried = tried[[*key, "compiled", "precision", *_SPOKEN, "samples_per_second"]]
    tried["samples_per_second"] = tried["samples_per_second"].astype(float)
    fields = []
    for values, run in tried.groupby(key, dropna=False, sort=True):
        plain = run[(run["precision"] == support.PRECISIONS[0]) & ~run["compiled"].fillna(True).astype(bool)]
        base = float(plain["samples_per_second"].median())
        for (compiled, precision), windows in run.groupby(["compiled", "precision"], sort=False):
            identity = dict(zip(key, values, strict=True)) | {"compiled": bool(compiled), "precision": precision}
            fields.append(identity | _field(windows, base))
    columns = [*key, "dataset", "batch_size", "compiled", "precision", "status", "samples_per_second", "speedup"]
    return pandas.DataFrame(fields, columns=[*columns, "low", "high", "num_windows", "message"])


def claimed(evidence: Evidence, study: str) -> list[dict]:
    """Return what each accelerator refused or did in a study, for claims; see `events`."""
    cells = table(evidence)
    cells = cells[(cells["study"] == study) & (cells["device"] != "cpu")].assign(source="measured")
    return [
        quantities.exact(device_cells.iloc[0].to_dict(), name, value)
        for _, device_cells in cells.groupby(["machine", "device"], sort=True)
        for name, value in events(device_cells).items()
    ]


def events(cells: pandas.DataFrame) -> dict[str, float]:
    """Return what happened on one device, 1 or 0: amp_refused, compile_refused, half_trained; only what was tried.

    Args:
        cells: lines of `table`.
    """
    eager, works = ~cells["compiled"].astype(bool), cells["status"] == "ok"
    precisions = [PRECISIONS[name] for name in cells["precision"]]
    mixed = pandas.Series([bool(precision.autocast) for precision in precisions], cells.index)
    half = pandas.Series([precision.family == "half" for precision in precisions], cells.index)
    tried = {
        "amp_refused": (eager & mixed, False),
        "compile_refused": (~eager, False),
        "half_trained": (eager & ~mixed & half, True),
    }
    return {name: float(works[those].any() == wanted) for name, (those, wanted) in tried.items() if those.any()}


OTHER = "precision != 'fp32' or compiled"  # than what is compared with
SAYS = Says(
    "{precision} is {value} times as fast as plain fp32 on {place}",
    "Precisions and compiler: not tried here yet",
    "speedup",
    wording.times,
    "most",
    OTHER,
)
CHART = Bars(
    "support",
    "Which precisions work, and do they pay?",
    "The same steps from the same weights, on views that are on the device already, compared with fp32 without the"
    " compiler. A cross is a precision that failed; the table has its message.",
    table=table,
    lines=lambda cells, evidence: cells.query(OTHER) if len(cells) else cells,
    title=SAYS,
    column="speedup",
    label=("study", "framework_version", "precision", "compiled"),
    usual={"compiled": False},
    text="{speedup:.2f}x",
    xlabel="times as fast as fp32 without the compiler",
    reference=1,
)


def _field(windows: pandas.DataFrame, base: float) -> dict:
    """Return what a field of the matrix says; one failure speaks for the field."""
    failed = windows[windows["status"] != "ok"]
    speaking = (failed if len(failed) else windows).iloc[0]
    field = {name: speaking[name] for name in _SPOKEN}
    if len(failed):
        return field
    rates = windows["samples_per_second"]
    measures = {"speedup": rates.median() / base, "low": rates.min() / base, "high": rates.max() / base}
    return field | {"samples_per_second": rates.median(), "num_windows": len(windows)} | measures
