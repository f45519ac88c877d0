"""How torch computes: precisions, memory formats, compilers and fused steps, by a workload's settings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from benchbook import devices
from benchbook.devices import Device
from benchbook.workload import Settings

Batch = tuple[torch.Tensor, ...]

# What weights and images are kept in, and what autocast computes in.
STORED = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "amp_bf16": torch.float32,
    "amp_fp16": torch.float32,
}
AUTOCAST = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}


def move(part: torch.Tensor, device: Device, settings: Settings) -> torch.Tensor:
    """Return a tensor on the device, in what the precision keeps and in the settings' memory format."""
    stored = STORED[settings.precision] if part.is_floating_point() else part.dtype
    return part.to(stored).to(device.kind, memory_format=memory_format(part, settings))


def prepare(model: nn.Module, settings: Settings) -> Callable:
    """Return what computes the model's outputs: its weights in the memory format, compiled if that is asked for."""
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    return torch.compile(model) if settings.compiled else model


def update(optimizer: torch.optim.Optimizer, settings: Settings) -> Callable:
    """Return the optimiser's step; where it is to be fused and torch has no fused form of it, it is compiled.

    Compiled, a step passes once over the weights instead of once for each of its operations. A learning rate must be a
    tensor then: for another number the step would be compiled again.
    """
    own = optimizer.defaults.get("fused")
    return torch.compile(optimizer.step) if settings.fused and not own else optimizer.step


def compute(network: Callable, inputs: Sequence[torch.Tensor], device: Device, precision: str):
    """Return the network's outputs; under autocast as float32, in which losses must be computed."""
    if precision not in AUTOCAST:
        return network(*inputs)
    with torch.autocast(device.kind, dtype=AUTOCAST[precision]):
        outputs = network(*inputs)
    return tuple(part.float() for part in outputs) if isinstance(outputs, tuple) else outputs.float()


def memory_format(part: torch.Tensor, settings: Settings) -> torch.memory_format:
    """Return the memory format for a tensor: channels last makes sense for images alone."""
    images = settings.channels_last and part.dim() == 4
    return torch.channels_last if images else torch.preserve_format


@contextmanager
def arithmetic(device: Device, precision: str) -> Iterator[None]:
    """Compute float32 products in TF32 units for precision tf32, else never; afterwards as it was."""
    before = "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "fp32"
    devices.set_precision("tf32" if precision == "tf32" else "fp32")
    try:
        yield
    finally:
        devices.set_precision(before)


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers a model's parameters hold."""
    return sum(parameter.numel() for parameter in model.parameters())
