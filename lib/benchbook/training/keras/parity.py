"""A Keras network that repeats the same steps on any device, without dropout."""

import numpy

from benchbook.training.keras.networks import Network
from benchbook.training.keras.runtime import Array, to_host

Batch = tuple[Array, Array]
LARGEST_LOSS_SCALE = 2.0**15  # where Keras's LossScaleOptimizer begins


class KerasParitySubject:
    """A Keras network that repeats the same steps on any device; see `benchbook.workload.ParitySubject`.

    Args:
        network: without dropout.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.names = [variable.path for variable in network.model.trainable_variables]
        self.loss_scale = LARGEST_LOSS_SCALE if "fp16" in network.precision else 1.0

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name, in float64."""
        self.network.update_model()
        values = [to_host(variable.value).astype("float64") for variable in self.network.model.trainable_variables]
        return dict(zip(self.names, values, strict=True))

    def load(self, parameters: dict[str, numpy.ndarray]) -> None:
        """Take over parameters of these names, rounded to this precision."""
        self.network.update_model()
        self.network.assign(self.network.model.trainable_variables, [parameters[name] for name in self.names])

    def gradients(self, batch: Batch) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name, in float64."""
        loss, gradients = self._differentiate(batch)
        return loss, dict(zip(self.names, gradients, strict=True))

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its mean loss from before the step."""
        loss, gradients = self._differentiate(batch)
        self.network.apply(gradients)
        return loss

    def _differentiate(self, batch: Batch) -> tuple[float, list[numpy.ndarray]]:
        """Return loss and gradients; in float16 the loss is scaled, and the scale halved until nothing overflows."""
        while True:
            loss, gradients = self.network.differentiate(*batch, self.loss_scale)
            if self.loss_scale == 1 or all(numpy.isfinite(gradient).all() for gradient in gradients):
                return loss, gradients
            self.loss_scale /= 2


def copy_model(model, policy: str | None = None):
    """Return a copy of a Keras model without its weights and without dropout.

    Args:
        model: a functional model without models inside.
        policy: what Keras computes the copy in; None: as the model.
    """
    import keras

    def copy_layer(layer):
        config = layer.get_config()
        # Weights are loaded afterwards, and JAX compiles every random draw.
        config |= {name: "zeros" for name in config if name.endswith("initializer")}
        if isinstance(layer, keras.layers.Dropout):
            config["rate"] = 0.0
        if policy is not None:
            config["dtype"] = policy
        return type(layer).from_config(config)

    return keras.models.clone_model(model, clone_function=copy_layer)
