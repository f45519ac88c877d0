"""Folders of pictures: read into arrays, or decoded when needed, since ImageNet fits no memory and its sizes differ."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
from PIL import Image

from benchbook.studies.datasets.sources import Dataset

MEAN, STANDARD_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours
FORMATS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


@dataclass(frozen=True)
class Pictures:
    """Pictures with their labels.

    Attributes:
        stored: for each a path, the bytes of a file, or its pixels (uint8, shape (height, width, 3)).
        labels: int64, shape (n,).
    """

    stored: Sequence[Path | bytes | numpy.ndarray]
    labels: numpy.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, index: int):
        """Return a picture as PIL has it, in colours."""
        stored = self.stored[index]
        if isinstance(stored, numpy.ndarray):
            return Image.fromarray(stored).convert("RGB")
        with Image.open(io.BytesIO(stored) if isinstance(stored, bytes) else stored) as picture:
            return picture.convert("RGB")


@dataclass(frozen=True)
class Collection:
    """Pictures, split as their makers split them; `name` is what rows call them."""

    name: str
    train: Pictures
    test: Pictures
    num_classes: int

    @property
    def num_samples(self) -> int:
        """Return the training pictures."""
        return len(self.train)


def listed(path: str, name: str = "") -> Collection:
    """Return the pictures of an image folder; see `list_folder`. Without a name it has its own."""
    own_name, classes, train, test = list_folder(path)
    return Collection(name or own_name, _pictures(train, classes), _pictures(test, classes), len(classes))


def _pictures(part: dict[str, list], classes: list[str]) -> Pictures:
    """Return the files of a part; those of an archive are read now, because processes cannot share an open one."""
    files = [file for name in classes for file in part[name]]
    labels = numpy.repeat(numpy.arange(len(classes)), [len(part[name]) for name in classes])
    return Pictures([file.read_bytes() if isinstance(file, zipfile.Path) else file for file in files], labels)


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
