"""Classify features by their nearest neighbours, whose votes are weighted with exp(similarity / temperature).

Source: https://arxiv.org/abs/1805.01978, section 3.4, as in Lightly's benchmark of June 2023.
"""

import torch
from torch.nn import functional as F

NEIGHBOURS = 200
TEMPERATURE = 0.1
CHUNK = 512  # test images compared with the whole bank at once: 100 MB for a bank of 50,000 images


def predict(features: torch.Tensor, bank: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the class of each feature, by a weighted vote of its nearest neighbours in the bank.

    Args:
        features: shape (n, size), of any length; only directions count.
        bank: features with known classes, shape (m, size).
        labels: classes of the bank, int64, shape (m,).

    Returns:
        Classes, int64, shape (n,), on the features' device.
    """
    bank, classes = F.normalize(bank, dim=1), []
    for chunk in F.normalize(features, dim=1).split(CHUNK):
        nearest, places = (chunk @ bank.T).topk(min(NEIGHBOURS, len(bank)), dim=1)
        votes = torch.zeros(len(chunk), int(labels.max()) + 1, dtype=nearest.dtype, device=nearest.device)
        classes.append(votes.scatter_add(1, labels[places], (nearest / TEMPERATURE).exp()).argmax(1))
    return torch.cat(classes)
