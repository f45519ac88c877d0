"""A Keras model trained by TensorFlow: graphs whose variables change in place."""

from collections.abc import Callable

import tensorflow

from benchbook.workloads.keras.networks import Network
from benchbook.workloads.keras.runtime import Array, compile_function


class TensorFlowNetwork(Network):
    """A Keras model trained by tf.function, whose variables change in place."""

    def _prepare(self, compiled: bool) -> None:
        def function(body: Callable) -> Callable:
            return compile_function(self.device, body, compiled)

        self._train, self._score, self._predict = (
            function(self._train_body),
            function(self._score_body),
            function(lambda inputs: self._outputs(self.model(inputs, training=False))),
        )
        self._differentiate, self._apply = function(self._differentiate_body), function(self.optimizer.apply)

    def _train_body(self, inputs: Array, target: Array) -> Array:
        with tensorflow.GradientTape() as tape:
            loss = self.loss(self._outputs(self.model(inputs, training=True)), target)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(scaled, variables), variables)
        return loss

    def _score_body(self, inputs: Array, target: Array) -> tuple[Array, Array]:
        outputs = self._outputs(self.model(inputs, training=False))
        return self.loss(outputs, target), self.accuracy(outputs, target)

    def _differentiate_body(self, inputs: Array, target: Array, scale: Array) -> tuple[Array, list[Array]]:
        with tensorflow.GradientTape() as tape:
            loss = self.loss(self._outputs(self.model(inputs, training=True)), target)
            scaled = loss * scale
        return loss, tape.gradient(scaled, self.model.trainable_variables)
