"""Published data sets: where they are searched, and how a download is moved into place once it
is complete."""

import gzip
import hashlib
import io
import os
import pickle
import shutil
import sys
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy

from benchbook.machine import context, layout

STALLED_SECONDS = 60.0
TAR = ".tar.gz"


class DatasetUnavailable(RuntimeError):
    """The data set is not on this machine and cannot be downloaded."""


@dataclass(frozen=True)
class Dataset:
    """Images and labels, split as their makers split them.

    Attributes:
        name: in rows; an embedded stand-in has its own name. train_images, test_images: uint8,
        shape (n, height, width) or (n, height, width, 3). train_labels, test_labels: int64,
        shape (n,); if each pixel has a class, masks of uint8, shape
            (n, height, width).
    """

    name: str
    train_images: numpy.ndarray
    train_labels: numpy.ndarray
    test_images: numpy.ndarray
    test_labels: numpy.ndarray

    @property
    def num_samples(self) -> int:
        """Return the number of training images."""
        return len(self.train_images)

    @property
    def num_classes(self) -> int:
        """Return the number of classes, if each image has one."""
        return int(self.train_labels.max()) + 1

    def with_tests(self, num_images: int) -> "Dataset":
        """Return the data set with only `num_images` test images, evenly spread; 0: all of them."""
        tested = spread(len(self.test_labels), min(num_images, len(self.test_labels)))
        return replace(
            self, test_images=self.test_images[tested], test_labels=self.test_labels[tested]
        )


@dataclass(frozen=True)
class Text:
    """A text as tokens, one per character; its last tenth is the test.

    Attributes:
        name: in rows; an embedded stand-in has its own name.
        train, test: tokens, uint8, shape (n,).
        characters: by token.
    """

    name: str
    train: numpy.ndarray
    test: numpy.ndarray
    characters: str

    @classmethod
    def parse(cls, name: str, content: bytes) -> "Text":
        """Return the text of a file; each of its bytes is a character, numbered in ascending
        order."""
        characters, tokens = numpy.unique(
            numpy.frombuffer(content, numpy.uint8), return_inverse=True
        )
        tokens, end = tokens.astype(numpy.uint8), int(0.9 * len(tokens))
        return cls(name, tokens[:end], tokens[end:], bytes(characters).decode("latin-1"))

    def beginning(self, count: int = 200) -> str:
        """Return the first characters of the text."""
        return "".join(self.characters[token] for token in self.train[:count])


def spread(length: int, count: int) -> numpy.ndarray:
    """Return `count` indices evenly spread over a data set, which may be sorted by class; count
    0: all indices."""
    return numpy.arange(count) * length // count if count else numpy.arange(length)


def roots(data_root: str) -> list[Path]:
    """Return the folders to search, in order: `data_root` unless it is empty, BENCHBOOK_DATA,
    and the cache."""
    named = [root for root in (data_root, os.environ.get("BENCHBOOK_DATA")) if root]
    return [*(Path(root).expanduser().absolute() for root in named), cache()]


def cache() -> Path:
    """Return the folder for downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchbook"


@contextmanager
def download(folder: str) -> Iterator[Path]:
    """Yield a temporary folder in the cache for `fetch`; after the `with` block its content is
    moved into place.

    Args:
        folder: the part of the temporary folder to move; it replaces the folder of that name in
        the cache.

    Raises:
        DatasetUnavailable: the download failed, or the block raised ValueError; nothing is left
        behind.
    """
    target = cache() / layout.check_name(folder, "folder of the cache")
    failed = context.current().failed_downloads
    if folder in failed:
        raise DatasetUnavailable(failed[folder])
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=cache(), prefix="benchbook-", ignore_cleanup_errors=True
        ) as place:
            yield Path(place)
            shutil.rmtree(target, ignore_errors=True)
            (Path(place) / folder).rename(target)
    except (ImportError, ValueError, OSError, EOFError, tarfile.TarError) as error:
        reason = f"download failed: {error}"
        context.change(failed_downloads=failed | {folder: reason})
        raise DatasetUnavailable(reason) from error


def fetch(address: str, folder: Path, checksum: str | None = None) -> None:
    """Download a file into a folder, with a progress bar. A .tar.gz is unpacked into the same
    folder.

    Args:
        address: of the file, which keeps its name.
        folder: is created.
        checksum: MD5; None: the caller checks the content.

    Raises:
        OSError: the source cannot be reached, breaks off, or sends nothing for STALLED_SECONDS.
        ValueError: the checksum differs.
    """
    with warnings.catch_warnings(action="ignore"):  # tqdm's, about widgets that no bar of ours uses
        import pooch
    import requests
    from tqdm import tqdm

    pooch.get_logger().setLevel("WARNING")
    name = address.rpartition("/")[2]
    try:
        # A notebook shows standard error, where pooch's own bar goes, as a fault.
        with tqdm(desc=name, total=1, delay=1.0, unit="B", unit_scale=True, file=sys.stdout) as bar:
            pooch.retrieve(
                address,
                known_hash=checksum and f"md5:{checksum}",
                fname=name,
                path=folder,
                processor=pooch.Untar(extract_dir=".") if address.endswith(TAR) else None,
                downloader=pooch.HTTPDownloader(progressbar=bar, timeout=STALLED_SECONDS),
            )
    except requests.ConnectionError as error:
        reason = getattr(
            error.args[0], "reason", error
        )  # the error's own text names its objects and the address twice
        raise OSError(f"{urlsplit(address).netloc}: {str(reason).rpartition(': ')[2]}") from error


@dataclass(frozen=True)
class Published:
    """A data set that is published as files; every file is checked before it is used.

    Attributes:
        folders: below a root, that may have the files, unpacked or as .gz; a download creates
        the first one. Empty: the
            root itself, because a user may name the folder with the files.
        files: MD5 of each unpacked file; None if none is published, so that `parse` checks the
        content.
        address: of each file's download, with {} for its name; a .tar.gz contains the first of
        `folders`.
        parse: from the contents of the files, in the order of `files`, to the data set or other
        arrays.
        archive: MD5 of the .tar.gz, which is checked before it is unpacked.
    """

    folders: tuple[str, ...]
    files: dict[str, str | None]
    address: str
    parse: Callable[[list[bytes]], Any]
    archive: str | None = None

    def load(self, data_root: str = "") -> Any:
        """Return the data set from the first root with all files intact, or else from a download.

        Raises:
            DatasetUnavailable: no root has the files, and the download failed; the message names
            damaged folders.
        """
        skipped = []
        for root in roots(data_root):
            if contents := self._read(root, skipped):
                return self.parse(contents)
        try:
            with download(self.folders[0].partition("/")[0]) as place:
                for address in dict.fromkeys(map(self.address.format, self.files)):
                    fetch(
                        address,
                        place if address.endswith(TAR) else place / self.folders[0],
                        self.archive,
                    )
                if not (contents := self._read(place, skipped)):
                    raise ValueError("the files do not have the published checksums")
                return self.parse(contents)
        except DatasetUnavailable as error:
            raise DatasetUnavailable("; ".join([*skipped, str(error)])) from error

    def _read(self, root: Path, skipped: list[str]) -> list[bytes] | None:
        """Return the contents of the files below a root, or None unless every MD5 matches.

        A folder that has some of the files, or damaged ones, is printed and added to `skipped`.
        """
        packed = self._unpacked(root) if self.archive else {}
        for folder in (root / name for name in self.folders):
            contents = {name: packed.get(name) or _content(folder / name) for name in self.files}
            wrong = [
                name
                for name, checksum in self.files.items()
                if contents[name] is None
                or checksum not in (None, hashlib.md5(contents[name]).hexdigest())
            ]
            if not wrong:
                return list(contents.values())
            if any(part is not None for part in contents.values()):
                skipped.append(f"{folder}: missing or damaged: {', '.join(wrong)}")
                print(f"Skipped {skipped[-1]}.")
        return None

    def _unpacked(self, root: Path) -> dict[str, bytes]:
        """Return the contents of the files in an intact archive in a folder; empty without one."""
        file = root / self.address.rpartition("/")[2]
        content = file.read_bytes() if file.is_file() else b""
        if not content or hashlib.md5(content).hexdigest() != self.archive:
            return {}
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            return {
                name: archive.extractfile(f"{self.folders[0]}/{name}").read() for name in self.files
            }


def _content(file: Path) -> bytes | None:
    """Return the content of a file, or else of its .gz, unpacked; None if it is absent,
    unreadable or truncated.

    Kaggle's MNIST has a dot where the published names have a hyphen.
    """
    dotted = file.with_name(file.name.replace("-idx", ".idx"))
    try:
        for plain in (file, dotted):
            if plain.is_file():
                return plain.read_bytes()
        return gzip.decompress(file.with_name(f"{file.name}.gz").read_bytes())
    except (OSError, EOFError, zlib.error):
        return None


def _parse_mnist(files: list[bytes]) -> Dataset:
    """Parse IDX files: train images, train labels, test images, test labels. The header has 16
    bytes, 8 for labels."""
    parts = []
    for images, labels in (files[:2], files[2:]):
        parts.append(numpy.frombuffer(images, numpy.uint8, offset=16).reshape(-1, 28, 28))
        parts.append(numpy.frombuffer(labels, numpy.uint8, offset=8).astype(numpy.int64))
    return Dataset("mnist", *parts)


def _parse_cifar10(files: list[bytes]) -> Dataset:
    """Unpickle five training batches and the test batch, after their checksums matched; channels
    come first."""
    batches = [pickle.loads(file, encoding="bytes") for file in files]
    images = [batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for batch in batches]
    labels = [numpy.array(batch[b"labels"], numpy.int64) for batch in batches]
    train = numpy.concatenate(images[:-1]), numpy.concatenate(labels[:-1])
    return Dataset("cifar10", *train, numpy.ascontiguousarray(images[-1]), labels[-1])


# Names, addresses and checksums are from torchvision (torchvision/datasets/mnist.py, cifar.py) and
# nanoGPT (data/shakespeare_char/prepare.py). nanoGPT publishes no checksum; this one is of the file
# in 2026.
PUBLISHED = {
    "mnist": Published(
        folders=("MNIST/raw", "raw", "mnist", ""),
        files={
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        address="https://ossci-datasets.s3.amazonaws.com/mnist/{}.gz",
        parse=_parse_mnist,
    ),
    "cifar10": Published(
        folders=("cifar-10-batches-py", ""),
        files={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        archive="c58f30108f718f92721af3b95e74349a",
        parse=_parse_cifar10,
    ),
    "tinyshakespeare": Published(
        folders=("tinyshakespeare", ""),
        files={"input.txt": "6fb458f1232090904fb40fe944165e91"},
        address="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/{}",
        parse=lambda files: Text.parse("tinyshakespeare", files[0]),
    ),
}
