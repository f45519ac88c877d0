"""One point through papermill: every way it can end becomes a row, and nothing is measured
twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml

from benchbook.machine import context, control_groups, launch, layout
from benchbook.rows import records
from benchbook.running import execute, session
from benchbook.running.profiles import Point
from benchbook.studies.experiments import parameters
from made.cells import write_notebook
from made.processes import wait_for

pytestmark = pytest.mark.notebook

PARAMETERS = (
    'variant: str = "reference"  # one\ndevice: str = "best"  # one\nbudget: dict = {}  # none\n'
)
# Declares them, in each process: the study has no folder.
PLAN = """
from dataclasses import dataclass
from benchbook.studies.experiments import parameters
from benchbook.studies.experiments.plan import StudyPlan

@dataclass(frozen=True)
class Plan(StudyPlan):
    FRAMEWORKS, DATASETS, VARIANTS = ("torch",), (), ("reference", "tuned", "controlled")
    WITHOUT = ("batch_size", "data_resident", "num_workers", "num_parity_steps")
    num_processes: int = 1

parameters.plan_of = lambda study: Plan
"""
# A study of one row. What goes wrong is told from outside, so that the point stays the same.
SETUP = f"""{PLAN}
import os, signal, subprocess, time
from pathlib import Path
from types import SimpleNamespace
from benchbook.machine import layout
layout.notebooks = lambda: {{"faults": Path(os.environ["FAULTS_NOTEBOOK"])}}
from benchbook.frameworks import devices
from benchbook.running import profiles
from benchbook.measuring import runs
from benchbook.frameworks.devices import Device
software = {{"framework": "torch", "framework_version": "0", "num_threads": 1}}
devices.backend = lambda framework: SimpleNamespace(software=lambda device: software, facts=dict)  # imports none
fault = os.environ.get("FAULT", "")
if fault == "early exception":
    raise ValueError("broken before the run began")
given = profiles.collect("faults", globals())
run = runs.start("faults", parameters.point_name("faults", given), given, Device("cpu", "a test's CPU"))
"""
BODY = """
if fault == "does not heed":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # which a child inherits
    subprocess.Popen(["sleep", "600"], start_new_session=True)
with run.during("train"):
    run.append(samples=1, seconds=1.0)
    if fault == "exception":
        raise RuntimeError("broken on purpose in " + str(Path.home()))
    if fault == "disk full":
        os.kill(os.getppid(), 9)
        time.sleep(600)
    if fault == "out of memory":
        os.kill(os.getpid(), 9)
    if fault in ("hangs", "does not heed"):
        time.sleep(600)
run.end()
if fault == "late exception":
    raise ValueError("no chart of this")
"""


@pytest.fixture
def point(tmp_path, monkeypatch) -> Point:
    """Return the only point of a study of one row, in a folder that could be a template; FAULT
    says how it fails."""
    folder = tmp_path / "a:b {x}"
    folder.mkdir()
    path = write_notebook(folder / "01_faults.ipynb", "# Faults", PARAMETERS, SETUP, BODY)
    monkeypatch.setattr(layout, "notebooks", lambda: {"faults": path})
    monkeypatch.setattr(
        parameters, "plan_of", parameters.plan_of
    )  # and what PLAN puts in its place
    exec(PLAN, {})
    context.change(session="s")
    for name, value in {"FAULTS_NOTEBOOK": path, "BENCHBOOK_OUTPUTS": folder}.items():
        monkeypatch.setenv(name, str(value))
    given = parameters.declared("faults") | {"device": "cpu", "variant": "reference"}
    return Point("faults", parameters.point_name("faults", given), given, 120)


def folder_of(point: Point) -> Path:
    return layout.runs("tester") / point.study / point.name


def rows_of(point: Point):
    return records.merge(folder_of(point))


def run_with(point: Point, fault: str, monkeypatch) -> str:
    """Return the status of the point's only process."""
    monkeypatch.setenv("FAULT", fault)
    [status] = execute.execute(point, "tester")
    return status


def has_row(point: Point) -> bool:
    return any(path.stat().st_size for path in folder_of(point).glob("*.csv"))


# Runs points as a study does, in a process of its own.
ALONE = f"""{PLAN}
import json, os, signal, sys
from pathlib import Path
from benchbook.machine import layout, stopping
for number in stopping.STOP_SIGNALS:
    signal.signal(number, signal.SIG_DFL)  # tests may run where one is ignored
stopping.stop_on_signals()
layout.notebooks = lambda: {{"faults": Path(os.environ["FAULTS_NOTEBOOK"])}}
from benchbook.running import profiles, session
try:
    sys.exit(len(session.Session([profiles.Point(**json.loads(sys.argv[1]))], "tester").run()))
except stopping.Stopped as stop:
    sys.exit(stop.status)
"""


def test_a_good_run_ends_with_its_row_and_its_manifest_and_is_not_measured_again(
    point, tmp_path, monkeypatch
):
    """It runs in this environment's kernel, reads no user's settings of IPython, and needs no
    short TMPDIR."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(f"open({str(tmp_path / 'read')!r}, 'w')")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = layout.notebook("faults")
    notebook.write_text(
        notebook.read_text().replace('"name": "python3"', '"name": "conda-env-other-py"')
    )
    place = tmp_path / ("t" * 97)
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    with pytest.raises(ValueError, match=r"no parameter 'batchsize'.*allowed: variant, device"):
        run_with(replace(point, parameters=point.parameters | {"batchsize": 1}), "", monkeypatch)
    assert not folder_of(point).exists()  # an error before anything runs
    assert run_with(point, "", monkeypatch) == "ok"
    assert not list(place.iterdir())
    assert not (tmp_path / "read").exists()
    assert rows_of(point)["status"].tolist() == ["ok"]
    assert len(list(folder_of(point).glob("*.json"))) == 1
    assert not list(folder_of(point).glob("*.running"))
    session.Session([point], "tester").run()
    monkeypatch.setenv("FAULT", "exception")
    session.Session([point], "tester").run()  # nothing runs: nothing fails
    assert rows_of(point)["status"].tolist() == ["ok", "ok"]


# What goes wrong, the status and a part of the message, and the phases of the rows.
FAILURES = """
- [exception, crashed, "RuntimeError: broken on purpose in ~", [train, train]]
- [early exception, crashed, "ValueError: broken before the run began", [setup]]
- [no start, crashed, "Kernel died before replying to kernel_info; it last printed: no room", [setup]]
- [out of memory, out_of_memory, "Kernel died, because there was no memory left", [train, train]]
- [disk full, crashed, "the process was ended by SIGKILL, because the disk is full", [train, train]]
"""


@pytest.mark.parametrize(("fault", "status", "message", "phases"), yaml.safe_load(FAILURES))
def test_a_failure_is_one_more_row_and_keeps_the_others(
    point, monkeypatch, tmp_path, fault, status, message, phases
):
    if fault == "out of memory":
        kills = iter((0, 1))  # what Linux has counted before the run and after it
        monkeypatch.setattr(control_groups, "memory_kills", lambda: next(kills))
    if fault == "no start":  # as where the path of a socket is too long
        (tmp_path / "ipykernel_launcher.py").write_text("raise SystemExit('no room')")
        monkeypatch.syspath_prepend(tmp_path)
    if fault == "disk full":
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    assert run_with(point, fault, monkeypatch) == status
    rows = rows_of(point)
    assert rows["phase"].tolist() == phases
    assert rows["status"].tolist() == ["ok"] * (len(phases) - 1) + [status]
    assert rows["index"].tolist() == list(range(len(phases)))
    assert message in rows["message"].iloc[-1]
    assert not list(folder_of(point).glob("*.running"))


def test_a_cell_that_fails_after_the_measurement_is_named_and_changes_no_row(
    point, monkeypatch, capsys
):
    monkeypatch.setenv("FAULT", "late exception")
    assert execute.execute(point, "tester") == ["ok"]
    assert rows_of(point)["status"].tolist() == ["ok"]
    assert "but a later cell of runs/tester/faults/" in (said := capsys.readouterr().out)
    assert said.endswith(".ipynb failed: ValueError: no chart of this\n")


def test_a_run_that_takes_too_long_is_ended_with_its_kernel(point, monkeypatch, tmp_path):
    started_in = tmp_path / "anywhere"
    started_in.mkdir()
    monkeypatch.chdir(started_in)
    late = (
        point.limit_seconds + 1
    )  # the clock leaps once the run hangs, however long its kernel took to start
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late * has_row(point))
    monkeypatch.setattr(launch, "time", clock)
    assert run_with(point, "hangs", monkeypatch) == "timeout"
    assert rows_of(point)["status"].tolist() == ["ok", "timeout"]
    assert "540 s" in rows_of(point)["message"].iloc[-1]  # two processes and five minutes
    assert not psutil.Process().children(recursive=True)
    assert not list(
        started_in.iterdir()
    )  # no socket of the kernel, which a next one might take for its own


def test_a_run_is_stopped_at_the_deadline_keeps_its_rows_and_is_measured_again(point, monkeypatch):
    long = replace(point, time_limit_seconds=5000)
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 1000 * has_row(point)
    )  # leaps once the run hangs
    monkeypatch.setattr(launch, "time", clock)
    monkeypatch.setenv("FAULT", "hangs")
    assert session.Session([long], "tester", time.monotonic() + 1000).run() == [
        (long, "stopped by the deadline; its finished windows are kept")
    ]
    assert rows_of(point)[["phase", "status"]].to_numpy().tolist() == [
        ["train", "ok"],
        ["train", "interrupted"],
    ]
    assert rows_of(point)["message"].iloc[-1] == "stopped by the deadline"
    monkeypatch.setattr(launch, "time", time)
    monkeypatch.setenv("FAULT", "")
    assert session.Session([long], "tester").run() == []
    assert rows_of(point)["status"].tolist() == ["ok", "interrupted", "ok"]


@pytest.mark.parametrize(
    ("number", "times", "fault"),
    [
        (signal.SIGINT, 30, "hangs"),
        (signal.SIGHUP, 1, "does not heed"),
        (signal.SIGKILL, 1, "hangs"),
    ],
)
def test_a_stop_writes_an_interrupted_row_and_leaves_no_process(
    point, monkeypatch, tmp_path, number, times, fault
):
    monkeypatch.setenv("FAULT", fault)
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, json.dumps(asdict(point))], start_new_session=True
    )
    wait_for(lambda: has_row(point), process)
    family = psutil.Process(process.pid).children(recursive=True)
    is_heeded = (
        number != signal.SIGKILL
    )  # the others a terminal sends to the whole group, while the first is heeded
    for _ in range(times):
        (os.killpg if is_heeded else os.kill)(process.pid, number)
        time.sleep(0.01)
    assert process.wait(90) == (128 + number if is_heeded else -number)
    psutil.wait_procs(family, timeout=20)
    assert not [member for member in family if member.is_running()]
    session.recover("tester")
    assert rows_of(point)["status"].tolist() == ["ok", "interrupted"]
    message = (
        f"stopped by {signal.Signals(number).name}"
        if is_heeded
        else "the process that measured was gone"
    )
    assert message in rows_of(point)["message"].iloc[-1]
    assert not list((layout.state("tester") / point.study).rglob("done"))
    assert not list(folder_of(point).glob("*.running"))
