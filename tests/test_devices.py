import pkgutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import benchbook
from benchbook import devices, machine
from benchbook.devices import Device, DeviceUnavailable
from fakes import CPU

MPS, CUDA = Device("mps", "an Apple GPU"), Device("cuda", "an NVIDIA GPU", index=1)


def _torch_reports(monkeypatch, kind: str | None) -> None:
    def current_accelerator(check_available: bool = False):
        if not check_available:  # what a CUDA build says on a machine that has no GPU
            return torch.device("cuda")
        return torch.device(kind) if kind else None

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")


@pytest.mark.parametrize(
    ("reported", "kinds"), [(None, ("cpu",)), ("mps", ("mps", "cpu")), ("cuda", ("cuda", "cpu"))]
)
def test_available_names_the_accelerator_before_the_cpu(monkeypatch, reported, kinds):
    _torch_reports(monkeypatch, reported)
    assert devices.available() == kinds
    assert devices.pick("best").kind == kinds[0]
    assert [devices.pick(kind).kind for kind in kinds] == list(kinds)


def test_device_carries_the_name_of_its_own_chip(monkeypatch):
    chip = machine.identify().chip
    _torch_reports(monkeypatch, "cuda")
    assert devices.pick("cuda") == Device("cuda", "NVIDIA H200")
    assert devices.pick("cpu") == Device("cpu", chip)
    _torch_reports(monkeypatch, "mps")
    assert devices.pick("mps") == Device("mps", chip)


@pytest.mark.parametrize("kind", ["cuda", "tpu", "CPU", ""])
def test_device_that_is_not_here_is_an_error_and_never_another_device(monkeypatch, kind):
    _torch_reports(monkeypatch, "mps")
    with pytest.raises(DeviceUnavailable, match="allowed: best, mps, cpu") as error:
        devices.pick(kind)
    assert repr(kind) in str(error.value)


def test_unknown_framework_is_an_error_that_names_it_and_what_is_allowed():
    with pytest.raises(ValueError, match="'theano'; allowed: torch"):
        devices.pick("cpu", framework="theano")


def test_synchronize_waits_for_the_accelerator_and_does_nothing_on_the_cpu(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    devices.synchronize(CPU)
    assert waited == []
    devices.synchronize(MPS)
    devices.synchronize(CUDA)
    assert waited == [MPS.index, CUDA.index]


def test_peak_memory_names_its_method(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: 1000 + index)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 2000)
    assert devices.peak_memory(CUDA) == (1001, "cuda_allocator_peak")
    assert devices.peak_memory(MPS) == (2000, "mps_allocated_now")


@pytest.mark.parametrize(("system", "expected"), [("linux", 3 * 1024), ("darwin", 3)])
def test_peak_memory_of_the_process_is_in_bytes_on_every_system(monkeypatch, system, expected):
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=3))
    monkeypatch.setattr(devices, "resource", usage)
    monkeypatch.setattr(devices, "sys", SimpleNamespace(platform=system))
    assert devices.peak_memory(CPU) == (expected, "process_peak_resident")


def test_only_cuda_keeps_a_maximum_that_is_reset(monkeypatch):
    was_reset = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", was_reset.append)
    for device in (CPU, MPS, CUDA):
        devices.reset_peak_memory(device)
    assert was_reset == [CUDA.index]


def test_restored_random_state_repeats_the_draws():
    with torch.random.fork_rng(devices=[]):
        devices.seed(7)
        state = devices.random_state(CPU)
        first, second = torch.rand(5), torch.rand(5)
        devices.restore_random_state(CPU, state)
        assert torch.equal(torch.rand(5), first)
        assert torch.equal(torch.rand(5), second)
        assert not torch.equal(first, second)


@pytest.mark.parametrize("device", [MPS, CUDA])
def test_random_state_covers_host_and_accelerator(monkeypatch, device):
    restored = []
    generator = SimpleNamespace(get_rng_state=lambda: "a state", set_rng_state=restored.append)
    asked = []
    monkeypatch.setattr(torch, "get_device_module", lambda kind: asked.append(kind) or generator)
    state = devices.random_state(device)
    expected = torch.rand(3)
    devices.restore_random_state(device, state)
    assert torch.equal(torch.rand(3), expected)
    assert restored == ["a state"]
    assert asked == [device.kind, device.kind]


def test_seed_decides_the_draws():
    with torch.random.fork_rng(devices=[]):
        draws = []
        for number in (1, 1, 2):
            devices.seed(number)
            draws.append(torch.rand(5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize(("precision", "mode"), [("tf32", "tf32"), ("fp32", "ieee")])
def test_precision_holds_for_convolutions_and_matrix_products(precision, mode):
    places = torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul
    before = [place.fp32_precision for place in places]
    try:
        devices.set_precision(precision)
        assert [place.fp32_precision for place in places] == [mode] * 3
    finally:
        for place, value in zip(places, before, strict=True):
            place.fp32_precision = value


def test_unknown_precision_is_an_error_that_names_it_and_what_is_allowed():
    with pytest.raises(ValueError, match="'fp8'; allowed: fp32, tf32"):
        devices.set_precision("fp8")


def test_software_is_told_as_columns_of_a_row():
    expected = {"framework": "torch", "framework_version": str(torch.__version__), "num_threads": torch.get_num_threads()}
    assert devices.software(CPU) == expected


def test_no_module_but_the_workloads_imports_a_framework():
    names = ["benchbook", *(f"benchbook.{module.name}" for module in pkgutil.iter_modules(benchbook.__path__))]
    names.remove("benchbook.workloads")
    program = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    found = {{"torch", "tensorflow", "jax", "keras"}} & set(sys.modules)
    assert not found, f"{{name}} imports {{found}}"
print("imported", len({names!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(names)}\n"
