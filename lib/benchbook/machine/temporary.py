"""A folder for temporary files. It is deleted when its process ends, or by a later process if that one was killed."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchbook.machine import processes

NAME = re.compile(r"benchbook-(\d+)-\w+")  # the id of the process that made it


@contextmanager
def folder(place: Path | None = None) -> Iterator[Path]:
    """Make a folder for a `with` block, and delete the folders of killed processes.

    Its path is short, because it holds a kernel's sockets, whose paths may have about a hundred characters.

    Args:
        place: the parent folder; None: the system's folder for temporary files.
    """
    for path in Path(place or tempfile.gettempdir()).glob("benchbook-*"):
        if (match := NAME.fullmatch(path.name)) and not processes.is_running(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=f"benchbook-{os.getpid()}-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def variables(place: Path) -> dict[str, str]:
    """Return the variables that make a process and its children put their temporary files into a folder.

    The cache of torch's compiler stays where it was, for later runs.
    """
    cache = Path(tempfile.gettempdir()) / f"torchinductor_{os.environ.get('USER') or os.getuid()}"
    return {"TMPDIR": str(place), "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache)}
