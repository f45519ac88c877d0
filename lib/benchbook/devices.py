"""Name, pick, synchronise and query a compute device.

A device that is not there is an error, never a silent fall back to another one.
"""

import resource
import sys
from dataclasses import dataclass

from benchbook import machine

FRAMEWORKS = ("torch",)


class DeviceUnavailable(RuntimeError):
    """The device that was asked for is not on this machine."""


@dataclass(frozen=True)
class Device:
    """One compute device of one framework.

    Attributes:
        kind: cpu, cuda or mps, as rows name it.
        name: the marketing name of the chip.
        framework: the framework that drives it.
        index: its number among the framework's visible devices of that kind.
    """

    kind: str
    name: str
    framework: str = "torch"
    index: int = 0

    @property
    def is_cpu(self) -> bool:
        """Return whether work runs on the host's own cores."""
        return self.kind == "cpu"


def available(framework: str = "torch") -> tuple[str, ...]:
    """Return the kinds of device this machine has for a framework, the fastest first.

    CUDA_VISIBLE_DEVICES is respected, because the framework itself is asked.

    Raises:
        ValueError: the framework is not one of FRAMEWORKS.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"unknown framework {framework!r}; allowed: {', '.join(FRAMEWORKS)}")
    import torch

    # Without check_available a CUDA build names cuda on a machine that has no GPU.
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return (accelerator.type, "cpu") if accelerator is not None else ("cpu",)


def pick(kind: str = "best", framework: str = "torch") -> Device:
    """Return the device of the kind that was asked for.

    Args:
        kind: cpu, cuda, mps, or best (the accelerator if there is one, else the CPU).
        framework: whose device.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has.
    """
    kinds = available(framework)
    kind = kinds[0] if kind == "best" else kind
    if kind not in kinds:
        raise DeviceUnavailable(
            f"device {kind!r} is not available to {framework} here; allowed: best, {', '.join(kinds)}"
        )
    return Device(kind, _name(kind), framework)


def synchronize(device: Device) -> None:
    """Wait until all work queued on the device is done.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.accelerator.synchronize.html
    """
    if not device.is_cpu:
        import torch

        torch.accelerator.synchronize(device.index)


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum of device memory, where the backend keeps one."""
    if device.kind == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device.index)


def peak_memory(device: Device) -> tuple[int, str]:
    """Return bytes and the method that counted them.

    cuda: the allocator's maximum since the last reset. mps: what tensors hold now (the driver's figure is
    its pool, not its use, and no maximum is kept). cpu: the process's largest resident set since it began.
    """
    if device.kind == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device.index), "cuda_allocator_peak"
    if device.kind == "mps":
        import torch

        return torch.mps.current_allocated_memory(), "mps_allocated_now"
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process_peak_resident"


def seed(number: int) -> None:
    """Seed the random generators of the host and of every device of torch."""
    import torch

    torch.manual_seed(number)


def random_state(device: Device) -> dict:
    """Return the state of the random generators that training on the device draws from."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if not device.is_cpu:
        state[device.kind] = torch.get_device_module(device.kind).get_rng_state()
    return state


def restore_random_state(device: Device, state: dict) -> None:
    """Put the generators back where `random_state` found them."""
    import torch

    torch.set_rng_state(state["cpu"])
    if not device.is_cpu:
        torch.get_device_module(device.kind).set_rng_state(state[device.kind])


def set_precision(precision: str) -> None:
    """Make float32 arithmetic mean what a row says it is: fp32 never uses TF32 units, tf32 does.

    Without this, convolutions on NVIDIA GPUs since Ampere use TF32 by default.
    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)

    Raises:
        ValueError: another precision than fp32 or tf32.
    """
    import torch

    modes = {"fp32": "ieee", "tf32": "tf32"}
    if precision not in modes:
        raise ValueError(f"precision {precision!r}; allowed: {', '.join(modes)}")
    torch.backends.cudnn.conv.fp32_precision = modes[precision]
    torch.backends.cudnn.rnn.fp32_precision = modes[precision]
    torch.backends.cuda.matmul.fp32_precision = modes[precision]


def software(device: Device) -> dict:
    """Return framework, its version and the host threads it computes with, as columns of a row."""
    import torch

    return {
        "framework": device.framework,
        "framework_version": str(torch.__version__),
        "num_threads": torch.get_num_threads(),
    }


def _name(kind: str) -> str:
    if kind == "cuda":
        import torch

        return torch.cuda.get_device_name()
    return machine.identify().chip
