"""Your own torch network, trained."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy
import torch
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from benchbook.frameworks import plain
from benchbook.frameworks.torch.runtime import flops_per_sample
from benchbook.frameworks.torch.subject import call, cast, copied
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute
from benchbook.machine.precisions import PRECISIONS
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.plan import Plan

MOMENTUM = 0.9  # of sgd
# By name: torch's optimiser, and the plain one with torch's default constants.
OPTIMIZERS = {
    "sgd": (partial(torch.optim.SGD, momentum=MOMENTUM), partial(plain.SGD, momentum=MOMENTUM)),
    "adam": (torch.optim.Adam, plain.Adam),
    "adamw": (torch.optim.AdamW, partial(plain.Adam, weight_decay=0.01)),
}
POOL, REPEATS = 4, 4  # different random batches, and how often an epoch has each
COUNTED_SAMPLES = 2  # in the batch for counting operations
HALVES = ("fp16", "bf16")  # bf16, which has fewer digits, is last
OFFSET = 3.0  # standard deviations, added to batch norms' offsets for the comparison of gradients
# Gates and offsets, whose gradients are sums that nearly cancel, have at most a few hundredths of
# the whole gradient.
LEAST_SHARE_FACTOR = 20


class Batches:
    """The batches of a plan, as flat tuples of tensors.

    Attributes:
        num_classes: of the labels of random images.
        made: the last (inputs, target), by its number of tensors.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.num_classes = plan, 2
        self.made: dict[int, tuple] = {}

    def epoch(self, size: int) -> Iterable:
        """Return an epoch's batches of `size` samples as your loader makes them, or random
        images."""
        plan = self.plan
        return _epochs(
            plan.loader, size, (plan.channels, *[plan.image_size] * 2), self.num_classes, plan.seed
        )()

    def of(self, size: int) -> Iterator[Batch]:
        """Yield an epoch's batches of `size` samples, and skip others, such as the last one of
        an epoch.

        Raises:
            ValueError: there is none, or the loader raised an error.
        """
        found = set()
        with loading.naming(f"loader {self.plan.loader!r}, called with ({size}),"):
            for made in self.epoch(size):
                batch, length = self._flat(made)
                found.add(length)
                if length == size:
                    yield batch
            if size not in found:
                lengths = ", ".join(map(str, sorted(found))) or "nothing"
                raise ValueError(
                    f"its batches have {lengths} in their first input; allowed: {size} samples"
                )

    def columns(self) -> dict:
        """Return the columns of a row that depend on the batches."""
        first = self.take(self.plan.batch_size)[0]
        tokens = first.shape[1] if first.dim() == 2 and not first.is_floating_point() else None
        workers = getattr(self.epoch(self.plan.batch_size), "num_workers", 0)
        return {"sequence_length": tokens, "num_workers": workers}

    def take(self, size: int, number: int = 0) -> Batch:
        """Return the batch of a number; after the last of an epoch comes the first."""
        first = [*itertools.islice(self.of(size), number + 1)]
        return first[number % len(first)]

    def nested(self, batch: tuple) -> tuple[tuple | dict, Any]:
        """Return inputs (arguments, or a dictionary of keyword arguments) and target, nested as
        the loader has them.

        Args:
            batch: the tensors of a batch, or NumPy arrays in their place.
        """
        left = iter(batch)
        inputs, target = pytree.tree_map(
            lambda leaf: leaf if leaf is None else next(left), self.made[len(batch)]
        )
        return inputs if isinstance(inputs, tuple | dict) else (inputs,), target

    def _flat(self, made: Any) -> tuple[Batch, int]:
        """Return the tensors of a batch and the length of its first input; keep how they are
        nested."""
        made = (dict(made), None) if isinstance(made, Mapping) else made
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise ValueError(f"a batch is a {type(made).__name__}; allowed: (inputs, target)")
        inputs, target = made
        tensors = tuple(map(torch.as_tensor, leaves((inputs, target))))
        self.made[len(tensors)] = inputs, target
        parts = (
            inputs.values()
            if isinstance(inputs, dict)
            else inputs
            if isinstance(inputs, tuple)
            else [inputs]
        )
        first = next(
            (part for part in parts if isinstance(part, tuple | list) or getattr(part, "ndim", 0)),
            (),
        )
        first = first[0] if isinstance(first, tuple) else first
        return tuple(part.float() if part.is_floating_point() else part for part in tensors), len(
            first
        )


@functools.lru_cache(
    maxsize=4
)  # the sizes of a plan, of its comparison with float64 and of its count of operations
def _epochs(
    loader: str, size: int, shape: tuple, num_classes: int, seed: int
) -> Callable[[], Iterable]:
    """Return a function to an epoch's batches. A loader is made once; a generator is made for
    each epoch."""
    if loader:
        make = loading.resolve(loader, "loader")
        made = make(size)
        return partial(make, size) if isinstance(made, Iterator) else lambda: made
    draws = [numpy.random.default_rng([seed + number, size]) for number in range(POOL)]
    pool = [
        (draw.random((size, *shape), numpy.float32), draw.integers(num_classes, size=size))
        for draw in draws
    ]
    return lambda: pool * REPEATS


@dataclass
class OwnWorkload(TorchWorkload):
    """Training of your network; the target is None if the network computes its own loss."""

    made: Batches | None = None

    def split(self, batch: Batch) -> tuple[tuple, Any]:
        """Return the network's inputs in a batch, and the target."""
        inputs, target = self.made.nested(batch)
        return (inputs,), target

    def num_samples(self, batch: Batch) -> int:
        """Return the number of samples in a batch."""
        return self.batch_size

    def _outputs(self, inputs: tuple | dict) -> Any:
        return compute(
            lambda given: call(self.network, given), (inputs,), self.device, self.settings.precision
        )


def build(plan: Plan) -> OwnWorkload:
    """Return the workload of a plan. If the network has weights in half precision, it trains in
    that.

    Raises:
        ValueError: the network or its loader does not fit; the message says what is allowed.
    """
    torch.manual_seed(plan.seed)
    model, made = _network(plan), Batches(plan)
    stored = {parameter.dtype for parameter in model.parameters()}
    halves = [name for name in HALVES if STORED[name] in stored]
    samples = min(plan.batch_size, COUNTED_SAMPLES)
    small = made.take(samples)
    _fit(plan, model, made, small, STORED[halves[-1]] if halves else torch.float32)
    if halves and not PRECISIONS[plan.settings.precision].autocast:
        plan = replace(plan, settings=replace(plan.settings, precision=halves[-1]))
    elif not halves:
        cast(model, STORED[plan.settings.precision])
    operations, loss = _operations(model, made, small, samples), default_loss
    if plan.loss:
        loss = loading.resolve(plan.loss, "loss")
        loss = (
            loss() if isinstance(loss, type) else loss
        )  # a class, such as torch.nn:CrossEntropyLoss
    model.to(plan.device.torch_type)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = OPTIMIZERS[plan.optimizer][0](
        trained, lr=plan.learning_rate, fused=plan.settings.fused or None
    )
    return OwnWorkload(
        **plan.common(
            lambda epoch: made.of(plan.batch_size),
            tuple,
            **made.columns(),
            flops_per_sample=operations,
        ),
        model=model,
        loss=loss,
        optimizer=optimizer,
        plain=_reference(plan, model, made, loss),
        made=made,
    )


def _reference(plan: Plan, model: torch.nn.Module, made: Batches, loss: Callable) -> plain.Plain:
    """Return the plain version that training is compared with: the same network with a plain
    optimiser.

    In a fresh network, rounding to bfloat16 switches so many ReLUs on and off that it changes
    the gradient: none of twelve networks of torchvision agreed with float64. So batch norms'
    offsets are raised until hardly any ReLU is off: trained ones by `parity_weights`, frozen
    ones in the copy. Small batches are made, not cut from large ones: edges of a graph refer to
    nodes, and a detector's images have boxes.
    """
    offsets = [f"{name}.bias".lstrip(".") for name in _norms(model)]
    size = min(plan.batch_size, plan.parity_batch_size)

    def twin() -> torch.nn.Module:
        copy = copied(model)
        for layer in _norms(copy).values():
            layer.bias.data += OFFSET
        return copy

    return plain.Plain(
        make_network=twin,
        loss=loss,
        make_optimizer=lambda: OPTIMIZERS[plan.optimizer][1](lambda step: plan.learning_rate),
        batch_size=size,
        inputs=made.nested,
        cut=lambda batch, place: made.take(size, place),
        parity_weights=lambda make, weights: (
            weights | {name: weights[name] + OFFSET for name in offsets}
        ),
        least_share_factor=LEAST_SHARE_FACTOR,
        may_be_random=True,
    )


def _network(plan: Plan) -> torch.nn.Module:
    """Return a new network.

    Raises:
        ValueError: there is no such callable, it raises an error, or it returns something else.
    """
    make, given = loading.resolve(plan.network, "network"), loading.keywords(plan.arguments)
    with loading.naming(f"network {plan.network!r}, called with ({plan.arguments}),"):
        network = make(**given)
    if not isinstance(network, torch.nn.Module):
        raise ValueError(
            f"network {plan.network!r} returns a {type(network).__name__}; allowed: a torch.nn.Module"
        )
    if any(base.__name__ == "LightningModule" for base in type(network).__mro__):
        raise ValueError(
            f"network {plan.network!r} is a LightningModule, whose training_step is not run here; allowed: its"
            " network, or its Trainer with benchbook.callbacks.lightning"
        )
    return network


def _fit(
    plan: Plan, model: torch.nn.Module, made: Batches, small: Batch, dtype: torch.dtype
) -> None:
    """Make lazy layers, and without a loader set the number of labels to that of the network's
    classes.

    Raises:
        ValueError: without a loader, the network returns anything but logits of classes.
    """
    if not plan.loader or any(is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        inputs, _ = made.nested(
            [part.to(dtype) if part.is_floating_point() else part for part in small]
        )
        given = "a batch" if plan.loader else "random images"
        with loading.naming(f"network {plan.network!r}, given {given},"), torch.no_grad():
            shapes = {tuple(part.shape) for part in tensors_of(call(model.eval(), inputs))}
        if not plan.loader:
            made.num_classes = max((shape[1] for shape in shapes if len(shape) == 2), default=0)
            if shapes != {(len(small[0]), made.num_classes)} or made.num_classes < 2:
                found = ", ".join(map(str, sorted(shapes))) or "nothing"
                allowed = "(n, classes) without a loader; `--loader` names yours"
                raise ValueError(f"network {plan.network!r} returns {found}; allowed: {allowed}")
    model.train()


def _operations(model: torch.nn.Module, made: Batches, small: Batch, samples: int) -> float | None:
    """Return the operations of a step per sample; None, and print why, if they cannot be
    counted."""

    def run(model: torch.nn.Module, batch: Batch) -> list[torch.Tensor]:
        return tensors_of(call(model, made.nested(batch)[0]))

    for device in ("meta", "cpu"):  # tensors on the meta device have no values
        try:
            return (
                flops_per_sample(model, *small, device=device, run=run) * len(small[0]) / samples
            )  # it is per line
        except Exception as error:  # networks raise anything for meta tensors
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    print(f"The network's operations were not counted: {reason}")
    return None


def _norms(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the batch norms with an offset, by name."""
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, BatchNorm) and layer.affine
    }


def leaves(part: Any) -> list:
    """Return the leaves of nested tuples, lists and dictionaries, in order; None is no leaf."""
    return [leaf for leaf in pytree.tree_leaves(part) if leaf is not None]


def named_parts(outputs: Any) -> Any:
    """Return a network's outputs; if they are an object, its attributes by name."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return (
        outputs
        if isinstance(outputs, torch.Tensor | list | tuple)
        else getattr(outputs, "__dict__", {})
    )


def tensors_of(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors in a network's outputs, in order."""
    return [part for part in leaves(named_parts(outputs)) if isinstance(part, torch.Tensor)]


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
        found = f"outputs of shapes {[tuple(part.shape) for part in tensors]}{' and no target' * (target is None)}"
        raise ValueError(
            f"{found}; allowed without a loss: logits (n, classes) and a target, or a loss of the network"
        )
    if target.dim() == 2 and not target.is_floating_point():  # a label for each token
        heads = [
            head.transpose(1, -1) if head.shape[:2] == target.shape else head for head in heads
        ]
    return sum(F.cross_entropy(head, target) for head in heads)
