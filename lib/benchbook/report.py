"""The static site: it lays out figures and tables that the aggregation wrote, and computes nothing."""

import json
import shutil
import subprocess
from pathlib import Path

import jinja2
import numpy
import pandas

from benchbook import kernel, layout

# Studies and their figures, in the page's order; one that the aggregation did not write is left out.
FIGURES = {
    "mnist_speedup": ("mnist-epochs", "mnist-speedup", "mnist-input-share", "mnist-step-time"),
    "vae_stability": ("vae-loss", "vae-parity"),
    "mobilenetv2_energy": ("mobilenetv2-settings", "mobilenetv2-loss"),
    "simclr_epochs": ("simclr-epochs", "simclr-input-share", "simclr-accuracy", "support"),
    "segmentation_scaling": ("segmentation-times", "segmentation-masks", "sustained", "scaling"),
    "resnet50_cost": ("resnet50-batches", "resnet50-scaling", "resnet50-money", "resnet50-accuracy"),
    "calibrate": ("ceilings", "efficiency"),
}


def write() -> Path:
    """Run the aggregation notebook over all rows, then write the page; return its path.

    Raises:
        RuntimeError: the notebook failed; the message ends with what it printed last.
    """
    outputs = layout.outputs()
    executed = outputs / "report" / "90_aggregate.ipynb"
    executed.parent.mkdir(parents=True, exist_ok=True)
    command = kernel.command(layout.notebook("aggregate"), executed)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the aggregation failed:\n{done.stderr[-2000:]}")
    return write_page(outputs / "figures", outputs / "report")


def write_page(figures: Path, folder: Path) -> Path:
    """Write index.html into a folder, with a copy of every file it shows.

    Args:
        figures: what the aggregation wrote.
        folder: the site's folder.
    """
    files = folder / "files"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    for file in (path for path in figures.iterdir() if path.is_file()):
        shutil.copyfile(file, files / file.name)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("report.html").render(
        sections=[section for study, names in FIGURES.items() if (section := _section(figures, study, names))],
        summary=_table(figures / "summary.csv", SUMMARY),
        failures=_failures(figures / "summary.csv"),
        parity=_table(figures / "parity.csv", PARITY),
        claims=_table(figures / "claims.csv", CLAIMS),
    )
    path = folder / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


SUMMARY = {
    "machine": "machine",
    "study": "study",
    "point": "point",
    "dataset": "data set",
    "samples_per_second": "images/s",
    "low": "low",
    "high": "high",
    "num_windows": "windows",
    "accuracy": "accuracy",
    "energy_per_sample": "J/image",
    "energy_method": "read by",
    "energy_boundary": "of",
    "idle_watts": "idle W",
    "energy_note": "energy note",
    "verdict": "verdict",
    "status": "status",
}
PARITY = {
    "machine": "machine",
    "study": "study",
    "device": "device",
    "precision": "precision",
    "framework": "framework",
    "framework_version": "version",
    "num_runs": "runs",
    "num_steps": "steps",
    "passed": "agrees",
    "reason": "why",
}
CLAIMS = {
    "sentence": "claim",
    "published": "claimed",
    "machine": "machine",
    "source": "from",
    "value": "value",
    "low": "low",
    "high": "high",
    "verdict": "verdict",
    "reason": "why not",
}


def _section(folder: Path, study: str, names: tuple[str, ...]) -> dict:
    """Return a study's figures under the question that its notebook's title asks; what nobody measured is named."""
    title = layout.cells(layout.notebook(study))[0]["source"].partition("\n")[0].removeprefix("# ")
    drawn = [_figure(folder, name) for name in names if (folder / f"{name}.json").exists()]
    if not drawn:
        return {}
    parts = {"figures": [one for one in drawn if not one["empty"]], "missing": [one for one in drawn if one["empty"]]}
    return {"study": study, "title": title} | parts


def _figure(folder: Path, name: str) -> dict:
    return {"name": name} | json.loads((folder / f"{name}.json").read_text())


def _table(path: Path, columns: dict[str, str]) -> dict:
    """Return headers and lines as text; numbers with four digits, missing ones empty."""
    table = _read(path).reindex(columns=list(columns))
    numeric = [pandas.api.types.is_numeric_dtype(table[name]) for name in table]
    lines = [[_text(value) for value in line] for line in table.itertuples(index=False)]
    return {"headers": list(columns.values()), "lines": lines, "numeric": numeric}


def _failures(path: Path) -> list[dict]:
    table = _read(path)
    if "status" not in table:
        return []
    failed = table[table["status"] != "ok"].astype(object)
    return failed.where(failed.notna(), "").to_dict("records")


def _read(path: Path) -> pandas.DataFrame:
    """Read a table; a name or message that looks like a number, or like NA, stays what it is."""
    text = dict.fromkeys(("machine", "point", "message"), "string")
    return pandas.read_csv(path, dtype=text, keep_default_na=False, na_values=[""])


def _text(value) -> str:
    if pandas.isna(value):
        return ""
    if isinstance(value, (bool, numpy.bool_)):
        return "yes" if value else "no"
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:,.0f}"
        if isinstance(value, (int, float))
        else str(value)
    )
