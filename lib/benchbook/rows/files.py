"""Read files that others may have written."""

import errno
import os
import stat
from pathlib import Path


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return the content of a plain file; reading a pipe would block, and a device may never end.

    Raises:
        OSError: the file is a link, a folder, a pipe or a device, is larger, or cannot be read; `strerror` says which.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", path)
    if found.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"{found.st_size} bytes; allowed: {most_bytes}", path)
    return path.read_bytes()


def unexpected() -> tuple[type[Exception], ...]:
    """Return the errors after which a reader names what it cannot read, and goes on: all, or none if BENCHBOOK_STRICT.

    Tests set the variable, so that a fault of this library fails them.
    """
    return () if "BENCHBOOK_STRICT" in os.environ else (Exception,)
