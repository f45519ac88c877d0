"""How MLX computes by a workload's settings, trees of its arrays, and batches that lie in the device's memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mlx.core as mx
import numpy
from mlx.utils import tree_flatten

from benchbook.machine.precisions import PRECISIONS

# What weights are kept in, and what a network is given and so computes in. Convolutions have no float64.
_OWN = [each for each in PRECISIONS.values() if each.stored != "float64" and not each.uses_tf32]
STORED = {each.name: getattr(mx, each.stored) for each in _OWN}
COMPUTED = {each.name: getattr(mx, each.computed) for each in _OWN}
MOVING = ("running_mean", "running_var")  # a batch norm's, which stay in float32


def leaves(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree by their paths."""
    return {path: leaf for path, leaf in tree_flatten(tree) if isinstance(leaf, mx.array)}


def assign(tree: Any, arrays: dict[str, mx.array]) -> None:
    """Put arrays into a tree by their paths, in place: compiled functions hold the tree."""
    for path, array in arrays.items():
        node, (*parents, last) = tree, path.split(".")
        for key in parents:
            node = node[int(key) if isinstance(node, list | tuple) else key]
        node[int(last) if isinstance(node, list) else last] = array


def to_array(part: numpy.ndarray | mx.array, precision: str) -> mx.array:
    """Return a part of a batch as the network takes it; numbers that are whole stay so."""
    array = part if isinstance(part, mx.array) else mx.array(part)
    return array.astype(COMPUTED[precision]) if mx.issubdtype(array.dtype, mx.floating) else array


def to_host(array: mx.array) -> numpy.ndarray:
    """Return an array's values as a NumPy array in float64; this waits for them."""
    return numpy.array(array.astype(mx.float32)).astype("float64")


def hanging_on(array: mx.array, others: Iterable[mx.array]) -> mx.array:
    """Return an array that is not there before the others are."""
    return mx.depends(array, list(others))


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
