"""A small transformer that learns to continue text, an example for `benchbook measure`; see
docs/your-network.md.

    benchbook measure docs/examples/transformer.py:transformer \
        --loader docs/examples/transformer.py:make_batches --loss
        docs/examples/transformer.py:next_character
"""

import numpy
import torch
from torch import nn
from torch.nn import functional as F

CHARACTERS, LENGTH, WIDTH, HEADS, LAYERS = 128, 128, 128, 4, 2
TEXT = (
    "What does it cost to train a network on the computer that you have, could buy or could rent? "
    * 40
)


class Transformer(nn.Module):
    """Characters (n, LENGTH) to logits of the character that follows each, (n, LENGTH,
    CHARACTERS)."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.logits = nn.Linear(WIDTH, CHARACTERS)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits; each character sees itself and the characters before it."""
        return self.logits(self.layers(self.characters(text) + self.places, mask=self.mask))


def transformer() -> nn.Module:
    """Return the network."""
    return Transformer()


def make_batches(batch_size: int) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
    """Return four batches: pieces of the text, and the same pieces shifted by one character."""
    text = numpy.frombuffer(TEXT.encode("ascii"), numpy.uint8).astype("int64")
    starts = numpy.random.default_rng(1).integers(len(text) - LENGTH - 1, size=(4, batch_size, 1))
    pieces = text[starts + numpy.arange(LENGTH + 1)]
    return [(batch[:, :-1], batch[:, 1:]) for batch in pieces]


def next_character(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next characters."""
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())
