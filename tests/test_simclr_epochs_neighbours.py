"""Nearest neighbours beside scikit-learn's, and a vote by hand."""

import numpy
import pytest
import torch

from benchbook.studies.simclr_epochs import neighbours


def test_classes_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(neighbours, "CHUNK", 64)  # 150 features: three parts
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, 7, 400)
    centres = draw.normal(size=(7, 16))
    bank, features = centres[labels] + draw.normal(size=(400, 16)), draw.normal(size=(150, 16))

    def weigh(distances):
        return numpy.exp((1 - distances) / 0.1)

    from sklearn.neighbors import KNeighborsClassifier  # its import takes a second

    theirs = KNeighborsClassifier(50, weights=weigh, metric="cosine", algorithm="brute").fit(bank, labels)
    own = neighbours.predict(*map(torch.from_numpy, (features, bank, labels)), neighbours=50)
    assert own.tolist() == theirs.predict(features).tolist()
    assert len(set(own.tolist())) == 7


def test_near_ones_outvote_many_far_ones_and_lengths_do_not_matter():
    bank = torch.tensor([[9.0, 0.0], [0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    labels = torch.tensor([1, 0, 0, 0])
    feature = torch.tensor([[1.0, 0.0]])
    assert neighbours.predict(feature, bank, labels).item() == 1  # e^10 against 3 e^7.07
    assert neighbours.predict(feature, bank, labels, temperature=1.0).item() == 0
    assert neighbours.predict(feature, bank, labels, neighbours=1, temperature=1.0).item() == 1


def test_the_protocols_numbers_are_the_defaults():
    assert (neighbours.NEIGHBOURS, neighbours.TEMPERATURE) == (200, 0.1)
    assert neighbours.predict(torch.rand(3, 4), torch.rand(5, 4), torch.arange(5)).shape == (3,)  # fewer than 200 vote


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_are_whole_numbers(dtype):
    found = neighbours.predict(torch.rand(3, 4, dtype=dtype), torch.rand(5, 4, dtype=dtype), torch.arange(5))
    assert found.dtype == torch.int64
