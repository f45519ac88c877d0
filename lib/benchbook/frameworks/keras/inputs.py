"""Batches for Keras: of arrays that stay on the device, and of a size that is compiled once."""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy

from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.runtime import Array, arithmetic, import_keras

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
