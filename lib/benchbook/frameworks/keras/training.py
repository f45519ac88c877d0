"""What all Keras workloads share on TensorFlow and JAX: a training step, evaluation, saved
state, parity.

The same model, loss and optimiser run on both. A process uses one of them: the framework of its
first device.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # bfloat16 and similar types of NumPy, as TensorFlow and JAX use them
import numpy

from benchbook.frameworks.keras.runtime import (
    Array,
    Batch,
    dropouts,
    import_keras,
    is_moving,
    to_host,
)
from benchbook.frameworks.plain import Arrays, Plain
from benchbook.frameworks.subject import ParitySubject
from benchbook.frameworks.workload import Settings, Workload
from benchbook.machine.precisions import PRECISIONS

LARGEST_LOSS_SCALE = 2.0**15  # the first scale of Keras's LossScaleOptimizer
# Keras's layers with products. Every number of these kernels is used once at each position of the
# output, or of the input if the layer is transposed.
PRODUCTS = dict.fromkeys(("Conv1D", "Conv2D", "DepthwiseConv2D", "Dense"), ("output", "kernel"))
PRODUCTS |= {
    "Conv2DTranspose": ("input", "kernel"),
    "SeparableConv2D": ("output", "depthwise_kernel", "pointwise_kernel"),
}
WITHOUT_PRODUCTS = ("BatchNormalization", "LayerNormalization", "Embedding")


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the mean categorical cross-entropy of logits (n, classes) and labels (n,), softmax
    included."""
    import keras

    losses = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return keras.ops.mean(losses)


def top1(logits: Array, labels: Array) -> Array:
    """Return the fraction of images whose largest output is that of their label."""
    import keras

    right = keras.ops.equal(keras.ops.argmax(logits, axis=-1), keras.ops.cast(labels, "int32"))
    return keras.ops.mean(keras.ops.cast(right, "float32"))


class KerasSubject(ParitySubject):
    """A Keras workload step by step; see `ParitySubject`.

    Args:
        workload: its dropout is off; the caller turns it on again.
    """

    def __init__(self, workload: "KerasWorkload") -> None:
        self.network = workload.network
        self.loss_scale = (
            LARGEST_LOSS_SCALE if PRECISIONS[self.network.precision].needs_scaling else 1.0
        )
        self.dtype = to_host(self.network.model.weights[0].value).dtype
        self.resolution = float(ml_dtypes.finfo(self.dtype).eps)
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        arrays = (to_host(part) for part in batch)
        return tuple(
            array if array.dtype.kind in "iub" else array.astype("float64") for array in arrays
        )

    def weights(self) -> Arrays:
        return self._kept(moving=False)

    def statistics(self) -> Arrays:
        return self._kept(moving=True)

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        arrays = weights | statistics
        self.network.update_model()
        variables = [variable for variable in self.network.model.weights if variable.path in arrays]
        self.network.assign(variables, [arrays[variable.path] for variable in variables])

    def attempt(self, batch: tuple, differentiated: bool) -> tuple[float, Arrays, bool]:
        """Try a step; the gradients are computed before it, at the same weights."""
        before = self.statistics()
        gradients = self._differentiate(batch) if differentiated else {}
        self.load({}, before)  # computing gradients changed them
        loss = float(self.workload.step(batch))
        passed, self.schedule_step = self.schedule_step, self.network.steps_taken()
        return loss, gradients, self.schedule_step > passed or not self.network.is_loss_scaled

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        return array.astype(self.dtype).astype("float64")

    def _kept(self, moving: bool) -> Arrays:
        self.network.update_model()
        variables = [
            variable for variable in self.network.model.weights if is_moving(variable) == moving
        ]
        return {variable.path: to_host(variable.value).astype("float64") for variable in variables}

    def _differentiate(self, batch: tuple) -> Arrays:
        """Return gradients by name, with zeros for frozen parameters.

        With float16 the loss is scaled; the scale is halved until no gradient overflows.
        """
        while True:
            _, derived = self.network.differentiate(*batch, self.loss_scale)
            if self.loss_scale == 1 or all(numpy.isfinite(gradient).all() for gradient in derived):
                break
            self.loss_scale /= 2
        model = self.network.model
        zeros = {
            part.path: numpy.zeros(part.shape) for part in model.weights if not is_moving(part)
        }
        names = [variable.path for variable in model.trainable_variables]
        return zeros | dict(zip(names, derived, strict=True))


@dataclass(kw_only=True)
class KerasWorkload(Workload):
    """A network trained with Keras; with the default loss and accuracy a classifier.

    A batch is (inputs, target), NumPy arrays or tensors of the framework.

    Attributes:
        make_model: returns a functional Keras model, without nested models, in the dtype policy
        then in force.
        make_optimizer: returns a new Keras optimiser; its learning-rate schedule, if any, steps
        with every batch.
        train_batches: returns batches of one shape: another shape would need another compilation.
        loss, accuracy: (outputs, target) to the batch's mean, in keras.ops.
        plain: the reference's parts; None: training cannot be compared.
        settings: precision, and `compiled`: TensorFlow uses XLA, as JAX always does. Keras has
        no choice of memory
            format or of a fused optimiser.
        seed: of weights and dropout.

    Raises:
        NotImplementedError: settings that Keras does not have.
    """

    make_model: Callable
    make_optimizer: Callable
    loss: Callable[[Array, Array], Array] = cross_entropy
    accuracy: Callable[[Array, Array], Array] = top1
    plain: Plain | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        if self.settings != Settings(self.settings.precision, compiled=self.settings.compiled):
            raise NotImplementedError(
                f"{self.settings}; allowed with Keras: precision and compiled"
            )
        import_keras(self.device.framework)
        training = importlib.import_module(f"benchbook.frameworks.{self.device.framework}.training")
        self.network = training.KerasNetwork(self)

    @property
    def model(self):
        """Return the Keras model with its current weights."""
        self.network.update_model()
        return self.network.model

    def num_parameters(self) -> int:
        return self.network.model.count_params()

    def description(self) -> dict:
        """Return the columns that describe the work; code for JAX is always compiled."""
        compiled = self.settings.compiled or self.device.framework == "jax"
        described = super().description() | {"compiled": compiled}
        counted = "flops_per_sample" in described
        return described | (
            {} if counted else {"flops_per_sample": flops_per_sample(self.network.model)}
        )

    def trained_weights(self) -> Iterator[numpy.ndarray]:
        return (to_host(variable.value) for variable in self.model.trainable_variables)

    def has_dropout(self) -> bool:
        return any(layer.rate > 0 for layer in dropouts(self.network.model))

    def repeated_losses(self, batch: Batch, count: int) -> Iterator[float]:
        weights = [to_host(weight.value) for weight in self.model.weights]
        for _ in range(count):
            yield self.mean_loss([self.step(batch)])
            self.network.load(weights)  # without the seeds of dropout

    def to_device(self, batch: Batch) -> Batch:
        """Return a batch on the device, or split into shares on several devices."""
        with self.network.arithmetic():
            return tuple(self.network.scatter(*batch))

    def step(self, batch: Batch) -> Array:
        return self.network.train(*batch)

    def steps_taken(self) -> int:
        return self.network.steps_taken()

    def misplaced_operations(self) -> dict[str, int]:
        """Return the operations of a step that another device computes, with their counts, after
        the first step.

        TensorFlow computes an operation on the CPU if the accelerator has no kernel for it.
        """
        return dict(self.network.misplaced)

    def mean_loss(self, losses: list[Array]) -> float:
        return float(numpy.mean([numpy.asarray(loss, "float64") for loss in losses]))

    def score(self, batch: Batch) -> tuple[Array, Array, int]:
        (loss, accuracy), count = self.network.score(*batch), len(batch[0])
        return loss * count, accuracy * count, count

    def state(self) -> dict:
        self.network.update_model()
        return {"variables": [to_host(variable.value) for variable in self.network.variables]}

    def load_state(self, state: dict) -> None:
        self.network.assign(self.network.variables, state["variables"])

    def advance_schedule(self, count: int) -> None:
        self.network.update_model()
        self.network.assign([self.network.iterations], [count])

    @contextmanager
    def compared(self) -> Iterator[KerasSubject]:
        with self.network.without_dropout():
            subject = KerasSubject(self)
            try:
                yield subject
            finally:
                self.restore(subject.fresh)


def flops_per_sample(model: Any) -> float:
    """Count the arithmetic of training a Keras network on one sample: forward and backward, 2
    per multiply-add.

    The count is that of torch's counter: products and convolutions, once forward, once for the
    gradient of a trained kernel, and once for the gradient of an input that depends on trained
    weights. Element-wise operations do not count.

    Args:
        model: a functional Keras model without nested models.

    Raises:
        ValueError: an unknown kind of layer with weights.
    """
    import keras

    trained_above: dict[int, bool] = {}  # by the tensor's id
    total = 0
    for layer in model.layers:
        above = any(trained_above.get(id(part)) for part in keras.tree.flatten(layer.input))
        trained = bool(layer.trainable_variables)
        for part in keras.tree.flatten(layer.output):
            trained_above[id(part)] = above or trained
        for place, part in enumerate(
            _forward(layer)
        ):  # a layer's second convolution depends on its first
            total += part * (1 + trained + (above or (trained and place > 0)))
    return float(total)


def _forward(layer: Any) -> list[int]:
    """Return the operations of each product in a layer's forward pass, for one sample."""
    kind = type(layer).__name__
    if kind in PRODUCTS:
        side, *kernels = PRODUCTS[kind]
        positions = math.prod(getattr(layer, side).shape[1:-1])
        return [2 * positions * math.prod(getattr(layer, kernel).shape) for kernel in kernels]
    if layer.weights and not any(
        ancestor.__name__ in WITHOUT_PRODUCTS for ancestor in type(layer).__mro__
    ):
        allowed = ", ".join((*PRODUCTS, *WITHOUT_PRODUCTS))
        raise ValueError(f"layer {layer.name!r} is a {kind}; allowed with weights: {allowed}")
    return []
