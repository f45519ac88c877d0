"""What all MLX workloads share: the steps that are timed, and that parity looks at, evaluation, fresh weights."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_map

from benchbook.frameworks.devices import Device
from benchbook.frameworks.mlx.parity import MlxSubject
from benchbook.frameworks.mlx.runtime import MOVING, STORED, assign, hanging_on, leaves, to_array, to_host
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import Evaluation, Settings
from benchbook.machine.precisions import PRECISIONS

Loss = Callable[[mx.array, mx.array], mx.array]
# As torch's GradScaler has them.
FIRST_SCALE, STEPS_TO_DOUBLE = 2.0**16, 2000


class Network:
    """A network that is trained on one device.

    A step is handed over to the device and not waited for. Its loss hangs on the weights after it, so that whoever
    waits for the last loss has waited for all work of all steps.

    Args:
        device: where.
        model: in training mode.
        optimizer: MLX's.
        loss: outputs in float32 and targets to the mean loss.
        settings: precision, and whether a step goes through `mx.compile`.

    Raises:
        NotImplementedError: settings that MLX does not have.
    """

    def __init__(
        self, device: Device, model: nn.Module, optimizer: optimizers.Optimizer, loss: Loss, settings: Settings
    ) -> None:
        if settings != Settings(settings.precision, compiled=settings.compiled):
            raise NotImplementedError(f"{settings}; allowed with MLX: precision and compiled")
        if settings.precision not in STORED:
            raise NotImplementedError(f"MLX in {settings.precision}; allowed: {', '.join(STORED)}")
        self.device, self.model, self.optimizer, self.loss, self.settings = device, model, optimizer, loss, settings
        self.enter()
        kept = {path: array for path, array in leaves(model.parameters()).items() if not path.endswith(MOVING)}
        assign(model, {path: array.astype(STORED[settings.precision]) for path, array in kept.items()})
        optimizer.init(model.trainable_parameters())
        # Small gradients vanish in float16, so the loss is scaled there.
        self.is_scaled = PRECISIONS[settings.precision].needs_scaling
        scale = FIRST_SCALE if self.is_scaled else 1.0
        self.scaling = {"scale": mx.array(scale), "steps": mx.array(0)}
        self.state = [model, optimizer.state, self.scaling]
        self._value_and_gradients = mx.value_and_grad(self._losses)
        captured = [*self.state, mx.random.state]
        compiled = mx.compile(self._step, inputs=captured, outputs=captured) if settings.compiled else self._step
        self._train = compiled
        mx.eval(self.state)

    def enter(self) -> None:
        """Let what follows be computed on the device."""
        mx.set_default_device(self.device.backend.handle(self.device))

    def train(self, inputs: Any, target: Any) -> mx.array:
        """Train on one batch and return its loss, unread."""
        loss = self._train(self.placed(inputs), self.placed(target))
        loss = hanging_on(loss, leaves(self.state).values())
        mx.async_eval(loss)
        return loss

    def differentiate(self, inputs: Any, target: Any) -> tuple[mx.array, dict[str, mx.array]]:
        """Return loss and gradients by path, of the loss as it is scaled; moving statistics stay what they are."""
        before = leaves(self.model)
        loss, gradients = self._gradients(self.placed(inputs), self.placed(target))
        assign(self.model, before)
        return loss, leaves(gradients)

    def predict(self, inputs: Any) -> mx.array:
        """Return the outputs of one batch in inference mode, in float32."""
        self.model.eval()
        outputs = self.model(self.placed(inputs)).astype(mx.float32)
        self.model.train()
        return outputs

    def placed(self, part: Any) -> mx.array:
        """Return a part of a batch as the network takes it."""
        return to_array(part, self.settings.precision)

    def read(self) -> dict[str, mx.array]:
        """Return all that training changes, by path; MLX's arrays do not change, they are replaced."""
        mx.eval(self.state)
        return leaves(self.state)

    def write(self, arrays: dict[str, mx.array]) -> None:
        """Go back to what `read` returned, in place: compiled code stays valid."""
        assign(self.state, arrays)

    def _losses(self, parameters: dict, inputs: mx.array, target: mx.array) -> tuple[mx.array, mx.array]:
        """Return the loss times its scale, which is differentiated, and the loss."""
        self.model.update(parameters)
        loss = self.loss(self.model(inputs).astype(mx.float32), target)
        return loss * self.scaling["scale"], loss

    def _gradients(self, inputs: mx.array, target: mx.array) -> tuple[mx.array, dict]:
        """Return the loss and the gradients of the parameters that are trained."""
        (_, loss), gradients = self._value_and_gradients(self.model.trainable_parameters(), inputs, target)
        scale = self.scaling["scale"]
        return loss, tree_map(lambda gradient: (gradient / scale).astype(gradient.dtype), gradients)

    def _step(self, inputs: mx.array, target: mx.array) -> mx.array:
        loss, gradients = self._gradients(inputs, target)
        trained = [self.model.trainable_parameters(), self.optimizer.state]
        before = leaves(trained)
        self.optimizer.update(self.model, gradients)
        if self.is_scaled:
            self._leave_out_overflow(before, gradients)
        return loss

    def _leave_out_overflow(self, before: dict[str, mx.array], gradients: dict) -> None:
        """Take a step back whose gradients are not finite, and set the scale of the next; nothing is read for it."""
        finite = mx.stack([mx.isfinite(gradient).all() for gradient in leaves(gradients).values()]).all()
        trained = [self.model, self.optimizer.state]
        after = leaves(trained)
        assign(trained, {path: mx.where(finite, after[path], array) for path, array in before.items()})
        scale, steps = self.scaling["scale"], self.scaling["steps"] + 1
        doubled = mx.where(steps >= STEPS_TO_DOUBLE, scale * 2, scale)
        self.scaling["scale"] = mx.where(finite, doubled, scale / 2)
        self.scaling["steps"] = mx.where(mx.logical_and(finite, steps < STEPS_TO_DOUBLE), steps, 0)


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
        metric: what the accuracy is, as rows name it; None where labels mean nothing.

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
    metric: str | None = "top1"

    def __post_init__(self) -> None:
        self.network = Network(self.device, self.make_model(), self.make_optimizer(), self.loss, self.settings)

    @functools.cached_property
    def plain(self) -> Plain:
        """Return what training is held against."""
        return self.make_plain()

    def description(self) -> dict:
        """Return the columns that describe the work."""
        parameters = sum(array.size for array in leaves(self.network.model.parameters()).values())
        sizes = {"parameters": parameters, "batch_size": self.batch_size}
        return sizes | {"precision": self.settings.precision, "compiled": self.settings.compiled} | self.columns

    def trainable_parameters(self) -> int:
        """Return how many numbers training changes; moving statistics are not among them."""
        return sum(array.size for array in leaves(self.network.model.trainable_parameters()).values())

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

    def steps_taken(self) -> int:
        """Return the optimiser's own count of its steps."""
        return int(self.network.optimizer.state["step"].item())

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
        return Evaluation(total / samples, right / samples if self.metric else math.nan, samples, self.metric)

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
