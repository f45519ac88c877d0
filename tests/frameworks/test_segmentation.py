"""The segmentation workload, with TensorFlow and with JAX."""

import numpy
import pytest

import small
from benchbook.frameworks import devices
from benchbook.studies.segmentation_scaling import network_keras as network
from benchbook.studies.segmentation_scaling.network_keras import intersection_over_union, squares_and_overlap
from processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("tensorflow", "jax")
CPU = devices.pick("cpu", FRAMEWORK)
# JAX compiles this network for half a minute: the smoke profile trains it there, and test_keras.py a smaller one.
only_tensorflow = pytest.mark.frameworks("tensorflow")
# Output sizes from the comments in the article's code, with channels counted by hand.
SIZES = {
    "stem": (512, 8),
    "encoder_256": (256, 16),
    "encoder_128": (128, 32),
    "encoder_64": (64, 64),
    "encoder_32": (32, 256),
    "encoder_16": (16, 1024),
    "decoder_16": (16, 512 + 1024),
    "decoder_32": (32, 384 + 256),
    "decoder_64": (64, 160 + 64),
    "decoder_128": (128, 56 + 32),
    "decoder_256": (256, 24 + 16),
    "decoder_512": (512, 24 + 8),
    "end": (512, 16 + 1),
    "mask": (512, 1),
}


@only_tensorflow
def test_the_network_is_the_articles_to_the_layer():
    import keras

    model = network.make_model()
    assert model.count_params() == 20_886_706
    found = {name: model.get_layer(name).output.shape for name in SIZES}
    assert found == {name: (None, size, size, channels) for name, (size, channels) in SIZES.items()}
    deep = [layer.output.shape[1:] for layer in model.layers if isinstance(layer, keras.layers.SeparableConv2D)][-2:]
    assert deep == [(12, 12, 1024), (8, 8, 2048)]
    rates = [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert rates == [0.25, 0.5, 0.5] * 5 + [0.25] * 2 + [0.25] * 6
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert {layer.momentum for layer in norms} == {0.95}
    biased = [layer for layer in model.layers if getattr(layer, "use_bias", False)]
    assert [layer.output.shape[-1] for layer in biased] == [1]


def test_zeros_are_padded_at_the_top_and_the_left():
    import keras

    pixels = keras.Input((5, 5, 1))
    halved = keras.Model(pixels, network._convolve(pixels, "halving", 1, 3, 1.0, initializer="ones"))
    found = numpy.asarray(halved(numpy.ones((1, 5, 5, 1), "float32")))
    numpy.testing.assert_array_equal(found[0, :, :, 0], [[0, 0, 0], [0, 9, 9], [0, 9, 9]])


def test_loss_and_iou_are_what_numpy_gives():
    random = numpy.random.default_rng(3)
    masks = (random.random((5, 7, 6, 1)) < 0.4).astype("uint8")
    outputs = random.random((5, 7, 6, 1)).astype("float32")
    masks[4], outputs[4] = 0, 0  # an empty mask, predicted as empty
    losses, overlaps = [], []
    for mask, output in zip(masks.astype(float), outputs.astype(float), strict=True):
        union = numpy.minimum(mask + output, 1).sum()
        overlaps.append((mask.sum() + output.sum() - union) / max(union, 1))
        losses.append(((output - mask) ** 2).sum() / max(union, 1) + 1 - overlaps[-1] ** 2)
    assert float(squares_and_overlap(outputs, masks)) == pytest.approx(numpy.mean(losses), rel=1e-5)
    assert float(intersection_over_union(outputs, masks)) == pytest.approx(numpy.mean(overlaps), rel=1e-5)


def test_the_rate_falls_between_epochs_and_then_stays():
    schedule = network.schedule(31)
    found = [float(schedule(step)) for step in (0, 30, 31, 61, 200)]
    assert found == pytest.approx([0.25, 0.25, *[0.25 * 0.5**0.9] * 3])


@only_tensorflow
def test_batches_are_in_the_articles_order():
    data = small.data("segmentation_scaling")
    made = small.made("segmentation_scaling", CPU)
    for start, (images, masks) in zip((0, 8), made.batches(1), strict=True):
        numpy.testing.assert_allclose(images[..., 0], data.train_images[start : start + 8] / 255, rtol=1e-6)
        numpy.testing.assert_array_equal(masks[..., 0], data.train_labels[start : start + 8])
