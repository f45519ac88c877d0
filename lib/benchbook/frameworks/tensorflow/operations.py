"""TensorFlow's operations, each of which allocates its output, and its small training."""

from collections.abc import Callable
from typing import Any

import numpy

from benchbook.frameworks import devices, small
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation


def _place(device: Device, *host: numpy.ndarray, dtype: str = "float32") -> list:
    import tensorflow

    with tensorflow.device(devices.handle(device)):
        return [tensorflow.cast(tensorflow.constant(part), dtype) for part in host]


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return what `operations.multiplication` does, of two matrices on the host."""
    import tensorflow

    left, right = _place(device, first, second, dtype=dtype)
    return lambda previous: tensorflow.matmul(left, right)


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.copy` does."""
    import tensorflow

    (source,) = _place(device, host)
    return lambda previous: tensorflow.negative(source)  # `identity` copies nothing


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the device."""
    return _transfer(Device("cpu", device.name, "tensorflow"), device, host)


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return what `operations.transfer` does, towards the host."""
    return _transfer(device, Device("cpu", device.name, "tensorflow"), host)


def _transfer(origin: Device, goal: Device, host: numpy.ndarray) -> Operation:
    """Return a copy that is made anew each time.

    `tensorflow.identity` under another device moves nothing after its first call: the tensor keeps that copy as its
    mirror. An explicit copy neither makes nor takes mirrors.

    Source: tensorflow/core/common_runtime/eager/core.cc, CopyTensorHandleToDevice (TensorFlow 2.20)
    """
    (source,) = _place(origin, host)
    return lambda previous: source._copy(device_name=devices.handle(goal))


def launch(device: Device) -> Operation:
    """Return what `operations.launch` does."""
    (number,) = _place(device, numpy.zeros(1, numpy.float32))
    return lambda previous: number + 1


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    import tensorflow

    return float(tensorflow.reshape(output, [-1])[0])


def training_step(device: Device) -> Callable:
    """Return a step of the small training; each takes what the one before it returned."""
    import tensorflow

    with tensorflow.device(devices.handle(device)):
        images, labels = (tensorflow.constant(part) for part in small.batch())
        weights = [tensorflow.Variable(array) for array in small.weights()]

    @tensorflow.function
    def update():
        with tensorflow.GradientTape() as tape:
            hidden = tensorflow.nn.relu(tensorflow.nn.conv2d(images, weights[0], 1, "SAME"))
            hidden = tensorflow.reshape(tensorflow.nn.max_pool2d(hidden, 2, 2, "SAME"), (small.BATCH_SIZE, -1))
            losses = tensorflow.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ weights[1])
            loss = tensorflow.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(small.LEARNING_RATE * gradient)
        return loss

    def step(previous):
        with tensorflow.device(devices.handle(device)):
            return update()

    return step
