"""Faults of training that parity has to see, planted in built workloads and in the code that all
of them share."""

import itertools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any
from unittest import mock

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from benchbook.frameworks.plain import SGD, LabelsByImage, Plain
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.frameworks.workload import Settings
from made.fakes import CPU

Plant = Callable[[Any], None]  # changes a built workload, which then has the fault


class Tiny(nn.Module):
    """A convolution, a batch norm, a ReLU, dropout and a dense layer: (n, 1, 6, 6) to logits of
    three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.dropout, self.dense = nn.Dropout(0.3), nn.Linear(64, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.dense(self.dropout(F.relu(self.norm(self.convolution(images))).flatten(1)))


def tiny(
    precision: str = "fp32",
    seed: int = 0,
    count: int = 48,
    batch_size: int = 8,
    network: Callable[[], nn.Module] = Tiny,
) -> TorchWorkload:
    """Return a workload of small images that takes milliseconds a step, with momentum and weight
    decay.

    Parity compares batches of 8.
    """
    torch.manual_seed(seed)
    labels = (numpy.arange(count) % 3).astype("int64")
    pixels = (
        numpy.random.default_rng(seed).integers(0, 150, (count, 6, 6)) + 50 * labels[:, None, None]
    )
    stored = LabelsByImage(pixels.astype("uint8"), labels)
    images, target = torch.from_numpy(pixels[:, None] / 255).float(), torch.from_numpy(labels)

    def batches(epoch: int) -> Iterator[tuple]:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
        return ((images[part], target[part]) for part in order.split(batch_size))

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=5e-4)
    plain = Plain(
        make_network=network,
        loss=F.cross_entropy,
        make_optimizer=lambda: SGD(lambda step: 0.1, 0.9, weight_decay=5e-4),
        batch_size=8,
        labels=lambda batch, place: stored.matches(batch[0][:, 0] * 255, batch[1]),
    )
    return TorchWorkload(
        device=CPU,
        batch_size=batch_size,
        model=model,
        loss=F.cross_entropy,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0),
        train_batches=batches,
        test_batches=lambda: iter([(1 - images, target)]),
        columns={"model": "tiny", "dataset": "random", "dataset_samples": count},
        settings=Settings(precision),
        plain=plain,
    )


def no_update(workload: TorchWorkload) -> None:
    """Let the optimiser do nothing."""
    workload.optimizer.step = mock.Mock(return_value=None)  # as a schedule wraps it


def option(name: str, change: Callable[[float], float]) -> Plant:
    """Return a plant that changes an option of the built optimiser, and of the schedule that
    sets it."""

    def plant(workload: TorchWorkload) -> None:
        for group in workload.optimizer.param_groups:
            group[name] = change(group[name])
        if name == "lr":
            workload.scheduler.base_lrs = [change(rate) for rate in workload.scheduler.base_lrs]

    return plant


def untrained_convolutions(workload: TorchWorkload) -> None:
    """Leave the convolutions' weights out of the optimiser."""
    kernels = [part.weight for part in workload.model.modules() if isinstance(part, nn.Conv2d)]
    for kernel in kernels:
        workload.optimizer.state.pop(kernel, None)
    left_out = {id(kernel) for kernel in kernels}
    for group in workload.optimizer.param_groups:
        group["params"] = [part for part in group["params"] if id(part) not in left_out]


def frozen_convolutions(workload: TorchWorkload) -> None:
    """Let the convolutions have no gradients."""
    for part in workload.model.modules():
        if isinstance(part, nn.Conv2d):
            part.requires_grad_(False)


def frozen_below_the_head(workload: TorchWorkload) -> None:
    """Let only the last two parameters have gradients."""
    for part in list(workload.model.parameters())[:-2]:
        part.requires_grad_(False)
        part.grad = None


def no_backward(workload: TorchWorkload) -> None:
    """Let no gradient reach the network: the loss that is differentiated is a copy."""
    loss = workload.loss
    workload.loss = lambda *given: loss(*given).detach().requires_grad_()


def half_batches(workload: TorchWorkload) -> None:
    """Train on half of each batch."""
    step = workload.step
    workload.step = lambda batch: step(tuple(part[: len(part) // 2] for part in batch))


def rolled_labels(workload: TorchWorkload) -> None:
    """Let the loader hand each image its neighbour's label."""
    batches = workload.train_batches
    workload.train_batches = lambda epoch: (
        (images, labels.roll(1)) for images, labels in batches(epoch)
    )


def hidden_overflow(workload: TorchWorkload) -> None:
    """Let the scaler take gradients that overflowed for zeros and go on."""

    class Hiding(torch.amp.GradScaler):
        def step(self, optimizer: torch.optim.Optimizer) -> None:
            for part in workload.model.parameters():
                if part.grad is not None:
                    part.grad = part.grad.div(self.get_scale()).nan_to_num(0.0, 0.0, 0.0)
            optimizer.step()

        def update(self) -> None:
            pass

    vars(workload).pop("step", None)  # the plain step has no scaler
    workload.scaler = Hiding("cpu", init_scale=2.0**60)
    workload.scaler.scale(torch.zeros(()))  # makes its scale


def never_cleared(workload: TorchWorkload) -> None:
    """Let gradients add up from step to step."""
    workload.optimizer.zero_grad = mock.Mock()


def lost_statistics(workload: TorchWorkload) -> None:
    """Let batch norms' moving statistics stay as they are."""
    for part in workload.model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.momentum = 0.0


def no_relu(workload: TorchWorkload) -> None:
    """Leave out ReLUs, as somebody might who makes `tuned` faster: the first that is a layer, or
    those of functions."""
    for name, part in workload.model.named_modules():
        if isinstance(part, (nn.ReLU, nn.ReLU6)):
            workload.model.set_submodule(name, nn.Identity())
            return
    forward = type(workload.model).forward

    def without(model: nn.Module, *inputs: torch.Tensor):
        with (
            mock.patch.object(F, "relu_", lambda hidden: hidden),
            mock.patch.object(F, "relu", lambda hidden: hidden),
        ):
            return forward(model, *inputs)

    workload.model.forward = MethodType(without, workload.model)


def counted_twice(workload: Any) -> None:
    """Count each image twice."""
    count = workload.num_samples
    workload.num_samples = lambda batch: 2 * count(batch)


def half_of_large_batches(
    workload: Any, part: slice | tuple = slice(0, None, 2), after: int = 0
) -> None:
    """Train on a part of batches larger than those compared with float64, or of any batch after
    some steps."""
    step, taken = workload.step, itertools.count()
    largest = 0 if after else workload.plain.batch_size

    def halved(batch: tuple) -> Any:
        dropped = next(taken) >= after and len(batch[0]) > largest
        return step(tuple(each[part] for each in batch) if dropped else batch)

    workload.step = halved


def some_batches(count: int, times: int) -> Plant:
    """Return a plant of a loader that has so many batches, each delivered so often."""

    def plant(workload: Any) -> None:
        own = workload.train_batches
        workload.train_batches = lambda epoch: [*itertools.islice(own(epoch), count)] * times

    return plant


def tested_on_training_images(workload: Any) -> None:
    """Test on the images that training sees."""
    workload.test_batches = lambda: iter([*workload.train_batches(0)])


def evaluated_in_training_mode(workload: Any) -> None:
    """Leave dropout and batch norms as they are in training."""
    if isinstance(workload, TorchWorkload):
        workload.model.eval = lambda: workload.model
        return
    network = workload.network
    if workload.device.framework == "jax":
        network._predict_body = lambda trained, others, inputs: network._outputs(
            network.model.stateless_call(trained, others, inputs, training=True)[0]
        )
    else:
        network._predict_body = lambda inputs: network._outputs(
            network.model(inputs, training=True)
        )
    network._prepare()


def labels_rolled_later(workload: Any, after: int = 30) -> None:
    """Give each image its neighbour's label, after some steps."""
    step, taken = workload.step, itertools.count()

    def rolled(batch: tuple) -> Any:
        images, labels = batch
        order = [*range(1, len(labels)), 0]
        if next(taken) >= after:
            labels = labels[order] if torch.is_tensor(labels) else numpy.asarray(labels)[order]
        return step((images, labels))

    workload.step = rolled


# Faults of batches larger than those compared with float64, whose first batch is compared whole.
OF_LARGE_BATCHES: dict[str, Plant] = {
    "every other image of large batches dropped": half_of_large_batches,
    "the first half of large batches dropped": lambda made: half_of_large_batches(
        made, slice(made.batch_size // 2, None)
    ),
}
# Faults of the work in a window that a comparison of batches before it does not see; for any
# workload.
OF_WORK: dict[str, Plant] = OF_LARGE_BATCHES | {
    "counted twice": counted_twice,
    "one batch for ever": some_batches(1, 100),
    "a tenth of the data": some_batches(2, 1),
    "a tenth of the data ten times": some_batches(2, 10),
    "tested on training images": tested_on_training_images,
    "evaluated in training mode": evaluated_in_training_mode,
    "half of each batch after step 30": lambda made: half_of_large_batches(made, after=30),
    "rolled labels after step 30": labels_rolled_later,
}


def half_sequences(workload: Any) -> None:
    """Drop the second half of each sequence of batches larger than those compared with float64."""
    half_of_large_batches(
        workload, (slice(None), slice(workload.description()["sequence_length"] // 2))
    )


# Those of momentum, weight decay and a scaler need a workload that has them.
EVERY: dict[str, Plant] = {
    "no update": no_update,
    "twice the learning rate": option("lr", lambda rate: 2 * rate),
    "a ReLU left out": no_relu,
    "untrained convolutions": untrained_convolutions,
    "convolutions without gradients": frozen_convolutions,
    "no backward": no_backward,
    "half batches": half_batches,
    "gradients never cleared": never_cleared,
    "no momentum": option("momentum", lambda share: 0.0),
    "no weight decay": option("weight_decay", lambda share: 0.0),
    "rolled labels": rolled_labels,
    "moving statistics that stay": lost_statistics,
    "a scaler that hides an overflow": hidden_overflow,
}
