"""Folders of pictures: read into arrays, or decoded when used, because ImageNet is too large and
its sizes differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
from PIL import Image

from benchbook.datasets.sources import Dataset

MEAN, STANDARD_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours
FORMATS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


@dataclass(frozen=True)
class Pictures:
    """Pictures with their labels.

    Attributes:
        stored: each picture's path, or pixels (uint8, shape (height, width, 3)).
        labels: int64, shape (n,).
    """

    stored: Sequence[Path | numpy.ndarray]
    labels: numpy.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, index: int):
        """Return a picture as a PIL image in RGB."""
        stored = self.stored[index]
        if isinstance(stored, numpy.ndarray):
            return Image.fromarray(stored).convert("RGB")
        with Image.open(stored) as picture:
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
    """Return the pictures of an image folder: .jpg or .png in `train/<class>/` and
    `test/<class>/` (or `val/`).

    Classes are numbered in the order of their names.

    Args:
        path: the folder.
        name: in rows; by default the folder's name with its files' formats, because a JPEG copy
        of a data set is
            another data set.

    Raises:
        ValueError: no such folder, no classes or images in it, or the two parts differ in classes.
    """
    folder = Path(path).expanduser()
    if not path or not folder.is_dir():
        raise ValueError(
            f"data_root {path!r}; allowed for image_folder: a folder with train/ and test/"
        )
    train, test = _classes(folder, "train"), _classes(folder, "test", "val")
    if list(test) != list(train):
        raise ValueError(
            f"{folder.name}: classes in test {list(test)}; allowed: those in train, {list(train)}"
        )
    formats = {FORMATS[file.suffix.lower()] for files in train.values() for file in files}
    parts = []
    for part in (train, test):
        labels = numpy.repeat(numpy.arange(len(part)), [len(files) for files in part.values()])
        parts.append(Pictures([file for files in part.values() for file in files], labels))
    return Collection(
        name or "-".join([folder.stem, *sorted(formats)]), *parts, num_classes=len(train)
    )


def image_folder(path: str) -> Dataset:
    """Return the images of a folder, all of one size; see `collection`.

    Raises:
        ValueError: see `collection`; or images differ in size.
    """
    found = collection(path)
    parts = found.train, found.test
    train, test = ([*map(numpy.asarray, map(part.open, range(len(part))))] for part in parts)
    if len(shapes := {pixels.shape for pixels in train + test}) > 1:
        raise ValueError(
            f"images of {found.name} have the shapes {sorted(shapes)}; allowed: one shape"
        )
    return Dataset(
        found.name, numpy.stack(train), found.train.labels, numpy.stack(test), found.test.labels
    )


def _classes(folder: Path, *names: str) -> dict[str, list[Path]]:
    """Return the sorted image files of each class, from the first of these folders that exists."""
    part = next((folder / name for name in names if (folder / name).is_dir()), None)
    if part is None:
        raise ValueError(
            f"{folder.name} has no folder {' or '.join(names)}; allowed: train/ and test/ with classes"
        )
    classes: dict[str, list[Path]] = {}
    for file in sorted(part.glob("*/*")):
        if file.suffix.lower() in FORMATS:
            classes.setdefault(file.parent.name, []).append(file)
    if not classes:
        raise ValueError(
            f"{folder.name}/{part.name} has no images; allowed: a folder per class, {', '.join(FORMATS)}"
        )
    return classes
