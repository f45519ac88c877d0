"""What all Keras workloads share, on TensorFlow and on JAX: a training step, evaluation, going back, parity.

The same model, loss and optimiser run on both; which of the two is the device's framework, decided once a process.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes  # NumPy's bfloat16 and its like, as TensorFlow and JAX have them
import numpy

from benchbook.frameworks.keras.runtime import Array, Batch, arithmetic, import_keras, is_moving, to_host
from benchbook.frameworks.parity import ParitySubject
from benchbook.frameworks.plain import Arrays, Plain
from benchbook.frameworks.workload import Evaluation, Settings, Workload
from benchbook.machine.precisions import PRECISIONS

LARGEST_LOSS_SCALE = 2.0**15  # where Keras's LossScaleOptimizer begins
# Keras's classes that multiply: at each position of one side, the output or (transposed) the input, every number of
# these kernels is used once.
PRODUCTS = dict.fromkeys(("Conv1D", "Conv2D", "DepthwiseConv2D", "Dense"), ("output", "kernel"))
PRODUCTS |= {
    "Conv2DTranspose": ("input", "kernel"),
    "SeparableConv2D": ("output", "depthwise_kernel", "pointwise_kernel"),
}
WITHOUT_PRODUCTS = ("BatchNormalization", "LayerNormalization", "Embedding")


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the mean categorical cross-entropy of logits (n, classes) and labels (n,), softmax included."""
    import keras

    losses = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return keras.ops.mean(losses)


def top1(logits: Array, labels: Array) -> Array:
    """Return the fraction of images whose largest output is their label's."""
    import keras

    right = keras.ops.equal(keras.ops.argmax(logits, axis=-1), keras.ops.cast(labels, "int32"))
    return keras.ops.mean(keras.ops.cast(right, "float32"))


class KerasSubject(ParitySubject):
    """A Keras workload step by step; see `ParitySubject`.

    Args:
        workload: its dropout is off, and the caller turns it on again afterwards.
    """

    def __init__(self, workload: "KerasWorkload") -> None:
        self.network = workload.network
        self.loss_scale = LARGEST_LOSS_SCALE if PRECISIONS[self.network.precision].needs_scaling else 1.0
        self.dtype = to_host(self.network.model.weights[0].value).dtype
        self.resolution = float(ml_dtypes.finfo(self.dtype).eps)
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        arrays = (to_host(part) for part in batch)
        return tuple(array if array.dtype.kind in "iub" else array.astype("float64") for array in arrays)

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
        """Try a step; the gradients are those at the weights from before it."""
        before = self.statistics()
        gradients = self._differentiate(batch) if differentiated else {}
        self.load({}, before)  # to differentiate moves them, too
        loss = float(self.workload.step(batch))
        passed, self.num_passed = self.num_passed, self.network.steps_taken()
        return loss, gradients, self.num_passed > passed or not self.network.is_loss_scaled

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        return array.astype(self.dtype).astype("float64")

    def gather(self, part: Any) -> Any:
        return self.network.gather(part)

    def _kept(self, moving: bool) -> Arrays:
        self.network.update_model()
        variables = [variable for variable in self.network.model.weights if is_moving(variable) == moving]
        return {variable.path: to_host(variable.value).astype("float64") for variable in variables}

    def _differentiate(self, batch: tuple) -> Arrays:
        """Return gradients by name; in float16 the loss is scaled, and the scale halved until nothing overflows.

        A parameter that is not trained has zeros.
        """
        while True:
            _, derived = self.network.differentiate(*batch, self.loss_scale)
            if self.loss_scale == 1 or all(numpy.isfinite(gradient).all() for gradient in derived):
                break
            self.loss_scale /= 2
        model = self.network.model
        zeros = {part.path: numpy.zeros(part.shape) for part in model.weights if not is_moving(part)}
        names = [variable.path for variable in model.trainable_variables]
        return zeros | dict(zip(names, derived, strict=True))


@dataclass(kw_only=True)
class KerasWorkload(Workload):
    """A network trained with Keras.

    A batch is (inputs, target), NumPy arrays or tensors of the framework. As it stands it is a classifier.

    Attributes:
        make_model: to a functional Keras model, without models inside, in the dtype policy then in force.
        make_optimizer: to a new Keras optimiser; a schedule of its own steps with every batch.
        train_batches: to batches that are all of one shape: another one is compiled again.
        loss, accuracy: outputs and target to a scalar, in keras.ops; the means over a batch.
        plain: what training is compared with; None: it cannot be checked.
        settings: precision, and whether TensorFlow uses XLA, as JAX always does; Keras leaves no choice of memory
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
            raise NotImplementedError(f"{self.settings}; allowed with Keras: precision and compiled")
        import_keras(self.device.framework)
        training = importlib.import_module(f"benchbook.frameworks.{self.device.framework}.training")
        self.network = training.KerasNetwork(self)

    @property
    def model(self):
        """Return the Keras model, with its weights up to date."""
        self.network.update_model()
        return self.network.model

    def num_parameters(self) -> int:
        return self.network.model.count_params()

    def description(self) -> dict:
        """Return the columns that describe the work; on JAX there is nothing but compiled code."""
        compiled = self.settings.compiled or self.device.framework == "jax"
        described = super().description() | {"compiled": compiled}
        counted = "flops_per_sample" in described
        return described | ({} if counted else {"flops_per_sample": flops_per_sample(self.network.model)})

    def trainable_parameters(self) -> int:
        return sum(math.prod(variable.shape) for variable in self.network.model.trainable_variables)

    def num_samples(self, batch: Batch) -> int:
        return self.network.num_images(batch[0])

    def to_device(self, batch: Batch) -> Batch:
        """Return a batch on the device, or its shares where there are several."""
        with arithmetic(self.device, self.settings.precision):
            return tuple(self.network.spread(*batch))

    def step(self, batch: Batch) -> Array:
        return self.network.train(*batch)

    def step_functions(self) -> list[Callable]:
        return [type(self.network)._train_body]

    def steps_taken(self) -> int:
        return self.network.steps_taken()

    def misplaced_operations(self) -> dict[str, int]:
        """Return how often each operation of a step is computed on another device than the chosen one.

        TensorFlow leaves to the CPU what an accelerator has no kernel for. The first step fills it in.
        """
        return dict(self.network.misplaced)

    def mean_loss(self, losses: list[Array]) -> float:
        return float(numpy.mean([numpy.asarray(loss, "float64") for loss in losses]))

    def evaluate(self) -> Evaluation:
        self.network.share_statistics()
        return super().evaluate()

    def score(self, batch: Batch) -> tuple[Array, Array, int]:
        (loss, accuracy), count = self.network.score(*batch), self.network.num_images(batch[0])
        return loss * count, accuracy * count, count

    def state(self) -> dict:
        return {"variables": self.network.read()}  # seeds and schedule are among them

    def load_state(self, state: dict) -> None:
        self.network.write(state["variables"])

    def pass_steps(self, count: int) -> None:
        self.network.update_model()
        self.network.assign([self.network.iterations], [count])

    @contextmanager
    def compared(self, precision: str) -> Iterator[KerasSubject]:
        workload = self
        if precision != self.settings.precision:
            workload = replace(self, settings=Settings(precision))
            workload.network.load([to_host(weight.value) for weight in self.model.weights])
        with workload.network.without_dropout():
            subject = KerasSubject(workload)
            try:
                yield subject
            finally:
                workload.restore(subject.fresh)


def flops_per_sample(model: Any) -> float:
    """Count the arithmetic of training a Keras network on one sample: forward and backward, 2 per multiply-add.

    The same is counted as torch's counter counts: products and convolutions, forward; backward once more for the
    gradient of a kernel that is trained, and once more for that of an input on which something trained depends.
    Element-wise work is not counted.

    Args:
        model: a functional Keras model without models inside.

    Raises:
        ValueError: a layer with weights of a kind that is not known here.
    """
    trained_above: dict[str, bool] = {}
    total = 0
    for layer in model.layers:
        above = any(trained_above.get(parent, False) for parent in _parents(layer))
        trained = bool(layer.trainable_variables)
        trained_above[layer.name] = above or trained
        for place, part in enumerate(_forward(layer)):  # of two convolutions in a layer the second depends on the first
            total += part * (1 + trained + (above or (trained and place > 0)))
    return float(total)


def _parents(layer: Any) -> list[str]:
    """Return the names of the layers whose outputs a layer takes."""
    if type(layer).__name__ == "InputLayer":
        return []
    tensors = layer.input if isinstance(layer.input, (list, tuple)) else [layer.input]
    return [tensor._keras_history.operation.name for tensor in tensors]


def _forward(layer: Any) -> list[int]:
    """Return the operations of each product in a layer, forward, for one sample."""
    kind = type(layer).__name__
    if kind in PRODUCTS:
        side, *kernels = PRODUCTS[kind]
        positions = math.prod(getattr(layer, side).shape[1:-1])
        return [2 * positions * math.prod(getattr(layer, kernel).shape) for kernel in kernels]
    if layer.weights and not any(ancestor.__name__ in WITHOUT_PRODUCTS for ancestor in type(layer).__mro__):
        allowed = ", ".join((*PRODUCTS, *WITHOUT_PRODUCTS))
        raise ValueError(f"layer {layer.name!r} is a {kind}; allowed with weights: {allowed}")
    return []
