"""Keras on TensorFlow or on JAX: which of the two, in which precision; batches that stay on the device."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.machine import libraries
from benchbook.machine.precisions import PRECISIONS

FRAMEWORKS = tuple(name for name, each in libraries.FRAMEWORKS.items() if each.library == "keras")
# What Keras calls the precisions of rows: how variables are kept and what layers compute in.
POLICIES = {name: f"mixed_{each.computed}" if each.autocast else each.stored for name, each in PRECISIONS.items()}

Array = Any  # a NumPy array, or a tensor of the framework


def import_keras(framework: str) -> ModuleType:
    """Return Keras, computing with a framework; the first call in a process decides which.

    Raises:
        ValueError: a framework that Keras is not used with here.
        DeviceUnavailable: the framework, or Keras, is not installed.
        RuntimeError: Keras was imported before and computes with another framework.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"Keras on {framework!r}; allowed: {', '.join(FRAMEWORKS)}")
    devices.backend(framework)  # imports the framework, quietly, or says what is installed
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = framework
    try:
        keras = libraries.import_alone("keras")
    except ImportError as error:
        raise devices.DeviceUnavailable(f"keras cannot be imported here ({error})") from error
    if keras.backend.backend() != framework:
        raise RuntimeError(
            f"Keras computes with {keras.backend.backend()} in this process and cannot change to {framework}; "
            "allowed: another process, such as a restarted kernel"
        )
    return keras


@contextmanager
def arithmetic(device: Device, precision: str) -> Iterator[None]:
    """Compute on a device in a precision inside a `with` block: building, tracing and calling alike.

    Raises:
        NotImplementedError: tf32 where the device has no such units.
    """
    device.check_precision(precision)
    wanted = PRECISIONS[precision]
    with device.backend.arithmetic(device, wanted), _keras_in_float64(wanted.stored == "float64"):
        yield


@contextmanager
def kernels_of_zeros() -> Iterator[None]:
    """Begin with kernels of zeros inside a `with` block, or a function, that makes a model whose weights are then set.

    To draw them would be for nothing, and JAX compiles a generator for each of their shapes: on a CPU that takes
    MobileNetV2 11 s.
    """
    import keras

    kind = keras.initializers.VarianceScaling  # Keras's default for kernels is one of its names
    draw = kind.__call__

    def zeros(_initializer, shape: tuple[int, ...], dtype: str | None = None) -> Array:
        return keras.ops.convert_to_tensor(numpy.zeros(shape, "float32"), dtype)

    try:
        kind.__call__ = zeros
        yield
    finally:
        kind.__call__ = draw


@contextmanager
def _keras_in_float64(wanted: bool) -> Iterator[None]:
    """Keep Keras's own operations on JAX from rounding float64 to float32, batch norms and means among them.

    Keras does so "to be aligned with JAX's default behavior", whatever the dtype policy and whether or not JAX has
    float64 enabled, and offers no way around it: a reference in float64 would be one in name alone.

    Source: keras.src.backend.common.dtypes.result_type (Keras 3.15)
    """
    rounded = importlib.import_module("keras.src.backend.common.dtypes").BIT64_TO_BIT32_DTYPE if wanted else {}
    kept = rounded.pop("float64", None)
    try:
        yield
    finally:
        if kept is not None:
            rounded["float64"] = kept


def to_host(array: Array) -> numpy.ndarray:
    """Return a copy of a tensor or of a variable's value as NumPy has it; this waits for it."""
    return numpy.array(array.numpy() if hasattr(array, "numpy") else array)


def dropouts(model) -> list:
    """Return the dropout layers of a Keras model, those inside its other layers among them."""
    return [layer for layer in model._flatten_layers() if "Dropout" in type(layer).__name__ and hasattr(layer, "rate")]


def is_moving(variable) -> bool:
    """Return whether a Keras variable is a batch norm's moving statistic."""
    return variable.path.rpartition("/")[2].startswith("moving_")


Batch = tuple[Array, Array]


class ResidentArrays:
    """Arrays kept on a device, from which batches are taken and prepared there: no loader, no transfer.

    Args:
        device: which.
        inputs, target: NumPy arrays, n images and what is right for each.
        prepare: from images of `inputs`, on the device, to what the network takes; in keras.ops. Integers of 8 bits may
            be float16 of the same values there, see `as_gathered`; so may those of `target`.
    """

    def __init__(
        self, device: Device, inputs: numpy.ndarray, target: numpy.ndarray, prepare: Callable[[Array], Array]
    ) -> None:
        keras = import_keras(device.framework)
        self.device = device
        self.arrays = tuple(device.backend.place(device, as_gathered(device, array)) for array in (inputs, target))
        # Of labels only those wider than 8 bits must be integers again; Keras's losses take both.
        labels = "int64" if target.dtype.kind in "iu" and target.dtype.itemsize > 1 else None

        def take(inputs: Array, target: Array, indices: Array) -> Batch:
            chosen = keras.ops.take(target, indices, axis=0)
            if labels and device.framework == "tensorflow":
                chosen = keras.ops.cast(chosen, labels)
            return prepare(keras.ops.take(inputs, indices, axis=0)), chosen

        self._take = device.backend.compile_function(take)

    def batches(self, order: Iterable[numpy.ndarray]) -> Iterator[Batch]:
        """Yield a batch for each array of indices, int32."""
        for indices in order:
            with arithmetic(self.device, "fp32"):
                yield self._take(*self.arrays, self.device.backend.place(self.device, indices))


def as_gathered(device: Device, array: numpy.ndarray) -> numpy.ndarray:
    """Return an array's values in a type of which the framework can take images on the device, without the host.

    TensorFlow has no GatherV2 of uint8 for CUDA or Metal, and keeps int32 on the host whatever the device: each step
    would copy the whole data set. Both have kernels for floats, which hold the same numbers: those of 8 bits as
    float16, others as float32.

    Sources: tensorflow/core/kernels/gather_op.cc, tensorflow/python/eager/pywrap_tensor.cc (TensorFlow 2.20)

    Raises:
        ValueError: integers that float32 cannot hold.
    """
    if device.framework != "tensorflow" or device.is_cpu or array.dtype.kind not in "iub":
        return array
    floats = array.astype("float16" if array.dtype.itemsize == 1 else "float32")
    changed = floats.astype(array.dtype) != array
    if changed.any():
        raise ValueError(f"{array[changed][0]!r} in resident data; allowed: whole numbers up to 2 ** 24")
    return floats


def evaluation_batch_size(num_images: int, most: int) -> int:
    """Return a batch size that divides the images and is over half of `most`; `most` itself if there is none.

    A last batch of another size would be compiled for itself.
    """
    fewest = math.ceil(num_images / most)
    counts = [count for count in range(fewest, 2 * fewest) if num_images % count == 0]
    return num_images // counts[0] if counts else min(most, num_images)
