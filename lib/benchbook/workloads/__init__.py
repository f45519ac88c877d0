"""What the studies train: one module a study, all with the same small interface.

The interface names no framework; `protocol` needs nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from benchbook.devices import Device


@dataclass(frozen=True)
class Evaluation:
    """What one pass over the test images gave; scalars may still lie on the device.

    Attributes:
        loss: mean loss per image.
        accuracy: a fraction.
        samples: images evaluated.
        metric: top1, knn or iou.
    """

    loss: Any
    accuracy: Any
    samples: int
    metric: str = "top1"


class Workload(Protocol):
    """A network with its data, loss, optimiser and schedule, ready to train step by step.

    Attributes:
        device: where it computes.
        batch_size: images in a full batch.
        epoch: epochs finished since the weights were fresh.
    """

    device: Device
    batch_size: int
    epoch: int

    def description(self) -> dict:
        """Return the columns of a row that describe the work and the software."""

    def batches(self, epoch: int) -> Iterator:
        """Yield the batches of one epoch, in an order that depends on the seed and the epoch alone."""

    def num_samples(self, batch: Any) -> int:
        """Return the images in a batch."""

    def step(self, batch: Any) -> Any:
        """Train on one batch and return its mean loss, unread: a scalar that may lie on the device."""

    def mean_loss(self, losses: list) -> float:
        """Read the losses of many steps from the device and return their mean."""

    def end_epoch(self) -> None:
        """Advance the epoch and whatever follows it, such as a learning-rate schedule."""

    def evaluate(self) -> Evaluation:
        """Evaluate on all test images."""

    def snapshot(self) -> Any:
        """Return a copy of weights, optimiser, schedule, epoch and random state."""

    def restore(self, state: Any) -> None:
        """Go back to a snapshot."""
