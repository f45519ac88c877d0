"""A small U-Net that finds a disc in a noisy image, an example for `benchbook measure`; see
docs/your-network.md.

    benchbook measure docs/examples/unet.py:unet --loader docs/examples/unet.py:make_batches \
        --loss docs/examples/unet.py:loss --optimizer adam --learning-rate 0.001
"""

import numpy
import torch
from torch import nn
from torch.nn import functional as F

SIDE = 128


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convolutions, each with a batch norm."""
    layers = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Images (n, 1, SIDE, SIDE) to logits of the same shape: does a pixel belong to the disc?"""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [block(1, width), block(width, 2 * width), block(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        kept = []
        for number, down in enumerate(self.down):
            images = down(F.max_pool2d(images, 2) if number else images)
            kept.append(images)
        images = kept.pop()
        for up in self.up:
            images = up(torch.cat([F.interpolate(images, scale_factor=2.0), kept.pop()], 1))
        return self.head(images)


def unet() -> nn.Module:
    """Return the network."""
    return UNet()


def make_batches(batch_size: int) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """Return four batches: noisy images of discs, and the discs."""
    random = numpy.random.default_rng(1)
    rows, columns = numpy.mgrid[:SIDE, :SIDE]
    batches = []
    for _ in range(4):
        middles, radii = (
            random.uniform(32, SIDE - 32, (batch_size, 2)),
            random.uniform(8, 32, batch_size),
        )
        distances = numpy.hypot(rows - middles[:, :1, None], columns - middles[:, 1:, None])
        discs = (distances < radii[:, None, None]).astype("float32")[:, None]
        batches.append((discs + random.normal(scale=0.5, size=discs.shape), discs))
    return batches


def loss(logits: torch.Tensor, discs: torch.Tensor) -> torch.Tensor:
    """Return the mean binary cross-entropy of the pixels."""
    return F.binary_cross_entropy_with_logits(logits, discs)
