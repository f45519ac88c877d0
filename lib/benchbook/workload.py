"""What the studies train: one module a study, all with the same small interface.

The interface names no framework; `protocol` needs nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from benchbook.devices import Device


@dataclass(frozen=True)
class Evaluation:
    """What one pass over the test images gave; scalars may still lie on the device.

    Attributes:
        loss: mean loss per image; None where there is none.
        accuracy: a fraction; NaN for a network that has none.
        samples: images evaluated.
        metric: top1, knn or iou; None without an accuracy.
    """

    loss: Any
    accuracy: Any
    samples: int
    metric: str | None = "top1"


@dataclass(frozen=True)
class Settings:
    """How a network is computed; the defaults are the reference.

    Attributes:
        precision: as rows name it.
        channels_last: memory format of images and convolution weights.
        fused: the optimiser updates all weights in few operations.
        compiled: the network goes through the framework's compiler.
        autotuned: several algorithms are tried for each convolution, on an NVIDIA GPU with torch.
        graphs: what was compiled is replayed as a graph of the GPU (CUDA graphs), not launched kernel by kernel.
    """

    precision: str = "fp32"
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    autotuned: bool = False
    graphs: bool = False


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

    def enter(self) -> None:
        """Set the framework's global switches as this network computes: another one may have set them otherwise."""

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


class ParitySubject(Protocol):
    """A network on one device in one precision that repeats what another one does elsewhere.

    Nothing in it is random: dropout is off, and noise comes with the batch. Parameters go by the same names on
    every device.
    """

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name, in float64."""

    def load(self, parameters: dict[str, numpy.ndarray]) -> None:
        """Take over parameters of these names, rounded to this precision."""

    def gradients(self, batch: Any) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name, in float64, at the present weights, which stay as they are."""

    def step(self, batch: Any) -> float:
        """Train on one batch and return its mean loss from before the step."""


class ParityWorkload(Protocol):
    """What a workload offers to be checked on its own network; see `benchbook.parity`."""

    def parity_subject(self, device: Device, precision: str) -> ParitySubject:
        """Return a copy of the network at its present weights, with a fresh optimiser."""

    def parity_batches(self, num_batches: int) -> list:
        """Return the first batches, the same for every device, on the host and with all noise drawn."""
