"""The segmentation workload, with TensorFlow and with JAX."""

import numpy
import pytest

import small
from benchbook.frameworks import devices
from benchbook.frameworks.keras.runtime import to_host
from benchbook.frameworks.workload import Settings
from benchbook.measuring import protocol
from benchbook.studies.segmentation_scaling import network_keras as network
from benchbook.studies.segmentation_scaling.network_keras import intersection_over_union, squares_and_overlap
from fakes import run
from processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("tensorflow", "jax")
CPU = devices.pick("cpu", FRAMEWORK)
# JAX compiles this network for half a minute: the smoke profile trains it there, and test_keras.py a smaller one.
only_tensorflow = pytest.mark.frameworks("tensorflow")
# Output sizes as the article's code comments them, with channels counted by hand.
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


@pytest.fixture(scope="module")
def data():
    return small.SMALL["segmentation_scaling"][0]


@pytest.fixture(scope="module")
def made():
    workload = small.made("segmentation_scaling", CPU)
    fresh = workload.snapshot()
    yield workload
    workload.restore(fresh)


def steps(made, count):
    return [float(made.step(batch)) for batch in list(made.batches(0))[:count]]


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


def test_zeros_are_padded_at_the_top_and_the_left_and_upsampling_is_bilinear():
    import keras

    pixels = keras.Input((5, 5, 1))
    halved = keras.Model(pixels, network._convolve(pixels, "halving", 1, 3, 1.0, initializer="ones"))
    found = numpy.asarray(halved(numpy.ones((1, 5, 5, 1), "float32")))
    numpy.testing.assert_array_equal(found[0, :, :, 0], [[0, 0, 0], [0, 9, 9], [0, 9, 9]])
    line = numpy.array([0.0, 4.0, 8.0]).reshape(1, 3, 1, 1).repeat(2, axis=2)
    enlarged = numpy.asarray(keras.layers.UpSampling2D(interpolation="bilinear")(line))
    numpy.testing.assert_allclose(enlarged[0, :, 0, 0], [0, 1, 3, 5, 7, 8])  # half a pixel's centres, edges repeated


def test_loss_and_iou_are_what_numpy_gives():
    random = numpy.random.default_rng(3)
    masks = (random.random((5, 7, 6, 1)) < 0.4).astype("uint8")
    outputs = random.random((5, 7, 6, 1)).astype("float32")
    losses, overlaps = [], []
    for mask, output in zip(masks.astype(float), outputs.astype(float), strict=True):
        union = numpy.minimum(mask + output, 1).sum()
        overlaps.append((mask.sum() + output.sum() - union) / union)
        losses.append(((output - mask) ** 2).sum() / union + 1 - overlaps[-1] ** 2)
    assert float(squares_and_overlap(outputs, masks)) == pytest.approx(numpy.mean(losses), rel=1e-5)
    assert float(intersection_over_union(outputs, masks)) == pytest.approx(numpy.mean(overlaps), rel=1e-5)


def test_a_right_mask_has_no_loss_and_an_empty_one_no_overlap():
    mask = numpy.zeros((1, 4, 4, 1), "float32")
    mask[0, 1:3, 1:3] = 1
    assert float(squares_and_overlap(mask, mask)) == pytest.approx(0)
    assert float(intersection_over_union(mask, mask)) == pytest.approx(1)
    assert float(squares_and_overlap(0 * mask, mask)) == pytest.approx(2)
    assert float(intersection_over_union(0 * mask, 0 * mask)) == 0


def test_the_rate_falls_between_epochs_and_then_stays():
    schedule = network.schedule(31)
    found = [float(schedule(step)) for step in (0, 30, 31, 61, 200)]
    assert found == pytest.approx([0.25, 0.25, *[0.25 * 0.5**0.9] * 3])


@only_tensorflow
def test_its_optimiser_follows_nesterov(made):
    """By hand: v = 0.95 v - rate g; w = w + 0.95 v - rate g, at the first epoch's rate."""
    import keras

    variable, optimizer = keras.Variable(numpy.ones(3)), made.make_optimizer()
    optimizer.build([variable])
    weights, velocity = numpy.ones(3), 0.0
    for gradient in numpy.array([[1.0, -2.0, 0.5], [0.5, 1.0, 0.0]]):
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")], [variable])
        velocity = 0.95 * velocity - 0.25 * gradient
        weights = weights + 0.95 * velocity - 0.25 * gradient
        numpy.testing.assert_allclose(to_host(variable.value), weights, rtol=1e-6)


@only_tensorflow
def test_it_learns_and_says_what_it_is(made):
    losses = [loss for _ in range(6) for loss in steps(made, 2)]
    assert numpy.mean(losses[-3:]) < 0.9 * losses[0]
    told = made.description()
    assert (told["image_size"], told["dataset"], told["batch_size"]) == (128, "triangles-128px", 8)
    found = made.evaluate()
    assert (found.metric, found.samples) == ("iou", 6)
    assert 0 < float(found.accuracy) < 1


@only_tensorflow
def test_an_evaluation_is_the_iou_of_what_the_network_makes_of_the_test_images(data, made):
    images, masks = network.scale(data.test_images), data.test_labels[..., None]
    wanted = float(intersection_over_union(made.network.predict(images), masks))
    assert float(made.evaluate().accuracy) == pytest.approx(wanted, rel=1e-4)


@only_tensorflow
def test_batches_are_in_the_articles_order(data, made):
    for start, (images, masks) in zip((0, 8), made.batches(1), strict=True):
        numpy.testing.assert_allclose(images[..., 0], data.train_images[start : start + 8] / 255, rtol=1e-6)
        numpy.testing.assert_array_equal(masks[..., 0], data.train_labels[start : start + 8])


@only_tensorflow
def test_mixed_precision_computes_nearly_the_same_loss(made):
    half = small.build("segmentation_scaling", CPU, settings=Settings(precision="amp_fp16"))
    assert half.network.model.get_layer("encoder_4").compute_dtype == "float16"
    half.network.load([to_host(weight.value) for weight in made.model.weights])
    found, wanted = half.evaluate(), made.evaluate()
    assert float(found.loss) == pytest.approx(float(wanted.loss), rel=3e-2)
    assert float(found.accuracy) == pytest.approx(float(wanted.accuracy), rel=3e-2)


@only_tensorflow
def test_a_row_has_peak_memory_and_an_iou(made, tmp_path):
    record = run(tmp_path)
    protocol.warm_up(made, record, 0)
    rows = protocol.measure_windows(made, record, protocol.Plan(samples_per_window=8))
    train = rows[rows["phase"] == "train"].iloc[0]
    assert train["peak_memory_bytes"] > 0
    assert train["samples"] == 8
    assert rows[rows["phase"] == "evaluate"]["accuracy_metric"].tolist() == ["iou"]
