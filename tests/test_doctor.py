"""The doctor: one planted fault of each kind is found and named with its next step, and a right machine is right."""

import json
import os
import time
import zipfile
from types import SimpleNamespace

import numpy
import pytest
import torch

from benchbook.commands import doctor
from benchbook.commands.doctor import MISSING, RIGHT, WRONG
from benchbook.frameworks import devices
from benchbook.frameworks.backend import Refused
from benchbook.frameworks.devices import Device
from benchbook.frameworks.survey import Answer
from benchbook.machine import identity
from benchbook.measuring import calibration, sensors
from benchbook.measuring.window import Window
from benchbook.rows import packing
from benchbook.studies.mnist_speedup import plan as mnist
from fakes import CPU, Sensor

CUDA = Device("cuda", "a GPU")


pytestmark = pytest.mark.usefixtures("own_random_state")


def test_what_is_planted_is_found_and_what_a_framework_raises_is_an_answer(monkeypatch):
    for check in (doctor.check_waiting, doctor.check_memory):
        assert doctor.run_check(lambda check=check: check(CPU))[0] == RIGHT

    def planted(device, work_seconds):
        raise calibration.NotSynchronized("synchronising left 90% of the work undone")

    monkeypatch.setattr(calibration, "check_synchronize", planted)
    monkeypatch.setattr(devices, "peak_memory", lambda device: (None, None))
    state, detail, hint = doctor.run_check(lambda: doctor.check_waiting(CPU))
    assert (state, "90%" in detail, "publish none" in hint) == (WRONG, True, True)
    assert doctor.check_memory(CPU)[0] == MISSING
    state, detail, _ = doctor.run_check(lambda: torch.zeros(2) @ torch.zeros(3))
    assert (state, detail.partition(":")[0]) == (WRONG, "RuntimeError")


@pytest.mark.parametrize(
    ("sensor", "state", "words"),
    [
        (sensors.NO_SENSOR, MISSING, "no counter"),
        (Sensor([], None), MISSING, "did not move"),
        (Sensor([], 5.0), RIGHT, "board"),
    ],
)
def test_a_sensor_is_there_or_is_missing_with_what_to_do(monkeypatch, sensor, state, words):
    monkeypatch.setattr(doctor, "SENSOR_SECONDS", 0.0)
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensor)
    seen, detail, hint = doctor.check_energy(CPU)
    assert (seen, words in detail, bool(hint)) == (state, True, state == MISSING)


@pytest.mark.parametrize(("planted", "state"), [(False, RIGHT), (True, WRONG)])
def test_a_product_that_adds_what_lies_behind_its_operands_is_wrong(monkeypatch, planted, state):
    right = type(CPU.backend).multiplication

    def reads_on(backend, device, first, second, dtype):
        if first.shape[-1] < 32_767:
            return right(backend, device, first, second, dtype)
        behind = ((0, 0), (0, 0), (0, 1)), ((0, 0), (0, 1), (0, 0))
        parts = (
            numpy.pad(part, width, constant_values=1e6) for part, width in zip((first, second), behind, strict=True)
        )
        return right(backend, device, *parts, dtype)

    if planted:
        monkeypatch.setattr(type(CPU.backend), "multiplication", reads_on)
    seen, detail, hint = doctor.check_products(CPU)
    assert (seen, bool(hint)) == (state, planted), detail


@pytest.mark.parametrize(("seconds", "state"), [(0.01, RIGHT), (1e-6, WRONG)])
def test_a_transfer_faster_than_any_bus_has_moved_nothing(monkeypatch, seconds, state):
    monkeypatch.setattr(doctor.operations, "copy", lambda device, size, direction: lambda previous: None)
    monkeypatch.setattr(calibration, "timed", lambda device, operation, count: Window(seconds * count))
    seen, detail, hint = doctor.check_transfers(CUDA)
    assert (seen, "GB/s" in detail, "ceilings" in hint) == (state, True, state == WRONG)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_study_whose_gradient_is_a_tenth_off_is_wrong(monkeypatch, factor):
    """A workload of a device, whose first layer's gradient is changed there alone."""
    smallest = mnist.Plan.smallest

    def planted(device):
        workload = smallest(device)
        next(workload.model.parameters()).register_hook(lambda gradient: gradient * factor)
        return workload

    monkeypatch.setattr(mnist.Plan, "smallest", planted)
    state, detail, hint = doctor.check_study(CPU, mnist.Plan)
    assert state == (RIGHT if factor == 1 else WRONG), detail
    assert bool(hint) == (factor != 1)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_every_study_is_tried_with_the_frameworks_that_train_it(framework):
    tried = doctor.checks(Device("cpu", "a chip", framework))
    both = {"waiting", "memory", "energy", "transfers", "products", "mobilenetv2_energy", "resnet50_cost"}
    own = {"torch": {"mnist_speedup", "vae_stability", "simclr_epochs", "gpt_tokens"}, "jax": {"segmentation_scaling"}}
    assert set(tried) == both | own[framework]


BEGUN = 'import json, os, time\nprint(json.dumps({"begun": "waiting"}), flush=True)\n'


@pytest.mark.parametrize(
    ("body", "seconds", "state", "words"),
    [("os.abort()", 60, WRONG, "signal 6"), ("time.sleep(600)", 2, MISSING, "time limit was reached")],
)
def test_a_process_that_dies_or_does_not_end_is_found_by_the_check_it_was_in(
    tmp_path, monkeypatch, body, seconds, state, words
):
    (tmp_path / "planted_checks.py").write_text(BEGUN + body)
    monkeypatch.setattr(doctor, "MODULE", "planted_checks")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (finding,) = doctor.try_device("torch", "mps", time.monotonic() + seconds)
    assert (finding.device, finding.check, finding.state, words in finding.detail) == ("mps", "waiting", state, True)


@pytest.fixture
def seen(monkeypatch):
    """Return what lets `examine` see these frameworks' devices; it returns the list of those that are tried."""

    def put(**answers: Answer) -> list[tuple[str, str]]:
        tried = []
        monkeypatch.setattr(devices, "installed", lambda: tuple(answers))
        monkeypatch.setattr(doctor.survey, "ask", answers.get)
        monkeypatch.setattr(
            doctor, "try_device", lambda framework, kind, deadline: tried.append((framework, kind)) or ()
        )
        return tried

    return put


@pytest.mark.parametrize(
    ("gpus", "refused", "state"),
    [(("NVIDIA H200",), None, MISSING), ((), None, RIGHT), ((), Refused("cuda", "a card is here"), MISSING)],
)
def test_a_framework_or_an_accelerator_that_is_not_seen_is_missing(monkeypatch, seen, gpus, refused, state):
    seen(torch=Answer((CPU,), refused))
    monkeypatch.setattr(identity, "identify", lambda: SimpleNamespace(accelerators=gpus))
    findings = [(finding.framework, finding.check, finding.state) for finding in doctor.examine(600)]
    assert findings[0] == ("torch", "accelerator", state)
    assert findings[1:] == [(name, "installed", MISSING) for name in devices.FRAMEWORKS if name != "torch"]


def test_of_one_kind_of_device_alone_that_is_tried(seen):
    tried = seen(torch=Answer((CUDA, CPU)), jax=Answer((CPU,)))
    list(doctor.examine(60, device="cuda"))
    assert tried == [("torch", "cuda")]


def test_the_zip_holds_findings_machine_condition_and_packages_and_nothing_private(tmp_path, monkeypatch):
    finding = doctor.Finding("torch", "cpu", "memory", RIGHT, "12 MiB")
    path = doctor.write([finding], tmp_path / "doctor.zip")
    with zipfile.ZipFile(path) as archive:
        contents = {name: json.loads(archive.read(name)) for name in archive.namelist()}
    assert set(contents) == {"findings.json", "machine.json", "condition.json", "environment.json"}
    assert contents["findings.json"][0]["check"] == "memory"
    assert "torch" in contents["environment.json"]["packages"]
    private = doctor.Finding("torch", "cpu", "memory", WRONG, f"{packing.layout.root()}/lib/file.py broke")
    with pytest.raises(packing.PackError, match=r"findings\.json"):
        doctor.write([private], tmp_path / "other.zip")
