"""The same MNIST network on MLX: layers, dropout and Adadelta as torch has them.

MLX has no loader of its own: threads of this process prepare whole batches where torch has a process for each worker.
"""

import functools

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks.batches import loaded, plain_order, shuffled_order
from benchbook.frameworks.devices import Device
from benchbook.frameworks.mlx.layers import Convolution, Dense, as_torch, flops_per_sample
from benchbook.frameworks.mlx.runtime import ResidentArrays
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.frameworks.workload import Settings
from benchbook.studies import datasets
from benchbook.studies.mnist_speedup import workload as torchs

POOLED = (12, 12, 64)  # height, width and channels of what the dense layers take


class Network(nn.Module):
    """Two convolutions and two dense layers: (n, 28, 28, 1) to log-probabilities (n, 10).

    Args:
        seed: of the weights.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        random = numpy.random.default_rng(seed)
        self.convolution1 = Convolution(*as_torch(random, (3, 3, 1, 32)))
        self.convolution2 = Convolution(*as_torch(random, (3, 3, 32, 64)))
        self.pool = nn.MaxPool2d(2)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.dense1 = Dense(*as_torch(random, (9216, 128)), images=POOLED)
        self.dense2 = Dense(*as_torch(random, (128, 10)))

    def __call__(self, images: mx.array) -> mx.array:
        """Return log-probabilities of the ten classes."""
        hidden = nn.relu(self.convolution1(images))
        hidden = nn.relu(self.convolution2(hidden))
        hidden = self.dropout1(self.pool(hidden))
        hidden = nn.relu(self.dense1(hidden))
        return nn.log_softmax(self.dense2(self.dropout2(hidden)).astype(mx.float32), axis=-1)


def build(
    dataset: datasets.Dataset,
    device: Device,
    variant: str,
    data_resident: bool,
    num_workers: int,
    batch_size: int,
    seed: int,
    settings: Settings,
) -> MlxWorkload:
    """Return the study's workload on MLX; see `workload.build`, which has checked the choices."""
    device.backend.seed(seed)
    shuffle_seed = seed if variant != "reference" or not device.is_cpu else None
    train, test = _inputs(dataset, None if data_resident else num_workers, batch_size, shuffle_seed)
    made = MlxWorkload(
        device=device,
        batch_size=batch_size,
        make_model=lambda: Network(seed),
        make_optimizer=lambda: optimizers.AdaDelta(1.0),
        train_batches=train,
        test_batches=test,
        loss=nll,
        epoch_rate=lambda epoch: 0.7**epoch,
        columns=torchs.columns("mnist_cnn", dataset, 0 if data_resident else num_workers),
        make_plain=lambda: torchs.plain(dataset, batch_size),
        settings=settings,
    )
    made.columns["flops_per_sample"] = flops_per_sample(made.network.model, mx.zeros((1, 28, 28, 1)))
    return made


def nll(outputs: mx.array, labels: mx.array) -> mx.array:
    """Return the mean negative log-probability of the labels."""
    return nn.losses.nll_loss(outputs, labels, reduction="mean")


def normalise(images: numpy.ndarray) -> numpy.ndarray:
    """Return pixels, uint8, shape (n, 28, 28), as the network takes them: float32, shape (n, 28, 28, 1)."""
    pixels = images[..., None].astype(numpy.float32) / numpy.float32(255)
    return (pixels - numpy.float32(torchs.MEAN)) / numpy.float32(torchs.STANDARD_DEVIATION)


def _inputs(dataset: datasets.Dataset, num_workers: int | None, batch_size: int, seed: int | None):
    """Return functions to an epoch's training batches and to the test batches; no workers: images stay in memory."""
    count = len(dataset.train_labels)
    tested = plain_order(len(dataset.test_labels), torchs.TEST_BATCH_SIZE)
    parts = (dataset.train_images, dataset.train_labels), (dataset.test_images, dataset.test_labels)

    def order(epoch: int) -> list[numpy.ndarray]:
        return plain_order(count, batch_size) if seed is None else shuffled_order(count, batch_size, seed, epoch)

    if num_workers is None:
        train, test = (ResidentArrays(normalise(images), labels) for images, labels in parts)
        return lambda epoch: train.batches(order(epoch)), lambda: test.batches(tested)

    def load(images: numpy.ndarray, labels: numpy.ndarray, indices: numpy.ndarray) -> tuple:
        return normalise(images[indices]), labels[indices]

    load_train, load_test = (functools.partial(load, *part) for part in parts)
    return (
        lambda epoch: loaded(order(epoch), load_train, num_workers),
        lambda: loaded(tested, load_test, num_workers),
    )
