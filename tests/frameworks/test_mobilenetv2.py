"""MobileNetV2 in every framework.

Weights and images come from NumPy. TensorFlow is compared with the article's own code, torch and
JAX with TensorFlow.
"""

import copy

import numpy
import pytest

from benchbook.datasets import Dataset
from benchbook.frameworks import batches, devices
from benchbook.frameworks.workload import Settings
from benchbook.measuring import parity
from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
from benchbook.studies.mobilenetv2_energy import weights as initial
from made.fakes import run
from made.processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("jax",))
IS_KERAS = FRAMEWORK != "torch"
CPU = devices.pick("cpu", FRAMEWORK)
OPTIONS = {"image_size": 32, "batch_size": 8, "num_workers": 0, "weights": "random"}


def images(count: int, seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    pixels = numpy.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=numpy.uint8)
    return pixels, numpy.arange(count) % 10


DATA = Dataset("random", *images(20, 0), *images(10, 1))


def lively_weights() -> initial.Weights:
    """Return weights with which images still differ at the head, and batch norms that are not
    the identity."""
    arrays, random = initial.draw(10, 1), numpy.random.default_rng(2)
    low = numpy.array([0.8, -0.2, -0.2, 0.3])[:, None]
    for name, (norm, shape) in initial.convolutions().items():
        fan = shape[0] * shape[1] * (1 if shape[-1] == 1 else shape[2])
        arrays[name] = [random.normal(0, (2 / fan) ** 0.5, shape).astype(numpy.float32)]
        parts = random.uniform(low, low + 0.4, (4, len(arrays[norm][0])))
        arrays[norm] = list(parts.astype(numpy.float32))
    return arrays


def build(framework: str = FRAMEWORK, **options):
    return mobilenetv2.Plan.build(DATA, devices.pick("cpu", framework), **OPTIONS | options)


def state(made) -> dict[str, numpy.ndarray]:
    """Return weights and moving statistics by name."""
    if made.device.framework == "torch":
        return {
            name: part.numpy().copy()
            for name, part in made.model.state_dict().items()
            if "num_batches" not in name
        }
    from benchbook.frameworks.keras.runtime import to_host

    return {weight.path: to_host(weight.value) for weight in made.model.weights}


def logits(made):
    """Return a torch workload's logits of the test images in inference mode."""
    import torch

    with torch.no_grad():
        images = torch.from_numpy(mobilenetv2.enlarge(DATA.test_images, 32, channels_first=True))
        return copy.deepcopy(made.model).eval()(images)


def learning_rate(made) -> float:
    if made.device.framework == "torch":
        return made.optimizer.param_groups[0]["lr"]
    made.network.update_model()
    return float(made.network.optimizer.learning_rate)


@pytest.fixture(scope="module")
def frozen():
    return build(drawn=("imagenet", lively_weights()))


@pytest.fixture(scope="module")
def unfrozen():
    return build(trainable=True)


def test_parameters_and_arithmetic_are_the_articles_whatever_the_framework(frozen, unfrozen):
    features, head, first = (
        12_224_256,
        2 * 1280 * 10,
        2 * 16 * 16 * 27 * 32,
    )  # forward, 2 per multiply-add
    counted = {
        12_810: features + 2 * head,
        2_236_682: 3 * (features + head) - first,
    }  # images need no gradient
    for made, (trained, flops) in zip((frozen, unfrozen), counted.items(), strict=True):
        assert made.trainable_parameters() == trained
        assert (
            made.description()["parameters"] == 2_270_794
        )  # moving means and variances are among them
        assert made.description()["flops_per_sample"] == flops


# JAX has the same layers, and their gradients are tested above. TensorFlow takes ten seconds to
# build the graph of a training step; the smoke profile runs one.
@pytest.mark.frameworks("torch", "tensorflow", slow=("tensorflow",))
def test_a_step_moves_every_layer_and_a_tenth_of_the_way_every_statistic(unfrozen):
    fresh, before = unfrozen.snapshot(), state(unfrozen)
    batch = next(unfrozen.batches(0))
    unfrozen.step(batch)
    after = state(unfrozen)
    assert not [name for name in before if numpy.array_equal(before[name], after[name])]
    kernel = initial.draw(10, 1)["Conv1"][0]
    pixels = mobilenetv2.enlarge(DATA.train_images[batches.full_batches(20, 8, 1, 0)[0]], 32)
    padded = numpy.pad(pixels, ((0, 0), (0, 1), (0, 1), (0, 0)))  # only below and on the right
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    values = numpy.einsum("nhwcij,ijco->nhwo", windows.astype(float), kernel).reshape(-1, 32)
    norm = "bn_Conv1/moving_{}" if IS_KERAS else "features.0.1.running_{}"
    variance = values.var(axis=0, ddof=0 if IS_KERAS else 1)  # torch stores the unbiased variance
    numpy.testing.assert_allclose(
        after[norm.format("mean")], 0.1 * values.mean(axis=0), rtol=1e-3, atol=1e-6
    )
    moved = after[norm.format("variance" if IS_KERAS else "var")].astype(float) - 0.9
    numpy.testing.assert_allclose(moved, 0.1 * variance, rtol=2e-4)
    unfrozen.restore(fresh)
    assert learning_rate(unfrozen) == pytest.approx(5e-4, rel=1e-6)


def test_the_learning_rate_falls_by_four_percent_in_50_000_steps(frozen):
    fresh, batch = frozen.snapshot(), next(frozen.batches(0))
    assert learning_rate(frozen) == pytest.approx(5e-4, rel=1e-7)
    if IS_KERAS:
        frozen.network.update_model()
        frozen.network.assign([frozen.network.optimizer.iterations], [numpy.asarray(49_999)])
    else:
        frozen.scheduler.last_epoch = 49_999
    frozen.step(batch)
    assert learning_rate(frozen) == pytest.approx(5e-4 * 0.96, rel=1e-6)
    frozen.end_epoch()
    assert learning_rate(frozen) == pytest.approx(5e-4 * 0.96, rel=1e-6)
    frozen.restore(fresh)


@pytest.mark.frameworks("tensorflow")
@pytest.mark.parametrize("size", [32, 96, 100, 160])
def test_images_are_enlarged_as_the_article_enlarged_them(size):
    import tensorflow

    expected = tensorflow.image.resize(
        DATA.train_images.astype("float32") / 255, (size, size), "nearest"
    ).numpy()
    numpy.testing.assert_array_equal(mobilenetv2.enlarge(DATA.train_images, size), expected)
    first = mobilenetv2.enlarge(DATA.train_images, size, channels_first=True)
    numpy.testing.assert_array_equal(first, expected.transpose(0, 3, 1, 2))


@pytest.mark.frameworks(
    "torch", "tensorflow", "jax", slow=("tensorflow", "jax")
)  # the head alone is in smoke
def test_three_steps_of_all_layers_are_those_of_float64(unfrozen, tmp_path):
    verdict = parity.check(unfrozen, run(tmp_path), 3)
    assert verdict.passed, verdict.reason


@pytest.mark.frameworks("torch")  # Keras's layers are not split; test_keras.py compares XLA
def test_tuned_settings_and_folded_batch_norms_change_how_it_is_computed_and_not_what(frozen):
    import torch

    options = {"variant": "tuned", "drawn": ("imagenet", lively_weights())}
    made = build(settings=Settings(channels_last=True, fused=True), data_resident=True, **options)
    expected = logits(frozen)  # up to 8, from weights that make rounding grow
    torch.testing.assert_close(logits(made), expected, rtol=0, atol=0.02)
    assert made.to_device(next(made.batches(0)))[0].is_contiguous(memory_format=torch.channels_last)
    for one, num_norms in (
        (made, 0),
        (build(trainable=True, **options), 52),
    ):  # only frozen ones are folded
        assert (
            sum(isinstance(part, torch.nn.BatchNorm2d) for part in one.model.modules()) == num_norms
        )


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # Keras, as it writes with NumPy 2
@pytest.mark.frameworks("tensorflow")
def test_a_weights_file_is_read_as_keras_writes_it(tmp_path):
    import h5py
    import keras
    from keras.src.legacy.saving import legacy_h5_format  # of the files of keras.applications

    arrays, path = lively_weights(), tmp_path / "weights.h5"
    model = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None)
    for layer in (layer for layer in model.layers if layer.weights):
        layer.set_weights(arrays[layer.name])
    with h5py.File(path, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    del arrays[initial.HEAD]
    numpy.testing.assert_equal(initial.read(path.read_bytes()), arrays)
