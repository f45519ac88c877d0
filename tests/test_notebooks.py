"""Notebooks: the template they follow, and the same rows in every way of running one."""

import functools
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nbformat
import pandas
import pytest

from benchbook.datasets import Collection
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings
from benchbook.machine import context, identity, kinds, layout
from benchbook.measuring import protocol, tuned
from benchbook.report import examples
from benchbook.rows import packing, records
from benchbook.running import execute, profiles
from benchbook.running.profiles import Point
from benchbook.studies.checks import CHECKS
from benchbook.studies.experiments import notebook
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.experiments.parameters import declared, nested
from benchbook.studies.experiments.process import Process
from made.cells import write_points
from made.processes import run_cells
from made.rows import contents

NOTEBOOKS = list(layout.notebooks().values())
STUDIES = [path for path in NOTEBOOKS if not path.name.startswith(("00_", "07_", "90_"))]
SECTIONS = ["Setup and data", "Model and training step", "Measurement and result", "Explore"]
# What differs between two runs of the same work: the clock, who ran it, and the process's memory.
CLOCK = {
    "session",
    "run_id",
    "started_at",
    "seconds",
    "input_seconds",
    "samples_per_second",
    "peak_memory_bytes",
}
CLOCK |= {"page_faults"}


def cells_of(path: Path, kind: str) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def headings_of(path: Path, level: str) -> list[str]:
    return [
        line
        for cell in cells_of(path, "markdown")
        for line in re.findall(rf"^{level} (.*)", cell.source, re.MULTILINE)
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_clean_and_short(path):
    code = cells_of(path, "code")
    assert not any(cell.outputs or cell.execution_count for cell in code)
    written = [
        cell for cell in code if "parameters" not in cell.metadata.get("tags", ())
    ]  # those take a line each
    assert len(written) == len(code) - 1
    assert (
        max(
            len([line for line in cell.source.splitlines() if not line.startswith("#")])
            for cell in written
        )
        <= 30
    )
    assert len([cell for cell in code if "answer" in cell.metadata.get("tags", ())]) == 1
    [title] = headings_of(path, "#")
    assert title.endswith("?")
    text = "\n".join(cell.source for cell in code)
    assert not [
        word
        for word in ("!pip", "%autoreload", "filterwarnings", "/home/", "/Users/")
        if word in text
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_shows_its_notebook_as_it_is_now_with_outputs_and_no_path(path):
    study, example = path.stem.partition("_")[2], layout.root() / "outputs" / "examples" / path.name
    assert example.stat().st_size <= 600_000  # GitHub shows no large notebook
    every = nbformat.read(example, as_version=4).cells
    cells = [cell for cell in every if "injected-parameters" not in cell.metadata.get("tags", ())]
    sources = [cell["source"] for cell in layout.cells(path)]
    assert [cell.source for cell in cells] == sources, (
        f"{path.name} has changed: make examples STUDIES={study}"
    )
    code = [
        cell
        for cell in cells
        if cell.cell_type == "code" and "parameters" not in cell.metadata["tags"]
    ]
    assert [cell.source for cell in code if not cell.outputs] == []
    pictured = [
        cell
        for cell in code
        if any("image/png" in output.get("data", {}) for output in cell.outputs)
    ]
    assert pictured
    if path in STUDIES:
        figures = re.compile(r"experiment\.(trial|explore)")
        assert [
            cell.source for cell in code if figures.search(cell.source) and cell not in pictured
        ] == []
    shown = [output.get("data", output) for cell in code for output in cell.outputs]
    texts = [
        str(content)
        for data in shown
        for kind, content in data.items()
        if not kind.startswith("image/")
    ]
    assert re.findall(r"(?<![\w.:/<])/[\w.-]+/[\w./-]+|[A-Z]:\\\\\w+", "\n".join(texts)) == []


def test_the_examples_readme_and_pictures_are_made_from_them(tmp_path):
    folder = layout.root() / "outputs" / "examples"
    copied = shutil.copytree(
        folder, tmp_path / "copy", ignore=shutil.ignore_patterns("pictures", "README.md")
    )
    examples.index(copied)
    assert contents(copied) == contents(folder)
    assert (copied / "README.md").read_text().count("\n\n**") == len(
        NOTEBOOKS
    ) - 1  # an answer of each study


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_has_the_templates_sections_in_order(path):
    assert headings_of(path, "##") == SECTIONS
    assert 8 <= len(layout.cells(path)) <= 12


def run_code(path: Path, parameters: dict) -> Iterator[tuple[str, dict]]:
    """Run a notebook's code cells; yield each one's source, and all names, before it is run."""
    names = {"__name__": "__main__"}
    for cell in cells_of(path, "code"):
        yield cell.source, names
        exec(cell.source, names)
        if "parameters" in cell.metadata.get("tags", []):
            names |= parameters


SMALL = {
    "samples_per_window": 32,
    "num_windows": 2,
    "num_warmup_steps": 1,
    "num_parity_steps": 0,
    "explore": False,
}
STEP_SECONDS = 0.05
RESIDENT = {
    "variant": "controlled",
    "data_resident": True,
    "dataset": "digits",
    "device": "cpu",
    "batch_size": 16,
}


class Clock:
    """A stand-in for `time`, in the notebook and in the library, in which only training steps
    take time.

    Attributes:
        steps: for each step, the source of the cell that took it and the workload.
    """

    def __init__(self) -> None:
        self.now, self.steps, self.source = 0.0, [], ""

    def __getattr__(self, name: str):
        return getattr(time, name)

    def perf_counter(self) -> float:
        self.now += 1e-9
        return self.now

    def watched(self, step: Callable) -> Callable:
        def taken(workload, batch):
            self.now += STEP_SECONDS
            self.steps.append((self.source, workload))
            return step(workload, batch)

        return taken


def measured(outputs: Path, monkeypatch, try_seconds: float) -> tuple[dict, list]:
    """Return a notebook's names after its last cell, or without a try after its measurement, and
    the steps that were taken; see `Clock`."""
    from benchbook.frameworks.torch.training import TorchWorkload

    clock = Clock()
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(outputs))
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    monkeypatch.setattr(notebook, "Measurement", functools.partial(Measurement, in_kernel=True))
    given = RESIDENT | {"budget": SMALL | {"try_seconds": try_seconds}}
    with monkeypatch.context() as patched:
        patched.setattr(TorchWorkload, "clock", clock.perf_counter)
        patched.setattr(TorchWorkload, "plain_step", clock.watched(TorchWorkload.plain_step))
        for clock.source, names in run_code(layout.notebook("mnist_speedup"), given):
            if "rows" in names and not try_seconds:  # the cells that follow show them
                break
            if "time" in names:
                names["time"] = clock
    return names, clock.steps


def test_the_shown_loop_takes_the_step_that_is_timed_at_its_rate_and_is_undone(
    tmp_path, monkeypatch
):
    names, steps = measured(tmp_path / "with", monkeypatch, 0.5)
    rows, rate = names["rows"], RESIDENT["batch_size"] / STEP_SECONDS
    assert names["trial"].table["rate"].tolist() == pytest.approx(
        [rate] * 4
    )  # of 1, 2, 4 and 8 steps
    assert rows.loc[rows["phase"] == "train", "samples_per_second"].tolist() == pytest.approx(
        [rate] * 2
    )
    assert all("workload.step(batch)" in source for source, _ in steps[1:16])
    assert all("experiment.measure()" in source for source, _ in steps[16:])
    assert all(workload is names["workload"] for _, workload in steps[:16])
    without, fewer = measured(tmp_path / "without", monkeypatch, 0.0)
    assert len(steps) - len(fewer) == 1 + 1 + 2 + 4 + 8  # the first call, and the loop
    assert without["rows"]["loss"].tolist() == rows["loss"].tolist()


def test_a_network_edited_in_a_notebook_is_measured_as_yours_and_never_published(
    tmp_path, monkeypatch
):
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(784, 10)

        def forward(self, images):
            return self.dense(images.flatten(1)).log_softmax(1)

    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    small = SMALL | {"num_parity_steps": 1, "num_processes": 1, "try_seconds": 0.1}
    chosen = nested("mnist_speedup", declared("mnist_speedup")) | RESIDENT | {"budget": small}
    given = profiles.collect("mnist_speedup", chosen)
    with context.changed():
        experiment = notebook.begin("mnist_speedup", given)
        data = experiment.study_plan.load(experiment)
        with pytest.raises(ValueError, match="allowed: framework torch, variants reference and"):
            experiment.study_plan.build(data, experiment.device, "tuned", network_class=Network)
        experiment.prepare(data, network=Network)
        rows, evidence = experiment.measure(), experiment.end()
        folder = experiment.measurement.folder
    windows = rows[rows["phase"] == "train"]
    assert set(windows["parameters"]) == {7850}
    assert experiment.agreement.passed
    assert "your Network in place of the study's network" in str(
        evidence.summary["verdict"].iloc[-1]
    )
    assert tmp_path not in folder.parents
    with pytest.raises(packing.PackError, match="trained a user's network"):
        CHECKS.checked(folder, print)


@dataclass
class Planned:
    """A study's plan, whose workload is its own choices."""

    batch_size: int = 1
    candidates = staticmethod(lambda device: [])
    build = staticmethod(lambda data, device, **choices: (data, choices))


def test_a_search_tries_batches_of_at_most_the_budgets_size_on_each_device(monkeypatch):
    tried = []

    def choose(run, device, make, reference, *, trial, **limits):
        tried.append([make(), reference(), trial()])
        return reference, Settings()

    monkeypatch.setattr(tuned, "choose", choose)
    monkeypatch.setattr(protocol, "first_step", lambda *given: None)
    limits = {"search_seconds": 1, "num_parity_steps": 1, "window_seconds": 1}
    pictures = Collection(
        "pictures", [], [], 2
    )  # slow to decode, so a search takes synthetic images
    for data, most, size in (("images", 4, 8), ("images", 64, 16), (pictures, 4, 8)):
        given = limits | {"variant": "tuned", "batch_size": 16, "trial_batch_size": most}
        process = Process(given, Device("cpu", "a CPU", count=2), mock.MagicMock())
        assert process.build(Planned, data) == (data, {"batch_size": 16, "settings": Settings()})
        own = [(data, {"batch_size": 16, "variant": "tuned"}), (data, {"batch_size": 16})]
        smaller = (None if data is pictures else data, {"batch_size": size, "variant": "tuned"})
        assert tried.pop() == [*own, smaller]


@pytest.mark.slow
@pytest.mark.notebook
def test_its_cells_plain_papermill_and_the_graphs_runner_give_the_same_rows(tmp_path, monkeypatch):
    sizes = {
        "samples_per_window": 64,
        "num_windows": 1,
        "num_warmup_steps": 1,
        "num_parity_steps": 1,
    }
    sizes |= {"num_processes": 1, "try_seconds": 0.05, "explore": False}
    parameters = profiles.declared("mnist_speedup") | {"device": "cpu", "dataset": "digits"} | sizes
    point = Point(
        "mnist_speedup", profiles.point_name("mnist_speedup", parameters), parameters, 120
    )
    for name, value in kinds.environment("cpu", {}).items():  # the first starts no process
        monkeypatch.setenv(name, value)
    rows = {}
    for run in (run_all, run_papermill, run_executor):
        outputs = tmp_path / run.__name__
        monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(outputs))
        outputs.mkdir()
        run(point, outputs)
        merged = records.merge(outputs / "runs")
        compared = merged["phase"] == "parity"  # whose figures are rounding
        merged.loc[compared, "settings"] = merged.loc[compared, "settings"].map(sorted)
        in_first = merged["run_id"].isin(
            merged.loc[compared, "run_id"]
        )  # a runner may have named the other run before
        rows[run.__name__] = pandas.concat([merged[in_first], merged[~in_first]], ignore_index=True)
        rows[run.__name__] = rows[run.__name__].drop(columns=list(CLOCK))
    phases = ["setup", "compile", "warmup", "train", "evaluate", "setup", "compile", "parity"]
    assert sorted(rows["run_all"]["phase"]) == sorted(phases)
    for way in ("run_papermill", "run_executor"):
        pandas.testing.assert_frame_equal(rows[way], rows["run_all"])
    undeclared = papermill("mnist_speedup", tmp_path, {"batch_sise": 32})
    assert undeclared.returncode != 0
    assert (
        "mnist_speedup has no parameter 'batch_sise' (value 32); allowed: variant, framework"
        in undeclared.stderr
    )


def run_all(point: Point, outputs: Path) -> None:
    """Run the cells without a kernel, as test_smoke.py runs every notebook."""
    write_points(outputs / "points.json", [point])
    run_cells(outputs, str(outputs / "points.json"), "torch")


def run_papermill(point: Point, outputs: Path) -> None:
    """Run the notebook as a reader would, who changes a few parameters."""
    defaults = profiles.declared(point.study)
    changed = {name: value for name, value in point.parameters.items() if value != defaults[name]}
    papermill(point.study, outputs, nested(point.study, changed)).check_returncode()


def papermill(study: str, outputs: Path, given: dict) -> subprocess.CompletedProcess:
    notebook, executed = str(layout.notebook(study)), str(outputs / "out.ipynb")
    command = [sys.executable, "-m", "papermill", notebook, executed, "-y", json.dumps(given)]
    return subprocess.run(command, capture_output=True, text=True, cwd=outputs)


def run_executor(point: Point, outputs: Path) -> None:
    context.change(session="a-session")
    assert execute.execute(point, identity.identify().name) == ["ok", "ok"]
