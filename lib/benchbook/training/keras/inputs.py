"""Batches for Keras: of arrays that stay on the device, and of a size that is compiled once."""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy

from benchbook.devices import Device
from benchbook.training.keras.runtime import Array, arithmetic, compile_function, import_keras, place

Batch = tuple[Array, Array]


class ResidentArrays:
    """Arrays kept on a device, from which batches are taken and prepared there: no loader, no transfer.

    Args:
        device: which.
        inputs, target: NumPy arrays of n lines each.
        prepare: from lines of `inputs`, on the device, to what the network takes; in keras.ops.
    """

    def __init__(
        self, device: Device, inputs: numpy.ndarray, target: numpy.ndarray, prepare: Callable[[Array], Array]
    ) -> None:
        keras = import_keras(device.framework)
        self.device, self.arrays = device, (place(device, inputs), place(device, target))

        def take(inputs: Array, target: Array, indices: Array) -> Batch:
            return prepare(keras.ops.take(inputs, indices, axis=0)), keras.ops.take(target, indices, axis=0)

        self._take = compile_function(device, take)

    def batches(self, order: Iterable[numpy.ndarray]) -> Iterator[Batch]:
        """Yield a batch for each array of indices, int32."""
        for indices in order:
            with arithmetic(self.device, "fp32"):
                yield self._take(*self.arrays, place(self.device, indices))


def evaluation_batch_size(num_images: int, most: int) -> int:
    """Return a batch size that divides the images and is over half of `most`; `most` itself if there is none.

    A last batch of another size would be compiled for itself.
    """
    fewest = math.ceil(num_images / most)
    counts = [count for count in range(fewest, 2 * fewest) if num_images % count == 0]
    return num_images // counts[0] if counts else min(most, num_images)
