"""The arithmetic of a Keras model, counted from its layers: Keras has no counter that works on every framework."""

import math
from typing import Any

# Keras's classes whose work is multiplications, and how often each number of a kernel is used: once for every
# position of the output, or, where a convolution is transposed, of the input.
_OF_OUTPUT = ("Conv1D", "Conv2D", "DepthwiseConv2D", "Dense")
_OF_INPUT = ("Conv2DTranspose",)
_SEPARABLE = ("SeparableConv2D",)
_NONE = ("BatchNormalization", "LayerNormalization")


def keras_flops_per_sample(model: Any) -> float:
    """Count the arithmetic of training a Keras network on one sample: forward and backward, 2 per multiply-add.

    The same is counted as torch's counter counts: products and convolutions, forward; backward once more for the
    gradient of a kernel that is trained, and once more for that of an input on which something trained depends.
    Element-wise work is not counted.

    Args:
        model: a functional Keras model without models inside.

    Raises:
        ValueError: a layer with weights of a kind that is not known here.
    """
    trained_above: dict[str, bool] = {}
    total = 0
    for layer in model.layers:
        above = any(trained_above.get(parent, False) for parent in _parents(layer))
        trained = bool(layer.trainable_variables)
        trained_above[layer.name] = above or trained
        parts = _forward(layer)
        if parts:
            # Inside a layer of two convolutions the second depends on the first.
            passes = [1 + trained + (above or (trained and position > 0)) for position in range(len(parts))]
            total += sum(count * part for count, part in zip(passes, parts, strict=True))
    return float(total)


def _parents(layer: Any) -> list[str]:
    """Return the names of the layers whose outputs a layer takes."""
    if type(layer).__name__ == "InputLayer":
        return []
    tensors = layer.input if isinstance(layer.input, (list, tuple)) else [layer.input]
    return [tensor._keras_history.operation.name for tensor in tensors]


def _forward(layer: Any) -> list[int]:
    """Return the operations of each product in a layer, forward, for one sample."""
    kind = type(layer).__name__
    if kind in _OF_OUTPUT:
        return [2 * math.prod(layer.output.shape[1:-1]) * math.prod(layer.kernel.shape)]
    if kind in _OF_INPUT:
        return [2 * math.prod(layer.input.shape[1:-1]) * math.prod(layer.kernel.shape)]
    if kind in _SEPARABLE:
        kernels = layer.depthwise_kernel, layer.pointwise_kernel
        return [2 * math.prod(layer.output.shape[1:-1]) * math.prod(kernel.shape) for kernel in kernels]
    if layer.weights and not any(ancestor.__name__ in _NONE for ancestor in type(layer).__mro__):
        known = ", ".join((*_OF_OUTPUT, *_OF_INPUT, *_SEPARABLE, *_NONE))
        raise ValueError(f"layer {layer.name!r} is a {kind}; allowed with weights: {known}")
    return []
