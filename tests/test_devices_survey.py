"""Frameworks list their devices in short-lived processes: planning imports no framework, and
errors stay the same."""

import re
import sys
import threading

import pytest

from benchbook.commands import study
from benchbook.frameworks import devices, survey
from benchbook.frameworks.devices import Device, DeviceUnavailable, FrameworkMissing
from benchbook.machine import identity, layout
from benchbook.measuring import sensors
from benchbook.running import profiles, session
from made.processes import run_python

LIBRARY = layout.root() / "lib"
LIMIT = {"time_limit_minutes": 1}
# Plans, asks, runs a study whose points all fail at once, and checks its rows, in this one process.
PLANNING = """
import sys
from typer.testing import CliRunner
from benchbook.commands import cli
from benchbook.frameworks import devices, survey
from benchbook.machine import identity, launch, layout
from benchbook.rows import records
from benchbook.running import execute, profiles, session

devices.installed = lambda: ("torch",)  # the others are asked alike, for seconds each
def run(*command):
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
begun, call = [], launch.call
launch.call = lambda *given, **options: begun.append(given) or call(*given, **options)
run("plan", "--profile", "smoke", "--studies", "calibrate mnist_speedup")
assert identity.present() or not begun  # the CPU needs no answer
survey.ANSWERS.clear()
run("machine")
assert begun
run("chips", "4090")
run("predict", "--chip", "T4", "--work", "resnet50")
execute.launch.call = lambda *given, **options: (None, execute.launch.Failed("", "it died"))
assert session.measure(profiles.read("smoke", "mnist_speedup")[:1], "here") == []
assert records.merge(layout.runs("here"))["status"].tolist() == ["crashed"]
run("validate", str(layout.outputs() / "runs"))
print(*{"torch", "jax", "tensorflow", "keras"} & set(sys.modules), "none of them", sep="; ")
"""


JAX = """
class Chip:
    device_kind = "TPU v5e"
def default_backend():
    return {!r}
def devices(kind):
    return [Chip()]
"""


@pytest.fixture
def jax_is(tmp_path, monkeypatch):
    """Put a package `jax` of this text before the real one, and forget the real one's answers."""

    def put(text: str) -> None:
        (tmp_path / "jax").mkdir()
        (tmp_path / "jax" / "__init__.py").write_text(f'{text}\n__version__ = "0.0"\n')
        monkeypatch.syspath_prepend(tmp_path)

    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setitem(survey.ANSWERS, "jax", None)
    del survey.ANSWERS["jax"]
    return put


@pytest.fixture
def machine_says(monkeypatch, command):
    """Return a function to what `benchbook machine` prints of JAX alone."""

    def said() -> str:
        monkeypatch.setattr(devices, "installed", lambda: ("jax",))
        monkeypatch.setattr(sensors, "open_sensor", lambda device: sensors.Sensor(method="rapl"))
        status, text = command("machine")
        assert status == 0, text
        assert re.search(r"torch +│ +│ +│ +│ not installed", text), text
        return text

    return said


def test_planning_asking_and_running_import_no_framework(tmp_path):
    printed = run_python(PLANNING, PYTHONPATH=str(LIBRARY), BENCHBOOK_OUTPUTS=str(tmp_path))
    assert printed.splitlines()[-1] == "none of them"


def test_kinds_and_names_come_from_a_process_that_is_started_once(jax_is, machine_says, tmp_path):
    jax_is(
        f"{JAX.format('tpu')}open({str(tmp_path / 'asked')!r}, 'a').write('asked '); print('a library that greets')"
    )
    answers = [survey.ask("jax") for _ in range(2)]
    assert [each.kind for each in answers[0].devices] == ["tpu", "cpu"]
    assert answers[0] == answers[1]
    assert survey.device("best", "jax") == Device("tpu", "TPU v5e", "jax")
    with pytest.raises(
        DeviceUnavailable, match="'cuda' is not available to jax here; allowed: best, tpu, cpu"
    ):
        survey.device("cuda", "jax")
    assert re.search(r"jax +│ tpu +│ TPU v5e +│ rapl", machine_says())
    assert (tmp_path / "asked").read_text().split() == ["asked"]


def test_an_accelerator_that_the_table_lacks_is_named_and_the_cpu_does_not_replace_it(
    jax_is, machine_says, capsys
):
    jax_is(JAX.format("neuron"))
    with pytest.raises(
        DeviceUnavailable,
        match=r"jax is not measured on 'neuron' here: .* not in benchbook's table",
    ):
        survey.device("best", "jax")
    assert survey.device("cpu", "jax").kind == "cpu"
    _, points = study._planned("paper", "calibrate", "", "all")  # torch's remain
    assert points
    assert "Left out: 'neuron' of jax" in capsys.readouterr().out
    with pytest.raises(DeviceUnavailable, match="jax is not measured on 'neuron' here"):
        profiles.points_of(
            "mobilenetv2_energy",
            {"points": [{"framework": "jax", "device": "best"}]} | LIMIT,
            "all",
        )
    assert re.search(
        r"jax +│ neuron +│ +│ +│ not used: .* not in benchbook's table", machine_says()
    )


# What JAX raises where JAX_PLATFORMS names its device, and what XLA's client does.
BUSY = (
    "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 12."
)
OLD = "INTERNAL: CUDA error: CUDA driver version is insufficient for CUDA runtime version"

FAILING_JAX = """
class JaxRuntimeError(RuntimeError):
    pass
def default_backend():
    raise JaxRuntimeError({!r})
devices = default_backend
"""


@pytest.mark.parametrize("reason", [BUSY, OLD])
def test_a_framework_that_cannot_open_its_device_ends_its_own_points_alone(
    jax_is, outputs, capsys, monkeypatch, reason
):
    jax_is(FAILING_JAX.format(reason))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(identity, "present", lambda: ("tpu",))  # else no framework is asked
    _, points = study._planned("smoke", "calibrate mobilenetv2_energy", "", "all")
    said = capsys.readouterr().out
    assert (
        f"Left out: all points of jax: jax cannot open its devices here (JaxRuntimeError: {reason})"
        in said
    )
    assert {point.framework for point in points} == {*devices.installed()} - {"jax"}
    with pytest.raises(DeviceUnavailable, match=reason[:20]):
        profiles.points_of("mobilenetv2_energy", {"points": [{"framework": "jax"}]} | LIMIT, "all")
    assert (
        profiles.points_of(
            "mobilenetv2_energy", {"points": [{"framework": ["jax"]}]} | LIMIT, "all"
        )
        == []
    )


KILLS = "import os, sys; sys.stderr.write('driver too old'); sys.stderr.flush(); os._exit(134)"
HANGS = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            "raise ImportError('no libcuda')",
            FrameworkMissing,
            r"cannot be imported here \(no libcuda\); (?!.*jax)",
        ),
        (
            KILLS,
            RuntimeError,
            "jax could not be asked for its devices: .* 134; it last printed: driver too old",
        ),
        (HANGS, RuntimeError, "jax did not list its devices within 1 seconds"),
    ],
)
def test_a_broken_framework_is_an_error_that_names_it_and_is_not_asked_for_a_cpu(
    jax_is, machine_says, monkeypatch, text, error, words
):
    jax_is(text)
    monkeypatch.setattr(survey, "TIMEOUT_SECONDS", 30.0 if text != HANGS else 1.0)
    assert survey.device("cpu", "jax") == Device("cpu", identity.identify().chip, "jax")
    with pytest.raises(error, match=words):
        survey.kinds("jax")
    if text == KILLS:
        assert re.search(
            r"jax +│ +│ +│ +│ jax could not be asked for its devices: the process", machine_says()
        )


def test_frameworks_are_asked_side_by_side(monkeypatch):
    monkeypatch.setattr(survey, "ANSWERS", {})
    both = threading.Barrier(2)

    def ask(framework: str) -> survey.Answer:
        both.wait(timeout=60)  # for the other's process
        return survey.Answer((Device("cpu", framework),))

    monkeypatch.setattr(survey, "_ask_elsewhere", ask)
    survey.ask_together(["one", "other"])
    assert {name: survey.ask(name).devices[0].name for name in ("one", "other")} == {
        "one": "one",
        "other": "other",
    }


@pytest.mark.usefixtures("outputs")
def test_a_study_asks_no_framework_where_the_computer_shows_no_accelerator(monkeypatch, command):
    monkeypatch.setattr(survey, "ANSWERS", {})
    monkeypatch.setattr(identity, "present", tuple)
    monkeypatch.setattr(survey, "_ask_elsewhere", lambda framework: pytest.fail(framework))
    monkeypatch.setattr(session, "measure", lambda points, *_: [(one, "no time") for one in points])
    status, said = command("study", "--profile", "smoke", "--studies", "mnist_speedup")
    assert status == 4
    assert "no time" in said


@pytest.mark.skipif("tensorflow" not in devices.installed(), reason="needs points of tensorflow")
def test_a_framework_that_compiles_when_first_used_gets_time_and_a_line_that_says_why(
    monkeypatch, command
):
    limits, there = {}, (Device("cuda", "NVIDIA H200"), Device("cpu", "a chip"))
    for compiles in (False, True):
        answer = survey.Answer(there, compiles_first=("cuda",) * compiles)
        monkeypatch.setattr(survey, "ask", lambda framework, answer=answer: answer)
        points = profiles.points_of(
            "segmentation_scaling", {"points": [{"framework": "tensorflow"}]} | LIMIT, "all"
        )
        limits[compiles] = {
            point.parameters["device"]: point.time_limit_seconds for point in points
        }
        _, said = command("plan", "--studies", "segmentation_scaling")
        assert ("tensorflow has no binaries for this GPU" in said) == compiles
    assert limits[True]["cpu"] == limits[False]["cpu"] == limits[False]["cuda"]
    assert limits[True]["cuda"] == limits[False]["cuda"] + profiles.FIRST_USE_SECONDS
