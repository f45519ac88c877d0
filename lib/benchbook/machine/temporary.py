"""Temporary files of a run: its folder is deleted with its process, or by a later run if the process was killed."""

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
    """Make a folder for the body of a `with` block, after those of processes that were killed are gone.

    Its path is short: the sockets of a kernel lie in it, whose names may have a hundred letters.

    Args:
        place: where to make it; None: where the system keeps temporary files.
    """
    for path in Path(place or tempfile.gettempdir()).glob("benchbook-*"):
        if (match := NAME.fullmatch(path.name)) and not processes.is_running(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=f"benchbook-{os.getpid()}-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def variables(place: Path) -> dict[str, str]:
    """Return the environment that makes a process and its children keep their temporary files in a folder.

    What torch's compiler keeps for later runs stays where it was.
    """
    cache = Path(tempfile.gettempdir()) / f"torchinductor_{os.environ.get('USER') or os.getuid()}"
    return {"TMPDIR": str(place), "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache)}
