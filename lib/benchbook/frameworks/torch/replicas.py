"""Communication between the processes of a torch group, each of which trains a replica of the
network.

Functions that take the group's size do nothing in a group of one.
"""

import os
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from benchbook.frameworks.devices import Device, Group


def join(device: Device, timeout_seconds: float) -> Group:
    """Join the group that torchrun's environment variables describe, with the device of this
    process's local rank.

    Args:
        device: any device of the group's kind.
        timeout_seconds: the time for which a process waits for the others before it fails.
    """
    if not device.is_cpu:
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(
        device.features.group_backend, timeout=timedelta(seconds=timeout_seconds)
    )
    return Group(distributed.get_rank(), distributed.get_world_size())


def leave() -> None:
    """Leave the group."""
    distributed.destroy_process_group()


def replicate(model: nn.Module, device: Device) -> DistributedDataParallel:
    """Return a module that computes the model's outputs, and in its backward pass averages
    gradients over the group.

    Each replica has its batch norms' moving statistics, until `share_buffers` replaces them
    before an evaluation.
    """
    chosen = None if device.is_cpu else [device.index]
    return DistributedDataParallel(model, chosen, broadcast_buffers=False)


@torch.no_grad()
def share_buffers(model: nn.Module, size: int) -> None:
    """Give every replica the first one's buffers."""
    for buffer in model.buffers() if size > 1 else ():
        distributed.broadcast(buffer, 0)


def mean(value: float, device: Device, size: int) -> float:
    """Return the mean of a value over the processes."""
    return (
        add(torch.tensor(value, device=device.torch_type), size).item() / size
        if size > 1
        else value
    )


def add(values: torch.Tensor, size: int) -> torch.Tensor:
    """Return the sums of values over the processes."""
    if size > 1:
        distributed.all_reduce(values)
    return values
