"""SimCLR: network and loss against independent ones; its evaluation, and parity with float64."""

import functools
import math

import numpy
import pytest
import torch
from scipy.spatial.distance import cdist
from torch.nn import functional as F

from benchbook.frameworks.workload import Settings
from benchbook.measuring import float64, parity
from benchbook.studies import datasets
from benchbook.studies.simclr_epochs import network_torch
from benchbook.studies.simclr_epochs import plan as simclr
from fakes import CPU, run
from small import COLOURED

pytestmark = pytest.mark.usefixtures("own_random_state", "no_sensor")


@pytest.fixture(scope="module")
def tiny():
    """Twenty-six images of 16 pixels a side, so that the whole network has small feature maps."""
    return COLOURED


def tuned(tiny, **options):
    return simclr.Plan.build(tiny, CPU, "tuned", **{"batch_size": 8, "parity_batch_size": 8} | options)


def features_by_hand(weights: dict, images: torch.Tensor) -> torch.Tensor:
    """Return ResNet-18's features with batch statistics, from its weights by torchvision's names."""

    def convolve(values, name, normalise, stride):
        kernel = weights[f"{name}.weight"]
        values = F.conv2d(values, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        scale, shift = weights[f"{normalise}.weight"], weights[f"{normalise}.bias"]
        return F.batch_norm(values, None, None, scale, shift, training=True)

    values = convolve(images, "conv1", "bn1", 1)  # and no ReLU
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            inner = F.relu(convolve(values, f"{name}.conv1", f"{name}.bn1", stride))
            inner = convolve(inner, f"{name}.conv2", f"{name}.bn2", 1)
            if stride == 2:
                values = convolve(values, f"{name}.downsample.0", f"{name}.downsample.1", 2)
            values = F.relu(inner + values)
    return values.mean(dim=(2, 3))


def nt_xent_by_hand(first: numpy.ndarray, second: numpy.ndarray, temperature: float = 0.5) -> float:
    """Return equation 1 of arXiv:2002.05709, averaged over both views of all images, with loops."""
    vectors = numpy.concatenate([first, second])
    vectors = vectors / numpy.sqrt((vectors**2).sum(axis=1))[:, None]
    count, losses = len(first), []
    for one in range(2 * count):
        partner = (one + count) % (2 * count)
        others = [numpy.exp(vectors[one] @ vectors[k] / temperature) for k in range(2 * count) if k != one]
        losses.append(-numpy.log(numpy.exp(vectors[one] @ vectors[partner] / temperature) / sum(others)))
    return float(numpy.mean(losses))


def test_network_computes_what_an_independent_one_computes_with_its_weights():
    network = network_torch.Network().double()
    first, second = torch.randn(2, 4, 3, 16, 16, dtype=torch.float64)  # views, which go through one after the other
    backbone = {name: value.detach() for name, value in network.backbone.named_parameters()}
    torch.testing.assert_close(network.backbone(first), features_by_hand(backbone, first))
    head = {name: value.detach() for name, value in network.head.named_parameters()}
    hidden = F.batch_norm(features_by_hand(backbone, second) @ head["0.weight"].T, None, None, training=True)
    projected = F.batch_norm(F.relu(hidden) @ head["3.weight"].T, None, None, training=True)
    torch.testing.assert_close(network(first, second)[1], projected)
    assert projected.shape == (4, 128)


def test_loss_is_what_an_independent_formula_gives():
    draw = numpy.random.default_rng(0)
    first, second = draw.normal(size=(2, 9, 5))
    found = network_torch.nt_xent((torch.from_numpy(first), torch.from_numpy(second)))
    assert found.item() == pytest.approx(nt_xent_by_hand(first, second), rel=1e-10)
    assert found.dtype == torch.float64
    half = network_torch.nt_xent((torch.from_numpy(first).bfloat16(), torch.from_numpy(second).bfloat16()))
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(found.item(), rel=0.01)


@pytest.mark.parametrize("options", [{}, {"variant": "controlled", "num_workers": 1}])
def test_evaluation_lets_unaugmented_images_vote_by_features_in_evaluation_mode(tiny, options):
    workload = simclr.Plan.build(tiny, CPU, **{"variant": "tuned", "batch_size": 8, "num_bank_images": 10} | options)
    assert workload.num_samples(next(iter(workload.batches(0)))) == 8  # images, not views
    found = workload.evaluate()
    constants = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 1, 3, 1, 1)

    def features(images):
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
        with torch.no_grad():
            return workload.model.backbone.eval()((pixels - constants[0]) / constants[1])

    voters = numpy.arange(0, 20, 2)  # ten of twenty, spread evenly
    labels = torch.from_numpy(tiny.train_labels[voters])
    classes = network_torch.predict(features(tiny.test_images), features(tiny.train_images[voters]), labels)
    assert float(found.accuracy) == pytest.approx((classes.numpy() == tiny.test_labels).mean())
    assert (found.samples, found.metric, found.loss) == (10 + 6, "knn", None)


def test_the_loss_of_an_evaluation_is_nan_if_features_are(tiny):
    workload = tuned(tiny)
    with torch.no_grad():
        workload.model.backbone.conv1.weight.fill_(math.nan)
    assert math.isnan(workload.evaluate().loss)


def test_spread_takes_images_of_every_part():
    assert datasets.spread(5, 0).tolist() == [0, 1, 2, 3, 4]
    assert datasets.spread(20_000, 4).tolist() == [0, 5000, 10_000, 15_000]
    assert datasets.spread(3, 6).tolist() == [0, 0, 1, 1, 2, 2]


def test_steps_are_those_of_float64(tiny, tmp_path):
    verdict = parity.check(tuned(tiny, settings=Settings(channels_last=True, fused=True)), run(tmp_path), 2)
    assert verdict.passed, verdict.reason


def test_parity_is_checked_a_few_steps_on_from_the_same_weights_everywhere_and_changes_none(tiny):
    workload = tuned(tiny)
    before = workload.snapshot()["model"]
    make = functools.partial(float64.Torch, workload.plain, statistics={}, dtype="float32")
    with workload.compared("fp32") as subject:
        random = torch.get_rng_state()
        first, second = (workload.plain.parity_weights(make, subject.weights()) for _ in range(2))
        assert torch.equal(torch.get_rng_state(), random)
    for name, value in first.items():
        numpy.testing.assert_array_equal(value, second[name])
        assert not numpy.array_equal(value, before[name].numpy())
    assert all(torch.equal(value, before[name]) for name, value in workload.model.state_dict().items())


def test_without_autocast_weights_and_views_are_in_half_precision(tiny):
    workload = tuned(tiny, batch_size=2, settings=Settings("bf16"))
    assert {parameter.dtype for parameter in workload.model.parameters()} == {torch.bfloat16}
    assert workload.to_device(next(iter(workload.batches(0))))[0].dtype == torch.bfloat16


def test_classes_are_those_of_the_nearest_by_cosine(monkeypatch):
    monkeypatch.setattr(network_torch, "CHUNK", 64)  # 150 features: three parts
    monkeypatch.setattr(network_torch, "NEIGHBOURS", 50)
    draw = numpy.random.default_rng(0)
    labels = draw.integers(0, 7, 400)
    centres = draw.normal(size=(7, 16))
    bank, features = centres[labels] + draw.normal(size=(400, 16)), draw.normal(size=(150, 16))
    similar = 1 - cdist(features, bank, "cosine")
    votes = [numpy.zeros(7) for _ in features]
    for vote, row in zip(votes, similar, strict=True):
        nearest = row.argsort()[-50:]
        numpy.add.at(vote, labels[nearest], numpy.exp(row[nearest] / 0.1))
    own = network_torch.predict(*map(torch.from_numpy, (features, bank, labels)))
    assert own.tolist() == numpy.argmax(votes, axis=1).tolist()
    assert (len(set(own.tolist())), own.dtype) == (7, torch.int64)
