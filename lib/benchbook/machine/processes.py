"""Find and end processes. A run is a tree of processes, and some of them outlive their parents."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

import psutil

from benchbook.machine import context

LAUNCHER = "benchbook.machine.launch"  # the module of the command line, see there
KILL_SECONDS = 10.0  # the longest wait for killed processes to end
POLL_SECONDS = 0.5


def birth(process: psutil.Process) -> float:
    """Return the start time of a process in seconds; it stays the same when the clock is set.

    On Linux it counts from boot: psutil adds the boot time by the present clock, and this
    function subtracts it again. macOS records the time itself.
    """
    return process.create_time() - (psutil.boot_time() if sys.platform == "linux" else 0.0)


def age() -> float:
    """Return the seconds since this process started; setting the clock does not change them,
    except on macOS."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.time()
    return now - birth(psutil.Process())


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended; a zombie has ended."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def when_gone(process: int, call: Callable[[], None]) -> None:
    """Watch a process from a thread, and call a function once the process has ended."""

    def watch() -> None:
        while is_running(process):
            time.sleep(POLL_SECONDS)
        call()

    threading.Thread(target=watch, daemon=True).start()


def tree(process: int) -> list[psutil.Process]:
    """Return a process and its descendants, descendants first; empty if the process has ended."""
    try:
        parent = psutil.Process(process)
        return [*reversed(parent.children(recursive=True)), parent]
    except psutil.NoSuchProcess:
        return []


def own() -> list[psutil.Process]:
    """Return the processes of this run, from the one that started it to its ranks and loader
    workers.

    They descend from the run's supervisor, or else from what started this process as one of
    several: torchrun's agent, Python's multiprocessing, or this package's launcher. Several
    agents of one host share torchrun's run id.
    """
    supervisor, spawned = context.current().supervisor, multiprocessing.parent_process()
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if supervisor and is_running(supervisor):
        return tree(supervisor)
    first = psutil.Process()
    with suppress(psutil.Error):  # what started it has ended, or is outside of this container
        first = psutil.Process(spawned.pid if spawned else os.getppid() if run_id else None)
        while LAUNCHER in first.cmdline() and (parent := first.parent()):
            first = parent
    is_named = run_id not in (None, "none")  # none: torchrun's default
    others = with_variable("TORCHELASTIC_RUN_ID", run_id) if is_named else []
    ranks = (each for rank in context.current().ranks for each in tree(rank))
    return list(dict.fromkeys([*tree(first.pid), *others, *ranks]))


def exit_at_once() -> NoReturn:
    """End this process at once with status 0, without running `atexit` functions.

    Python's own exit dismantles modules first, which takes a second once a framework is imported.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def with_variable(name: str, value: str) -> list[psutil.Process]:
    """Return the other processes whose environment has a variable; orphans of a dead kernel are
    among them."""
    members = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # another user's, or it has just ended
            if process.pid != os.getpid() and process.environ().get(name) == value:
                members.append(process)
    return members


def kill(members: Iterable[psutil.Process]) -> None:
    """Kill processes and wait until they have ended; a zombie counts as ended, as many
    containers reap no orphans.

    Raises:
        psutil.TimeoutExpired: a process still runs after KILL_SECONDS.
    """
    members = list(members)
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    deadline = time.monotonic() + KILL_SECONDS
    for member in members:
        while is_running(member.pid) and member.is_running():
            if time.monotonic() > deadline:
                raise psutil.TimeoutExpired(KILL_SECONDS, member.pid)
            time.sleep(0.02)


def output(*command: str) -> str:
    """Return what a command prints, or an empty string if it is missing or fails."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
