"""Layers that compute what torch's own compute, in less time on a CPU: `tuned` networks are made of them there."""

import torch
from torch import nn

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
