import fnmatch
import functools
import importlib.util
import json
import os
import platform
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import yaml

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.frameworks.workload import Settings
from benchbook.machine import identity, libraries, nvidia
from benchbook.machine.kinds import Features
from benchbook.measuring import calibration, sensors, trials, tuned
from made.fakes import CPU
from made.processes import run_python

MPS = Device("mps", "an Apple GPU")


def _torch_reports(monkeypatch, kind: str | None) -> None:
    def current_accelerator(check_available: bool = False):
        if not check_available:  # the answer of a CUDA build on a machine without a GPU
            return torch.device("cuda")
        return torch.device(kind) if kind else None

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.mark.parametrize(
    ("reported", "kinds"), [(None, ("cpu",)), ("mps", ("mps", "cpu")), ("cuda", ("cuda", "cpu"))]
)
def test_the_accelerator_comes_before_the_cpu_and_has_the_name_of_its_chip(
    monkeypatch, reported, kinds
):
    _torch_reports(monkeypatch, reported)
    assert devices.backend("torch").kinds() == kinds
    assert devices.pick("best").kind == kinds[0]
    chip, own = identity.identify().chip, Device("cuda", "NVIDIA H200", capability=9.0)
    assert [devices.pick(kind) for kind in kinds] == [
        own if kind == "cuda" else Device(kind, chip) for kind in kinds
    ]
    with pytest.raises(
        DeviceUnavailable,
        match=f"'CPU' is not available to torch here; allowed: best, {', '.join(kinds)}",
    ):
        devices.pick("CPU")  # and never another device


def module(**names) -> SimpleNamespace:
    return SimpleNamespace(__version__="2.10.0+cu128", nn=None, **names)


def a_torch(kind=None, hip=None, capability=(9, 0), built=(), error=None):
    """Return a double of torch with an accelerator of this kind; without one, initialising CUDA
    raises the error.

    With `hip` it is ROCm's build: its GPUs are cuda, their architectures such as gfx942 and
    their capabilities AMD's.
    """

    init = mock.Mock(side_effect=RuntimeError(error))
    accelerator = SimpleNamespace(
        current_accelerator=lambda check_available: kind and SimpleNamespace(type=kind)
    )
    cuda = SimpleNamespace(
        init=init,
        get_arch_list=lambda: list(built),
        get_device_capability=lambda: tuple(capability),
    )
    return module(accelerator=accelerator, cuda=cuda, version=SimpleNamespace(hip=hip))


def a_tensorflow(kind=None, rocm=False, capability=(9, 0)):
    """Return a double of TensorFlow 2.20 with an accelerator of this kind."""
    there = [SimpleNamespace(device_type=each) for each in ("CPU", kind) if each]
    details = SimpleNamespace(
        get_device_details=lambda device: {"compute_capability": tuple(capability)}
    )
    config = SimpleNamespace(list_physical_devices=lambda kind=None: there, experimental=details)
    build = {"cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]}
    sysconfig = SimpleNamespace(get_build_info=lambda: build)
    return module(
        config=config, sysconfig=sysconfig, test=SimpleNamespace(is_built_with_rocm=lambda: rocm)
    )


def a_jax(kind="cpu", version="", error=None, platforms=""):
    """Return a double of JAX with this default backend and JAX_PLATFORMS; any other backend
    raises the error."""
    client = SimpleNamespace(client=SimpleNamespace(platform_version=version))

    def listed(kind=None):
        if kind and error:
            raise RuntimeError(error)
        return [client]

    return module(default_backend=lambda: kind, devices=listed)


def an_mlx(cuda):
    core = module(
        metal=SimpleNamespace(is_available=lambda: False),
        cuda=SimpleNamespace(is_available=lambda: cuda),
    )
    return module(core=core)


def backend_with(framework):
    """Return the backend of a fresh copy of the framework's module, which imports the
    framework's double."""
    return runpy.run_path(Path(devices.__file__).with_name(framework) / "devices.py")["BACKEND"]


DOUBLES = {"torch": a_torch, "tensorflow": a_tensorflow, "jax": a_jax, "mlx": an_mlx}
# A framework and what it says, the kinds that this computer shows, the kind that is refused, and a
# part of the reason.
REFUSED = """
- [torch, {kind: cuda, built: [sm_80, sm_90]}, [], null, ""]
- [torch, {kind: cuda, capability: [8, 7], built: [sm_80, sm_86, sm_90]}, [], cuda, capability 8.7; see docs]
- [torch, {kind: cuda, capability: [8, 7], built: [sm_80, sm_87]}, [], null, ""]
- [torch, {kind: cuda, capability: [8, 9], built: [sm_87]}, [], cuda, capability 8.9; see docs]
- [torch, {kind: cuda, capability: [8, 9], built: [sm_80, sm_87]}, [], null, ""]
- [torch, {kind: cuda, capability: [12, 0], built: [sm_80, compute_90]}, [], null, ""]
- [torch, {kind: cuda, capability: [8, 9], built: [sm_86, sm_90]}, [], null, ""]
- [torch, {kind: cuda, capability: [8, 0], built: [sm_86, sm_90]}, [], cuda, capability 8; see docs]
- [torch, {kind: cuda, capability: [6, 0], built: [sm_70, sm_90]}, [], cuda, capability 6; see docs]
- [torch, {kind: cuda, capability: [12, 0], built: [sm_80, sm_90]}, [], cuda, capability 12; see docs]
- [torch, {kind: cuda, hip: "6.4", capability: [9, 4], built: [gfx90a, gfx942]}, [rocm], null, ""]
- [torch, {hip: "6.4", error: No HIP GPUs are available}, [rocm], rocm, No HIP GPUs are available]
- [torch, {}, [rocm], null, ""]  # of a CPU, for which torch was not built
- [torch, {kind: xpu}, [], null, ""]
- [torch, {kind: privateuseone}, [], privateuseone, not in benchbook's table]
- [torch, {error: Found no NVIDIA driver on your system.}, [cuda], cuda, Found no NVIDIA driver]
- [torch, {}, [tpu], null, ""]  # which torch does not drive
- [torch, {}, [mps, metal], mps, torch does not see it]  # a Mac's torch without MPS
- [torch, {}, [xpu], xpu, torch does not see it]  # a card of Intel's, and torch for CUDA
- [tensorflow, {kind: GPU}, [], null, ""]
- [tensorflow, {kind: GPU, capability: [12, 0]}, [], cuda, no code for compute capability 12]
- [tensorflow, {kind: GPU, rocm: true}, [], rocm, not in benchbook's table]
- [tensorflow, {kind: XPU}, [], xpu, not in benchbook's table]
- [tensorflow, {}, [cuda], cuda, tensorflow does not see it]
- [tensorflow, {}, [mps, metal], metal, tensorflow does not see it]
- [jax, {kind: gpu, version: "PJRT C API\\ncuda 12090"}, [], null, ""]
- [jax, {kind: gpu, version: "PJRT C API\\nrocm 60300"}, [], rocm, not in benchbook's table]
- [jax, {kind: neuron}, [], neuron, not in benchbook's table]
- [jax, {error: &busy "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process 7"}, [tpu],
    tpu, already in use by process 7]
- [jax, {error: *busy, platforms: cpu}, [cuda, tpu], null, ""]  # the user's choice needs no reason
- [mlx, {cuda: true}, [], cuda, not in benchbook's table]
- [mlx, {cuda: false}, [cuda], null, ""]
"""


@pytest.mark.parametrize(("framework", "says", "here", "refused", "words"), yaml.safe_load(REFUSED))
def test_an_accelerator_that_is_not_measured_is_refused_with_its_reason(
    monkeypatch, framework, says, here, refused, words
):
    double = DOUBLES[framework](**says)
    monkeypatch.setenv("JAX_PLATFORMS", says.get("platforms", ""))
    monkeypatch.setattr(identity, "present", lambda: tuple(here))
    monkeypatch.setitem(sys.modules, framework, double)
    if framework == "mlx":
        monkeypatch.setitem(sys.modules, "mlx.core", double.core)
    asked = backend_with(framework)
    answer = asked.refused()
    assert (answer and answer.kind) == refused
    assert words in (answer.reason if answer else "")
    if refused:
        assert asked.kinds() == ("cpu",)
        for kind in ("best", refused):
            with pytest.raises(DeviceUnavailable, match=f"{refused}.*; allowed: cpu$"):
                devices.choose_kind(kind, asked.kinds(), framework, answer)
        assert devices.choose_kind("cpu", asked.kinds(), framework, answer) == "cpu"


def test_binaries_serve_gpus_of_the_same_major_capability_and_not_below(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", a_tensorflow("GPU"))
    asked = backend_with("tensorflow")
    given = [
        Device("cuda", "a GPU", "tensorflow", capability=each)
        for each in (6.1, 7.5, 8.6, 9.0, None)
    ]
    assert [asked.compiles_first(device) for device in given] == [False, False, False, True, False]


# A device on the PCI bus, and the kind that it is.
CARDS = """
v000010DEd00002330sv000010DEsd000016C1bc03sc02 cuda H100
v000010DEd000022BEsv000010DEsd000016C1bc04sc03 - a GeForce's sound
v00001AE0d00000063sv00001AE0sd0000007Cbc12sc00 tpu v5e
v00001AE0d00000042sv00001AE0sd00000058bc02sc00 - Google's network card
v00008086d000056A0sv00001849sd00006004bc03sc00 xpu Arc A770
v00008086d0000E20Bsv00008086sd00001100bc03sc00 xpu Arc B580
v00008086d00000BD5sv00008086sd00000000bc03sc80 xpu Data Center Max 1550
v00008086d000046A6sv00001028sd00000B16bc03sc00 - the GPU in a Core i7-12700H
v00008086d00004F90sv00001849sd00006004bc04sc03 - an Arc's sound
v00001002d0000740Csv00001002sd00000B0Cbc03sc80 - AMD's, which may be part of a CPU
"""
LISTED = [(card, None, kind) for card, kind, *_ in map(str.split, CARDS.strip().splitlines())]
H100 = LISTED[0][0]


@pytest.mark.parametrize(
    ("card", "shown", "kind"), [*LISTED, (H100, "GPU-5f12", "cuda"), (H100, "", "-")]
)  # hidden
def test_accelerators_are_seen_on_the_pci_bus_whether_or_not_a_driver_works(
    monkeypatch, tmp_path, card, shown, kind
):
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "modalias").write_text(f"pci:{card}i00\n")
    monkeypatch.setattr(identity, "PCI", tmp_path)
    monkeypatch.setattr(identity.glob, "glob", lambda pattern: [])  # this machine may have a GPU
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert identity.present() == (() if kind == "-" else (kind,))
    monkeypatch.setattr(
        identity, "PCI", tmp_path / "none"
    )  # only files show the device on Jetson, WSL and a Mac
    signs = {
        "/dev/nvhost-gpu": ("cuda",),
        "/usr/lib/wsl/lib/libcuda.so.1": ("cuda",),
        "/dev/dxg": (),
    }
    for sign, found in (
        signs | {"/System/Library/Frameworks/Metal.framework": ("mps", "metal")}
    ).items():
        monkeypatch.setattr(
            identity.glob, "glob", lambda pattern, sign=sign: fnmatch.filter([sign], pattern)
        )
        assert identity.present() == (() if shown == "" and found == ("cuda",) else found)


SIXTEEN_BITS = [{"precision": "amp_bf16"}, {"precision": "amp_fp16"}]


@pytest.mark.parametrize(
    ("kind", "torch_type", "hip", "tried"),
    [
        ("rocm", "cuda", "6.4.43482", SIXTEEN_BITS),
        ("xpu", "xpu", None, SIXTEEN_BITS),
        ("hpu", "hpu", None, []),
    ],
)
def test_a_kind_in_the_table_has_what_torch_offers_for_any_accelerator(
    monkeypatch, kind, torch_type, hip, tried
):
    monkeypatch.setitem(devices.KINDS, "hpu", Features(frameworks=("torch",)))
    monkeypatch.setattr(torch.version, "hip", hip)
    _torch_reports(monkeypatch, torch_type)
    module = SimpleNamespace(get_device_name=lambda index: "a GPU", device_count=lambda: 3)
    monkeypatch.setattr(torch, "get_device_module", {torch_type: module}.get)
    device = devices.pick("best")
    assert (device, device.backend.count(device), device.torch_type) == (
        Device(kind, "a GPU"),
        3,
        torch_type,
    )
    assert tuned.candidates(device) == [
        *tried,
        {"channels_last": True},
        {"fused": True},
        {"compiled": True},
    ]
    assert sensors.open_sensor(device).method is None


@pytest.mark.parametrize("capability", [6.0, 7.0, 7.5, 8.0, 12.1])
def test_gpus_before_ampere_have_no_tf32_and_no_bfloat16_and_are_not_offered_them(capability):
    device, has = Device("cuda", "a GPU", capability=capability), capability >= 8
    assert device.has_units("tf32") == device.has_units("bf16") == has
    assert (
        ("tf32" in trials.precisions(device)) == ("tf32" in calibration.precisions(device)) == has
    )
    precisions = [
        change["precision"] for change in tuned.candidates(device) if "precision" in change
    ]
    assert precisions == (["tf32", "amp_bf16", "amp_fp16"] if has else ["amp_fp16"])
    assert [kind for kind in devices.KINDS if Device(kind, "a chip").has_units("tf32")] == ["cuda"]
    if not has:
        with pytest.raises(
            NotImplementedError, match=r"a GPU \(cuda\) has no tf32; allowed: cuda from .* 8"
        ):
            device.check_precision("tf32")


@pytest.mark.parametrize(
    ("told", "printed", "expected"),
    [
        ("15.1", "15.1", "+macos15.1"),
        ("16.0", "26.1", "+macos26.1"),  # a Python that was built for macOS 15
        ("14.6", "", "+macos14.6"),  # sysctl fails
        ("", "", ""),
    ],
)
def test_an_apple_gpus_version_has_the_macos_that_ships_its_kernels(
    monkeypatch, told, printed, expected
):
    monkeypatch.setattr(platform, "mac_ver", lambda: (told, ("", "", ""), "arm64"))
    answers = {("sysctl", "-n", "kern.osproductversion"): printed}
    monkeypatch.setattr(identity, "output", lambda *command: answers[command])
    for device, release in ((CPU, ""), (MPS, expected)):
        assert device.backend.software(device)["framework_version"] == torch.__version__ + release


def test_an_unknown_precision_is_an_error_that_says_what_is_allowed():
    with pytest.raises(ValueError, match="'fp8'; allowed: fp64, fp32, tf32"):
        Settings("fp8")


@pytest.mark.parametrize(
    ("kind", "called", "memory"),
    yaml.safe_load("""
- [cpu, "", null]
- [mps, reset 1, [3001, mps_allocator_peak]]
- [mps before 2.15, "", [null, null]]
- [cuda, reset cuda 1, [1001, cuda_allocator_peak]]
- [rocm, reset cuda 1, [1001, rocm_allocator_peak]]
- [xpu, reset 1, [3001, xpu_allocator_peak]]
"""),
)
def test_torch_waits_for_an_accelerator_and_asks_for_its_memory_and_random_state(
    monkeypatch, kind, called, memory
):
    kind, _, old = kind.partition(" before ")
    device, calls, restored = Device(kind, "a GPU", index=1), [], []
    monkeypatch.setattr(
        torch.accelerator, "synchronize", lambda index: calls.append(f"synchronize {index}")
    )
    for place, name, bytes_of in (
        (torch.accelerator, "reset", 3000),
        (torch.cuda, "reset cuda", 1000),
    ):
        reset = functools.partial(lambda name, index: calls.append(f"{name} {index}"), name)
        monkeypatch.setattr(place, "reset_peak_memory_stats", reset)
        monkeypatch.setattr(place, "max_memory_allocated", bytes_of.__add__)
    # as its functions answer where MPS's allocator is none of those that torch.accelerator knows
    if old:
        error = (
            "device_allocator INTERNAL ASSERT FAILED. Allocator for mps is not a DeviceAllocator."
        )
        for name in ("reset_peak_memory_stats", "max_memory_allocated"):
            monkeypatch.setattr(torch.accelerator, name, mock.Mock(side_effect=RuntimeError(error)))
    generator = SimpleNamespace(get_rng_state=lambda: "a state", set_rng_state=restored.append)
    monkeypatch.setattr(torch, "get_device_module", {device.torch_type: generator}.get)
    device.backend.reset_peak_memory(device)
    device.backend.synchronize(device)
    assert calls == [*filter(None, [called]), *["synchronize 1"] * (kind != "cpu")]
    assert memory is None or devices.peak_memory(device) == tuple(memory)
    state = device.backend.random_state(device)
    expected = torch.rand(3)
    device.backend.restore_random_state(device, state)
    assert torch.equal(torch.rand(3), expected)
    assert restored == ["a state"] * (kind != "cpu")


def test_jax_waits_for_what_the_measured_kind_computes_also_beside_a_gpu(monkeypatch):
    """Without a platform, JAX's function lists the arrays of its default backend, here the
    GPU's."""
    waited, double = [], a_jax("gpu", "PJRT C API\ncuda 12090")
    double.live_arrays = lambda platform=None: [f"an array of {platform or 'cuda'}"]
    double.block_until_ready = waited.append
    monkeypatch.setitem(sys.modules, "jax", double)
    for kind in ("cpu", "cuda"):
        backend_with("jax").synchronize(Device(kind, "a chip", "jax"))
    backend_with("jax").synchronize(CPU, "the last output")
    assert waited == [["an array of cpu"], ["an array of cuda"], "the last output"]


@pytest.mark.parametrize(("system", "expected"), [("linux", 3 * 1024), ("darwin", 3)])
def test_peak_memory_of_the_process_is_in_bytes_on_every_system(monkeypatch, system, expected):
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=3))
    monkeypatch.setattr(devices, "resource", usage)
    monkeypatch.setattr(devices, "sys", SimpleNamespace(platform=system))
    assert devices.peak_memory(CPU) == (expected, "process_peak_resident")


def test_windows_is_told_to_use_wsl_in_one_line():
    with pytest.raises(
        AssertionError, match=r"^error: benchbook runs on Linux and macOS; .* WSL: \S+\n"
    ):
        run_python("import sys; sys.platform = 'win32'; import benchbook")


def test_frameworks_that_are_not_installed_are_named_and_so_are_those_that_are(monkeypatch):
    for name in ("torch", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)  # to Python, a module that is not installed
    there = tuple(name for name in ("jax", "mlx") if importlib.util.find_spec(name))
    for name in ("torch", "tensorflow"):
        words = rf"{name} cannot be imported here \(.*\); installed: {', '.join(there) or 'none'}$"
        with pytest.raises(DeviceUnavailable, match=words):
            devices.backend(name)
    assert devices.installed() == there


SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
# GPUs, what this computer shows, whether libtpu is there, what the user set, and what is set then.
COMPLAINTS = """
- [[], [], false, {}, {TF_CPP_MIN_LOG_LEVEL: "3", JAX_PLATFORMS: cpu}]
- [[], [], true, {}, {TF_CPP_MIN_LOG_LEVEL: "3"}]
- [[], [tpu], false, {}, {TF_CPP_MIN_LOG_LEVEL: "3"}]  # JAX may say why it has none
- [[], [cuda], false, {}, {CUDA_CACHE_MAXSIZE: "4294967296"}]  # without NVML
- [[{name: a GPU}], [], false, {}, {CUDA_CACHE_MAXSIZE: "4294967296"}]
- [[], [], false, {JAX_PLATFORMS: tpu}, {TF_CPP_MIN_LOG_LEVEL: "3", JAX_PLATFORMS: tpu}]
- [[], [], false, &own {TF_FORCE_GPU_ALLOW_GROWTH: "false"}, {<<: *own, TF_CPP_MIN_LOG_LEVEL: "3", JAX_PLATFORMS: cpu}]
"""


@pytest.mark.parametrize(
    ("gpus", "here", "libtpu", "given", "expected"), yaml.safe_load(COMPLAINTS)
)
def test_complaints_about_cuda_are_silenced_only_where_there_is_none(
    monkeypatch, gpus, here, libtpu, given, expected
):
    monkeypatch.setattr(nvidia, "gpus", lambda: gpus)
    monkeypatch.setattr(identity, "present", lambda: here)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "libtpu" if libtpu else None)
    with mock.patch.dict(os.environ, given, clear=True):
        devices.set_import_environment()
        assert dict(os.environ) == SHARED_GPU | expected


@pytest.mark.parametrize(
    "framework", [name for name in ("tensorflow", "jax", "mlx") if importlib.util.find_spec(name)]
)
def test_a_framework_starts_without_a_warning_and_a_users_settings_of_keras(
    tmp_path, monkeypatch, framework
):
    settings = {
        "floatx": "float16",
        "epsilon": 0.5,
        "backend": "torch",
        "image_data_format": "channels_first",
    }
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = (
        f"from benchbook.frameworks import devices; print(devices.pick('cpu', '{framework}').kind)"
    )
    if framework == "mlx":
        assert run_python(asked) == "cpu\n"
        return
    asked += (
        "\nfrom benchbook.frameworks.keras import runtime; import os\n"
        f"config = runtime.import_keras('{framework}').config\n"
        "print(config.floatx(), config.epsilon(), config.image_data_format(), 'KERAS_HOME' in os.environ)"
    )
    assert run_python(asked) == "cpu\nfloat32 1e-07 channels_last False\n"


def test_an_optional_import_of_a_library_is_left_out_and_can_be_imported_afterwards(
    tmp_path, monkeypatch
):
    (tmp_path / "guest_of_tests.py").write_text("")
    host = "try:\n    import guest_of_tests\nexcept ImportError:\n    guest_of_tests = None\n"
    for name in ("host_of_tests", "later_host_of_tests"):
        (tmp_path / f"{name}.py").write_text(host)
        monkeypatch.setitem(libraries.OPTIONAL_IMPORTS, name, ("guest_of_tests",))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("host_of_tests", "later_host_of_tests", "guest_of_tests"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert libraries.import_alone("host_of_tests").guest_of_tests is None
    guest = importlib.import_module("guest_of_tests")
    assert (
        libraries.import_alone("later_host_of_tests").guest_of_tests is guest
    )  # it was imported before


def test_a_framework_that_is_imported_costs_a_step_no_file(monkeypatch):
    devices.backend("torch")
    monkeypatch.setattr(libraries.temporary, "folder", lambda: pytest.fail("a folder was made"))
    assert devices.backend("torch")  # each step of Keras asks thrice
