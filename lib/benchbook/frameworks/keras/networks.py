"""A Keras model and its compiled steps, behind one interface for TensorFlow and JAX.

TensorFlow changes variables in place; JAX passes a state from step to step. Nothing here reads a
number from the device during training.
"""

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy

from benchbook.frameworks.keras.runtime import (
    POLICIES,
    Array,
    arithmetic,
    dropouts,
    import_keras,
    to_host,
)
from benchbook.frameworks.keras.training import KerasWorkload
from benchbook.machine.precisions import PRECISIONS

FUNCTIONS = (
    "_train",
    "_score",
    "_predict",
    "_differentiate",
)  # attributes of a network that hold compiled functions


class Network:
    """A Keras model and its optimiser; each framework has a subclass that compiles and runs the
    steps.

    Args:
        workload: whose network it is.

    Attributes:
        misplaced: the operations of a training step that another device computes, with their
        counts; the first step
            sets it.
    """

    _prepare: Callable[[], None]  # sets FUNCTIONS
    _train: Callable[..., Array]
    _score: Callable[..., tuple[Array, Array]]
    _predict: Callable[..., Array]
    _differentiate: Callable[..., tuple[Array, list[Array]]]
    _predict_body: Callable[..., Array]

    def __init__(self, workload: KerasWorkload) -> None:
        self.loss, self.accuracy, self.device = workload.loss, workload.accuracy, workload.device
        self.precision, self.compiled = workload.settings.precision, workload.settings.compiled
        self.arithmetic = functools.partial(arithmetic, self.device, self.precision)
        self.keras = import_keras(self.device.framework)
        self.misplaced: dict[str, int] = {}
        precision = PRECISIONS[self.precision]
        self.is_float64 = precision.stored == "float64"
        self._without: dict[
            str, Callable
        ] = {}  # functions compiled without dropout, by the names of FUNCTIONS
        policy, state = self.keras.config.dtype_policy(), random.getstate()
        random.seed(
            workload.seed
        )  # Keras draws the seeds of initialisers and dropout from this generator
        try:
            with self.arithmetic():
                self.keras.config.set_dtype_policy(POLICIES[self.precision])
                self.model, self.optimizer = workload.make_model(), workload.make_optimizer()
                if precision.needs_scaling:  # otherwise small gradients vanish in float16
                    self.optimizer = self.keras.optimizers.LossScaleOptimizer(self.optimizer)
                self.optimizer.build(self.model.trainable_variables)
                self._prepare()
        finally:
            self.keras.config.set_dtype_policy(policy)
            random.setstate(state)

    @property
    def variables(self) -> list:
        """Return everything that training changes: weights, statistics, random seeds, optimiser
        and its step."""
        return [*self.model.variables, *self.optimizer.variables]

    @property
    def is_loss_scaled(self) -> bool:
        """Return whether the optimiser scales the loss, for the precision or by its own
        construction."""
        return hasattr(self.optimizer, "dynamic_scale")

    @property
    def iterations(self):
        """Return the variable that counts the optimiser's steps; its schedule depends on it."""
        return (
            self.optimizer.inner_optimizer if self.is_loss_scaled else self.optimizer
        ).iterations

    def steps_taken(self) -> int:
        """Return the present value of `iterations`."""
        return int(to_host(self.iterations.value))

    def train(self, inputs: Array, target: Array) -> Array:
        """Train on one batch and return its loss, which may be on the device."""
        with self.arithmetic():
            return self._train(*self.scatter(inputs, target))

    def score(self, inputs: Array, target: Array) -> tuple[Array, Array]:
        """Return loss and accuracy of one batch in inference mode; both may be on the device."""
        with self.arithmetic():
            return self._score(*self.scatter(inputs, target))

    def scatter(self, *parts: Array) -> list[Array]:
        """Return parts of a batch on the device, without a copy if they are already there."""
        return [self.device.backend.place(self.device, part) for part in parts]

    def predict(self, inputs: Array) -> numpy.ndarray:
        """Return the outputs for one batch in inference mode."""
        with self.arithmetic():
            return to_host(self._predict(*self.scatter(inputs)))

    def differentiate(
        self, inputs: Array, target: Array, scale: float = 1.0
    ) -> tuple[float, list[numpy.ndarray]]:
        """Return loss and gradients of the trainable variables in float64, computed from the
        loss times `scale`."""
        with self.arithmetic():
            factor = numpy.asarray(scale, "float64" if self.is_float64 else "float32")
            loss, gradients = self._differentiate(
                *self.scatter(inputs, target), *self.scatter(factor)
            )
        return float(loss), [to_host(gradient).astype("float64") / scale for gradient in gradients]

    def load(self, weights: list[numpy.ndarray]) -> None:
        """Give the model these weights, in the order of `model.weights`."""
        self.update_model()
        self.assign(self.model.weights, weights)

    def assign(self, variables: list, values: list[numpy.ndarray]) -> None:
        """Set some of `variables`, and continue training from these values; compiled functions
        stay valid."""
        with self.arithmetic():
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        self.update_state()

    @contextmanager
    def without_dropout(self) -> Iterator[None]:
        """Switch dropout off inside a `with` block, with separately compiled functions; restore
        both afterwards."""
        layers = dropouts(self.model)
        rates = [layer.rate for layer in layers]
        functions = {name: getattr(self, name) for name in FUNCTIONS}
        if not any(rates):
            yield
            return
        try:
            for layer in layers:
                layer.rate = 0.0
            if self._without:  # compiled before
                vars(self).update(self._without)
            else:
                self.update_model()
                with self.arithmetic():
                    self._prepare()
            yield
            self._without = {name: getattr(self, name) for name in FUNCTIONS}
        finally:
            for layer, rate in zip(layers, rates, strict=True):
                layer.rate = rate
            vars(self).update(functions)

    def update_model(self) -> None:
        """Copy the state of training to the model's variables, if it is kept elsewhere."""

    def update_state(self) -> None:
        """Copy the model's variables to the state of training, if it is kept elsewhere."""

    def _score_body(self, *given: Array) -> tuple[Array, Array]:
        *others, target = given
        outputs = self._predict_body(*others)
        return self.loss(outputs, target), self.accuracy(outputs, target)

    def _outputs(self, outputs: Array) -> Array:
        """Return outputs in the precision of the loss: float32, or float64."""
        return outputs if self.is_float64 else self.keras.ops.cast(outputs, "float32")
