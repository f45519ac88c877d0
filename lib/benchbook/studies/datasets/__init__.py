"""The same NumPy arrays for every framework.

A data set is looked for in `data_root`, then BENCHBOOK_DATA, then the user's cache, and downloaded into
the cache if it is in none of them. Every file of a published data set is checked against its MD5 before it is used.
"""

import os
from pathlib import Path

from benchbook.studies.datasets import pictures
from benchbook.studies.datasets.embedded import digits, excerpt, shapes
from benchbook.studies.datasets.embedded import triangles as triangles
from benchbook.studies.datasets.pictures import Collection, Pictures
from benchbook.studies.datasets.sources import PUBLISHED, Dataset, DatasetUnavailable, Text, roots

SYNTHETIC = "synthetic"  # random batches in place of data, which the study makes on the device
# What stands in, in `quick`, where a data set cannot be had.
EMBEDDED = {"mnist": "digits", "cifar10": "shapes", "tinyshakespeare": "excerpt"}
_MAKERS = {"digits": digits, "shapes": shapes, "excerpt": excerpt}
TEXTS = ("tinyshakespeare", "excerpt")
NAMES = tuple(name for name in (*PUBLISHED, "image_folder", *_MAKERS) if name not in TEXTS)


def load(name: str, data_root: str = "", allow_embedded: bool = False) -> Dataset:
    """Return a data set by name.

    Args:
        name: mnist, cifar10, image_folder (data_root names it), or one that needs no file: digits, shapes.
        data_root: folder to look in first; of an image folder the folder itself, or a .zip of it.
        allow_embedded: return the embedded stand-in, under its own name, where the data set cannot be had.

    Raises:
        ValueError: unknown name, a data_root that is not a folder, or an image folder without classes and images.
        DatasetUnavailable: not found, not downloadable, and no stand-in allowed.
    """
    if name == "image_folder":
        return pictures.image_folder(data_root)
    return _have(name, NAMES, data_root, allow_embedded)


def load_text(name: str, data_root: str = "", allow_embedded: bool = False) -> Text | None:
    """Return a text by name: tinyshakespeare, or excerpt, its beginning, which needs no file; None for SYNTHETIC.

    Raises:
        ValueError, DatasetUnavailable: see `load`.
    """
    return None if name == SYNTHETIC else _have(name, (SYNTHETIC, *TEXTS), data_root, allow_embedded)


def _have(name: str, allowed: tuple[str, ...], data_root: str, allow_embedded: bool) -> Dataset | Text:
    if name not in allowed:
        raise ValueError(f"unknown data set {name!r}; allowed: {', '.join(allowed)}")
    for source, folder in {"data_root": data_root, "BENCHBOOK_DATA": os.environ.get("BENCHBOOK_DATA")}.items():
        if folder and not Path(folder).expanduser().is_dir():
            raise ValueError(f"{source} {folder!r} is not a folder")
    if name in _MAKERS:
        return _MAKERS[name]()
    try:
        return PUBLISHED[name].load(data_root)
    except DatasetUnavailable as error:
        if not allow_embedded:
            raise
        print(f"{name} could not be had ({error}); using {EMBEDDED[name]} instead.")
        return _MAKERS[EMBEDDED[name]]()


def collect(name: str, data_root: str = "", allow_embedded: bool = False) -> Collection | None:
    """Return a data set as pictures that are decoded when they are needed; None for SYNTHETIC.

    Args:
        name: imagenet (a folder of that name with train/ and val/, looked for in data_root, BENCHBOOK_DATA and the
            cache; it is never downloaded), or a name that `load` knows.
        data_root, allow_embedded: see `load`.

    Raises:
        ValueError: unknown name, or no such folder.
        DatasetUnavailable: not found, and no stand-in allowed.
    """
    if name == SYNTHETIC:
        return None
    if name == "imagenet":
        there = [root / name for root in roots(data_root) if (root / name / "train").is_dir()]
        if not there:
            raise DatasetUnavailable("no folder imagenet/ with train/ and val/ in data_root or BENCHBOOK_DATA")
        return pictures.listed(str(there[0]), name)
    if name == "image_folder":
        return pictures.listed(data_root)
    data = _have(name, (SYNTHETIC, "imagenet", *NAMES), data_root, allow_embedded)
    train, test = Pictures(data.train_images, data.train_labels), Pictures(data.test_images, data.test_labels)
    return Collection(data.name, train, test, int(data.train_labels.max()) + 1)
