"""A GPT in torch, trained as nanoGPT trains it; see `plan`."""

import functools
import math

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from benchbook.frameworks.plain import Adam, Arrays, Plain
from benchbook.frameworks.torch.runtime import sent
from benchbook.frameworks.torch.training import STORED, TorchWorkload
from benchbook.studies.gpt_tokens.plain_torch import PlainNetwork, plain_loss
from benchbook.studies.gpt_tokens.plan import MOST_NORM, WEIGHT_DECAY, Plan, Shape

MULTIPLE = 64  # a padded vocabulary has a multiple of this
DEVIATION = 0.02  # standard deviation of initial weights
# With initial weights each token attends to all others equally, which hides faults of attention.
# For the comparison with float64, queries and keys are scaled up so that scores have this variance.
SCORE_VARIANCE = 1.5


class LoraLinear(nn.Linear):
    """A frozen dense layer plus a trained adapter of low rank: x W + x A B, where B begins as
    zeros.

    Source: https://arxiv.org/abs/2106.09685, with alpha equal to the rank.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, rank: int) -> None:
        super().__init__(inputs, outputs, bias)
        self.down = nn.Parameter(torch.empty(rank, inputs))
        self.up = nn.Parameter(torch.empty(outputs, rank))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's outputs."""
        return super().forward(hidden) + F.linear(F.linear(hidden, self.down), self.up)


class Attention(nn.Module):
    """Causal self-attention: (n, tokens, width) to the same shape."""

    def __init__(self, shape: Shape, fused: bool, lora_rank: int) -> None:
        super().__init__()
        sizes = shape.width, 3 * shape.width, shape.has_biases
        self.qkv = LoraLinear(*sizes, lora_rank) if lora_rank else nn.Linear(*sizes)
        self.projection = nn.Linear(shape.width, shape.width, shape.has_biases)
        self.dropout = nn.Dropout(shape.dropout)
        self.heads, self.mix = shape.heads, self.fused if fused else self.explicit
        self.register_buffer(
            "masked", torch.ones(shape.context, shape.context).triu(1).bool(), persistent=False
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the outputs of attention."""
        parts = self.qkv(hidden).unflatten(2, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (n, heads, tokens, width of a head)
        return self.projection(self.mix(query, key, value).transpose(1, 2).flatten(2))

    def explicit(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the values weighted by the softmax of scaled scores; later tokens are masked."""
        length, width = query.shape[-2:]
        scores = (query / math.sqrt(width)) @ key.transpose(-2, -1)
        scores = scores.masked_fill(self.masked[:length, :length], -math.inf)
        return self.dropout(scores.softmax(-1)) @ value

    def fused(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the same from torch's fused operation."""
        dropped = self.dropout.p if self.dropout.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropped, is_causal=True)


class Block(nn.Module):
    """Attention, then two dense layers, each after a layer norm and with a residual: (n, tokens,
    width) to the same."""

    def __init__(self, shape: Shape, fused: bool, lora_rank: int) -> None:
        super().__init__()
        width, bias = shape.width, shape.has_biases
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.attention = Attention(shape, fused, lora_rank)
        self.expansion = nn.Linear(width, 4 * width, bias)
        self.projection = nn.Linear(4 * width, width, bias)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the block's outputs."""
        hidden = hidden + self.dropout(self.attention(self.norm1(hidden)))
        return hidden + self.dropout(self.projection(F.gelu(self.expansion(self.norm2(hidden)))))


class Network(nn.Module):
    """A GPT with its initial weights: tokens (n, tokens) to logits of each next token (n,
    tokens, vocabulary).

    If the vocabulary is padded, padding tokens have probability 0.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        shape, vocabulary, padded, rank = (
            plan.shape,
            plan.vocabulary,
            plan.settings.padded,
            plan.lora_rank,
        )
        rows = -(-vocabulary // MULTIPLE) * MULTIPLE if padded else vocabulary
        self.tokens = nn.Embedding(rows, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        fused = plan.settings.fused_attention
        self.blocks = nn.ModuleList(Block(shape, fused, rank) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=shape.has_biases)
        self.register_buffer(
            "padding", torch.arange(rows) >= vocabulary if padded else None, persistent=False
        )
        for name, part in self.named_parameters() if rank else ():
            part.requires_grad_(name.endswith((".down", ".up")))
        self.draw(plan.seed, vocabulary)

    @torch.no_grad()
    def draw(self, seed: int, vocabulary: int) -> None:
        """Draw the initial weights, which do not depend on the padding of the vocabulary."""
        torch.manual_seed(seed)
        for name, part in self.named_parameters():
            if name.endswith("bias") or name.endswith(".up") or name == "tokens.weight":
                part.zero_()
            elif "norm" not in name:
                part.normal_(
                    std=DEVIATION / math.sqrt(2 * len(self.blocks))
                    if "projection" in name
                    else DEVIATION
                )
        self.tokens.weight[:vocabulary].normal_(std=DEVIATION)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits; the last layer shares its weights with the token embedding."""
        hidden = self.dropout(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        offsets = (
            None
            if self.padding is None
            else torch.where(self.padding, -math.inf, 0.0).to(hidden.dtype)
        )
        return F.linear(hidden, self.tokens.weight, offsets)


def loss(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next tokens."""
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def build(plan: Plan) -> TorchWorkload:
    """Return the study's workload on torch; see `Plan`."""
    settings, shape = plan.settings, plan.shape
    torch.manual_seed(plan.seed)
    model = plan.make_network(functools.partial(Network, plan))
    model.to(STORED[settings.precision]).to(plan.device.torch_type)
    options = {
        "betas": (0.9, shape.beta2),
        "weight_decay": WEIGHT_DECAY,
        "fused": settings.fused or None,
    }
    optimizer = torch.optim.AdamW(parameter_groups(model), plan.rate(shape.warm_up), **options)
    kind = plan.device.torch_type
    span = torch.arange(plan.length + 1, device=plan.device.torch_type)

    def take(text: torch.Tensor | numpy.ndarray, starts: numpy.ndarray) -> torch.Tensor:
        """Return sequences on the device, gathered there or on the host."""
        if isinstance(text, torch.Tensor):
            return text[sent(torch.from_numpy(starts), plan.device)[:, None] + span].long()
        rows = [text[start : start + plan.length + 1].astype(numpy.int64) for start in starts]
        return sent(torch.from_numpy(numpy.stack(rows)), plan.device)

    train, test = plan.inputs(lambda tokens: torch.from_numpy(tokens.copy()).to(kind), take)
    return TorchWorkload(
        **plan.common(train, test, **counts(plan, model) if isinstance(model, Network) else {}),
        model=model,
        loss=loss,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: plan.rate(step) / shape.peak_rate
        ),
        metric=None,
        rate_by_step=True,
        max_norm=MOST_NORM,
        plain=plain(plan, model),
    )


def parameter_groups(model: nn.Module) -> list[dict]:
    """Return the trained parameters in two groups: matrices with weight decay, biases and layer
    norms without."""
    trained = [part for part in model.parameters() if part.requires_grad]
    matrices, others = (
        [part for part in trained if (part.dim() > 1) == wanted] for wanted in (True, False)
    )
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def counts(plan: Plan, model: Network) -> dict:
    """Return the network's parameters and the operations of training on a sequence, without the
    vocabulary's padding.

    Each of T tokens takes 6N + 12 L d T operations; as in nanoGPT, N is without position
    embeddings. A frozen weight counts 4 instead of 6, because its gradient is not computed.

    Source: https://arxiv.org/abs/2204.02311, appendix B.
    """
    padding = (len(model.tokens.weight) - plan.vocabulary) * plan.shape.width
    positions = model.positions.weight.numel()
    every = sum(part.numel() for part in model.parameters()) - padding
    trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
    trained -= 0 if plan.lora_rank else positions + padding
    attention = 12.0 * plan.shape.layers * plan.shape.width * plan.length
    operations = plan.length * (4 * (every - positions) + 2 * trained + attention)
    return {"parameters": every, "flops_per_sample": operations}


def plain(plan: Plan, model: Network) -> Plain:
    """Return the plain version that training is compared with: AdamW at the highest rate, with
    nanoGPT's constants.

    The constants are written here again, to check `plan.SHAPES`. Steps are compared right after
    the warm-up, when the rate falls by less than a thousandth in 20 steps. Frozen weights are
    the model's.
    """
    peak_rate, beta2 = (6e-4, 0.95) if plan.model.startswith("gpt2") else (1e-3, 0.99)

    def is_matrix(name: str) -> bool:
        return not name.endswith("bias") and "norm" not in name

    def labels(batch: tuple, place: int) -> numpy.ndarray:
        """Return whether each sequence and its targets are those of the text."""
        epoch, number = divmod(place, plan.steps_per_epoch)
        places = plan.order(epoch)[number][:, None] + numpy.arange(plan.length)
        text = plan.dataset.train
        return (batch[0] == text[places]).all(1) & (batch[1] == text[places + 1]).all(1)

    def parity_weights(make: object, begun: Arrays) -> Arrays:
        """Return weights with which attention differs between tokens, and adapters change the
        outputs."""
        random = numpy.random.default_rng(plan.seed)
        larger = math.sqrt(SCORE_VARIANCE / plan.shape.width) / DEVIATION
        changed = {}
        for name, part in begun.items():
            if name.endswith(".up"):
                changed[name] = random.normal(scale=DEVIATION, size=part.shape)
            elif name.endswith("qkv.weight") and not plan.lora_rank:
                values = 2 * len(part) // 3  # queries and keys come first
                changed[name] = numpy.concatenate([part[:values] * larger, part[values:]])
        return begun | changed

    return Plain(
        make_network=lambda: PlainNetwork(plan.shape.heads, plan.vocabulary, model),
        loss=plain_loss,
        make_optimizer=lambda: Adam(
            lambda step: peak_rate, weight_decay=0.1, beta2=beta2, is_decayed=is_matrix
        ),
        batch_size=plan.parity_batch_size,
        labels=labels if plan.dataset else None,
        parity_weights=parity_weights,
        schedule_start=plan.shape.warm_up,
        max_norm=1.0,
    )
