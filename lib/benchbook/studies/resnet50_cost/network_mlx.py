"""The same ResNet-50 on MLX: torchvision's padding, constants and optimiser."""

import functools

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_map_with_path

from benchbook.frameworks.mlx.layers import BatchNorm, Convolution, ConvolutionBlock, Dense
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.studies.resnet50_cost.plan import MOMENTUM, MOST_TEST_IMAGES, NORM_EPSILON, NORM_KEPT, WEIGHT_DECAY, Plan
from benchbook.studies.resnet50_cost.weights import HEAD, STEM, blocks
from benchbook.studies.resnet50_cost.weights import Block as Shapes
from benchbook.studies.resnet50_cost.weights import Convolution as Shape


class Block(nn.Module):
    """A bottleneck: three convolutions, and one on the way around them where the shapes differ."""

    def __init__(self, plan: Plan, block: Shapes) -> None:
        super().__init__()
        self.inner = [_convolved(plan, part) for part in block.convolutions]
        self.around = [_convolved(plan, block.around)] if block.around else []

    def __call__(self, images: mx.array) -> mx.array:
        """Return images of the block's channels."""
        first, second, third = self.inner
        hidden = third(nn.relu(second(nn.relu(first(images)))))
        kept = self.around[0](images) if self.around else images
        return nn.relu(hidden + kept)


class Network(nn.Module):
    """ResNet-50: (n, size, size, 3) to logits (n, classes); v1.5, with the stride in the 3x3 convolution."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.stem = _convolved(plan, STEM)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = [Block(plan, block) for block in blocks()]
        self.head = Dense(*plan.arrays[HEAD])

    def __call__(self, images: mx.array) -> mx.array:
        """Return logits of the classes; the softmax is part of the loss."""
        hidden = self.pool(nn.relu(self.stem(images)))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean((1, 2)))


class Nesterov(optimizers.SGD):
    """Nesterov momentum, with weight decay on all but batch norms."""

    def apply_gradients(self, gradients: dict, parameters: dict) -> dict:
        """Return new parameters."""

        def decay(path: str, gradient: mx.array, parameter: mx.array) -> mx.array:
            return gradient if ".norm." in path else gradient + WEIGHT_DECAY * parameter

        return super().apply_gradients(tree_map_with_path(decay, gradients, parameters), parameters)


def build(plan: Plan) -> MlxWorkload:
    """Return the study's workload on MLX; see `Plan`.

    Raises:
        NotImplementedError: several devices.
    """
    if plan.group.size > 1 or plan.device.count > 1:
        raise NotImplementedError(f"device_count {plan.device.count} with MLX; allowed: 1")
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
    around = part.shape[0] // 2
    convolution = Convolution(plan.arrays[part.name][0], None, part.stride, (around, around))
    return ConvolutionBlock(convolution, BatchNorm(plan.arrays[part.norm], NORM_EPSILON, 1 - NORM_KEPT))


def rate(plan: Plan, step: mx.array) -> mx.array:
    """Return a step's learning rate, in MLX's operations."""
    return plan.rate(step.astype(mx.float32), mx.minimum, lambda reached: reached.astype(mx.float32))
