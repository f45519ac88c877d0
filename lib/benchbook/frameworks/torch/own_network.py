"""A training step around any torch network: its batches, its loss and its optimiser by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from benchbook.frameworks.devices import Device
from benchbook.frameworks.torch.subject import call, cast
from benchbook.frameworks.torch.training import STORED, compute, move, prepare, switch
from benchbook.frameworks.workload import Settings
from benchbook.machine.precisions import PRECISIONS

OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
POOL = 4  # different batches of random images
LOOKED_AT = 2  # samples that show how many classes there are
HALVES = ("fp16", "bf16")  # a network that is stored in one of these trains in it


class Epochs:
    """Batches of a generator function, which is called anew for each epoch."""

    def __init__(self, make: Callable[[], Iterator]) -> None:
        self.make = make

    def __iter__(self) -> Iterator:
        return self.make()


def build(choices: Any, device: Device) -> tuple[Callable[[Any], torch.Tensor], Iterable]:
    """Return a training step of a batch, which returns the loss, and an epoch's batches.

    Args:
        choices: as `loop.networks.Choices`, with callables: network makes it; for what loader makes
            see `inputs_of`, without one images are drawn on the device; loss takes (outputs,
            target), or is a class of such, without one it is `default_loss`.

    Raises:
        ValueError: network, batches or loss do not fit; the message says what is allowed.
    """
    switch(choices.settings)
    torch.manual_seed(1)
    model = choices.network()
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"it returns a {type(model).__name__}; allowed: a torch.nn.Module")
    if any(base.__name__ == "LightningModule" for base in type(model).__mro__):
        raise ValueError(
            "it is a LightningModule, whose training_step is not run here; allowed: its network,"
            " or its Trainer with benchbook.callbacks.lightning"
        )
    stored = {part.dtype for part in model.parameters()}
    half = next((name for name in HALVES if STORED[name] in stored), None)
    settings = choices.settings
    if half and not PRECISIONS[settings.precision].autocast:
        settings = replace(settings, precision=half)
    elif not half:
        cast(model, STORED[settings.precision])
    model.to(device.torch_type)
    make_batches = partial(_random_images, model, device, settings, choices)
    if choices.loader:
        make_batches = partial(choices.loader, choices.batch_size)
    batches = make_batches()
    if isinstance(batches, Iterator):
        batches = Epochs(make_batches)
    if any(is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        with torch.no_grad():
            call(model, _placed(inputs_of(next(iter(batches))), device, settings)[0])
    loss = choices.loss() if isinstance(choices.loss, type) else choices.loss or default_loss
    trained = [part for part in model.train().parameters() if part.requires_grad]
    make_rule = OPTIMIZERS[choices.optimizer]
    rule = make_rule(trained, lr=choices.learning_rate, fused=settings.fused or None)
    precision, forward = PRECISIONS[settings.precision], partial(call, prepare(model, settings))
    is_scaled = bool(precision.needs_scaling and precision.autocast)
    scaler = torch.amp.GradScaler(device.torch_type, enabled=is_scaled)

    def step(batch: Any) -> torch.Tensor:
        inputs, target = _placed(inputs_of(batch), device, settings)
        rule.zero_grad()
        value = loss(compute(forward, (inputs,), device, settings.precision), target)
        scaler.scale(value).backward()
        scaler.step(rule)
        scaler.update()
        return value.detach()

    return step, batches


def inputs_of(batch: Any) -> tuple[tuple | dict, Any]:
    """Return the network's inputs in a batch, as arguments or keyword arguments, and the target.

    A batch is (inputs, target), or a dictionary of keyword arguments without a target. Inputs
    are an array, a tuple of arguments or a dictionary; they may nest lists and dictionaries.

    Raises:
        ValueError: a batch of another form.
    """
    if isinstance(batch, Mapping):
        return dict(batch), None
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"a batch is a {type(batch).__name__}; allowed: (inputs, target)")
    inputs, target = batch
    return (inputs if isinstance(inputs, tuple | dict) else (inputs,)), target


def num_samples(batch: Any) -> int:
    """Return the length of the first input in a batch that has one."""
    inputs, _ = inputs_of(batch)
    parts = inputs.values() if isinstance(inputs, dict) else inputs
    for part in parts:
        if isinstance(part, list | tuple) or getattr(part, "ndim", 0):
            return len(part)
    raise ValueError("a batch has no input with a length; allowed: arrays of samples")


def _random_images(model, device, settings, choices) -> list[tuple]:
    """Return batches of random images on the device, with labels of the network's classes."""
    random, batch_size, side = (
        torch.Generator().manual_seed(1),
        choices.batch_size,
        choices.image_size,
    )
    shape = POOL, batch_size, choices.channels, side, side
    pixels = torch.rand(shape, generator=random).to(device.torch_type)
    with torch.no_grad():
        outputs = model.eval()(move(pixels[0, :LOOKED_AT], device, settings))
    shapes = {tuple(part.shape) for part in tensors_of(outputs)}
    count = max((shape[1] for shape in shapes if len(shape) == 2), default=0)
    if shapes != {(min(batch_size, LOOKED_AT), count)} or count < 2:
        found = ", ".join(map(str, sorted(shapes))) or "nothing"
        raise ValueError(
            f"it returns {found} of random images; allowed: (n, classes) without a loader;"
            " `--loader` names yours"
        )
    labels = torch.randint(count, (POOL, batch_size), generator=random).to(device.torch_type)
    return [
        (move(part, device, settings), label) for part, label in zip(pixels, labels, strict=True)
    ]


def _placed(parts: tuple, device: Device, settings: Settings) -> tuple:
    """Return inputs and target as tensors on the device."""

    def place(leaf: Any) -> Any:
        return leaf if leaf is None else move(torch.as_tensor(leaf), device, settings)

    return pytree.tree_map(place, parts)


def named_parts(outputs: Any) -> Any:
    """Return a network's outputs; if they are an object, its attributes by name."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    is_nested = isinstance(outputs, torch.Tensor | list | tuple)
    return outputs if is_nested else getattr(outputs, "__dict__", {})


def tensors_of(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors in a network's outputs, in order."""
    leaves = pytree.tree_leaves(named_parts(outputs))
    return [part for part in leaves if isinstance(part, torch.Tensor)]


def default_loss(outputs: Any, target: Any) -> torch.Tensor:
    """Return the loss that the network computes, or else the sum over its heads of the
    cross-entropy of their logits.

    The losses of a detector are added up. Language models return `.loss` and `.logits`, or
    (logits, loss).

    Raises:
        ValueError: the outputs are neither, or there is no target.
    """
    named, tensors = named_parts(outputs), tensors_of(outputs)
    named = named if isinstance(named, dict) else {}
    if named.get("loss") is not None:
        return named["loss"]
    scalars = [part for part in tensors if not part.dim()]
    if scalars and (len(scalars) == len(tensors) or (target is None and not named)):
        return sum(scalars)
    heads = [named["logits"]] if named.get("logits") is not None else tensors
    if target is None or not heads or min(head.dim() for head in heads) < 2:
        found = f"outputs of shapes {[tuple(part.shape) for part in tensors]}"
        found += " and no target" if target is None else ""
        raise ValueError(
            f"{found}; allowed without a loss: logits (n, classes) and a target, or a loss of the network"
        )
    if target.dim() == 2 and not target.is_floating_point():  # a label for each token
        heads = [
            head.transpose(1, -1) if head.shape[:2] == target.shape else head for head in heads
        ]
    return sum(F.cross_entropy(head, target) for head in heads)
