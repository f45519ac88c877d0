"""Temporary folders with an owner: what a killed process left is removed when the next folder is
made."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "benchbook_"
# A socket's path has at most 103 bytes on macOS, 107 on Linux; this is the longest that Python
# makes in a folder.
MOST_BYTES = 103 - len(f"/{PREFIX}12345678/pymp-12345678/listener-12345678")


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a new temporary folder, and remove it after the `with` block.

    It is where temporary files usually are, or in /tmp if the paths of sockets would be too long
    there. Its owner holds its lock, also for processes in other containers: a folder whose lock
    is free was left by a process that is gone.
    """
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > MOST_BYTES and os.access("/tmp", os.W_OK | os.X_OK):
        place = "/tmp"
    for left in Path(place).glob(f"{PREFIX}*"):
        if (lock := _lock(left, fcntl.LOCK_NB)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        lock = _lock(path)
        if path.exists():  # no other process took it for one that was left
            break
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _lock(path: Path, how: int = 0) -> int | None:
    """Return a descriptor that holds a folder's lock; None if it cannot be opened or locked."""
    opened = None
    try:
        opened = os.open(path, os.O_RDONLY)
        fcntl.flock(opened, fcntl.LOCK_EX | how)
        return opened
    except OSError:  # another holds it, it was just removed, or its file system has no locks
        if opened is not None:
            os.close(opened)
        return None
