"""What torch answers. `benchbook.frameworks.devices` documents each function.

What torch offers for any accelerator is asked of `torch.accelerator`; only cuda and mps have something of their own.
"""

from benchbook.frameworks.device import Device
from benchbook.machine import identity
from benchbook.machine.kinds import KINDS


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    kind = _accelerator()
    return (kind, "cpu") if kind and not unnamed_accelerator() else ("cpu",)


def unnamed_accelerator() -> str | None:
    """Return torch's name of an accelerator that the table of kinds lacks; None where there is none."""
    kind = _accelerator()
    return kind if kind and not (kind in KINDS and "torch" in KINDS[kind].frameworks) else None


def _accelerator() -> str | None:
    import torch

    # Without check_available a CUDA build names cuda on a machine that has no GPU.
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return None if accelerator is None else accelerator.type


def name(kind: str) -> str | None:
    """Return what the driver calls the device; None where it is the machine's own chip, or nobody says."""
    import torch

    ask = getattr(torch.get_device_module(kind), "get_device_name", None) if KINDS[kind].own_chip else None
    return ask() if ask else None


def capability(kind: str) -> float | None:
    """Return an NVIDIA GPU's compute capability."""
    import torch

    if kind != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability()
    return major + minor / 10


def compiles_first(device: Device) -> bool:
    """Return False: torch has binaries for every GPU that it drives."""
    return False


def count(device: Device) -> int:
    """Return the GPUs, or the cores of a CPU."""
    import torch

    if device.is_cpu:
        return identity.usable_cores()
    return torch.get_device_module(device.kind).device_count()


def handle(device: Device) -> str:
    """Return the device as `Tensor.to` takes it."""
    return device.kind


def synchronize(device: Device, last: object = None) -> None:
    """Wait for the accelerator; the CPU has nothing queued.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.accelerator.synchronize.html
    """
    import torch

    if not device.is_cpu:
        torch.accelerator.synchronize(device.index)


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum; mps keeps none."""
    import torch

    if device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats(device.index)
    elif device.kind != "mps" and not device.is_cpu:
        torch.accelerator.reset_peak_memory_stats(device.index)


def peak_memory(device: Device) -> tuple[int, str]:
    """Return bytes and method of an accelerator."""
    import torch

    if device.kind == "cuda":
        return torch.cuda.max_memory_allocated(device.index), "cuda_allocator_peak"
    if device.kind == "mps":
        return torch.mps.driver_allocated_memory(), "mps_driver_pool"
    return torch.accelerator.max_memory_allocated(device.index), f"{device.kind}_allocator_peak"


def seed(number: int) -> None:
    """Seed host and devices."""
    import torch

    torch.manual_seed(number)


def random_state(device: Device) -> dict:
    """Return the state of the host's generator and of the device's."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if not device.is_cpu:
        state[device.kind] = torch.get_device_module(device.kind).get_rng_state()
    return state


def restore_random_state(device: Device, state: dict) -> None:
    """Put both generators back."""
    import torch

    torch.set_rng_state(state["cpu"])
    if not device.is_cpu:
        torch.get_device_module(device.kind).set_rng_state(state[device.kind])


def cpu_multiplies_bfloat16() -> bool:
    """Return whether oneDNN finds instructions that serve bfloat16; where torch has no oneDNN, trying will tell."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return True
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


def set_precision(precision: str) -> None:
    """Set TF32 for matrix products, convolutions and recurrent layers: convolutions use it by default.

    torch has these switches twice, and until 2.11 refuses to read an old one after a new one was set; its compiler
    reads both. These two functions keep all of them readable in each mode.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)
    """
    import torch

    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def software() -> tuple[str, int]:
    """Return version and host threads."""
    import torch

    return str(torch.__version__), torch.get_num_threads()
