"""Notebooks: the template they follow, and the same rows whichever way one is run."""

import io
import os
import subprocess
import sys
import tokenize
from pathlib import Path

import nbclient
import nbformat
import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from benchbook import layout, profiles, records

NOTEBOOKS = list(layout.notebooks().values())
STUDIES = [path for path in NOTEBOOKS if not path.name.startswith(("00_", "90_"))]
SECTIONS = ["Setup", "Data", "Model", "Warm-up", "Measurement", "Result", "Rows and reading"]
# What differs between two runs of the same work: the clock, who ran it, and the process's memory.
CLOCK = {"session", "run_id", "started_at", "seconds", "input_seconds", "samples_per_second", "peak_memory_bytes"}


def cells_of(path: Path, kind: str) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def headings_of(path: Path, level: str) -> list[str]:
    lines = "\n".join(cell.source for cell in cells_of(path, "markdown")).splitlines()
    return [line.removeprefix(level).strip() for line in lines if line.startswith(f"{level} ")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_clean_and_short(path):
    code = cells_of(path, "code")
    assert not [cell for cell in code if cell.outputs or cell.execution_count]
    assert max(len([line for line in cell.source.splitlines() if not line.startswith("#")]) for cell in code) <= 30
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


@pytest.mark.fault("Another file of rows is broken while a run ends: the run has ended before any other file is read")
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if "90_" not in path.name], ids=lambda path: path.stem)
def test_a_run_has_ended_before_rows_of_other_runs_are_read(path):
    lines = "\n".join(cell.source for cell in cells_of(path, "code")).splitlines()
    others = [
        number for number, line in enumerate(lines) if "records.gather(" in line or "Evidence.of_machine(" in line
    ]
    assert others
    assert lines.index("run.end()") < min(others)
    assert not [line for line in lines if "records.merge(" in line]


@pytest.mark.notebook
def test_run_all_plain_papermill_and_the_graphs_runner_give_the_same_rows(tmp_path, monkeypatch):
    parameters = {
        "device": "cpu",
        "dataset": "digits",
        "samples_per_window": 192,
        "num_warmup_steps": 1,
        "num_windows": 2,
    }
    path = layout.notebook("mnist_speedup")
    rows = {}
    for way, run in {"run all": run_all, "papermill": run_papermill, "graph": run_executor}.items():
        monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / way))
        run(path, parameters, tmp_path)
        rows[way] = records.merge(records.find(tmp_path / way / "runs")).drop(columns=list(CLOCK))
    assert len(rows["run all"]) == 9  # setup, three of parity, first call, warm-up, two windows, test
    assert rows["run all"].equals(rows["papermill"])
    assert rows["run all"].equals(rows["graph"])


def run_all(path: Path, parameters: dict, folder: Path) -> None:
    notebook = parameterize_notebook(load_notebook_node(str(path)), parameters)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}).execute()


def run_papermill(path: Path, parameters: dict, folder: Path) -> None:
    given = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", str(path), str(folder / "out.ipynb"), *given]
    subprocess.run(command, check=True, capture_output=True, env=os.environ, cwd=folder)


def run_executor(path: Path, parameters: dict, folder: Path) -> None:
    from benchbook import execute, machine

    whole = profiles.declared("mnist_speedup") | parameters
    point = profiles.Point("mnist_speedup", profiles.point_name("mnist_speedup", whole), whole, 1, 120)
    statuses = execute.execute(point, machine.identify().name)
    assert statuses == ["ok"], list(records.merge(records.find(layout.outputs() / "runs"))["message"].dropna())
