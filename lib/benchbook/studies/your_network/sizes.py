"""Batch sizes, tried one after the other: which is the fastest, and which is the largest that memory holds."""

import itertools
from collections.abc import Callable

import psutil

from benchbook.frameworks.workload import Workload
from benchbook.measuring import failures, sensors
from benchbook.measuring.window import windows_lasting
from benchbook.measuring.writer import Run

TRIED = "batch_size"  # what a row was measured for, in its settings as `tried`
LARGEST = "largest"  # among batch sizes: look for the largest that memory holds
NUM_WINDOWS = 2
LONGEST_STEP = 5.0  # seconds; a batch of longer steps is large enough
NEAR = 1.125  # the largest batch that worked is found where one this many times as large did not
ROOM = 0.9  # of the memory that is free: beyond it a computer without a GPU begins to swap


def read(text: str) -> list[int]:
    """Return batch sizes written with blanks between them, the smallest first; LARGEST among them is passed over.

    Raises:
        ValueError: something else than whole numbers from 1 on and LARGEST.
    """
    words = [word for word in text.split() if word != LARGEST]
    if not all(word.isdigit() and int(word) for word in words):
        raise ValueError(f"batch_sizes {text!r}; allowed: whole numbers from 1 on and {LARGEST}, with blanks between")
    return sorted({int(word) for word in words})


def try_each(
    build: Callable[[int], Workload], record: Run, batch_sizes: list[int], seconds: float, largest_from: int = 0
) -> None:
    """Measure training at each batch size, as rows of phase `calibrate`; after one that memory lacks no larger follows.

    Args:
        build: from a batch size to a workload with fresh weights.
        record: the run that takes the rows.
        batch_sizes: the smallest first.
        seconds: that each of NUM_WINDOWS windows should last.
        largest_from: a batch size that works, from which the largest is looked for: twice as large each time, then
            half-way between those that work and those that do not. 0: none is looked for.
    """
    waiting, works, fails, bytes_each = list(batch_sizes), largest_from, 0, 0.0
    before = psutil.Process().memory_info().rss
    with record.during("calibrate"):
        while batch_size := waiting.pop(0) if waiting else _following(works, fails):
            window = _try(build, record, batch_size, seconds, bytes_each)
            if window is None:
                waiting, fails = [], batch_size
                continue
            bytes_each = ((window["peak_memory_bytes"] or 0) - before) / batch_size
            works = max(works, batch_size) if largest_from else 0
            if window["seconds"] * batch_size > LONGEST_STEP * window["samples"] and not waiting:
                return


def _following(works: int, fails: int) -> int:
    """Return the batch size to try next, of which it is known what works and what does not; 0: none."""
    if works and fails:
        return (works + fails) // 2 if fails > max(NEAR * works, works + 1) else 0
    return 2 * works


def _try(
    build: Callable[[int], Workload], record: Run, batch_size: int, seconds: float, bytes_each: float
) -> dict | None:
    """Append the rows of a batch size and return its last window; None where memory does not hold it.

    A computer that is out of memory ends the process without a word: on a CPU, what cannot fit is not tried.
    """
    settings = record.settings_with(tried=TRIED)
    needed, free = bytes_each * batch_size, ROOM * psutil.virtual_memory().available
    if record.common.get("device") == "cpu" and needed > free:
        message = f"not tried: it would need about {needed / 2**30:.3g} GiB, {free / 2**30:.3g} are free"
        record.append(settings=settings, batch_size=batch_size, status="unsupported", message=message)
        return None
    try:
        workload = build(batch_size)
        windows = windows_lasting(workload, seconds, sensors.open_sensor(workload.device))
        for window in itertools.islice(windows, NUM_WINDOWS):
            record.append(settings=settings, batch_size=batch_size, **window)
    except Exception as error:  # a framework may raise anything where memory is short
        record.append(settings=settings, batch_size=batch_size, **failures.refusal(error))
        return None
    return window
