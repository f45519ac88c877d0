"""A torch workload that takes the steps it is timed with, one at a time, for each to be looked at."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import nn

from benchbook.frameworks.plain import Arrays
from benchbook.frameworks.workload import MOST_HALVINGS, ParitySubject


class TorchSubject(ParitySubject):
    """A torch workload step by step; see `ParitySubject`.

    Args:
        workload: its dropout is off, and whoever made this puts it back afterwards.
    """

    def __init__(self, workload: Any) -> None:
        self.dtype = next(workload.model.parameters()).dtype
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy has it: what is not whole in float64."""
        return tuple(_on_host(part) if part.is_floating_point() else part.cpu().numpy() for part in batch)

    def weights(self) -> Arrays:
        """Return every parameter by name, trainable or not, in float64."""
        return {name: _on_host(part) for name, part in self.workload.model.named_parameters()}

    def statistics(self) -> Arrays:
        """Return the moving statistics of batch norms by name, in float64."""
        buffers = self.workload.model.named_buffers()
        return {name: _on_host(part) for name, part in buffers if part.is_floating_point()}

    @torch.no_grad()
    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Take over weights and moving statistics by name, rounded to what the workload keeps."""
        parts = dict(self.workload.model.named_parameters()) | dict(self.workload.model.named_buffers())
        for name, array in (weights | statistics).items():
            parts[name].copy_(torch.from_numpy(array).to(parts[name].dtype))

    def step(self, batch: tuple, differentiated: bool = True) -> tuple[float, Arrays]:
        """Train on a batch; return its loss and, if they are wanted, the gradients that the optimiser took.

        A scaler leaves out a step whose gradients overflow, and halves its scale; the same batch comes again.
        """
        before = self.statistics() if self.workload.scaler.is_enabled() else {}
        for _ in range(MOST_HALVINGS):
            scale = self.workload.scaler.get_scale()
            loss = float(self.workload.step(batch))
            self.num_passed += 1
            if not self.workload.scaler.get_scale() < scale:
                break
            self.load({}, before)
        return loss, self._gradients() if differentiated else {}

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        """Return numbers as the parameter of this name keeps them."""
        return torch.from_numpy(array).to(self.dtype).double().numpy()

    @property
    def resolution(self) -> float:
        """Return how far numbers of about 1 lie apart where weights are kept."""
        return torch.finfo(self.dtype).eps

    def _gradients(self) -> Arrays:
        """Return gradients by name; a parameter that has none has zeros."""
        named = self.workload.model.named_parameters()
        return {name: _on_host(torch.zeros_like(part) if part.grad is None else part.grad) for name, part in named}


def random_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that drop parts at random in training and, set to inference, drop none."""
    names = ("Dropout", "DropPath", "StochasticDepth", "MultiheadAttention")
    return [layer for layer in model.modules() if any(name in type(layer).__name__ for name in names)]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Put a model's dropout off inside a `with` block.

    Its layers are set to inference, not their share to 0: a compiler makes code for both modes, and what it makes for
    training stays as it would have been.
    """
    layers = [layer for layer in random_layers(model) if layer.training]
    for layer in layers:
        layer.eval()
    try:
        yield
    finally:
        for layer in layers:
            layer.train()


def _on_host(tensor: torch.Tensor) -> numpy.ndarray:
    return tensor.detach().cpu().double().numpy().copy()
