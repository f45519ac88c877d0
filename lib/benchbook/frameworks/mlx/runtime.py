"""MLX's types for each precision, trees of arrays, and batches from the device's memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx
import numpy
from mlx.utils import tree_flatten

from benchbook.machine.precisions import PRECISIONS

# The types in which weights are stored, and those of the inputs, in which a network computes.
# Convolutions have no float64, and nothing scales the loss for float16.
_SUPPORTED = [
    each
    for each in PRECISIONS.values()
    if each.computed in ("float32", "bfloat16") and not each.uses_tf32
]
STORED = {each.name: getattr(mx, each.stored) for each in _SUPPORTED}
COMPUTED = {each.name: getattr(mx, each.computed) for each in _SUPPORTED}
ByPath = dict[str, mx.array]  # the arrays of a tree by their paths


def leaves(tree: Any) -> ByPath:
    """Return the arrays of a tree by their paths."""
    return {path: leaf for path, leaf in tree_flatten(tree) if isinstance(leaf, mx.array)}


def assign(tree: Any, arrays: ByPath) -> None:
    """Replace arrays of a tree by their paths, in place: compiled functions hold the tree."""
    for path, array in arrays.items():
        node, (*parents, last) = tree, path.split(".")
        for key in parents:
            node = node[int(key) if isinstance(node, list | tuple) else key]
        node[int(last) if isinstance(node, list) else last] = array


def to_array(part: numpy.ndarray | mx.array, precision: str) -> mx.array:
    """Return a part of a batch as the network takes it; integers stay integers."""
    array = part if isinstance(part, mx.array) else mx.array(part)
    return array.astype(COMPUTED[precision]) if mx.issubdtype(array.dtype, mx.floating) else array


def to_host(array: mx.array) -> numpy.ndarray:
    """Return an array's values as a NumPy array in float64; this waits for them."""
    return numpy.array(array.astype(mx.float32)).astype("float64")


Batch = tuple[mx.array, mx.array]


class ResidentArrays:
    """Images and labels in the device's memory, where batches are taken.

    A batch is not evaluated: it is computed with the step.

    Args:
        images, labels: NumPy arrays of equal length.
    """

    def __init__(
        self,
        images: numpy.ndarray,
        labels: numpy.ndarray,
    ) -> None:
        self.images, self.labels = mx.array(images), mx.array(labels.astype("int32"))
        mx.eval(self.images, self.labels)

    def batches(self, order: Iterable[numpy.ndarray]) -> Iterator[Batch]:
        """Yield a batch for each array of indices."""
        for indices in order:
            chosen = mx.array(indices)
            yield self.images[chosen], self.labels[chosen]
