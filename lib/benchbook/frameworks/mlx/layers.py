"""Layers that compute in the precision of their inputs, independent of the type of their weights.

Images are (n, height, width, channels), as MLX has them. Each layer tells how torch keeps its weight, so that the same
numbers can be in both.
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
        kernel: shape (height, width, in, out), as Keras has it; depthwise (height, width, in, 1).
        bias: shape (out,); None for none.
        stride: in both directions.
        padding: rows above and below, and columns left and right.
        depthwise: whether each channel has a kernel of its own.
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
        self.positions = 0  # of the last output's pixels, to count the arithmetic

    def __call__(self, images: mx.array) -> mx.array:
        """Return convolved images."""
        padding = [self.before] * 2, [self.after] * 2
        weight = self.weight.astype(images.dtype)
        output = mx.conv_general(images, weight, self.stride, padding, groups=self.groups)
        self.positions = output.shape[1] * output.shape[2]
        return output + self.bias.astype(images.dtype) if "bias" in self else output

    def to_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return a weight as torch keeps it: (out, in, height, width)."""
        return weight.transpose(0, 3, 1, 2)

    def from_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return torch's weight as MLX keeps it: (out, height, width, in)."""
        return weight.transpose(0, 2, 3, 1)


class Dense(nn.Module):
    """A dense layer.

    Args:
        kernel: shape (in, out), as Keras has it.
        bias: shape (out,); None for none.
        images: height, width and channels of the images that it takes, flattened; None where it takes none. torch
            flattens them with the channels first.
    """

    def __init__(
        self, kernel: numpy.ndarray, bias: numpy.ndarray | None, images: tuple[int, int, int] | None = None
    ) -> None:
        super().__init__()
        self.weight = mx.array(kernel.T.copy())
        if bias is not None:
            self.bias = mx.array(bias)
        self.positions = 1
        # A text, since MLX would take a tuple for part of the network's state.
        self.flattened = "" if images is None else " ".join(map(str, images))

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return (n, ..., out)."""
        hidden = hidden.reshape(len(hidden), -1) if self.flattened else hidden
        weight = self.weight.astype(hidden.dtype).T
        return mx.addmm(self.bias.astype(hidden.dtype), hidden, weight) if "bias" in self else hidden @ weight

    def to_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return a weight as torch keeps it."""
        if not self.flattened:
            return weight
        images = weight.reshape(len(weight), *map(int, self.flattened.split()))
        return images.transpose(0, 3, 1, 2).reshape(len(weight), -1)

    def from_torch(self, weight: numpy.ndarray) -> numpy.ndarray:
        """Return torch's weight as MLX keeps it."""
        if not self.flattened:
            return weight
        height, width, channels = map(int, self.flattened.split())
        images = weight.reshape(len(weight), channels, height, width)
        return images.transpose(0, 2, 3, 1).reshape(len(weight), -1)


class BatchNorm(nn.BatchNorm):
    """Batch norm that computes in float32, and a batch's mean and variance once.

    MLX's own computes in the precision of the images, and the variance twice. The moving variance is the unbiased one,
    as MLX's and torch's.

    Args:
        arrays: scale, offset, moving mean and variance.
        epsilon, momentum: as torch's: a step replaces this share of the moving statistics.
        trained: whether it normalises by the batch in training; else always by the moving statistics.
    """

    def __init__(self, arrays: list[numpy.ndarray], epsilon: float, momentum: float, trained: bool = True) -> None:
        super().__init__(len(arrays[0]), epsilon, momentum)
        self.weight, self.bias, self.running_mean, self.running_var = map(mx.array, arrays)
        self.trained = trained

    def __call__(self, images: mx.array) -> mx.array:
        """Return normalised images, in the precision in which they came."""
        values = images.astype(mx.float32)
        if self.training and self.trained:
            axes, count = (0, 1, 2), values.size // values.shape[-1]
            mean, variance = mx.mean(values, axes), mx.var(values, axes)
            for name, new in (("running_mean", mean), ("running_var", variance * (count / max(1, count - 1)))):
                setattr(self, name, (1 - self.momentum) * self[name] + self.momentum * new)
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * mx.rsqrt(variance + self.eps)
        return ((values - mean) * scale + self.bias).astype(images.dtype)


class Convolved(nn.Module):
    """A convolution, and the batch norm behind it or what is left of that."""

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
        """Return images moved by a number for each channel."""
        return images + self.bias.astype(images.dtype)


def as_torch(random: numpy.random.Generator, shape: tuple[int, ...]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return kernel and bias of a convolution or of a dense layer, float32.

    Args:
        random: where the numbers come from.
        shape: of the kernel, its last two being in and out.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html
    """
    limit = float(numpy.prod(shape[:-1])) ** -0.5
    kernel, bias = (random.uniform(-limit, limit, size) for size in (shape, shape[-1]))
    return kernel.astype(numpy.float32), bias.astype(numpy.float32)


def flops_per_sample(model: nn.Module, images: mx.array) -> float:
    """Count the arithmetic of training an MLX network on one sample, as `keras.training.flops_per_sample` does.

    Args:
        model: its products are layers of this module, which come in the order of the data.
        images: a batch as the network takes it; nothing is computed of it.
    """
    before = leaves(model)
    model(images)  # each layer notes the pixels of its output
    assign(model, before)  # batch norms have seen no batch yet
    total, above = 0, False
    for layer in _in_order(model):
        trained = "weight" in layer.trainable_parameters()
        total += 2 * layer.positions * layer.weight.size * (1 + trained + above)
        above = above or trained
    return float(total)


def _in_order(part: Any) -> Iterator[Any]:
    """Yield an MLX network's layers that multiply, in the order in which they were put into it."""
    if hasattr(part, "positions"):
        yield part
    else:
        for child in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from _in_order(child)
