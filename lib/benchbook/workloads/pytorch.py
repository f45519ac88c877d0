"""What all torch workloads share: a training step, evaluation, and going back to fresh weights."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy
import torch
from torch import nn

from benchbook import devices
from benchbook.devices import Device
from benchbook.workloads import Evaluation, Settings

Batch = tuple[torch.Tensor, ...]

# What weights and images are kept in, and what autocast computes in.
STORED = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "amp_bf16": torch.float32,
    "amp_fp16": torch.float32,
}
AUTOCAST = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}
LARGEST_LOSS_SCALE = 2.0**16  # where torch.amp.GradScaler begins


@dataclass
class TorchWorkload:
    """A network trained with torch; see `benchbook.workloads.Workload` for the interface.

    As it stands it is a classifier; another kind of network says in `split` what of a batch goes where.

    Attributes:
        model: network on the device; images (n, 1 or 3, height, width) to log-probabilities (n, classes).
        loss: log-probabilities and labels (n,) to their loss.
        optimizer, scheduler: the schedule steps once an epoch.
        train_batches: epoch number to the batches of that epoch.
        test_batches: to all test batches.
        columns: the description of the work, as columns of a row.
        loss_is_sum: whether `loss` adds up a batch's losses instead of taking their mean.
        parity_batches: a number to that many batches on the host, the same for every device.
        parity_weights: the present parameters by name to those that are compared with float64; None: the same.
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
    parity_batches: Callable[[int], list[Batch]] | None = None
    parity_weights: Callable[[dict[str, numpy.ndarray]], dict[str, numpy.ndarray]] | None = None
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.network = prepare(self.model, self.settings)
        self.optimizer.step = update(self.optimizer, self.settings)
        scaled = self.settings.precision == "amp_fp16"  # small gradients vanish in float16
        self.scaler = torch.amp.GradScaler(self.device.kind, enabled=scaled)

    def description(self) -> dict:
        """Return the columns that describe the work."""
        sizes = {"parameters": count_parameters(self.model), "batch_size": self.batch_size}
        return sizes | {"precision": self.settings.precision, "compiled": self.settings.compiled} | self.columns

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
            "random": devices.random_state(self.device),
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
        devices.restore_random_state(self.device, state["random"])

    def parity_subject(self, device: Device, precision: str) -> "TorchParitySubject":
        """Return a copy of the network at its present weights, with a fresh optimiser; see `ParityWorkload`."""
        model, optimizer = copy.deepcopy((self.model, self.optimizer))  # together: the copy updates the copy
        optimizer.state.clear()
        # The reference computes plainly; the device as the workload does.
        settings = self.settings if precision == self.settings.precision else Settings()
        settings = replace(settings, precision=precision)
        subject = TorchParitySubject(model, self.loss, optimizer, self.split, device, settings, self.loss_is_sum)
        if self.parity_weights:
            subject.load(self.parity_weights(subject.parameters()))
        return subject


class TorchParitySubject:
    """A torch network that repeats the same steps on any device; see `benchbook.workloads.ParitySubject`.

    Args:
        model, loss, split, loss_is_sum: as a TorchWorkload has them; the model is moved, and its dropout put off.
        optimizer: over the model's parameters.
        device: where to compute.
        precision: a key of `STORED`.

    Raises:
        ValueError: an unknown precision.
        NotImplementedError: tf32 elsewhere than on CUDA.
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
        if precision == "tf32" and device.kind != "cuda":
            raise NotImplementedError(f"{device.kind} has no tf32; allowed: cuda")
        # By way of the CPU: MPS has no float64 to convert to.
        self.model = _without_dropout(model).cpu().to(STORED[precision]).to(device.kind)
        self.network, self.settings = prepare(self.model, settings), settings
        self.loss, self.optimizer, self.split = loss, optimizer, split
        self.optimizer.step = update(optimizer, settings)
        self.device, self.precision, self.loss_is_sum = device, precision, loss_is_sum
        self.loss_scale = LARGEST_LOSS_SCALE if "fp16" in precision else 1.0

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
        return loss, gradients

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its mean loss from before the step."""
        loss = self._backward(batch)
        self.optimizer.step()
        return loss

    def _trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def _backward(self, batch: Batch) -> float:
        """Leave the batch's gradients in the parameters and return its mean loss.

        Small gradients vanish in float16, so there the loss is scaled, and the scale halved until nothing
        overflows, as torch.amp.GradScaler does over its first steps.
        """
        inputs, target = self.split(tuple(self._move(part) for part in batch))
        with _arithmetic(self.device, self.precision):
            while True:
                loss = self._loss(inputs, target)
                self.optimizer.zero_grad()
                (loss * self.loss_scale).backward()
                gradients = [parameter.grad for _, parameter in self._trainable() if parameter.grad is not None]
                if self.loss_scale == 1 or all(gradient.isfinite().all() for gradient in gradients):
                    break
                self.loss_scale /= 2
        for gradient in gradients:
            gradient.div_(self.loss_scale)
        return loss.item() / (len(batch[0]) if self.loss_is_sum else 1)

    def _loss(self, inputs: Batch, target: torch.Tensor) -> torch.Tensor:
        return self.loss(compute(self.network, inputs, self.device, self.precision), target)

    def _move(self, part: torch.Tensor) -> torch.Tensor:
        return move(part, self.device, self.settings)


def move(part: torch.Tensor, device: Device, settings: Settings) -> torch.Tensor:
    """Return a tensor on the device, in what the precision keeps and in the settings' memory format."""
    stored = STORED[settings.precision] if part.is_floating_point() else part.dtype
    return part.to(stored).to(device.kind, memory_format=memory_format(part, settings))


def prepare(model: nn.Module, settings: Settings) -> Callable:
    """Return what computes the model's outputs: its weights in the memory format, compiled if that is asked for."""
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    return torch.compile(model) if settings.compiled else model


def update(optimizer: torch.optim.Optimizer, settings: Settings) -> Callable:
    """Return the optimiser's step; where it is to be fused and torch has no fused form of it, it is compiled.

    Compiled, a step passes once over the weights instead of once for each of its operations. A learning rate must be a
    tensor then: for another number the step would be compiled again.
    """
    own = optimizer.defaults.get("fused")
    return torch.compile(optimizer.step) if settings.fused and not own else optimizer.step


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: dict) -> None:
    """Go back to an optimiser's state, as its `load_state_dict`, but let Adadelta keep its tensors where it can.

    For other tensors a compiled step is compiled anew, in the first window that is timed. Adadelta begins with zeros.
    """
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


def compute(network: Callable, inputs: Sequence[torch.Tensor], device: Device, precision: str):
    """Return the network's outputs; under autocast as float32, in which losses must be computed."""
    if precision not in AUTOCAST:
        return network(*inputs)
    with torch.autocast(device.kind, dtype=AUTOCAST[precision]):
        outputs = network(*inputs)
    return tuple(part.float() for part in outputs) if isinstance(outputs, tuple) else outputs.float()


def memory_format(part: torch.Tensor, settings: Settings) -> torch.memory_format:
    """Return the memory format for a tensor: channels last makes sense for images alone."""
    images = settings.channels_last and part.dim() == 4
    return torch.channels_last if images else torch.preserve_format


@contextmanager
def _arithmetic(device: Device, precision: str) -> Iterator[None]:
    """Compute float32 products in TF32 units for precision tf32, else never; afterwards as it was."""
    before = "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "fp32"
    devices.set_precision("tf32" if precision == "tf32" else "fp32")
    try:
        yield
    finally:
        devices.set_precision(before)


def _without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)):
            module.p = 0.0
    return model


def _on_host(tensor: torch.Tensor) -> numpy.ndarray:
    return tensor.detach().cpu().double().numpy().copy()


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers a model's parameters hold."""
    return sum(parameter.numel() for parameter in model.parameters())
