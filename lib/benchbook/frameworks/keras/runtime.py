"""Keras on TensorFlow or on JAX: its backend, its precision, and batches that stay on the
device."""

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

# Keras's dtype policy for each precision: the types in which variables are stored and layers
# compute.
POLICIES = {
    name: f"mixed_{each.computed}" if each.autocast else each.stored
    for name, each in PRECISIONS.items()
}

Array = Any  # a NumPy array, or a tensor of the framework


def import_keras(framework: str) -> ModuleType:
    """Return Keras with a framework as its backend; the first call in a process decides which.

    Raises:
        DeviceUnavailable: the framework, or Keras, is not installed.
        RuntimeError: Keras was imported before with another framework.
    """
    devices.backend(
        framework
    )  # imports it without warnings, or raises an error that lists the installed ones
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
    """Compute on a device in a precision inside a `with` block; a model is built, traced and
    called in such blocks.

    Raises:
        NotImplementedError: tf32 on a device without TF32 units.
    """
    device.check_precision(precision)
    wanted = PRECISIONS[precision]
    with device.backend.arithmetic(device, wanted), _keras_in_float64(wanted.stored == "float64"):
        yield


@contextmanager
def zero_kernels() -> Iterator[None]:
    """Initialise kernels with zeros inside a `with` block or a decorated function: the model's
    weights are set later.

    Random kernels would be discarded, and JAX compiles a generator for each shape, which takes
    11 s for MobileNetV2 on a CPU. It covers layers whose initialiser is one of these names, by
    default or as an argument.

    Source: https://keras.io/api/models/model_saving_apis/serialization_utils/ (custom_object_scope)
    """
    import keras

    class Zeros(keras.initializers.GlorotUniform):
        """Draws a seed as the initialiser that it replaces, so that dropout's seeds stay the
        same."""

        def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array:
            return keras.ops.convert_to_tensor(
                numpy.zeros(shape, "float32"), dtype
            )  # compiles nothing

    with keras.saving.custom_object_scope(dict.fromkeys(("glorot_uniform", "he_uniform"), Zeros)):
        yield


@contextmanager
def _keras_in_float64(wanted: bool) -> Iterator[None]:
    """Prevent Keras on JAX from rounding float64 to float32 in its operations, such as batch
    norms and means.

    Keras does so "to be aligned with JAX's default behavior", whatever the dtype policy is and
    whether or not JAX has float64 enabled. `keras.config.set_floatx` and dtype policies do not
    change that, and Keras cannot compute with another framework in the same process. The
    reference would be in float64 by name only. Keras has no public switch.

    Source: keras.src.backend.common.dtypes.result_type (Keras 3.15)

    Raises:
        NotImplementedError: this release of Keras has the table elsewhere, or rounds without it.
    """
    if not wanted:
        yield
        return
    import keras

    rounded = getattr(
        sys.modules.get("keras.src.backend.common.dtypes"), "BIT64_TO_BIT32_DTYPE", {}
    )
    kept = rounded.pop("float64", None)
    try:
        if keras.backend.result_type("float64", "float32") != "float64":
            raise NotImplementedError(
                f"keras {keras.__version__} rounds float64 to float32; allowed: Keras 3.15"
            )
        yield
    finally:
        if kept is not None:
            rounded["float64"] = kept


def to_host(array: Array) -> numpy.ndarray:
    """Return a copy of a tensor, or of a variable's value, as a NumPy array; this waits for it."""
    return numpy.array(array.numpy() if hasattr(array, "numpy") else array)


def dropouts(model) -> list:
    """Return the dropout layers of a Keras model, including those inside other layers."""
    flat = getattr(model, "_flatten_layers", lambda: model.layers)  # private: else without nested
    return [
        layer for layer in flat() if "Dropout" in type(layer).__name__ and hasattr(layer, "rate")
    ]


def is_moving(variable) -> bool:
    """Return whether a Keras variable is a batch norm's moving statistic."""
    return variable.path.rpartition("/")[2].startswith("moving_")


Batch = tuple[Array, Array]


class ResidentArrays:
    """Arrays that stay on a device, where batches are taken and prepared: no loader, no transfer.

    Args:
        device: where they stay.
        inputs, target: NumPy arrays of equal length: images, and the label or mask of each.
        prepare: converts some of `inputs`, on the device, to inputs of the network; in
        keras.ops. Integers of 8 bits
            may be float16 with the same values there, see `as_gatherable`; so may those of
            `target`.
    """

    def __init__(
        self,
        device: Device,
        inputs: numpy.ndarray,
        target: numpy.ndarray,
        prepare: Callable[[Array], Array],
    ) -> None:
        keras = import_keras(device.framework)
        self.device = device
        self.arrays = tuple(
            device.backend.place(device, as_gatherable(device, array)) for array in (inputs, target)
        )
        # Labels of more than 8 bits must be integers again; Keras's losses take narrower ones as
        # floats, too.
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
                batch = self._take(*self.arrays, self.device.backend.place(self.device, indices))
            yield batch  # outside of the block, which would otherwise be open during the step


def as_gatherable(device: Device, array: numpy.ndarray) -> numpy.ndarray:
    """Return an array's values in a type that the framework can gather on the device.

    TensorFlow has no GatherV2 of uint8 for CUDA or Metal, and keeps int32 on the host for every
    device: each step would copy the whole data set. It has kernels for floats on both, which
    hold the same values: integers of 8 bits become float16, others float32.

    Sources: tensorflow/core/kernels/gather_op.cc, tensorflow/python/eager/pywrap_tensor.cc
    (TensorFlow 2.20)

    Raises:
        ValueError: integers that float32 cannot hold.
    """
    if device.framework != "tensorflow" or device.is_cpu or array.dtype.kind not in "iub":
        return array
    floats = array.astype("float16" if array.dtype.itemsize == 1 else "float32")
    changed = floats.astype(array.dtype) != array
    if changed.any():
        raise ValueError(f"{array[changed][0]!r} in resident data; allowed: integers up to 2 ** 24")
    return floats


def evaluation_batch_size(num_images: int, most: int) -> int:
    """Return a batch size over half of `most` that divides the number of images; `most` itself
    if there is none.

    A last batch of another size would need another compilation.
    """
    fewest = math.ceil(num_images / most)
    counts = [count for count in range(fewest, 2 * fewest) if num_images % count == 0]
    return num_images // counts[0] if counts else min(most, num_images)
