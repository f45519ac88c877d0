"""What the studies train: one module a study, all with the same small interface.

The interface names no framework; `protocol` needs nothing else.
"""

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import Plain
from benchbook.machine.precisions import PRECISIONS

MOST_HALVINGS = 60  # of a loss's scale until a step is taken


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

    Raises:
        ValueError: an unknown precision.
    """

    precision: str = "fp32"
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    autotuned: bool = False
    graphs: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r}; allowed: {', '.join(PRECISIONS)}")


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

    def steps_taken(self) -> int:
        """Return the steps that the optimiser has taken, by its own count; only differences of it mean something."""

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


class ParitySubject:
    """A workload that takes the steps it is timed with, one at a time, for each to be looked at.

    Nothing in it is random: dropout is off, and noise comes with the batch. Arrays are NumPy's in float64, by names
    that are the same in every precision. Each framework has a subclass.

    Args:
        workload: its dropout is off, and whoever made this puts it back afterwards.

    Attributes:
        plain: what the steps are held against.
        num_passed: steps of the schedule before the next one.
        resolution: how far numbers of about 1 lie apart where weights are kept.
    """

    resolution: float

    def __init__(self, workload: Any) -> None:
        self.workload, self.plain = workload, workload.plain
        self.fresh = workload.snapshot()
        self.restart()

    def restart(self) -> None:
        """Go back to the weights, the optimiser and the random state that the workload came with."""
        self.workload.restore(self.fresh)
        self.workload.pass_steps(self.plain.steps_passed)
        self.num_passed = self.plain.steps_passed

    def batches(self, count: int) -> list[tuple]:
        """Return the first batches of training as the loader delivers them, past an epoch's end those of the next."""
        epochs = itertools.count(self.workload.epoch)
        stream = itertools.chain.from_iterable(self.workload.batches(epoch) for epoch in epochs)
        return [tuple(self.gather(part) for part in batch) for batch in itertools.islice(stream, count)]

    def gather(self, part: Any) -> Any:
        """Return a part of a loader's batch in one piece."""
        return part

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy has it."""

    def weights(self) -> dict[str, numpy.ndarray]:
        """Return every parameter, trainable or not."""

    def statistics(self) -> dict[str, numpy.ndarray]:
        """Return the moving statistics of batch norms."""

    def load(self, weights: dict[str, numpy.ndarray], statistics: dict[str, numpy.ndarray]) -> None:
        """Take over weights and moving statistics, rounded to what the workload keeps."""

    def step(self, batch: tuple, differentiated: bool = True) -> tuple[float, dict[str, numpy.ndarray]]:
        """Train on one batch; return its mean loss and, if they are wanted, every parameter's gradients."""

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        """Return numbers as the parameter of this name keeps them."""


class ParityWorkload(Protocol):
    """What a workload offers to be checked; see `benchbook.measuring.parity`."""

    plain: Plain

    def compared(self, precision: str) -> AbstractContextManager[ParitySubject]:
        """Return a context in which the workload is compared; afterwards it is what it was before."""
