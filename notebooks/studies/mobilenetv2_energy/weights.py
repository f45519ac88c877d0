"""MobileNetV2's initial weights by Keras's layer names, for every framework: drawn at random, or
trained on ImageNet.

Arrays have Keras's shapes. With the same initial weights, frameworks can also be compared in
what they learn.
"""

import io
import re

import numpy

from benchbook.datasets import DatasetUnavailable, sources

# With random weights and Keras's 0.999, the moving statistics lag so far behind that test accuracy
# stays at chance.
MOMENTUM = {"imagenet": 0.999, "random": 0.9}
HEAD = "predictions"
FEATURES = 1280
# Expansion, channels, repeats, stride: table 2 of https://arxiv.org/abs/1801.04381
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
RELU6_MIDDLE = 3.0
ADDRESS = "https://storage.googleapis.com/tensorflow/keras-applications/mobilenet_v2/{}"
TRAINED_SIZES = (
    96,
    128,
    160,
    192,
    224,
)  # pixels a side; for all other sizes, keras.applications takes 224

Weights = dict[str, list[numpy.ndarray]]


def convolutions() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the name of each convolution's batch norm and the shape of its kernel, in the
    network's order.

    A kernel has shape (height, width, in, out), or (height, width, in, 1) if it is depthwise.
    """
    shapes = {"Conv1": ("bn_Conv1", (3, 3, 3, 32))}
    channels, number = 32, 0
    for expansion, out, repeats, _ in BLOCKS:
        for _ in range(repeats):
            prefix = f"block_{number}" if number else "expanded_conv"
            hidden = channels * expansion
            if expansion > 1:
                shapes[f"{prefix}_expand"] = (f"{prefix}_expand_BN", (1, 1, channels, hidden))
            shapes[f"{prefix}_depthwise"] = (f"{prefix}_depthwise_BN", (3, 3, hidden, 1))
            shapes[f"{prefix}_project"] = (f"{prefix}_project_BN", (1, 1, hidden, out))
            channels, number = out, number + 1
    shapes["Conv_1"] = ("Conv_1_bn", (1, 1, channels, FEATURES))
    return shapes


def for_parity(parameters: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Return parameters for the comparison with float64, at which rounding does not turn the
    gradient.

    At random weights a ReLU6 cuts off half of its inputs. Rounding to bfloat16 moves so many
    inputs across the edges, block after block, that the gradient turns by more than 60 degrees.
    Here the inputs of each ReLU6 have their mean in the middle of its linear part, three
    standard deviations from both edges. The comparison still notices a missing ReLU6, wherever
    it is.

    Args:
        parameters: by the names of torch or Keras, in the network's order, without folded batch
        norms.
    """
    norms = [
        name
        for name in parameters
        if name.endswith("/beta") or re.fullmatch(r"features\..*\.bias", name)
    ]
    before_relu = [
        norm
        for norm, name in zip(norms, convolutions(), strict=True)
        if not name.endswith("_project")
    ]
    return parameters | {
        name: numpy.full_like(parameters[name], RELU6_MIDDLE) for name in before_relu
    }


def draw(num_classes: int, seed: int) -> Weights:
    """Return random weights with Keras's distribution: kernels uniform by Glorot's rule, batch
    norms as the identity.

    Args:
        num_classes: outputs of the head.
        seed: the same seed gives the same weights in every framework.

    Returns:
        Arrays by layer name: the kernel of a convolution; scale, offset, moving mean and
        variance of a batch norm; kernel and bias of the head.
    """
    random, drawn = numpy.random.default_rng(seed), {}
    for name, (norm, shape) in convolutions().items():
        channels = shape[-1] if shape[-1] > 1 else shape[-2]
        drawn[name] = [_glorot(random, shape)]
        drawn[norm] = [numpy.full(channels, value, numpy.float32) for value in (1, 0, 0, 1)]
    drawn[HEAD] = [
        _glorot(random, (FEATURES, num_classes)),
        numpy.zeros(num_classes, numpy.float32),
    ]
    return drawn


def choose(
    kind: str,
    num_classes: int,
    image_size: int,
    seed: int,
    data_root: str = "",
    allow_random: bool = False,
) -> tuple[str, Weights]:
    """Return initial weights and their kind; the head's weights are always random.

    Args:
        kind: imagenet or random.
        num_classes, seed: see `draw`.
        image_size: pixels a side of the training images; there are ImageNet weights for several
        sizes.
        data_root: folder to look in first.
        allow_random: if ImageNet's weights are unavailable, print a message and return random ones.

    Raises:
        DatasetUnavailable: ImageNet's weights were neither found nor downloaded, and random ones
        are not allowed.
    """
    drawn = draw(num_classes, seed)
    if kind == "random":
        return kind, drawn
    try:
        return kind, drawn | load(image_size, data_root)
    except DatasetUnavailable as error:
        if not allow_random:
            raise
        print(f"ImageNet weights are unavailable ({error}); using random ones instead.")
        return "random", drawn


def load(image_size: int, data_root: str = "") -> Weights:
    """Return ImageNet's weights by layer name, from a data folder, the cache or a download.

    Raises:
        DatasetUnavailable: the download failed, or a file is not one of Keras's, or holds
        another network's arrays.
    """
    size = image_size if image_size in TRAINED_SIZES else TRAINED_SIZES[-1]
    files = {f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_{size}_no_top.h5": None}
    folders = (f"mobilenet_v2_{size}", "")
    return sources.Published(
        folders, files, ADDRESS, parse=lambda contents: read(contents[0])
    ).load(data_root)


def read(content: bytes) -> Weights:
    """Return the weights in a file that Keras wrote; Keras publishes no checksum, so every
    array's shape is checked.

    Raises:
        DatasetUnavailable: see `load`.
    """
    import h5py

    expected = {name: arrays for name, arrays in draw(1, 0).items() if name != HEAD}
    loaded = {}
    try:
        with h5py.File(io.BytesIO(content)) as file:
            for name, arrays in expected.items():
                stored = [file[name][array] for array in file[name].attrs["weight_names"]]
                loaded[name] = [numpy.asarray(array, numpy.float32) for array in stored]
                shapes = [array.shape for array in loaded[name]]
                if shapes != [array.shape for array in arrays]:
                    raise ValueError(f"{name} has {shapes}")
    except (OSError, KeyError, ValueError) as error:
        raise DatasetUnavailable(
            f"the file does not hold MobileNetV2's weights ({error})"
        ) from error
    return loaded


def _glorot(random: numpy.random.Generator, shape: tuple[int, ...]) -> numpy.ndarray:
    """Return random numbers with the distribution of Keras's GlorotUniform, with its fans for a
    depthwise kernel."""
    positions = int(numpy.prod(shape[:-2]))
    limit = (6 / (positions * (shape[-2] + shape[-1]))) ** 0.5
    return random.uniform(-limit, limit, shape).astype(numpy.float32)
