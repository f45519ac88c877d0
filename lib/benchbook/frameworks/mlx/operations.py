"""MLX's operations, and its small training.

MLX computes what somebody asks for, and nothing else: of products whose outputs are let go, only the last would ever be
made. So each is handed over as it is called, as other frameworks do by themselves, and hangs on the one before it:
waiting for the last waits for all, handed over or not.
"""

from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks import devices, small
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return what `operations.multiplication` does, of two matrices on the host."""
    import mlx.core as mx

    left, right = (_kept(mx.array(part).astype(getattr(mx, dtype))) for part in (first, second))
    return _chain(lambda: mx.matmul(left, right, stream=devices.handle(device)))


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.copy` does."""
    import mlx.core as mx

    source = _kept(mx.array(host))
    return _chain(lambda: mx.negative(source, stream=devices.handle(device)))  # `mx.copy` would share the memory


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the device: both share one memory, in which MLX makes a copy."""
    import mlx.core as mx

    return lambda previous: mx.array(host)


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the host; NumPy makes the copy."""
    import mlx.core as mx

    source = _kept(mx.array(host))
    return lambda previous: numpy.array(source)


def launch(device: Device) -> Operation:
    """Return what `operations.launch` does, an evaluation for each; within one evaluation operations start faster."""
    import mlx.core as mx

    number = _kept(mx.zeros(1))

    def start(previous: Any) -> Any:
        output = mx.add(number if previous is None else previous, 1, stream=devices.handle(device))
        mx.async_eval(output)
        return output

    return start


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(output.reshape(-1)[0])


def training_step(device: Device) -> Callable:
    """Return a step of the small training; each takes what the one before it returned."""
    import mlx.core as mx
    from mlx import nn

    mx.set_default_device(devices.handle(device))
    images, labels = (mx.array(part) for part in small.batch())
    kernel, dense = (mx.array(array) for array in small.weights())
    first = [_kept(mx.contiguous(kernel.transpose(3, 0, 1, 2))), _kept(dense)]
    pool = nn.MaxPool2d(2)

    def loss(weights: list) -> Any:
        hidden = pool(nn.relu(mx.conv2d(images, weights[0], padding=1)))
        return nn.losses.cross_entropy(hidden.reshape(small.BATCH_SIZE, -1) @ weights[1], labels, reduction="mean")

    differentiate = mx.grad(loss)

    def update(previous: Any) -> list:
        weights = previous or first
        gradients = differentiate(weights)
        updated = [weight - small.LEARNING_RATE * part for weight, part in zip(weights, gradients, strict=True)]
        mx.async_eval(updated)
        return updated

    return update


def _chain(compute: Callable[[], Any]) -> Operation:
    """Return an operation whose every output hangs on the one before it, and is handed over at once."""
    import mlx.core as mx

    def run(previous: Any) -> Any:
        output = compute()
        if previous is not None:
            output = mx.depends(output, previous)
        mx.async_eval(output)
        return output

    return run


def _kept(array: Any) -> Any:
    """Return an array that lies in memory, and is not a plan to compute it."""
    import mlx.core as mx

    mx.eval(array)
    return array
