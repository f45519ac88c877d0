"""A copy of the project with one study more: a folder, a notebook, an entry in a profile;
nothing else is needed.

The study trains the network of plain Python in fakes.py, whose file is copied into its folder.
"""

import shutil
from pathlib import Path

from benchbook.machine import layout
from made.cells import write_notebook

PARTS = (
    "lib",
    "notebooks",
    "outputs/published",
    "Makefile",
    "CITATION.cff",
    "pyproject.toml",
)
RESULTS = """
from benchbook.studies.charts.plots import Points
from benchbook.studies.results.answers import Template
from benchbook.studies.study import Study


def losses(evidence):
    rows = evidence.measured
    return rows[(rows["study"] == "toy") & (rows["phase"] == "train")]


STUDY = Study(
    "toy",
    "A toy",
    (
        Points(
            "toy-losses",
            table=losses,
            title=Template("The toy's loss is {number} on {place}", "loss"),
            x="index",
            by=["machine", "variant", "run_id"],
            xlabel="window",
            ylabel="loss",
        ),
    ),
    "loss",
    "nats/window",
)
"""
PARAMETERS = """
variant: str = "reference"  # reference or controlled
device: str = "best"  # cpu, or best
budget: dict = {}  # how much to measure
"""
# With TOY_HANGS, points of that variant never come to their windows; with TOY_FILLS, they take so
# many GiB of memory. With TOY_SECONDS, a list, the workload's seconds count, times a factor for
# each process; others take half of the CPU beside the processes whose numbers are in TOY_BUSY. With
# TOY_FAULT_2, the second process does what it says after its windows; with TOY_FAULT_BEFORE, all do
# before them.
PLAN = """
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from benchbook.machine import condition, contention, layout
from benchbook.measuring import protocol
from benchbook.studies.experiments.plan import StudyPlan
from benchbook.studies.toy.workload import Clock, FakeWorkload


def commit(fault):
    if fault == "raise":
        raise RuntimeError("planted")
    if fault == "memory":
        raise MemoryError("planted")
    if fault == "exit":
        os._exit(3)
    if fault == "runs removed":
        shutil.rmtree(layout.outputs() / "runs")
    if fault == "marker garbage":
        for path in layout.outputs().rglob("*.running"):
            path.write_bytes(bytes(range(256)))
    if fault == "rows a folder":
        for path in layout.outputs().rglob("*.csv"):
            path.unlink()
            path.mkdir()
    if fault == "kill":
        os.kill(os.getppid(), 9)
        time.sleep(600)


@dataclass(frozen=True)
class Plan(StudyPlan):
    FRAMEWORKS, DATASETS, VARIANTS = ("torch",), (), ("reference", "controlled")
    WITHOUT = ("batch_size", "data_resident", "num_workers", "num_parity_steps")

    num_processes: int = 1

    def load(process):
        return None

    def start(process, data):
        clock = Clock()
        if factors := json.loads(os.environ.get("TOY_SECONDS", "[]")):
            advance, factor = clock.advance, factors[process.number - 1]
            clock.advance = lambda seconds: advance(factor * seconds)
            condition.clocks = lambda: (clock.seconds, clock.seconds)
            counted = dict.fromkeys(("cpu_own_seconds", "cpu_stolen_seconds"), 0.0)
            taken = lambda: 0.5 * clock.seconds * (str(process.number) in os.environ.get("TOY_BUSY", ""))
            contention.cpu_seconds = lambda: counted | {"cpu_cores": 1, "cpu_busy_seconds": taken()}
        else:
            Clock.__call__ = lambda clock: time.perf_counter()
        process.workload = FakeWorkload(clock)

    def measure(process):
        protocol.warm_up(process.workload, process.run, 1)
        filled = b"x" * (int(os.environ.get("TOY_FILLS", 0)) * 2**30)
        if os.environ.get("TOY_HANGS") == process.parameters["variant"]:
            time.sleep(600)
        commit(os.environ.get("TOY_FAULT_BEFORE"))
        protocol.measure_windows(process.workload, process.run, protocol.Amount(num_windows=2))
        commit(os.environ.get(f"TOY_FAULT_{process.number}"))
"""
CELL = """
from benchbook.running import profiles
from benchbook.studies.experiments import notebook

experiment = notebook.begin("toy", profiles.collect("toy", globals()))
rows = experiment.measure()
rows[["phase", "samples", "seconds", "loss"]]
"""
PROFILE = """
toy:
  time_limit_minutes: 2
  points:
    - {variant: [reference, controlled], device: cpu}
"""


# In the place of frameworks, which take seconds to import in each process; the toy uses none.
NO_FRAMEWORK = """

def backend(framework):
    from importlib import metadata
    from types import SimpleNamespace

    versions = {"framework": framework, "framework_version": metadata.version(framework), "num_threads": 1}
    questions = ("refused", "name", "capability", "compiles_first", "reset_peak_memory", "synchronize")
    none = dict.fromkeys(questions, lambda *given: None)
    own = {"software": lambda device: versions, "facts": dict, "fell_back": lambda warning: ""}
    return SimpleNamespace(kinds=lambda: ("cpu",), **own, **none)
"""


def copy_parts(folder: Path, *more: str) -> None:
    """Copy what a study takes, and more parts of the project, into a folder."""
    for part in (*PARTS, *more):
        if (layout.root() / part).is_dir():
            shutil.copytree(layout.root() / part, folder / part, dirs_exist_ok=True)
        else:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(layout.root() / part, folder / part)


def copy_project(folder: Path, has_frameworks: bool = True) -> Path:
    """Copy the project into a folder, add the study `toy` and its points to the profile `smoke`;
    return its library.

    With that as PYTHONPATH, everything is done in the copy.
    """
    copy_parts(folder)
    study = folder / "notebooks" / "studies" / "toy"
    study.mkdir()
    shutil.copyfile(Path(__file__).with_name("fakes.py"), study / "workload.py")
    for name, content in {"__init__": "", "plan": PLAN, "study": RESULTS}.items():
        (study / f"{name}.py").write_text(content)
    if not has_frameworks:
        with (folder / "lib" / "benchbook" / "frameworks" / "devices.py").open("a") as module:
            module.write(NO_FRAMEWORK)
    title = "# What does a toy cost?"
    write_notebook(folder / "notebooks" / "50_toy.ipynb", title, PARAMETERS.strip(), CELL.strip())
    with (folder / "notebooks" / "profiles" / "smoke.yaml").open("a") as profile:
        profile.write(PROFILE)
    return folder / "lib"
