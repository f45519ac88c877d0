"""A Keras model trained by TensorFlow: graphs whose variables change in place, on one device or mirrored on several.

TensorFlow silently computes an operation on the CPU if the device has no kernel for it. Apple's plug-in has none for
the gradient of ResizeBilinear and for most operations in float16. Every step then copies inputs and outputs between
device and host. The first step counts such operations.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import tensorflow
from tensorflow.core.framework import graph_pb2
from tensorflow.python.eager import context

from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.networks import Network
from benchbook.frameworks.keras.runtime import Array
from benchbook.frameworks.tensorflow.devices import BACKEND

Outputs = Any  # an array, or a list or tuple of arrays


class KerasNetwork(Network):
    """A Keras model trained by tf.function, with variables that change in place.

    A MirroredStrategy gives each of several devices a copy of the variables and a share of each batch, and averages
    the gradients. Source: https://www.tensorflow.org/tutorials/distribute/custom_training

    Raises:
        NotImplementedError: XLA, or a scaled loss, on several devices.
    """

    FUNCTIONS = ("_score", "_predict", "_differentiate", "_train")

    def scope(self) -> AbstractContextManager:
        """Return the context in which model and optimiser are made."""
        return self._strategy.scope() if self.device.count > 1 else nullcontext()

    @property
    def _each(self) -> list[Device]:
        return [replace(self.device, index=self.device.index + n, count=1) for n in range(self.device.count)]

    @property
    def _strategy(self) -> tensorflow.distribute.MirroredStrategy:
        return _mirrored(*map(BACKEND.handle, self._each))

    def _prepare(self) -> None:
        compiled = self.compiled
        several = self.device.count > 1
        if several and (compiled or self.is_loss_scaled):
            refused = "compiled True" if compiled else f"precision {self.precision}"
            raise NotImplementedError(
                f"{refused} on several devices with tensorflow; allowed: compiled False, without a scaled loss"
            )

        def function(body: Callable) -> Callable:
            return BACKEND.compile_function(self._everywhere(body) if several else body, compiled)

        self._score = function(self._score_body)
        self._predict = BACKEND.compile_function(self._predict_body, compiled)
        self._differentiate = function(self._differentiate_body)
        train = function(self._train_body)
        # XLA computes a whole graph on the device where it is called, and next to a CPU there is no other device.
        self._train = train if compiled or self.device.is_cpu else functools.partial(self._train_first, train)

    def scatter(self, *parts: Array) -> list[Any]:
        """Return parts of a batch on the device, or split into shares; each device has all of an indivisible part."""
        if self.device.count == 1:
            return super().scatter(*parts)
        return [self._shares(part) for part in parts]

    def gather(self, part: Any) -> Array:
        """Return a part of a batch as one array, whether or not it is split."""
        if isinstance(part, tensorflow.distribute.DistributedValues):
            return tensorflow.concat(self._strategy.experimental_local_results(part), 0)
        return part

    def num_images(self, part: Any) -> int:
        """Return the number of images in a part of a batch, whether or not it is split."""
        if isinstance(part, tensorflow.distribute.DistributedValues):
            return sum(len(share) for share in self._strategy.experimental_local_results(part))
        return len(part)

    def share_statistics(self) -> None:
        """Give every device the first one's moving statistics: each has only seen its share of the batches."""
        if self.device.count > 1:
            for variable in self.model.non_trainable_variables:
                variable.assign(variable.value.numpy())

    def _shares(self, part: Array) -> Any:
        if isinstance(part, tensorflow.distribute.DistributedValues):
            return part
        count = self.device.count
        whole = not part.ndim or len(part) % count
        shares = [part] * count if whole else tensorflow.split(part, count)
        there = [BACKEND.place(device, share) for device, share in zip(self._each, shares, strict=True)]
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: there[context.replica_id_in_sync_group]
        )

    def _everywhere(self, body: Callable) -> Callable:
        """Return a function that runs a body on every device with its share, and averages the outputs."""

        def run(*parts: Any) -> Outputs:
            outputs = self._strategy.run(body, parts)
            return tensorflow.nest.map_structure(lambda one: self._strategy.reduce("MEAN", one, axis=None), outputs)

        return run

    def _train_first(self, train: Callable, *parts: Any) -> Array:
        """Train on the first batch, which builds the graph, and count its operations that are not on the device."""
        with count_misplaced(map(BACKEND.handle, self._each)) as self.misplaced:
            loss = train(*parts)
        self._train = train
        return loss

    def _train_body(self, inputs: Array, target: Array) -> Array:
        with tensorflow.GradientTape() as tape:
            loss = self.loss(self._outputs(self.model(inputs, training=True)), target)
            scaled = self.optimizer.scale_loss(loss)
        gradients = map(_dense, tape.gradient(scaled, self.model.trainable_variables))
        # Keras adds the gradients of all devices.
        shares = [gradient / self.device.count if self.device.count > 1 else gradient for gradient in gradients]
        self.optimizer.apply(shares, self.model.trainable_variables)
        return loss

    def _score_body(self, inputs: Array, target: Array) -> tuple[Array, Array]:
        outputs = self._predict_body(inputs)
        return self.loss(outputs, target), self.accuracy(outputs, target)

    def _predict_body(self, inputs: Array) -> Array:
        return self._outputs(self.model(inputs, training=False))

    def _differentiate_body(self, inputs: Array, target: Array, scale: Array) -> tuple[Array, list[Array]]:
        with tensorflow.GradientTape() as tape:
            loss = self.loss(self._outputs(self.model(inputs, training=True)), target)
            scaled = loss * scale
        gradients = tape.gradient(scaled, self.model.trainable_variables)
        return loss, [_dense(gradient) for gradient in gradients]


def _dense(gradient: Any) -> Array | None:
    """Return a gradient as one array; None if there is none.

    An embedding's gradient is a slice for each position of a word. Keras's Adam squares the slices one by one: if a
    batch has a word twice, it adds the squares, and its second moment is not that of the gradient.
    """
    return tensorflow.convert_to_tensor(gradient) if isinstance(gradient, tensorflow.IndexedSlices) else gradient


@functools.cache
def _mirrored(*handles: str) -> tensorflow.distribute.MirroredStrategy:
    """Return the only strategy of these devices: a second one would number its collectives like the first."""
    return tensorflow.distribute.MirroredStrategy(handles)


# Operations that move or name values and compute nothing.
NO_WORK = frozenset(
    {
        *("NoOp", "Const", "HostConst", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Identity", "IdentityN"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "Switch", "Merge", "ControlTrigger", "VarHandleOp"),
    }
)
TYPES = ("T", "SrcT", "dtype", "Tparams")  # attributes that hold the type of an operation's input, depending on it


@contextmanager
def count_misplaced(devices: Iterable[str]) -> Iterator[Counter]:
    """Count the operations on other devices, in the graphs that are first called inside the `with` block.

    Args:
        devices: where operations should be, as `tf.device` takes them: "GPU:0".

    Yields:
        Counts by operation and type, such as "ResizeBilinearGrad(float32)", filled in when the block ends.
    """
    counts = Counter()
    with context.collect_graphs(optimized=True) as graphs:
        yield counts
    for graph in graphs:
        counts.update(misplaced(graph, tuple(devices)))


def misplaced(graph: graph_pb2.GraphDef, devices: tuple[str, ...]) -> Iterator[str]:
    """Yield operation and type of each node that computes and is on none of the devices."""
    for node in graph.node:
        if node.op not in NO_WORK and node.device and not node.device.endswith(devices):
            types = [tensorflow.dtypes.as_dtype(node.attr[name].type).name for name in TYPES if name in node.attr]
            yield f"{node.op}({types[0]})" if types else node.op
