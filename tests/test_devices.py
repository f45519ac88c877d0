import ast
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import benchbook
from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.frameworks.workload import Settings
from benchbook.machine import identity, libraries, nvidia
from benchbook.machine.kinds import Features
from benchbook.measuring import calibration, sensors, support, tuned
from fakes import CPU

MPS, CUDA = Device("mps", "an Apple GPU"), Device("cuda", "an NVIDIA GPU", index=1)


def _torch_reports(monkeypatch, kind: str | None) -> None:
    def current_accelerator(check_available: bool = False):
        if not check_available:  # what a CUDA build says on a machine that has no GPU
            return torch.device("cuda")
        return torch.device(kind) if kind else None

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.mark.parametrize(("reported", "kinds"), [(None, ("cpu",)), ("mps", ("mps", "cpu")), ("cuda", ("cuda", "cpu"))])
def test_available_names_the_accelerator_before_the_cpu(monkeypatch, reported, kinds):
    _torch_reports(monkeypatch, reported)
    assert devices.backend("torch").kinds() == kinds
    assert devices.pick("best").kind == kinds[0]
    assert [devices.pick(kind).kind for kind in kinds] == list(kinds)


def test_device_carries_the_name_of_its_own_chip(monkeypatch):
    chip = identity.identify().chip
    _torch_reports(monkeypatch, "cuda")
    assert devices.pick("cuda") == Device("cuda", "NVIDIA H200", capability=9.0)
    assert devices.pick("cpu") == Device("cpu", chip)
    _torch_reports(monkeypatch, "mps")
    assert devices.pick("mps") == Device("mps", chip)


@pytest.mark.parametrize("kind", ["cuda", "tpu", "CPU", ""])
def test_device_that_is_not_here_is_an_error_and_never_another_device(monkeypatch, kind):
    _torch_reports(monkeypatch, "mps")
    with pytest.raises(DeviceUnavailable, match="allowed: best, mps, cpu") as error:
        devices.pick(kind)
    assert repr(kind) in str(error.value)


@pytest.mark.parametrize("reported", ["xpu", "privateuseone"])
def test_accelerator_that_nobody_named_is_refused_by_name_and_never_taken_for_another(monkeypatch, reported):
    _torch_reports(monkeypatch, reported)
    assert devices.backend("torch").kinds() == ("cpu",)
    assert devices.pick("cpu").is_cpu
    for kind in ("best", reported):
        with pytest.raises(DeviceUnavailable, match=f"{reported}.*; allowed: cpu"):
            devices.pick(kind)
    with pytest.raises(DeviceUnavailable, match=f"{reported}.*; allowed: cpu, mps, metal, cuda, tpu"):
        Device(reported, "an accelerator")


def test_a_kind_that_is_added_to_the_table_is_driven_through_what_torch_offers_for_any_accelerator(monkeypatch):
    monkeypatch.setitem(devices.KINDS, "xpu", Features(frameworks=("torch",)))
    _torch_reports(monkeypatch, "xpu")
    module = SimpleNamespace(get_device_name=lambda: "Arc", device_count=lambda: 3, get_rng_state=lambda: "a state")
    monkeypatch.setattr(torch, "get_device_module", lambda kind: {"xpu": module}[kind])
    called = []
    for name, answer in (("synchronize", None), ("reset_peak_memory_stats", None), ("max_memory_allocated", 7)):
        monkeypatch.setattr(
            torch.accelerator, name, lambda index, name=name, answer=answer: called.append(name) or answer
        )
    device = devices.pick("best")
    assert (device, device.backend.count(device), device.backend.handle(device)) == (Device("xpu", "Arc"), 3, "xpu")
    device.backend.reset_peak_memory(device)
    device.backend.synchronize(device)
    assert devices.peak_memory(device) == (7, "xpu_allocator_peak")
    assert called == ["reset_peak_memory_stats", "synchronize", "max_memory_allocated"]
    assert device.backend.random_state(device)["xpu"] == "a state"
    assert tuned.candidates(device) == [{"channels_last": True}, {"fused": True}, {"compiled": True}]
    assert isinstance(sensors.open_sensor(device), sensors.NoSensor)


@pytest.mark.parametrize(("capability", "has"), [(6.0, False), (7.0, False), (7.5, False), (8.0, True), (12.1, True)])
def test_gpus_before_ampere_have_no_tf32_and_no_bfloat16_and_are_not_offered_them(capability, has):
    device = Device("cuda", "a GPU", capability=capability)
    assert device.has_units("tf32") == device.has_units("bf16") == has
    assert ("tf32" in support.precisions(device)) == ("tf32" in calibration.precisions(device)) == has
    precisions = [change["precision"] for change in tuned.candidates(device) if "precision" in change]
    assert precisions == (["tf32", "amp_bf16", "amp_fp16"] if has else ["amp_fp16"])
    if not has:
        with pytest.raises(NotImplementedError, match=r"a GPU \(cuda\) has no tf32; allowed: cuda from .* 8"):
            device.check_precision("tf32")


def test_only_nvidia_has_tf32():
    having = [kind for kind in devices.KINDS if Device(kind, "a chip").has_units("tf32")]
    assert having == ["cuda"]


def test_unknown_framework_is_an_error_that_names_it_and_what_is_allowed():
    with pytest.raises(ValueError, match="'theano'; allowed: torch"):
        devices.pick("cpu", framework="theano")


def test_synchronize_waits_for_the_accelerator_and_does_nothing_on_the_cpu(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    CPU.backend.synchronize(CPU)
    assert waited == []
    MPS.backend.synchronize(MPS)
    CUDA.backend.synchronize(CUDA)
    assert waited == [MPS.index, CUDA.index]


def test_peak_memory_names_its_method(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: 1000 + index)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 2000)
    assert devices.peak_memory(CUDA) == (1001, "cuda_allocator_peak")
    assert devices.peak_memory(MPS) == (2000, "mps_driver_pool")


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
        device.backend.reset_peak_memory(device)
    assert was_reset == [CUDA.index]


def test_restored_random_state_repeats_the_draws():
    with torch.random.fork_rng(devices=[]):
        CPU.backend.seed(7)
        state = CPU.backend.random_state(CPU)
        first, second = torch.rand(5), torch.rand(5)
        CPU.backend.restore_random_state(CPU, state)
        assert torch.equal(torch.rand(5), first)
        assert torch.equal(torch.rand(5), second)
        assert not torch.equal(first, second)


@pytest.mark.parametrize("device", [MPS, CUDA])
def test_random_state_covers_host_and_accelerator(monkeypatch, device):
    restored = []
    generator = SimpleNamespace(get_rng_state=lambda: "a state", set_rng_state=restored.append)
    asked = []
    monkeypatch.setattr(torch, "get_device_module", lambda kind: asked.append(kind) or generator)
    state = device.backend.random_state(device)
    expected = torch.rand(3)
    device.backend.restore_random_state(device, state)
    assert torch.equal(torch.rand(3), expected)
    assert restored == ["a state"]
    assert asked == [device.kind, device.kind]


def test_seed_decides_the_draws():
    with torch.random.fork_rng(devices=[]):
        draws = []
        for number in (1, 1, 2):
            CPU.backend.seed(number)
            draws.append(torch.rand(5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_unknown_precision_is_an_error_that_names_it_and_what_is_allowed():
    with pytest.raises(ValueError, match="'fp8'; allowed: fp64, fp32, tf32"):
        Settings("fp8")


def test_software_is_told_as_columns_of_a_row():
    expected = {
        "framework": "torch",
        "framework_version": str(torch.__version__),
        "num_threads": torch.get_num_threads(),
    }
    assert CPU.backend.software() == expected


def run_apart(program: str, **environment: str) -> str:
    """Run a program in a Python of its own, with warnings as errors; it must print nothing to stderr."""
    kept = {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL")}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=kept | environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_no_module_but_what_trains_imports_a_framework():
    names = ["benchbook", *(module.name for module in pkgutil.walk_packages(benchbook.__path__, "benchbook."))]
    named = "results|charts|tables|matrix|money|scaling|plan"
    trains = re.compile(rf"benchbook\.(frameworks\.\w+\.|studies\.(?!datasets|figures)\w+\.(?!{named}))")
    names = [name for name in names if not trains.match(name)]
    several = ("mobilenetv2_energy", "resnet50_cost", "segmentation_scaling")  # these choose their framework
    names += [f"benchbook.studies.{study}.workload" for study in several]
    assert {"benchbook.frameworks.devices", "benchbook.frameworks.operations", "benchbook.rows.records"} <= set(names)
    program = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    imported = {{"torch", "tensorflow", "jax", "keras", "mlx"}} & set(sys.modules)
    assert not imported, f"{{name}} imports {{imported}}"
print("imported", len({names!r}))
"""
    assert run_apart(program) == f"imported {len(names)}\n"


def test_kinds_of_devices_are_told_apart_in_their_own_package_alone():
    names, library = set(devices.KINDS) - {"cpu"}, Path(benchbook.__file__).parent

    def tells_apart(node: ast.AST) -> bool:
        """Return whether code compares something with the name of a kind, or looks it up by such a name."""
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else getattr(node, "keys", [])
        if any(isinstance(part, ast.Subscript) for part in parts):
            return False  # a column of rows, which are data
        parts = [one for part in parts for one in getattr(part, "elts", [part])]
        return bool(names & {getattr(part, "value", None) for part in parts if isinstance(part, ast.Constant)})

    places = [
        f"{path.relative_to(library)}:{node.lineno}"
        for path in sorted(library.rglob("*.py"))
        if "frameworks" not in path.parts and path.name not in ("kinds.py", "libraries.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare | ast.Dict) and tells_apart(node)
    ]
    assert places == []


def test_frameworks_that_are_not_installed_are_named_and_so_are_those_that_are():
    program = """
import sys
from benchbook.frameworks import devices
sys.modules |= {"torch": None, "tensorflow": None}
for name in ("torch", "tensorflow"):
    try:
        devices.backend(name).kinds()
    except devices.DeviceUnavailable as error:
        print(error)
print(devices.installed())
"""
    lines = run_apart(program).splitlines()
    there = tuple(name for name in ("jax", "mlx") if importlib.util.find_spec(name))
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


@pytest.mark.parametrize("framework", [name for name in ("tensorflow", "jax", "mlx") if importlib.util.find_spec(name)])
def test_a_framework_begins_without_a_word_of_cuda(framework):
    assert (
        run_apart(f"from benchbook.frameworks import devices; print(devices.pick('cpu', '{framework}').kind)")
        == "cpu\n"
    )


def test_what_a_library_takes_along_stays_out_and_can_be_imported_afterwards(tmp_path, monkeypatch):
    (tmp_path / "guest_of_tests.py").write_text("")
    host = "try:\n    import guest_of_tests\nexcept ImportError:\n    guest_of_tests = None\n"
    for name in ("host_of_tests", "later_host_of_tests"):
        (tmp_path / f"{name}.py").write_text(host)
        monkeypatch.setitem(libraries.TAKEN_ALONG, name, ("guest_of_tests",))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("host_of_tests", "later_host_of_tests", "guest_of_tests"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert libraries.import_alone("host_of_tests").guest_of_tests is None
    guest = importlib.import_module("guest_of_tests")
    assert libraries.import_alone("later_host_of_tests").guest_of_tests is guest  # who has it keeps it
