"""Trials of several batch sizes, to find the fastest one."""

import itertools
from collections.abc import Callable

import psutil

from benchbook.frameworks.workload import Workload
from benchbook.measuring import failures, sensors
from benchbook.measuring.window import windows_lasting
from benchbook.measuring.writer import Run

TRIED = "batch_size"  # the value of `tried` in the settings of these rows
NUM_WINDOWS = 2
ROOM = 0.9  # of free memory; beyond it a computer without a GPU begins to swap


def read(text: str) -> list[int]:
    """Return the batch sizes in a text, separated by blanks, the smallest first.

    Raises:
        ValueError: anything but whole numbers from 1 on.
    """
    words = text.split()
    if not all(word.isdigit() and int(word) for word in words):
        raise ValueError(f"batch_sizes {text!r}; allowed: whole numbers from 1 on, separated by blanks")
    return sorted({int(word) for word in words})


def try_each(build: Callable[[int], Workload], record: Run, batch_sizes: list[int], seconds: float) -> None:
    """Measure training at each batch size, as rows of phase `calibrate`; after a failure no larger size is tried.

    Args:
        build: from a batch size to a workload with fresh weights.
        record: the run that takes the rows.
        batch_sizes: the smallest first.
        seconds: length of each of NUM_WINDOWS windows.
    """
    bytes_each, before = 0.0, psutil.Process().memory_info().rss
    with record.during("calibrate"):
        for batch_size in batch_sizes:
            window = _try(build, record, batch_size, seconds, bytes_each)
            if window is None:
                return
            bytes_each = ((window["peak_memory_bytes"] or 0) - before) / batch_size


def _try(
    build: Callable[[int], Workload], record: Run, batch_size: int, seconds: float, bytes_each: float
) -> dict | None:
    """Append the rows of a batch size and return its last window; None if it failed.

    On a CPU, a batch too large for free memory is not tried, because the system would kill the process.
    """
    settings = record.settings_with(tried=TRIED)
    needed, free = bytes_each * batch_size, ROOM * psutil.virtual_memory().available
    if record.common.get("device") == "cpu" and needed > free:
        message = f"not tried: needs about {needed / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB are free"
        record.append(settings=settings, batch_size=batch_size, status="unsupported", message=message)
        return None
    try:
        workload = build(batch_size)
        windows = windows_lasting(workload, seconds, sensors.open_sensor(workload.device))
        for window in itertools.islice(windows, NUM_WINDOWS):
            record.append(settings=settings, batch_size=batch_size, **window)
    except Exception as error:  # frameworks raise anything when memory is short
        record.append(settings=settings, batch_size=batch_size, **failures.refusal(error))
        return None
    return window
