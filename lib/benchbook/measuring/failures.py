"""The status of a failure's row, and a message that can be published."""

import re
from pathlib import Path

from benchbook.machine import launch, layout

# The messages of torch on a CPU, XLA, cuBLAS, cuDNN and Metal for a lack of memory, in errors of a
# general type.
SHORT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|RESOURCE_EXHAUSTED|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    r"|unlikely to have enough memory|Insufficient Memory|maximum allowed buffer size|unable to allocate",
    re.IGNORECASE,
)
# In the message of `launch.Failed` for a process that ended without an exception.
FAULT = re.compile(r"^the process was ended by SIG(ABRT|BUS|FPE|ILL|SEGV|SYS|TRAP)\b")
STOP = re.compile(r"^the process was ended by SIG(HUP|INT|TERM)\b")  # a kernel shuts down its own
STATUSES = {
    "OutOfMemoryError": "out_of_memory",
    "MemoryError": "out_of_memory",
    "ResourceExhaustedError": "out_of_memory",
    "DeviceUnavailable": "unavailable",
    "FrameworkMissing": "unavailable",
    "DatasetUnavailable": "unavailable",
    "ImportError": "unavailable",
    "ModuleNotFoundError": "unavailable",
    "NotImplementedError": "unsupported",
    "KeyboardInterrupt": "interrupted",
}


def status_of(error_name: str, message: str) -> str:
    """Return the status of a row for an exception."""
    return (
        "out_of_memory" if SHORT_OF_MEMORY.search(message) else STATUSES.get(error_name, "crashed")
    )


def of_process(failed: launch.Failed) -> tuple[str, str]:
    """Return status and message of the row of a process that failed."""
    if failed.is_late:
        return "timeout", failed.message
    if STOP.search(failed.message):
        return "interrupted", failed.message
    return status_of(failed.name, failed.message), ": ".join(
        filter(None, (failed.name, failed.message))
    )


def is_death(row: dict) -> bool:
    """Return whether a row says that a fault in the work ended its process; a system's or user's
    signal is none."""
    return row["status"] == "crashed" and bool(FAULT.search(str(row["message"])))


def refusal(error: Exception, most_characters: int = 300) -> dict:
    """Return status and message of the row of a refused trial, which is a result and not a
    failure of the run."""
    name = type(error).__name__
    status = "out_of_memory" if status_of(name, str(error)) == "out_of_memory" else "unsupported"
    return {"status": status, "message": anonymous(f"{name}: {error}")[:most_characters]}


def anonymous(message: str) -> str:
    """Return a message that can be published: without colours, with project and home folders
    shortened.

    Of the user's own code, `path/to/file.py:callable`, the path is removed, as in a point's
    parameters.
    """
    message = re.sub(r"\x1b\[[0-9;]*m", "", message)
    message = re.sub(r"[^\s'\"(]*[/\\]([^/\\\s'\"]+\.py:[A-Za-z_])", r"\1", message)
    return message.replace(str(layout.root()), ".").replace(str(Path.home()), "~")


def last_line(message: str) -> str:
    """Return the last line of a message that quotes a traceback, such as a worker's or
    TensorFlow's; others unchanged.

    The run's log has the rest.
    """
    lines = [
        line.strip() for line in message.splitlines() if line.strip() and "[[{{node" not in line
    ]
    quotes = any(words in message for words in ("(most recent call last)", "in user code:"))
    return lines[-1] if quotes else message
