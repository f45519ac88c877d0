"""How torch computes: precisions, memory formats, compilers and fused steps, by a workload's settings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from benchbook.frameworks.devices import Device
from benchbook.frameworks.torch.devices import allow_tf32
from benchbook.frameworks.workload import Settings
from benchbook.machine.precisions import PRECISIONS

Batch = tuple[torch.Tensor, ...]

# What weights and images are kept in.
STORED = {name: getattr(torch, precision.stored) for name, precision in PRECISIONS.items()}


def move(part: torch.Tensor, device: Device, settings: Settings) -> torch.Tensor:
    """Return a tensor on the device, in what the precision keeps and in the settings' memory format."""
    stored = STORED[settings.precision] if part.is_floating_point() else part.dtype
    return part.to(stored).to(device.kind, memory_format=memory_format(part, settings))


def prepare(model: nn.Module, settings: Settings) -> Callable:
    """Return what computes the model's outputs: its weights in the memory format, compiled if that is asked for.

    Replayed as a graph, a network writes its outputs where the call before wrote them. Losses are computed from them
    outside the graph, in memory of their own, so that those of a window can be read after it.

    Source: https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html
    """
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    if settings.compiled:  # each shape for itself: a code for all sizes would be made after a batch of another one
        return torch.compile(model, mode="reduce-overhead" if settings.graphs else None, dynamic=False)
    return model


def begin_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Let SGD's momentum begin as zeros, which is the same function: a first step's momentum is its gradient.

    torch makes it in the first step. The fused form makes it of uninitialised memory, and where a scaler leaves that
    step out because gradients overflowed, it stays so.
    """
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else ():
        for parameter in group["params"] if group["momentum"] and not group["dampening"] else ():
            optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


def gradient_scaler(device: Device, precision: str) -> torch.amp.GradScaler:
    """Return what scales the loss, so that small gradients do not vanish in float16; else it does nothing."""
    wanted = PRECISIONS[precision]
    return torch.amp.GradScaler(device.kind, enabled=bool(wanted.autocast) and wanted.needs_scaling)


def switch(settings: Settings) -> None:
    """Set what torch keeps globally: TF32 for products and convolutions, and whether cuDNN tries its algorithms.

    Source: https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark
    """
    allow_tf32(PRECISIONS[settings.precision].uses_tf32)
    torch.backends.cudnn.benchmark = settings.autotuned


def update(optimizer: torch.optim.Optimizer, settings: Settings) -> Callable:
    """Return the optimiser's step; where it is to be fused and torch has no fused form of it, it is compiled.

    Compiled, a step passes once over the weights instead of once for each of its operations. A learning rate must be a
    tensor then: for another number the step would be compiled again.
    """
    own = optimizer.defaults.get("fused")
    return torch.compile(optimizer.step) if settings.fused and not own else optimizer.step


def compute(network: Callable, inputs: Sequence[torch.Tensor], device: Device, precision: str):
    """Return the network's outputs; under autocast as float32, in which losses must be computed."""
    wanted = PRECISIONS[precision]
    if not wanted.autocast:
        return network(*inputs)
    with torch.autocast(device.kind, dtype=getattr(torch, wanted.computed)):
        outputs = network(*inputs)
    return tuple(part.float() for part in outputs) if isinstance(outputs, tuple) else outputs.float()


def memory_format(part: torch.Tensor, settings: Settings) -> torch.memory_format:
    """Return the memory format for a tensor: channels last makes sense for images alone."""
    images = settings.channels_last and part.dim() == 4
    return torch.channels_last if images else torch.preserve_format


@contextmanager
def switched(settings: Settings) -> Iterator[None]:
    """Compute with the global switches of the settings inside a `with` block; afterwards they are what they were."""
    precision = "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "fp32"
    before = Settings(precision, autotuned=torch.backends.cudnn.benchmark)
    switch(settings)
    try:
        yield
    finally:
        switch(before)


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers a model's parameters hold."""
    return sum(parameter.numel() for parameter in model.parameters())
