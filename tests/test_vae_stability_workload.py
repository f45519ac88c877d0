"""The autoencoder: its evaluation, its noise, and training whose loss is not finite."""

import math

import pytest
import torch

from benchbook.measuring import protocol
from benchbook.measuring.protocol import Amount
from benchbook.studies.vae_stability import network_torch
from benchbook.studies.vae_stability import plan as vae
from made import small
from made.fakes import CPU, run

pytestmark = pytest.mark.usefixtures("own_random_state", "no_sensor")


@pytest.fixture(scope="module")
def tiny():
    return small.images((28, 28), 70, 20)


def resident(tiny, **options):
    return vae.Plan.build(
        tiny, CPU, "controlled", data_resident=True, **{"batch_size": 16} | options
    )


def test_the_device_draws_its_own_noise_and_what_is_injected_differs_between_steps(tiny):
    network, images = network_torch.Network(), torch.rand(3, 1, 28, 28)
    first, mean, _ = network(images)
    assert not torch.equal(first, network(images)[0])
    torch.testing.assert_close(network(images, torch.zeros(3, 20))[0], network.decode(mean))
    noises = [resident(tiny).plain.noise((images,), place)[1] for place in (0, 0, 1)]
    assert torch.equal(noises[0], noises[1])
    assert not torch.equal(noises[0], noises[2])


def test_evaluation_is_loss_per_image_without_an_accuracy(tiny, monkeypatch):
    workload = resident(tiny)
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    images = torch.from_numpy(tiny.test_images.copy()).float().div(255)
    expected = network_torch.loss(workload.model(images, torch.zeros(20, 20)), images) / 20
    evaluation = workload.evaluate()
    assert evaluation.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert (evaluation.samples, evaluation.metric) == (20, None)
    assert math.isnan(evaluation.accuracy)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("layer", ["encoder", "pixels"])
def test_a_loss_that_is_not_finite_is_a_diverged_row_and_does_not_end_the_run(
    tiny, tmp_path, layer, value
):
    workload, record = resident(tiny), run(tmp_path)
    with torch.no_grad():
        getattr(workload.model, layer).weight[0] = value
    protocol.measure_windows(workload, record, Amount(num_windows=3))
    rows = record.rows()
    assert list(rows["phase"]) == ["train", "evaluate"]
    assert list(rows["status"]) == ["diverged", "diverged"]
    assert record.marker.exists()
