"""A torch network of the user's own, trained."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.parameter import is_lazy

from benchbook.frameworks.torch.parity import call, cast, copied
from benchbook.frameworks.torch.runtime import flops_per_sample
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute
from benchbook.frameworks.workload import Settings
from benchbook.machine.precisions import PRECISIONS
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.plan import MOMENTUM, OPEN, Plan, counted, leaves

COUNTED_SAMPLES = 2  # by which operations are counted
HALVES = ("fp16", "bf16")  # the coarser last


@dataclass
class Trained(TorchWorkload):
    """Somebody's network: the target is None where the network computes its own loss."""

    plan: Plan | None = None

    def split(self, batch: Batch) -> tuple[tuple, Any]:
        """Return what the network takes of a batch, and what its outputs are compared with."""
        inputs, target = self.plan.parts(batch)
        return (inputs,), target

    def num_samples(self, batch: Batch) -> int:
        """Return the samples in a batch."""
        return self.batch_size

    def _outputs(self, inputs: tuple | dict) -> Any:
        return compute(lambda given: call(self.network, given), (inputs,), self.device, self.settings.precision)


class _Counted(torch.nn.Module):
    """A network that takes the arrays of a batch one after the other, and returns the outputs that have a gradient."""

    def __init__(self, network: torch.nn.Module, plan: Plan) -> None:
        super().__init__()
        self.network, self.parts = network, lambda batch: plan.parts(batch)  # a copy of it is the same function

    def forward(self, *batch: torch.Tensor) -> list[torch.Tensor]:
        outputs = _opened(call(self.network, self.parts(batch)[0]))
        return [part for part in leaves(outputs) if isinstance(part, torch.Tensor) and part.requires_grad]


def build(plan: Plan, settings: Settings) -> Trained:
    """Return the workload; see `plan.build`. Weights that the network keeps in half precision decide the precision."""
    torch.manual_seed(plan.seed)
    model = plan.make_network(torch.nn.Module).train()
    small = _tensors(plan.small(0, COUNTED_SAMPLES))
    if any(is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        with loading.blamed(f"network {plan.network!r}, whose layers take their shapes from a batch,"), torch.no_grad():
            call(model.eval(), plan.parts(small)[0])
        model.train()
    stored = {parameter.dtype for parameter in model.parameters()}
    halves = [name for name in HALVES if STORED[name] in stored]
    if halves and not PRECISIONS[settings.precision].autocast:
        settings = replace(settings, precision=halves[-1])
    elif not halves:
        cast(model, STORED[settings.precision])
    count = partial(flops_per_sample, _Counted(model, plan), *small)  # per line of the first array
    lines = len(small[0]) / min(plan.batch_size, COUNTED_SAMPLES)  # of a sample
    columns = plan.columns() | counted(lambda: count(device="meta") * lines, lambda: count(device="cpu") * lines)
    loss = plan.checked_loss(partial(_default_loss, plan))
    model.to(plan.device.kind)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(f"network {plan.network!r} has no parameter that is trained; allowed: one or more")
    kinds = {"sgd": partial(torch.optim.SGD, momentum=MOMENTUM), "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[plan.optimizer](trained, lr=plan.learning_rate, fused=settings.fused or None)
    offsets = [f"{name}.bias".lstrip(".") for name in _norms(model)]

    def twin() -> torch.nn.Module:
        """Return the same network, frozen offsets of its batch norms opened as `plain` opens the trained ones."""
        made = copied(model)
        for layer in _norms(made).values():
            layer.bias.data += OPEN
        return made

    return Trained(
        device=plan.device,
        batch_size=plan.batch_size,
        model=model,
        loss=loss,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0),
        train_batches=lambda epoch: map(_tensors, plan.batches(epoch)),
        test_batches=tuple,
        columns=columns,
        plain=plan.plain(twin, loss, lambda: offsets, _tensors),
        settings=settings,
        plan=plan,
    )


def _norms(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the batch norms that have an offset, by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, BatchNorm) and layer.affine}


def _opened(outputs: Any) -> Any:
    """Return a network's outputs; of an object its attributes by name."""
    return outputs if isinstance(outputs, torch.Tensor | Mapping | list | tuple) else getattr(outputs, "__dict__", {})


def _default_loss(plan: Plan, outputs: Any, target: Any) -> torch.Tensor:
    """Return the loss that a network computes itself, or else the cross-entropy of its logits, of all heads together.

    A detector returns several losses, which add up; a library for language models returns `.loss` and `.logits`.
    """
    outputs = _opened(outputs)
    named = outputs if isinstance(outputs, Mapping) else {}
    if named.get("loss") is not None:
        return named["loss"]
    tensors = [part for part in leaves(outputs) if isinstance(part, torch.Tensor)]
    if named and tensors and not any(part.dim() for part in tensors):
        return sum(tensors)
    heads = [named["logits"]] if named.get("logits") is not None else tensors
    if not heads or target is None:
        lacks = "gets no target" if heads else f"returns a {type(outputs).__name__}"
        raise loading.Misfit(f"network {plan.network!r} {lacks}; allowed without a loss: logits, or a loss of its own")
    for logits in heads:
        if logits.dim() < 2 or (target.dim() == 1 and (logits.dim() != 2 or logits.shape[1] < plan.num_classes)):
            raise loading.Misfit(
                f"network {plan.network!r} returns shape {tuple(logits.shape)}; allowed with num_classes"
                f" {plan.num_classes}: ({len(target)}, {plan.num_classes}). Say what it is to be made with, such as"
                f' arguments "num_classes={plan.num_classes}", or name a loss'
            )
    return sum(F.cross_entropy(logits, target) for logits in heads)


def _tensors(batch: tuple) -> Batch:
    return tuple(map(torch.from_numpy, batch))
