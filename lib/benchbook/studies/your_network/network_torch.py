"""Your own torch network, trained."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.parameter import is_lazy

from benchbook.frameworks.torch.runtime import flops_per_sample
from benchbook.frameworks.torch.subject import call, cast, copied
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute
from benchbook.frameworks.workload import Settings
from benchbook.machine.precisions import PRECISIONS
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.plan import MOMENTUM, OFFSET, Plan, count_operations, leaves

COUNTED_SAMPLES = 2  # in the batch for counting operations
HALVES = ("fp16", "bf16")  # bf16, which has fewer digits, is last


@dataclass
class OwnWorkload(TorchWorkload):
    """Training of your network; the target is None if the network computes its own loss."""

    plan: Plan | None = None

    def split(self, batch: Batch) -> tuple[tuple, Any]:
        """Return the network's inputs in a batch, and the target."""
        inputs, target = self.plan.parts(batch)
        return (inputs,), target

    def num_samples(self, batch: Batch) -> int:
        """Return the number of samples in a batch."""
        return self.batch_size

    def _outputs(self, inputs: tuple | dict) -> Any:
        return compute(lambda given: call(self.network, given), (inputs,), self.device, self.settings.precision)


class _Flat(torch.nn.Module):
    """A network that takes the arrays of a batch as arguments and returns a list of the outputs with a gradient."""

    def __init__(self, network: torch.nn.Module, plan: Plan) -> None:
        super().__init__()
        self.network, self.parts = network, lambda batch: plan.parts(batch)  # a function, so that copies share the plan

    def forward(self, *batch: torch.Tensor) -> list[torch.Tensor]:
        outputs = _named_parts(call(self.network, self.parts(batch)[0]))
        return [part for part in leaves(outputs) if isinstance(part, torch.Tensor) and part.requires_grad]


def build(plan: Plan, settings: Settings) -> OwnWorkload:
    """Return the workload; see `plan.build`. If the network has weights in half precision, it trains in that."""
    torch.manual_seed(plan.seed)
    model = plan.make_network(torch.nn.Module).train()
    small = _tensors(plan.small(0, COUNTED_SAMPLES))
    if any(is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        with loading.named_in_errors(f"network {plan.network!r}, given a batch for its lazy layers,"), torch.no_grad():
            call(model.eval(), plan.parts(small)[0])
        model.train()
    stored = {parameter.dtype for parameter in model.parameters()}
    halves = [name for name in HALVES if STORED[name] in stored]
    if halves and not PRECISIONS[settings.precision].autocast:
        settings = replace(settings, precision=halves[-1])
    elif not halves:
        cast(model, STORED[settings.precision])
    count = partial(flops_per_sample, _Flat(model, plan), *small)  # per line of the first array
    lines = len(small[0]) / min(plan.batch_size, COUNTED_SAMPLES)  # per sample
    columns = plan.columns()
    columns |= count_operations(lambda: count(device="meta") * lines, lambda: count(device="cpu") * lines)
    loss = plan.checked_loss(partial(_default_loss, plan))
    model.to(plan.device.torch_type)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(f"network {plan.network!r} has no parameter that is trained; allowed: one or more")
    kinds = {"sgd": partial(torch.optim.SGD, momentum=MOMENTUM), "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[plan.optimizer](trained, lr=plan.learning_rate, fused=settings.fused or None)
    offsets = [f"{name}.bias".lstrip(".") for name in _norms(model)]

    def twin() -> torch.nn.Module:
        """Return a copy of the network. `plain` raises trained offsets of batch norms; this raises frozen ones, too."""
        made = copied(model)
        for layer in _norms(made).values():
            layer.bias.data += OFFSET
        return made

    return OwnWorkload(
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
    """Return the batch norms with an offset, by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, BatchNorm) and layer.affine}


def _named_parts(outputs: Any) -> Any:
    """Return a network's outputs; if they are an object, its attributes by name."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return outputs if isinstance(outputs, torch.Tensor | list | tuple) else getattr(outputs, "__dict__", {})


def _default_loss(plan: Plan, outputs: Any, target: Any) -> torch.Tensor:
    """Return the loss that the network computes, or else the sum over its heads of the cross-entropy of their logits.

    The losses of a detector are added up. Language models return `.loss` and `.logits`, or (logits, loss).
    """
    outputs = _named_parts(outputs)
    named = outputs if isinstance(outputs, Mapping) else {}
    if named.get("loss") is not None:
        return named["loss"]
    tensors = [part for part in leaves(outputs) if isinstance(part, torch.Tensor)]
    scalars = [part for part in tensors if not part.dim()]
    if scalars and (len(scalars) == len(tensors) or (target is None and not named)):
        return sum(scalars)
    heads = [named["logits"]] if named.get("logits") is not None else tensors
    if not heads or target is None:
        lacks = "gets no target" if heads else f"returns a {type(outputs).__name__}"
        raise loading.Misfit(f"network {plan.network!r} {lacks}; allowed without a loss: logits, or a loss of its own")
    if target.dim() == 2 and not target.is_floating_point():  # a label for each token
        heads = [head.transpose(1, -1) if head.shape[:2] == target.shape else head for head in heads]
    for logits in heads:
        if logits.dim() < 2 or (target.dim() == 1 and (logits.dim() != 2 or logits.shape[1] < plan.num_classes)):
            raise loading.Misfit(
                f"network {plan.network!r} returns shape {tuple(logits.shape)}; allowed with num_classes"
                f" {plan.num_classes}: ({len(target)}, {plan.num_classes}). Pass arguments to the network, such as"
                f' "num_classes={plan.num_classes}", or name a loss'
            )
    return sum(F.cross_entropy(logits, target) for logits in heads)


def _tensors(batch: tuple) -> Batch:
    return tuple(map(torch.from_numpy, batch))
