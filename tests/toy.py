"""A copy of the project with one study more: a folder, a notebook, an entry in a profile; nothing else is changed."""

import shutil
from pathlib import Path

import nbformat

from benchbook.machine import layout

PARTS = ("lib", "notebooks", "outputs/published", "Makefile", "CITATION.cff", "pyproject.toml")
WORKLOAD = '''
import numpy

from benchbook.frameworks.workload import Evaluation, Workload


class Line:
    """The slope of y = 3 x, fitted by gradient descent to batches of 4 of 16 points."""

    batch_size = 4

    def __init__(self, device, seed):
        self.device, self.epoch, self.slope, self.taken = device, 0, 0.0, 0
        self.points = numpy.random.default_rng(seed).uniform(1, 2, 16)

    def description(self):
        return {"model": "line", "parameters": 1, "batch_size": 4, "dataset": "points", "dataset_samples": 16}

    def batches(self, epoch):
        yield from self.points.reshape(4, 4)

    epochs = Workload.epochs

    def num_samples(self, batch):
        return len(batch)

    def enter(self):
        pass

    def step(self, batch):
        errors = (self.slope - 3) * batch
        self.taken += 1
        self.slope -= 0.2 * float((errors * batch).mean())
        return float((errors**2).mean())

    def steps_taken(self):
        return self.taken

    def mean_loss(self, losses):
        return sum(losses) / len(losses)

    def end_epoch(self):
        self.epoch += 1

    def evaluate(self):
        return Evaluation(float((((self.slope - 3) * self.points) ** 2).mean()), float("nan"), 16, None)

    def snapshot(self):
        return self.epoch, self.slope

    def restore(self, state):
        self.epoch, self.slope = state
'''
RESULTS = """
from benchbook.studies import figures
from benchbook.studies.study import Chart, Drawing, Study


def losses(evidence):
    rows = evidence.measured
    table = rows[(rows["study"] == "toy") & (rows["phase"] == "train")][["variant", "index", "loss"]]
    figure, axes = figures.canvas(3.0)
    axes.plot(table["index"].astype(int), table["loss"].astype(float), "o")
    axes.set_title(f"A line was fitted in {len(table)} windows")
    return Drawing(figure, table, "Points: a loss for each window")


STUDY = Study("toy", "A line", (Chart("toy-losses", "Does the loss fall?", "A window is one epoch.", losses),))
"""
PARAMETERS = """
variant: str = "reference"  # reference or controlled
device: str = "best"  # cpu, or best
seed: int = 1  # of the points
"""
# With TOY_HANGS, points of that variant never come to their windows; with TOY_FILLS, they take so many GiB of memory.
CELL = """
import os
import time

from benchbook.frameworks import devices
from benchbook.running import profiles
from benchbook.measuring import protocol, runs
from benchbook.studies.toy.workload import Line

run = runs.start("toy", profiles.collect("toy", globals()), devices.pick(device))
workload = Line(devices.pick(device), seed)
protocol.warm_up(workload, run, 1)
filled = b"x" * (int(os.environ.get("TOY_FILLS", 0)) * 2**30)
if os.environ.get("TOY_HANGS") == variant:
    time.sleep(600)
rows = protocol.measure_windows(workload, run, protocol.Plan(num_windows=2))
run.end()
rows[["phase", "samples", "seconds", "loss"]]
"""
PROFILE = """
toy:
  time_limit_minutes: 2
  points:
    - {variant: [reference, controlled], device: cpu}
"""


def copy_project(folder: Path) -> Path:
    """Copy the project into a folder, add the study `toy` and its points to the profile `smoke`; return its library.

    With that as PYTHONPATH, everything is done in the copy.
    """
    for part in PARTS:
        source, target = layout.root() / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.egg-info"))
        else:
            shutil.copyfile(source, target)
    study = folder / "lib" / "benchbook" / "studies" / "toy"
    study.mkdir()
    for name, content in {"__init__": "", "workload": WORKLOAD, "study": RESULTS}.items():
        (study / f"{name}.py").write_text(content)
    parameters, cell = (nbformat.v4.new_code_cell(source.strip()) for source in (PARAMETERS, CELL))
    parameters.metadata["tags"] = ["parameters"]
    cells = [nbformat.v4.new_markdown_cell("# How soon is a line found?"), parameters, cell]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "notebooks" / "50_toy.ipynb")
    with (folder / "notebooks" / "profiles" / "smoke.yaml").open("a") as profile:
        profile.write(PROFILE)
    return folder / "lib"
