"""What all Keras workloads share, on TensorFlow and on JAX: a training step, evaluation, going back, parity.

The same model, loss and optimiser run on both; which of the two is the device's framework, decided once a process.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy

from benchbook import devices, roofline
from benchbook.devices import Device
from benchbook.workloads import Evaluation, Settings
from benchbook.workloads.keras.networks import Network, build_network
from benchbook.workloads.keras.runtime import (
    POLICIES,
    Array,
    arithmetic,
    compile_function,
    import_keras,
    place,
    to_host,
)

__all__ = [
    "KerasParitySubject",
    "KerasWorkload",
    "ResidentArrays",
    "arithmetic",
    "compile_function",
    "copy_model",
    "cross_entropy",
    "evaluation_batch_size",
    "import_keras",
    "place",
    "to_host",
    "top1",
]

Batch = tuple[Array, Array]
LARGEST_LOSS_SCALE = 2.0**15  # where Keras's LossScaleOptimizer begins


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
    """A network trained with Keras; see `benchbook.workloads.Workload` for the interface.

    A batch is (inputs, target), NumPy arrays or tensors of the framework. As it stands it is a classifier.

    Attributes:
        make_model: to a functional Keras model, without models inside, in the dtype policy then in force.
        make_optimizer: to a new Keras optimiser; a schedule of its own steps with every batch.
        train_batches: epoch number to the batches of that epoch, all of one shape: another one is compiled anew.
        test_batches: to all test batches.
        loss, accuracy: outputs and target to a scalar, in keras.ops; the means over a batch.
        metric: what `accuracy` is, as rows name it.
        columns: the description of the work, as columns of a row.
        parity_batches: a number to that many batches on the host, the same for every device.
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
    parity_batches: Callable[[int], list[Batch]] | None = None
    settings: Settings = field(default_factory=Settings)
    seed: int = 1

    def __post_init__(self) -> None:
        if self.settings.channels_last or self.settings.fused:
            raise NotImplementedError(f"{self.settings}; allowed with Keras: precision and compiled")
        self.network = self._build(self.device, self.settings.precision, self.settings.compiled)

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
            "flops_per_sample": roofline.keras_flops_per_sample(model),
        } | self.columns

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield one epoch's batches."""
        return iter(self.train_batches(epoch))

    def num_samples(self, batch: Batch) -> int:
        """Return the images in a batch."""
        return len(batch[0])

    def step(self, batch: Batch) -> Array:
        """Train on one batch; the loss stays on the device, so that nothing waits for it."""
        return self.network.train(*batch)

    def mean_loss(self, losses: list[Array]) -> float:
        """Read the losses of many steps and return their mean."""
        return float(numpy.mean([numpy.asarray(loss, "float64") for loss in losses]))

    def end_epoch(self) -> None:
        """Advance the epoch."""
        self.epoch += 1

    def evaluate(self) -> Evaluation:
        """Return mean loss and accuracy over all test images, unread."""
        total, right, samples = 0.0, 0.0, 0
        for inputs, target in self.test_batches():
            loss, accuracy = self.network.score(inputs, target)
            count = len(inputs)
            total, right, samples = total + loss * count, right + accuracy * count, samples + count
        return Evaluation(total / samples, right / samples, samples, self.metric)

    def snapshot(self) -> dict:
        """Return a copy of everything that training changes; seeds and schedule are among the variables."""
        random = devices.random_state(self.device)
        return {"variables": self.network.read(), "random": random, "epoch": self.epoch}

    def restore(self, state: dict) -> None:
        """Go back to a snapshot, in place: compiled code stays valid."""
        self.network.write(state["variables"])
        self.epoch = state["epoch"]
        devices.restore_random_state(self.device, state["random"])

    def parity_subject(self, device: Device, precision: str) -> "KerasParitySubject":
        """Return a copy of the network at its present weights, with a fresh optimiser; see `ParityWorkload`."""
        # The reference computes plainly; the device as the workload does.
        same = precision == self.settings.precision
        policy = None if same else POLICIES.get(precision)
        network = self._build(
            device, precision, self.settings.compiled and same, lambda: copy_model(self.model, policy)
        )
        network.load([to_host(weight.value) for weight in self.model.weights])
        return KerasParitySubject(network)

    def _build(self, device: Device, precision: str, compiled: bool, make_model: Callable | None = None) -> Network:
        return build_network(
            device,
            make_model=make_model or self.make_model,
            make_optimizer=self.make_optimizer,
            loss=self.loss,
            accuracy=self.accuracy,
            precision=precision,
            compiled=compiled,
            loss_scaled=make_model is None and "fp16" in precision,
            seed=self.seed,
        )


class KerasParitySubject:
    """A Keras network that repeats the same steps on any device; see `benchbook.workloads.ParitySubject`.

    Args:
        network: without dropout.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.names = [variable.path for variable in network.model.trainable_variables]
        self.loss_scale = LARGEST_LOSS_SCALE if "fp16" in network.precision else 1.0

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name, in float64."""
        self.network.update_model()
        values = [to_host(variable.value).astype("float64") for variable in self.network.model.trainable_variables]
        return dict(zip(self.names, values, strict=True))

    def load(self, parameters: dict[str, numpy.ndarray]) -> None:
        """Take over parameters of these names, rounded to this precision."""
        self.network.update_model()
        self.network.assign(self.network.model.trainable_variables, [parameters[name] for name in self.names])

    def gradients(self, batch: Batch) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name, in float64."""
        loss, gradients = self._differentiate(batch)
        return loss, dict(zip(self.names, gradients, strict=True))

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its mean loss from before the step."""
        loss, gradients = self._differentiate(batch)
        self.network.apply(gradients)
        return loss

    def _differentiate(self, batch: Batch) -> tuple[float, list[numpy.ndarray]]:
        """Return loss and gradients; in float16 the loss is scaled, and the scale halved until nothing overflows."""
        while True:
            loss, gradients = self.network.differentiate(*batch, self.loss_scale)
            if self.loss_scale == 1 or all(numpy.isfinite(gradient).all() for gradient in gradients):
                return loss, gradients
            self.loss_scale /= 2


class ResidentArrays:
    """Arrays kept on a device, from which batches are taken and prepared there: no loader, no transfer.

    Args:
        device: which.
        inputs, target: NumPy arrays of n lines each.
        prepare: from lines of `inputs`, on the device, to what the network takes; in keras.ops.
    """

    def __init__(
        self, device: Device, inputs: numpy.ndarray, target: numpy.ndarray, prepare: Callable[[Array], Array]
    ) -> None:
        keras = import_keras(device.framework)
        self.device, self.arrays = device, (place(device, inputs), place(device, target))

        def take(inputs: Array, target: Array, indices: Array) -> Batch:
            return prepare(keras.ops.take(inputs, indices, axis=0)), keras.ops.take(target, indices, axis=0)

        self._take = compile_function(device, take)

    def batches(self, order: Iterable[numpy.ndarray]) -> Iterator[Batch]:
        """Yield a batch for each array of indices, int32."""
        for indices in order:
            with arithmetic(self.device, "fp32"):
                yield self._take(*self.arrays, place(self.device, indices))


def evaluation_batch_size(num_images: int, most: int) -> int:
    """Return a batch size that divides the images and is over half of `most`; `most` itself if there is none.

    A last batch of another size would be compiled for itself.
    """
    fewest = math.ceil(num_images / most)
    counts = [count for count in range(fewest, 2 * fewest) if num_images % count == 0]
    return num_images // counts[0] if counts else min(most, num_images)


def copy_model(model, policy: str | None = None):
    """Return a copy of a Keras model without its weights and without dropout.

    Args:
        model: a functional model without models inside.
        policy: what Keras computes the copy in; None: as the model.
    """
    import keras

    def copy_layer(layer):
        config = layer.get_config()
        # Weights are loaded afterwards, and JAX compiles every random draw.
        config |= {name: "zeros" for name in config if name.endswith("initializer")}
        if isinstance(layer, keras.layers.Dropout):
            config["rate"] = 0.0
        if policy is not None:
            config["dtype"] = policy
        return type(layer).from_config(config)

    return keras.models.clone_model(model, clone_function=copy_layer)
