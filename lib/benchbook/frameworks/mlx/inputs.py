"""Batches for MLX of arrays that lie in the device's memory: no loader, no transfer."""

from collections.abc import Callable, Iterable, Iterator

import mlx.core as mx
import numpy

Batch = tuple[mx.array, mx.array]


class ResidentArrays:
    """Images and labels that stay where the device reads them, from which batches are taken there.

    A batch is a plan that the step computes with its other work.

    Args:
        images, labels: NumPy arrays, of n each.
        prepare: from some of the images to what the network takes.
    """

    def __init__(
        self, images: numpy.ndarray, labels: numpy.ndarray, prepare: Callable[[mx.array], mx.array] = lambda part: part
    ) -> None:
        self.images, self.labels, self.prepare = mx.array(images), mx.array(labels.astype("int32")), prepare
        mx.eval(self.images, self.labels)

    def batches(self, order: Iterable[numpy.ndarray]) -> Iterator[Batch]:
        """Yield a batch for each array of indices."""
        for indices in order:
            chosen = mx.array(indices)
            yield self.prepare(self.images[chosen]), self.labels[chosen]
