"""A Keras model and its compiled steps, behind one interface for TensorFlow and JAX.

Keras leaves the loop to the framework: TensorFlow changes variables in place, JAX hands a state from step to step.
Nothing here reads a number from the device while it trains.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy

from benchbook.frameworks.keras.runtime import POLICIES, Array, arithmetic, dropouts, import_keras, to_host
from benchbook.frameworks.keras.training import KerasWorkload
from benchbook.machine.precisions import PRECISIONS


class Network:
    """What both frameworks share.

    Args:
        workload: whose network it is.

    Attributes:
        misplaced: how often each operation of a training step is computed on another device than the chosen one; the
            first step fills it in.
        FUNCTIONS: attributes that hold compiled functions.
    """

    FUNCTIONS: tuple[str, ...] = ()

    def __init__(self, workload: KerasWorkload) -> None:
        self.loss, self.accuracy, self.device = workload.loss, workload.accuracy, workload.device
        self.precision, self.compiled = workload.settings.precision, workload.settings.compiled
        self.keras = import_keras(self.device.framework)
        self.misplaced: dict[str, int] = {}
        kept = PRECISIONS[self.precision]
        self.is_float64 = kept.stored == "float64"
        self._without: dict[str, Callable] = {}  # functions compiled without dropout, by the names of FUNCTIONS
        policy, state = self.keras.config.dtype_policy(), random.getstate()
        random.seed(workload.seed)  # where Keras takes the seeds of initialisers and dropout from
        try:
            with arithmetic(self.device, self.precision), self.scope():
                self.keras.config.set_dtype_policy(POLICIES[self.precision])
                self.model, self.optimizer = workload.make_model(), workload.make_optimizer()
                if kept.needs_scaling:  # else small gradients vanish in float16
                    self.optimizer = self.keras.optimizers.LossScaleOptimizer(self.optimizer)
                self.optimizer.build(self.model.trainable_variables)
                self._prepare()
        finally:
            self.keras.config.set_dtype_policy(policy)
            random.setstate(state)

    @property
    def variables(self) -> list:
        """Return everything that training changes: weights, statistics, random seeds, optimiser and its step."""
        return [*self.model.variables, *self.optimizer.variables]

    @property
    def is_loss_scaled(self) -> bool:
        """Return whether the optimiser scales the loss, as asked for here or as it was made."""
        return hasattr(self.optimizer, "dynamic_scale")

    @property
    def iterations(self):
        """Return the variable that counts the steps that the optimiser took, by which its schedule goes."""
        return (self.optimizer.inner_optimizer if self.is_loss_scaled else self.optimizer).iterations

    def steps_taken(self) -> int:
        """Return the number that `iterations` has now."""
        return int(to_host(self.iterations.value))

    def train(self, inputs: Array, target: Array) -> Array:
        """Train on one batch and return its loss, unread."""
        with arithmetic(self.device, self.precision):
            return self._train(*self.spread(inputs, target))

    def score(self, inputs: Array, target: Array) -> tuple[Array, Array]:
        """Return loss and accuracy of one batch, unread, with the network in inference mode."""
        with arithmetic(self.device, self.precision):
            return self._score(*self.spread(inputs, target))

    def spread(self, *parts: Array) -> list[Array]:
        """Return parts of a batch where they are computed; what is there already is not moved again."""
        return [self.device.backend.place(self.device, part) for part in parts]

    def gather(self, part: Array) -> Array:
        """Return a part of a batch in one piece, though several devices may hold their shares of it."""
        return part

    def predict(self, inputs: Array) -> numpy.ndarray:
        """Return what the network makes of one batch, in inference mode."""
        with arithmetic(self.device, self.precision):
            return to_host(self._predict(*self.spread(inputs)))

    def differentiate(self, inputs: Array, target: Array, scale: float = 1.0) -> tuple[float, list[numpy.ndarray]]:
        """Return loss and the gradients of the trainable variables in float64, computed of the scaled loss."""
        with arithmetic(self.device, self.precision):
            factor = numpy.asarray(scale, "float64" if self.is_float64 else "float32")
            loss, gradients = self._differentiate(*self.spread(inputs, target), *self.spread(factor))
        on_host = [to_host(gradient).astype("float64") / scale for gradient in gradients]
        return float(loss), on_host

    def read(self) -> list[numpy.ndarray]:
        """Return copies of all `variables`, on the host."""
        self.update_model()
        return [to_host(variable.value) for variable in self.variables]

    def write(self, values: list[numpy.ndarray]) -> None:
        """Give all `variables` these values; compiled functions stay valid."""
        self.assign(self.variables, values)

    def load(self, weights: list[numpy.ndarray]) -> None:
        """Give the model these weights, in the order of `model.weights`."""
        self.update_model()
        self.assign(self.model.weights, weights)

    def assign(self, variables: list, values: list[numpy.ndarray]) -> None:
        """Give some of the model's own variables other values, and go on from there."""
        with arithmetic(self.device, self.precision):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        self.update_state()

    def scope(self) -> AbstractContextManager:
        """Return where the model and its optimiser are made."""
        return nullcontext()

    @contextmanager
    def without_dropout(self) -> Iterator[None]:
        """Put dropout off inside a `with` block, in functions compiled for it; afterwards they are those of before."""
        layers = dropouts(self.model)
        rates, functions = [layer.rate for layer in layers], {name: getattr(self, name) for name in self.FUNCTIONS}
        if not any(rates):
            yield
            return
        try:
            self._compile_without(layers)
            yield
            self._without = {name: getattr(self, name) for name in self.FUNCTIONS}
        finally:
            for layer, rate in zip(layers, rates, strict=True):
                layer.rate = rate
            vars(self).update(functions)

    def _compile_without(self, layers: list) -> None:
        for layer in layers:
            layer.rate = 0.0
        if self._without:  # compiled before
            vars(self).update(self._without)
            return
        self.update_model()
        with arithmetic(self.device, self.precision), self.scope():
            self._prepare()

    def num_images(self, part: Array) -> int:
        """Return the images in a part of a batch, spread or not."""
        return len(part)

    def share_statistics(self) -> None:
        """Give every device the same moving statistics, before they are used."""

    def update_model(self) -> None:
        """Bring the model's own variables up to date with training."""

    def update_state(self) -> None:
        """Go on from what the model's own variables now are."""

    def _outputs(self, outputs: Array) -> Array:
        """Return outputs in a precision in which losses can be computed."""
        return outputs if self.is_float64 else self.keras.ops.cast(outputs, "float32")
