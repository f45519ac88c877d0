"""CIFAR-10, and folders of pictures."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy

from benchbook.studies.datasets import sources
from benchbook.studies.datasets.sources import Dataset

# MD5 of the six files, as torchvision.datasets.CIFAR10 names them: five of training images, then the test images.
CIFAR10_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_PACKED = "c58f30108f718f92721af3b95e74349a"  # MD5, from the same page
CIFAR10_FILES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
FORMATS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


def cifar10(data_root: str = "") -> Dataset:
    """Return CIFAR-10: 50,000 training and 10,000 test images of 32x32x3.

    A root may hold `cifar-10-batches-py/`, as its makers and torchvision unpack it.

    Raises:
        DatasetUnavailable: no root holds all six files intact, and the download failed.
    """
    return _cifar10_from(sources.files(_read_batches, _fetch, data_root, "cifar-10-batches-py"))


def image_folder(path: str) -> Dataset:
    """Return the images of a folder: `train/<class>/` and `test/<class>/` (or `val/`), .jpg or .png, all of one size.

    Classes are numbered in the order of their names. The data set is named after the folder and its files' format,
    because a JPEG copy of a data set is not that data set.

    Args:
        path: the folder, or a .zip that holds it.

    Raises:
        ValueError: no such folder, no classes or images in it, other classes in the two parts, or images that differ
            in size.
    """
    name, classes, train, test = list_folder(path)
    train_images, train_labels = _read_images(train, classes)
    test_images, test_labels = _read_images(test, classes)
    if train_images.shape[1:] != test_images.shape[1:]:
        raise ValueError(f"{name}: test images of {test_images.shape[1:]}; allowed: {train_images.shape[1:]}")
    return Dataset(name, train_images, train_labels, test_images, test_labels)


def list_folder(path: str) -> tuple[str, list[str], dict[str, list], dict[str, list]]:
    """Return the name of an image folder, its classes, and the files of each class for training and for the test.

    Args:
        path: the folder, or a .zip that holds it. Files are paths, or paths in an archive.

    Raises:
        ValueError: no such folder, no classes or images in it, or other classes in the two parts.
    """
    place = Path(path).expanduser()
    if not path or not (place.is_dir() or zipfile.is_zipfile(place)):
        raise ValueError(
            f"data_root {path!r}; allowed for image_folder: a folder with train/ and test/, or a .zip of it"
        )
    folder = place if place.is_dir() else _top_of_zip(place)
    train, test = _part(folder, "train"), _part(folder, "test", "val")
    classes = sorted(train)
    if sorted(test) != classes:
        raise ValueError(f"{place.name}: classes in test {sorted(test)}; allowed: those in train, {classes}")
    formats = {FORMATS[file.suffix.lower()] for files in train.values() for file in files}
    return "-".join([place.stem, *sorted(formats)]), classes, train, test


def _fetch(folder: Path) -> None:
    sources.fetch(CIFAR10_ADDRESS, folder, CIFAR10_PACKED, unpack=True)


def _read_batches(root: Path) -> dict[str, bytes] | None:
    folder = root / "cifar-10-batches-py"
    contents = {name: (folder / name).read_bytes() if (folder / name).is_file() else None for name in CIFAR10_FILES}
    return sources.intact(contents, CIFAR10_FILES, folder, "CIFAR-10")


def _cifar10_from(files: dict[str, bytes]) -> Dataset:
    """Unpickle the batches, whose checksums were right; pixels lie channel by channel."""
    batches = [pickle.loads(files[name], encoding="bytes") for name in CIFAR10_FILES]
    images = [batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for batch in batches]
    labels = [numpy.array(batch[b"labels"], numpy.int64) for batch in batches]
    train = numpy.concatenate(images[:-1]), numpy.concatenate(labels[:-1])
    return Dataset("cifar10", *train, numpy.ascontiguousarray(images[-1]), labels[-1])


def _top_of_zip(path: Path) -> zipfile.Path:
    """Return the folder inside an archive that holds train/: its top, or the only folder there."""
    top = zipfile.Path(path)
    inner = [child for child in top.iterdir() if child.is_dir() and not child.name.startswith(("__", "."))]
    return inner[0] if len(inner) == 1 and not (top / "train/").exists() else top


def _part(folder, *names: str) -> dict[str, list]:
    """Return class name to image files, of the first of these folders that is there."""
    there = next((folder / name for name in names if (folder / name).is_dir()), None)
    if there is None:
        raise ValueError(f"{folder.name} has no folder {' or '.join(names)}; allowed: train/ and test/, classes inside")
    classes = {child.name: _images(child) for child in there.iterdir() if child.is_dir()}
    classes = {name: files for name, files in classes.items() if files}
    if not classes:
        raise ValueError(f"{folder.name}/{there.name} has no images; allowed: a folder a class, {', '.join(FORMATS)}")
    return classes


def _images(folder) -> list:
    files = [file for file in folder.iterdir() if Path(file.name).suffix.lower() in FORMATS]
    return sorted(files, key=lambda file: file.name)


def _read_images(part: dict[str, list], classes: list[str]) -> tuple[numpy.ndarray, numpy.ndarray]:
    from PIL import Image

    images, labels = [], []
    for label, name in enumerate(classes):
        for file in part[name]:
            pixels = numpy.asarray(Image.open(io.BytesIO(file.read_bytes())).convert("RGB"))
            if images and pixels.shape != images[0].shape:
                raise ValueError(
                    f"{name}/{file.name} is {pixels.shape}; allowed: {images[0].shape}, as the first image"
                )
            images.append(pixels)
            labels.append(label)
    return numpy.stack(images), numpy.array(labels, numpy.int64)
