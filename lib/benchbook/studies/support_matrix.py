"""The support matrix as a table and a chart: precision by compiler and device, each cell with its speed-up."""

import textwrap

import numpy
import pandas

from benchbook.judging import wording
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import support
from benchbook.record import naming
from benchbook.studies import figures, quantities
from benchbook.studies.study import Chart, Drawing, Evidence, once

STATUS_COLOURS = {"ok": "#009E73", "unsupported": "#999999", "out_of_memory": "#E69F00", "diverged": "#D55E00"}
ROW = ["machine", "study", "device", "framework_version", "compiled"]  # what a row of fields shares

_SPOKEN = ["dataset", "batch_size", "status", "message"]  # what a row says of its field


@once
def table(evidence: Evidence) -> pandas.DataFrame:
    """Return what each device supports: every precision that was tried, with and without the compiler.

    Returns:
        One line per machine, study, device, framework version, compiler and precision, of the last run that tried:
        chip, dataset, batch_size, status (see STATUS_COLOURS), samples_per_second, speedup (over fp32
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


def draw(evidence: Evidence) -> Drawing:
    """Draw a field per precision, device and compiler: how many times as fast as fp32, or what went wrong."""
    every = table(evidence)
    figure, axes = figures.canvas(1.4 + 0.6 * max(1, len(every[ROW].drop_duplicates())))
    cells = figures.of_few_machines(axes, every)
    rows = cells[ROW].drop_duplicates().reset_index(drop=True)
    names = [name for name in support.PRECISIONS if name in set(cells["precision"])]
    places = cells.groupby(ROW, dropna=False, sort=False).ngroup()
    for cell, y in zip(cells.to_dict("records"), places, strict=True):
        x = names.index(cell["precision"])
        axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=STATUS_COLOURS[cell["status"]], alpha=0.35, lw=0)
        axes.text(x + 0.5, y + 0.5, _words(cell), ha="center", va="center", fontsize=8)
    axes.set_xticks(numpy.arange(len(names)) + 0.5, names)
    compilers = rows["compiled"].map({True: "compiled", False: "eager"})
    labels = [
        f"{evidence.names.place(row)}\n{how}" for row, how in zip(rows.to_dict("records"), compilers, strict=True)
    ]
    axes.set_yticks(rows.index + 0.5, labels)
    axes.set(xlim=(0, max(1, len(names))), ylim=(max(1, len(rows)), 0), title=title(every))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return Drawing.titled(figure, every, "A field for each precision, device and compiler")


def title(cells: pandas.DataFrame) -> str:
    """Return what the matrix shows, in a sentence with its numbers."""
    if cells.empty:
        return "Precisions and compiler: not tried here yet"
    works = cells[cells["status"] == "ok"]
    best = works["speedup"].astype(float).max()
    if not best > wording.ALIKE:
        return f"{len(works)} of {len(cells)} combinations of precision and compiler work, none faster than plain fp32"
    fastest = works.loc[works["speedup"].astype(float).idxmax()]
    how = f"{fastest['precision']}{', compiled,' if fastest['compiled'] else ''}"
    device = naming.device_word(fastest["device"])
    return f"{how} is {wording.times(best)} times as fast as plain fp32 ({device}), the most of {len(works)} that work"


CHART = Chart(
    "support",
    "Which precisions work, and do they pay?",
    "The same steps from the same weights, on views that are on the device already, compared with fp32 without the"
    " compiler.",
    draw,
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


def _words(cell: dict) -> str:
    if cell["status"] == "ok":
        if pandas.isna(cell["speedup"]):
            return f"works\nn={cell['num_windows']:.0f}"
        span = f"{cell['low']:.2f} to {cell['high']:.2f}, n={cell['num_windows']:.0f}"
        return f"{cell['speedup']:.2f}x\n{span}"
    message = textwrap.shorten(str(cell["message"]).replace(":", ": "), 40, placeholder=" ...")
    return textwrap.fill(cell["status"].replace("_", " ") + ": " + message, 20)
