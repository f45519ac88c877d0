"""What all torch workloads share: settings, a training step, evaluation, saving and restoring
the state."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader

from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import Optimizer, Plain
from benchbook.frameworks.torch.devices import BACKEND
from benchbook.frameworks.torch.subject import TorchSubject, to_host, without_dropout
from benchbook.frameworks.workload import Evaluation, Settings, Workload
from benchbook.machine.precisions import PRECISIONS

Batch = tuple[torch.Tensor, ...]

# The types in which weights and images are stored.
STORED = {name: getattr(torch, precision.stored) for name, precision in PRECISIONS.items()}


def move(part: torch.Tensor, device: Device, settings: Settings) -> torch.Tensor:
    """Return a tensor on the device, in the precision's stored type and the settings' memory
    format."""
    stored = STORED[settings.precision] if part.is_floating_point() else part.dtype
    if (
        part.dtype == stored
        and part.device.type == device.torch_type
        and not settings.channels_last
    ):
        return part  # nothing to convert: this saves two calls of torch in each step
    are_images = settings.channels_last and part.dim() == 4
    return part.to(stored).to(
        device.torch_type,
        memory_format=torch.channels_last if are_images else torch.preserve_format,
        non_blocking=device.features.pins_memory,  # of a loader, which pins its batches there
    )


def prepare(model: nn.Module, settings: Settings) -> Callable:
    """Return a function that computes the model's outputs: in the settings' memory format, and
    compiled if they say so.

    A network that is replayed as a CUDA graph overwrites the outputs of the previous call. Its
    losses are computed outside the graph, in other memory, so that those of a window can be read
    after it.

    Source: https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html
    """
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    if (
        settings.compiled
    ):  # each shape separately: code for any size would be compiled after a batch of another size
        return torch.compile(
            model, mode="reduce-overhead" if settings.graphs else None, dynamic=False
        )
    return model


def initialise_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Set SGD's momentum to zeros, which does not change training: the first step's momentum is
    its gradient.

    torch allocates the momentum in the first step. Its fused form allocates uninitialised
    memory, which stays so if the gradient scaler skips that step because gradients overflowed.
    """
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else ():
        for parameter in group["params"] if group["momentum"] and not group["dampening"] else ():
            optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


def switch(settings: Settings) -> None:
    """Set torch's global switches: TF32 for products and convolutions, and cuDNN's trials of
    algorithms.

    Source:
    https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark
    """
    BACKEND.allow_tf32(PRECISIONS[settings.precision].uses_tf32)
    torch.backends.cudnn.benchmark = settings.autotuned


def compute(network: Callable, inputs: Sequence[torch.Tensor], device: Device, precision: str):
    """Return the network's outputs; those of autocast are converted to float32, in which losses
    are computed."""
    wanted = PRECISIONS[precision]
    if not wanted.autocast:
        return network(*inputs)
    with torch.autocast(device.torch_type, dtype=getattr(torch, wanted.computed)):
        outputs = network(*inputs)
    return tree_map_only(
        torch.Tensor, lambda part: part.float() if part.is_floating_point() else part, outputs
    )


@dataclass(kw_only=True)
class TorchWorkload(Workload):
    """A network trained with torch: a classifier, unless a subclass overrides `split`.

    Attributes:
        model: network on the device; images (n, 1 or 3, height, width) to log-probabilities (n,
        classes).
        loss: log-probabilities and labels (n,) to their loss.
        optimizer: fused by the code that makes it, if the settings say so.
        scheduler: the learning rate's schedule; None: it is constant.
        rate_by_step: whether the schedule advances with every step instead of every epoch.
        loss_is_sum: whether `loss` is the sum of a batch's losses instead of their mean.
        max_norm: a larger norm of all gradients together is scaled down to this one; 0: no limit.
        plain: the reference's parts; None: training cannot be compared.
    """

    model: nn.Module
    loss: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    loss_is_sum: bool = False
    max_norm: float = 0.0
    rate_by_step: bool = False
    plain: Plain | None = None

    def __post_init__(self) -> None:
        self.enter()
        self.scheduler = self.scheduler or torch.optim.lr_scheduler.ConstantLR(
            self.optimizer, factor=1.0
        )
        self.network = prepare(self.model, self.settings)
        self.objective = self._objective()
        initialise_momentum(self.optimizer)
        self.num_hooked = 0
        self.has_compiled_optimizer = self.settings.fused and not self.optimizer.defaults.get(
            "fused"
        )
        if self.has_compiled_optimizer:
            # torch has no fused form of this optimiser. A compiled step reads the weights once
            # instead of once for each operation. The learning rate must be a tensor: another number
            # would need another compilation.
            self.optimizer.step = torch.compile(self.optimizer.step)
        else:
            self.optimizer.register_step_post_hook(self._count_step)
        precision = PRECISIONS[self.settings.precision]
        scaled = (
            precision.needs_scaling and precision.autocast
        )  # the scaler cannot unscale gradients in float16
        self.scaler = torch.amp.GradScaler(self.device.torch_type, enabled=bool(scaled))
        elaborate = (
            precision.autocast
            or self.settings.compiled
            or self.max_norm
            or self.rate_by_step
            or self.loss_is_sum
        )
        if not elaborate and type(self)._outputs is TorchWorkload._outputs:
            self.step = self.plain_step

    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def trained_weights(self) -> Iterator[numpy.ndarray]:
        return (to_host(part) for part in self.model.parameters() if part.requires_grad)

    def has_dropout(self) -> bool:
        random = (each for each in self.model.modules() if "Dropout" in type(each).__name__)
        return any(getattr(each, "p", 0) > 0 for each in random)

    def enter(self) -> None:
        switch(self.settings)

    def epochs(self) -> Iterator[Iterator]:
        first, begun = self.train_batches(self.epoch), self.epoch
        if not getattr(first, "num_workers", 0):
            yield from super().epochs()
            return

        def order() -> Iterator:
            yield from first.batch_sampler
            for epoch in itertools.count(begun + 1):
                later = self.train_batches(epoch)
                if (
                    later.generator is not None
                ):  # a separate loader would draw its workers' seed before the order
                    torch.empty((), dtype=torch.int64).random_(generator=later.generator)
                yield from later.batch_sampler

        options = {
            "num_workers": first.num_workers,
            "pin_memory": first.pin_memory,
            "generator": first.generator,
        }
        stream = iter(DataLoader(first.dataset, batch_sampler=order(), **options))
        stream = itertools.chain([next(stream)], stream)  # the workers have started now
        while True:
            yield itertools.islice(stream, len(first))

    @staticmethod
    def split(batch: Batch) -> tuple[Batch, torch.Tensor]:
        """Return a batch's inputs for the network, and the target for the loss."""
        images, labels = batch
        return (images,), labels

    def plain_step(self, batch: Batch) -> torch.Tensor:
        """Train on a batch as `step` does where nothing but the loss is asked for, and return
        the loss."""
        inputs, target = self.split(self.to_device(batch))
        self.optimizer.zero_grad()
        loss = self.loss(self.network(*inputs), target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self, batch: Batch) -> torch.Tensor:
        inputs, target = self.split(self.to_device(batch))
        if self.settings.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad()
        loss = self.objective(inputs, target)
        self.scaler.scale(loss).backward()
        if self.max_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.rate_by_step:
            self.scheduler.step()
        return loss.detach() / len(batch[0]) if self.loss_is_sum else loss.detach()

    def steps_taken(self) -> int:
        """Return the steps that a hook of the optimiser counted; for a compiled optimiser those
        in its state.

        The compiler would trace a hook in Python, and compile it again for each number. SGD's
        state has no count.
        """
        if not self.has_compiled_optimizer:
            return self.num_hooked
        return max((int(values["step"]) for values in self.optimizer.state.values()), default=0)

    def _count_step(self, *_: Any) -> None:
        self.num_hooked += 1

    def to_device(self, batch: Batch) -> Batch:
        return tuple(self._move(part) for part in batch)

    def mean_loss(self, losses: list[torch.Tensor]) -> float:
        return torch.stack(losses).cpu().double().mean().item()  # on the host: MPS has no float64

    def end_epoch(self) -> None:
        super().end_epoch()
        if not self.rate_by_step:
            self.scheduler.step()

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        self.model.eval()
        evaluation = super().evaluate()
        self.model.train()
        return evaluation

    def score(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | int, int]:
        inputs, target = self.split(self.to_device(batch))
        outputs = self._outputs(*inputs)
        right = (outputs.argmax(1) == target).sum() if self.metric else 0
        return (
            self.loss(outputs, target) * (1 if self.loss_is_sum else len(target)),
            right,
            len(target),
        )

    def _move(self, part: torch.Tensor) -> torch.Tensor:
        return move(part, self.device, self.settings)

    def _objective(self) -> Callable[[Batch, torch.Tensor], torch.Tensor]:
        """Return a function from the network's inputs and the target to the loss.

        Compiled code computes network, cast and loss in one function: a loss of its own would
        read and write all outputs once for each of its operations. CUDA graphs leave the loss
        outside, see `prepare`.
        """
        in_one = self.settings.compiled and not self.settings.graphs

        def objective(inputs: Batch, target: torch.Tensor) -> torch.Tensor:
            network = self.model if in_one else self.network
            outputs = compute(network, inputs, self.device, self.settings.precision)
            return self.loss(outputs, target)

        return torch.compile(objective, dynamic=False) if in_one else objective

    def _outputs(self, *inputs: torch.Tensor):
        return compute(self.network, inputs, self.device, self.settings.precision)

    def state(self) -> dict:
        parts = ("model", "optimizer", "scheduler", "scaler")
        return copy.deepcopy({name: getattr(self, name).state_dict() for name in parts})

    def load_state(self, state: dict) -> None:
        """Restore a state in place: compiled code and the optimiser's references stay valid."""
        state = copy.deepcopy(state)
        self.model.load_state_dict(state["model"])
        _restore_optimizer(self.optimizer, state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.optimizer.zero_grad()

    def advance_schedule(self, count: int) -> None:
        if count:
            self.scheduler.last_epoch = count
            factors = zip(self.scheduler.base_lrs, self.scheduler.lr_lambdas, strict=True)
            for group, (first, factor) in zip(self.optimizer.param_groups, factors, strict=True):
                group["lr"] = first * factor(count)

    @contextmanager
    def compared(self) -> Iterator[TorchSubject]:
        self.device.check_precision(self.settings.precision)
        self.enter()
        with without_dropout(self.model, self.plain.may_be_random):
            subject = TorchSubject(self)
            try:
                yield subject
            finally:
                self.restore(subject.fresh)


def adopt(workload: TorchWorkload) -> None:
    """Compare the training of a reader's network with that of a copy in float64, which decays
    what its optimiser does."""
    own, plain = copy.deepcopy(workload.model).cpu(), workload.plain
    assert plain is not None  # every study's network can be compared
    names = {id(part): name for name, part in workload.model.named_parameters()}
    groups = [group for group in workload.optimizer.param_groups if group["weight_decay"]]
    decayed = {names[id(part)] for group in groups for part in group["params"]}

    def make_optimizer() -> Optimizer:
        optimizer = plain.make_optimizer()
        if hasattr(optimizer, "is_decayed"):
            optimizer.is_decayed = decayed.__contains__
        return optimizer

    workload.plain = replace(
        plain,
        make_network=lambda: copy.deepcopy(own),
        make_optimizer=make_optimizer,
        parity_weights=None,
        may_be_random=True,
    )


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: dict) -> None:
    """Restore an optimiser's state as `load_state_dict` does, but without another compilation in
    a timed window.

    A compiled step is compiled again for other tensors: Adadelta, whose state begins with zeros,
    keeps its tensors. It is also compiled again for another `capturable`, which torch's compiler
    sets (2.10 and 2.11, on a GPU).
    """
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        saved |= {name: group[name] for name in ("capturable",) if name in group}
    if state["state"] or not isinstance(optimizer, torch.optim.Adadelta):
        optimizer.load_state_dict(state)
        return
    for values in optimizer.state.values():
        for value in values.values():
            value.zero_()
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        for name in saved.keys() - {"params"}:
            if isinstance(saved[name], torch.Tensor):
                group[name].copy_(saved[name])
            else:
                group[name] = saved[name]
