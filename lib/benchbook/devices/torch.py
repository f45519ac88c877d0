"""What torch answers: cpu, cuda, mps. `benchbook.devices` documents each function."""

from benchbook import machine
from benchbook.devices.device import Device


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    import torch

    # Without check_available a CUDA build names cuda on a machine that has no GPU.
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return (accelerator.type, "cpu") if accelerator is not None else ("cpu",)


def name(kind: str) -> str | None:
    """Return what the driver calls the device; None where it is the machine's own chip."""
    import torch

    return torch.cuda.get_device_name() if kind == "cuda" else None


def count(device: Device) -> int:
    """Return the GPUs, or the cores of a CPU."""
    import torch

    if device.is_cpu:
        return machine.usable_cores()
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
    """Start a new maximum; only CUDA keeps one."""
    import torch

    if device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats(device.index)


def peak_memory(device: Device) -> tuple[int, str]:
    """Return bytes and method of an accelerator."""
    import torch

    if device.kind == "cuda":
        return torch.cuda.max_memory_allocated(device.index), "cuda_allocator_peak"
    return torch.mps.current_allocated_memory(), "mps_allocated_now"


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

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)
    """
    import torch

    mode = {"fp32": "ieee", "tf32": "tf32"}[precision]
    torch.backends.cudnn.conv.fp32_precision = mode
    torch.backends.cudnn.rnn.fp32_precision = mode
    torch.backends.cuda.matmul.fp32_precision = mode


def software() -> tuple[str, int]:
    """Return version and host threads."""
    import torch

    return str(torch.__version__), torch.get_num_threads()
