"""First weights as torch draws them by default: uniform, by the values that go into an output."""

import numpy


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
