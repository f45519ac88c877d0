"""The segmentation workload, with TensorFlow and with JAX."""

import numpy
import pytest

from benchbook.frameworks import devices
from benchbook.studies.segmentation_scaling import network_keras as network
from benchbook.studies.segmentation_scaling.network_keras import intersection_over_union
from made import small
from made.processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("tensorflow", "jax")
CPU = devices.pick("cpu", FRAMEWORK)
# JAX compiles this network for half a minute: the smoke profile trains it there, and test_keras.py
# a smaller one.
only_tensorflow = pytest.mark.frameworks("tensorflow")


@only_tensorflow
def test_the_network_is_the_articles_to_the_layer():
    import keras

    model = network.make_model()
    assert model.count_params() == 20_886_706
    rates = [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert rates == [0.25, 0.5, 0.5] * 5 + [0.25] * 2 + [0.25] * 6
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert {layer.momentum for layer in norms} == {0.95}
    biased = [layer for layer in model.layers if getattr(layer, "use_bias", False)]
    assert [layer.output.shape[-1] for layer in biased] == [1]


def test_iou_is_what_numpy_gives():
    random = numpy.random.default_rng(3)
    masks, outputs = (
        (random.random((5, 7, 6, 1)) < 0.4).astype("uint8"),
        random.random((5, 7, 6, 1)).astype("float32"),
    )
    masks[4], outputs[4] = 0, 0  # an empty mask, predicted as empty
    unions = numpy.minimum(masks + outputs, 1).sum((1, 2, 3))
    shares = (masks.sum((1, 2, 3)) + outputs.sum((1, 2, 3)) - unions) / numpy.maximum(unions, 1)
    assert float(intersection_over_union(outputs, masks)) == pytest.approx(
        numpy.mean(shares), rel=1e-5
    )


def test_the_rate_falls_between_epochs_and_then_stays():
    schedule = network.schedule(31)
    found = [float(schedule(step)) for step in (0, 30, 31, 61, 200)]
    assert found == pytest.approx([0.25, 0.25, *[0.25 * 0.5**0.9] * 3])


@only_tensorflow
def test_batches_are_in_the_articles_order():
    data = small.data("segmentation_scaling")
    made = small.made("segmentation_scaling", CPU)
    for start, (images, masks) in zip((0, 8), made.batches(1), strict=True):
        numpy.testing.assert_allclose(
            images[..., 0], data.train_images[start : start + 8] / 255, rtol=1e-6
        )
        numpy.testing.assert_array_equal(masks[..., 0], data.train_labels[start : start + 8])
