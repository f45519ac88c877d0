"""Folders of pictures: read into arrays, or decoded when used, because ImageNet is too large and its sizes differ."""

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
        stored: each picture's path, file content, or pixels (uint8, shape (height, width, 3)).
        labels: int64, shape (n,).
    """

    stored: Sequence[Path | bytes | numpy.ndarray]
    labels: numpy.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, index: int):
        """Return a picture as a PIL image in RGB."""
        stored = self.stored[index]
        if isinstance(stored, numpy.ndarray):
            return Image.fromarray(stored).convert("RGB")
        with Image.open(io.BytesIO(stored) if isinstance(stored, bytes) else stored) as picture:
            return picture.convert("RGB")


@dataclass(frozen=True)
class Collection:
    """Pictures, split as their makers split them; `name` is the data set's name in rows."""

    name: str
    train: Pictures
    test: Pictures
    num_classes: int

    @property
    def num_samples(self) -> int:
        """Return the number of training pictures."""
        return len(self.train)


def collection(path: str, name: str = "") -> Collection:
    """Return the pictures of an image folder, by default under its own name; see `list_folder`.

    The files of an archive are read now, because processes cannot share an open archive.
    """
    own_name, num_classes, *parts = list_folder(path)
    pictures = [
        Pictures([file.read_bytes() if isinstance(file, zipfile.Path) else file for file in files], labels)
        for files, labels in parts
    ]
    return Collection(name or own_name, *pictures, num_classes)


def image_folder(path: str) -> Dataset:
    """Return the images of a folder, all of one size; see `list_folder`.

    The name has the files' format, because a JPEG copy of a data set is another data set.

    Raises:
        ValueError: see `list_folder`; or images differ in size.
    """
    name, _, *parts = list_folder(path)
    arrays, shape = [], None
    for files, labels in parts:
        images = [numpy.asarray(Image.open(io.BytesIO(file.read_bytes())).convert("RGB")) for file in files]
        shape = shape or images[0].shape
        for file, pixels in zip(files, images, strict=True):
            if pixels.shape != shape:
                wrong = f"{file.parent.name}/{file.name} has shape {pixels.shape}"
                raise ValueError(f"{wrong}; allowed: {shape}, the first image's")
        arrays += [numpy.stack(images), labels]
    return Dataset(name, *arrays)


def list_folder(path: str) -> tuple[str, int, tuple[list, numpy.ndarray], tuple[list, numpy.ndarray]]:
    """Return the files of an image folder: .jpg or .png in `train/<class>/` and `test/<class>/` (or `val/`).

    Args:
        path: the folder, or a .zip of it or of its content.

    Returns:
        The folder's name with its files' formats, the number of classes, and twice, for training and test, the files
        (paths, or paths in an archive) with their labels (int64). Classes are numbered in the order of their names.

    Raises:
        ValueError: no such folder, no classes or images in it, or the two parts differ in classes.
    """
    place = Path(path).expanduser()
    if not path or not (place.is_dir() or zipfile.is_zipfile(place)):
        raise ValueError(f"data_root {path!r}; allowed for image_folder: a folder with train/ and test/, or its .zip")
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
    """Return the sorted image files of each class, from the first of these folders that exists."""
    part = next((folder / name for name in names if (folder / name).is_dir()), None)
    if part is None:
        raise ValueError(f"{folder.name} has no folder {' or '.join(names)}; allowed: train/ and test/ with classes")
    classes = {}
    for child in part.iterdir():
        if not child.is_dir():
            continue
        files = [file for file in child.iterdir() if file.suffix.lower() in FORMATS]
        if files:
            classes[child.name] = sorted(files, key=lambda file: file.name)
    if not classes:
        raise ValueError(f"{folder.name}/{part.name} has no images; allowed: a folder per class, {', '.join(FORMATS)}")
    return classes
