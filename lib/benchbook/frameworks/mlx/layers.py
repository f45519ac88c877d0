"""Layers that compute in the precision of their inputs, independent of the type of their weights.

Images are (n, height, width, channels), as in MLX. Each layer converts its weight to torch's
layout and back.
"""

import mlx.core as mx
import numpy
from mlx import nn


class Convolution(nn.Module):
    """A convolution of stride 1 without padding.

    Args:
        kernel: in Keras's layout, shape (height, width, in, out).
        bias: shape (out,).
    """

    def __init__(self, kernel: numpy.ndarray, bias: numpy.ndarray) -> None:
        super().__init__()
        self.weight = mx.array(kernel.transpose(3, 0, 1, 2).copy())
        self.bias = mx.array(bias)

    def __call__(self, images: mx.array) -> mx.array:
        """Return convolved images."""
        output = mx.conv2d(images, self.weight.astype(images.dtype))
        return output + self.bias.astype(images.dtype)

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
        images: height, width and channels of images, which the layer flattens, as torch does, with
            the channels first; None: its inputs are not images.
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
