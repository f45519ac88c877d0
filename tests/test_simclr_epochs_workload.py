"""SimCLR: its evaluation, and parity with float64; frameworks/test_work.py pins its loss."""

import functools
import math

import numpy
import pytest
import torch
from scipy.spatial.distance import cdist

from benchbook.frameworks.workload import Settings
from benchbook.measuring import float64, parity
from benchbook.studies.simclr_epochs import network_torch
from benchbook.studies.simclr_epochs import plan as simclr
from made.fakes import CPU, run
from made.small import COLOURED

pytestmark = pytest.mark.usefixtures("own_random_state", "no_sensor")


@pytest.fixture(scope="module")
def tiny():
    """Twenty-six images of 16 pixels a side, so that the whole network has small feature maps."""
    return COLOURED


def tuned(tiny, **options):
    return simclr.Plan.build(
        tiny, CPU, "tuned", **{"batch_size": 8, "parity_batch_size": 8} | options
    )


def test_the_loss_of_half_precision_is_computed_in_single():
    half, single = (
        network_torch.nt_xent(tuple(torch.linspace(-1, 2, 90).view(2, 9, 5).to(kind)))
        for kind in (torch.bfloat16, torch.float32)
    )
    assert (half.dtype, half.item()) == (torch.float32, pytest.approx(single.item(), rel=0.01))


@pytest.mark.parametrize("options", [{}, {"variant": "controlled", "num_workers": 1}])
def test_evaluation_lets_unaugmented_images_vote_by_features_in_evaluation_mode(tiny, options):
    workload = simclr.Plan.build(
        tiny, CPU, **{"variant": "tuned", "batch_size": 8, "num_bank_images": 10} | options
    )
    assert workload.num_samples(next(iter(workload.batches(0)))) == 8  # images, not views
    found = workload.evaluate()
    constants = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 1, 3, 1, 1)

    def features(images):
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
        with torch.no_grad():
            return workload.model.backbone.eval()((pixels - constants[0]) / constants[1])

    voters = numpy.arange(0, 20, 2)  # ten of twenty, spread evenly
    labels = torch.from_numpy(tiny.train_labels[voters])
    classes = network_torch.predict(
        features(tiny.test_images), features(tiny.train_images[voters]), labels
    )
    assert float(found.accuracy) == pytest.approx((classes.numpy() == tiny.test_labels).mean())
    assert (found.samples, found.metric, found.loss) == (10 + 6, "knn", None)


def test_the_loss_of_an_evaluation_is_nan_if_features_are(tiny):
    workload = tuned(tiny)
    with torch.no_grad():
        workload.model.backbone.conv1.weight.fill_(math.nan)
    assert math.isnan(workload.evaluate().loss)


def test_steps_are_those_of_float64(tiny, tmp_path):
    verdict = parity.check(
        tuned(tiny, settings=Settings(channels_last=True, fused=True)), run(tmp_path), 1
    )
    assert verdict.passed, verdict.reason


def test_parity_is_checked_a_few_steps_on_from_the_same_weights_everywhere_and_changes_none(tiny):
    workload = tuned(tiny, parity_batch_size=4)
    before = workload.snapshot()["model"]
    make = functools.partial(float64.Torch, workload.plain, statistics={}, dtype="float32")
    with workload.compared() as subject:
        random = torch.get_rng_state()
        first, second = (workload.plain.parity_weights(make, subject.weights()) for _ in range(2))
        assert torch.equal(torch.get_rng_state(), random)
    for name, value in first.items():
        numpy.testing.assert_array_equal(value, second[name])
        assert not numpy.array_equal(value, before[name].numpy())
    assert all(
        torch.equal(value, before[name]) for name, value in workload.model.state_dict().items()
    )


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
