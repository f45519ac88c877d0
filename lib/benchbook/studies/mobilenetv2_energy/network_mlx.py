"""Keras's MobileNetV2 on MLX, with the same padding, constants, weights and optimiser."""

import functools

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks.mlx.layers import BatchNorm, Convolution, ConvolutionBlock, Dense, Shift
from benchbook.frameworks.mlx.runtime import ResidentArrays
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.studies.mobilenetv2_energy import weights
from benchbook.studies.mobilenetv2_energy.plan import Plan, enlarge


class Block(nn.Module):
    """An inverted residual: expansion, depthwise convolution, projection, and a shortcut where
    the shapes allow it.

    Args:
        make: returns a convolution with its batch norm, given its name, stride and padding.
        prefix: first part of the layers' names.
        stride: stride of the depthwise convolution.
        side: height and width of the depthwise convolution's input.
        expanded: whether the block has an expansion.
        residual: whether the input is added to the output.
    """

    def __init__(
        self, make, prefix: str, stride: int, side: int, expanded: bool, residual: bool
    ) -> None:
        super().__init__()
        padding = (
            (1, 1) if stride == 1 else (side % 2, 1)
        )  # keras.src.applications.imagenet_utils.correct_pad
        self.inner = [make(f"{prefix}_expand")] if expanded else []
        self.inner.append(make(f"{prefix}_depthwise", stride, padding))
        self.project = make(f"{prefix}_project")
        self.residual = residual

    def __call__(self, images: mx.array) -> mx.array:
        """Return the block's output (n, height, width, channels)."""
        hidden = images
        for convolved in self.inner:
            hidden = nn.relu6(convolved(hidden))
        hidden = self.project(hidden)
        return images + hidden if self.residual else hidden


class Network(nn.Module):
    """MobileNetV2 with a new head: (n, size, size, 3) to logits (n, classes).

    In evaluation it uses the unbiased moving variance, as torch does; see `Network` in
    `network_torch`.

    Args:
        plan: the point's choices.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        make = functools.partial(_convolve, plan)
        side, number, channels = plan.image_size, 0, 32
        self.stem = make("Conv1", 2, (side % 2, 1))
        side = (side + 1) // 2
        self.blocks = []
        for expansion, out, repeats, first_stride in weights.BLOCKS:
            for repeat in range(repeats):
                stride = first_stride if repeat == 0 else 1
                prefix = f"block_{number}" if number else "expanded_conv"
                residual = stride == 1 and channels == out
                self.blocks.append(Block(make, prefix, stride, side, expansion > 1, residual))
                side, number, channels = (side + stride - 1) // stride, number + 1, out
        self.top = make("Conv_1")
        self.dropout = nn.Dropout(plan.DROPOUT)
        self.head = Dense(*plan.arrays[weights.HEAD])
        if not plan.trainable:
            self.freeze()
            self.head.unfreeze()

    def __call__(self, images: mx.array) -> mx.array:
        """Return the logits of the classes; the loss computes the softmax."""
        hidden = nn.relu6(self.stem(images))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.dropout(nn.relu6(self.top(hidden)).mean((1, 2))))


def build(plan: Plan) -> MlxWorkload:
    """Return the study's workload on MLX; see `Plan`."""
    mx.random.seed(plan.seed)
    rows, columns = map(mx.array, plan.chosen_pixels)

    def enlarged(images: mx.array) -> mx.array:
        return (images.astype(mx.float32) / 255)[:, rows][:, :, columns]

    train, test = plan.inputs(
        lambda images, labels: ResidentArrays(images, labels, enlarged),
        lambda images, labels: (enlarge(images, plan.image_size), labels.astype("int32")),
        plan.MOST_TEST_IMAGES,
    )
    return MlxWorkload(
        **plan.common(train, test),
        make_model=lambda: Network(plan),
        make_optimizer=lambda: optimizers.Adam(
            lambda step: plan.learning_rate * plan.decay(step),
            eps=plan.ADAM_EPSILON,
            bias_correction=True,
        ),
        sample_shape=(plan.image_size, plan.image_size, 3),
        make_plain=plan.plain_in_torch,
    )


def _convolve(
    plan: Plan, name: str, stride: int = 1, padding: tuple[int, int] = (0, 0)
) -> ConvolutionBlock:
    """Return a convolution and its batch norm; only an offset remains of a folded batch norm."""
    [kernel], norm = plan.arrays[name], plan.arrays[weights.convolutions()[name][0]]
    depthwise = "depthwise" in name
    if plan.folded:
        scale, offset, mean, variance = norm
        factor = scale / numpy.sqrt(variance + plan.NORM_EPSILON)
        folded = kernel * (factor[:, None] if depthwise else factor)
        return ConvolutionBlock(
            Convolution(folded, None, stride, padding, depthwise), Shift(offset - mean * factor)
        )
    batch_norm = BatchNorm(norm, plan.NORM_EPSILON, 1 - plan.momentum, plan.trainable)
    return ConvolutionBlock(Convolution(kernel, None, stride, padding, depthwise), batch_norm)
