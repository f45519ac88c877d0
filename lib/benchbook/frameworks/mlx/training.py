"""What all MLX workloads share: a training step, evaluation, saved state, parity."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks.mlx.runtime import (
    COMPUTED,
    STORED,
    ByPath,
    assign,
    leaves,
    to_array,
    to_host,
)
from benchbook.frameworks.plain import Arrays, Plain
from benchbook.frameworks.subject import ParitySubject
from benchbook.frameworks.workload import Settings, Workload

# Of logits (n, classes) and labels (n,) to the mean categorical cross-entropy, softmax included.
cross_entropy = functools.partial(nn.losses.cross_entropy, reduction="mean")


class MlxSubject(ParitySubject):
    """An MLX workload step by step; see `ParitySubject`.

    MLX's convolutions have no float64, so the plain network is torch's: parameters have torch's
    names and shapes, and batches on the host have torch's order of dimensions.

    Args:
        workload: a copy of the compared workload; its dropout is switched off.
    """

    def __init__(self, workload: "MlxWorkload") -> None:
        self.model = workload.model
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        self.dtype = STORED[workload.settings.precision]
        self.resolution = float(mx.finfo(self.dtype).eps)
        named = workload.plain.make_network()
        trained = [name for name, part in named.named_parameters() if part.requires_grad]
        self.names = dict(zip(leaves(self.model.trainable_parameters()), trained, strict=True))
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy arrays, with an image's channels before height and width."""
        images, labels = batch
        if images.ndim < 4:  # tokens
            return numpy.array(images), numpy.array(labels)
        images = (
            to_host(mx.array(images)) if isinstance(images, mx.array) else images.astype("float64")
        )
        return numpy.ascontiguousarray(images.transpose(0, 3, 1, 2)), numpy.array(labels)

    def weights(self) -> Arrays:
        return self._exported(leaves(self.model.trainable_parameters()), self.names)

    def statistics(self) -> Arrays:
        return {}  # no batch norm has moving statistics here

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        own, arrays = leaves(self.model), {}
        for path, name in self.names.items():
            if name in weights:
                layer = self._layer(path)
                value = layer.from_torch(weights[name]) if layer else weights[name]
                arrays[path] = mx.array(numpy.ascontiguousarray(value, "float32")).astype(
                    own[path].dtype
                )
        assign(self.model, arrays)

    def attempt(self, batch: tuple, differentiated: bool) -> tuple[float, Arrays, bool]:
        """Try a step; the gradients are computed before it, at the same weights."""
        gradients = self.workload.differentiate(batch) if differentiated else {}
        loss = self.workload.step(batch).item()
        self.schedule_step += 1
        return loss, self._exported(gradients, self.names), True

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        return to_host(mx.array(array.astype("float32")).astype(self.dtype))

    def _exported(self, arrays: ByPath, names: dict[str, str]) -> Arrays:
        """Return arrays like parameters by torch's names, in torch's shapes."""
        exported = {}
        for path, name in names.items():
            if path in arrays:
                layer, value = self._layer(path), to_host(arrays[path])
                exported[name] = layer.to_torch(value) if layer else value
        return exported

    def _layer(self, path: str) -> nn.Module | None:
        """Return the layer of a weight whose shape in torch may differ; None for all other
        parameters."""
        parent, _, kind = path.rpartition(".")
        layer = dict(self.model.named_modules())[parent]
        return layer if kind == "weight" and hasattr(layer, "to_torch") else None


@dataclass(kw_only=True)
class MlxWorkload(Workload):
    """A network trained with MLX; with the default loss a classifier.

    A batch is (images, labels), arrays of NumPy or MLX; images are (n, height, width, channels).

    A step is submitted to the device without waiting. Its loss depends on the weights after the
    step, so that waiting for the last loss waits for all steps.

    Attributes:
        make_model: returns a new network with the first weights; its parameters are in the order
        of torch's network.
        make_optimizer: returns a new optimiser; its learning-rate schedule, if any, steps with
        every batch.
        loss: outputs in float32 and labels to the mean loss.
        max_norm: a larger norm of all gradients together is scaled down to this one; 0: no limit.
        epoch_rate: returns an epoch's learning rate by its number, if the schedule steps once an
        epoch; or None.
        make_plain: returns the reference's parts, in torch: MLX has no convolution in float64.
        It imports torch.
        settings: precision, `compiled` (by `mx.compile`) and `fused_attention`.

    Raises:
        NotImplementedError: settings that MLX does not have.
    """

    make_model: Callable[[], nn.Module]
    make_optimizer: Callable[[], optimizers.Optimizer]
    loss: Callable[[mx.array, mx.array], mx.array] = cross_entropy
    max_norm: float = 0.0
    epoch_rate: Callable[[int], float] | None = None
    make_plain: Callable[[], Plain] | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        supported = {
            name: getattr(settings, name) for name in ("precision", "compiled", "fused_attention")
        }
        if settings != Settings(**supported):
            raise NotImplementedError(f"{settings}; allowed with MLX: {', '.join(supported)}")
        if settings.precision not in STORED:
            raise NotImplementedError(f"MLX in {settings.precision}; allowed: {', '.join(STORED)}")
        model, optimizer = self.model, self.optimizer = self.make_model(), self.make_optimizer()
        model.computed = COMPUTED[
            settings.precision
        ]  # for inputs that are integers and have no precision
        self.enter()
        stored, weights = STORED[settings.precision], leaves(model.parameters())
        assign(model, {path: array.astype(stored) for path, array in weights.items()})
        optimizer.init(model.trainable_parameters())
        self.changing = [model, optimizer.state]
        self._value_and_gradients = mx.value_and_grad(self._loss)
        captured = [*self.changing, mx.random.state]
        compiled = {"inputs": captured, "outputs": captured}
        self._train = (
            mx.compile(self.train_step, **compiled) if settings.compiled else self.train_step
        )
        mx.eval(self.changing)

    @functools.cached_property
    def plain(self) -> Plain:
        """Return the reference's parts, from `make_plain`."""
        return self.make_plain()

    def num_parameters(self) -> int:
        return sum(array.size for array in leaves(self.model.parameters()).values())

    def trained_weights(self) -> Iterator[numpy.ndarray]:
        return map(to_host, leaves(self.model.trainable_parameters()).values())

    def enter(self) -> None:
        """Select the device for the operations that follow."""
        mx.set_default_device(self.device.backend.handle(self.device))

    def placed(self, batch: tuple) -> tuple[mx.array, ...]:
        """Return a batch as the network takes it."""
        return tuple(to_array(part, self.settings.precision) for part in batch)

    def step(self, batch: tuple) -> mx.array:
        loss = mx.depends(self._train(*self.placed(batch)), [*leaves(self.changing).values()])
        mx.async_eval(loss)
        return loss

    def differentiate(self, batch: tuple) -> ByPath:
        """Return gradients by path."""
        _, gradients = self._gradients(*self.placed(batch))
        return leaves(gradients)

    def _loss(self, parameters: dict, inputs: mx.array, target: mx.array) -> mx.array:
        self.model.update(parameters)
        return self.loss(self.model(inputs).astype(mx.float32), target)

    def _gradients(self, inputs: mx.array, target: mx.array) -> tuple[mx.array, dict]:
        """Return the loss and the gradients of the trainable parameters."""
        trained = self.model.trainable_parameters()
        loss, gradients = self._value_and_gradients(trained, inputs, target)
        if self.max_norm:
            gradients, _ = optimizers.clip_grad_norm(gradients, self.max_norm)
        return loss, gradients

    def train_step(self, inputs: mx.array, target: mx.array) -> mx.array:
        loss, gradients = self._gradients(inputs, target)
        self.optimizer.update(self.model, gradients)
        return loss

    def steps_taken(self) -> int:
        return int(self.optimizer.state["step"].item())

    def mean_loss(self, losses: list[mx.array]) -> float:
        return float(to_host(mx.stack(losses)).mean())

    def end_epoch(self) -> None:
        super().end_epoch()
        if self.epoch_rate:
            self.optimizer.learning_rate = self.epoch_rate(self.epoch)

    def score(self, batch: tuple) -> tuple[mx.array, mx.array, int]:
        images, labels = self.placed(batch)
        self.model.eval()
        outputs = self.model(images).astype(mx.float32)
        self.model.train()
        right = (outputs.argmax(1) == labels).sum() if self.metric else mx.array(0)
        loss = self.loss(outputs, labels) * len(labels)
        mx.async_eval(loss, right)
        return loss, right, len(labels)

    def state(self) -> dict:
        mx.eval(self.changing)
        return {
            "arrays": leaves(self.changing)
        }  # no copies: training replaces MLX's arrays and does not change them

    def load_state(self, state: dict) -> None:
        assign(self.changing, state["arrays"])

    def advance_schedule(self, count: int) -> None:
        state = self.optimizer.state
        # Adam's count of steps corrects its means: its schedule adds the steps that were skipped
        if count:
            state["passed" if "passed" in state else "step"] = mx.array(count, mx.uint64)

    @contextmanager
    def compared(self) -> Iterator[MlxSubject]:
        """Yield a copy of this workload step by step.

        It is built from scratch, because code that was compiled with dropout keeps it.
        """
        random = self.device.backend.random_state(self.device)
        copied = replace(self)
        own, given = leaves(copied.model), leaves(self.model)
        assign(copied.model, {path: given[path].astype(array.dtype) for path, array in own.items()})
        try:
            yield MlxSubject(copied)
        finally:
            self.device.backend.restore_random_state(self.device, random)
