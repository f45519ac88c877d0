"""Keep the computer from sleeping while it measures, where the system allows that without root."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def awake() -> Iterator[None]:
    """Prevent sleep during a `with` block, if the system has a command for it.

    The command ends with this process, even if this process is killed.
    """
    command = sleep_blocker(platform.system(), os.getpid())
    if not command:
        yield
        return
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with subprocess.Popen(command, start_new_session=True, **quiet) as blocker:
        try:
            yield
        finally:
            blocker.terminate()


def sleep_blocker(system: str, process: int) -> list[str]:
    """Return the command that prevents sleep until a process ends; empty if the system has none.

    macOS: caffeinate prevents idle sleep (-i), and any sleep on mains power (-s), until a process ends (-w).
    Linux: systemd-inhibit prevents it around a `tail` that waits for that process.
    Source: caffeinate(8), systemd-inhibit(1), tail(1).
    """
    if system == "Darwin" and shutil.which("caffeinate"):
        return ["caffeinate", "-i", "-s", "-w", str(process)]
    if system == "Linux" and shutil.which("systemd-inhibit"):
        waiting = ["tail", "--follow", "--quiet", f"--pid={process}", "/dev/null"]
        return ["systemd-inhibit", "--what=sleep:idle", "--who=benchbook", "--why=measuring", *waiting]
    return []
