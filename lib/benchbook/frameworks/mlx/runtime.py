"""How MLX computes by a workload's settings, and trees of its arrays."""

from collections.abc import Iterable
from typing import Any

import mlx.core as mx
import numpy
from mlx import nn
from mlx.utils import tree_flatten

from benchbook.machine.precisions import PRECISIONS

# What weights are kept in, and what a network is given and so computes in. Convolutions have no float64.
_OWN = [each for each in PRECISIONS.values() if each.stored != "float64" and not each.uses_tf32]
STORED = {each.name: getattr(mx, each.stored) for each in _OWN}
COMPUTED = {each.name: getattr(mx, each.computed) for each in _OWN}
MOVING = ("running_mean", "running_var")  # a batch norm's, which stay in float32


def check_precision(precision: str) -> None:
    """Refuse a precision that MLX does not have.

    Raises:
        NotImplementedError: another one than it has.
    """
    if precision not in STORED:
        raise NotImplementedError(f"MLX in {precision}; allowed: {', '.join(STORED)}")


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


def store(model: nn.Module, precision: str) -> None:
    """Keep a network's weights as the precision has them."""
    kept = {path: array for path, array in leaves(model.parameters()).items() if not path.endswith(MOVING)}
    assign(model, {path: array.astype(STORED[precision]) for path, array in kept.items()})


def to_array(part: numpy.ndarray | mx.array, precision: str) -> mx.array:
    """Return a part of a batch as the network takes it; numbers that are whole stay so."""
    array = part if isinstance(part, mx.array) else mx.array(part)
    return array.astype(COMPUTED[precision]) if mx.issubdtype(array.dtype, mx.floating) else array


def to_host(array: mx.array) -> numpy.ndarray:
    """Return an array's values as NumPy has them, in float64; this waits for them."""
    return numpy.array(array.astype(mx.float32)).astype("float64")


def hanging_on(array: mx.array, others: Iterable[mx.array]) -> mx.array:
    """Return an array that is not there before the others are."""
    return mx.depends(array, list(others))
