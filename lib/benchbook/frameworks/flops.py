"""The arithmetic of training a network on one sample, counted: torch has a counter, others are counted by layers."""

import copy
import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

# Keras's classes whose work is multiplications, and how often each number of a kernel is used: once for every
# position of the output, or, where a convolution is transposed, of the input.
_OF_OUTPUT = ("Conv1D", "Conv2D", "DepthwiseConv2D", "Dense")
_OF_INPUT = ("Conv2DTranspose",)
_SEPARABLE = ("SeparableConv2D",)
_NONE = ("BatchNormalization", "LayerNormalization", "Embedding")


def torch_flops_per_sample(model: Any, *inputs: Any, device: str = "meta") -> float:
    """Count the arithmetic of training a torch network on one sample: forward and backward, 2 per multiply-add.

    A copy of the network runs on the meta device, which computes nothing: on a CPU fused paths can escape the count.
    Matrix products, convolutions and attention are counted, as is usual; element-wise work is not. Of a convolution,
    each gradient costs what its forward pass costs; torch's own formula counts a kernel's gradient once for every pair
    of groups, which makes depthwise networks look many times as costly (MobileNetV2: seven times; torch 2.10).

    Args:
        model: a torch network; it is not changed.
        inputs: a batch as the network takes it, shapes (n, ...); on the meta device its numbers do not matter.
        device: cpu for a network that looks at numbers and so cannot be counted on the meta device.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

    def convolution_backward(gradient, images, kernel, *rest, out_shape):
        transposed, mask = rest[4], rest[7]
        return sum(mask[:2]) * conv_flop_count(images, kernel, gradient, transposed)

    twin, batch = copy.deepcopy(model), inputs
    if device == "meta":
        twin, batch = twin.to_empty(device="meta"), [torch.empty_like(part, device="meta") for part in inputs]
    formulas = {torch.ops.aten.convolution_backward: convolution_backward}
    plain = (
        sdpa_kernel(SDPBackend.MATH) if device == "cpu" else nullcontext()
    )  # the CPU's fused attention is not counted
    with plain, FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        outputs = twin(*batch)
        sum(part.sum() for part in ([outputs] if torch.is_tensor(outputs) else outputs)).backward()
    return counter.get_total_flops() / len(inputs[0])


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
        allowed = ", ".join((*_OF_OUTPUT, *_OF_INPUT, *_SEPARABLE, *_NONE))
        raise ValueError(f"layer {layer.name!r} is a {kind}; allowed with weights: {allowed}")
    return []


def mlx_flops_per_sample(model: Any, images: Any) -> float:
    """Count the arithmetic of training an MLX network on one sample, as `keras_flops_per_sample` does.

    Args:
        model: its products are layers of `benchbook.frameworks.mlx.layers`, which come in the order of the data.
        images: a batch as the network takes it; nothing is computed of it.
    """
    model(images)  # each layer notes the pixels of its output
    total, above = 0, False
    for layer in _in_order(model):
        trained = "weight" in layer.trainable_parameters()
        total += 2 * layer.positions * layer.weight.size * (1 + trained + above)
        above = above or trained
    return float(total)


def _in_order(part: Any) -> Iterator[Any]:
    """Yield an MLX network's layers that multiply, in the order in which they were put into it."""
    if hasattr(part, "positions"):
        yield part
    else:
        for child in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from _in_order(child)
