"""A Keras model trained by JAX: a jitted function from one state to the next."""

from collections.abc import Callable
from functools import partial

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchbook.frameworks.jax.devices import BACKEND
from benchbook.frameworks.keras.networks import Network
from benchbook.frameworks.keras.runtime import Array


class KerasNetwork(Network):
    """A Keras model trained by a jitted function from one state to the next; `update_model`
    copies it to the model.

    For several devices, XLA compiles one program: gradients are summed, and batch norms see the
    whole batch.
    Source: https://docs.jax.dev/en/latest/sharded-computation.html
    """

    _state: list[list[Array]]  # trainable variables, others, the optimiser's

    def _prepare(self) -> None:
        first, count, self._layouts = self.device.index, self.device.count, None
        if (
            count > 1
        ):  # the layouts of arrays: a copy on each device, and a share of the first dimension on each
            mesh = Mesh(jax.devices(self.device.kind)[first : first + count], "batch")
            self._layouts = (
                NamedSharding(mesh, PartitionSpec()),
                NamedSharding(mesh, PartitionSpec("batch")),
            )
        # JAX keeps what it traced by the function, and `self.train_step` always equals itself: with
        # the dropout of the first time. A new function is traced again.
        self.jitted_step = step = jax.jit(partial(self.train_step), donate_argnums=0)

        def train(inputs: Array, target: Array) -> Array:
            self._state, loss = step(self._state, inputs, target)
            return loss

        def at_weights(body: Callable) -> Callable:
            jitted = jax.jit(partial(body))
            return lambda *given: jitted(*self._state[:2], *given)

        bodies = self._score_body, self._predict_body, self._differentiate_body
        self._train, (self._score, self._predict, self._differentiate) = (
            train,
            map(at_weights, bodies),
        )
        self.update_state()

    def update_state(self) -> None:
        """Copy the model's variables into the state: a step may overwrite its arguments."""
        with self.arithmetic():
            self._state = [
                [self._keep(numpy.array(variable.value)) for variable in group]
                for group in self._groups()
            ]

    def scatter(self, *parts: Array) -> list[Array]:
        """Return parts of a batch on the device, or split into shares; each device has all of an
        indivisible batch."""
        num_images = parts[0].shape[0] if parts[0].ndim else 1
        if self._layouts is None or num_images % self.device.count:
            return [self._keep(part) for part in parts]
        return [jax.device_put(part, self._layouts[1]) for part in parts]

    def _keep(self, array: Array) -> Array:
        """Return an array on the device, or a copy of it on each device."""
        return (
            BACKEND.place(self.device, array)
            if self._layouts is None
            else jax.device_put(array, self._layouts[0])
        )

    def update_model(self) -> None:
        """Copy the state into the model's variables."""
        with self.arithmetic():
            for group, values in zip(self._groups(), self._state, strict=True):
                for variable, value in zip(group, values, strict=True):
                    variable.assign(numpy.array(value))

    def steps_taken(self) -> int:
        """Return the iterations in the state; the model's variables may be older."""
        place = [id(variable) for variable in self.optimizer.variables].index(id(self.iterations))
        return int(self._state[2][place])

    def _groups(self) -> tuple[list, list, list]:
        model = self.model
        return model.trainable_variables, model.non_trainable_variables, self.optimizer.variables

    def train_step(self, state: list, inputs: Array, target: Array) -> tuple[list, Array]:
        trainable, others, optimizer = state

        def scaled_loss(trainable: list) -> tuple[Array, tuple]:
            loss, updated = self._loss(trainable, others, inputs, target)
            with self.keras.StatelessScope(
                list(zip(self.optimizer.variables, optimizer, strict=True))
            ):
                return self.optimizer.scale_loss(loss), (loss, updated)

        (_, (loss, others)), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(trainable)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        return [list(trainable), others, list(optimizer)], loss

    def _differentiate_body(
        self, trainable: list, others: list, inputs: Array, target: Array, scale: Array
    ) -> tuple[Array, list[Array]]:
        def scaled_loss(trainable: list) -> tuple[Array, Array]:
            loss, _ = self._loss(trainable, others, inputs, target)
            return loss * scale, loss

        gradients, loss = jax.grad(scaled_loss, has_aux=True)(trainable)
        return loss, gradients

    def _loss(
        self, trainable: list, others: list, inputs: Array, target: Array
    ) -> tuple[Array, list]:
        outputs, updated = self.model.stateless_call(trainable, others, inputs, training=True)
        return self.loss(self._outputs(outputs), target), list(updated)

    def _predict_body(self, trainable: list, others: list, inputs: Array) -> Array:
        return self._outputs(
            self.model.stateless_call(trainable, others, inputs, training=False)[0]
        )
