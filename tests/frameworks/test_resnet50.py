"""ResNet-50 in Keras, compared with torchvision's."""

import re

import numpy
import pytest
import torch

from benchbook.frameworks import devices
from benchbook.studies.resnet50_cost import plan as resnet50
from made.processes import FRAMEWORK

# Not JAX, which would compile the same Keras layers for half a minute.
pytestmark = pytest.mark.frameworks("tensorflow")
CPU, TORCH = devices.pick("cpu", FRAMEWORK), devices.pick("cpu", "torch")
OPTIONS = {"image_size": 64, "batch_size": 2, "parity_batch_size": 2, "schedule_epochs": 0.002}


@pytest.fixture(scope="module")
def both():
    return resnet50.Plan.build(None, CPU, **OPTIONS), resnet50.Plan.build(None, TORCH, **OPTIONS)


def test_the_same_weights_give_torchvisions_outputs(both):
    ours, torchs = both
    assert ours.trainable_parameters() == ours.description()["parameters"] == 25_557_032
    random = numpy.random.default_rng(3)
    # Weights as after training: none is 0 or 1, so that a missing or swapped part would show.
    model, network = torchs.model, ours.network
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.copy_(torch.from_numpy(random.uniform(0.5, 1.5, buffer.shape)))
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.from_numpy(random.uniform(0.5, 1.0, parameter.shape)))
    copied = []
    for weight in network.model.weights:
        layer, kind = weight.path.rsplit("/", 1)
        module = model.get_submodule(layer.rpartition("/")[2])
        names = {
            "gamma": "weight",
            "beta": "bias",
            "moving_mean": "running_mean",
            "moving_variance": "running_var",
        }
        array = (
            getattr(module, names.get(kind, "weight" if kind == "kernel" else kind))
            .detach()
            .numpy()
        )
        order = {4: (2, 3, 1, 0), 2: (1, 0)}.get(array.ndim)
        copied.append(array.transpose(order) if order else array)
    network.load(copied)
    images = random.standard_normal((2, 64, 64, 3)).astype("float32")
    model.eval()
    with torch.no_grad():
        expected = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    model.train()
    found = network.predict(images)
    assert numpy.abs(expected).max() > 1e-2
    numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * numpy.abs(expected).max())


def test_parity_opens_the_same_relus_as_in_torch(both):
    changed = {}
    for workload in both:
        with workload.compared() as subject:
            fresh = subject.weights()
        compared = workload.plain.parity_weights(None, fresh)
        names = [name for name in fresh if not numpy.array_equal(fresh[name], compared[name])]
        changed[workload.device.framework] = {
            re.sub("[./](bias|beta)$", "", name): float(compared[name].mean()) for name in names
        }
    assert changed[FRAMEWORK] == changed["torch"]
    assert len(changed["torch"]) == 52  # all batch norms but the stem's
    assert set(changed["torch"].values()) == {1.5, 3.0}
