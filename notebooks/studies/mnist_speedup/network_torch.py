"""The MNIST network of the PyTorch examples, and the loaders behind a published speed-up; see
`plan`."""

import torch
from torch import nn
from torch.nn import functional as F

from benchbook.frameworks.plain import Adadelta, LabelsByImage, Plain
from benchbook.frameworks.torch.runtime import flops_per_sample
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.studies.mnist_speedup.plan import TEST_BATCH_SIZE, Plan
from benchbook.studies.torch_examples.loaders import inputs

BYTE_VALUES = 256


class ByteDropout(nn.Dropout):
    """Dropout that draws its mask eight values at a time: each 64-bit random number gives a byte
    to eight values.

    torch's dropout draws one random number per value, one after the other. That takes a tenth of
    an MNIST step.

    Args:
        p: the share of values that is dropped, exactly; a multiple of 1/256, from 0 to less than 1.

    Raises:
        ValueError: p is no such share.
    """

    def __init__(self, p: float) -> None:
        if not 0 <= p < 1 or (p * BYTE_VALUES) % 1:
            raise ValueError(f"p {p}; allowed: 0 to less than 1, in steps of 1/{BYTE_VALUES}")
        super().__init__(p)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the values, each set to 0 or scaled by 1 / (1 - p)."""
        if not self.training or not self.p:
            return hidden
        numbers = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64, device=hidden.device)
        drawn = (
            numbers.random_(-(2**63), None).view(torch.uint8)[: hidden.numel()].view(hidden.shape)
        )
        return hidden * (drawn >= round(self.p * BYTE_VALUES)).to(hidden.dtype).mul_(
            1 / (1 - self.p)
        )


class FormatKeepingMaxPool2d(nn.MaxPool2d):
    """Max-pooling that takes its output's gradient in the output's own memory format.

    Flattening the output makes this gradient contiguous. If the images are channels-last, a
    contiguous gradient makes torch's backward pass slow.
    """

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the pooled images."""
        pooled = super().forward(hidden)
        if pooled.requires_grad and pooled.is_contiguous(memory_format=torch.channels_last):
            pooled.register_hook(
                lambda gradient: gradient.contiguous(memory_format=torch.channels_last)
            )
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
    """The same function, faster on a CPU: ReLUs work in place, the second one on the quarter
    that pooling leaves."""

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
    model = plan.make_network(LeanNetwork if lean else Network).to(plan.device.torch_type)
    optimizer = torch.optim.Adadelta(
        model.parameters(), lr=torch.tensor(1.0) if plan.settings.fused else 1.0
    )
    counted = plan.count(lambda: flops_per_sample(model, torch.zeros(2, 1, 28, 28)))
    return TorchWorkload(
        **plan.common(*inputs(plan, TEST_BATCH_SIZE), flops_per_sample=counted),
        model=model,
        loss=F.nll_loss,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7),
        plain=plain(plan),
    )


def plain(plan: Plan) -> Plain:
    """Return the plain version: Adadelta at learning rate 1, as in the first epoch; later ones
    are not compared."""
    mean, deviation = 0.1307, 0.3081  # not imported: the comparison checks these constants as well
    stored = LabelsByImage(plan.dataset.train_images, plan.dataset.train_labels)
    return Plain(
        make_network=Network,
        loss=F.nll_loss,
        make_optimizer=lambda: Adadelta(lambda step: 1.0),
        batch_size=plan.parity_batch_size,
        labels=lambda batch, place: stored.matches(
            (batch[0][:, 0] * deviation + mean) * 255, batch[1]
        ),
    )
