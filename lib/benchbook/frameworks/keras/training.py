"""What all Keras workloads share, on TensorFlow and on JAX: a training step, evaluation, going back, parity.

The same model, loss and optimiser run on both; which of the two is the device's framework, decided once a process.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy

from benchbook.frameworks import flops
from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.building import build_network
from benchbook.frameworks.keras.inputs import Batch, ResidentArrays, evaluation_batch_size
from benchbook.frameworks.keras.parity import KerasSubject
from benchbook.frameworks.keras.runtime import Array, arithmetic, import_keras, kernels_of_zeros, to_host
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import Evaluation, Settings
from benchbook.machine.precisions import PRECISIONS

__all__ = [
    "KerasWorkload",
    "ResidentArrays",
    "arithmetic",
    "cross_entropy",
    "evaluation_batch_size",
    "import_keras",
    "kernels_of_zeros",
    "to_host",
    "top1",
]


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
        metric: what `accuracy` is, as rows name it.
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
    metric: str = "top1"
    columns: dict = field(default_factory=dict)
    epoch: int = 0
    plain: Plain | None = None
    settings: Settings = field(default_factory=Settings)
    seed: int = 1

    def __post_init__(self) -> None:
        if self.settings != Settings(self.settings.precision, compiled=self.settings.compiled):
            raise NotImplementedError(f"{self.settings}; allowed with Keras: precision and compiled")
        precision = self.settings.precision
        self.network = build_network(
            self.device,
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
            "flops_per_sample": flops.keras_flops_per_sample(model),
        } | self.columns

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
        return Evaluation(total / samples, right / samples, samples, self.metric)

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
