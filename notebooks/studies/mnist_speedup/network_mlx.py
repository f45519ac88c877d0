"""The MNIST network on MLX, with the layers, dropout and Adadelta of the torch version.

MLX has no loader. Threads of this process prepare whole batches; with torch, each worker is a
process.
"""

import functools

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks.mlx.layers import Convolution, Dense, as_torch
from benchbook.frameworks.mlx.runtime import ResidentArrays
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.rows import networks
from benchbook.studies.mnist_speedup.plan import TEST_BATCH_SIZE, Plan
from benchbook.studies.torch_examples.plan import MEAN, STANDARD_DEVIATION

POOLED = (12, 12, 64)  # height, width and channels of the dense layers' input


class Network(nn.Module):
    """Two convolutions and two dense layers: (n, 28, 28, 1) to log-probabilities (n, 10).

    Args:
        seed: determines the initial weights.
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


def build(plan: Plan) -> MlxWorkload:
    """Return the study's workload on MLX; see `Plan`."""
    mx.random.seed(plan.seed)
    train, test = plan.inputs(
        lambda images, labels: ResidentArrays(normalise(images), labels),
        lambda images, labels: (normalise(images), labels),
        TEST_BATCH_SIZE,
    )
    counted = networks.describe(plan.MODEL).flops_per_sample  # of torch's network
    return MlxWorkload(
        **plan.common(train, test, flops_per_sample=counted),
        make_model=lambda: Network(plan.seed),
        make_optimizer=lambda: optimizers.AdaDelta(1.0),
        loss=functools.partial(nn.losses.nll_loss, reduction="mean"),
        epoch_rate=lambda epoch: 0.7**epoch,
        make_plain=plan.plain_in_torch,
    )


def normalise(images: numpy.ndarray) -> numpy.ndarray:
    """Return the network's input, float32 of shape (n, 28, 28, 1), from uint8 pixels of shape
    (n, 28, 28)."""
    pixels = images[..., None].astype(numpy.float32) / numpy.float32(255)
    return (pixels - numpy.float32(MEAN)) / numpy.float32(STANDARD_DEVIATION)
