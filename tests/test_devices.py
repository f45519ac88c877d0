import importlib.util
import os
import pkgutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import benchbook
from benchbook import devices, machine, nvidia
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


@pytest.mark.parametrize(("reported", "kinds"), [(None, ("cpu",)), ("mps", ("mps", "cpu")), ("cuda", ("cuda", "cpu"))])
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
    expected = {
        "framework": "torch",
        "framework_version": str(torch.__version__),
        "num_threads": torch.get_num_threads(),
    }
    assert devices.software(CPU) == expected


def run_apart(program: str, **environment: str) -> str:
    """Run a program in a Python of its own, with warnings as errors; it must print nothing to stderr."""
    kept = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL")}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=kept | environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_no_module_but_the_workloads_imports_a_framework():
    found = pkgutil.walk_packages(benchbook.__path__, "benchbook.")
    names = ["benchbook", *(module.name for module in found if not module.name.startswith("benchbook.workload"))]
    assert {"benchbook.devices.torch", "benchbook.roofline.operations"} <= set(names)
    program = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    found = {{"torch", "tensorflow", "jax", "keras"}} & set(sys.modules)
    assert not found, f"{{name}} imports {{found}}"
print("imported", len({names!r}))
"""
    assert run_apart(program) == f"imported {len(names)}\n"


def test_frameworks_that_are_not_installed_are_named_and_so_are_those_that_are():
    program = """
import sys
from benchbook import devices
sys.modules |= {"torch": None, "tensorflow": None}
for name in ("torch", "tensorflow"):
    try:
        devices.available(name)
    except devices.DeviceUnavailable as error:
        print(error)
print(devices.installed())
"""
    lines = run_apart(program).splitlines()
    there = tuple(name for name in ("jax",) if importlib.util.find_spec(name))
    for name, line in zip(("torch", "tensorflow"), lines, strict=False):
        assert line.startswith(f"{name} cannot be imported here (")
        assert line.endswith(f"installed: {', '.join(there) or 'none'}")
    assert lines[2:] == [str(there)]


@pytest.mark.parametrize(
    ("gpus", "libtpu", "given", "expected"),
    [
        ([], False, {}, {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}),
        ([], True, {}, {"TF_CPP_MIN_LOG_LEVEL": "3"}),
        ([{"name": "a GPU"}], False, {}, {}),
        ([], False, {"JAX_PLATFORMS": "tpu"}, {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "tpu"}),
    ],
)
def test_complaints_about_cuda_are_silenced_only_where_there_is_none(monkeypatch, gpus, libtpu, given, expected):
    names = ("TF_CPP_MIN_LOG_LEVEL", "JAX_PLATFORMS")
    for name in names:
        monkeypatch.setenv(name, "")  # so that what follows is undone after the test
        monkeypatch.delenv(name)
        if name in given:
            monkeypatch.setenv(name, given[name])
    monkeypatch.setattr(nvidia, "gpus", lambda: gpus)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "libtpu" if libtpu else None)
    devices.quieten()
    assert {name: os.environ[name] for name in names if name in os.environ} == expected


def test_jax_waits_for_every_part_of_an_output_that_lies_on_several_devices():
    pytest.importorskip("jax")
    program = """
from benchbook import devices, roofline
device = devices.pick("best", "jax")
import jax
assert (device.kind, len(jax.devices())) == ("cpu", 2)
mesh = jax.sharding.Mesh(jax.devices(), "rows")
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
spread = jax.device_put(jax.numpy.ones((2, 3000, 3000)), rows)
product = jax.jit(lambda a: a @ a)
for last in (None, "given"):
    output = {"deep": [product(spread)]}
    assert len(output["deep"][0].sharding.device_set) == 2
    devices.synchronize(device, output if last else None)
    assert all(part.data.is_ready() for part in output["deep"][0].addressable_shards)
assert devices.handle(device) == jax.devices()[0]
assert devices.random_state(device) == {}
devices.set_precision("tf32", "jax")
print(jax.config.jax_default_matmul_precision, devices.software(device)["framework"], devices.peak_memory(device)[1])
"""
    flags = "--xla_force_host_platform_device_count=2"
    assert run_apart(program, XLA_FLAGS=flags) == "tensorfloat32 jax process_peak_resident\n"


def test_tensorflow_answers_like_the_others_and_says_nothing_of_cuda():
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed")
    program = """
from benchbook import devices, machine, roofline
device = devices.pick("cpu", "tensorflow")
import tensorflow
devices.seed(7, "tensorflow")
state = devices.random_state(device)
draw = lambda: tensorflow.random.get_global_generator().normal([3]).numpy().tolist()
first, second = draw(), draw()
devices.restore_random_state(device, state)
assert draw() == first != second
expected = {"framework": "tensorflow", "framework_version": tensorflow.__version__}
assert devices.software(device) == expected | {"num_threads": machine.usable_cores()}
devices.set_precision("fp32", "tensorflow")
assert not tensorflow.config.experimental.tensor_float_32_execution_enabled()
assert roofline.check_synchronize(device, work_seconds=0.05).remaining < 0.1
print(devices.available("tensorflow")[-1], device.name == devices.pick("cpu", "tensorflow").name)
"""
    assert run_apart(program) == "cpu True\n"
