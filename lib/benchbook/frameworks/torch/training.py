"""What all torch workloads share: a training step, evaluation, and going back to fresh weights."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.torch.parity import TorchSubject, without_dropout
from benchbook.frameworks.torch.runtime import (
    STORED,
    Batch,
    begin_momentum,
    compute,
    count_parameters,
    gradient_scaler,
    move,
    prepare,
    switch,
    switched,
    update,
)
from benchbook.frameworks.workload import Evaluation, Settings


@dataclass
class TorchWorkload:
    """A network trained with torch; see `benchbook.frameworks.workload.Workload` for the interface.

    As it stands it is a classifier; another kind of network says in `split` what of a batch goes where.

    Attributes:
        model: network on the device; images (n, 1 or 3, height, width) to log-probabilities (n, classes).
        loss: log-probabilities and labels (n,) to their loss.
        optimizer, scheduler: the schedule steps once an epoch.
        train_batches: epoch number to the batches of that epoch.
        test_batches: to all test batches.
        columns: the description of the work, as columns of a row.
        loss_is_sum: whether `loss` adds up a batch's losses instead of taking their mean.
        plain: what training is held against; None: it cannot be checked.
        settings: precision, memory format and compilation; the optimiser is fused by whoever makes it.
    """

    device: Device
    batch_size: int
    model: nn.Module
    loss: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    train_batches: Callable[[int], Iterable[Batch]]
    test_batches: Callable[[], Iterable[Batch]]
    columns: dict = field(default_factory=dict)
    epoch: int = 0
    loss_is_sum: bool = False
    plain: Plain | None = None
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.enter()
        self.network = prepare(self.model, self.settings)
        begin_momentum(self.optimizer)
        self.optimizer.step = update(self.optimizer, self.settings)
        self.scaler = gradient_scaler(self.device, self.settings.precision)

    def description(self) -> dict:
        """Return the columns that describe the work."""
        sizes = {"parameters": count_parameters(self.model), "batch_size": self.batch_size}
        return sizes | {"precision": self.settings.precision, "compiled": self.settings.compiled} | self.columns

    def enter(self) -> None:
        """Set torch's switches for float32 products and convolutions as this network computes."""
        switch(self.settings)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield one epoch's batches, as the loader delivers them."""
        return iter(self.train_batches(epoch))

    def num_samples(self, batch: Batch) -> int:
        """Return the images in a batch."""
        return len(batch[0])

    @staticmethod
    def split(batch: Batch) -> tuple[Batch, torch.Tensor]:
        """Return what the network sees of a batch, and what the loss compares its outputs with."""
        images, labels = batch
        return (images,), labels

    def step(self, batch: Batch) -> torch.Tensor:
        """Train on one batch; the loss stays on the device, so that nothing waits for it."""
        inputs, target = self.split(self.to_device(batch))
        if self.settings.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad()
        loss = self.loss(self._outputs(*inputs), target)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach() / len(batch[0]) if self.loss_is_sum else loss.detach()

    def to_device(self, batch: Batch) -> Batch:
        """Return a batch where and as a step needs it; what is there already is not moved again."""
        return tuple(self._move(part) for part in batch)

    def mean_loss(self, losses: list[torch.Tensor]) -> float:
        """Read the losses of many steps and return their mean."""
        return torch.stack(losses).cpu().double().mean().item()  # on the host: MPS has no float64

    def end_epoch(self) -> None:
        """Advance epoch and schedule."""
        self.epoch += 1
        self.scheduler.step()

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Return mean loss and top-1 accuracy over all test images, unread."""
        self.model.eval()
        total, correct, samples = 0.0, 0, 0
        for batch in self.test_batches():
            images, labels = (self._move(part) for part in batch)
            outputs = self._outputs(images)
            total = total + self.loss(outputs, labels) * len(labels)
            correct = correct + (outputs.argmax(1) == labels).sum()
            samples += len(labels)
        self.model.train()
        return Evaluation(total / samples, correct / samples, samples)

    def _move(self, part: torch.Tensor) -> torch.Tensor:
        return move(part, self.device, self.settings)

    def _outputs(self, *inputs: torch.Tensor):
        return compute(self.network, inputs, self.device, self.settings.precision)

    def snapshot(self) -> dict:
        """Return a deep copy of everything that training changes."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": self.device.backend.random_state(self.device),
            "epoch": self.epoch,
        }
        return copy.deepcopy(state)

    def restore(self, state: dict) -> None:
        """Go back to a snapshot, in place: compiled code and the optimiser's references stay valid."""
        state = copy.deepcopy(state)
        self.model.load_state_dict(state["model"])
        _restore_optimizer(self.optimizer, state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.optimizer.zero_grad()
        self.epoch = state["epoch"]
        self.device.backend.restore_random_state(self.device, state["random"])

    def pass_steps(self, count: int) -> None:
        """Go on as after so many steps of a schedule that changes with every step; here none does."""

    @contextmanager
    def compared(self, precision: str) -> Iterator[TorchSubject]:
        """Yield what is compared with float64: this workload itself, or in another precision a copy of it.

        Afterwards weights, optimiser, schedule and random state are what they were.
        """
        settings = self.settings if precision == self.settings.precision else Settings(precision)
        self.device.check_precision(precision)
        with switched(settings):
            workload = self if settings == self.settings else self._computing_as(settings)
            with without_dropout(workload.model):
                subject = TorchSubject(workload)
                try:
                    yield subject
                finally:
                    workload.restore(subject.fresh)

    def _computing_as(self, settings: Settings) -> "TorchWorkload":
        """Return a workload with a copy of the network and a fresh optimiser that computes in another way."""
        random = self.device.backend.random_state(self.device)
        model, optimizer = copy.deepcopy((self.model, self.optimizer))  # together: the copy updates the copy
        # By way of the CPU: MPS has no float64 to convert to.
        model.cpu().to(STORED[settings.precision]).to(self.device.kind)
        optimizer.state.clear()
        # torch's copy forgets that a fused step is handed the scale, and skips itself where gradients overflow.
        if hasattr(self.optimizer, "_step_supports_amp_scaling"):
            optimizer._step_supports_amp_scaling = self.optimizer._step_supports_amp_scaling
        scheduler = copy.copy(self.scheduler)
        scheduler.optimizer = optimizer
        made = replace(self, model=model, optimizer=optimizer, scheduler=scheduler, settings=settings)
        self.device.backend.restore_random_state(self.device, random)
        return made


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: dict) -> None:
    """Go back to an optimiser's state, as its `load_state_dict`, but let Adadelta keep its tensors where it can.

    For other tensors a compiled step is compiled anew, in the first window that is timed. Adadelta begins with zeros.
    So it is for another `capturable`, which torch's compiler sets on the optimiser itself (2.10 and 2.11, on a GPU).
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
