"""The same GPT, rewritten from its formulas for float64; its weights have the names of
`network_torch`.

Sources: https://arxiv.org/abs/1706.03762 (attention), https://arxiv.org/abs/1607.06450 (layer
norm), https://arxiv.org/abs/1606.08415 (GELU), https://arxiv.org/abs/2106.09685 (adapters).
"""

import copy

import torch
from torch import nn

EPSILON = 1e-5  # of layer norms


class PlainNetwork(nn.Module):
    """Tokens (n, tokens) to logits, without the computations of torch's layers.

    Args:
        heads: of each attention.
        vocabulary: number of different tokens; padding rows of the embedding have no logits.
        model: its weights are copied under their names.
    """

    def __init__(self, heads: int, vocabulary: int, model: nn.Module) -> None:
        super().__init__()
        self.heads, self.vocabulary = heads, vocabulary
        self._modules.update(copy.deepcopy(model).cpu()._modules)  # for their parameters

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        weights = dict(self.named_parameters())
        embedding, number = weights["tokens.weight"], 0
        hidden = embedding[tokens] + weights["positions.weight"][torch.arange(tokens.shape[1])]
        while f"blocks.{number}.norm1.weight" in weights:
            start = f"blocks.{number}."
            block = {
                name.removeprefix(start): part
                for name, part in weights.items()
                if name.startswith(start)
            }
            hidden = hidden + self._attended(_normed(hidden, block, "norm1"), block)
            wide = _dense(_normed(hidden, block, "norm2"), block, "expansion")
            hidden = hidden + _dense(wide * (1 + torch.erf(wide / 2**0.5)) / 2, block, "projection")
            number += 1
        return torch.einsum(
            "ntw,vw->ntv", _normed(hidden, weights, "norm"), embedding[: self.vocabulary]
        )

    def _attended(self, hidden: torch.Tensor, block: dict) -> torch.Tensor:
        count, length, width = hidden.shape
        each = width // self.heads
        query, key, value = _dense(hidden, block, "attention.qkv").split(width, dim=2)
        query, key, value = (
            part.reshape(count, length, self.heads, each) for part in (query, key, value)
        )
        place = torch.arange(length)
        scores = torch.einsum("nqhe,nkhe->nhqk", query, key) / each**0.5
        weights = torch.where(place[None, :] <= place[:, None], torch.exp(scores), 0.0)
        weights = weights / weights.sum(-1, keepdim=True)
        mixed = torch.einsum("nhqk,nkhe->nqhe", weights, value).reshape(count, length, width)
        return _dense(mixed, block, "attention.projection")


def plain_loss(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the mean negative log-probability of the next tokens."""
    right = torch.gather(logits, 2, following[..., None])[..., 0]
    return (torch.logsumexp(logits, 2) - right).mean()


def _dense(hidden: torch.Tensor, weights: dict, name: str) -> torch.Tensor:
    outputs = torch.einsum("nti,oi->nto", hidden, weights[f"{name}.weight"])
    if f"{name}.up" in weights:
        outputs = outputs + torch.einsum(
            "nti,ri,or->nto", hidden, weights[f"{name}.down"], weights[f"{name}.up"]
        )
    return outputs + weights[f"{name}.bias"] if f"{name}.bias" in weights else outputs


def _normed(hidden: torch.Tensor, weights: dict, name: str) -> torch.Tensor:
    centred = hidden - hidden.mean(-1, keepdim=True)
    scaled = (
        centred
        / (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt()
        * weights[f"{name}.weight"]
    )
    return scaled + weights[f"{name}.bias"] if f"{name}.bias" in weights else scaled
