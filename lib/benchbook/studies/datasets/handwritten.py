"""MNIST, and scikit-learn's digits, which stand in for it."""

import gzip
import importlib.util
from pathlib import Path

import numpy

from benchbook.studies.datasets import sources
from benchbook.studies.datasets.sources import Dataset

# MD5 of the four unpacked files, in the order train images, train labels, test images, test labels.
MNIST_FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
# Where torchvision downloads them from (torchvision/datasets/mnist.py), packed, and the MD5 of each packed file.
MNIST_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST_PACKED = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}


def mnist(data_root: str = "") -> Dataset:
    """Return MNIST: 60,000 training and 10,000 test images of 28x28.

    A root may hold `MNIST/raw/` as torchvision lays it out, or the four files themselves in `mnist/` or at
    its top; each unpacked or as .gz.

    Raises:
        DatasetUnavailable: no root holds all four files intact, and the download failed.
    """
    return _dataset(sources.files(_read, _fetch, data_root, "MNIST"))


def digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten 8x8 digits, scaled to 28x28 like MNIST's.

    Every sixth image is a test image (300); the other 1,497 train. Source: UCI Optical Recognition of
    Handwritten Digits, as shipped in scikit-learn.
    """
    from PIL import Image

    # To import scikit-learn takes most of a second; of this file, `load_digits` does the same.
    folder = Path(importlib.util.find_spec("sklearn").origin).parent
    table = numpy.loadtxt(folder / "datasets" / "data" / "digits.csv.gz", delimiter=",")  # 64 pixels and a label
    small = numpy.round(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(numpy.uint8)
    resample = Image.Resampling.BILINEAR
    images = numpy.stack([numpy.asarray(Image.fromarray(image).resize((28, 28), resample)) for image in small])
    labels = table[:, -1].astype(numpy.int64)
    test = numpy.arange(len(labels)) % 6 == 0
    return Dataset("digits-28px", images[~test], labels[~test], images[test], labels[test])


def _fetch(folder: Path) -> None:
    for name, checksum in MNIST_PACKED.items():
        sources.fetch(f"{MNIST_ADDRESS}{name}.gz", folder / "MNIST" / "raw", checksum)


def _read(root: Path) -> dict[str, bytes] | None:
    for folder in (root / "MNIST" / "raw", root / "mnist", root):
        contents = {name: _read_maybe_packed(folder / name) for name in MNIST_FILES}
        files = sources.intact(contents, MNIST_FILES, folder, "MNIST")
        if files is not None:
            return files
    return None


def _read_maybe_packed(path: Path) -> bytes | None:
    packed = path.with_name(path.name + ".gz")
    try:
        if path.is_file():
            return path.read_bytes()
        return gzip.decompress(packed.read_bytes()) if packed.is_file() else None
    except (OSError, EOFError, gzip.zlib.error):  # unreadable or cut short: as good as absent
        return None


def _dataset(files: dict[str, bytes]) -> Dataset:
    """Parse the IDX files; 16 bytes of header before images, 8 before labels."""
    train_images, train_labels, test_images, test_labels = (files[name] for name in MNIST_FILES)

    def images(content: bytes) -> numpy.ndarray:
        return numpy.frombuffer(content, numpy.uint8, offset=16).reshape(-1, 28, 28)

    def labels(content: bytes) -> numpy.ndarray:
        return numpy.frombuffer(content, numpy.uint8, offset=8).astype(numpy.int64)

    return Dataset("mnist", images(train_images), labels(train_labels), images(test_images), labels(test_labels))
