"""What is to be built: a point's choices, checked, and its batches as NumPy arrays, the same for every framework."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy

from benchbook.frameworks import batches
from benchbook.frameworks.batches import check_fits
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import SGD, Adam, Optimizer, Plain
from benchbook.frameworks.workload import Settings
from benchbook.studies.datasets import Dataset
from benchbook.studies.mobilenetv2_energy.inputs import nearest
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.choices import EXAMPLE, SYNTHETIC

MOMENTUM = 0.9  # of sgd
POOL = 4  # different batches of synthetic data or of an example, which an epoch repeats
STEPS = 16  # of an epoch of them
OPEN = 3.0  # deviations above 0 at which batch norms lie where gradients are compared
COARSER = 20  # gates and offsets, whose gradients are sums that nearly cancel, are no more than a few hundredths
MOST_PARITY_SAMPLES = 16  # in a batch that is repeated in float64, which is slow

Batch = tuple[numpy.ndarray, ...]  # what the network takes, and last what its outputs are compared with


@dataclass(frozen=True)
class Plan:
    """A point's choices.

    Attributes:
        device: where to train, and with which framework.
        network: `module:callable` or `file.py:callable`, to a torch.nn.Module or a keras.Model.
        arguments: further keyword arguments of that callable, as Python writes them.
        image_size, channels, num_classes: of the images; the callable is given those that its signature names.
        example: `file.py:callable` from a batch size and a seed to (inputs, target), in place of images; inputs are an
            array or a tuple of arrays, and all arrays are as long as the batch.
        loss: `file.py:callable` from outputs and target to a scalar; empty is the cross-entropy of logits.
        optimizer: one of `choices.OPTIMIZERS`.
        learning_rate: of all steps.
        batch_size: samples a step.
        data: images to train on; None is random pixels, or the example.
        num_workers: threads that prepare images ahead.
        seed: of weights, pixels and data order.
        settings: how the network is computed.

    Raises:
        ValueError: images that the batch or the classes do not fit. What is wrong with the rest, `choices.check` says.
    """

    device: Device
    network: str
    arguments: str = ""
    image_size: int = 224
    channels: int = 3
    num_classes: int = 1000
    example: str = ""
    loss: str = ""
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    batch_size: int = 32
    data: Dataset | None = field(default=None, repr=False)
    num_workers: int = 2
    seed: int = 1
    settings: Settings = Settings()  # noqa: RUF009 (it is immutable)

    def __post_init__(self) -> None:
        if self.data is None:
            return
        check_fits(self.batch_size, len(self.data.train_labels))
        classes = int(self.data.train_labels.max()) + 1
        if self.num_classes < classes:
            raise ValueError(f"num_classes {self.num_classes}; allowed with {self.data.name}: {classes} or more")

    def __getstate__(self) -> dict:
        """Return the choices alone: another process cannot import your file, but run it and make batches itself."""
        return {choice.name: getattr(self, choice.name) for choice in fields(self)}

    @property
    def channels_first(self) -> bool:
        """Return whether images are (n, channels, height, width), as torch takes them."""
        return self.device.framework == "torch"

    @property
    def classifies(self) -> bool:
        """Return whether outputs are logits of classes, so that an accuracy means something."""
        return not self.loss

    @property
    def model_name(self) -> str:
        """Return what rows call the network: the callable's name."""
        return self.network.rpartition(":")[2]

    @cached_property
    def make_batch(self) -> Callable[[int, int], tuple]:
        """Return what makes a batch of a size from a seed."""
        return loading.resolve(self.example, "example") if self.example else self._random_images

    def make_network(self, allowed: type) -> object:
        """Return a new network.

        Raises:
            ValueError: the callable is not there, cannot be called so, or returns something else than `allowed`.
        """
        names = ("image_size", "channels", "num_classes")
        options = {name: getattr(self, name) for name in names}
        network = loading.call(
            loading.resolve(self.network, "network"), options, self.arguments, f"network {self.network!r}"
        )
        if not isinstance(network, allowed):
            kind = f"{type(network).__module__}.{type(network).__name__}"
            wanted = f"{allowed.__module__}.{allowed.__name__}"
            raise ValueError(
                f"network {self.network!r} returns a {kind}; allowed with framework {self.device.framework}: {wanted}"
            )
        return network

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework."""
        made = EXAMPLE if self.example else SYNTHETIC
        return {
            "model": self.model_name,
            "dataset": made if self.data is None else self.data.name,
            "dataset_samples": STEPS * self.batch_size if self.data is None else len(self.data.train_labels),
            "image_size": None if self.example else self.image_size,
            "num_workers": 0 if self.data is None else self.num_workers,
        }

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield an epoch's batches: of images in a new order, or the pool again and again."""
        if self.data is None:
            yield from (self._pool[step % POOL] for step in range(STEPS))
            return
        order = self._order(epoch)
        images, labels = self.data.train_images, self.data.train_labels
        yield from batches.loaded(order, lambda chosen: self._load(images, labels, chosen), self.num_workers)

    def test_batches(self) -> Iterator[Batch]:
        """Yield the batches of an evaluation; of data without a test set, the pool."""
        if self.data is None:
            yield from self._pool
            return
        images, labels = self.data.test_images, self.data.test_labels
        whole = max(self.batch_size, len(labels) // self.batch_size * self.batch_size)
        for chosen in batches.plain_order(min(whole, len(labels)), self.batch_size):
            yield self._load(images, labels, chosen)

    def example_batch(self) -> Batch:
        """Return a small batch, by which a network is counted."""
        return self._batch(min(self.batch_size, MOST_PARITY_SAMPLES), 0) if self.data is None else self._first()

    def plain(self, make_network: Callable, loss: Callable, offsets: Callable[[], list[str]]) -> Plain:
        """Return what training is held against: the same network, in plain code.

        In a fresh network rounding to bfloat16 opens and shuts so many ReLUs that it turns the gradient: of twelve of
        torchvision's networks none agreed with float64. So both are compared where hardly any is shut.

        Args:
            make_network, loss: see `benchbook.frameworks.plain.Plain`.
            offsets: to the names of the batch norms' offsets.
        """

        def labels(batch: Batch, place: int) -> numpy.ndarray:
            count = len(self.data.train_labels)
            epoch, number = divmod(place, count // self.batch_size)
            return batch[-1] == self.data.train_labels[self._order(epoch)[number]]

        return Plain(
            make_network=make_network,
            loss=loss,
            make_optimizer=self._plain_optimizer,
            batch_size=min(self.batch_size, MOST_PARITY_SAMPLES),
            labels=labels if self.data is not None else None,
            settle=lambda make, weights: weights | {name: weights[name] + OPEN for name in offsets()},
            coarser=COARSER,
            may_draw=True,
        )

    def _plain_optimizer(self) -> Optimizer:
        """Return the optimiser with its framework's constants: those of torch, or Keras's own."""
        keras = self.device.framework != "torch"
        if self.optimizer == "sgd":
            return SGD(lambda step: self.learning_rate, momentum=0.9)
        decay = {"adam": 0.0, "adamw": 0.004 if keras else 0.01}[self.optimizer]
        return Adam(lambda step: self.learning_rate, 1e-7 if keras else 1e-8, keras, decay)

    def _order(self, epoch: int) -> list[numpy.ndarray]:
        return batches.training_order(len(self.data.train_labels), self.batch_size, self.seed, epoch)

    def _first(self) -> Batch:
        chosen = numpy.arange(min(self.batch_size, MOST_PARITY_SAMPLES))
        return self._load(self.data.train_images, self.data.train_labels, chosen)

    def of_size(self, batch_size: int) -> "Plan":
        """Return the same plan with another batch size."""
        return replace(self, batch_size=batch_size)

    @cached_property
    def _pool(self) -> list[Batch]:
        return [self._batch(self.batch_size, number) for number in range(POOL)]

    def _batch(self, size: int, number: int) -> Batch:
        """Return one made batch, checked.

        Raises:
            ValueError: the example does not return arrays of the batch's length.
        """
        with loading.blamed(f"example {self.example!r}, called with ({size}, {self.seed + number}),"):
            made = self.make_batch(size, self.seed + number)
        if not isinstance(made, tuple) or len(made) != 2:
            raise ValueError(f"example {self.example!r} returns a {type(made).__name__}; allowed: (inputs, target)")
        inputs, target = made
        parts = tuple(numpy.asarray(part) for part in (*(inputs if isinstance(inputs, tuple) else (inputs,)), target))
        for part in parts:
            if part.dtype.kind not in "fiub":
                raise ValueError(f"example {self.example!r} returns an array of {part.dtype}; allowed: numbers")
            if not part.ndim or len(part) != size:
                raise ValueError(
                    f"example {self.example!r} returns an array of shape {part.shape} for batch_size {size};"
                    f" allowed: shapes ({size}, ...)"
                )
        # As frameworks compute them: floats in single precision, whole numbers as indices.
        return tuple(part.astype("float32" if part.dtype.kind == "f" else "int64") for part in parts)

    def _random_images(self, size: int, seed: int) -> Batch:
        random = numpy.random.default_rng([seed, size])
        side = self.image_size
        shape = (size, self.channels, side, side) if self.channels_first else (size, side, side, self.channels)
        return random.random(shape, numpy.float32), random.integers(self.num_classes, size=size)

    def _load(self, images: numpy.ndarray, labels: numpy.ndarray, chosen: numpy.ndarray) -> Batch:
        """Return images 0 to 1 at the wanted size, by nearest neighbours, with as many channels as asked for."""
        some = images[chosen]
        some = some if some.ndim == 4 else some[..., None]
        sides = [nearest(side, self.image_size) for side in some.shape[1:3]]
        some = some[:, sides[0]][:, :, sides[1]]
        if some.shape[-1] == 1 and self.channels > 1:
            some = numpy.repeat(some, self.channels, axis=-1)
        if some.shape[-1] != self.channels:
            raise ValueError(f"channels {self.channels}; allowed with these images: {some.shape[-1]}")
        pixels = some.astype(numpy.float32) / numpy.float32(255)
        pixels = numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if self.channels_first else pixels
        return pixels, labels[chosen].astype("int64")
