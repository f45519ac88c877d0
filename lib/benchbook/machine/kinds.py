"""The table of device kinds: what every device of a kind can do. A new kind is one entry here
and its framework's code.

Rows name a device by its kind. Differences between devices of a kind, such as the age of an
NVIDIA GPU, are in `frameworks.devices.Device`; the code that drives a device is in its
framework's folder of `benchbook.frameworks`.
"""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

# What shows Apple's GPU; Intel Macs are not supported.
APPLE = ("/System/Library/Frameworks/Metal.framework",)
# Cloud TPU chips by their number on the PCI bus. Source: jax/_src/hardware_utils.py
TPUS = {
    "27": "TPU v2 or v3",  # JAX knows which: rows have its name
    "56": "TPU",  # without a public name
    "5E": "TPU v4",
    "62": "TPU v5p",
    "63": "TPU v5e",
    "6F": "TPU v6e",
    "76": "TPU7x",
}


IOREG = ("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")  # needs no root
IOREG_PATTERN = r'"Device Utilization %"=(\d+)'


@dataclass(frozen=True)
class Features:
    """The common properties of all devices of a kind.

    Attributes:
        frameworks: that can drive it.
        word: its name for people.
        torch_type: torch's name for it, if that is another.
        precisions: that a search for the fastest settings tries besides fp32, in this order.
        units: hardware for reduced precisions (`precisions.Precision.units`), with the NVIDIA
        compute capability from
            which devices have it; 0: all devices.
        settings: that a search may turn on besides the precision, in this order, if the
        framework has them; see
            `libraries.Framework`.
        energy_counter: the machine's counter that covers it, `sensors.Energy.method`; None: no
        counter does.
        pins_memory: whether pinned host memory makes transfers faster.
        group_backend: torch's backend for several such devices that train together; None: torch
        has none.
        own_chip: whether the device is a separate chip with a name from its driver; else it is
        part of the machine's.
        aborts: whether an unsupported operation may end the whole process, so that no code can
        catch the error.
        max_inner_dimension: the largest inner dimension with right matrix products, by the
        beginning of a chip's name.
        shares_programs: whether the processes of a point may share what one of them compiled: no
        timing chooses its
            kernels, as Inductor's and XLA's tuning on a GPU does, so that they stay independent.
        environment: variables of a process that measures on it; see `environment`.
        busy_command, busy_files, busy_pattern: what tells in how many percent of the time it was
        busy: a tool, or the driver's files below /sys, and the number's place in the text; NVIDIA's
        library tells more, see `nvidia`.
        files: patterns of its driver's files.
        cards: patterns of its cards on Linux's PCI bus (the file `modalias`): vendor, device and
        class.
        hidden_by: an environment variable; empty, or with -1, it hides all devices of the kind.
    """

    frameworks: tuple[str, ...]
    word: str = "GPU"
    torch_type: str = ""
    precisions: tuple[str, ...] = ()
    units: dict[str, float] = field(default_factory=lambda: {"bf16": 0.0})
    settings: tuple[str, ...] = ("channels_last", "fused", "compiled")
    energy_counter: str | None = None
    pins_memory: bool = False
    group_backend: str | None = None
    own_chip: bool = True
    aborts: bool = False
    max_inner_dimension: dict[str, int] = field(default_factory=dict)
    shares_programs: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    busy_command: tuple[str, ...] = ()
    busy_files: str = ""
    busy_pattern: str = r"^(\d+)$"
    files: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    hidden_by: str = ""


KINDS: dict[str, Features] = {
    "cpu": Features(
        frameworks=("torch", "tensorflow", "jax", "mlx"),
        word="CPU",
        precisions=("amp_bf16",),
        energy_counter="rapl",
        group_backend="gloo",
        own_chip=False,
        # glibc gives memory that a step frees back to the system, in some processes and not in
        # others, and the next step requests it again. Here any number of bytes may stay free (-1),
        # no large block has pages of its own (0), and all threads share one heap (1), since the
        # others shrink. macOS and musl ignore these. Source: mallopt(3)
        environment={
            "MALLOC_TRIM_THRESHOLD_": "-1",
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_ARENA_MAX": "1",
        },
    ),
    # Apple's GPU as torch drives it. Metal's assertions end the process.
    "mps": Features(
        frameworks=("torch",),
        precisions=("amp_fp16", "amp_bf16"),
        energy_counter="apple_ioreport",
        own_chip=False,
        aborts=True,
        # Source: https://github.com/pytorch/pytorch/issues/193487 (fixed in torch 2.14 for products
        # of two matrices)
        files=APPLE,
        busy_command=IOREG,
        busy_pattern=IOREG_PATTERN,
        max_inner_dimension={"Apple M1": 32_766, "Apple M2": 32_766},
        # By default torch takes up to 1.7 times the memory that Metal recommends, and the Mac
        # swaps. The low mark must not be above the high one. Source:
        # https://docs.pytorch.org/docs/stable/mps_environment_variables.html
        environment={
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "1.0",
            "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.9",
        },
    ),
    # The same GPU as TensorFlow's plug-in and MLX drive it.
    "metal": Features(
        frameworks=("tensorflow", "mlx"),
        word="GPU through Metal",
        precisions=("amp_fp16", "amp_bf16"),
        energy_counter="apple_ioreport",
        own_chip=False,
        aborts=True,
        files=APPLE,
        busy_command=IOREG,
        busy_pattern=IOREG_PATTERN,
    ),
    "cuda": Features(
        frameworks=("torch", "tensorflow", "jax"),
        precisions=("tf32", "amp_bf16", "amp_fp16"),
        # Tensor cores with TF32 and bfloat16 came with Ampere. Source:
        # https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-capabilities
        units={"tf32": 8.0, "bf16": 8.0},
        settings=("autotuned", "channels_last", "fused", "compiled", "graphs"),
        energy_counter="nvml",
        pins_memory=True,
        group_backend="nccl",
        # The second and third on Jetson, which has no NVML; the last under WSL, where Windows'
        # driver puts it.
        files=(
            "/dev/nvidia[0-9]*",
            "/dev/nvhost-gpu",
            "/dev/nvgpu",
            "/usr/lib/wsl/lib/libcuda.so*",
        ),
        cards=("pci:v000010DEd*bc03*",),
        hidden_by="CUDA_VISIBLE_DEVICES",
    ),
    # AMD's GPUs. The driver's file is there for the GPU in a CPU as well.
    "rocm": Features(
        ("torch",),
        "GPU",
        "cuda",
        ("amp_bf16", "amp_fp16"),
        energy_counter="amdsmi",
        pins_memory=True,
        group_backend="nccl",
        # Source: https://docs.kernel.org/gpu/amdgpu/thermal.html (gpu_busy_percent)
        busy_files="class/drm/card*/device/gpu_busy_percent",
        files=("/dev/kfd",),
    ),
    # Intel's GPUs. Only cards are looked for (Arc A and B, Data Center Max), since most CPUs have a
    # GPU. Source: https://dgpu-docs.intel.com/devices/hardware-table.html
    "xpu": Features(
        ("torch",),
        precisions=("amp_bf16", "amp_fp16"),
        pins_memory=True,
        group_backend="xccl",
        # A line such as `06:14:46.000,    0, 0.00`; N/A without root, on some cards. Source:
        # https://intel.github.io/xpumanager/smi_user_guide.html (dump)
        busy_command=("xpu-smi", "dump", "-d", "0", "-m", "0", "-n", "1"),
        busy_pattern=r"^[\d:.]+, +0, +([\d.]+)\s*$",
        cards=tuple(
            f"pci:v00008086d0000{device}*bc03*" for device in ("569?", "56[A-C]?", "E2??", "0BD?")
        ),
    ),
    # Google's network cards have the same vendor number.
    "tpu": Features(
        frameworks=("jax",),
        word="TPU",
        precisions=("amp_bf16",),
        shares_programs=True,
        cards=tuple(f"pci:v00001AE0d000000{device}*" for device in TPUS),
    ),
}

# Kinds with a property, as profiles name them; a card is a GPU with memory of its own.
_GPUS = tuple(name for name, kind in KINDS.items() if kind.word.startswith("GPU"))
GROUPS = {
    "accelerator": tuple(name for name in KINDS if name != "cpu"),
    "gpu": _GPUS,
    "card": tuple(name for name in _GPUS if KINDS[name].own_chip),
    "gpu_without_tf32": tuple(name for name in _GPUS if "tf32" not in KINDS[name].units),
}


def keeps_memory() -> bool:
    """Return whether this process keeps the memory that a step frees."""
    own = KINDS["cpu"].environment
    return own.items() <= os.environ.items() and platform.libc_ver()[0] == "glibc"


def named_by_driver() -> tuple[str, ...]:
    """Return the kinds whose devices have their own chip, with a name from its driver."""
    return tuple(name for name, kind in KINDS.items() if kind.own_chip)


def environment(kind: str, current: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add for a process that measures on such a device; none if the user
    has set one."""
    own = KINDS[kind].environment
    return {} if own.keys() & current.keys() else dict(own)
