"""Read files that others may have written."""

import errno
import re
import stat
from collections.abc import Callable
from pathlib import Path

from benchbook.machine import context
from benchbook.rows.schema import RUN_ID, listed

Say = Callable[[str], object]  # takes a line for the user
# Hidden files and folders, locks and Finder's files; and copies of a run's file, which a sync or an
# unzip leaves next to it under a name that no run has.
FOREIGN = re.compile(rf"(^|/)(\.(?!\./)|~\$|__MACOSX/)|{RUN_ID.pattern}(?![/\w]|\.\w+$)[^/]*$|/$")


def unexpected() -> tuple[type[Exception], ...]:
    """Return the errors after which a reader names what it cannot read, and continues."""
    return () if context.current().strict else (Exception,)


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return the content of a plain file; reading a pipe would block, and a device may never end.

    Raises:
        OSError: the file is a link, a folder, a pipe or a device, is larger, or cannot be read;
        `strerror` says which.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", path)
    if found.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"{found.st_size} bytes; allowed: {most_bytes}", path)
    return path.read_bytes()


def find(folder: Path, ending: str) -> tuple[list[Path], list[Path]]:
    """Return the files below a folder whose names end so, and those that are not of this library."""
    found: tuple[list[Path], list[Path]] = [], []
    for path in sorted(folder.rglob(f"*.{ending}")):
        found[bool(FOREIGN.search(path.relative_to(folder).as_posix()))].append(path)
    return found


def name_foreign(folder: Path, say: Say) -> None:
    """Name the tables below a folder that are not of this library, and are left out."""
    if foreign := find(folder, "csv")[1]:
        say(f"Left out, for they are not of benchbook: {listed(path.name for path in foreign)}")
