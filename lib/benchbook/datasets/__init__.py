"""Data sets as NumPy arrays, the same for every framework.

A data set is searched in `data_root`, then BENCHBOOK_DATA, then the user's cache, and downloaded
to the cache if it is in none of them. Every file of a published data set is checked against its
MD5 before it is used.
"""

import os
from pathlib import Path

from benchbook.datasets import pictures
from benchbook.datasets.embedded import digits, excerpt, shapes
from benchbook.datasets.embedded import triangles as triangles
from benchbook.datasets.pictures import Collection, Pictures
from benchbook.datasets.sources import PUBLISHED, Dataset, DatasetUnavailable, Text, roots
from benchbook.datasets.sources import spread as spread

SYNTHETIC = "synthetic"  # random batches, which the study makes on the device
# Stand-ins for data sets that are unavailable, if allow_embedded is set.
EMBEDDED = {"mnist": "digits", "cifar10": "shapes", "tinyshakespeare": "excerpt"}
_MAKERS = {"digits": digits, "shapes": shapes, "excerpt": excerpt}


def load(name: str, data_root: str = "", allow_embedded: bool = False) -> Dataset | Text | None:
    """Return a data set by name; None for SYNTHETIC.

    Args:
        name: mnist, cifar10, tinyshakespeare, image_folder (at data_root), or one that needs no
        file: digits, shapes,
            and excerpt, the beginning of tinyshakespeare.
        data_root: folder to search first; for image_folder the folder itself.
        allow_embedded: return the embedded stand-in, under its own name, if the data set is
        unavailable.

    Raises:
        ValueError: a data_root that is not a folder, or an image folder without classes and images.
        DatasetUnavailable: not found, not downloadable, and no stand-in allowed.
    """
    if name == SYNTHETIC:
        return None
    if name == "image_folder":
        return pictures.image_folder(data_root)
    for source, folder in {
        "data_root": data_root,
        "BENCHBOOK_DATA": os.environ.get("BENCHBOOK_DATA"),
    }.items():
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
        name: imagenet (a folder of that name with train/ and val/ in data_root, BENCHBOOK_DATA
        or the cache; it is
            never downloaded), or a name of images that `load` takes.
        data_root, allow_embedded: see `load`.

    Raises:
        ValueError: no such folder.
        DatasetUnavailable: not found, and no stand-in allowed.
    """
    if name == "imagenet":
        named = (
            folder
            for root in roots(data_root)
            for folder in (root / name, root)
            if folder.name == name
        )
        folder = next((folder for folder in named if (folder / "train").is_dir()), None)
        if folder is None:
            raise DatasetUnavailable(
                "no folder imagenet/ with train/ and val/ in data_root or BENCHBOOK_DATA"
            )
        return pictures.collection(str(folder), name)
    if name == "image_folder":
        return pictures.collection(data_root)
    data = load(name, data_root, allow_embedded)
    if data is None:
        return None
    train = Pictures(data.train_images, data.train_labels)
    test = Pictures(data.test_images, data.test_labels)
    return Collection(data.name, train, test, data.num_classes)
