"""Notebooks: the template they follow, and the same rows whichever way one is run."""

import io
import subprocess
import sys
import tokenize
from pathlib import Path

import nbformat
import pandas
import pytest

from benchbook.machine import identity, layout
from benchbook.rows import records
from benchbook.running import execute, profiles
from benchbook.running.profiles import Point
from processes import run_cells

NOTEBOOKS = list(layout.notebooks().values())
STUDIES = [path for path in NOTEBOOKS if not path.name.startswith(("00_", "90_"))]
SECTIONS = ["Setup", "Data", "Model", "Warm-up", "Measurement", "Result", "Rows and reading"]
# What differs between two runs of the same work: the clock, who ran it, and the process's memory.
CLOCK = {"session", "run_id", "started_at", "seconds", "input_seconds", "samples_per_second", "peak_memory_bytes"}
CLOCK |= {"page_faults"}


def cells_of(path: Path, kind: str) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def headings_of(path: Path, level: str) -> list[str]:
    lines = "\n".join(cell.source for cell in cells_of(path, "markdown")).splitlines()
    return [line.removeprefix(level).strip() for line in lines if line.startswith(f"{level} ")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_clean_and_short(path):
    code = cells_of(path, "code")
    assert not [cell for cell in code if cell.outputs or cell.execution_count]
    written = [cell for cell in code if "parameters" not in cell.metadata.get("tags", ())]  # those take a line each
    assert max(len([line for line in cell.source.splitlines() if not line.startswith("#")]) for cell in written) <= 30
    assert len(headings_of(path, "#")) == 1
    assert headings_of(path, "#")[0].endswith("?")
    text = "\n".join(cell.source for cell in code)
    assert not [word for word in ("!pip", "%autoreload", "filterwarnings", "/home/", "/Users/") if word in text]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_parameter_is_typed_literal_and_explained(path):
    tagged = [cell for cell in cells_of(path, "code") if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    tokens = tokenize.generate_tokens(io.StringIO(tagged[0].source).readline)
    explained = [token for token in tokens if token.type == tokenize.COMMENT and token.start[1] > 0]
    parameters = [line for line in tagged[0].source.splitlines() if not line.startswith("#")]
    assert len(explained) == len(parameters) == len(profiles.declared(path.stem.partition("_")[2]))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_has_the_templates_sections_in_order(path):
    assert headings_of(path, "##") == SECTIONS
    assert 12 <= len(nbformat.read(path, as_version=4).cells) <= 16


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if "90_" not in path.name], ids=lambda path: path.stem)
def test_a_run_has_ended_before_rows_of_other_runs_are_read(path):
    lines = "\n".join(cell.source for cell in cells_of(path, "code")).splitlines()
    others = [
        number for number, line in enumerate(lines) if "records.gather(" in line or "Evidence.of_machine(" in line
    ]
    assert others
    assert lines.index("run.end()") < min(others)
    assert not [line for line in lines if "records.merge(" in line]


@pytest.mark.slow
@pytest.mark.notebook
def test_its_cells_plain_papermill_and_the_graphs_runner_give_the_same_rows(tmp_path, monkeypatch):
    sizes = {"samples_per_window": 64, "num_windows": 1, "num_warmup_steps": 1, "num_parity_steps": 1}
    parameters = profiles.declared("mnist_speedup") | {"device": "cpu", "dataset": "digits"} | sizes
    point = Point("mnist_speedup", profiles.point_name("mnist_speedup", parameters), parameters, 1, 120)
    rows = {}
    for run in (run_all, run_papermill, run_executor):
        outputs = tmp_path / run.__name__
        monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(outputs))
        outputs.mkdir()
        run(point, outputs)
        rows[run.__name__] = records.merge(records.find(outputs / "runs")).drop(columns=list(CLOCK))
    assert rows["run_all"]["phase"].tolist() == ["setup", "parity", "compile", "warmup", "train", "evaluate"]
    for way in ("run_papermill", "run_executor"):
        pandas.testing.assert_frame_equal(rows[way], rows["run_all"])


def run_all(point: Point, outputs: Path) -> None:
    """Run the cells without a kernel, as test_smoke.py runs every notebook."""
    profiles.write_points(outputs / "points.json", [point])
    run_cells(outputs, str(outputs / "points.json"), "torch")


def run_papermill(point: Point, outputs: Path) -> None:
    """Run the notebook as a reader would, who changes a few parameters."""
    defaults = profiles.declared(point.study)
    changed = {name: value for name, value in point.parameters.items() if value != defaults[name]}
    given = [word for name, value in changed.items() for word in ("-p", name, str(value))]
    notebook = str(layout.notebook(point.study))
    command = [sys.executable, "-m", "papermill", notebook, str(outputs / "out.ipynb"), *given]
    subprocess.run(command, check=True, capture_output=True, cwd=outputs)


def run_executor(point: Point, outputs: Path) -> None:
    assert execute.execute(point, identity.identify().name) == "ok"
