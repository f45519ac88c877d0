"""The few operations that a device is calibrated with, for all frameworks alike.

Every operation takes what the one before it returned. torch and tensorflow ignore it; JAX may run independent work
side by side, and MLX leaves undone what nobody asks for, so there a computation hangs on its predecessor, and waiting
for the last one waits for all. What each framework makes of them is in its `devices`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks.backend import Operation
from benchbook.frameworks.devices import Device
from benchbook.machine.precisions import PRECISIONS

# By the precisions that are calibrated: what matrices are kept in.
DTYPES = {name: each.stored for name, each in PRECISIONS.items() if not each.autocast and each.family != "fp64"}


def multiplication(device: Device, size: int, precision: str, seed: int = 0) -> Operation:
    """Return an operation that multiplies two matrices of normal random numbers.

    Args:
        device: where.
        size: rows and columns of both.
        precision: fp32, tf32, bf16 or fp16.
        seed: of the numbers.

    Raises:
        ValueError: another precision.
    """
    if precision not in DTYPES:
        raise ValueError(f"precision {precision!r}; allowed: {', '.join(DTYPES)}")
    device.backend.allow_tf32(PRECISIONS[precision].uses_tf32)
    generator = numpy.random.default_rng(seed)
    host = [generator.standard_normal((size, size), numpy.float32) for _ in range(2)]
    return device.backend.multiplication(device, *host, DTYPES[precision])


def copy(device: Device, num_bytes: int, direction: str = "copy") -> Operation:
    """Return an operation that copies bytes in device memory, or as host_to_device or device_to_host."""
    return getattr(device.backend, direction)(device, numpy.ones(num_bytes // 4, numpy.float32))


def queue(operation: Operation, count: int) -> Any:
    """Call an operation many times without waiting; return the last output.

    JAX 0.7 on a CPU waits where an output is dropped whose memory the next call took, and so queues nothing. Products
    take as long as with all outputs kept.
    """
    last = None
    for _ in range(count):
        last = operation(last)
    return last


def calls_lasting(seconds: float, run: Callable[[int], float]) -> int:
    """Return how many calls fill the seconds.

    Args:
        seconds: how long they should take together.
        run: makes so many calls and returns their time. The first warms up; the faster of two counts, since one
            that was interrupted would make every window too short.
    """
    run(1)
    count = 1
    while (taken := min(run(count), run(count))) < seconds / 4:
        count *= max(2, min(10, math.floor(seconds / 2 / max(taken, 1e-9))))
    return max(1, round(count * seconds / taken))
