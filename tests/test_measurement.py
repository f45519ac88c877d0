"""The processes of a point: what ends it, what the next start continues, and what stands in the rows."""

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import toy
from benchbook.judging import verdicts
from benchbook.machine import condition
from benchbook.rows import manifests, packing, records
from benchbook.studies.experiments import measurement
from benchbook.studies.experiments.measurement import Measurement
from rows import windows as make_windows
from rows import write

MEASURE = """
import json, sys
from benchbook.machine import contention
from benchbook.studies.experiments.measurement import Measurement
given = {"variant": sys.argv[2], "device": "cpu", "num_processes": int(sys.argv[1]), **json.loads(sys.argv[3])}
contention.others_share = lambda: 0.0
measurement = Measurement("toy", "desk", given, "s")
measurement.measure()
print(json.dumps(measurement.finished()))
"""


IN_A_NOTEBOOK = """
import sys
from benchbook.studies.experiments import notebook
given = {"device": "cpu", "variant": sys.argv[2], "num_processes": int(sys.argv[1]), "num_windows": 2}
experiment = notebook.begin("toy", given)
experiment.measure()
experiment.end()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """Return the library of a copy of the project with the study `toy`."""
    return toy.copy_project(tmp_path_factory.mktemp("project"), has_frameworks=False)


@pytest.fixture
def measure(library, tmp_path):
    """Measure the toy in so many processes with these faults, by process; return how each ended.

    The folder `site` of the test may hold a sitecustomize.py for all processes.
    """

    def measured(
        count: int, faults: dict[int | str, str], variant: str = "reference", script: str = MEASURE, **given: float
    ) -> subprocess.CompletedProcess:
        own = {f"TOY_FAULT_{number}": fault for number, fault in faults.items()}
        own |= {"PYTHONPATH": f"{tmp_path / 'site'}:{library}", "BENCHBOOK_OUTPUTS": str(tmp_path)}
        command = [sys.executable, "-c", script, str(count), variant, json.dumps(given)]
        return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)

    return measured


@pytest.mark.parametrize(
    ("faults", "statuses"),
    [
        ({1: "raise"}, ["crashed", "ok", "ok"]),
        ({1: "exit", 2: "raise"}, ["crashed", "crashed"]),  # two in a row
        ({2: "memory"}, ["ok", "out_of_memory"]),  # the next one would end in the same way
    ],
)
def test_a_process_that_fails_has_a_row_and_the_next_one_runs_if_it_may_end_better(measure, tmp_path, faults, statuses):
    done = measure(3, faults)
    assert list(json.loads(done.stdout).values()) == statuses, done.stderr
    rows = records.merge(tmp_path / "runs")
    assert rows["run_id"].nunique() == len(statuses)
    assert rows.loc[rows["status"] != "ok", "status"].tolist() == [each for each in statuses if each != "ok"]
    assert (rows["phase"] == "train").sum() >= 2 * statuses.count("ok")
    if 1 in faults and faults[1] == "exit":
        assert "the process ended with exit status 3" in rows.loc[rows["status"] == "crashed", "message"].iloc[0]


def test_a_killed_measurement_continues_with_the_process_that_it_lacks(measure, tmp_path):
    assert measure(3, {2: "kill"}).returncode == -signal.SIGKILL
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.csv")}
    assert len(before) == 2
    done = measure(3, {})
    assert json.loads(done.stdout) == {"1": "ok", "2": "ok", "3": "ok"}, done.stderr
    rows = records.merge(tmp_path / "runs")
    interrupted = rows.loc[rows["status"] == "interrupted", "run_id"].tolist()
    assert len(interrupted) == 1
    assert rows["run_id"].nunique() == 4
    assert sum(path.read_bytes() == content for path, content in before.items()) == 1  # the first is as it was
    numbers = {path.stem: json.loads(path.read_text())["process"] for path in tmp_path.rglob("*Z-*.json")}
    assert sorted(numbers.values()) == [1, 2, 2, 3]
    assert numbers[interrupted[0]] == 2


ENOUGH = {"fewest_processes": 2, "processes_part": 0.09}


@pytest.mark.parametrize(
    ("faults", "factors", "count"),
    [
        ({2: "kill"}, (1, 1, 1, 1, 1), 2),
        ({1: "raise"}, (1, 1, 1, 1, 1), 3),  # two that ended well
        ({3: "kill"}, (1, 1.15, 1.07, 1.07, 1), 4),
        ({}, (1, 2, 1, 2, 1), 5),  # all that are allowed
    ],
)
def test_a_point_ends_when_it_is_known_and_after_a_kill_too(measure, tmp_path, monkeypatch, faults, factors, count):
    monkeypatch.setenv("TOY_SECONDS", json.dumps(factors))
    if "kill" in faults.values():
        assert measure(5, faults, **ENOUGH).returncode == -signal.SIGKILL
        faults = {}
    done = measure(5, faults, **ENOUGH)
    assert sorted(json.loads(done.stdout)) == [str(number) for number in range(1, count + 1)], done.stderr


@pytest.mark.parametrize(
    ("patience", "busy", "faults", "count", "used", "is_unstable"),
    [
        ("60", "2", {}, 3, 2, False),
        ("60", "2", {3: "kill"}, 3, 3, False),  # the killed process has windows
        ("0", "2", {}, 2, 2, True),  # both count, as there is no other
        ("0.1", "1", {}, 2, 2, True),
    ],
)
def test_what_others_disturbed_is_measured_again_and_does_not_count_while_there_is_patience(
    measure, tmp_path, monkeypatch, patience, busy, faults, count, used, is_unstable
):
    monkeypatch.setenv("TOY_SECONDS", "[1, 1, 1, 1, 1]")
    monkeypatch.setenv("TOY_BUSY", busy)
    monkeypatch.setenv("BENCHBOOK_PATIENCE", patience)
    if faults:
        assert measure(5, faults, **ENOUGH).returncode == -signal.SIGKILL
    done = measure(5, {}, **ENOUGH)
    assert sorted(json.loads(done.stdout)) == [str(number) for number in range(1, count + 1)], done.stderr
    described = manifests.read_all(tmp_path / "runs")
    rows = records.merge(tmp_path / "runs")
    [line] = verdicts.summarise(rows, condition.samples(described)).to_dict("records")
    assert (line["num_processes"], line["num_disturbed"]) == (used, int(not is_unstable))
    assert verdicts.is_unstable(line["verdict"]) is verdicts.has(line["verdict"], "cpu_shared") is is_unstable


@pytest.mark.parametrize(("patience", "left"), [(0.0, []), (4.0, []), (60.0, [2])])
def test_a_disturbed_process_is_replaced_within_the_patience_that_is_given(outputs, patience, left):
    given = {"variant": "reference", "device": "cpu", "num_processes": 1}
    measured = Measurement("mnist_speedup", "desk", given, "s", patience=patience)
    write(*make_windows([80.0], point=measured.folder.name, session="s", run_id="r"))
    used = {"cpu_cores": 2, "cpu_own_seconds": 0.0, "cpu_stolen_seconds": 0.0}
    ends = [dict.fromkeys(("awake_seconds", "elapsed_seconds", "cpu_busy_seconds"), at) | used for at in (0.0, 9.0)]
    manifest = {"process": 1, "process_seconds": 5.0, "conditions": [ends[0], ends[1] | {"index": 0}]}
    (measured.folder / "r.json").write_text(json.dumps(manifest))
    state = measured.state()
    assert (state.left, state.num_disturbed, state.lost) == (left, 1, 5.0)


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [("marker garbage", ["ok", "ok"]), ("rows a folder", ["ok", "ok"]), ("runs removed", ["crashed", "ok"])],
)
def test_what_is_broken_under_a_process_costs_at_most_its_run(measure, tmp_path, fault, statuses):
    for faults in ({1: fault}, {}):
        done = measure(2, faults)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)  # two of these processes may begin in one second, so that their order is by chance
    assert [found[number] for number in sorted(found)] == statuses
    assert not list(tmp_path.rglob("*.running"))


def test_a_point_that_fails_after_its_first_call_ends_the_notebook_with_the_reason(measure):
    done = measure(3, {"BEFORE": "raise"}, script=IN_A_NOTEBOOK)
    assert done.stderr.splitlines()[-1].endswith(
        "PointFailed: crashed: RuntimeError: planted and crashed: RuntimeError: planted"
    )


@pytest.mark.parametrize(
    ("device", "of_user", "warm"),
    [("tpu", "", [False, False, True, True]), ("tpu", "mine", [False] * 4), ("cuda", "", [False] * 4)],
)
def test_on_a_tpu_later_processes_take_what_the_first_one_compiled_and_are_called_warm(
    monkeypatch, tmp_path, device, of_user, warm
):
    """CUDA's programs hold kernels that timing chose; a user's own folder stays; the comparison shares nothing."""
    seen, ids, left = [], [], [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3], []]

    def call(function, study, given, run_id, number, is_warm, *rest, variables, **how):
        if folder := variables.get(measurement.PROGRAMS):  # as JAX does, which makes the folder
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / "jit_step-cache").touch()
        seen.append((number, is_warm, folder))
        ids.append(run_id)
        return None, None

    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    monkeypatch.delenv(measurement.PROGRAMS, raising=False)
    if of_user:
        monkeypatch.setenv(measurement.PROGRAMS, of_user)
    monkeypatch.setattr(measurement.launch, "call", call)
    state = measurement.State([], ids, 0.0, 0, 0, 0.0, 0.0)
    monkeypatch.setattr(Measurement, "state", lambda self: state._replace(left=left.pop(0)))
    given = {"device": device, "framework": "jax", "num_processes": 3, "num_parity_steps": 1, "variant": "reference"}
    measured = Measurement("resnet50_cost", "desk", given, "s")
    measured.programs.mkdir(parents=True)
    (measured.programs / "of an earlier session").touch()
    measured.measure()
    shared = str(measured.programs) if any(warm) else None
    assert seen == [(n, each, shared if n else None) for n, each in enumerate(warm)]
    assert not measured.programs.exists()
    assert measurement.PROGRAMS not in measurement.kinds.KINDS[device].environment  # of other points


SET_BACK = """
import os, time
real, started = time.time, time.monotonic()
time.time = lambda: real() - 3600.0 * (time.monotonic() - started > 0.5)  # an hour back after half a second
"""


def test_a_clock_that_is_set_back_hangs_nothing_and_no_process_took_a_negative_time(measure, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SET_BACK)
    done = measure(1, {})
    assert json.loads(done.stdout) == {"1": "ok"}, done.stderr
    [described] = manifests.read_all(tmp_path / "runs").values()
    assert 0 < described["process_seconds"] < 600


def test_a_users_variables_mark_the_point_and_controlled_keeps_the_memory_that_a_step_frees(
    measure, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    for variant in ("reference", "controlled"):
        assert measure(1, {}, variant).returncode == 0
    described = manifests.read_all(tmp_path / "runs")
    assert [each["environment"]["variables"]["CUDA_LAUNCH_BLOCKING"] for each in described.values()] == ["1"] * 2
    rows = records.merge(tmp_path / "runs")
    marked = verdicts.summarise(rows, condition.samples(described))["verdict"].map(str)
    assert marked.str.contains("changed: with CUDA_LAUNCH_BLOCKING=1").tolist() == [True] * 2
    trained = rows[rows["phase"] == "train"]
    keeps = trained["settings"].map(lambda settings: settings.get("keeps_memory", False))
    has_switch = platform.libc_ver()[0] == "glibc"
    assert dict(zip(trained["variant"], keeps, strict=True)) == {"reference": False, "controlled": has_switch}


def test_rows_of_a_user_who_plays_in_jupyterlab_are_temporary_until_they_are_added(library, tmp_path, monkeypatch):
    environment = {name: value for name, value in os.environ.items() if name != "BENCHBOOK_OUTPUTS"}
    environment |= {"PYTHONPATH": str(library), "JPY_SESSION_NAME": "a notebook", "TMPDIR": str(tmp_path)}
    before = sorted(library.parent.joinpath("outputs").rglob("*"))
    command = [sys.executable, "-c", IN_A_NOTEBOOK, "1", "reference"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert sorted(library.parent.joinpath("outputs").rglob("*")) == before
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    _, rows = packing.add(Path(done.stdout.split("benchbook add ")[1].strip()))
    assert (rows["phase"] == "train").sum() == 2
