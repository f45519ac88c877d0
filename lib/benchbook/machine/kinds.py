"""The table of the kinds of device: what every device of a kind can do. A new kind is a line here, and nothing else.

Rows name a device by its kind. What differs between two devices of a kind, such as the age of an NVIDIA GPU, a
`Device` knows; what a framework does to drive one stands in its module of this package.
"""

from dataclasses import dataclass, field

# Cloud TPU chips by their number on the PCI bus. Source: jax/_src/hardware_utils.py
TPUS = {
    "27": "TPU v3",
    "56": "TPU",  # without a public name
    "5E": "TPU v4",
    "62": "TPU v5p",
    "63": "TPU v5e",
    "6F": "TPU v6e",
    "76": "TPU7x",
}


@dataclass(frozen=True)
class Features:
    """The common properties of all devices of a kind.

    Attributes:
        frameworks: those that drive it.
        word: what people call it.
        precisions: besides fp32, what a search for the fastest settings tries, in this order.
        units: hardware for reduced precisions (`precisions.Precision.units`), with the NVIDIA compute capability from
            which a device has it; 0: every one.
        settings: what a search may turn on besides the precision, in the order in which it is tried, where a
            framework has it; see `libraries.Framework`.
        energy_counter: which of a machine's counters covers it: nvml, apple_ioreport or rapl; None: none does.
        energy_boundary: what such a counter, or a stated power, is of; see `benchbook.measuring.sensors.Energy`.
        pins_memory: whether pinned host memory makes transfers faster.
        group_backend: what torch's processes talk through when several such devices train together; None: they cannot.
        own_chip: whether the device is a chip of its own, which its driver names; else it is the machine's.
        aborts: whether an operation that it lacks may end the whole process, so that nothing can catch it.
        longest_products: by the first words of a chip's name, the longest inner dimension at which products are right.
        files: patterns of its driver's files.
        cards: patterns of its cards on Linux's PCI bus (the file `modalias`): vendor, device and class.
    """

    frameworks: tuple[str, ...]
    word: str = "GPU"
    precisions: tuple[str, ...] = ()
    units: dict[str, float] = field(default_factory=lambda: {"bf16": 0.0})
    settings: tuple[str, ...] = ("channels_last", "fused", "compiled")
    energy_counter: str | None = None
    energy_boundary: str = "board"
    pins_memory: bool = False
    group_backend: str | None = None
    own_chip: bool = True
    aborts: bool = False
    longest_products: dict[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()


KINDS: dict[str, Features] = {
    "cpu": Features(
        frameworks=("torch", "tensorflow", "jax", "mlx"),
        word="CPU",
        precisions=("amp_bf16",),
        energy_counter="rapl",
        energy_boundary="package",
        group_backend="gloo",
        own_chip=False,
    ),
    # Apple's GPU as torch drives it. Metal's assertions end the process.
    "mps": Features(
        frameworks=("torch",),
        precisions=("amp_fp16", "amp_bf16"),
        energy_counter="apple_ioreport",
        energy_boundary="soc",
        own_chip=False,
        aborts=True,
        # Source: https://github.com/pytorch/pytorch/issues/193487 (mended in torch 2.14 for products of two matrices)
        longest_products={"Apple M1": 32_766, "Apple M2": 32_766},
    ),
    # The same GPU as TensorFlow's plug-in drives it, and as MLX does.
    "metal": Features(
        frameworks=("tensorflow", "mlx"),
        word="GPU through Metal",
        precisions=("amp_fp16", "amp_bf16"),
        energy_counter="apple_ioreport",
        energy_boundary="soc",
        own_chip=False,
        aborts=True,
    ),
    "cuda": Features(
        frameworks=("torch", "tensorflow", "jax"),
        precisions=("tf32", "amp_bf16", "amp_fp16"),
        # Tensor cores with TF32 and bfloat16 came with Ampere.
        # Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-capabilities
        units={"tf32": 8.0, "bf16": 8.0},
        settings=("autotuned", "channels_last", "fused", "compiled", "graphs"),
        energy_counter="nvml",
        pins_memory=True,
        group_backend="nccl",
        files=("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/nvgpu"),  # the last two are Jetson's, which has no NVML
        cards=("pci:v000010DEd*bc03*",),
    ),
    # Google's network cards are of the same vendor.
    "tpu": Features(
        frameworks=("jax",),
        word="TPU",
        precisions=("amp_bf16",),
        cards=tuple(f"pci:v00001AE0d000000{device}*" for device in TPUS),
    ),
}


def named_by_driver() -> tuple[str, ...]:
    """Return the kinds whose devices have a name of their own; the others are the machine's chip."""
    return tuple(name for name, kind in KINDS.items() if kind.own_chip)
