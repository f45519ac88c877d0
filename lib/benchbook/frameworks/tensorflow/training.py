"""A Keras model trained by TensorFlow: graphs whose variables change in place.

TensorFlow silently computes an operation on the CPU if the device has no kernel for it. Apple's
plug-in has none for the gradient of ResizeBilinear and for most operations in float16. Every
step then copies inputs and outputs between device and host. The first step counts such
operations.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import tensorflow
from tensorflow.core.framework import graph_pb2

from benchbook.frameworks.keras.networks import Network
from benchbook.frameworks.keras.runtime import Array
from benchbook.frameworks.tensorflow.devices import BACKEND, PRIVATE


class KerasNetwork(Network):
    """A Keras model trained by tf.function, with variables that change in place."""

    def _prepare(self) -> None:
        bodies = self._score_body, self._predict_body, self._differentiate_body, self.train_step
        compiled = (BACKEND.compile_function(body, self.compiled) for body in bodies)
        self._score, self._predict, self._differentiate, train = compiled
        # XLA computes a whole graph on the device where it is called, and next to a CPU there is no
        # other device.
        self._train = (
            train
            if self.compiled or self.device.is_cpu
            else functools.partial(self._train_first, train)
        )

    def _train_first(self, train: Callable, *parts: Any) -> Array:
        """Train on the first batch, which builds the graph, and count its operations that are
        not on the device."""
        collect = getattr(PRIVATE, "collect_graphs", lambda optimized: nullcontext([]))
        with collect(optimized=True) as graphs:
            loss = train(*parts)
        place = BACKEND.handle(self.device)
        self._train = train
        self.misplaced = Counter(name for graph in graphs for name in misplaced(graph, place))
        return loss

    def train_step(self, inputs: Array, target: Array) -> Array:
        with tensorflow.GradientTape() as tape:
            loss = self.loss(self._outputs(self.model(inputs, training=True)), target)
            scaled = self.optimizer.scale_loss(loss)
        gradients = map(_dense, tape.gradient(scaled, self.model.trainable_variables))
        self.optimizer.apply([*gradients], self.model.trainable_variables)
        return loss

    def _predict_body(self, inputs: Array) -> Array:
        return self._outputs(self.model(inputs, training=False))

    def _differentiate_body(
        self, inputs: Array, target: Array, scale: Array
    ) -> tuple[Array, list[Array]]:
        with tensorflow.GradientTape() as tape:
            loss = self.loss(self._outputs(self.model(inputs, training=True)), target)
            scaled = loss * scale
        gradients = tape.gradient(scaled, self.model.trainable_variables)
        return loss, [_dense(gradient) for gradient in gradients]


def _dense(gradient: Any) -> Array | None:
    """Return a gradient as one array; None if there is none.

    An embedding's gradient is a slice for each position of a word. Keras's Adam squares the
    slices one by one: if a batch has a word twice, it adds the squares, and its second moment is
    not that of the gradient.
    """
    return (
        tensorflow.convert_to_tensor(gradient)
        if isinstance(gradient, tensorflow.IndexedSlices)
        else gradient
    )


# Operations that move or name values and compute nothing.
_NO_WORK = """NoOp Const HostConst _Arg _Retval _DeviceArg _DeviceRetval Identity IdentityN _Send
    _Recv _HostSend _HostRecv Switch Merge ControlTrigger VarHandleOp"""
NO_WORK = frozenset(_NO_WORK.split())
TYPES = (
    "T",
    "SrcT",
    "dtype",
    "Tparams",
)  # attributes that hold the type of an operation's input, depending on it


def misplaced(graph: graph_pb2.GraphDef, device: str) -> Iterator[str]:
    """Yield operation and type of each node that computes on another device, such as
    "ResizeBilinearGrad(float32)".

    Args:
        graph: optimised, with the device of each node.
        device: where operations should be, as `tf.device` takes it: "GPU:0".
    """
    for node in graph.node:
        if node.op not in NO_WORK and node.device and not node.device.endswith(device):
            types = [
                tensorflow.dtypes.as_dtype(node.attr[name].type).name
                for name in TYPES
                if name in node.attr
            ]
            yield f"{node.op}({types[0]})" if types else node.op
