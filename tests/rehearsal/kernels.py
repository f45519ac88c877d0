"""Which operations of a TensorFlow graph have a kernel for NVIDIA's GPUs, by TensorFlow's own
registry.

The wheel for Linux registers its GPU kernels on every machine.
"""

import functools
from collections import Counter

import tensorflow
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import kernels, op_def_registry

# Calls of other functions, whose nodes are looked at themselves; they need no kernel of a GPU's
# own.
CALLS = {
    "PartitionedCall",
    "StatefulPartitionedCall",
    "If",
    "StatelessIf",
    "While",
    "StatelessWhile",
    "Case",
}
# Arguments and results of functions, which are no work.
BOUNDARY = {"_Arg", "_Retval", "Placeholder", "NoOp", "Const"}
TYPE_NAMES = {"float32": "float", "float64": "double", "float16": "half"}


def missing(function) -> Counter:
    """Return how often each operation without a kernel occurs in a concrete function, as
    "Op(attribute=type)".

    Args:
        function: from `tf.function(...).get_concrete_function`.
    """
    absent = Counter()
    for node in nodes(function):
        types = types_of(node)
        fits = (
            all(types.get(name) in allowed for name, allowed in kernel.items())
            for kernel in cuda(node.op)
        )
        if node.op not in CALLS | BOUNDARY and not any(fits):
            absent[
                f"{node.op}({', '.join(f'{name}={kind}' for name, kind in sorted(types.items()))})"
            ] += 1
    return absent


def nodes(function) -> list[node_def_pb2.NodeDef]:
    """Return every node of a concrete function and of the functions that it calls, once each."""
    graph = function.graph.as_graph_def()
    return [*graph.node, *(node for called in graph.library.function for node in called.node_def)]


def types_of(node: node_def_pb2.NodeDef) -> dict[str, str]:
    """Return a node's types by attribute, as the registry names them."""
    return {
        name: type_name(value.type)
        for name, value in node.attr.items()
        if value.WhichOneof("value") == "type"
    }


@functools.cache
def type_name(number: int) -> str:
    """Return the registry's name of a type's number."""
    name = tensorflow.dtypes.as_dtype(number).name
    return TYPE_NAMES.get(name, name)


@functools.cache
def cuda(op: str) -> list[dict[str, frozenset[str]]]:
    """Return the types that each kernel for NVIDIA's GPUs allows, by attribute; an attribute not
    named may have any."""
    if op_def_registry.get(op) is None:
        return []
    return [
        {
            each.name: frozenset(map(type_name, each.allowed_values.list.type))
            for each in kernel.constraint
        }
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
        if kernel.device_type in ("GPU", "DEFAULT") and not kernel.label
    ]
