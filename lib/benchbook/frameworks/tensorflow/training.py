"""A Keras model trained by TensorFlow: graphs whose variables change in place, on one device or mirrored on several.

An operation for which a device has no kernel is computed by the CPU, without a word: Apple's plug-in has none for the
gradient of ResizeBilinear, nor for most of float16. Its inputs travel to the host and its outputs back, in every step.
So a first step is watched.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import tensorflow
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.eager import context

from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.networks import Network
from benchbook.frameworks.keras.runtime import Array
from benchbook.frameworks.tensorflow.devices import BACKEND

Outputs = Any  # an array, or a list or tuple of them


class KerasNetwork(Network):
    """A Keras model trained by tf.function, whose variables change in place.

    Several devices are one MirroredStrategy: each has a copy of the variables and its part of a batch, and gradients
    are averaged. Source: https://www.tensorflow.org/tutorials/distribute/custom_training

    Raises:
        NotImplementedError: XLA, or a scaled loss, on several devices.
    """

    FUNCTIONS = ("_score", "_predict", "_differentiate", "_train")

    def scope(self) -> AbstractContextManager:
        """Return where the model and its optimiser are made."""
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
        # XLA computes a graph as a whole where it is called, and on a CPU there is no other place.
        self._train = train if compiled or self.device.is_cpu else functools.partial(self._watched, train)

    def spread(self, *parts: Array) -> list[Any]:
        """Return parts of a batch on the device, or the share of each; each has all of what does not divide."""
        if self.device.count == 1:
            return super().spread(*parts)
        return [self._shares(part) for part in parts]

    def gather(self, part: Any) -> Array:
        """Return a part of a batch in one piece, spread or not."""
        if isinstance(part, tensorflow.distribute.DistributedValues):
            return tensorflow.concat(self._strategy.experimental_local_results(part), 0)
        return part

    def num_images(self, part: Any) -> int:
        """Return the images in a part of a batch, spread or not."""
        if isinstance(part, tensorflow.distribute.DistributedValues):
            return sum(len(share) for share in self._strategy.experimental_local_results(part))
        return len(part)

    def share_statistics(self) -> None:
        """Give every device the first one's moving statistics: each has seen its part of the batches alone."""
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
        """Return what runs a body on every device, with its share, and averages what it returns."""

        def run(*parts: Any) -> Outputs:
            outputs = self._strategy.run(body, parts)
            return tensorflow.nest.map_structure(lambda one: self._strategy.reduce("MEAN", one, axis=None), outputs)

        return run

    def _watched(self, train: Callable, *parts: Any) -> Array:
        """Train on the first batch, which builds the graph, and note what of it is not on the device."""
        with watch(map(BACKEND.handle, self._each)) as self.misplaced:
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
    """Return a gradient in one piece, None where there is none.

    An embedding's are slices, one for each place of a word. Keras's Adam squares them one by one, and adds the squares
    where a batch has a word twice: its second moment is not that of the gradient.
    """
    return tensorflow.convert_to_tensor(gradient) if isinstance(gradient, tensorflow.IndexedSlices) else gradient


@functools.cache
def _mirrored(*handles: str) -> tensorflow.distribute.MirroredStrategy:
    """Return the one strategy of these devices: a second one would number its exchanges as the first one does."""
    return tensorflow.distribute.MirroredStrategy(handles)


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
