"""ResNet-50 in Keras, compared with torchvision's."""

import re

import numpy
import pytest

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
