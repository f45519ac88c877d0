"""torchvision's ResNet-50 on MLX, with the same padding, constants and optimiser."""

import functools

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_map_with_path

from benchbook.frameworks.mlx.layers import BatchNorm, Convolution, ConvolutionBlock, Dense
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.studies.resnet50_cost.plan import (
    BATCH_NORM,
    MOMENTUM,
    MOST_TEST_IMAGES,
    WEIGHT_DECAY,
    Plan,
)
from benchbook.studies.resnet50_cost.weights import HEAD, STEM, blocks
from benchbook.studies.resnet50_cost.weights import Block as Shapes
from benchbook.studies.resnet50_cost.weights import Convolution as Shape


class Block(nn.Module):
    """A bottleneck: three convolutions, and one in the shortcut if input and output have
    different shapes."""

    def __init__(self, plan: Plan, block: Shapes) -> None:
        super().__init__()
        self.inner = [_convolved(plan, part) for part in block.convolutions]
        self.shortcut = [_convolved(plan, block.shortcut)] if block.shortcut else []

    def __call__(self, images: mx.array) -> mx.array:
        """Return the block's output (n, height, width, channels)."""
        first, second, third = self.inner
        hidden = third(nn.relu(second(nn.relu(first(images)))))
        shortcut = self.shortcut[0](images) if self.shortcut else images
        return nn.relu(hidden + shortcut)


class Network(nn.Module):
    """ResNet-50 v1.5, whose 3x3 convolutions have the stride: (n, size, size, 3) to logits (n,
    classes)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.stem = _convolved(plan, STEM)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = [Block(plan, block) for block in blocks()]
        self.head = Dense(*plan.arrays[HEAD])

    def __call__(self, images: mx.array) -> mx.array:
        """Return the logits of the classes; the loss computes the softmax."""
        hidden = self.pool(nn.relu(self.stem(images)))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean((1, 2)))


class Nesterov(optimizers.SGD):
    """Nesterov momentum, with weight decay on all but batch norms."""

    def apply_gradients(self, gradients: dict, parameters: dict) -> dict:
        """Return the updated parameters."""

        def decay(path: str, gradient: mx.array, parameter: mx.array) -> mx.array:
            return gradient if ".norm." in path else gradient + WEIGHT_DECAY * parameter

        return super().apply_gradients(tree_map_with_path(decay, gradients, parameters), parameters)


def build(plan: Plan) -> MlxWorkload:
    """Return the study's workload on MLX; see `Plan`."""
    if plan.dataset:
        train, test = plan.decoded(MOST_TEST_IMAGES)
    else:
        batch = tuple(map(mx.array, plan.synthetic_batch(plan.batch_size)))
        mx.eval(batch)
        train, test = plan.repeated(batch)
    return MlxWorkload(
        **plan.common(train, test),
        make_model=lambda: Network(plan),
        make_optimizer=lambda: Nesterov(functools.partial(rate, plan), MOMENTUM, nesterov=True),
        sample_shape=(plan.image_size, plan.image_size, 3),
        make_plain=plan.plain_in_torch,
        metric=plan.metric,
    )


def _convolved(plan: Plan, part: Shape) -> ConvolutionBlock:
    padding = part.shape[0] // 2
    convolution = Convolution(plan.arrays[part.name][0], None, part.stride, (padding, padding))
    norm = BatchNorm(plan.arrays[part.norm], BATCH_NORM["epsilon"], 1 - BATCH_NORM["momentum"])
    return ConvolutionBlock(convolution, norm)


def rate(plan: Plan, step: mx.array) -> mx.array:
    """Return a step's learning rate, computed with MLX's operations."""
    return plan.rate(
        step.astype(mx.float32), mx.minimum, lambda reached: reached.astype(mx.float32)
    )
