"""What torch answers, and the operations that a device is calibrated with; see `frameworks.devices.Backend`.

What torch offers for any accelerator is asked of `torch.accelerator`; only cuda and mps have something of their own.
Outputs of operations are allocated once.
"""

from typing import Any

import numpy
import torch
from torch import nn

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device, Operation
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
    # Without check_available a CUDA build names cuda on a machine that has no GPU.
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return None if accelerator is None else accelerator.type


def name(kind: str) -> str | None:
    """Return what the driver calls the device; None where it is the machine's own chip, or nobody says."""
    ask = getattr(torch.get_device_module(kind), "get_device_name", None) if KINDS[kind].own_chip else None
    return ask() if ask else None


def capability(kind: str) -> float | None:
    """Return an NVIDIA GPU's compute capability."""
    if kind != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability()
    return major + minor / 10


def compiles_first(device: Device) -> bool:
    """Return False: torch has binaries for every GPU that it drives."""
    return False


def imitated_units(device: Device) -> tuple[str, ...]:
    """Return bf16 for a CPU in which oneDNN finds no instructions for it; without oneDNN trying will tell.

    Convolutions take 25 times as long there as in float32 (ResNet-18 on a CPU with AVX2 alone, torch 2.10).
    """
    if not device.is_cpu or not torch.backends.mkldnn.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return ()
    return ("bf16",)


def count(device: Device) -> int:
    """Return the GPUs, or the cores of a CPU."""
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
    if not device.is_cpu:
        torch.accelerator.synchronize(device.index)


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum; mps keeps none."""
    if device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats(device.index)
    elif device.kind != "mps" and not device.is_cpu:
        torch.accelerator.reset_peak_memory_stats(device.index)


def peak_memory(device: Device) -> tuple[int, str]:
    """Return bytes and method of an accelerator."""
    if device.kind == "cuda":
        return torch.cuda.max_memory_allocated(device.index), "cuda_allocator_peak"
    if device.kind == "mps":
        return torch.mps.driver_allocated_memory(), "mps_driver_pool"
    return torch.accelerator.max_memory_allocated(device.index), f"{device.kind}_allocator_peak"


def seed(number: int) -> None:
    """Seed host and devices."""
    torch.manual_seed(number)


def random_state(device: Device) -> dict:
    """Return the state of the host's generator and of the device's."""
    state = {"cpu": torch.get_rng_state()}
    if not device.is_cpu:
        state[device.kind] = torch.get_device_module(device.kind).get_rng_state()
    return state


def restore_random_state(device: Device, state: dict) -> None:
    """Put both generators back."""
    torch.set_rng_state(state["cpu"])
    if not device.is_cpu:
        torch.get_device_module(device.kind).set_rng_state(state[device.kind])


def allow_tf32(allowed: bool) -> None:
    """Set TF32 for matrix products, convolutions and recurrent layers: convolutions use it by default.

    torch has these switches twice, and until 2.11 refuses to read an old one after a new one was set; its compiler
    reads both. These two functions keep all of them readable in each mode.

    Source: https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)
    """
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def software() -> dict:
    """Return framework, version and host threads."""
    threads = torch.get_num_threads()
    return {"framework": "torch", "framework_version": str(torch.__version__), "num_threads": threads}


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return a product of two matrices that are given on the host."""
    left, right = (torch.from_numpy(part).to(device.kind, getattr(torch, dtype)) for part in (first, second))
    product = torch.empty_like(left)
    return lambda previous: torch.matmul(left, right, out=product)


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy within the device's memory."""
    source = torch.from_numpy(host).to(device.kind)
    target = torch.zeros_like(source)
    return lambda previous: target.copy_(source)


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the device."""
    source = torch.from_numpy(host)
    source = source.pin_memory() if device.features.pins_memory else source
    target = torch.empty_like(source, device=device.kind)
    return lambda previous: target.copy_(source, non_blocking=True)


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the host."""
    source = torch.from_numpy(host).to(device.kind)
    target = torch.zeros(source.shape, pin_memory=device.features.pins_memory)
    return lambda previous: target.copy_(source, non_blocking=True)


def launch(device: Device) -> Operation:
    """Return an operation that adds one to one number."""
    number = torch.zeros(1, device=device.kind)
    return lambda previous: number.add_(1)


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(output.flatten()[0])


def training_step(device: Device) -> Operation:
    """Return a step of the small training; each takes what the one before it returned."""
    images, labels = (torch.from_numpy(part).to(device.kind) for part in operations.batch())
    images = images.permute(0, 3, 1, 2).contiguous()
    network = nn.Sequential(
        nn.Conv2d(1, operations.CHANNELS, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(operations.CLASSES),
    )
    network.to(device.kind)(images)
    optimiser = torch.optim.SGD(network.parameters(), operations.LEARNING_RATE)

    def step(previous):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step
