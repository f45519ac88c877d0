"""The answer page while a study runs: written anew between points, never while one measures."""

import subprocess
import sys
import time

from benchbook import layout

SECONDS_APART = 60.0  # a page that is younger stays as it is
LIMIT_SECONDS = 30.0  # it takes two or three; a machine that swaps is not kept waiting


def renew_answers() -> bool:
    """Write the answer's pages, in a process of its own with a low priority, and wait until it has ended.

    A study never fails for it: a page that cannot be written stays as it was. The path of a first one is printed.

    Returns:
        Whether the pages were written.
    """
    page = layout.outputs() / "report" / "mnist.html"
    if page.exists() and 0 <= time.time() - page.stat().st_mtime < SECONDS_APART:
        return False
    command = [sys.executable, "-m", "benchbook.report"]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    is_first = not page.exists()
    try:
        written = subprocess.run(command, timeout=LIMIT_SECONDS, check=False, **quiet).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    if written and is_first:
        print(f"What it costs so far, renewed between points: {page.with_name('index.html')}", flush=True)
    return written
