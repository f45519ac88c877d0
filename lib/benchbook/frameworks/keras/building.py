"""Which class trains a Keras model, by the device's framework."""

from typing import Any

from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.networks import Network
from benchbook.frameworks.keras.runtime import import_keras


def build_network(device: Device, **options: Any) -> Network:
    """Return a network for a device's framework; the options are those of `Network`."""
    import_keras(device.framework)
    if device.framework == "jax":
        from benchbook.frameworks.jax.training import JaxNetwork

        return JaxNetwork(device=device, **options)
    from benchbook.frameworks.tensorflow.training import TensorFlowNetwork

    return TensorFlowNetwork(device=device, **options)
