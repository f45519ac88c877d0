"""Layers that compute in the precision of their inputs, independent of the type of their weights.

Images are (n, height, width, channels), as in MLX. Each layer converts its weight to torch's
layout and back.
"""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy
from mlx import nn

from benchbook.frameworks.mlx.runtime import assign, leaves


class Convolution(nn.Module):
    """A convolution.

    Args:
        kernel: in Keras's layout, shape (height, width, in, out); depthwise (height, width, in, 1).
        bias: shape (out,); None: no bias.
        stride: in both directions.
        padding: (before, after): pixels added above and to the left, and below and to the right.
        depthwise: whether each channel has a separate kernel.
    """

    def __init__(
        self,
        kernel: numpy.ndarray,
        bias: numpy.ndarray | None = None,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
        depthwise: bool = False,
    ) -> None:
        super().__init__()
        self.weight = mx.array(kernel.transpose((2, 0, 1, 3) if depthwise else (3, 0, 1, 2)).copy())
        if bias is not None:
            self.bias = mx.array(bias)
        self.stride, self.groups = stride, len(self.weight) if depthwise else 1
        self.before, self.after = padding
        self.positions = 0  # pixels of the last output, to count operations

    def __call__(self, images: mx.array) -> mx.array:
        """Return convolved images."""
        padding = [self.before] * 2, [self.after] * 2
        weight = self.weight.astype(images.dtype)
        output = mx.conv_general(images, weight, self.stride, padding, groups=self.groups)
        self.positions = output.shape[1] * output.shape[2]
        return output + self.bias.astype(images.dtype) if "bias" in self else output

    def to_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return a weight in torch's layout: (out, in, height, width)."""
        return weight.transpose(0, 3, 1, 2)

    def from_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return torch's weight in MLX's layout: (out, height, width, in)."""
        return weight.transpose(0, 2, 3, 1)


class Dense(nn.Module):
    """A dense layer.

    Args:
        kernel: in Keras's layout, shape (in, out).
        bias: shape (out,); None: no bias.
        images: height, width and channels of images, which the layer flattens; None: its inputs
        are not images. torch
            flattens images with the channels first.
    """

    def __init__(
        self,
        kernel: numpy.ndarray,
        bias: numpy.ndarray | None,
        images: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.weight = mx.array(kernel.T.copy())
        if bias is not None:
            self.bias = mx.array(bias)
        self.positions = 1
        # A string, because MLX would treat a tuple as a part of the network's state.
        self.flattened = "" if images is None else " ".join(map(str, images))

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return (n, ..., out)."""
        hidden = hidden.reshape(len(hidden), -1) if self.flattened else hidden
        weight = self.weight.astype(hidden.dtype).T
        return (
            mx.addmm(self.bias.astype(hidden.dtype), hidden, weight)
            if "bias" in self
            else hidden @ weight
        )

    def to_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return a weight in torch's layout."""
        if not self.flattened:
            return weight
        images = weight.reshape(len(weight), *map(int, self.flattened.split()))
        return images.transpose(0, 3, 1, 2).reshape(len(weight), -1)

    def from_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return torch's weight in MLX's layout."""
        if not self.flattened:
            return weight
        height, width, channels = map(int, self.flattened.split())
        images = weight.reshape(len(weight), channels, height, width)
        return images.transpose(0, 2, 3, 1).reshape(len(weight), -1)


class BatchNorm(nn.BatchNorm):
    """Batch norm that computes in float32, with each batch's mean and variance computed once.

    MLX's batch norm computes in the precision of the images, and the variance twice. The moving
    variance is unbiased, as in MLX and torch.

    Args:
        arrays: scale, offset, moving mean and moving variance.
        epsilon: added to the variance.
        momentum: as in torch: the share of the moving statistics that a step replaces.
        trained: whether it normalises by the batch in training, or always by the moving statistics.
    """

    def __init__(
        self, arrays: list[numpy.ndarray], epsilon: float, momentum: float, trained: bool = True
    ) -> None:
        super().__init__(len(arrays[0]), epsilon, momentum)
        self.weight, self.bias, self.running_mean, self.running_var = map(mx.array, arrays)
        self.trained = trained

    def __call__(self, images: mx.array) -> mx.array:
        """Return normalised images, in their own precision."""
        values = images.astype(mx.float32)
        if self.training and self.trained:
            axes, count = (0, 1, 2), values.size // values.shape[-1]
            mean, variance = mx.mean(values, axes), mx.var(values, axes)
            for name, new in (
                ("running_mean", mean),
                ("running_var", variance * (count / max(1, count - 1))),
            ):
                setattr(self, name, (1 - self.momentum) * self[name] + self.momentum * new)
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * mx.rsqrt(variance + self.eps)
        return ((values - mean) * scale + self.bias).astype(images.dtype)


class ConvolutionBlock(nn.Module):
    """A convolution followed by a batch norm, or by the `Shift` of a folded one."""

    def __init__(self, convolution: Convolution, norm: nn.Module) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, norm

    def __call__(self, images: mx.array) -> mx.array:
        """Return convolved, normalised images."""
        return self.norm(self.convolution(images))


class Shift(nn.Module):
    """The shift of a frozen batch norm whose scale is folded into the convolution before it."""

    def __init__(self, offset: numpy.ndarray) -> None:
        super().__init__()
        self.bias = mx.array(offset)

    def __call__(self, images: mx.array) -> mx.array:
        """Return images with the offset of each channel added."""
        return images + self.bias.astype(images.dtype)


def as_torch(
    random: numpy.random.Generator, shape: tuple[int, ...]
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return a random kernel and bias for a convolution or a dense layer, distributed as in
    torch, float32.

    Args:
        random: draws the numbers.
        shape: of the kernel; the last two dimensions are in and out.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
    """
    limit = float(numpy.prod(shape[:-1])) ** -0.5
    kernel, bias = (random.uniform(-limit, limit, size) for size in (shape, shape[-1]))
    return kernel.astype(numpy.float32), bias.astype(numpy.float32)


def flops_per_sample(model: nn.Module, images: mx.array) -> float:
    """Count the arithmetic of training an MLX network on one sample, as
    `keras.training.flops_per_sample` does.

    Args:
        model: its products are layers of this module, in the order in which data pass them.
        images: a batch as the network takes it; it is not evaluated.
    """
    before = leaves(model)
    model(images)  # each layer stores the number of pixels of its output
    assign(model, before)  # undo the change of the batch norms
    total, above = 0, False
    for layer in _in_order(model):
        trained = "weight" in layer.trainable_parameters()
        total += 2 * layer.positions * layer.weight.size * (1 + trained + above)
        above = above or trained
    return float(total)


def _in_order(part: Any) -> Iterator[Any]:
    """Yield an MLX network's layers with products, in the order in which they were added."""
    if hasattr(part, "positions"):
        yield part
    else:
        for child in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        ):
            yield from _in_order(child)
