"""The few operations that a device is calibrated with, for torch, tensorflow and jax alike.

Every operation takes what the one before it returned. torch and tensorflow ignore it; JAX may run independent work
side by side, so there a computation gets its predecessor as an argument, and blocking on the last one waits for all.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy

from benchbook import devices
from benchbook.devices import Device

Operation = Callable[[Any], Any]
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


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
    devices.set_precision("tf32" if precision == "tf32" else "fp32", device.framework)
    generator = numpy.random.default_rng(seed)
    host = [generator.standard_normal((size, size), numpy.float32) for _ in range(2)]
    return _FRAMEWORKS[device.framework].multiplication(device, *host, DTYPES[precision])


def copy(device: Device, num_bytes: int) -> Operation:
    """Return an operation that reads this many bytes of device memory and writes as many."""
    return _FRAMEWORKS[device.framework].copy(device, _host(num_bytes))


def transfer(device: Device, num_bytes: int, direction: str) -> Operation:
    """Return an operation that copies bytes between host and device: host_to_device or device_to_host."""
    if direction not in ("host_to_device", "device_to_host"):
        raise ValueError(f"direction {direction!r}; allowed: host_to_device, device_to_host")
    return getattr(_FRAMEWORKS[device.framework], direction)(device, _host(num_bytes))


def launch(device: Device) -> Operation:
    """Return an operation so small that only its start costs: one is added to one number."""
    return _FRAMEWORKS[device.framework].launch(device)


def read(device: Device, output: Any) -> float:
    """Copy one number of an output to the host; this waits for it, whatever synchronising does."""
    return _FRAMEWORKS[device.framework].read(output)


def queue(operation: Operation, count: int) -> Any:
    """Call an operation many times without waiting; return the last output."""
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


def _host(num_bytes: int) -> numpy.ndarray:
    return numpy.ones(num_bytes // 4, numpy.float32)


class _Torch:
    """torch's operations; outputs are allocated once."""

    @staticmethod
    def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
        import torch

        left, right = (torch.from_numpy(part).to(device.kind, getattr(torch, dtype)) for part in (first, second))
        product = torch.empty_like(left)
        return lambda previous: torch.matmul(left, right, out=product)

    @staticmethod
    def copy(device: Device, host: numpy.ndarray) -> Operation:
        import torch

        source = torch.from_numpy(host).to(device.kind)
        target = torch.zeros_like(source)
        return lambda previous: target.copy_(source)

    @staticmethod
    def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
        import torch

        source = torch.from_numpy(host)
        source = source.pin_memory() if device.features.pins_memory else source
        target = torch.empty_like(source, device=device.kind)
        return lambda previous: target.copy_(source, non_blocking=True)

    @staticmethod
    def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
        import torch

        source = torch.from_numpy(host).to(device.kind)
        target = torch.zeros(source.shape, pin_memory=device.features.pins_memory)
        return lambda previous: target.copy_(source, non_blocking=True)

    @staticmethod
    def launch(device: Device) -> Operation:
        import torch

        number = torch.zeros(1, device=device.kind)
        return lambda previous: number.add_(1)

    @staticmethod
    def read(output: Any) -> float:
        return float(output.flatten()[0])


class _TensorFlow:
    """TensorFlow's operations; each allocates its output."""

    @staticmethod
    def _place(device: Device, *host: numpy.ndarray, dtype: str = "float32") -> list:
        import tensorflow

        with tensorflow.device(devices.handle(device)):
            return [tensorflow.cast(tensorflow.constant(part), dtype) for part in host]

    @staticmethod
    def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
        import tensorflow

        left, right = _TensorFlow._place(device, first, second, dtype=dtype)
        return lambda previous: tensorflow.matmul(left, right)

    @staticmethod
    def copy(device: Device, host: numpy.ndarray) -> Operation:
        import tensorflow

        (source,) = _TensorFlow._place(device, host)
        return lambda previous: tensorflow.negative(source)  # `identity` copies nothing

    @staticmethod
    def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
        return _TensorFlow._transfer(Device("cpu", device.name, "tensorflow"), device, host)

    @staticmethod
    def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
        return _TensorFlow._transfer(device, Device("cpu", device.name, "tensorflow"), host)

    @staticmethod
    def _transfer(origin: Device, goal: Device, host: numpy.ndarray) -> Operation:
        """Return a copy that is made anew each time.

        `tensorflow.identity` under another device moves nothing after its first call: the tensor keeps that copy as its
        mirror. An explicit copy neither makes nor takes mirrors.

        Source: tensorflow/core/common_runtime/eager/core.cc, CopyTensorHandleToDevice (TensorFlow 2.20)
        """
        (source,) = _TensorFlow._place(origin, host)
        return lambda previous: source._copy(device_name=devices.handle(goal))

    @staticmethod
    def launch(device: Device) -> Operation:
        (number,) = _TensorFlow._place(device, numpy.zeros(1, numpy.float32))
        return lambda previous: number + 1

    @staticmethod
    def read(output: Any) -> float:
        import tensorflow

        return float(tensorflow.reshape(output, [-1])[0])


class _Jax:
    """JAX's operations.

    `previous` is an unused argument, so that a computation waits for the one before it, and its memory takes the
    output.
    """

    @staticmethod
    def _chain(device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32") -> Operation:
        import jax

        placed = [jax.device_put(part, devices.handle(device)).astype(dtype) for part in host]
        compiled = jax.jit(lambda previous, *arrays: function(*arrays), keep_unused=True, donate_argnums=0)

        def run(previous: Any) -> Any:
            if previous is None:
                with jax.default_device(devices.handle(device)):  # else it is made on the first one, and moved
                    previous = jax.numpy.zeros_like(placed[0])
            return compiled(previous, *placed)

        return run

    @staticmethod
    def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
        return _Jax._chain(device, lambda left, right: left @ right, first, second, dtype=dtype)

    @staticmethod
    def copy(device: Device, host: numpy.ndarray) -> Operation:
        return _Jax._chain(device, lambda source: -source, host)

    @staticmethod
    def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
        import jax

        return lambda previous: jax.device_put(host, devices.handle(device))

    @staticmethod
    def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
        import jax

        source, goal = jax.device_put(host, devices.handle(device)), jax.devices("cpu")[0]
        return lambda previous: jax.device_put(source, goal)

    @staticmethod
    def launch(device: Device) -> Operation:
        return _Jax._chain(device, lambda number: number + 1, numpy.zeros(1, numpy.float32))

    @staticmethod
    def read(output: Any) -> float:
        return float(output.ravel()[0])


_FRAMEWORKS = {"torch": _Torch, "tensorflow": _TensorFlow, "jax": _Jax}
