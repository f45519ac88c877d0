"""The network in torch, the step that is measured, and its plain version in float64."""

import torch
from torch import nn
from torch.nn import functional as F

from benchbook.frameworks import plain
from benchbook.frameworks.torch.runtime import ResidentArrays, flops_per_sample
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.studies.softmax_digits.plan import Plan


class Network(nn.Module):
    """One dense layer: (n, 28, 28), pixels of 0 to 1, to logits (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(28 * 28, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of the ten classes."""
        return self.dense(images.flatten(1))


def build(plan: Plan) -> TorchWorkload:
    """Return the workload: what is trained, on which batches, and the plain version to compare
    with."""
    torch.manual_seed(plan.seed)
    model = plan.make_network(Network).to(plan.device.torch_type)
    train, test = plan.inputs(
        lambda images, labels: ResidentArrays(
            plan.device, images / 255, labels, torch.Tensor.float
        ),
        lambda images, labels: (torch.tensor(images / 255).float(), torch.tensor(labels).long()),
        test_batch_size=1000,
    )
    stored = plain.LabelsByImage(plan.dataset.train_images, plan.dataset.train_labels)
    return TorchWorkload(
        **plan.common(
            train, test, flops_per_sample=flops_per_sample(model, torch.zeros(1, 28, 28))
        ),
        model=model,
        loss=F.cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), plan.learning_rate),
        plain=plain.Plain(
            make_network=Network,
            loss=F.cross_entropy,
            make_optimizer=lambda: plain.SGD(lambda step: plan.learning_rate),
            batch_size=plan.parity_batch_size,
            labels=lambda batch, place: stored.matches(batch[0] * 255, batch[1]),
        ),
    )
