"""Two devices of JAX train as one; test_workloads_resnet50.py runs this file in a process that has two."""

from dataclasses import replace

import numpy
import pytest

from benchbook import devices
from benchbook.workloads import resnet50
from benchbook.workloads.resnet50 import keras as keras_side

CPU = devices.pick("cpu", "jax")
OPTIONS = {"image_size": 32, "batch_size": 8, "num_workers": 0, "learning_rate": 1.0, "schedule_epochs": 0.05}


def small(plan):
    """Return a network of one convolution, one batch norm and one layer."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(8, 3, 2, use_bias=False),
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(plan.num_classes),
        ]
    )


def test_two_devices_train_as_one_and_each_holds_its_lines(monkeypatch):
    monkeypatch.setattr(keras_side, "make_model", small)
    assert devices.count(CPU) == 2
    collection, losses, tested, derived = resnet50.collect("shapes"), [], [], []
    for count in (1, 2):
        made = resnet50.build(collection, replace(CPU, count=count), sync_batch_norm=True, **OPTIONS)
        batches = [batch for batch, _ in zip(made.batches(0), range(4), strict=False)]
        losses.append([float(made.step(batch)) for batch in batches])
        found = made.evaluate()
        tested.append([float(found.loss), float(found.accuracy)])
        images = made.network.spread(batches[0][0])[0]
        assert {shard.data.shape[0] for shard in images.addressable_shards} == {8 // count}
        subject = made.parity_subject(made.device, "fp32")
        derived.append([*subject.gradients(batches[0])[1].values()])
    for gradient, expected in zip(derived[1], derived[0], strict=True):
        numpy.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert tested[1] == pytest.approx(tested[0], rel=1e-3)
    assert len(set(numpy.round(losses[0], 4))) == 4


def test_what_jax_cannot_do_is_said():
    two = replace(CPU, count=2)
    with pytest.raises(NotImplementedError, match="sync_batch_norm False on several devices with jax; allowed: True"):
        resnet50.build(None, two, **OPTIONS)
    with pytest.raises(ValueError, match="batch_size 3; allowed on 2 devices: a multiple of 2"):
        resnet50.build(None, two, sync_batch_norm=True, **OPTIONS | {"batch_size": 3})
