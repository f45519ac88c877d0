"""Where data sets are looked for, and how a download is kept out of sight until it is whole."""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy

from benchbook.machine import layout, temporary

STALLED_SECONDS = 60.0


class DatasetUnavailable(RuntimeError):
    """The data set is neither on this machine nor to be had from its source."""


@dataclass(frozen=True)
class Dataset:
    """Images and labels, split as their makers split them.

    Attributes:
        name: what rows call it; an embedded stand-in has a name of its own.
        train_images, test_images: uint8, shape (n, height, width) or (n, height, width, 3).
        train_labels, test_labels: int64, shape (n,); or, where each pixel has a class, masks of uint8, shape
            (n, height, width).
    """

    name: str
    train_images: numpy.ndarray
    train_labels: numpy.ndarray
    test_images: numpy.ndarray
    test_labels: numpy.ndarray

    def with_tests(self, num_images: int) -> "Dataset":
        """Return the data set with the first so many test images alone; 0: with all.

        Raises:
            ValueError: a number below 0.
        """
        if num_images < 0:
            raise ValueError(f"num_test_images {num_images}; allowed: 0 or more")
        tested = slice(num_images or None)
        return replace(self, test_images=self.test_images[tested], test_labels=self.test_labels[tested])


def roots(data_root: str) -> list[Path]:
    """Return the folders to look in, in that order; the last is the cache."""
    named = [data_root, os.environ.get("BENCHBOOK_DATA", "")]
    return [*(Path(root).expanduser() for root in named if root), cache()]


def cache() -> Path:
    """Return the folder that takes downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchbook"


def files(
    read: Callable[[Path], dict[str, bytes] | None], fetch_all: Callable[[Path], object], data_root: str, folder: str
) -> dict[str, bytes]:
    """Return the files of a published data set, from the first root that holds all of them, else downloaded.

    Args:
        read: returns the files below a root, see `intact`.
        fetch_all: downloads into the folder it is given.
        data_root: see `roots`.
        folder: what a download adds to the cache.

    Raises:
        DatasetUnavailable: no root holds them intact, and the download failed.
    """
    for root in roots(data_root):
        contents = read(root)
        if contents is not None:
            return contents
    download(fetch_all, lambda place: read(place) is not None, folder)
    return read(cache())


def intact(
    contents: Mapping[str, bytes | None], checksums: Mapping[str, str], folder: Path, owner: str
) -> dict[str, bytes] | None:
    """Return the files if all are present and every MD5 matches, else None. A mismatch is printed.

    Args:
        contents: file name to what it holds, None where it is not there.
        checksums: file name to MD5.
        folder, owner: named in what is printed.
    """
    if any(content is None for content in contents.values()):
        return None
    wrong = [name for name, content in contents.items() if hashlib.md5(content).hexdigest() != checksums[name]]
    if wrong:
        print(f"{folder} is passed over: {', '.join(wrong)} differ from {owner}'s checksums.")
        return None
    return dict(contents)


def download(fetch_all: Callable[[Path], object], is_whole: Callable[[Path], bool], folder: str) -> None:
    """Fetch into a temporary folder of the cache; move what came into place only when it is whole.

    What a killed download left behind goes with the next one.

    Args:
        fetch_all: downloads into the folder it is given, with `fetch`.
        is_whole: whether that folder now holds the data set.
        folder: what to move, relative to it.

    Raises:
        DatasetUnavailable: anything went wrong; nothing is left behind.
    """
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with temporary.folder(cache()) as place:
            fetch_all(place)
            if not is_whole(place):
                raise ValueError("the files do not have the published checksums")
            shutil.rmtree(cache() / folder, ignore_errors=True)
            (place / folder).rename(cache() / folder)
    except (ImportError, ValueError, OSError, EOFError, tarfile.TarError) as error:
        raise DatasetUnavailable(f"download failed: {error}") from error


def fetch(address: str, folder: Path, checksum: str | None = None, unpack: bool = False) -> None:
    """Download a file into a folder, with a progress bar; a source that sends nothing for STALLED_SECONDS is given up.

    Args:
        address: of the file, whose name is kept.
        folder: is made.
        checksum: MD5; None where nobody published one.
        unpack: extract a .tar.gz beside itself.

    Raises:
        OSError: the source cannot be reached, stalls or breaks off.
        ValueError: another checksum, or an address that ends in no file's name.
    """
    import pooch

    pooch.retrieve(
        address,
        known_hash=checksum and f"md5:{checksum}",
        fname=layout.check_name(address.rpartition("/")[2], "file of a URL"),
        path=folder,
        processor=pooch.Untar(extract_dir=".") if unpack else None,
        downloader=pooch.HTTPDownloader(progressbar=True, timeout=STALLED_SECONDS),
    )
