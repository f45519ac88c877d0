"""The processes of a point: what ends it, what the next start continues, and what stands in the
rows."""

import itertools
import json
import os
import platform
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from benchbook.judging import verdicts
from benchbook.machine import condition, contention, launch
from benchbook.measuring import runs
from benchbook.measuring.writer import Run
from benchbook.rows import manifests, records
from benchbook.studies.experiments import measurement
from benchbook.studies.experiments.measurement import Measurement
from made import toy

MEASURE = """
import json, os, sys
from benchbook.machine import contention
from benchbook.studies.experiments.measurement import Measurement
given = {"device": "cpu", "num_processes": int(sys.argv[1]), **json.loads(sys.argv[3])}
contention.others_share = lambda: 0.0
for variant in sys.argv[2].split():  # named twice, it is continued
    measurement = Measurement("toy", "desk", given | {"variant": variant}, "s")
    measurement.measure()
    for name in [name for name in os.environ if name.startswith("TOY_FAULT")]:
        del os.environ[name]
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
        count: int,
        faults: dict[int | str, str],
        variant: str = "reference",
        script: str = MEASURE,
        **given: float,
    ) -> subprocess.CompletedProcess:
        own = {f"TOY_FAULT_{number}": fault for number, fault in faults.items()}
        own |= {"PYTHONPATH": f"{tmp_path / 'site'}:{library}", "BENCHBOOK_OUTPUTS": str(tmp_path)}
        command = [sys.executable, "-c", script, str(count), variant, json.dumps(given)]
        return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)

    return measured


@pytest.fixture
def played(outputs, monkeypatch, clock):
    """Measure a point whose processes this one plays: each has a factor of its seconds and may
    have a fault.

    A killed process takes the measurement with it, which then continues. Others disturb the
    processes in `busy`.
    """
    used, counters = [], {"cpu_cores": 1, "cpu_own_seconds": 0.0, "cpu_stolen_seconds": 0.0}
    now = lambda: dict.fromkeys(("awake_seconds", "elapsed_seconds"), clock.seconds)  # noqa: E731
    monkeypatch.setattr(
        condition, "sample", lambda: now() | counters | {"cpu_busy_seconds": sum(used)}
    )
    monkeypatch.setattr(contention, "others_share", lambda: 0.0)
    monkeypatch.setattr(
        runs, "new_id", map("20260101T0000{:02}Z-00000000".format, itertools.count()).__next__
    )

    def measure(
        count,
        faults=None,
        factors=(1,) * 5,
        busy=(),
        patience=0.0,
        study="mnist_speedup",
        seen=None,
        **given,
    ):
        faults = dict(faults or {})

        def call(function, study, parameters, run_id, number, *rest, variables, **how):
            if seen:
                seen(measured, number, variables)
            own, manifest = (
                (study, measured.folder.name, run_id, "desk", parameters),
                {"process_seconds": 5.0},
            )
            record = Run(
                measured.folder,
                run_id,
                runs.identity(*own),
                "train",
                manifest,
                ended_by_another=True,
            )
            manifest["process"] = number
            record._sample()
            record.mark()
            for _ in range(2):
                seconds = 15.0 * factors[number - 1]
                clock.advance(seconds)
                used.append(0.5 * seconds * (number in busy))
                record.append(samples=30, seconds=seconds, samples_per_second=30 / seconds)
            if (fault := faults.pop(number, "")) == "kill":
                raise KeyboardInterrupt
            record.fail(fault, "planted") if fault else record.end()
            return None, fault and launch.Failed(fault, "planted")

        monkeypatch.setattr(launch, "call", call)
        given = {"variant": "reference", "device": "cpu", "num_processes": count} | given
        measured = Measurement(study, "desk", given, "s", patience=patience)
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                measured.measure()
        return measured

    return measure


@pytest.mark.parametrize(
    ("faults", "statuses"),
    [
        ({1: "crashed"}, ["crashed", "ok", "ok"]),
        ({1: "crashed", 2: "crashed"}, ["crashed", "crashed"]),  # two in a row
        ({2: "out_of_memory"}, ["ok", "out_of_memory"]),  # the next one would end in the same way
    ],
)
def test_the_next_process_runs_after_one_that_failed_if_it_may_end_better(played, faults, statuses):
    assert list(played(3, faults).finished().values()) == statuses


def test_a_killed_measurement_continues_with_the_process_that_it_lacks(measure, tmp_path):
    assert measure(3, {2: "kill"}).returncode == -signal.SIGKILL
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.csv")}
    assert len(before) == 2
    done = measure(3, {})
    assert json.loads(done.stdout) == {"1": "ok", "2": "ok", "3": "ok"}, done.stderr
    rows = records.merge(tmp_path / "runs")
    [interrupted] = rows.loc[rows["status"] == "interrupted", "run_id"]
    assert (
        sum(path.read_bytes() == content for path, content in before.items()) == 1
    )  # the first is as it was
    numbers = {
        path.stem: json.loads(path.read_text())["process"] for path in tmp_path.rglob("*Z-*.json")
    }
    assert (sorted(numbers.values()), numbers[interrupted]) == ([1, 2, 2, 3], 2)


ENOUGH = {"fewest_processes": 2, "processes_part": 0.09}


@pytest.mark.parametrize(
    ("faults", "factors", "count"),
    yaml.safe_load("""
- [{2: kill}, [1, 1, 1, 1, 1], 2]
- [{1: crashed}, [1, 1, 1, 1, 1], 3]  # two that ended well
- [{3: kill}, [1, 1.15, 1.07, 1.07, 1], 4]
- [{}, [1, 2, 1, 2, 1], 5]  # all that are allowed
"""),
)
def test_a_point_ends_when_it_is_known_and_after_a_kill_too(played, faults, factors, count):
    assert sorted(played(5, faults, factors, **ENOUGH).finished()) == [*range(1, count + 1)]


@pytest.mark.parametrize(
    ("given", "order"), [({"variant": "reference"}, [1, 0, 2]), ({"variant": "tuned"}, [0, 1, 2])]
)
def test_the_first_number_waits_for_no_comparison_and_a_search_comes_first(played, given, order):
    assert [*played(2, num_parity_steps=1, **given).finished()] == order


@pytest.mark.parametrize(
    ("patience", "busy", "faults", "count", "used", "is_unstable"),
    yaml.safe_load("""
- [60.0, [2], {}, 3, 2, false]
- [60.0, [2], {3: kill}, 3, 3, false]  # the killed process has windows
- [0.0, [2], {}, 2, 2, true]  # both count, as there is no other
- [4.0, [1], {}, 2, 2, true]  # the first one took 5 s
"""),
)
def test_what_others_disturbed_is_measured_again_and_does_not_count_while_there_is_patience(
    played, patience, busy, faults, count, used, is_unstable
):
    measured = played(5, faults, busy=busy, patience=patience, **ENOUGH)
    assert sorted(measured.finished()) == [*range(1, count + 1)]
    described = condition.samples(manifests.read_all(measured.folder))
    [line] = verdicts.summarise(measured.rows(), described).to_dict("records")
    assert (line["num_processes"], line["num_disturbed"]) == (used, int(not is_unstable))
    assert (
        verdicts.is_unstable(line["verdict"])
        is verdicts.has(line["verdict"], "cpu_shared")
        is is_unstable
    )
    assert measured.state().lost == 5.0


def test_a_process_tells_what_others_took_while_it_measured(measure, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_SECONDS", "[1, 1, 1]")
    monkeypatch.setenv("TOY_BUSY", "2")
    monkeypatch.setenv("BENCHBOOK_PATIENCE", "60")
    done = measure(3, {}, **ENOUGH)
    assert json.loads(done.stdout) == {"1": "ok", "2": "ok", "3": "ok"}, done.stderr
    described = condition.samples(manifests.read_all(tmp_path / "runs"))
    assert verdicts.runs(records.merge(tmp_path / "runs"), described)["is_disturbed"].sum() == 1


@pytest.mark.parametrize(
    ("faults", "statuses"),
    [
        ({1: "rows a folder", 2: "marker garbage"}, ["ok", "ok"]),
        ({1: "runs removed"}, ["crashed", "ok"]),
    ],
)
def test_what_is_broken_under_a_process_costs_at_most_its_run(measure, tmp_path, faults, statuses):
    done = measure(2, faults, "reference reference")
    assert done.returncode == 0, done.stderr
    found = json.loads(
        done.stdout
    )  # two of these processes may begin in one second, so that their order is by chance
    assert [found[number] for number in sorted(found)] == statuses
    assert not list(tmp_path.rglob("*.running"))


def test_a_point_that_fails_after_its_first_call_ends_the_notebook_with_the_reason(measure):
    done = measure(3, {"BEFORE": "raise"}, script=IN_A_NOTEBOOK)
    assert done.stderr.splitlines()[-1].endswith(
        "PointFailed: crashed: RuntimeError: planted and crashed: RuntimeError: planted"
    )


@pytest.mark.parametrize(
    ("device", "of_user", "is_shared"),
    [("tpu", "", True), ("tpu", "mine", False), ("cuda", "", False)],
)
def test_on_a_tpu_later_processes_take_what_the_first_one_compiled(
    played, monkeypatch, device, of_user, is_shared
):
    """CUDA's programs hold kernels that timing chose; a user's own folder stays; the comparison
    shares nothing."""
    monkeypatch.delenv(measurement.PROGRAMS, raising=False)
    if of_user:
        monkeypatch.setenv(measurement.PROGRAMS, of_user)
    calls = []

    def seen(measured, number, variables):
        folder = variables.get(measurement.PROGRAMS)
        calls.append((number, folder))
        made = Path(
            folder or measured.programs
        )  # by JAX, or, before the comparison, by an earlier session
        if folder or not number:
            made.mkdir(parents=True, exist_ok=True)
            (made / "jit_step-cache").touch()

    measured = played(
        3, study="resnet50_cost", seen=seen, device=device, framework="jax", num_parity_steps=1
    )
    shared = str(measured.programs) if is_shared else None
    assert calls == [(number, shared if number else None) for number in (1, 0, 2, 3)]
    assert not measured.programs.exists()
    assert (
        measurement.PROGRAMS not in measurement.kinds.KINDS[device].environment
    )  # of other points


SET_BACK = """
import os, time
real, started = time.time, time.monotonic()
time.time = lambda: real() - 3600.0 * (time.monotonic() - started > 0.5)  # an hour back after half a second
"""


def test_a_clock_that_is_set_back_hangs_nothing_and_no_process_took_a_negative_time(
    measure, tmp_path
):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SET_BACK)
    done = measure(1, {})
    assert json.loads(done.stdout) == {"1": "ok"}, done.stderr
    [described] = manifests.read_all(tmp_path / "runs").values()
    assert 0 < described["process_seconds"] < 600


def test_a_users_variables_mark_the_point_and_each_variant_keeps_the_memory_that_a_step_frees(
    measure, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert measure(1, {}, "reference controlled").returncode == 0
    described = manifests.read_all(tmp_path / "runs")
    assert [each["environment"]["variables"]["OMP_WAIT_POLICY"] for each in described.values()] == [
        "PASSIVE"
    ] * 2
    rows = records.merge(tmp_path / "runs")
    marked = verdicts.summarise(rows, condition.samples(described))["verdict"].map(str)
    assert marked.str.contains("changed: with .*OMP_WAIT_POLICY=PASSIVE").tolist() == [True] * 2
    trained = rows[rows["phase"] == "train"]
    keeps = trained["settings"].map(lambda settings: settings.get("keeps_memory", False))
    has_switch = platform.libc_ver()[0] == "glibc"
    assert dict(zip(trained["variant"], keeps, strict=True)) == {
        "reference": has_switch,
        "controlled": has_switch,
    }


WAITS = """
from collections import Counter
from benchbook.machine import contention
contention.others_share = iter([0.61, 0.0]).__next__
contention._used_by_others = iter([Counter(), Counter(python=3.0, sh=1.0), Counter()]).__next__
"""


def test_a_wait_says_for_what_and_how_long_and_no_process_is_beyond_the_most(measure, monkeypatch):
    for name, value in {
        "TOY_SECONDS": "[1, 1, 1]",
        "TOY_BUSY": "1",
        "BENCHBOOK_PATIENCE": "600",
    }.items():
        monkeypatch.setenv(name, value)
    said = measure(1, {}, script=WAITS + IN_A_NOTEBOOK).stdout
    wait = (
        r"waiting: python and others take 61% of the CPU; at most \d+ s more, BENCHBOOK_PATIENCE=0"
    )
    assert re.search(wait, said), said
    assert set(re.findall(r"process \d+ of at most \d+", said)) == {"process 1 of at most 1"}


def test_rows_of_a_user_who_plays_in_jupyterlab_are_temporary_until_they_are_kept(
    library, tmp_path
):
    environment = {name: value for name, value in os.environ.items() if name != "BENCHBOOK_OUTPUTS"}
    environment |= {
        "PYTHONPATH": str(library),
        "JPY_SESSION_NAME": "a notebook",
        "TMPDIR": str(tmp_path),
    }
    counted = "rows = records.merge(layout.root() / 'outputs' / 'runs'); print('kept', len(rows))\n"
    script = "from benchbook.machine import layout\nfrom benchbook.rows import records\n"
    script += IN_A_NOTEBOOK + counted + ("experiment.keep()\n" + counted) * 2
    command = [sys.executable, "-c", script, "1", "reference"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    said = "The rows of this measurement are temporary: `experiment.keep()` keeps them."
    assert said in done.stdout.partition("process 1")[0]
    outputs = library.parent / "outputs"
    rows = records.merge(outputs / "runs")
    own = rows[rows["study"] == "toy"]
    assert (own["phase"] == "train").sum() == 2
    others = len(rows) - len(own)
    counts = [others, len(rows), len(rows)]
    assert re.findall(r"^kept (\d+)$", done.stdout, re.M) == [*map(str, counts)]
    yours = (outputs / "state" / "sessions.csv").read_text()  # the report calls these yours
    assert all(session in yours for session in own["session"])
