"""Read files that others may have written."""

import errno
import stat
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], object]  # takes a line for the user

# After these, a reader names what it cannot read, and continues. In tests none: a fault of this
# library fails them.
unexpected: tuple[type[Exception], ...] = (Exception,)


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
