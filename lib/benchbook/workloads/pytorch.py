"""What all torch workloads share: a training step, evaluation, and going back to fresh weights."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from benchbook import devices
from benchbook.devices import Device
from benchbook.workloads import Evaluation

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass
class TorchWorkload:
    """A classifier trained with torch; see `benchbook.workloads.Workload` for the interface.

    Attributes:
        model: network on the device; images (n, 1 or 3, height, width) to log-probabilities (n, classes).
        loss: log-probabilities and labels (n,) to their mean loss.
        optimizer, scheduler: the schedule steps once an epoch.
        train_batches: epoch number to the batches of that epoch.
        test_batches: to all test batches.
        columns: the description of the work, as columns of a row.
    """

    device: Device
    batch_size: int
    model: nn.Module
    loss: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    train_batches: Callable[[int], Iterable[Batch]]
    test_batches: Callable[[], Iterable[Batch]]
    columns: dict = field(default_factory=dict)
    epoch: int = 0

    def description(self) -> dict:
        """Return the columns that describe the work."""
        return {"parameters": count_parameters(self.model), "batch_size": self.batch_size} | self.columns

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield one epoch's batches, as the loader delivers them."""
        return iter(self.train_batches(epoch))

    def num_samples(self, batch: Batch) -> int:
        """Return the images in a batch."""
        return len(batch[1])

    def step(self, batch: Batch) -> torch.Tensor:
        """Train on one batch; the loss stays on the device, so that nothing waits for it."""
        images, labels = (part.to(self.device.kind) for part in batch)
        self.optimizer.zero_grad()
        loss = self.loss(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def mean_loss(self, losses: list[torch.Tensor]) -> float:
        """Read the losses of many steps and return their mean."""
        return torch.stack(losses).cpu().double().mean().item()  # on the host: MPS has no float64

    def end_epoch(self) -> None:
        """Advance epoch and schedule."""
        self.epoch += 1
        self.scheduler.step()

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Return mean loss and top-1 accuracy over all test images, unread."""
        self.model.eval()
        total, correct, samples = 0.0, 0, 0
        for batch in self.test_batches():
            images, labels = (part.to(self.device.kind) for part in batch)
            outputs = self.model(images)
            total = total + self.loss(outputs, labels) * len(labels)
            correct = correct + (outputs.argmax(1) == labels).sum()
            samples += len(labels)
        self.model.train()
        return Evaluation(total / samples, correct / samples, samples)

    def snapshot(self) -> dict:
        """Return a deep copy of everything that training changes."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "random": devices.random_state(self.device),
            "epoch": self.epoch,
        }
        return copy.deepcopy(state)

    def restore(self, state: dict) -> None:
        """Go back to a snapshot, in place: compiled code and the optimiser's references stay valid."""
        state = copy.deepcopy(state)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.optimizer.zero_grad()
        self.epoch = state["epoch"]
        devices.restore_random_state(self.device, state["random"])


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers a model's parameters hold."""
    return sum(parameter.numel() for parameter in model.parameters())
