"""The operations of a calibration, the same for all frameworks.

Every operation takes the output of the previous one. torch and tensorflow ignore it. JAX may run independent work at
the same time, and MLX skips work whose output is not used: there each computation depends on the previous one, so that
waiting for the last waits for all. Each framework's `devices` implements them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks.backend import Operation
from benchbook.frameworks.devices import Device
from benchbook.machine.precisions import PRECISIONS

# The precisions that are calibrated, with the type that matrices are stored in.
DTYPES = {name: each.stored for name, each in PRECISIONS.items() if not each.autocast and each.family != "fp64"}


def multiplication(device: Device, size: int, precision: str, seed: int = 0) -> Operation:
    """Return an operation that multiplies two matrices of normal random numbers.

    Args:
        device: where it computes.
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
    """Return an operation that copies bytes: `copy` within device memory, `host_to_device` or `device_to_host`."""
    return getattr(device.backend, direction)(device, numpy.ones(num_bytes // 4, numpy.float32))


def queue(operation: Operation, count: int) -> Any:
    """Call an operation `count` times without waiting; return the last output.

    Only the last output is kept. JAX 0.7 on a CPU then waits in every call and queues nothing, because the next call
    takes over the memory of an output that is dropped. Products take as long as with all outputs kept.
    """
    last = None
    for _ in range(count):
        last = operation(last)
    return last


def calls_lasting(seconds: float, run: Callable[[int], float]) -> int:
    """Return how many calls take this long together.

    Args:
        seconds: the time to be filled.
        run: makes a number of calls and returns their seconds. Its first call is a warm-up. Of two times the shorter
            counts: an interruption would otherwise make every window too short.
    """
    run(1)
    count = 1
    while (taken := min(run(count), run(count))) < seconds / 4:
        count *= max(2, min(10, math.floor(seconds / 2 / max(taken, 1e-9))))
    return max(1, round(count * seconds / taken))
