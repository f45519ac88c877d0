"""torch's operations, and its small training; outputs are allocated once."""

from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks import small
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return what `operations.multiplication` does, of two matrices on the host."""
    import torch

    left, right = (torch.from_numpy(part).to(device.kind, getattr(torch, dtype)) for part in (first, second))
    product = torch.empty_like(left)
    return lambda previous: torch.matmul(left, right, out=product)


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.copy` does."""
    import torch

    source = torch.from_numpy(host).to(device.kind)
    target = torch.zeros_like(source)
    return lambda previous: target.copy_(source)


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the device."""
    import torch

    source = torch.from_numpy(host)
    source = source.pin_memory() if device.features.pins_memory else source
    target = torch.empty_like(source, device=device.kind)
    return lambda previous: target.copy_(source, non_blocking=True)


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the host."""
    import torch

    source = torch.from_numpy(host).to(device.kind)
    target = torch.zeros(source.shape, pin_memory=device.features.pins_memory)
    return lambda previous: target.copy_(source, non_blocking=True)


def launch(device: Device) -> Operation:
    """Return what `operations.launch` does."""
    import torch

    number = torch.zeros(1, device=device.kind)
    return lambda previous: number.add_(1)


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(output.flatten()[0])


def training_step(device: Device) -> Callable:
    """Return a step of the small training; each takes what the one before it returned."""
    import torch
    from torch import nn

    images, labels = (torch.from_numpy(part).to(device.kind) for part in small.batch())
    images = images.permute(0, 3, 1, 2).contiguous()
    network = nn.Sequential(
        nn.Conv2d(1, small.CHANNELS, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(small.CLASSES)
    )
    network.to(device.kind)(images)
    optimiser = torch.optim.SGD(network.parameters(), small.LEARNING_RATE)

    def step(previous):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step
