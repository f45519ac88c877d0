"""A ResNet-18 for small images with a projection head, and the loss that asks each view for its partner.

Source: https://github.com/lightly-ai/lightly, docs/source/getting_started/benchmarks/cifar10_benchmark.py of June 2023.

One wart of the source is kept in every variant, because its accuracy is that network's: the benchmark takes the
children of Lightly's ResNet one after the other, and the first ReLU, which stands in that ResNet's `forward` alone, is
lost.
"""

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

TEMPERATURE = 0.5


class Network(nn.Module):
    """ResNet-18 and a projection head: two batches of views (n, 3, 32, 32) to two batches of projections (n, 128).

    Args:
        joint_views: take both batches through the network at once. Batch norm then sees 2n images instead of n and n,
            so that it is another function, to be judged by its accuracy.
    """

    def __init__(self, joint_views: bool = False) -> None:
        super().__init__()
        resnet = torchvision.models.resnet18()
        resnet.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        resnet.relu = resnet.maxpool = resnet.fc = nn.Identity()  # the lost ReLU: see above
        for module in resnet.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()  # as torch and Lightly begin; torchvision's network begins otherwise
        self.backbone = resnet
        self.head = nn.Sequential(
            nn.Linear(512, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 128, bias=False),
            nn.BatchNorm1d(128),
        )
        self.joint_views = joint_views

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the projections of both views."""
        if self.joint_views:
            return self.head(self.backbone(torch.cat([first, second]))).chunk(2)
        return self.head(self.backbone(first)), self.head(self.backbone(second))


def nt_xent(projections: tuple[torch.Tensor, torch.Tensor], target: None = None) -> torch.Tensor:
    """Return the mean cross-entropy of finding each view's partner among all other views of the batch.

    Source: https://arxiv.org/abs/2002.05709, equation 1, at temperature 0.5.

    Args:
        projections: two views of the same images, shape (n, size) each.
        target: there is none; it stands here because losses have one.
    """
    both = torch.cat(projections)
    both = F.normalize(both.to(torch.promote_types(both.dtype, torch.float32)), dim=1)
    itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
    similarities = (both @ both.T / TEMPERATURE).masked_fill(itself, -torch.inf)
    partners = torch.arange(len(both), device=both.device).roll(len(both) // 2)
    return F.cross_entropy(similarities, partners)
