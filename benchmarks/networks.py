"""Networks as users of `benchbook measure` write them, each with a feature that makes measuring
or parity harder."""

from dataclasses import dataclass

import numpy
import torch
from torch import nn
from torch.nn import functional as F

SIDE, WORDS, LENGTH = 16, 64, 24
PIXELS = 3 * SIDE * SIDE
torch.library.define(
    "own_networks::twice", "(Tensor x) -> Tensor"
)  # a second run of this file would be an error
torch.library.impl("own_networks::twice", "CompositeImplicitAutograd")(lambda x: 2 * x)


def loader(make_batch):
    """Return a function from a batch size to four batches, each made of a batch size and a seed."""
    return lambda batch_size: [make_batch(batch_size, seed) for seed in range(4)]


class LoRA(nn.Module):
    """A frozen layer with a trained correction of low rank."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base, self.down = base, nn.Parameter(torch.randn(rank, base.in_features) / 10)
        self.up = nn.Parameter(torch.randn(base.out_features, rank) / 10)

    def forward(self, hidden):
        return self.base(hidden) + hidden @ self.down.T @ self.up.T


def lora(num_classes):
    layers = [
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    network = nn.Sequential(*layers, nn.Linear(16, num_classes)).requires_grad_(False)
    network[-1] = LoRA(network[-1])
    return network


class Spectral(nn.Module):
    """A filter of frequencies: a complex parameter, a complex buffer, and attributes that are
    drawn at random."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        frequencies = SIDE, SIDE // 2 + 1
        self.register_buffer(
            "twist", torch.polar(torch.ones(frequencies), torch.randn(frequencies))
        )
        self.filter = nn.Parameter(torch.randn(frequencies, dtype=torch.complex64) / 10)
        self.order, self.scale = torch.randperm(SIDE), torch.rand(SIDE)
        self.head = nn.Linear(PIXELS, num_classes)

    def forward(self, images):
        passed = torch.fft.rfft2(images) * self.twist * (1 + self.filter)
        return self.head(
            (torch.fft.irfft2(passed, s=(SIDE, SIDE)) * self.scale)[..., self.order].flatten(1)
        )


def spectral(num_classes):
    return Spectral(num_classes)


class RandomFeatures(nn.Module):
    """A buffer that is drawn at random when the network is made."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.randn(PIXELS, 32))
        self.head = nn.Linear(32, num_classes)

    def forward(self, images):
        return self.head(torch.cos(images.flatten(1) @ self.features / 10))


def random_features(num_classes):
    return RandomFeatures(num_classes)


def half(num_classes):
    layers = nn.Flatten(), nn.Linear(PIXELS, 64), nn.GELU(), nn.Linear(64, num_classes)
    return nn.Sequential(*layers).to(torch.bfloat16)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        context.save_for_backward(inputs)
        return inputs * torch.sigmoid(inputs)

    @staticmethod
    def backward(context, gradient):
        (inputs,) = context.saved_tensors
        share = torch.sigmoid(inputs)
        return gradient * share * (1 + inputs * (1 - share))


class Rounded(torch.autograd.Function):
    """Its gradient goes straight through, on purpose."""

    @staticmethod
    def forward(context, inputs):
        return torch.round(8 * inputs) / 8

    @staticmethod
    def backward(context, gradient):
        return gradient


class Reversed(torch.autograd.Function):
    """Its gradient is reversed, on purpose: https://arxiv.org/abs/1505.07818."""

    @staticmethod
    def forward(context, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context, gradient):
        return -gradient


FUNCTIONS = {"swish": Swish.apply, "rounded": Rounded.apply, "reversed": Reversed.apply}


class WithFunction(nn.Module):
    """Applies an autograd.Function."""

    def __init__(self, name: str, num_classes: int) -> None:
        super().__init__()
        self.name, self.hidden, self.head = name, nn.Linear(PIXELS, 64), nn.Linear(64, num_classes)

    def forward(self, images):
        return self.head(FUNCTIONS[self.name](self.hidden(images.flatten(1))))


def function(num_classes, name="swish"):
    return WithFunction(name, num_classes)


def lazy(num_classes):
    return nn.Sequential(
        nn.LazyConv2d(8, 3),
        nn.LazyBatchNorm2d(),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(num_classes),
    )


class Library(nn.Module):
    """Calls an operator that was registered with torch.library."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(PIXELS, num_classes)

    def forward(self, images):
        return torch.ops.own_networks.twice(self.head(images.flatten(1)))


def library(num_classes):
    return Library(num_classes)


@dataclass
class Output:
    """An output as libraries for language models return it."""

    loss: torch.Tensor | None
    logits: torch.Tensor


class GPT(nn.Module):
    """Blocks as GPT-2 has them: dropout by functions, a boolean mask, tied embeddings, and its
    own loss."""

    def __init__(self, fused: bool, width: int = 32, heads: int = 4, share: float = 0.1) -> None:
        super().__init__()
        self.fused, self.heads, self.share = fused, heads, share
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        layers = {"first": nn.LayerNorm(width), "attention": nn.Linear(width, 3 * width)}
        layers |= {"out": nn.Linear(width, width), "second": nn.LayerNorm(width)}
        layers |= {"wide": nn.Linear(width, 4 * width), "narrow": nn.Linear(4 * width, width)}
        self.block, self.drop = nn.ModuleDict(layers), nn.Dropout(share)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, input_ids, attention_mask=None, labels=None):
        count, length = input_ids.shape
        hidden = self.words(input_ids) + self.places.weight[:length]
        hidden = F.dropout(hidden, self.share, self.training)
        mask = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
        mask = mask if attention_mask is None else mask & attention_mask[:, None, None, :]
        made = self.block["attention"](self.block["first"](hidden)).chunk(3, -1)
        query, key, value = (
            part.view(count, length, self.heads, -1).transpose(1, 2) for part in made
        )
        if self.fused:
            share = self.share if self.training else 0.0
            seen = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=share
            )
        else:
            scores = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).masked_fill(
                ~mask, float("-inf")
            )
            seen = F.dropout(scores.softmax(-1), self.share, self.training) @ value
        hidden = hidden + self.block["out"](seen.transpose(1, 2).flatten(2))
        wide = F.gelu(self.block["wide"](self.block["second"](hidden)))
        logits = self.head(hidden + self.drop(self.block["narrow"](wide)))
        loss = (
            None
            if labels is None
            else F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        )
        return Output(loss, logits)


def gpt(fused=True):
    return GPT(fused)


@loader
def text(batch_size, seed):
    words = numpy.random.default_rng(seed).integers(WORDS, size=(batch_size, LENGTH))
    mask = numpy.arange(LENGTH) < numpy.full((batch_size, 1), LENGTH - 4)
    return {"input_ids": words, "attention_mask": mask, "labels": words}


class Noisy(nn.Module):
    """Draws noise in training."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(PIXELS, num_classes)

    def forward(self, images):
        return self.head(images.flatten(1) + torch.randn(len(images), PIXELS, device=images.device))


def noisy(num_classes):
    return Noisy(num_classes)


class Casting(nn.Module):
    """Casts its input to float32, so that it cannot be computed in float64."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(PIXELS, num_classes)

    def forward(self, images):
        return self.head(images.flatten(1).float())


def casting(num_classes):
    return Casting(num_classes)


class Sparse(nn.Module):
    """An embedding whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8, sparse=True), nn.Linear(8, 10)

    def forward(self, words):
        return self.head(self.words(words).mean(1))


def sparse():
    return Sparse()


@loader
def bag(batch_size, seed):
    random = numpy.random.default_rng(seed)
    return random.integers(WORDS, size=(batch_size, 5)), random.integers(10, size=batch_size)


class Graph(nn.Module):
    """Each node adds up the values of its incoming edges."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(8, 16), nn.Linear(16, 10)

    def forward(self, nodes, edges):
        hidden = self.hidden(nodes)
        return self.head(
            torch.relu(3 + torch.zeros_like(hidden).index_add(0, edges[1], hidden[edges[0]]))
        )


def graph():
    return Graph()


@loader
def graph_batch(batch_size, seed):
    random = numpy.random.default_rng(seed)
    edges = random.integers(batch_size, size=(2, 4 * batch_size))
    return (random.random((batch_size, 8)), edges), random.integers(10, size=batch_size)


class Heads(nn.Module):
    """A classifier with an auxiliary head."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.hidden, self.head, self.auxiliary = (
            nn.Linear(*size) for size in ((PIXELS, 32), (32, num_classes), (32, num_classes))
        )

    def forward(self, images):
        hidden = torch.tanh(self.hidden(images.flatten(1)))
        return {"out": self.head(hidden), "aux": self.auxiliary(hidden)}


def heads(num_classes):
    return Heads(num_classes)


@loader
def boxes(batch_size, seed):
    """Return images of a detector, each with a box."""
    random = numpy.random.default_rng(seed)
    images = [random.random((3, 96, 96)) for _ in range(batch_size)]
    return (
        images,
        [{"boxes": numpy.array([[10.0, 10, 60, 70]]), "labels": numpy.array([1])} for _ in images],
    ), None
