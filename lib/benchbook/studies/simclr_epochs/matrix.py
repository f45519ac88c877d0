"""The support matrix as a table and a chart: precision by compiler and device, each cell with its speed-up."""

import textwrap

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import support

STATUS_COLOURS = {"ok": "#009E73", "unsupported": "#999999", "out_of_memory": "#E69F00", "diverged": "#D55E00"}
LINE = ["machine", "study", "device", "framework_version", "compiled"]  # what a line of fields shares


def matrix(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return what each device supports: every precision that was tried, with and without the compiler.

    Returns:
        One line per machine, study, device, framework version, compiler and precision, of the last run that tried:
        chip, dataset, batch_size, status (see STATUS_COLOURS), samples_per_second, speedup (over fp32
        without the compiler in the same run), low, high (range over windows), num_windows, message.
    """
    tried = support.rows_tried(rows, support.MATRIX)
    key = ["machine", "chip", "study", "device", "framework_version"]
    tried = tried[tried["run_id"] == tried.groupby(key, dropna=False)["run_id"].transform("max")]
    lines = []
    for values, run in tried.groupby(key, dropna=False, sort=True):
        plain = run[(run["precision"] == support.PRECISIONS[0]) & ~run["compiled"].fillna(True).astype(bool)]
        base = float(plain["samples_per_second"].astype(float).median())
        for (compiled, precision), cell in run.groupby(["compiled", "precision"], sort=False):
            identity = dict(zip(key, values, strict=True)) | {"compiled": bool(compiled), "precision": precision}
            lines.append(identity | _cell(cell, base))
    columns = [*key, "dataset", "batch_size", "compiled", "precision", "status", "samples_per_second", "speedup"]
    return pandas.DataFrame(lines, columns=[*columns, "low", "high", "num_windows", "message"])


def events(cells: pandas.DataFrame) -> dict[str, float]:
    """Return what happened on one device, 1 or 0: amp_refused, compile_refused, half_trained; only what was tried.

    Args:
        cells: lines of `matrix`.
    """
    eager, works = ~cells["compiled"].astype(bool), cells["status"] == "ok"
    tried = {
        "amp_refused": (eager & cells["precision"].str.startswith("amp_"), False),
        "compile_refused": (~eager, False),
        "half_trained": (eager & cells["precision"].isin(["bf16", "fp16"]), True),
    }
    return {name: float(works[those].any() == wanted) for name, (those, wanted) in tried.items() if those.any()}


def draw(axes: Axes, cells: pandas.DataFrame) -> None:
    """Draw a field per precision, device and compiler: how many times as fast as fp32, or what went wrong."""
    lines = cells[LINE].drop_duplicates().reset_index(drop=True)
    names = [name for name in support.PRECISIONS if name in set(cells["precision"])]
    places = cells.groupby(LINE, dropna=False, sort=False).ngroup()
    for cell, y in zip(cells.to_dict("records"), places, strict=True):
        x = names.index(cell["precision"])
        axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=STATUS_COLOURS[cell["status"]], alpha=0.35, lw=0)
        axes.text(x + 0.5, y + 0.5, _words(cell), ha="center", va="center", fontsize=8)
    axes.set_xticks(numpy.arange(len(names)) + 0.5, names)
    labels = [
        f"{line['machine']}\n{line['device']}, {'compiled' if line['compiled'] else 'eager'}"
        for line in lines.to_dict("records")
    ]
    axes.set_yticks(lines.index + 0.5, labels)
    axes.set(xlim=(0, max(1, len(names))), ylim=(max(1, len(lines)), 0))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title(cells))


def num_lines(cells: pandas.DataFrame) -> int:
    """Return how many lines of fields the chart has."""
    return len(cells[LINE].drop_duplicates())


def title(cells: pandas.DataFrame) -> str:
    """Return what the matrix shows, in a sentence with its numbers."""
    if cells.empty:
        return "Precisions and compiler: not tried here yet"
    works = cells[cells["status"] == "ok"]
    text = f"{len(works)} of {len(cells)} combinations work"
    if works["speedup"].notna().any():
        best = works.loc[works["speedup"].astype(float).idxmax()]
        how = "compiled" if best["compiled"] else "eager"
        text += f"; the fastest is {best['precision']}, {how}, at {best['speedup']:.2f}x of fp32 ({best['device']})"
    return text


def _cell(cell: pandas.DataFrame, base: float) -> dict:
    """Return a field of the matrix; one failure speaks for the field."""
    failed = cell[cell["status"] != "ok"]
    first = failed.iloc[0] if len(failed) else cell.iloc[0]
    known = {name: first[name] for name in ("dataset", "batch_size", "status", "message")}
    rates = cell["samples_per_second"].astype(float)
    if len(failed):
        return known
    measures = {"speedup": rates.median() / base, "low": rates.min() / base, "high": rates.max() / base}
    return known | {"samples_per_second": rates.median(), "num_windows": len(cell)} | measures


def _words(cell: dict) -> str:
    if cell["status"] == "ok":
        if pandas.isna(cell["speedup"]):
            return f"works\nn={cell['num_windows']:.0f}"
        span = f"{cell['low']:.2f} to {cell['high']:.2f}, n={cell['num_windows']:.0f}"
        return f"{cell['speedup']:.2f}x\n{span}"
    message = textwrap.shorten(str(cell["message"]).replace(":", ": "), 40, placeholder=" ...")
    return textwrap.fill(cell["status"].replace("_", " ") + ": " + message, 20)
