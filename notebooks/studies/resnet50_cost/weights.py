"""ResNet-50's initial weights by torchvision's names, for every framework, with torchvision's
distribution.

Arrays have Keras's shapes. With the same initial weights, frameworks can also be compared in
what they learn.
"""

from dataclasses import dataclass

import numpy

# Width, blocks and stride of each stage: table 1 of https://arxiv.org/abs/1512.03385
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EXPANSION = 4
HEAD = "fc"
FEATURES = 2048

Weights = dict[str, list[numpy.ndarray]]


@dataclass(frozen=True)
class Convolution:
    """A convolution without bias and the batch norm after it.

    Attributes:
        name, norm: torchvision's names of the two.
        shape: shape of the kernel: height, width, in, out.
        stride: stride in both directions.
    """

    name: str
    norm: str
    shape: tuple[int, int, int, int]
    stride: int = 1


@dataclass(frozen=True)
class Block:
    """A bottleneck: three convolutions, and one in the shortcut if input and output have
    different shapes."""

    convolutions: tuple[Convolution, Convolution, Convolution]
    shortcut: Convolution | None


STEM = Convolution("conv1", "bn1", (7, 7, 3, 64), 2)


def blocks() -> list[Block]:
    """Return the bottlenecks in order; in v1.5 the 3x3 convolution has the stride."""
    bottlenecks, channels = [], STEM.shape[-1]
    for stage, (width, count, stage_stride) in enumerate(STAGES, start=1):
        out = width * EXPANSION
        for number in range(count):
            name, stride = f"layer{stage}.{number}", stage_stride if number == 0 else 1
            shapes = ((1, 1, channels, width), (3, 3, width, width), (1, 1, width, out))
            inner = tuple(
                Convolution(
                    f"{name}.conv{place}", f"{name}.bn{place}", shape, stride if place == 2 else 1
                )
                for place, shape in enumerate(shapes, start=1)
            )
            shortcut = Convolution(
                f"{name}.downsample.0", f"{name}.downsample.1", (1, 1, channels, out), stride
            )
            bottlenecks.append(Block(inner, shortcut if number == 0 else None))
            channels = out
    return bottlenecks


def convolutions() -> list[Convolution]:
    """Return all convolutions in the network's order."""
    parts = [STEM]
    for block in blocks():
        parts += [*block.convolutions, *([block.shortcut] if block.shortcut else [])]
    return parts


def for_parity(parameters: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Return parameters for the comparison with float64, at which rounding does not turn the
    gradient.

    In a fresh network half of the ReLUs are closed. Rounding to bfloat16 opens and closes so
    many of them, block after block, that the gradient turns by more than 80 degrees. Here the
    inputs of a block's ReLUs have a mean about three standard deviations above 0. The stem's are
    not moved: the max-pooling after them ignores ReLUs that are nearly closed.

    Args:
        parameters: by the names of torch or Keras.
    """
    offsets = {}
    for block in blocks():
        *inner, last = block.convolutions
        offsets |= {part.norm: 3.0 for part in inner}
        offsets |= {
            part.norm: 1.5 for part in (last, block.shortcut) if part
        }  # their sum goes into the ReLU
    named = {norm + end: offset for norm, offset in offsets.items() for end in (".bias", "/beta")}
    return {
        name: numpy.full_like(array, named[name]) if name in named else array
        for name, array in parameters.items()
    }


def draw(num_classes: int, seed: int) -> Weights:
    """Return random weights with torchvision's distribution: kernels normal by He's rule (fan
    out), identity norms.

    Args:
        num_classes: outputs of the head.
        seed: the same seed gives the same weights in every framework.

    Returns:
        Arrays by layer name: the kernel of a convolution; scale, offset, moving mean and
        variance of a batch norm; kernel and bias of the head.
    """
    random, drawn = numpy.random.default_rng(seed), {}
    for convolution in convolutions():
        height, width, _, out = convolution.shape
        deviation = numpy.float32((2 / (height * width * out)) ** 0.5)
        drawn[convolution.name] = [
            random.standard_normal(convolution.shape, numpy.float32) * deviation
        ]
        drawn[convolution.norm] = [numpy.full(out, value, numpy.float32) for value in (1, 0, 0, 1)]
    limit = FEATURES**-0.5
    kernel, bias = (
        random.uniform(-limit, limit, shape) for shape in ((FEATURES, num_classes), num_classes)
    )
    drawn[HEAD] = [kernel.astype(numpy.float32), bias.astype(numpy.float32)]
    return drawn
