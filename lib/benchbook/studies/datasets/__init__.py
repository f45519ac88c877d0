"""The same NumPy arrays for every framework.

A data set is looked for in `data_root`, then BENCHBOOK_DATA, then the user's cache, and downloaded into
the cache if it is in none of them. Every file of a published data set is checked against its MD5 before it is used.
"""

import os
from pathlib import Path

from benchbook.studies.datasets import generated, handwritten, pictures
from benchbook.studies.datasets.sources import Dataset, DatasetUnavailable
from benchbook.studies.datasets.triangles import triangles

# What stands in, in `quick`, where a data set cannot be had.
EMBEDDED = {"mnist": "digits", "cifar10": "shapes"}
_MAKERS = {"digits": handwritten.digits, "shapes": generated.shapes}
_READERS = {"mnist": handwritten.mnist, "cifar10": pictures.cifar10, "image_folder": pictures.image_folder}
NAMES = (*_READERS, *_MAKERS)

__all__ = ["EMBEDDED", "NAMES", "Dataset", "DatasetUnavailable", "check_place", "load", "triangles"]


def load(name: str, data_root: str = "", allow_embedded: bool = False) -> Dataset:
    """Return a data set by name.

    Args:
        name: mnist, cifar10, image_folder (data_root names it), or one that needs no file: digits, shapes.
        data_root: folder to look in first; of an image folder the folder itself, or a .zip of it.
        allow_embedded: return the embedded stand-in, under its own name, where the data set cannot be had.

    Raises:
        ValueError: unknown name, or a data_root that is not a folder.
        DatasetUnavailable: not found, not downloadable, and no stand-in allowed.
    """
    check_place(name, data_root)
    if name == "image_folder":
        return pictures.image_folder(data_root)
    if name in _MAKERS:
        return _MAKERS[name]()
    try:
        return _READERS[name](data_root)
    except DatasetUnavailable as error:
        if not allow_embedded:
            raise
        print(f"{name} could not be had ({error}); using {EMBEDDED[name]} instead.")
        return _MAKERS[EMBEDDED[name]]()


def check_place(name: str, data_root: str = "") -> None:
    """Refuse a data set, or a place of it, that cannot be read; no image is read, and nothing is downloaded.

    Raises:
        ValueError: unknown name, a place that is not a folder, or an image folder without classes and images.
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}; allowed: {', '.join(NAMES)}")
    if name == "image_folder":
        pictures.list_folder(data_root)
        return
    for source, folder in {"data_root": data_root, "BENCHBOOK_DATA": os.environ.get("BENCHBOOK_DATA")}.items():
        if folder and not Path(folder).expanduser().is_dir():
            raise ValueError(f"{source} {folder!r} is not a folder")
