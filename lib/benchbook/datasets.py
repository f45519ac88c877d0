"""The same NumPy arrays for every framework.

A data set is looked for in `data_root`, then BENCHBOOK_DATA, then the user's cache, and downloaded into
the cache if it is in none of them. Every file is checked against its MD5 before it is used.
"""

import gzip
import hashlib
import http.client
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy

# MD5 of the four unpacked files, in the order train images, train labels, test images, test labels.
MNIST_FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


class DatasetUnavailable(RuntimeError):
    """The data set is neither on this machine nor to be had from its source."""


@dataclass(frozen=True)
class Dataset:
    """Images and labels, split as their makers split them.

    Attributes:
        name: what rows call it; an embedded stand-in has a name of its own.
        train_images, test_images: uint8, shape (n, height, width) or (n, height, width, 3).
        train_labels, test_labels: int64, shape (n,).
    """

    name: str
    train_images: numpy.ndarray
    train_labels: numpy.ndarray
    test_images: numpy.ndarray
    test_labels: numpy.ndarray


def load(name: str, data_root: str = "", allow_embedded: bool = False) -> Dataset:
    """Return a data set by name.

    Args:
        name: mnist, or digits (embedded: it needs no file).
        data_root: folder to look in first.
        allow_embedded: return the embedded stand-in, under its own name, where the data set cannot be had.

    Raises:
        ValueError: unknown name, or a data_root that is not a folder.
        DatasetUnavailable: not found, not downloadable, and no stand-in allowed.
    """
    if name not in ("mnist", "digits"):
        raise ValueError(f"unknown data set {name!r}; allowed: mnist, digits")
    for source, folder in {"data_root": data_root, "BENCHBOOK_DATA": os.environ.get("BENCHBOOK_DATA")}.items():
        if folder and not Path(folder).expanduser().is_dir():
            raise ValueError(f"{source} {folder!r} is not a folder")
    if name == "digits":
        return digits()
    try:
        return mnist(data_root)
    except DatasetUnavailable as error:
        if not allow_embedded:
            raise
        print(f"MNIST could not be had ({error}); using scikit-learn's digits instead.")
        return digits()


def mnist(data_root: str = "") -> Dataset:
    """Return MNIST: 60,000 training and 10,000 test images of 28x28.

    A root may hold `MNIST/raw/` as torchvision lays it out, or the four files themselves in `mnist/` or at
    its top; each unpacked or as .gz.

    Raises:
        DatasetUnavailable: no root holds all four files intact, and the download failed.
    """
    for root in _roots(data_root):
        files = _read_mnist(root)
        if files is not None:
            return _mnist_from(files)
    _download_mnist(_cache())
    return _mnist_from(_read_mnist(_cache()))


def digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten 8x8 digits, scaled to 28x28 like MNIST's.

    Every sixth image is a test image (300); the other 1,497 train. Source: UCI Optical Recognition of
    Handwritten Digits, as shipped in scikit-learn.
    """
    from PIL import Image
    from sklearn.datasets import load_digits

    bunch = load_digits()
    small = numpy.round(bunch.images * (255 / 16)).astype(numpy.uint8)
    resample = Image.Resampling.BILINEAR
    images = numpy.stack([numpy.asarray(Image.fromarray(image).resize((28, 28), resample)) for image in small])
    labels = bunch.target.astype(numpy.int64)
    test = numpy.arange(len(labels)) % 6 == 0
    return Dataset("digits-28px", images[~test], labels[~test], images[test], labels[test])


def _roots(data_root: str) -> list[Path]:
    named = [data_root, os.environ.get("BENCHBOOK_DATA", "")]
    return [*(Path(root).expanduser() for root in named if root), _cache()]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchbook"


def _read_mnist(root: Path) -> dict[str, bytes] | None:
    for folder in (root / "MNIST" / "raw", root / "mnist", root):
        contents = {name: _read_maybe_packed(folder / name) for name in MNIST_FILES}
        if all(content is not None for content in contents.values()):
            wrong = [n for n, content in contents.items() if hashlib.md5(content).hexdigest() != MNIST_FILES[n]]
            if not wrong:
                return contents
            print(f"{folder} is passed over: {', '.join(wrong)} differ from MNIST's checksums.")
    return None


def _read_maybe_packed(path: Path) -> bytes | None:
    packed = path.with_name(path.name + ".gz")
    try:
        if path.is_file():
            return path.read_bytes()
        return gzip.decompress(packed.read_bytes()) if packed.is_file() else None
    except (OSError, EOFError, gzip.zlib.error):  # unreadable or cut short: as good as absent
        return None


def _mnist_from(files: dict[str, bytes]) -> Dataset:
    """Parse the IDX files; 16 bytes of header before images, 8 before labels."""
    train_images, train_labels, test_images, test_labels = (files[name] for name in MNIST_FILES)

    def images(content: bytes) -> numpy.ndarray:
        return numpy.frombuffer(content, numpy.uint8, offset=16).reshape(-1, 28, 28)

    def labels(content: bytes) -> numpy.ndarray:
        return numpy.frombuffer(content, numpy.uint8, offset=8).astype(numpy.int64)

    return Dataset("mnist", images(train_images), labels(train_labels), images(test_images), labels(test_labels))


def _download_mnist(cache: Path) -> None:
    """Download through torchvision into a temporary folder; move it into place only when it is whole."""
    try:
        from torchvision.datasets import MNIST

        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as temporary:
            MNIST(temporary, download=True)
            if _read_mnist(Path(temporary)) is None:
                raise RuntimeError("the files do not have MNIST's checksums")
            shutil.rmtree(cache / "MNIST", ignore_errors=True)
            (Path(temporary) / "MNIST").rename(cache / "MNIST")
    except (ImportError, RuntimeError, OSError, EOFError, http.client.HTTPException) as error:
        raise DatasetUnavailable(f"download failed: {error}") from error
