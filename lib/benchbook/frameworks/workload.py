"""The interface of what studies train, for every framework.

Measuring needs this interface alone; a class that is no subclass may have it as well.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy

from benchbook.frameworks.devices import Device
from benchbook.frameworks.parity import ParitySubject
from benchbook.machine.precisions import PRECISIONS


@dataclass(frozen=True)
class Evaluation:
    """The result of one pass over the test images; scalars may still be on the device.

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
        fused_attention: attention is one operation of the framework, not written out; for a transformer.
        padded: a vocabulary is filled up to a multiple of 64, as matrix units have it; for a transformer.

    Raises:
        ValueError: an unknown precision.
    """

    precision: str = "fp32"
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    autotuned: bool = False
    graphs: bool = False
    fused_attention: bool = False
    padded: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r}; allowed: {', '.join(PRECISIONS)}")

    def __str__(self) -> str:
        """Return the precision and the settings that are on, such as fp32, fused, compiled."""
        return ", ".join([self.precision, *(name for name, value in vars(self).items() if value is True)])


@dataclass(kw_only=True)
class Workload:
    """A network with its data, loss, optimiser and schedule, ready to train step by step.

    Attributes:
        device: where it computes.
        batch_size: images in a full batch.
        train_batches: epoch number to the batches of that epoch, in an order that depends on the seed and the epoch.
        test_batches: to all test batches.
        columns: the description of the work, as columns of a row.
        epoch: epochs finished since the weights were fresh.
        settings: how it is computed.
        metric: what the accuracy is, as rows name it; None where labels mean nothing, or there are none.
    """

    device: Device
    batch_size: int
    train_batches: Callable[[int], Iterable]
    test_batches: Callable[[], Iterable]
    columns: dict = field(default_factory=dict)
    epoch: int = 0
    settings: Settings = field(default_factory=Settings)
    metric: str | None = "top1"

    def num_parameters(self) -> int:
        """Return how many numbers the network has, trainable or not."""
        raise NotImplementedError

    def trainable_parameters(self) -> int:
        """Return how many numbers training changes; moving statistics are not among them."""
        raise NotImplementedError

    def description(self) -> dict:
        """Return the columns of a row that describe the work."""
        sizes = {"parameters": self.num_parameters(), "batch_size": self.batch_size}
        return sizes | {"precision": self.settings.precision, "compiled": self.settings.compiled} | self.columns

    def enter(self) -> None:
        """Set the framework's global switches as this network computes: another one may have set them otherwise."""

    def batches(self, epoch: int) -> Iterator:
        """Yield the batches of one epoch, as the loader delivers them."""
        return iter(self.train_batches(epoch))

    def epochs(self) -> Iterator[Iterator]:
        """Yield the batches of one epoch after another; the processes that load them stay alive in between.

        Where processes begin by spawn (macOS, Python 3.14), each start takes seconds.
        """
        while True:
            yield self.batches(self.epoch)

    def to_device(self, batch: tuple) -> tuple:
        """Return a batch where and as a step needs it; what is there already is not moved again."""
        return batch

    def num_samples(self, batch: tuple) -> int:
        """Return the images in a batch."""
        return len(batch[0])

    def step(self, batch: tuple) -> Any:
        """Train on one batch and return its mean loss, unread: a scalar that may lie on the device."""
        raise NotImplementedError

    def step_functions(self) -> list[Callable]:
        """Return the functions that hold a training step's code, for a reader to see."""
        return [type(self).step]

    def steps_taken(self) -> int:
        """Return the steps that the optimiser has taken, by its own count; only differences of it mean something."""
        raise NotImplementedError

    def mean_loss(self, losses: list) -> float:
        """Read the losses of many steps from the device and return their mean."""
        raise NotImplementedError

    def end_epoch(self) -> None:
        """Advance the epoch and its schedules, such as the learning rate's."""
        self.epoch += 1

    def score(self, batch: tuple) -> tuple[Any, Any, int]:
        """Return the sum of a test batch's losses, how many of its images are right (both unread), and their number."""
        raise NotImplementedError

    def evaluate(self) -> Evaluation:
        """Return mean loss and accuracy over all test images, unread."""
        total, right, samples = 0.0, 0, 0
        for batch in self.test_batches():
            loss, correct, count = self.score(batch)
            total, right, samples = total + loss, right + correct, samples + count
        return Evaluation(total / samples, right / samples if self.metric else numpy.nan, samples, self.metric)

    def state(self) -> dict:
        """Return a copy of weights, optimiser and schedule."""
        raise NotImplementedError

    def load_state(self, state: dict) -> None:
        """Go back to what `state` returned, in place: compiled code stays valid."""
        raise NotImplementedError

    def snapshot(self) -> dict:
        """Return a copy of all that training changes: weights, optimiser, schedule, epoch and random state."""
        return self.state() | {"random": self.device.backend.random_state(self.device), "epoch": self.epoch}

    def restore(self, state: dict) -> None:
        """Go back to a snapshot."""
        self.load_state(state)
        self.epoch = state["epoch"]
        self.device.backend.restore_random_state(self.device, state["random"])

    def pass_steps(self, count: int) -> None:
        """Continue as after this many steps of a schedule that changes with every step."""

    def compared(self, precision: str) -> AbstractContextManager[ParitySubject]:
        """Return a context in which the workload is compared; afterwards it is what it was before.

        What is compared is the workload itself, or in another precision a copy of it. It has an attribute `plain`,
        which training is compared with; see `benchbook.measuring.parity`.
        """
        raise NotImplementedError
