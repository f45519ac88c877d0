"""Temporary environment variables, and temporary folders with an owner: what a killed process left
is removed when the next folder is made, and nothing else is."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "benchbook_"
MARK = ".made"  # the file in each folder that says who made it; its owner holds the folder's lock
# A socket's path has at most 103 bytes on macOS, 107 on Linux; this is the longest that Python
# makes in a folder.
MOST_BYTES = 103 - len(f"/{PREFIX}12345678/pymp-12345678/listener-12345678")


def remove(path: Path) -> None:
    """Remove a folder, its mark last, so that what is left at a kill or an error still has it."""
    with suppress(OSError):
        for inner in sorted(path.iterdir(), key=lambda each: each.name == MARK):
            if inner.is_dir() and not inner.is_symlink():
                shutil.rmtree(inner)
            else:
                inner.unlink()
        path.rmdir()


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Set environment variables in a `with` block, and restore them at its end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextmanager
def folder(
    place: Path | None = None, prefix: str = PREFIX, dispose: Callable[[Path], object] = remove
) -> Iterator[Path]:
    """Yield a new temporary folder, and dispose of it after the `with` block.

    Args:
        place: where it is made; None: where temporary files usually are, or in /tmp if the paths
        of sockets would be too long there.
        prefix: of its name.
        dispose: removes it, and those of killed processes before.
    """
    if place is None:
        place = Path(tempfile.gettempdir())
        if len(os.fsencode(place)) > MOST_BYTES and os.access("/tmp", os.W_OK | os.X_OK):
            place = Path("/tmp")
    tidy(place, prefix, dispose)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    lock = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # without locks, or on a full disk, it stays after a kill
            fcntl.flock(lock, fcntl.LOCK_EX)
            (path / MARK).write_bytes(_content(path))
        yield path
    finally:
        try:
            dispose(path)
        finally:
            os.close(lock)


def tidy(place: Path, prefix: str = PREFIX, dispose: Callable[[Path], object] = remove) -> None:
    """Dispose of the folders that killed processes of this user left in a place; see `folder`."""
    for left in place.glob(f"{prefix}*"):
        with suppress(OSError), _claimed(left):
            dispose(left)


@contextmanager
def _claimed(path: Path) -> Iterator[None]:
    """Hold the lock of a folder.

    Raises:
        OSError: `folder` did not make it for this user, or its owner is alive.
    """
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # or a pipe waits
        with open(mark, "rb") as file:  # noqa: PTH123 (of a descriptor)
            found = os.fstat(mark)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
            if not is_own or file.read(1024) != _content(path):  # a user's copy, or renamed
                raise PermissionError(path)
        yield
    finally:
        os.close(lock)


def _content(path: Path) -> bytes:
    return f"{path.name} {path.lstat().st_ino}".encode()


def write(path: Path, content: str) -> None:
    """Write a file so that after a crash it has either its old content or the new.

    Raises:
        OSError: the file cannot be written; the error names it.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        with naming(path), new.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:  # a full disk
        new.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the `with` block name a file: that of a full disk does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
