"""Call a function in a fresh Python process, or in one process for each device, and wait for its
result.

One launcher serves notebooks, the processes of a point, the ranks of torchrun, the trials of a
search and the questions for devices. A child runs `python -m benchbook.machine.launch FOLDER`.
Its standard input is a pipe from this process, so that it and its descendants end when this
process ends, however that happens. A named pipe in the folder carries messages. All that is
printed goes to a log; the end of the standard output is that of the child.
"""

import importlib
import json
import math
import os
import pickle
import platform
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import cloudpickle
import psutil

from benchbook.machine import context, control_groups, processes, temporary

INTERRUPT_SECONDS = 10.0  # in which an interrupted child may write its last row
MESSAGES = "messages"  # the pipe in a task's folder
LOOPBACK = {"Linux": "lo", "Darwin": "lo0"}
# A name of this computer may not resolve. Source:
# https://docs.pytorch.org/docs/stable/elastic/run.html
TORCHRUN = "torch.distributed.run --standalone --nproc-per-node={} --local-addr=127.0.0.1 -m"
POLL_SECONDS = 0.5  # between two calls of `on_wait`; frequent ones would disturb windows
MOST_LOG_BYTES = 2**16  # at the log's end, which are searched for its last line
FULL_BYTES = 2**20  # a disk with less free space counts as full
_messages: TextIO | None = None  # to the process that called this one


class Died(RuntimeError):
    """A process that the called function started died; the message says which."""


class Failed(NamedTuple):
    """How a child failed.

    Attributes:
        name: of the exception's type; MemoryError if Linux killed the child to free memory;
        empty if it died otherwise.
        message: of the exception, or a sentence that says how the child ended.
        is_late: whether it exceeded its limit.
    """

    name: str
    message: str
    is_late: bool = False


def call(
    function: str,
    *arguments: Any,
    log: Path | None = None,
    seconds: float = math.inf,
    variables: dict[str, str] | None = None,
    num_ranks: int = 1,
    on_message: Callable[[Any], None] = lambda message: None,
    on_wait: Callable[[], None] = lambda: None,
    interrupt_seconds: float = INTERRUPT_SECONDS,
) -> tuple[Any, Failed | None]:
    """Call a function in a fresh process, and wait until the process has ended.

    An interrupt of this process is forwarded once to the child, which may then write its last
    row. However the call ends, the child and its descendants are gone.

    Args:
        function, arguments: as "module:name"; cloudpickle sends functions that a cell defines, too.
        log: the file to which the child's prints are appended; None: they are not kept.
        seconds: the limit, after which the child and its descendants are killed.
        variables: the child's environment variables, in addition to this process's.
        num_ranks: above 1, torchrun starts so many processes, and each calls the function. If
        one fails, all end. on_message, on_wait: called with each message that the function sends
        by `send`; twice a second.
        interrupt_seconds: in which an interrupted child may end by itself; 0: it is killed at once.

    Returns:
        The function's result (of rank 0) and None, or None and how the child failed.
    """
    command = [sys.executable, "-m"]
    if num_ranks > 1:
        command += TORCHRUN.format(num_ranks).split()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # a user's folder may be in it
        "GLOO_SOCKET_IFNAME": LOOPBACK[platform.system()],
    }
    kills = control_groups.memory_kills()
    with temporary.folder() as folder:
        log = log or folder / "log"
        (folder / "task").write_bytes(cloudpickle.dumps((function, arguments, context.current())))
        os.mkfifo(folder / MESSAGES)
        # It is opened as a writer as well, so that it has no end.
        channel = os.open(folder / MESSAGES, os.O_RDWR | os.O_NONBLOCK)
        with log.open("ab", buffering=0) as file:
            child = subprocess.Popen(
                [*command, processes.LAUNCHER, str(folder)],
                **dict.fromkeys(("stdin", "stdout"), subprocess.PIPE),
                stderr=file,
                start_new_session=True,
                env=environment | (variables or {}),
            )
            try:
                end = time.monotonic() + seconds
                in_time = _follow(child, channel, file, end, on_message, on_wait)
            except BaseException:
                if interrupt_seconds:
                    _interrupt(child, interrupt_seconds)
                raise
            finally:
                processes.kill(processes.tree(child.pid))
                status = child.wait()
                child.stdin.close()
                child.stdout.close()
                os.close(channel)
        if not in_time:
            return None, Failed("", f"took longer than its limit of {seconds:.0f} s", is_late=True)
        if not status and (folder / "result").exists():  # else it left by os._exit
            return pickle.loads((folder / "result").read_bytes()), None
        for path in sorted(folder.glob("error-*")):
            name, how = json.loads(path.read_text())
            break
        else:
            name, how = "", f"the process ended with exit status {status}"
            if status < 0:
                how = f"the process was ended by {signal.Signals(-status).name}"
        return None, Failed(name, how) if name else _death(how, log, kills)


def send(message: Any) -> None:
    """Send a message, which JSON can hold, to the process that called this one, if one did."""
    if _messages:
        print(json.dumps(message), file=_messages, flush=True)


def _follow(
    child: subprocess.Popen,
    channel: int,
    log: RawIOBase,
    deadline: float,
    on_message: Callable[[Any], None],
    on_wait: Callable[[], None],
) -> bool:
    """Pass on messages, and output to the log, until the child closes its output, and return
    True; at the deadline return False."""
    rest = b""

    def pass_on() -> None:
        nonlocal rest
        with suppress(BlockingIOError):  # it is empty
            while True:
                *lines, rest = (rest + os.read(channel, 2**16)).split(b"\n")
                for line in lines:
                    on_message(json.loads(line))

    with selectors.DefaultSelector() as selector:
        for source in (channel, child.stdout):
            selector.register(source, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not (ready := selector.select(min(left, POLL_SECONDS))):
                on_wait()
            if any(key.fileobj is child.stdout for key, _ in ready):
                text = os.read(child.stdout.fileno(), 2**16)
                if not text:
                    child.wait(INTERRUPT_SECONDS)
                    pass_on()
                    return True
                log.write(text)
            pass_on()
    return False


def _interrupt(child: subprocess.Popen, seconds: float) -> None:
    for process in processes.tree(child.pid):
        with suppress(psutil.Error):  # it has just ended
            process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _death(how: str, log: Path, kills: int) -> Failed:
    """Return why a child died without an exception of its own: for want of memory or of room on
    the disk, or unknown.

    Args:
        how: in words.
        log: of the child, whose last line may tell.
        kills: from `control_groups.memory_kills` before the child began.
    """
    if control_groups.memory_kills() > kills:
        return Failed("MemoryError", f"{how}, because there was no memory left")
    last = ""
    with suppress(FileNotFoundError), log.open("rb") as file:  # a user may have removed it
        file.seek(max(0, log.stat().st_size - MOST_LOG_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "")
        if shutil.disk_usage(log.parent).free < FULL_BYTES:
            how += ", because the disk is full"
    return Failed("", how + (f"; it last printed: {last[:300]}" if last else ""))


def main() -> None:
    """Call the function of the folder's task, and write its result or its error into the folder."""
    global _messages
    folder, rank = Path(sys.argv[1]), os.environ.get("RANK", "0")
    parent = os.dup(0)
    with open(os.devnull) as nothing:  # noqa: PTH123 (a script that asks for input meets the end of a file)
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    os.dup(1)  # which is open until this process ends, as its caller expects
    if rank == "0":
        _messages = (folder / MESSAGES).open("w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        function, arguments, given = pickle.loads((folder / "task").read_bytes())
        context.adopt(given)
        module, name = function.split(":")
        result = getattr(importlib.import_module(module), name)(*arguments)
    except BaseException as error:
        is_death = isinstance(error, Died)
        failure = "" if is_death else type(error).__name__, str(error)
        temporary.write(folder / f"error-{rank}", json.dumps(failure))
        if is_death:  # so that the log ends with the last words of what died
            os._exit(1)
        raise
    if rank == "0":
        (folder / "result").write_bytes(pickle.dumps(result))
    processes.exit_at_once()


def _exit_with_parent(parent: int) -> None:
    while os.read(parent, 1024):
        pass
    try:
        processes.kill(processes.tree(os.getpid())[:-1])
    finally:
        os._exit(1)


if __name__ == "__main__":
    from benchbook.machine import (
        launch,
    )  # whose `send` the called function imports, not this module's

    launch.main()
