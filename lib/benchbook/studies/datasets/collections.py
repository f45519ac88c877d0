"""Pictures that are decoded when they are needed: ImageNet does not fit into memory, and sizes differ."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

from benchbook.studies import datasets
from benchbook.studies.datasets import pictures, sources

NAMES = ("imagenet", *datasets.NAMES)


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
        from PIL import Image

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


def collect(name: str, data_root: str = "", allow_embedded: bool = False) -> Collection:
    """Return a collection by name.

    Args:
        name: imagenet (a folder of that name with train/ and val/, looked for in data_root, BENCHBOOK_DATA and the
            cache; it is never downloaded), image_folder (data_root is the folder, or a .zip of it), or another name
            that `datasets.load` knows.
        data_root, allow_embedded: see `datasets.load`.

    Raises:
        ValueError: unknown name, or no such folder.
        DatasetUnavailable: not found, and no stand-in allowed.
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}; allowed: {', '.join(NAMES)}")
    if name == "imagenet":
        there = [root / name for root in sources.roots(data_root) if (root / name / "train").is_dir()]
        if not there:
            raise sources.DatasetUnavailable("no folder imagenet/ with train/ and val/ in data_root or BENCHBOOK_DATA")
        return _listed(str(there[0]), name)
    if name == "image_folder":
        return _listed(data_root)
    data = datasets.load(name, data_root, allow_embedded)
    train, test = Pictures(data.train_images, data.train_labels), Pictures(data.test_images, data.test_labels)
    return Collection(data.name, train, test, int(data.train_labels.max()) + 1)


def _listed(path: str, name: str = "") -> Collection:
    own_name, classes, train, test = pictures.list_folder(path)
    return Collection(name or own_name, _pictures(train, classes), _pictures(test, classes), len(classes))


def _pictures(part: dict[str, list], classes: list[str]) -> Pictures:
    """Return the files of a part; those of an archive are read now, because processes cannot share an open one."""
    files = [file for name in classes for file in part[name]]
    labels = numpy.repeat(numpy.arange(len(classes)), [len(part[name]) for name in classes])
    return Pictures([file.read_bytes() if isinstance(file, zipfile.Path) else file for file in files], labels)
