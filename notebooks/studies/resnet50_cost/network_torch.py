"""torchvision's ResNet-50 (v1.5), on one device or on one of several that train together."""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchbook.frameworks.devices import Group
from benchbook.frameworks.plain import Plain
from benchbook.frameworks.torch import replicas
from benchbook.frameworks.torch.runtime import flops_per_sample, load_keras_arrays
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute, move, prepare
from benchbook.frameworks.workload import Evaluation
from benchbook.studies.resnet50_cost import inputs
from benchbook.studies.resnet50_cost.plan import MOMENTUM, MOST_TEST_IMAGES, WEIGHT_DECAY, Plan


class Network(torchvision.models.ResNet):
    """ResNet-50 v1.5, whose 3x3 convolutions have the stride: (n, 3, size, size) to logits (n,
    classes)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(torchvision.models.resnet.Bottleneck, [3, 4, 6, 3], plan.num_classes)
        for name, arrays in plan.arrays.items():
            load_keras_arrays(self.get_submodule(name), arrays)


@dataclass
class Classifier(TorchWorkload):
    """The network with its images.

    Attributes:
        group: the devices that train together; each has a copy of the network, and gradients are
        averaged.
    """

    group: Group = field(default_factory=Group)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group.size > 1:
            copy = replicas.replicate(self.model, self.device)
            self.network = prepare(
                copy, replace(self.settings, channels_last=False)
            )  # the copy has the format
        # The constants are on the device from the start; sending them in every step would make the
        # step wait.
        constants = (
            torch.tensor(values) * 255 for values in (inputs.MEAN, inputs.STANDARD_DEVIATION)
        )
        self.mean, self.deviation = (
            constant.view(3, 1, 1).to(self.device.torch_type) for constant in constants
        )

    def num_samples(self, batch: Batch) -> int:
        """Return the images in a batch, for all devices together."""
        return len(batch[0]) * self.group.size

    def mean_loss(self, losses: list[torch.Tensor]) -> float:
        """Return the mean loss of some steps over all devices."""
        return replicas.mean(super().mean_loss(losses), self.device, self.group.size)

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Return loss and accuracy over all test images, of which each device takes a part.

        Batch norms use the moving statistics of the first device.
        """
        replicas.share_buffers(self.model, self.group.size)
        network = self.network if self.group.size == 1 else self.model
        self.model.eval()
        sums = torch.zeros(3, device=self.device.torch_type)
        for batch in self.test_batches():
            images, labels = (self._move(part) for part in batch)
            outputs = compute(network, (images,), self.device, self.settings.precision)
            right = (outputs.argmax(1) == labels).sum()
            # The count is on the device, to be stacked with the other two.
            count = torch.full_like(right, len(labels))
            sums += torch.stack([self.loss(outputs, labels) * len(labels), right, count])
        self.model.train()
        loss, correct, samples = replicas.add(sums, self.group.size).tolist()
        return Evaluation(
            loss / samples,
            correct / samples if self.metric else math.nan,
            int(samples),
            self.metric,
        )

    def _move(self, part: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device; pixels are sent as bytes and normalised there."""
        if part.dtype == torch.uint8:
            pixels = part.to(self.device.torch_type, non_blocking=True).permute(0, 3, 1, 2)
            part = pixels.float().sub(self.mean).div(self.deviation)
        return super()._move(part)


def build(plan: Plan) -> Classifier:
    """Return the study's workload on torch; see `Plan`."""
    settings = plan.settings
    torch.manual_seed(plan.seed)
    model = plan.make_network(functools.partial(Network, plan))
    example = torch.zeros(2, 3, plan.image_size, plan.image_size)
    arithmetic = plan.count(lambda: flops_per_sample(model, example))
    model.to(STORED[settings.precision]).to(plan.device.torch_type)
    groups = parameter_groups(model)
    optimizer = torch.optim.SGD(
        groups, plan.peak, MOMENTUM, nesterov=True, fused=settings.fused or None
    )
    return Classifier(
        **plan.common(*_inputs(plan), flops_per_sample=arithmetic),
        model=model,
        loss=F.cross_entropy,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: plan.rate(step) / plan.peak
        ),
        rate_by_step=True,
        plain=plain(plan),
        group=plan.group,
        metric=plan.metric,
    )


def plain(plan: Plan) -> Plain:
    """Return the plain version; see `Plan.plain`."""
    return plan.plain(functools.partial(Network, plan), F.cross_entropy, _plain_inputs)


def parameter_groups(model: nn.Module) -> list[dict]:
    """Return the optimiser's two parameter groups: with weight decay, and without it for batch
    norms."""
    norms = [
        module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    of_norms = [part for norm in norms for part in norm.parameters()]
    known = {id(part) for part in of_norms}
    others = [part for part in model.parameters() if id(part) not in known]
    return [
        {"params": others, "weight_decay": WEIGHT_DECAY},
        {"params": of_norms, "weight_decay": 0.0},
    ]


def _inputs(plan: Plan):
    """Return two functions: one from an epoch to its training batches, one to the test batches."""
    if plan.dataset is None:
        kind, size = plan.device.torch_type, plan.device_batch_size
        generator = torch.Generator(kind).manual_seed(plan.seed + plan.group.rank)
        images = torch.randn(
            size, 3, plan.image_size, plan.image_size, generator=generator, device=kind
        )
        labels = torch.randint(plan.num_classes, (size,), generator=generator, device=kind)
        return plan.repeated(
            (move(images, plan.device, plan.settings), labels)
        )  # in the format of a step's input

    def loader(crops: inputs.Crops, order: list) -> Iterable[Batch]:
        pinned = plan.device.features.pins_memory
        options = {"num_workers": plan.workers, "pin_memory": pinned}
        # A loader without a generator draws from the host's.
        return DataLoader(crops, batch_sampler=order, generator=torch.Generator(), **options)

    tested = torch.arange(len(plan.dataset.test)).split(MOST_TEST_IMAGES)[
        plan.group.rank :: plan.group.size
    ]
    crops = plan.crops(0)  # higher indices are crops of later epochs

    def order(epoch: int) -> list:
        return [batch + epoch * len(crops) for batch in plan.order(epoch)]

    return lambda epoch: loader(crops, order(epoch)), lambda: loader(plan.crops(None), tested)


def _plain_inputs(batch: tuple) -> tuple:
    """Return the network's input and the labels of a batch on the host; a loader's pixels are
    normalised here."""
    images, labels = batch
    if images.dtype == numpy.uint8:
        images = numpy.ascontiguousarray(inputs.normalise(images).transpose(0, 3, 1, 2))
    return (images,), labels
