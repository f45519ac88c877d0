"""Data sets as NumPy arrays, the same for every framework.

A data set is searched in `data_root`, then BENCHBOOK_DATA, then the user's cache, and downloaded to the cache if it is
in none of them. Every file of a published data set is checked against its MD5 before it is used.
"""

import os
from pathlib import Path

from benchbook.studies.datasets import pictures
from benchbook.studies.datasets.embedded import digits, excerpt, shapes
from benchbook.studies.datasets.embedded import triangles as triangles
from benchbook.studies.datasets.pictures import Collection, Pictures
from benchbook.studies.datasets.sources import PUBLISHED, Dataset, DatasetUnavailable, Text, roots
from benchbook.studies.datasets.sources import spread as spread

SYNTHETIC = "synthetic"  # random batches, which the study makes on the device
# Stand-ins for data sets that are unavailable, if allow_embedded is set.
EMBEDDED = {"mnist": "digits", "cifar10": "shapes", "tinyshakespeare": "excerpt"}
_MAKERS = {"digits": digits, "shapes": shapes, "excerpt": excerpt}
TEXTS = ("tinyshakespeare", "excerpt")
NAMES = tuple(name for name in (*PUBLISHED, "image_folder", *_MAKERS) if name not in TEXTS)


def load(name: str, data_root: str = "", allow_embedded: bool = False) -> Dataset:
    """Return a data set by name.

    Args:
        name: mnist, cifar10, image_folder (at data_root), or one that needs no file: digits, shapes.
        data_root: folder to search first; for image_folder the folder itself.
        allow_embedded: return the embedded stand-in, under its own name, if the data set is unavailable.

    Raises:
        ValueError: unknown name, a data_root that is not a folder, or an image folder without classes and images.
        DatasetUnavailable: not found, not downloadable, and no stand-in allowed.
    """
    if name == "image_folder":
        return pictures.image_folder(data_root)
    return _find(name, NAMES, data_root, allow_embedded)


def load_text(name: str, data_root: str = "", allow_embedded: bool = False) -> Text | None:
    """Return a text by name: tinyshakespeare, or its beginning, excerpt, which needs no file; None for SYNTHETIC.

    Raises:
        ValueError, DatasetUnavailable: see `load`.
    """
    return None if name == SYNTHETIC else _find(name, (SYNTHETIC, *TEXTS), data_root, allow_embedded)


def _find(name: str, allowed: tuple[str, ...], data_root: str, allow_embedded: bool) -> Dataset | Text:
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
        print(f"{name} is unavailable ({error}); using {EMBEDDED[name]} instead.")
        return _MAKERS[EMBEDDED[name]]()


def collect(name: str, data_root: str = "", allow_embedded: bool = False) -> Collection | None:
    """Return a data set as pictures that are decoded when they are used; None for SYNTHETIC.

    Args:
        name: imagenet (a folder of that name with train/ and val/ in data_root, BENCHBOOK_DATA or the cache; it is
            never downloaded), or a name that `load` takes.
        data_root, allow_embedded: see `load`.

    Raises:
        ValueError: unknown name, or no such folder.
        DatasetUnavailable: not found, and no stand-in allowed.
    """
    if name == SYNTHETIC:
        return None
    if name == "imagenet":
        named = (folder for root in roots(data_root) for folder in (root / name, root) if folder.name == name)
        folder = next((folder for folder in named if (folder / "train").is_dir()), None)
        if folder is None:
            raise DatasetUnavailable("no folder imagenet/ with train/ and val/ in data_root or BENCHBOOK_DATA")
        return pictures.collection(str(folder), name)
    if name == "image_folder":
        return pictures.collection(data_root)
    data = _find(name, (SYNTHETIC, "imagenet", *NAMES), data_root, allow_embedded)
    train, test = Pictures(data.train_images, data.train_labels), Pictures(data.test_images, data.test_labels)
    return Collection(data.name, train, test, int(data.train_labels.max()) + 1)
