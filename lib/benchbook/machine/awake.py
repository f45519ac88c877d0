"""Keep the computer from sleeping while it measures, where the system allows that without root."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def awake() -> Iterator[bool]:
    """Prevent sleep during a `with` block; yield whether the system was asked to.

    The holder ends with this process even if this process is killed.
    """
    command = holder(platform.system(), os.getpid())
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    held = subprocess.Popen(command, start_new_session=True, **quiet) if command else None
    try:
        yield held is not None
    finally:
        if held is not None:
            held.terminate()
            held.wait()


def holder(system: str, process: int) -> list[str]:
    """Return the command that holds off sleep for as long as a process lives; empty where there is none.

    macOS: caffeinate against idle sleep (-i), and on mains against any sleep (-s), until a process ends (-w).
    Linux: systemd-inhibit around a `tail` that waits for that process.
    Source: caffeinate(8), systemd-inhibit(1), tail(1).
    """
    if system == "Darwin" and shutil.which("caffeinate"):
        return ["caffeinate", "-i", "-s", "-w", str(process)]
    if system == "Linux" and shutil.which("systemd-inhibit"):
        waiting = ["tail", "--follow", "--quiet", f"--pid={process}", "/dev/null"]
        return ["systemd-inhibit", "--what=sleep:idle", "--who=benchbook", "--why=measuring", *waiting]
    return []
