"""What all MLX workloads share: a training step, evaluation, going back to fresh weights, parity."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks.devices import Device
from benchbook.frameworks.mlx.network import Network
from benchbook.frameworks.mlx.parity import MlxSubject
from benchbook.frameworks.mlx.runtime import assign, leaves, to_host
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import Evaluation, Settings


def cross_entropy(logits: mx.array, labels: mx.array) -> mx.array:
    """Return the mean categorical cross-entropy of logits (n, classes) and labels (n,), softmax included."""
    return nn.losses.cross_entropy(logits, labels, reduction="mean")


@dataclass
class MlxWorkload:
    """A classifier trained with MLX; see `benchbook.frameworks.workload.Workload` for the interface.

    A batch is (images, labels), NumPy arrays or MLX's; images are (n, height, width, channels).

    Attributes:
        make_model: to a new network with the first weights; parameters in the order in which torch's network has them.
        make_optimizer: to a new optimiser; a schedule of its own steps with every batch.
        train_batches: epoch number to the batches of that epoch.
        test_batches: to all test batches.
        loss: outputs in float32 and labels to the mean loss.
        epoch_rate: from an epoch's number to its learning rate, of a schedule that steps once an epoch; or None.
        columns: the description of the work, as columns of a row.
        make_plain: to what training is held against, in torch: MLX has no convolution in float64. It imports torch.
        settings: precision and compilation.
        judged: whether labels mean something; synthetic ones do not.

    Raises:
        NotImplementedError: settings that MLX does not have.
    """

    device: Device
    batch_size: int
    make_model: Callable[[], nn.Module]
    make_optimizer: Callable[[], optimizers.Optimizer]
    train_batches: Callable[[int], Iterable]
    test_batches: Callable[[], Iterable]
    loss: Callable[[mx.array, mx.array], mx.array] = cross_entropy
    epoch_rate: Callable[[int], float] | None = None
    columns: dict = field(default_factory=dict)
    epoch: int = 0
    make_plain: Callable[[], Plain] | None = None
    settings: Settings = field(default_factory=Settings)
    judged: bool = True

    def __post_init__(self) -> None:
        self.network = self._build(self.device, self.settings)

    @functools.cached_property
    def plain(self) -> Plain:
        """Return what training is held against."""
        return self.make_plain()

    def description(self) -> dict:
        """Return the columns that describe the work."""
        parameters = sum(array.size for array in leaves(self.network.model.parameters()).values())
        sizes = {"parameters": parameters, "batch_size": self.batch_size}
        return sizes | {"precision": self.settings.precision, "compiled": self.settings.compiled} | self.columns

    def enter(self) -> None:
        """Let MLX compute on this workload's device."""
        self.network.enter()

    def batches(self, epoch: int) -> Iterator:
        """Yield one epoch's batches."""
        return iter(self.train_batches(epoch))

    def num_samples(self, batch: tuple) -> int:
        """Return the images in a batch."""
        return len(batch[0])

    def step(self, batch: tuple) -> mx.array:
        """Train on one batch; the loss stays on the device, so that nothing waits for it."""
        return self.network.train(*batch)

    def mean_loss(self, losses: list[mx.array]) -> float:
        """Read the losses of many steps and return their mean."""
        return float(to_host(mx.stack(losses)).mean())

    def end_epoch(self) -> None:
        """Advance the epoch, and a schedule that steps with it."""
        self.epoch += 1
        if self.epoch_rate:
            self.network.optimizer.learning_rate = self.epoch_rate(self.epoch)

    def evaluate(self) -> Evaluation:
        """Return mean loss and top-1 accuracy over all test images, unread."""
        total, right, samples = mx.array(0.0), mx.array(0), 0
        for images, labels in self.test_batches():
            outputs, labels = self.network.predict(images), self.network.placed(labels)
            total = total + self.loss(outputs, labels) * len(labels)
            right = right + (outputs.argmax(1) == labels).sum()
            samples += len(labels)
            mx.async_eval(total, right)
        if not self.judged:
            return Evaluation(total / samples, numpy.nan, samples, None)
        return Evaluation(total / samples, right / samples, samples)

    def snapshot(self) -> dict:
        """Return everything that training changes."""
        random = self.device.backend.random_state(self.device)
        return {"arrays": self.network.read(), "random": random, "epoch": self.epoch}

    def restore(self, state: dict) -> None:
        """Go back to a snapshot, in place: compiled code stays valid."""
        self.network.write(state["arrays"])
        self.epoch = state["epoch"]
        self.device.backend.restore_random_state(self.device, state["random"])

    def pass_steps(self, count: int) -> None:
        """Go on as after so many steps of a schedule that changes with every step."""
        if count:
            self.network.optimizer.state["step"] = mx.array(count, mx.uint64)

    @contextmanager
    def compared(self, precision: str) -> Iterator[MlxSubject]:
        """Yield what is compared with float64: a copy of this workload that computes as it does, or in this precision.

        It is built anew, since code that was compiled with dropout keeps it.
        """
        same = precision == self.settings.precision
        random = self.device.backend.random_state(self.device)
        copied = replace(self, settings=self.settings if same else Settings(precision))
        own, given = leaves(copied.network.model), leaves(self.network.model)
        assign(copied.network.model, {path: given[path].astype(array.dtype) for path, array in own.items()})
        try:
            yield MlxSubject(copied)
        finally:
            self.device.backend.restore_random_state(self.device, random)

    def _build(self, device: Device, settings: Settings) -> Network:
        return Network(device, self.make_model(), self.make_optimizer(), self.loss, settings)
