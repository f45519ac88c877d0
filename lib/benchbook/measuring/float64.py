"""Train the study's plain network in float64 on the CPU, by code that shares nothing with the
code it checks.

There are three implementations: torch, Keras on TensorFlow and Keras on JAX. Each returns loss,
gradients and moving statistics of one batch; a plain optimiser of `benchbook.frameworks.plain`
updates the weights.
"""

import functools
import math
import resource
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy
import psutil

from benchbook.frameworks import devices
from benchbook.frameworks.plain import Arrays, Plain
from benchbook.machine import control_groups
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import failures

# Errors of operations that float64 lacks, in a network that was just trained in another precision.
REFUSALS = (NotImplementedError, TypeError, RuntimeError, ValueError)
LONGEST_REFUSAL = 500  # characters
LAST = 2  # parameters of a network, such as the weights and offsets of its last layer


class Step(NamedTuple):
    """One step of the reference.

    Attributes:
        weights, statistics: before the step, by name.
        loss: the batch's mean.
        gradients: by name.
        next_statistics: moving statistics after the step.
        whole_loss, last_gradients: from `of_batch`, in the first step.
    """

    weights: Arrays
    statistics: Arrays
    loss: float
    gradients: Arrays
    next_statistics: Arrays
    whole_loss: float | None = None
    last_gradients: Arrays | None = None


@contextmanager
def naming_refusals() -> Iterator[None]:
    """Name the operation that float64 on the CPU lacks, for example if a network itself casts to
    another precision.

    Raises:
        NotImplementedError: the framework refused an operation; a lack of memory and other
        errors are raised unchanged.
    """
    try:
        yield
    except Exception as error:
        # TensorFlow's errors share no class with Python's.
        refused = isinstance(error, REFUSALS) or type(error).__module__.startswith("tensorflow")
        if not refused or failures.status_of(type(error).__name__, str(error)) == "out_of_memory":
            raise
        first = error
        while first.__cause__ is not None:
            first = first.__cause__
        frames = traceback.extract_tb(first.__traceback__)
        line = [frame.line for frame in frames if frame.name != "__torch_function__"][
            -1
        ]  # that called the operation
        message = " ".join(str(first).split())[:LONGEST_REFUSAL]
        refusal = f"float64 on the CPU: {type(first).__name__} at `{line}`: {message}"
        raise NotImplementedError(refusal) from error


class Torch:
    """The plain network in torch.

    Args:
        plain: of the study. weights, statistics: of the workload, by name; those that the plain
        network lacks are ignored.
        dtype: the type that it computes in.
        last: how many parameters have gradients, the last ones; 0: all.
    """

    def __init__(
        self,
        plain: Plain,
        weights: Arrays,
        statistics: Arrays,
        dtype: str = "float64",
        last: int = 0,
    ) -> None:
        import torch

        from benchbook.frameworks.torch import subject

        self.plain, self.torch, self.dtype, self.subject = (
            plain,
            torch,
            getattr(torch, dtype),
            subject,
        )
        with torch.random.fork_rng(devices=[]):
            self.network = plain.make_network().cpu()
        subject.cast(self.network, self.dtype)
        self.parameters = {
            name: part for name, part in self.network.named_parameters() if part.requires_grad
        }
        self.fewest_normalised = math.inf
        for layer in self.network.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.register_forward_pre_hook(self._count)
        self.load(weights, statistics)
        for name in list(self.parameters)[: -last or 0]:
            self.parameters.pop(name).requires_grad_(False)

    def _count(self, layer: Any, inputs: tuple) -> None:
        """Keep the fewest values of a channel that a batch norm normalises."""
        if layer.training:
            values = inputs[0].numel() // inputs[0].shape[1]
            self.fewest_normalised = min(values, self.fewest_normalised)

    @property
    def buffers(self) -> dict[str, Any]:
        """Return the floating buffers by name; a step may have replaced some."""
        buffers = self.network.named_buffers()
        return {name: part for name, part in buffers if part.is_floating_point()}

    def weights(self) -> Arrays:
        """Return every parameter; a step may have replaced some."""
        return {name: self.subject.to_host(part) for name, part in self.network.named_parameters()}

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Take over weights and moving statistics."""
        with self.torch.no_grad():
            for parts, arrays in ((self.parameters, weights), (self.buffers, statistics)):
                for name in parts.keys() & arrays.keys():
                    self.subject.assign(parts[name], arrays[name])

    def differentiate(self, inputs: tuple | dict, target: Any) -> tuple[float, Arrays, Arrays]:
        """Return loss, gradients and moving statistics of one batch."""
        from torch.utils._pytree import tree_map_only

        to_host = self.subject.to_host
        inputs, target = tree_map_only(numpy.ndarray, self._tensor, (inputs, target))
        with self.subject.without_dropout(self.network, self.plain.may_be_random):
            loss = self.plain.loss(self.subject.call(self.network, inputs), target)
            self.network.zero_grad()
            if (
                loss.requires_grad
            ):  # the last parameters may be unused, or in a reentrant checkpoint
                # unlike `autograd.grad`, it also passes through reentrant checkpoints
                loss.backward()
        zeros, parts = self.torch.zeros_like, self.parameters.items()
        gradients = {
            name: to_host(zeros(part) if part.grad is None else part.grad) for name, part in parts
        }
        return loss.item(), gradients, {name: to_host(part) for name, part in self.buffers.items()}

    def _tensor(self, part: numpy.ndarray):
        tensor = self.torch.from_numpy(numpy.ascontiguousarray(part)).reshape(
            part.shape
        )  # a flag has no dimension
        if tensor.is_floating_point():
            return tensor.to(self.dtype)
        return tensor if tensor.dtype in (self.torch.bool, self.torch.complex128) else tensor.long()


class Keras:
    """The plain network in Keras, on TensorFlow or JAX; parameters have the workload's names, in
    the model's order."""

    fewest_normalised = math.inf  # unknown

    def __init__(
        self,
        plain: Plain,
        weights: Arrays,
        statistics: Arrays,
        framework: str,
        dtype: str = "float64",
        last: int = 0,
    ) -> None:
        from benchbook.frameworks.keras.runtime import (
            arithmetic,
            dropouts,
            import_keras,
            is_moving,
            to_host,
        )

        self.plain, self.keras, self.to_host, self.dtype = (
            plain,
            import_keras(framework),
            to_host,
            dtype,
        )
        precision = next(name for name, each in PRECISIONS.items() if each.stored == dtype)
        self._arithmetic = functools.partial(arithmetic, devices.pick("cpu", framework), precision)
        self.is_jax = framework == "jax"
        policy = self.keras.config.dtype_policy()
        try:
            self.keras.config.set_dtype_policy(dtype)
            with self._arithmetic():
                self.model = plain.make_network()
        finally:
            self.keras.config.set_dtype_policy(policy)
        for layer in dropouts(self.model):
            layer.rate = 0.0
        kinds = [], []
        for variable in self.model.weights:
            kinds[is_moving(variable)].append(id(variable))
        self.names = {
            place: name
            for places, names in zip(kinds, (weights, statistics), strict=True)
            for place, name in zip(places, names, strict=True)
        }
        self.load(weights, statistics)
        for variable in self.model.trainable_variables[: -last or 0]:
            variable.trainable = False

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Take over weights and moving statistics."""
        arrays = weights | statistics
        with self._arithmetic():
            for variable in self.model.weights:
                if self.names[id(variable)] in arrays:
                    variable.assign(arrays[self.names[id(variable)]])

    def weights(self) -> Arrays:
        """Return the trained parameters."""
        trained = self.model.trainable_variables
        return {self.names[id(part)]: self.to_host(part.value) for part in trained}

    def differentiate(self, inputs: tuple, target: numpy.ndarray) -> tuple[float, Arrays, Arrays]:
        """Return loss, gradients and moving statistics of one batch."""
        with self._arithmetic():
            loss, gradients = (self._by_jax if self.is_jax else self._by_tensorflow)(
                inputs[0], target
            )
        trainable = (self.names[id(variable)] for variable in self.model.trainable_variables)
        statistics = [
            variable
            for variable in self.model.non_trainable_variables
            if id(variable) in self.names
        ]
        return (
            float(loss),
            dict(zip(trainable, map(self.to_host, gradients), strict=True)),
            {self.names[id(variable)]: self.to_host(variable.value) for variable in statistics},
        )

    def _by_tensorflow(self, images: numpy.ndarray, target: numpy.ndarray) -> tuple:
        import tensorflow

        trained = [variable.value for variable in self.model.trainable_variables]
        with tensorflow.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trained)
            loss = self.plain.loss(
                self.model(tensorflow.constant(images, self.dtype), training=True), target
            )
        gradients = tape.gradient(loss, trained, unconnected_gradients="zero")
        return loss, [
            tensorflow.convert_to_tensor(gradient) for gradient in gradients
        ]  # an embedding's is sparse

    def _by_jax(self, images: numpy.ndarray, target: numpy.ndarray) -> tuple:
        groups = self.model.trainable_variables, self.model.non_trainable_variables
        values = [[variable.value for variable in group] for group in groups]
        (value, updated), gradients = self._jitted(*values, images.astype(self.dtype), target)
        for variable, array in zip(groups[1], updated, strict=True):
            variable.assign(array)
        return value, gradients

    @functools.cached_property
    def _jitted(self) -> Callable:
        import jax

        def loss(
            trainable: list, others: list, images: numpy.ndarray, target: numpy.ndarray
        ) -> tuple:
            outputs, updated = self.model.stateless_call(trainable, others, images, training=True)
            return self.plain.loss(outputs, target), updated

        return jax.jit(jax.value_and_grad(loss, has_aux=True))


def maker(framework: str) -> Callable:
    """Return what makes the plain network in torch, or in Keras on tensorflow or jax."""
    return Torch if framework == "torch" else functools.partial(Keras, framework=framework)


def follow(
    framework: str,
    plain: Plain,
    weights: Arrays,
    statistics: Arrays,
    batches: list[tuple],
    whole: tuple = (),
) -> Iterator[Step]:
    """Yield the reference's steps, one for each batch, computed when it is requested.

    Args:
        framework: torch, tensorflow or jax.
        plain, weights, statistics: see `Torch`.
        batches: on the host, as a loader delivers them.
        whole: the batch whose part the first one is; empty: it is no part.
    """
    make = maker(framework)
    if plain.parity_weights:
        weights = plain.parity_weights(
            lambda begun: make(plain, begun, statistics, dtype="float32"), weights
        )
    of_whole = of_batch(functools.partial(make, plain, weights, statistics), plain, whole)
    with naming_refusals():
        network, optimizer = make(plain, weights, statistics), plain.make_optimizer()
    for number, batch in enumerate(batches):
        if number:
            network.load(weights, statistics)
        inputs, target = plain.inputs(batch)
        with naming_refusals():
            loss, gradients, updated = network.differentiate(inputs, target)
            gradients = plain.clipped(gradients)
        mean = loss / len(batch[0]) if plain.loss_is_sum else loss
        updated = {
            name: updated[name] for name in statistics
        }  # a workload may have folded its batch norms away
        yield Step(weights, statistics, mean, gradients, updated, *(() if number else of_whole))
        if number + 1 < len(batches):
            weights = weights | optimizer.step(weights, gradients, plain.schedule_start + number)
            statistics = updated


def of_batch(make: Callable, plain: Plain, batch: tuple) -> tuple[float | None, Arrays | None]:
    """Return the loss of a whole batch and the gradients of the last parameters, in float32;
    None without memory."""
    if not batch:
        return None, None
    try:
        with (
            _free_memory(),
            warnings.catch_warnings(action="ignore"),
        ):  # a checkpoint of layers without gradients warns
            loss, gradients, _ = make(dtype="float32", last=LAST).differentiate(
                *plain.inputs(batch)
            )
    except Exception as error:
        if failures.status_of(type(error).__name__, str(error)) != "out_of_memory":
            raise
        return None, None
    gradients = {
        name: part for name, part in gradients.items() if part.any()
    }  # unused parameters have none
    return loss / len(batch[0]) if plain.loss_is_sum else loss, gradients


@contextmanager
def _free_memory() -> Iterator[None]:
    """Let Linux refuse more memory than is free inside a `with` block; it would end the process
    otherwise."""
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = getattr(psutil.Process().memory_info(), "data", None)
    if used is not None:
        free = psutil.virtual_memory().available
        left = control_groups.memory_left()
        free = free if left is None else min(free, left)
        resource.setrlimit(resource.RLIMIT_DATA, (used + free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
