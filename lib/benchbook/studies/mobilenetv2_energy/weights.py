"""MobileNetV2's weights by the names that Keras gives its layers, for every framework: drawn, or trained on ImageNet.

Arrays have Keras's shapes. Frameworks that begin with the same weights can be compared in what they learn, too.
"""

import os
import re
from pathlib import Path

import numpy

from benchbook.studies.datasets import DatasetUnavailable, sources

KINDS = ("imagenet", "random")
# Random weights with Keras's 0.999 leave the moving statistics so far behind that test accuracy stays at chance.
MOMENTUM = {"imagenet": 0.999, "random": 0.9}
HEAD = "predictions"
FEATURES = 1280
# Expansion, channels, repeats, stride: table 2 of https://arxiv.org/abs/1801.04381
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
MIDDLE = 3.0  # of what a ReLU6 lets through
ADDRESS = "https://storage.googleapis.com/tensorflow/keras-applications/mobilenet_v2/"
TRAINED_SIZES = (96, 128, 160, 192, 224)  # of images; keras.applications takes 224 for all others

Weights = dict[str, list[numpy.ndarray]]


def convolutions() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return each convolution's name with its batch norm's name and its kernel's shape, in the network's order.

    A kernel is (height, width, in, out), a depthwise one (height, width, in, 1).
    """
    shapes = {"Conv1": ("bn_Conv1", (3, 3, 3, 32))}
    channels, number = 32, 0
    for expansion, out, repeats, _ in BLOCKS:
        for _ in range(repeats):
            prefix, hidden = (f"block_{number}" if number else "expanded_conv"), channels * expansion
            if expansion > 1:
                shapes[f"{prefix}_expand"] = (f"{prefix}_expand_BN", (1, 1, channels, hidden))
            shapes[f"{prefix}_depthwise"] = (f"{prefix}_depthwise_BN", (3, 3, hidden, 1))
            shapes[f"{prefix}_project"] = (f"{prefix}_project_BN", (1, 1, hidden, out))
            channels, number = out, number + 1
    shapes["Conv_1"] = ("Conv_1_bn", (1, 1, channels, FEATURES))
    return shapes


def for_parity(parameters: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Return parameters at which rounding turns no gradient, to be compared with float64.

    From random weights half of what goes into a ReLU6 is cut off. Rounding to bfloat16 moves so much across the edges,
    block behind block, that the gradient turns by more than 60 degrees. So it lies about the middle of what a ReLU6
    lets through here, three deviations from both edges; one that is left out is still seen in every place.

    Args:
        parameters: by name, in the network's order, as torch's or Keras's has them; its batch norms are not folded.
    """
    norms = [name for name in parameters if name.endswith("/beta") or re.fullmatch(r"features\..*\.bias", name)]
    cut = [norm for norm, before in zip(norms, convolutions(), strict=True) if not before.endswith("_project")]
    return parameters | {name: numpy.full_like(parameters[name], MIDDLE) for name in cut}


def draw(num_classes: int, seed: int) -> Weights:
    """Return new weights as Keras draws them: uniform by Glorot's rule, batch norms that change nothing yet.

    Args:
        num_classes: outputs of the head.
        seed: the same seed gives the same weights for every framework.

    Returns:
        Layer name to its arrays: a kernel; scale, offset, moving mean and variance of a batch norm; kernel and bias
        of the head.
    """
    random, drawn = numpy.random.default_rng(seed), {}
    for name, (norm, shape) in convolutions().items():
        channels = shape[-1] if shape[-1] > 1 else shape[-2]
        drawn[name] = [_glorot(random, shape)]
        drawn[norm] = [numpy.full(channels, value, numpy.float32) for value in (1, 0, 0, 1)]
    drawn[HEAD] = [_glorot(random, (FEATURES, num_classes)), numpy.zeros(num_classes, numpy.float32)]
    return drawn


def choose(
    kind: str, num_classes: int, image_size: int, seed: int, data_root: str = "", allow_random: bool = False
) -> tuple[str, Weights]:
    """Return which weights there are, and those; the head's are always drawn.

    Args:
        kind: imagenet or random.
        num_classes, seed: see `draw`.
        image_size: of the images to come; there are ImageNet weights for several.
        data_root: folder to look in first.
        allow_random: take random weights, and say so, where the trained ones cannot be had.

    Raises:
        ValueError: another kind.
        DatasetUnavailable: not found, not to be downloaded, and no random ones allowed.
    """
    if kind not in KINDS:
        raise ValueError(f"weights {kind!r}; allowed: {', '.join(KINDS)}")
    drawn = draw(num_classes, seed)
    if kind == "random":
        return kind, drawn
    try:
        return kind, drawn | read(find(image_size, data_root))
    except DatasetUnavailable as error:
        if not allow_random:
            raise
        print(f"ImageNet weights could not be had ({error}); using random ones instead.")
        return "random", drawn


def find(image_size: int, data_root: str = "") -> Path:
    """Return the file of ImageNet weights; it is downloaded where neither the data's folders nor Keras's have it.

    Raises:
        DatasetUnavailable: it cannot be had.
    """
    size = image_size if image_size in TRAINED_SIZES else TRAINED_SIZES[-1]
    name = f"mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_{size}_no_top.h5"
    keras_home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "models"
    folders = [*sources.roots(data_root), keras_home, sources.cache() / "mobilenet_v2"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name

    with sources.download("mobilenet_v2") as folder:
        sources.fetch(ADDRESS + name, folder / "mobilenet_v2")
        read(folder / "mobilenet_v2" / name)  # Keras publishes no checksum: every array has to be there in its shape
    return sources.cache() / "mobilenet_v2" / name


def read(path: Path) -> Weights:
    """Return the weights of a file that Keras wrote, by layer.

    Raises:
        DatasetUnavailable: not such a file, or arrays that are not this network's.
    """
    import h5py

    expected = {name: arrays for name, arrays in draw(1, 0).items() if name != HEAD}
    loaded = {}
    try:
        with h5py.File(path) as file:
            for name, arrays in expected.items():
                stored = [file[name][array] for array in file[name].attrs["weight_names"]]
                loaded[name] = [numpy.asarray(array, numpy.float32) for array in stored]
                shapes = [array.shape for array in loaded[name]]
                if shapes != [array.shape for array in arrays]:
                    raise ValueError(f"{name} has {shapes}")
    except (OSError, KeyError, ValueError) as error:
        raise DatasetUnavailable(f"{path.name} does not hold MobileNetV2's weights ({error})") from error
    return loaded


def _glorot(random: numpy.random.Generator, shape: tuple[int, ...]) -> numpy.ndarray:
    """Return numbers as Keras's GlorotUniform draws them, a depthwise kernel's fans included."""
    positions = int(numpy.prod(shape[:-2]))
    limit = (6 / (positions * (shape[-2] + shape[-1]))) ** 0.5
    return random.uniform(-limit, limit, shape).astype(numpy.float32)
