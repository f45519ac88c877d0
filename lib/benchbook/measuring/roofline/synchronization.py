"""A test of synchronising itself: long work is queued, and nothing of it may be left afterwards."""

import time
from collections.abc import Callable
from typing import Any

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation

WAITED = 0.1  # of the time may go by after synchronising: reading one number takes some itself
ROUNDS = 3
LARGEST = 8192  # rows and columns


class NotSynchronized(RuntimeError):
    """Synchronising returned before the work was done: no time measured with it means anything."""


def check_synchronize(
    device: Device,
    operation: Operation | None = None,
    read: Callable[[Device, Any], float] | None = None,
    synchronize: Callable[[Device, Any], None] | None = None,
    work_seconds: float = 0.3,
) -> float:
    """Prove that synchronising waits: queue long work, synchronise, and see what waiting is left.

    A backend that runs work as it is called passes: there is nothing to wait for. Each round counts the work
    itself, so a slow machine judges alike; the best of three rounds decides, since anything may interrupt one.

    Args:
        device: whose backend.
        operation: what to queue; a matrix product where none is given.
        read: gets a number of an output, and so waits for it; the backend's where none is given.
        synchronize: what is tested; the backend's where none is given.
        work_seconds: about how much work to queue.

    Returns:
        The fraction of the time that was left after synchronising.

    Raises:
        NotSynchronized: in every round more than a tenth of the time was left.
    """
    read = read or (lambda device, output: device.backend.read(output))
    synchronize = synchronize or device.backend.synchronize
    operation = operation or _long_operation(device, read, work_seconds / 10)
    count = operations.calls_lasting(work_seconds, lambda number: _queue_and_read(device, operation, read, number))
    remaining = min(_one_round(device, operation, read, synchronize, count) for _ in range(ROUNDS))
    if remaining > WAITED:
        raise NotSynchronized(
            f"synchronising {device.framework} on {device.kind} left {remaining:.0%} of the work undone; "
            f"allowed: {WAITED:.0%}"
        )
    return remaining


def _queue_and_read(device: Device, operation: Operation, read: Callable, count: int) -> float:
    started = time.perf_counter()
    read(device, operations.queue(operation, count))
    return time.perf_counter() - started


def _one_round(device: Device, operation: Operation, read: Callable, synchronize: Callable, count: int) -> float:
    started = time.perf_counter()
    last = operations.queue(operation, count)
    synchronize(device, last)
    synchronized = time.perf_counter()
    read(device, last)
    ended = time.perf_counter()
    return (ended - synchronized) / (ended - started)


def _long_operation(device: Device, read: Callable, seconds: float) -> Operation:
    """Return a product that takes so long that few fill the work: a queue that is full makes queueing wait."""
    size = 1024
    while True:
        operation = operations.multiplication(device, size, "fp32")
        _queue_and_read(device, operation, read, 1)
        if size == LARGEST or _queue_and_read(device, operation, read, 1) > seconds:
            return operation
        size *= 2
