"""Batch norm on several devices: over the whole batch, or over each device's share."""

import keras
from keras import layers, ops

from benchbook.frameworks.devices import Device


def batch_norm(device: Device, synchronised: bool, **options) -> layers.Layer:
    """Return the batch norm of a network that one device trains, or several.

    Args:
        device: its `count` is the number of devices that train together.
        synchronised: whether the devices normalise by the whole batch, or each by its share.
        options: of `keras.layers.BatchNormalization`.
    """
    if device.count == 1:
        return layers.BatchNormalization(**options)
    if synchronised:  # JAX compiles one program for all devices: batch norm sees the whole batch anyway
        return layers.BatchNormalization(synchronized=device.framework == "tensorflow", **options)
    return GhostBatchNormalization(device.count, **options)


class GhostBatchNormalization(layers.BatchNormalization):
    """Batch norm of images (n, height, width, channels) over equal parts of a batch, known as ghost batch norm.

    One device computes the same as several devices with a part each. The moving statistics are those of the first part.

    Args:
        num_parts: parts of the whole batch; with TensorFlow each replica sees one of them.
    """

    def __init__(self, num_parts: int, **options) -> None:
        super().__init__(**options)
        self.num_parts = num_parts

    def call(self, inputs, training=None, mask=None):
        """Return normalised images."""
        num_parts = self.num_parts // _num_replicas()
        if not training or num_parts == 1:
            return super().call(inputs, training=training, mask=mask)
        shape = ops.shape(inputs)
        parts = ops.reshape(inputs, (num_parts, shape[0] // num_parts, *shape[1:]))
        parts = ops.cast(parts, self.moving_mean.dtype)  # sums in half precision would overflow
        mean, variance = ops.moments(parts, axes=(1, 2, 3), keepdims=True)
        for moving, of_batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.momentum + ops.reshape(of_batch[0], (-1,)) * (1 - self.momentum))
        normalised = (parts - mean) * (ops.rsqrt(variance + self.epsilon) * self.gamma) + self.beta
        return ops.cast(ops.reshape(normalised, shape), inputs.dtype)


def _num_replicas() -> int:
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow

    return tensorflow.distribute.get_strategy().num_replicas_in_sync
