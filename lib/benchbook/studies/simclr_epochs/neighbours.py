"""Judge features by their nearest neighbours: each test image takes the class that its neighbours vote for.

Votes weigh exp(similarity / temperature). Source: https://arxiv.org/abs/1805.01978, section 3.4, as in Lightly's
benchmark of June 2023.
"""

import torch
from torch.nn import functional as F

NEIGHBOURS = 200
TEMPERATURE = 0.1
CHUNK = 512  # test images compared with the whole bank at once: 100 MB with 50,000 images


def predict(
    features: torch.Tensor,
    bank: torch.Tensor,
    labels: torch.Tensor,
    neighbours: int = NEIGHBOURS,
    temperature: float = TEMPERATURE,
) -> torch.Tensor:
    """Return the class of each feature by a weighted vote of its nearest neighbours.

    Args:
        features: shape (n, size); lengths do not matter, directions do.
        bank: features whose classes are known, shape (m, size).
        labels: their classes, int64, shape (m,).
        neighbours: how many vote, at most m.
        temperature: the smaller, the more the nearest count.

    Returns:
        Classes, int64, shape (n,), on the features' device.
    """
    bank = F.normalize(bank, dim=1)
    num_classes = int(labels.max()) + 1
    classes = [
        _vote(chunk @ bank.T, labels, num_classes, min(neighbours, len(bank)), temperature)
        for chunk in F.normalize(features, dim=1).split(CHUNK)
    ]
    return torch.cat(classes)


def _vote(
    similarities: torch.Tensor, labels: torch.Tensor, num_classes: int, neighbours: int, temperature: float
) -> torch.Tensor:
    nearest, places = similarities.topk(neighbours, dim=1)
    votes = torch.zeros(len(similarities), num_classes, dtype=nearest.dtype, device=nearest.device)
    return votes.scatter_add(1, labels[places], (nearest / temperature).exp()).argmax(1)
