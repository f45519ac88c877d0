"""Which operations of a TensorFlow graph have a kernel for a GPU that is not here.

What CUDA has is asked of TensorFlow's own registry: the wheel for Linux registers its GPU kernels on every machine.
What Metal has stands in metal_kernels.csv, which `make lock` reads from Apple's plug-in; the kernels that TensorFlow
registers for every plug-in, as device type DEFAULT, come on top.
"""

import csv
import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tensorflow
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import kernels, op_def_registry

TABLE = Path(__file__).parent / "metal_kernels.csv"
# Calls of other functions, whose nodes are looked at themselves; they need no kernel of a GPU's own.
CALLS = {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case"}
# Arguments and results of functions, which are no work.
BOUNDARY = {"_Arg", "_Retval", "Placeholder", "NoOp", "Const"}
TYPE_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


@dataclass(frozen=True)
class Kernel:
    """A kernel that is registered for a kind of GPU.

    Attributes:
        types: allowed types, by attribute; an attribute that is not named may have any.
        host: arguments that lie in the host's memory.
    """

    types: dict[str, frozenset[str]]
    host: frozenset[str]

    def fits(self, types: dict[str, str]) -> bool:
        """Return whether it computes a node of these types."""
        return all(types.get(name) in allowed for name, allowed in self.types.items())


def missing(function, has) -> Counter:
    """Return how often each operation without a kernel occurs in a concrete function, as "Op(attribute=type)".

    Args:
        function: from `tf.function(...).get_concrete_function`.
        has: `cuda` or `metal`.
    """
    absent = Counter()
    for node in nodes(function):
        types = types_of(node)
        if node.op not in CALLS | BOUNDARY and not any(kernel.fits(types) for kernel in has(node.op)):
            absent[f"{node.op}({', '.join(f'{name}={kind}' for name, kind in sorted(types.items()))})"] += 1
    return absent


def nodes(function) -> list[node_def_pb2.NodeDef]:
    """Return every node of a concrete function and of the functions that it calls, once each."""
    graph = function.graph.as_graph_def()
    return [*graph.node, *(node for called in graph.library.function for node in called.node_def)]


def types_of(node: node_def_pb2.NodeDef) -> dict[str, str]:
    """Return a node's types by attribute, as the registries name them."""
    return {name: type_name(value.type) for name, value in node.attr.items() if value.WhichOneof("value") == "type"}


@functools.cache
def type_name(number: int) -> str:
    """Return the registries' name of a type's number."""
    name = tensorflow.dtypes.as_dtype(number).name
    return TYPE_NAMES.get(name, name)


@functools.cache
def cuda(op: str) -> tuple[Kernel, ...]:
    """Return the kernels that this TensorFlow has for NVIDIA's GPUs."""
    return _registered(op, "GPU") + _registered(op, "DEFAULT")


@functools.cache
def metal(op: str) -> tuple[Kernel, ...]:
    """Return the kernels that Apple's plug-in has, and those of TensorFlow for every plug-in."""
    return _metal_table().get(op, ()) + _registered(op, "DEFAULT")


@functools.cache
def _metal_table() -> dict[str, tuple[Kernel, ...]]:
    table = {}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            pairs = (pair.split("=") for pair in row["types"].split(";") if pair)
            types = {name: frozenset([kind]) for name, kind in pairs}
            kernel = Kernel(types, frozenset(row["host"].split(";")) - {""})
            table[row["op"]] = (*table.get(row["op"], ()), kernel)
    return table


def _registered(op: str, device_type: str) -> tuple[Kernel, ...]:
    if op_def_registry.get(op) is None:
        return ()
    return tuple(
        Kernel(
            {each.name: frozenset(map(type_name, each.allowed_values.list.type)) for each in kernel.constraint},
            frozenset(kernel.host_memory_arg),
        )
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
        if kernel.device_type == device_type and not kernel.label
    )
