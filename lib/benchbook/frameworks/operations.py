"""The operations of a calibration, the same for all frameworks.

Every operation takes the output of the previous one. torch and tensorflow ignore it. JAX may run
independent work at the same time, and MLX skips work whose output is not used: there each
computation depends on the previous one, so that waiting for the last waits for all. Each
framework's `devices` implements them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks.backend import Operation
from benchbook.frameworks.devices import Device
from benchbook.machine.precisions import PRECISIONS

# The precisions that are calibrated, with the type that matrices are stored in.
EXACT = ("mm", "bmm", "convolution", "attention")  # whose arithmetic in fp32 is checked
WIDTH, ALL_BITS = 64, 23  # of the matrices of this check; of a float32 behind its leading one
LONG, OUTPUTS = (
    32_769,
    (4, 16, 17, 64),
)  # an inner dimension, and outputs of as many rows and columns
DTYPES = {
    name: each.stored
    for name, each in PRECISIONS.items()
    if not each.autocast and each.family != "fp64"
}


def multiplication(device: Device, size: int, precision: str, seed: int = 0) -> Operation:
    """Return an operation that multiplies two matrices of normal random numbers.

    Args:
        device: where it computes.
        size: rows and columns of both.
        precision: a key of DTYPES.
        seed: of the numbers.
    """
    device.backend.allow_tf32(PRECISIONS[precision].uses_tf32)
    generator = numpy.random.default_rng(seed)
    host = [generator.standard_normal((size, size), numpy.float32) for _ in range(2)]
    return device.backend.multiplication(device, *host, dtype=DTYPES[precision])


def mantissa_bits(device: Device, name: str) -> int:
    """Return how many bits behind the leading one an operation of EXACT keeps of each fp32 operand.

    23 are all; TF32 has 10. An operand of 1 + 2**-b is multiplied by ones and zeros alone, so
    that nothing else rounds; the bit is kept if the error is less than half of it. In attention
    one column has another test: two scores differ by 2**-b, and by as much their weights.
    """
    device.backend.allow_tf32(False)
    bits = numpy.tile(numpy.arange(WIDTH) % ALL_BITS + 1, (WIDTH, 1))  # one for each column
    step = 2.0**-bits
    values, one = (1 + step).astype(numpy.float32), numpy.eye(WIDTH, dtype=numpy.float32)
    offset = 1.0
    if name == "convolution":
        kernel = numpy.pad(one[None, None], ((1, 1), (1, 1), (0, 0), (0, 0)))
        pairs = [(device.backend.convolution, values.reshape(1, 8, -1, WIDTH), kernel)]
    elif name == "attention":
        queries, keys = numpy.zeros_like(values), -1000 * one
        queries[:, 0], queries[:, 1:], keys[:2, :2] = 128 * values[0], 128, numpy.eye(2)
        values[:, 0] = one[0]
        bits = bits.copy()
        bits[:, 0], offset = bits[0], numpy.where(numpy.arange(WIDTH) > 0, 1.0, 0.5)
        step[:, 0] = 1 / (1 + numpy.exp(-16 * 2.0 ** -bits[0])) - 0.5
        pairs = [
            (device.backend.attention, *(part[None, None] for part in (queries, keys, values)))
        ]
    else:
        stacked = [numpy.stack([part] * 2) if name == "bmm" else part for part in (values, one)]
        pairs = [
            (device.backend.multiplication, *order, "float32") for order in (stacked, stacked[::-1])
        ]
    lost = numpy.zeros_like(bits, dtype=bool)
    for make, *host in pairs:
        result = device.backend.to_host(make(device, *host)(None)).reshape(-1, *bits.shape)
        lost |= ~(abs(result - offset - step) < step / 2).all(0)
    return int(min(bits[lost], default=ALL_BITS + 1)) - 1


def wrong_outputs(device: Device, name: str) -> list[int]:
    """Return the sizes in OUTPUTS for which products (mm or bmm) with the inner dimension LONG
    are wrong.

    The memory is first filled with what is not a number: a kernel that adds what lies behind its
    operands shows it.

    Source: https://github.com/pytorch/pytorch/issues/195163
    """
    wrong = []
    for size in OUTPUTS:
        host = [
            numpy.ones((2, *shape) if name == "bmm" else shape, numpy.float32)
            for shape in ((size, LONG), (LONG, size))
        ]
        filling = [
            device.backend.host_to_device(device, numpy.full_like(host[0], numpy.nan))
            for _ in range(4)
        ]
        device.backend.synchronize(device, [operation(None) for operation in filling])
        del filling
        result = device.backend.to_host(
            device.backend.multiplication(device, *host, dtype="float32")(None)
        )
        wrong += [] if (result == LONG).all() else [size]
    return wrong


def copy(device: Device, num_bytes: int, direction: str = "copy") -> Operation:
    """Return an operation that copies bytes: `copy` within device memory, `host_to_device` or
    `device_to_host`."""
    return getattr(device.backend, direction)(device, numpy.ones(num_bytes // 4, numpy.float32))


def queue(operation: Operation, count: int) -> Any:
    """Call an operation `count` times without waiting; return the last output.

    Only the last output is kept. JAX 0.7 on a CPU then waits in every call and queues nothing,
    because the next call takes over the memory of an output that is dropped. Products take as
    long as with all outputs kept.
    """
    last = None
    for _ in range(count):
        last = operation(last)
    return last


def calls_lasting(seconds: float, run: Callable[[int], float]) -> int:
    """Return how many calls take this long together.

    Args:
        seconds: the time to be filled.
        run: makes a number of calls and returns their seconds. Its first call is a warm-up. Of
        two times the shorter
            counts: an interruption would otherwise make every window too short.
    """
    run(1)
    count = 1
    while (taken := min(run(count), run(count))) < seconds / 4:
        count *= max(2, min(10, math.floor(seconds / 2 / max(taken, 1e-9))))
    return max(1, round(count * seconds / taken))
