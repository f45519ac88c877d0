"""Keep the computer from sleeping while it measures, where the system allows that without root."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# macOS: caffeinate prevents idle sleep (-i), and any sleep on mains power (-s), until a process
# ends (-w). Linux: systemd-inhibit prevents it around a `tail` that waits for that process. Source:
# caffeinate(8), systemd-inhibit(1), tail(1).
COMMANDS = {
    "Darwin": "caffeinate -i -s -w {process}",
    "Linux": "systemd-inhibit --what=sleep:idle --who=benchbook --why=measuring tail -f -q --pid={process} /dev/null",
}


@contextmanager
def awake() -> Iterator[None]:
    """Prevent sleep during a `with` block, if the system has a command for it.

    The command ends with this process, even if this process is killed.
    """
    blocker, quiet = None, dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with suppress(KeyError, OSError):  # another system, or no such command
        command = COMMANDS[platform.system()].format(process=os.getpid()).split()
        blocker = subprocess.Popen(command, start_new_session=True, **quiet)
    try:
        yield
    finally:
        if blocker:
            blocker.terminate()
            blocker.wait()
