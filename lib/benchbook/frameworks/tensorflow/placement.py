"""Which operations of a training step TensorFlow places on another device than the one that was chosen.

An operation for which a device has no kernel is computed by the CPU, without a word: Apple's plug-in has none for the
gradient of ResizeBilinear, nor for most of float16. Its inputs travel to the host and its outputs back, in every step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import tensorflow
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.eager import context

# What moves or names values and computes nothing.
NO_WORK = frozenset(
    {
        *("NoOp", "Const", "HostConst", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Identity", "IdentityN"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "Switch", "Merge", "ControlTrigger", "VarHandleOp"),
    }
)
TYPES = ("T", "SrcT", "dtype", "Tparams")  # the attribute that names the type of an operation's input, by operation


@contextmanager
def watch(devices: Iterable[str]) -> Iterator[Counter]:
    """Count the operations that are placed elsewhere, of the graphs that are first called inside the `with` block.

    Args:
        devices: where they should be, as `tf.device` takes them: "GPU:0".

    Yields:
        Counts by operation and type, such as "ResizeBilinearGrad(float32)", filled in when the block ends.
    """
    counts = Counter()
    with context.collect_graphs(optimized=True) as graphs:
        yield counts
    for graph in graphs:
        counts.update(elsewhere(graph, tuple(devices)))


def elsewhere(graph: graph_pb2.GraphDef, devices: tuple[str, ...]) -> Iterator[str]:
    """Yield operation and type of each node that computes and is placed on none of the devices."""
    for node in graph.node:
        if node.op not in NO_WORK and node.device and not node.device.endswith(devices):
            yield _title(node)


def _title(node: node_def_pb2.NodeDef) -> str:
    types = [tensorflow.dtypes.as_dtype(node.attr[name].type).name for name in TYPES if name in node.attr]
    return f"{node.op}({types[0]})" if types else node.op
