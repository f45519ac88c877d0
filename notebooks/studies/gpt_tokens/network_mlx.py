"""The same GPT in MLX, with the initial weights of the torch network under the same names."""

import math

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks.mlx.layers import Dense
from benchbook.frameworks.mlx.runtime import assign
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.studies.gpt_tokens import network_torch
from benchbook.studies.gpt_tokens.plan import MOST_NORM, WEIGHT_DECAY, Plan, Shape


class LoraLinear(Dense):
    """A frozen dense layer plus a trained adapter of low rank; see `network_torch.LoraLinear`."""

    def __init__(self, inputs: int, outputs: int, bias: bool, rank: int) -> None:
        super().__init__(*_empty(inputs, outputs, bias))
        self.down, self.up = mx.zeros((rank, inputs)), mx.zeros((outputs, rank))

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return the layer's outputs."""
        down, up = self.down.astype(hidden.dtype), self.up.astype(hidden.dtype)
        return super().__call__(hidden) + hidden @ down.T @ up.T


class Norm(nn.LayerNorm):
    """A layer norm in float32, with outputs in the precision of the next layer."""

    def __call__(self, hidden: mx.array, computed: mx.Dtype) -> mx.array:
        """Return the normalised values."""
        return super().__call__(hidden.astype(mx.float32)).astype(computed)


class Attention(nn.Module):
    """Causal self-attention: (n, tokens, width) to the same shape."""

    def __init__(self, shape: Shape, fused: bool, lora_rank: int) -> None:
        super().__init__()
        sizes = shape.width, 3 * shape.width, shape.has_biases
        self.qkv = LoraLinear(*sizes, lora_rank) if lora_rank else Dense(*_empty(*sizes))
        self.projection = Dense(*_empty(shape.width, shape.width, shape.has_biases))
        self.dropout = nn.Dropout(shape.dropout)
        self.heads, self.fused = shape.heads, fused

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return the outputs of attention."""
        parts = self.qkv(hidden).reshape(*hidden.shape[:2], 3, self.heads, -1)
        query, key, value = parts.transpose(
            2, 0, 3, 1, 4
        )  # each (n, heads, tokens, width of a head)
        scale, length = 1 / math.sqrt(query.shape[-1]), hidden.shape[1]
        if self.fused:
            mixed = mx.fast.scaled_dot_product_attention(
                query, key, value, scale=scale, mask="causal"
            )
        else:
            later = mx.arange(length)[None] > mx.arange(length)[:, None]
            scores = mx.where(later, -math.inf, (query * scale) @ key.swapaxes(-1, -2))
            mixed = self.dropout(mx.softmax(scores, axis=-1, precise=True)) @ value
        return self.projection(mixed.swapaxes(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then two dense layers, each after a layer norm and with a residual: (n, tokens,
    width) to the same."""

    def __init__(self, shape: Shape, fused: bool, lora_rank: int) -> None:
        super().__init__()
        width, bias = shape.width, shape.has_biases
        self.norm1, self.norm2 = Norm(width, bias=bias), Norm(width, bias=bias)
        self.attention = Attention(shape, fused, lora_rank)
        self.expansion = Dense(*_empty(width, 4 * width, bias))
        self.projection = Dense(*_empty(4 * width, width, bias))
        self.dropout = nn.Dropout(shape.dropout)

    def __call__(self, hidden: mx.array, computed: mx.Dtype) -> mx.array:
        """Return the block's outputs, computed in this precision."""
        hidden = hidden + self.dropout(self.attention(self.norm1(hidden, computed)))
        return hidden + self.dropout(
            self.projection(nn.gelu(self.expansion(self.norm2(hidden, computed))))
        )


class Network(nn.Module):
    """A GPT: tokens (n, tokens) to logits of each next token (n, tokens, vocabulary).

    Args:
        plan: the point's choices.
        first: the torch network with the initial weights.
    """

    computed = mx.float32  # set by the code that trains it

    def __init__(self, plan: Plan, first: network_torch.Network) -> None:
        super().__init__()
        shape = plan.shape
        self.tokens = nn.Embedding(plan.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        fused, rank = plan.settings.fused_attention, plan.lora_rank
        self.blocks = [Block(shape, fused, rank) for _ in range(shape.layers)]
        self.norm = Norm(shape.width, bias=shape.has_biases)
        assign(
            self, {name: mx.array(part.detach().numpy()) for name, part in first.named_parameters()}
        )
        if rank:
            self.freeze()
            for block in self.blocks:
                block.attention.qkv.unfreeze(keys=["down", "up"])

    def __call__(self, tokens: mx.array) -> mx.array:
        """Return logits; the last layer shares its weights with the token embedding."""
        hidden = self.dropout(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])
        for block in self.blocks:
            hidden = block(hidden, self.computed)
        return self.norm(hidden, self.computed) @ self.tokens.weight.astype(self.computed).T


class AdamW(optimizers.AdamW):
    """AdamW with weight decay on matrices only; the plan's learning rate counts steps taken and
    steps skipped."""

    def __init__(self, plan: Plan) -> None:
        shape, start = plan.shape, plan.rate(0)
        rise = optimizers.linear_schedule(start, shape.peak_rate, shape.warm_up)
        fall = optimizers.cosine_decay(
            shape.peak_rate, shape.steps - shape.warm_up, shape.peak_rate / 10
        )
        rate = optimizers.join_schedules([rise, fall], [shape.warm_up])
        super().__init__(start, [0.9, shape.beta2], weight_decay=WEIGHT_DECAY, bias_correction=True)
        self.state["passed"] = mx.array(0, mx.uint64)
        self._schedulers["learning_rate"] = lambda step: rate(step + self.state["passed"])

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        """Return a parameter after a step."""
        of = optimizers.AdamW if parameter.ndim > 1 else optimizers.Adam
        return of.apply_single(self, gradient, parameter, state)


def build(plan: Plan) -> MlxWorkload:
    """Return the study's workload on MLX; see `Plan`.

    Raises:
        NotImplementedError: fused attention with dropout, which MLX lacks.
    """
    if plan.settings.fused_attention and plan.shape.dropout:
        raise NotImplementedError(
            f"fused_attention with dropout {plan.shape.dropout} on MLX; allowed: dropout 0"
        )
    mx.random.seed(plan.seed)
    first = network_torch.Network(plan)

    def take(text: mx.array | numpy.ndarray, starts: numpy.ndarray) -> mx.array | numpy.ndarray:
        """Return sequences, gathered on the device or the host, where the text is."""
        places = starts[:, None] + numpy.arange(plan.length + 1)
        return (
            text[mx.array(places)]
            if isinstance(text, mx.array)
            else text[places].astype(numpy.int32)
        )

    train, test = plan.inputs(lambda tokens: mx.array(tokens.astype(numpy.int32)), take)
    return MlxWorkload(
        **plan.common(train, test, **network_torch.counts(plan, first)),
        make_model=lambda: Network(plan, first),
        make_optimizer=lambda: AdamW(plan),
        max_norm=MOST_NORM,
        make_plain=lambda: network_torch.plain(plan, first),
        metric=None,
    )


def _empty(inputs: int, outputs: int, bias: bool) -> tuple[numpy.ndarray, numpy.ndarray | None]:
    """Return kernel and bias of a dense layer, zeros until the weights are assigned."""
    return numpy.zeros((inputs, outputs), numpy.float32), numpy.zeros(
        outputs, numpy.float32
    ) if bias else None
