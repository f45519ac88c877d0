"""A torch network that repeats the same steps on any device, without dropout."""

from collections.abc import Callable

import numpy
import torch
from torch import nn

from benchbook.devices import Device
from benchbook.training.torch.runtime import (
    STORED,
    Batch,
    begin_momentum,
    compute,
    gradient_scaler,
    move,
    prepare,
    switched,
    update,
)
from benchbook.workload import Settings


class TorchParitySubject:
    """A torch network that repeats the same steps on any device; see `benchbook.workload.ParitySubject`.

    Args:
        model, loss, split, loss_is_sum: as a TorchWorkload has them; the model is moved, and its dropout put off.
        optimizer: over the model's parameters.
        device: where to compute.
        precision: a key of `STORED`.

    Raises:
        ValueError: an unknown precision.
        NotImplementedError: tf32 where the device has no such units.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., torch.Tensor],
        optimizer: torch.optim.Optimizer,
        split: Callable[[Batch], tuple[Batch, torch.Tensor]],
        device: Device,
        settings: Settings,
        loss_is_sum: bool = False,
    ) -> None:
        precision = settings.precision
        if precision not in STORED:
            raise ValueError(f"precision {precision!r}; allowed: {', '.join(STORED)}")
        device.check_precision(precision)
        # By way of the CPU: MPS has no float64 to convert to.
        self.model = _without_dropout(model).cpu().to(STORED[precision]).to(device.kind)
        self.network, self.settings = prepare(self.model, settings), settings
        self.loss, self.optimizer, self.split = loss, optimizer, split
        begin_momentum(optimizer)
        self.optimizer.step = update(optimizer, settings)
        self.device, self.precision, self.loss_is_sum = device, precision, loss_is_sum
        self.scaler = gradient_scaler(device, precision)

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name, in float64."""
        return {name: _on_host(parameter) for name, parameter in self._trainable()}

    @torch.no_grad()
    def load(self, parameters: dict[str, numpy.ndarray]) -> None:
        """Take over parameters of these names, rounded to this precision."""
        for name, parameter in self._trainable():
            parameter.copy_(torch.from_numpy(parameters[name]).to(parameter.dtype))

    def gradients(self, batch: Batch) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name, in float64; a parameter that was not used has zeros."""
        loss = self._backward(batch)
        gradients = {
            name: _on_host(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
            for name, parameter in self._trainable()
        }
        self.scaler.update()
        return loss, gradients

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its mean loss from before the step."""
        loss = self._backward(batch)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def _trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def _backward(self, batch: Batch) -> float:
        """Leave the batch's gradients in the parameters and return its mean loss.

        In float16 the scaler's first scale may be too large. As in training, a step whose gradients overflow is left
        out and the scale is halved; here the same batch comes again.
        """
        inputs, target = self.split(tuple(self._move(part) for part in batch))
        with switched(self.settings):
            while True:
                loss = self._loss(inputs, target)
                self.optimizer.zero_grad()
                self.scaler.scale(loss).backward()
                if not self.scaler.is_enabled():
                    break
                self.scaler.unscale_(self.optimizer)
                gradients = [parameter.grad for _, parameter in self._trainable() if parameter.grad is not None]
                if self.scaler.get_scale() <= 1 or all(gradient.isfinite().all() for gradient in gradients):
                    break
                self.scaler.step(self.optimizer)
                self.scaler.update()
        return loss.item() / (len(batch[0]) if self.loss_is_sum else 1)

    def _loss(self, inputs: Batch, target: torch.Tensor) -> torch.Tensor:
        return self.loss(compute(self.network, inputs, self.device, self.precision), target)

    def _move(self, part: torch.Tensor) -> torch.Tensor:
        return move(part, self.device, self.settings)


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)):
            module.p = 0.0
    return model


def _on_host(tensor: torch.Tensor) -> numpy.ndarray:
    return tensor.detach().cpu().double().numpy().copy()
