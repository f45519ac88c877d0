"""Find and end processes: a run is a tree of processes, and some of them outlive their parents."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import psutil

WAIT_SECONDS = 10.0  # to wait for the end of a killed process
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(BaseException):
    """This process was asked to stop, or its parent has ended.

    Attributes:
        status: what a shell says of a process that the signal ended: 128 and the signal's number.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def stop_on_signals() -> None:
    """Raise Stopped on Ctrl-C, on SIGTERM, and when the terminal is closed; what is ignored (nohup) stays ignored.

    The first signal counts: a terminal and whoever started this process may send one each, and a row is being written.
    """

    def stop(number: int, _frame) -> None:
        for other in STOPS:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def birth(process: psutil.Process) -> float:
    """Return the start time of a process in seconds, which setting the clock does not change.

    Linux counts from the boot, which psutil adds to the time of the boot by the present clock; macOS notes the time.
    """
    return process.create_time() - (psutil.boot_time() if sys.platform == "linux" else 0.0)


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended; a zombie has."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def when_gone(process: int, act: Callable[[], None], poll_seconds: float = 0.5) -> None:
    """Watch a process from a thread of this one, and act once it is gone."""

    def watch() -> None:
        while is_running(process):
            time.sleep(poll_seconds)
        act()

    threading.Thread(target=watch, daemon=True).start()


def memory_kills(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processes of this one's control group Linux has killed for want of memory; 0 where none tells.

    A container or a job of a scheduler has such a group, with a limit.
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events) and cgroup-v1/memory.html (oom_control)
    """
    for line in groups.read_text().splitlines() if groups.exists() else ():
        number, controllers, path = line.split(":", 2)
        of_memory = {"": mounted / path.lstrip("/") / "memory.events"} if number == "0" else {}
        of_memory |= {"memory": mounted / "memory" / path.lstrip("/") / "memory.oom_control"}
        for file in (file for name, file in of_memory.items() if name in controllers.split(",") and file.exists()):
            counts = dict(row.split() for row in file.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0


def root() -> int:
    """Return the root of this run's processes: its supervisor, or the kernel that started several ranks."""
    named = (int(os.environ.get(name, 0)) for name in ("BENCHBOOK_SUPERVISOR", "BENCHBOOK_KERNEL"))
    return next((process for process in named if process and is_running(process)), os.getpid())


def family(process: int) -> list[psutil.Process]:
    """Return a process and its descendants, the youngest generation first; empty if it has ended."""
    try:
        parent = psutil.Process(process)
        return [*reversed(parent.children(recursive=True)), parent]
    except psutil.NoSuchProcess:
        return []


def leave() -> NoReturn:
    """End this process well and at once; Python would first take its modules apart, a second where one is a framework.

    What was registered with `atexit` is passed over.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def of_run(run_id: str) -> list[psutil.Process]:
    """Return the processes that belong to a run, by their environment: orphans of a dead kernel among them."""
    members = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("BENCHBOOK_RUN_ID") == run_id:
                members.append(process)
        except (psutil.Error, OSError):  # another user's, or it has just ended
            continue
    return members


def kill(members: Iterable[psutil.Process], seconds: float = WAIT_SECONDS) -> None:
    """Kill processes and wait until they have ended; in many containers orphans are not reaped and stay zombies.

    Raises:
        psutil.TimeoutExpired: one of them lives on.
    """
    members = list(members)
    for member in members:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + seconds
    for member in members:
        while is_running(member.pid) and member.is_running():
            if time.monotonic() > deadline:
                raise psutil.TimeoutExpired(seconds, member.pid)
            time.sleep(0.02)


def output(*command: str) -> str:
    """Return what a command prints, or an empty string if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
