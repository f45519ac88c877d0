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
    """Return the pictures of an image folder; see `list_folder`. Without a name it has its own.

    Those of an archive are read now, because processes cannot share an open one.
    """
    own_name, num_classes, *parts = list_folder(path)
    stored = [[file.read_bytes() if isinstance(file, zipfile.Path) else file for file in part] for part, _ in parts]
    pictures = [Pictures(part, labels) for part, (_, labels) in zip(stored, parts, strict=True)]
    return Collection(name or own_name, *pictures, num_classes)


def image_folder(path: str) -> Dataset:
    """Return the images of a folder, all of one size; see `list_folder`.

    The data set is named after the folder and its files' format, because a JPEG copy of a data set is not that data
    set.

    Raises:
        ValueError: see `list_folder`, or images that differ in size.
    """
    name, _, *parts = list_folder(path)
    arrays, shape = [], None
    for files, labels in parts:
        images = [numpy.asarray(Image.open(io.BytesIO(file.read_bytes())).convert("RGB")) for file in files]
        shape = shape or images[0].shape
        for file, pixels in zip(files, images, strict=True):
            if pixels.shape != shape:
                is_other = f"{file.parent.name}/{file.name} is {pixels.shape}"
                raise ValueError(f"{is_other}; allowed: {shape}, as the first image")
        arrays += [numpy.stack(images), labels]
    return Dataset(name, *arrays)


def list_folder(path: str) -> tuple[str, int, tuple[list, numpy.ndarray], tuple[list, numpy.ndarray]]:
    """Return what an image folder holds: `train/<class>/` and `test/<class>/` (or `val/`), .jpg or .png.

    Args:
        path: the folder, or a .zip of it or of what is in it. Files are paths, or paths in an archive.

    Returns:
        Its name with its files' formats, the number of its classes, and the files and their labels, int64, for training
        and for the test. Classes are numbered in the order of their names.

    Raises:
        ValueError: no such folder, no classes or images in it, or other classes in the two parts.
    """
    place = Path(path).expanduser()
    if not path or not (place.is_dir() or zipfile.is_zipfile(place)):
        raise ValueError(
            f"data_root {path!r}; allowed for image_folder: a folder with train/ and test/, or a .zip of it"
        )
    folder = place if place.is_dir() else zipfile.Path(place)
    if folder is not place and not (folder / "train/").exists():
        inner = [child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(("__", "."))]
        folder = inner[0] if len(inner) == 1 else folder
    train, test = _part(folder, "train"), _part(folder, "test", "val")
    classes = sorted(train)
    if sorted(test) != classes:
        raise ValueError(f"{place.name}: classes in test {sorted(test)}; allowed: those in train, {classes}")
    formats = {FORMATS[file.suffix.lower()] for files in train.values() for file in files}
    parts = []
    for part in (train, test):
        labels = numpy.repeat(numpy.arange(len(classes)), [len(part[name]) for name in classes])
        parts.append(([file for name in classes for file in part[name]], labels))
    return "-".join([place.stem, *sorted(formats)]), len(classes), *parts


def _part(folder: Path | zipfile.Path, *names: str) -> dict[str, list]:
    """Return class name to image files, in the order of their names, of the first of these folders that is there."""
    there = next((folder / name for name in names if (folder / name).is_dir()), None)
    if there is None:
        raise ValueError(f"{folder.name} has no folder {' or '.join(names)}; allowed: train/ and test/, classes inside")
    classes = {}
    for child in there.iterdir():
        if not child.is_dir():
            continue
        files = [file for file in child.iterdir() if file.suffix.lower() in FORMATS]
        if files:
            classes[child.name] = sorted(files, key=lambda file: file.name)
    if not classes:
        raise ValueError(f"{folder.name}/{there.name} has no images; allowed: a folder a class, {', '.join(FORMATS)}")
    return classes
