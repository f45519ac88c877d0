"""What the processes of one torch group do together. Every function does nothing in a group of one."""

import os
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from benchbook.frameworks.devices import Device, Group


def join(device: Device, timeout_seconds: float) -> Group:
    """Join the group that torchrun's variables describe; a process has the device of its local rank.

    Args:
        device: any of the group's kind.
        timeout_seconds: how long a process waits for the others before it fails.
    """
    if not device.is_cpu:
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(device.features.group_backend, timeout=timedelta(seconds=timeout_seconds))
    return Group(distributed.get_rank(), distributed.get_world_size())


def leave() -> None:
    """Leave the group."""
    distributed.destroy_process_group()


def replicate(model: nn.Module, device: Device) -> DistributedDataParallel:
    """Return what computes a model's outputs and, going backwards, averages gradients over the group.

    Batch norms' statistics are left to each copy: `share_buffers` makes them one before they are used.
    """
    chosen = None if device.is_cpu else [device.index]
    return DistributedDataParallel(model, chosen, broadcast_buffers=False)


@torch.no_grad()
def share_buffers(model: nn.Module, size: int) -> None:
    """Give every copy the first one's buffers."""
    for buffer in model.buffers() if size > 1 else ():
        distributed.broadcast(buffer, 0)


def mean(value: float, device: Device, size: int) -> float:
    """Return the mean of every process's value."""
    return add(torch.tensor(value, device=device.kind), size).item() / size if size > 1 else value


def add(values: torch.Tensor, size: int) -> torch.Tensor:
    """Return the sums of every process's values."""
    if size > 1:
        distributed.all_reduce(values)
    return values


def synchronise_batch_norms(model: nn.Module, device: Device) -> nn.Module:
    """Return a model whose batch norms see the whole group's batch; torch's own are for GPUs alone."""
    if not device.is_cpu:
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for name, module in [*model.named_modules()]:
        if isinstance(module, nn.BatchNorm2d):
            twin = SynchronisedBatchNorm(module.num_features, module.eps, module.momentum)
            twin.load_state_dict(module.state_dict())
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, twin)
    return model


class SynchronisedBatchNorm(nn.BatchNorm2d):
    """Batch norm over the batches of all processes, which are equally large; for CPUs."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return normalised images, shape (n, channels, height, width)."""
        if not self.training:
            return super().forward(images)
        # Its gradients are summed as well. Importing it makes a temporary folder, so that no other process does.
        from torch.distributed.nn.functional import all_reduce

        size = distributed.get_world_size()
        average = all_reduce(images.mean((0, 2, 3))) / size
        centred = images - average[:, None, None]
        variance = all_reduce(centred.square().mean((0, 2, 3))) / size
        count = images.numel() // self.num_features * size
        with torch.no_grad():
            self.running_mean.lerp_(average, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked += 1
        scale = self.weight * (variance + self.eps).rsqrt()
        return centred * scale[:, None, None] + self.bias[:, None, None]
