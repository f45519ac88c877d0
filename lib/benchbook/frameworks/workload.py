"""The interface of a training workload, for every framework: all that measuring needs of it."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy

from benchbook.frameworks.devices import Device
from benchbook.frameworks.subject import ParitySubject
from benchbook.machine.precisions import PRECISIONS


@dataclass(frozen=True)
class Evaluation:
    """The result of one pass over the test images; its scalars may be on the device.

    Attributes:
        loss: mean loss per image; None if there is none.
        accuracy: a fraction; NaN if there is none.
        samples: images evaluated.
        metric: top1, knn or iou; None if there is no accuracy.
    """

    loss: Any
    accuracy: Any
    samples: int
    metric: str | None = "top1"


@dataclass(frozen=True)
class Settings:
    """How a network is computed; the defaults are the reference.

    Attributes:
        precision: a key of `PRECISIONS`, as in rows.
        channels_last: images and convolution weights are stored with the channels last.
        fused: the optimiser updates all weights in few operations.
        compiled: the framework's compiler compiles the network.
        autotuned: cuDNN tries several algorithms for each convolution (torch on an NVIDIA GPU).
        graphs: compiled code is replayed as a CUDA graph instead of being launched kernel by
        kernel.
        fused_attention: attention is one operation of the framework, not written out; for a
        transformer.
        padded: the vocabulary is padded to a multiple of 64, which suits matrix units; for a
        transformer.

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
        return ", ".join(
            [self.precision, *(name for name, value in vars(self).items() if value is True)]
        )


@dataclass(kw_only=True)
class Workload:
    """A network with its data, loss, optimiser and schedule, ready to train step by step.

    A class with the same methods need not be a subclass.

    Attributes:
        device: where it computes.
        batch_size: images in a full batch.
        train_batches: returns the batches of an epoch by its number; their order depends on the
        seed and the epoch.
        test_batches: returns all test batches.
        columns: the description of the work, as columns of a row.
        epoch: epochs finished since the weights were fresh.
        settings: how it is computed.
        metric: the kind of accuracy, as in rows; None: there are no labels, or they mean nothing.
    """

    device: Device
    batch_size: int
    train_batches: Callable[[int], Any]
    test_batches: Callable[[], Iterable]
    columns: dict = field(default_factory=dict)
    epoch: int = 0
    settings: Settings = field(default_factory=Settings)
    metric: str | None = "top1"
    last_batch = None  # of the window measured last
    clock = time.perf_counter  # of its windows, though the user's code may replace that of `time`

    def num_parameters(self) -> int:
        """Return the number of parameters, trainable or not."""
        raise NotImplementedError

    def trained_weights(self) -> Iterator[numpy.ndarray]:
        """Yield the parameters that training changes as copies on the host, without moving
        statistics."""
        raise NotImplementedError

    def trainable_parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(part.size for part in self.trained_weights())

    def description(self) -> dict:
        """Return the columns of a row that describe the work."""
        sizes = {"parameters": self.num_parameters(), "batch_size": self.batch_size}
        return (
            sizes
            | {"precision": self.settings.precision, "compiled": self.settings.compiled}
            | self.columns
        )

    def enter(self) -> None:
        """Set the framework's global switches for this network: another one may have changed
        them."""

    def batches(self, epoch: int) -> Iterator:
        """Yield the batches of one epoch, as the loader delivers them."""
        return iter(self.train_batches(epoch))

    def epochs(self) -> Iterator[Iterator]:
        """Yield the batches of each epoch in turn; the loader's processes stay alive between
        epochs.

        With the start method spawn (macOS, Python 3.14), each start of a process takes seconds.
        """
        while True:
            yield self.batches(self.epoch)

    def to_device(self, batch: tuple) -> tuple:
        """Return a batch on the device, in the types and the memory format of a step; nothing is
        copied needlessly."""
        return batch

    def num_samples(self, batch: tuple) -> int:
        """Return the images in a batch."""
        return len(batch[0])

    def check_batch(self, batch: tuple) -> None:
        """Check an epoch's first batch against the columns of the rows: another size would have
        another speed.

        Raises:
            ValueError: batch_size, image_size or sequence_length is not the batch's.
        """
        said, count = self.description(), self.num_samples(batch)
        shape = tuple(getattr(batch[0], "shape", ()))  # shares of several devices have none
        full = min(self.batch_size, said.get("dataset_samples") or self.batch_size)
        size, length = said.get("image_size"), said.get("sequence_length")
        fits = {
            "batch_size": count == full,
            "image_size": not size
            or not shape
            or (size, size) in (shape[1:3], shape[2:4]),  # channels last, or first
            "sequence_length": not length or shape[1:] == (length,),
        }
        for name, is_so in fits.items():
            if not is_so:
                raise ValueError(
                    f"{name} {said[name]}, but the first batch has {count} samples and shape {shape}"
                )

    def step(self, batch: tuple) -> Any:
        """Train on one batch and return its mean loss, a scalar that may be on the device."""
        raise NotImplementedError

    def steps_taken(self) -> int:
        """Return the steps that the optimiser has counted; only differences are meaningful."""
        raise NotImplementedError

    def mean_loss(self, losses: list) -> float:
        """Read the losses of many steps from the device and return their mean."""
        raise NotImplementedError

    def end_epoch(self) -> None:
        """Advance the epoch and its schedules, such as the learning rate's."""
        self.epoch += 1

    def score(self, batch: tuple) -> tuple[Any, Any, int]:
        """Return a test batch's sum of losses, its number of right images, and its number of
        images.

        The first two may be on the device.
        """
        raise NotImplementedError

    def evaluate(self) -> Evaluation:
        """Return mean loss and accuracy over all test images; both may be on the device."""
        total, right, samples = 0.0, 0, 0
        for batch in self.test_batches():
            loss, correct, count = self.score(batch)
            total, right, samples = total + loss, right + correct, samples + count
        return Evaluation(
            total / samples, right / samples if self.metric else numpy.nan, samples, self.metric
        )

    def state(self) -> dict:
        """Return a copy of weights, optimiser and schedule."""
        raise NotImplementedError

    def load_state(self, state: dict) -> None:
        """Go back to what `state` returned, in place: compiled code stays valid."""
        raise NotImplementedError

    def snapshot(self) -> dict:
        """Return a copy of everything that training changes: weights, optimiser, schedule, epoch
        and random state."""
        return self.state() | {
            "random": self.device.backend.random_state(self.device),
            "epoch": self.epoch,
        }

    def restore(self, state: dict) -> None:
        """Go back to a snapshot."""
        self.load_state(state)
        self.epoch = state["epoch"]
        self.device.backend.restore_random_state(self.device, state["random"])

    def has_dropout(self) -> bool:
        """Return whether layers drop values in training; MLX does not tell."""
        return False

    def repeated_losses(self, batch: tuple, count: int) -> Iterator[float]:
        """Yield the losses of steps on one batch, each from the present weights with further
        random numbers; the steps stay."""
        state = self.state()
        for _ in range(count):
            yield self.mean_loss([self.step(batch)])
            self.load_state(state)

    def advance_schedule(self, count: int) -> None:
        """Set a schedule that changes with every step to the state after this many steps."""

    def compared(self) -> AbstractContextManager[ParitySubject]:
        """Return a context for the comparison with float64; afterwards the workload is as before.

        Its attribute `plain` holds the parts of the reference; see `benchbook.measuring.parity`.
        """
        raise NotImplementedError
