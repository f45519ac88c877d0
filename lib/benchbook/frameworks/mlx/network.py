"""An MLX network with its loss and its optimiser: the steps that are timed, and that parity looks at."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_map

from benchbook.frameworks.devices import Device
from benchbook.frameworks.mlx.runtime import assign, check_precision, hanging_on, leaves, store, to_array
from benchbook.frameworks.workload import Settings
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
        check_precision(settings.precision)
        self.device, self.model, self.optimizer, self.loss, self.settings = device, model, optimizer, loss, settings
        self.enter()
        store(model, settings.precision)
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
