"""A torch workload step by step, for the comparison with float64; and networks in float64
without dropout."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from benchbook.frameworks.plain import Arrays
from benchbook.frameworks.subject import ParitySubject

# Parts of the names of layers that drop values at random in training and none in inference.
RANDOM_LAYERS = ("Dropout", "DropPath", "StochasticDepth", "MultiheadAttention")
# Functions that drop values at random; in a comparison they return their input.
DROPOUTS = {
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}
DROPOUTS |= {
    torch.dropout,
    torch.dropout_,
    torch.alpha_dropout,
    torch.feature_dropout,
    torch.feature_alpha_dropout,
}
DROPOUT_PLACE = 4  # of dropout_p among the positional arguments of F.scaled_dot_product_attention


class TorchSubject(ParitySubject):
    """A torch workload step by step; see `ParitySubject`.

    Args:
        workload: its dropout is off; the caller turns it on again.
    """

    def __init__(self, workload: Any) -> None:
        self.dtypes = {name: part.dtype for name, part in workload.model.named_parameters()}
        self.resolution = max(
            torch.finfo(dtype).eps for dtype in self.dtypes.values()
        )  # of the coarsest type
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        return tuple(
            to_host(part) if part.is_floating_point() else part.cpu().numpy() for part in batch
        )

    def weights(self) -> Arrays:
        return {name: to_host(part) for name, part in self.workload.model.named_parameters()}

    def statistics(self) -> Arrays:
        buffers = self.workload.model.named_buffers()
        return {name: to_host(part) for name, part in buffers if part.is_floating_point()}

    @torch.no_grad()
    def load(self, weights: Arrays, statistics: Arrays) -> None:
        parts = dict(self.workload.model.named_parameters()) | dict(
            self.workload.model.named_buffers()
        )
        for name, array in (weights | statistics).items():
            assign(parts[name], array)

    def attempt(self, batch: tuple, differentiated: bool) -> tuple[float, Arrays, bool]:
        """Try a step; the gradients are those that the optimiser got, or zeros if a parameter
        has none.

        They are read before the optimiser's step: on GPUs, SGD with Nesterov's momentum adds the
        momentum to them.
        """
        scaler, optimizer, gradients = self.workload.scaler, self.workload.optimizer, {}
        scale, step = scaler.get_scale(), optimizer.step

        @functools.wraps(step)  # with the mark that a schedule looks for
        def watched(*given: Any, **named: Any) -> Any:
            unit = getattr(optimizer, "grad_scale", None)  # a fused optimiser divides by it
            for name, part in self.workload.model.named_parameters() if differentiated else ():
                gradient = torch.zeros_like(part) if part.grad is None else part.grad
                gradients[name] = to_host(gradient if unit is None else gradient / unit)
            return step(*given, **named)

        optimizer.step = watched
        try:
            loss = float(self.workload.step(batch))
        finally:
            optimizer.step = step
        self.schedule_step += 1
        return loss, gradients, scaler.get_scale() >= scale

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        return torch.from_numpy(array).to(self.dtypes[name].to_real()).double().numpy()


@contextmanager
def without_dropout(model: nn.Module, functions: bool = False) -> Iterator[None]:
    """Switch a model's dropout off inside a `with` block.

    The layers are set to inference instead of to a rate of 0: a compiler compiles both modes,
    and the code of the training mode does not change.

    Args:
        model: the network.
        functions: switch off functions such as `F.dropout` as well, which the network may call
        outside of such layers.
    """
    layers = [
        layer
        for layer in model.modules()
        if any(name in type(layer).__name__ for name in RANDOM_LAYERS)
    ]
    layers = [layer for layer in layers if layer.training]
    recurrent = {layer: layer.dropout for layer in model.modules() if isinstance(layer, nn.RNNBase)}
    for layer in layers:
        layer.eval()
    for layer in recurrent:  # NVIDIA's library differentiates them only in training
        layer.dropout = 0.0
    try:
        with _WithoutDropout() if functions else nullcontext():
            yield
    finally:
        for layer in layers:
            layer.train()
        for layer, share in recurrent.items():
            layer.dropout = share


class _WithoutDropout(TorchFunctionMode):
    """Switch off the dropout of torch's functions."""

    def __torch_function__(
        self, function: Callable, types: Any, arguments: tuple = (), named: dict | None = None
    ):
        named = named or {}
        if function in DROPOUTS:
            return arguments[0] if arguments else named["input"]
        if function is F.scaled_dot_product_attention:
            if len(arguments) > DROPOUT_PLACE:
                arguments = (*arguments[:DROPOUT_PLACE], 0.0, *arguments[DROPOUT_PLACE + 1 :])
            else:
                named = named | {"dropout_p": 0.0}
        elif function is F.multi_head_attention_forward:
            named = named | {"training": False}  # which only switches dropout
        return function(*arguments, **named)


def call(network: Callable, inputs: tuple | dict) -> Any:
    """Return a network's outputs; its inputs are a tuple, or a dictionary of keyword arguments."""
    return network(**inputs) if isinstance(inputs, dict) else network(*inputs)


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert a network's parameters, buffers and other tensors: floats to a type, complex
    numbers to such parts.

    `Module.to` drops imaginary parts and skips attributes that are not buffers.
    """

    def converted(part: torch.Tensor) -> torch.Tensor:
        if part.is_complex():
            return part.to(torch.promote_types(dtype, torch.complex64))
        return part.to(dtype) if part.is_floating_point() else part

    for part in (*model.parameters(), *model.buffers()):
        part.data = converted(part.data)
    for layer in model.modules():
        for name, part in vars(layer).items():
            if isinstance(part, torch.Tensor):
                setattr(layer, name, converted(part))


def to_host(tensor: torch.Tensor) -> numpy.ndarray:
    """Return a copy of a tensor as a NumPy array in float64; complex numbers have their parts in
    one more dimension."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.double().numpy().copy()


def assign(tensor: torch.Tensor, array: numpy.ndarray) -> None:
    """Set a tensor to values from `to_host`, rounded to its type."""
    part = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    part.copy_(torch.from_numpy(array).to(part.dtype))
