"""What all Keras workloads share, on TensorFlow and on JAX: a training step, evaluation, going back, parity.

The same model, loss and optimiser run on both; which of the two is the device's framework, decided once a process.
"""

import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.parity import KerasSubject
from benchbook.frameworks.keras.runtime import (
    Array,
    Batch,
    ResidentArrays,
    arithmetic,
    evaluation_batch_size,
    import_keras,
    kernels_of_zeros,
    to_host,
)
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import Evaluation, Settings
from benchbook.machine.precisions import PRECISIONS

__all__ = [
    "KerasWorkload",
    "ResidentArrays",
    "arithmetic",
    "cross_entropy",
    "evaluation_batch_size",
    "flops_per_sample",
    "import_keras",
    "kernels_of_zeros",
    "to_host",
    "top1",
]
# Keras's classes whose work is multiplications, and how often each number of a kernel is used: once for every
# position of the output, or, where a convolution is transposed, of the input.
_OF_OUTPUT = ("Conv1D", "Conv2D", "DepthwiseConv2D", "Dense")
_OF_INPUT = ("Conv2DTranspose",)
_SEPARABLE = ("SeparableConv2D",)
_NONE = ("BatchNormalization", "LayerNormalization", "Embedding")


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


@dataclass
class KerasWorkload:
    """A network trained with Keras; see `benchbook.frameworks.workload.Workload` for the interface.

    A batch is (inputs, target), NumPy arrays or tensors of the framework. As it stands it is a classifier.

    Attributes:
        make_model: to a functional Keras model, without models inside, in the dtype policy then in force.
        make_optimizer: to a new Keras optimiser; a schedule of its own steps with every batch.
        train_batches: epoch number to the batches of that epoch, all of one shape: another one is compiled anew.
        test_batches: to all test batches.
        loss, accuracy: outputs and target to a scalar, in keras.ops; the means over a batch.
        metric: what `accuracy` is, as rows name it; None where labels mean nothing.
        columns: the description of the work, as columns of a row.
        plain: what training is held against; None: it cannot be checked.
        settings: precision and compilation; Keras leaves no choice of memory format or of a fused optimiser.
        seed: of weights and dropout.

    Raises:
        NotImplementedError: settings that Keras does not have.
    """

    device: Device
    batch_size: int
    make_model: Callable
    make_optimizer: Callable
    train_batches: Callable[[int], Iterable[Batch]]
    test_batches: Callable[[], Iterable[Batch]]
    loss: Callable[[Array, Array], Array] = cross_entropy
    accuracy: Callable[[Array, Array], Array] = top1
    metric: str | None = "top1"
    columns: dict = field(default_factory=dict)
    epoch: int = 0
    plain: Plain | None = None
    settings: Settings = field(default_factory=Settings)
    seed: int = 1

    def __post_init__(self) -> None:
        if self.settings != Settings(self.settings.precision, compiled=self.settings.compiled):
            raise NotImplementedError(f"{self.settings}; allowed with Keras: precision and compiled")
        precision = self.settings.precision
        import_keras(self.device.framework)
        training = importlib.import_module(f"benchbook.frameworks.{self.device.framework}.training")
        self.network = training.KerasNetwork(
            device=self.device,
            make_model=self.make_model,
            make_optimizer=self.make_optimizer,
            loss=self.loss,
            accuracy=self.accuracy,
            precision=precision,
            compiled=self.settings.compiled,
            loss_scaled=PRECISIONS[precision].needs_scaling,
            seed=self.seed,
        )

    @property
    def model(self):
        """Return the Keras model, with its weights up to date."""
        self.network.update_model()
        return self.network.model

    def description(self) -> dict:
        """Return the columns that describe the work."""
        model = self.network.model
        return {
            "parameters": model.count_params(),
            "batch_size": self.batch_size,
            "precision": self.settings.precision,
            "compiled": self.settings.compiled or self.device.framework == "jax",  # JAX knows nothing else
            "flops_per_sample": flops_per_sample(model),
        } | self.columns

    def trainable_parameters(self) -> int:
        """Return how many numbers training changes; moving statistics are not among them."""
        return sum(math.prod(variable.shape) for variable in self.network.model.trainable_variables)

    def enter(self) -> None:
        """Do nothing: every call of the network enters its own arithmetic."""

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield one epoch's batches."""
        return iter(self.train_batches(epoch))

    def num_samples(self, batch: Batch) -> int:
        """Return the images in a batch."""
        return self.network.num_images(batch[0])

    def to_device(self, batch: Batch) -> Batch:
        """Return a batch on the device, or its shares where there are several; a step does not move it again."""
        with arithmetic(self.device, self.settings.precision):
            return tuple(self.network.spread(*batch))

    def step(self, batch: Batch) -> Array:
        """Train on one batch; the loss stays on the device, so that nothing waits for it."""
        return self.network.train(*batch)

    def steps_taken(self) -> int:
        """Return the optimiser's iterations."""
        return self.network.steps_taken()

    def misplaced_operations(self) -> dict[str, int]:
        """Return how often each operation of a step is computed on another device than the chosen one.

        TensorFlow leaves to the CPU what an accelerator has no kernel for. The first step fills it in.
        """
        return dict(self.network.misplaced)

    def mean_loss(self, losses: list[Array]) -> float:
        """Read the losses of many steps and return their mean."""
        return float(numpy.mean([numpy.asarray(loss, "float64") for loss in losses]))

    def end_epoch(self) -> None:
        """Advance the epoch."""
        self.epoch += 1

    def evaluate(self) -> Evaluation:
        """Return mean loss and accuracy over all test images, unread."""
        total, right, samples = 0.0, 0.0, 0
        self.network.share_statistics()
        for inputs, target in self.test_batches():
            loss, accuracy = self.network.score(inputs, target)
            count = self.network.num_images(inputs)
            total, right, samples = total + loss * count, right + accuracy * count, samples + count
        return Evaluation(total / samples, right / samples if self.metric else math.nan, samples, self.metric)

    def snapshot(self) -> dict:
        """Return a copy of everything that training changes; seeds and schedule are among the variables."""
        random = self.device.backend.random_state(self.device)
        return {"variables": self.network.read(), "random": random, "epoch": self.epoch}

    def restore(self, state: dict) -> None:
        """Go back to a snapshot, in place: compiled code stays valid."""
        self.network.write(state["variables"])
        self.epoch = state["epoch"]
        self.device.backend.restore_random_state(self.device, state["random"])

    def pass_steps(self, count: int) -> None:
        """Go on as after so many steps of a schedule that changes with every step."""
        self.network.update_model()
        self.network.assign([self.network.iterations], [count])

    @contextmanager
    def compared(self, precision: str) -> Iterator[KerasSubject]:
        """Yield what is compared with float64: this workload itself, or in another precision one with its weights.

        Afterwards weights, optimiser, seeds and random state are what they were.
        """
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
        parts = _forward(layer)
        if parts:
            # Inside a layer of two convolutions the second depends on the first.
            passes = [1 + trained + (above or (trained and position > 0)) for position in range(len(parts))]
            total += sum(count * part for count, part in zip(passes, parts, strict=True))
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
    if kind in _OF_OUTPUT:
        return [2 * math.prod(layer.output.shape[1:-1]) * math.prod(layer.kernel.shape)]
    if kind in _OF_INPUT:
        return [2 * math.prod(layer.input.shape[1:-1]) * math.prod(layer.kernel.shape)]
    if kind in _SEPARABLE:
        kernels = layer.depthwise_kernel, layer.pointwise_kernel
        return [2 * math.prod(layer.output.shape[1:-1]) * math.prod(kernel.shape) for kernel in kernels]
    if layer.weights and not any(ancestor.__name__ in _NONE for ancestor in type(layer).__mro__):
        allowed = ", ".join((*_OF_OUTPUT, *_OF_INPUT, *_SEPARABLE, *_NONE))
        raise ValueError(f"layer {layer.name!r} is a {kind}; allowed with weights: {allowed}")
    return []
