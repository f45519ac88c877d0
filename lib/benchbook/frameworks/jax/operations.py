"""JAX's operations, and its small training.

Of an operation `previous` is an unused argument, so that a computation waits for the one before it, and its memory
takes the output.
"""

from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks import devices, small
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation


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


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return what `operations.multiplication` does, of two matrices on the host."""
    return _chain(device, lambda left, right: left @ right, first, second, dtype=dtype)


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.copy` does."""
    return _chain(device, lambda source: -source, host)


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the device."""
    import jax

    return lambda previous: jax.device_put(host, devices.handle(device))


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the host."""
    import jax

    source, goal = jax.device_put(host, devices.handle(device)), jax.devices("cpu")[0]
    return lambda previous: jax.device_put(source, goal)


def launch(device: Device) -> Operation:
    """Return what `operations.launch` does."""
    return _chain(device, lambda number: number + 1, numpy.zeros(1, numpy.float32))


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(output.ravel()[0])


def training_step(device: Device) -> Callable:
    """Return a step of the small training; each takes what the one before it returned."""
    import jax

    with jax.default_device(devices.handle(device)):
        images, labels = (jax.device_put(part) for part in small.batch())
        side = small.PIXELS // 2
        weights = [jax.device_put(array) for array in small.weights()]

    def loss(weights):
        layout = ("NHWC", "HWIO", "NHWC")
        hidden = jax.lax.conv_general_dilated(images, weights[0], (1, 1), "SAME", dimension_numbers=layout)
        hidden = jax.nn.relu(hidden).reshape(small.BATCH_SIZE, side, 2, side, 2, small.CHANNELS).max(axis=(2, 4))
        chances = jax.nn.log_softmax(hidden.reshape(small.BATCH_SIZE, -1) @ weights[1])
        return -jax.numpy.take_along_axis(chances, labels[:, None], axis=1).mean()

    @jax.jit
    def update(weights):
        gradients = jax.grad(loss)(weights)
        return [weight - small.LEARNING_RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    return lambda previous: update(weights if previous is None else previous)
