"""Batch sizes, tried one after the other: which is the fastest, and which is the largest that memory holds."""

import itertools
from collections.abc import Callable

import psutil

from benchbook.frameworks.workload import Workload
from benchbook.measuring import protocol, runs, sensors
from benchbook.measuring.runs import Run

TRIED = "batch_size"  # what a row was measured for, in its settings as `tried`
NUM_WINDOWS = 2
HELD_BYTES = 2**30  # of batches that lie ready on the device
ROOM = 0.9  # of the memory that is free: beyond it a computer without a GPU begins to swap


def read(text: str) -> list[int]:
    """Return batch sizes written with blanks between them, the smallest first.

    Raises:
        ValueError: something else than whole numbers from 1 on.
    """
    words = text.split()
    if not all(word.isdigit() and int(word) for word in words):
        raise ValueError(f"batch_sizes {text!r}; allowed: whole numbers from 1 on, with blanks between them")
    return sorted({int(word) for word in words})


def steps_lasting(workload: Workload, seconds: float) -> int:
    """Return how many steps of a warm workload take so long, at least one; it goes back to where it was."""
    fresh, stream, count = workload.snapshot(), protocol.endless(workload), 1
    while True:
        taken = list(itertools.islice(stream, count))
        needed = protocol.train_window(workload, sensors.NO_SENSOR, taken)["seconds"]
        if needed >= seconds / 4 or needed >= 1:
            break
        count *= 2
    stream.close()
    workload.restore(fresh)
    return max(1, round(count * seconds / needed))


def steps_held(batch: tuple, num_steps: int) -> int:
    """Return how many steps' batches may lie on a device at once: as many as were asked for, HELD_BYTES at most."""
    return max(1, min(num_steps, HELD_BYTES // sum(part.nbytes for part in batch)))


def try_each(build: Callable[[int], Workload], record: Run, batch_sizes: list[int], seconds: float) -> None:
    """Measure training at each batch size, as rows of phase `calibrate`; after one that memory lacks no more follow.

    Args:
        build: from a batch size to a workload with fresh weights.
        record: the run that takes the rows.
        batch_sizes: the smallest first.
        seconds: that each of NUM_WINDOWS windows should last.
    """
    settings = record.settings_with(tried=TRIED)
    with record.during("calibrate"):
        for number, batch_size in enumerate(batch_sizes):
            before = psutil.Process().memory_info().rss
            try:
                workload = build(batch_size)
                steps = steps_lasting(workload, seconds)
                for _ in range(NUM_WINDOWS):
                    taken = list(itertools.islice(protocol.endless(workload), steps))
                    window = protocol.train_window(workload, sensors.open_sensor(workload.device), taken)
                    record.append(settings=settings, batch_size=batch_size, **window)
            except Exception as error:  # a framework may raise anything where memory is short
                record.append(settings=settings, batch_size=batch_size, **runs.refusal(error))
                return
            following = batch_sizes[number + 1 : number + 2]
            if workload.device.is_cpu and following:
                # A computer that is out of memory ends the process without a word: what cannot fit is not tried.
                grown = max(0, psutil.Process().memory_info().rss - before)
                needed, free = grown * following[0] / batch_size, ROOM * psutil.virtual_memory().available
                if needed > free:
                    message = f"not tried: it would need about {needed / 2**30:.3g} GiB, {free / 2**30:.3g} are free"
                    record.append(settings=settings, batch_size=following[0], status="unsupported", message=message)
                    return
