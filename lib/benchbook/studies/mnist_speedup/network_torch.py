"""The MNIST network of the PyTorch examples, and the loaders that a published speed-up compared; see `plan`."""

from collections.abc import Iterable

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchbook.frameworks.plain import Adadelta, LabelsByImage, Plain
from benchbook.frameworks.torch.runtime import ResidentArrays, TransformedImages, flops_per_sample, order_generator
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.studies.mnist_speedup.plan import MEAN, STANDARD_DEVIATION, TEST_BATCH_SIZE, Plan
from benchbook.studies.plan import Inputs

BYTES = 256  # what a byte may be


class ByteDropout(nn.Dropout):
    """Dropout whose mask is drawn eight values at a time: a random byte for each, of one 64-bit number.

    torch's own draws a number for each value, one after the other: a tenth of an MNIST step.

    Args:
        p: the share that is dropped, as exact as nn.Dropout's: a whole number of 256ths.

    Raises:
        ValueError: another share.
    """

    def __init__(self, p: float) -> None:
        if not 0 <= p < 1 or (p * BYTES) % 1:
            raise ValueError(f"p {p}; allowed: 0 to less than 1, in steps of 1/{BYTES}")
        super().__init__(p)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the values, kept and scaled by 1 / (1 - p), or 0."""
        if not self.training or not self.p:
            return hidden
        numbers = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64, device=hidden.device)
        drawn = numbers.random_(-(2**63), None).view(torch.uint8)[: hidden.numel()].view(hidden.shape)
        return hidden * (drawn >= round(self.p * BYTES)).to(hidden.dtype).mul_(1 / (1 - self.p))


class FormatKeepingMaxPool2d(nn.MaxPool2d):
    """Max-pooling whose gradient comes back in the memory format of its outputs.

    Flattening makes it contiguous, and from a contiguous gradient torch computes that of channels-last images slowly.
    """

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the pooled images."""
        pooled = super().forward(hidden)
        if pooled.requires_grad and pooled.is_contiguous(memory_format=torch.channels_last):
            pooled.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
        return pooled


class Network(nn.Module):
    """Two convolutions and two dense layers: (n, 1, 28, 28) to log-probabilities (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(1, 32, kernel_size=3)
        self.convolution2 = nn.Conv2d(32, 64, kernel_size=3)
        self.pool = nn.MaxPool2d(2)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.dense1 = nn.Linear(9216, 128)
        self.dense2 = nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the ten classes."""
        hidden = F.relu(self.convolution1(images))
        hidden = F.relu(self.convolution2(hidden))
        hidden = self.dropout1(self.pool(hidden))
        hidden = F.relu(self.dense1(hidden.flatten(1)))
        return F.log_softmax(self.dense2(self.dropout2(hidden)), dim=1)


class LeanNetwork(Network):
    """The same function in less time on a CPU: ReLUs in place, the second one where pooling has left a quarter."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = FormatKeepingMaxPool2d(2)
        self.dropout1, self.dropout2 = ByteDropout(0.25), ByteDropout(0.5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the ten classes."""
        hidden = F.relu_(self.convolution1(images))
        hidden = self.dropout1(F.relu_(self.pool(self.convolution2(hidden))))
        hidden = F.relu_(self.dense1(hidden.flatten(1)))
        return F.log_softmax(self.dense2(self.dropout2(hidden)), dim=1)


def build(plan: Plan) -> TorchWorkload:
    """Return the study's workload on torch; see `Plan`."""
    torch.manual_seed(plan.seed)
    lean = plan.variant == "tuned" and plan.device.is_cpu
    model = (LeanNetwork() if lean else Network()).to(plan.device.kind)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=torch.tensor(1.0) if plan.settings.fused else 1.0)
    counted = flops_per_sample(model, torch.zeros(1, 1, 28, 28))
    return TorchWorkload(
        **plan.common(*inputs(plan, TEST_BATCH_SIZE), flops_per_sample=counted),
        model=model,
        loss=F.nll_loss,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7),
        plain=plain(plan),
    )


def plain(plan: Plan) -> Plain:
    """Return what training is compared with: Adadelta at 1, times 0.7 after each epoch; parity is in the first."""
    mean, deviation = 0.1307, 0.3081  # once more: these are checked, too
    stored = LabelsByImage(plan.dataset.train_images, plan.dataset.train_labels)
    return Plain(
        make_network=Network,
        loss=F.nll_loss,
        make_optimizer=lambda: Adadelta(lambda step: 1.0),
        batch_size=plan.parity_batch_size,
        labels=lambda batch, place: stored.matches((batch[0][:, 0] * deviation + mean) * 255, batch[1]),
    )


def inputs(plan: Plan, test_batch_size: int, normalised: bool = True) -> Inputs:
    """Return functions to an epoch's training batches and to the test batches.

    A loader shuffles test images, too, as the examples' script does; resident test images never are.

    Args:
        plan: of 28x28 images.
        test_batch_size: images in a batch of the test.
        normalised: by MNIST's mean and standard deviation; else pixels are 0 to 1.
    """
    data = plan.dataset
    parts = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    if plan.data_resident:
        train, test = (ResidentArrays(plan.device, pixels(images, normalised), labels) for images, labels in parts)

        def shuffled(epoch: int) -> Iterable[torch.Tensor]:
            order = torch.randperm(len(data.train_labels), generator=order_generator(plan.seed, epoch))
            return order.to(plan.device.kind).split(plan.batch_size)

        whole = torch.arange(len(data.test_labels), device=plan.device.kind)
        return lambda epoch: train.batches(shuffled(epoch)), lambda: test.batches(whole.split(test_batch_size))
    from torchvision import transforms  # takes seconds, which resident images need not wait for

    normalise = [transforms.Normalize((MEAN,), (STANDARD_DEVIATION,))] if normalised else []
    transform = transforms.Compose([transforms.ToTensor(), *normalise])
    train, test = (TransformedImages(*part, transform) for part in parts)
    # MPS has no pinned memory: there, the article's flag did nothing.
    pinned = plan.device.features.pins_memory
    options = {"num_workers": plan.workers, "shuffle": plan.shuffles, "pin_memory": pinned}
    return (
        lambda epoch: DataLoader(train, plan.batch_size, generator=order_generator(plan.seed, epoch), **options),
        lambda: DataLoader(test, test_batch_size, generator=torch.Generator().manual_seed(plan.seed), **options),
    )


def pixels(images: numpy.ndarray, normalised: bool = True) -> numpy.ndarray:
    """Return all images as the network takes them, as torchvision's transforms make each."""
    floats = torch.tensor(images).unsqueeze(1).float().div(255)
    return (floats.sub(MEAN).div(STANDARD_DEVIATION) if normalised else floats).numpy()
