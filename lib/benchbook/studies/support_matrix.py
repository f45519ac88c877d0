"""The support matrix as a table and a chart: precision by compiler and device, each cell with its speed-up."""

import pandas

from benchbook.judging import wording
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import support
from benchbook.studies import quantities
from benchbook.studies.charts import Bars
from benchbook.studies.findings import Says
from benchbook.studies.study import Evidence, once


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
    tried = tried.astype({"samples_per_second": float})
    fields = []
    for _, run in tried.groupby(key, dropna=False, sort=True):
        plain = run[(run["precision"] == support.PRECISIONS[0]) & ~run["compiled"].fillna(True).astype(bool)]
        base = float(plain["samples_per_second"].median())
        for (compiled, _), windows in run.groupby(["compiled", "precision"], sort=False):
            failed, rates = windows[windows["status"] != "ok"], windows["samples_per_second"]
            field = (failed if len(failed) else windows).iloc[0].to_dict()  # one failure speaks for the field
            field |= {"compiled": bool(compiled), "samples_per_second": None}
            if failed.empty:
                measures = {"speedup": rates.median() / base, "low": rates.min() / base, "high": rates.max() / base}
                field |= measures | {"samples_per_second": rates.median(), "num_windows": len(windows)}
            fields.append(field)
    columns = [*key, "dataset", "batch_size", "compiled", "precision", "status", "samples_per_second", "speedup"]
    return pandas.DataFrame(fields, columns=[*columns, "low", "high", "num_windows", "message"])


def claimed(evidence: Evidence, study: str) -> list[dict]:
    """Return what each accelerator refused or did in a study, for claims, as far as it was tried.

    Returns:
        Quantities amp_refused, compile_refused and half_trained, 1 or 0.
    """
    cells, values = table(evidence), []
    cells = cells[(cells["study"] == study) & (cells["device"] != "cpu")].assign(source="measured")
    for _, own in cells.groupby(["machine", "device"], sort=True):
        eager, works = ~own["compiled"].astype(bool), own["status"] == "ok"
        mixed = own["precision"].map(lambda name: bool(PRECISIONS[name].autocast))
        half = own["precision"].map(lambda name: PRECISIONS[name].family == "half")
        tried = {
            "amp_refused": (eager & mixed, False),
            "compile_refused": (~eager, False),
            "half_trained": (eager & ~mixed & half, True),
        }
        for name, (those, wanted) in tried.items():
            if those.any():
                values.append(quantities.exact(own.iloc[0].to_dict(), name, works[those].any() == wanted))
    return values


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
    label=("study", "framework_version", "precision", "compiled"),
    usual={"compiled": False},
    text="{speedup:.2f}x",
    xlabel="times as fast as fp32 without the compiler",
    reference=1,
)
