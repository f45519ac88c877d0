"""A GPT in torch, trained as nanoGPT trains it; see `plan`."""

import math

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from benchbook.frameworks.plain import Arrays, Plain
from benchbook.frameworks.torch.training import STORED, TorchWorkload
from benchbook.studies.gpt_tokens.plain_torch import PlainNetwork, plain_loss
from benchbook.studies.gpt_tokens.plan import MOST_NORM, WEIGHT_DECAY, Plan, Shape

MULTIPLE = 64  # of a padded vocabulary
DEVIATION = 0.02  # of first weights
# Of fresh weights every token attends to all others alike, so that no fault of attention shows: where both are
# compared, queries and keys are larger, and scores have this variance.
SCORES = 1.5


class Adapted(nn.Linear):
    """A frozen dense layer, and an adapter of low rank that is trained: x W + x A B, where B begins as zeros.

    Source: https://arxiv.org/abs/2106.09685, its alpha being the rank.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, rank: int) -> None:
        super().__init__(inputs, outputs, bias)
        self.down = nn.Parameter(torch.empty(rank, inputs))
        self.up = nn.Parameter(torch.empty(outputs, rank))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's outputs."""
        return super().forward(hidden) + F.linear(F.linear(hidden, self.down), self.up)


class Attention(nn.Module):
    """Each token sees itself and those before it: (n, tokens, width) to the same."""

    def __init__(self, shape: Shape, fused: bool, lora_rank: int) -> None:
        super().__init__()
        sizes = shape.width, 3 * shape.width, shape.has_biases
        self.inward = Adapted(*sizes, lora_rank) if lora_rank else nn.Linear(*sizes)
        self.outward = nn.Linear(shape.width, shape.width, shape.has_biases)
        self.dropout = nn.Dropout(shape.dropout)
        self.heads, self.mix = shape.heads, self.in_one if fused else self.written_out
        self.register_buffer("later", torch.ones(shape.context, shape.context).triu(1).bool(), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what each token takes of the others."""
        parts = self.inward(hidden).unflatten(2, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (n, heads, tokens, width of a head)
        return self.outward(self.mix(query, key, value).transpose(1, 2).flatten(2))

    def written_out(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the values, weighted by the softmax of scaled scores; tokens that come later have none."""
        length, width = query.shape[-2:]
        scores = (query / math.sqrt(width)) @ key.transpose(-2, -1)
        scores = scores.masked_fill(self.later[:length, :length], -math.inf)
        return self.dropout(scores.softmax(-1)) @ value

    def in_one(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the same from torch's one operation."""
        dropped = self.dropout.p if self.dropout.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropped, is_causal=True)


class Block(nn.Module):
    """Attention and two dense layers, each a branch behind a layer norm: (n, tokens, width) to the same."""

    def __init__(self, shape: Shape, fused: bool, lora_rank: int) -> None:
        super().__init__()
        width, bias = shape.width, shape.has_biases
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.attention = Attention(shape, fused, lora_rank)
        self.wide, self.outward = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what both branches add."""
        hidden = hidden + self.dropout(self.attention(self.norm1(hidden)))
        return hidden + self.dropout(self.outward(F.gelu(self.wide(self.norm2(hidden)))))


class Network(nn.Module):
    """A GPT: tokens (n, tokens) to the logits of each token that follows, (n, tokens, vocabulary).

    Args:
        shape: its sizes.
        vocabulary: different tokens.
        fused_attention, padded: see `Settings`; tokens that only fill the vocabulary up have no probability.
        lora_rank: see `Plan`.
    """

    def __init__(
        self, shape: Shape, vocabulary: int, fused_attention: bool = False, padded: bool = False, lora_rank: int = 0
    ) -> None:
        super().__init__()
        rows = -(-vocabulary // MULTIPLE) * MULTIPLE if padded else vocabulary
        self.tokens, self.positions = nn.Embedding(rows, shape.width), nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape, fused_attention, lora_rank) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=shape.has_biases)
        self.register_buffer("filling", torch.arange(rows) >= vocabulary if padded else None, persistent=False)
        for name, part in self.named_parameters() if lora_rank else ():
            part.requires_grad_(name.endswith((".down", ".up")))

    @torch.no_grad()
    def draw(self, seed: int, vocabulary: int) -> None:
        """Draw the first weights, the same ones whatever the vocabulary is filled up to."""
        torch.manual_seed(seed)
        for name, part in self.named_parameters():
            if name.endswith("bias") or name.endswith(".up") or name == "tokens.weight":
                part.zero_()
            elif "norm" not in name:
                part.normal_(std=DEVIATION / math.sqrt(2 * len(self.blocks)) if "outward" in name else DEVIATION)
        self.tokens.weight[:vocabulary].normal_(std=DEVIATION)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits; the last layer's weights are the embedding's."""
        hidden = self.dropout(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        closed = None if self.filling is None else torch.where(self.filling, -math.inf, 0.0).to(hidden.dtype)
        return F.linear(hidden, self.tokens.weight, closed)


SHOWN = (Attention, Block, Network)  # in the notebook


def loss(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of all tokens that follow."""
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def drawn(plan: Plan) -> Network:
    """Return the network with its first weights, on the host."""
    settings = plan.settings
    model = Network(plan.shape, plan.vocabulary, settings.fused_attention, settings.padded, plan.lora_rank)
    model.draw(plan.seed, plan.vocabulary)
    return model


def build(plan: Plan) -> TorchWorkload:
    """Return the study's workload on torch; see `Plan`."""
    settings, shape = plan.settings, plan.shape
    model = drawn(plan)
    model.to(STORED[settings.precision]).to(plan.device.kind)
    options = {"betas": (0.9, shape.kept), "weight_decay": WEIGHT_DECAY, "fused": settings.fused or None}
    optimizer = torch.optim.AdamW(decayed_apart(model), plan.rate(shape.warm_up), **options)
    kind, span = plan.device.kind, torch.arange(plan.length + 1, device=plan.device.kind)

    def take(text: torch.Tensor | numpy.ndarray, starts: numpy.ndarray) -> torch.Tensor:
        """Return sequences, gathered on the device, or on the host and, where that is faster, from pinned memory."""
        if isinstance(text, torch.Tensor):
            return text[torch.from_numpy(starts).to(kind)[:, None] + span].long()
        rows = [text[start : start + plan.length + 1].astype(numpy.int64) for start in starts]
        sequences = torch.from_numpy(numpy.stack(rows))
        sequences = sequences.pin_memory() if plan.device.features.pins_memory else sequences
        return sequences.to(kind, non_blocking=True)

    train, test = plan.inputs(lambda tokens: torch.from_numpy(tokens.copy()).to(kind), take)
    return TorchWorkload(
        **plan.common(train, test, **counts(plan, model)),
        model=model,
        loss=loss,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: plan.rate(step) / shape.peak),
        metric=None,
        rate_by_step=True,
        max_norm=MOST_NORM,
        plain=plain(plan, model),
    )


def decayed_apart(model: nn.Module) -> list[dict]:
    """Return what is trained in two groups: weight decay takes matrices, not biases and layer norms."""
    trained = [part for part in model.parameters() if part.requires_grad]
    matrices, others = ([part for part in trained if (part.dim() > 1) == wanted] for wanted in (True, False))
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def counts(plan: Plan, model: Network) -> dict:
    """Return the network's parameters and operations; what only fills the vocabulary up is not counted."""
    filling = (len(model.tokens.weight) - plan.vocabulary) * plan.shape.width
    every = sum(part.numel() for part in model.parameters()) - filling
    positions = 0 if plan.lora_rank else model.positions.weight.numel()
    trained = sum(part.numel() for part in model.parameters() if part.requires_grad) - positions
    trained -= 0 if plan.lora_rank else filling
    counted = every - model.positions.weight.numel()
    return {"parameters": every, "flops_per_sample": plan.flops_per_sample(counted, trained)}


def plain(plan: Plan, model: Network) -> Plain:
    """Return what training is compared with; weights that are not trained are the model's."""

    def parity_weights(make: object, begun: Arrays) -> Arrays:
        """Return weights at which attention differs from token to token, and adapters do something."""
        random, larger = numpy.random.default_rng(plan.seed), math.sqrt(SCORES / plan.shape.width) / DEVIATION
        changed = {}
        for name, part in begun.items():
            if name.endswith(".up"):
                changed[name] = random.normal(scale=DEVIATION, size=part.shape)
            elif name.endswith("inward.weight") and not plan.lora_rank:
                values = 2 * len(part) // 3  # queries and keys come first
                changed[name] = numpy.concatenate([part[:values] * larger, part[values:]])
        return begun | changed

    return plan.plain(lambda: PlainNetwork(plan.shape.heads, plan.vocabulary, model), plain_loss, parity_weights)
