"""What every Keras workload must do, with TensorFlow and with JAX."""

import contextlib
import functools

import numpy
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.keras.runtime import arithmetic, import_keras, to_host
from benchbook.frameworks.keras.training import cross_entropy
from benchbook.frameworks.workload import Settings
from benchbook.measuring import float64, parity
from made import small
from made.fakes import run
from made.processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("tensorflow", "jax")
of_any = pytest.mark.frameworks(
    "tensorflow"
)  # Keras and the library do the same with JAX, which compiles for longer
CPU = devices.pick("cpu", FRAMEWORK)


@pytest.fixture(scope="module")
def data():
    random = numpy.random.default_rng(0)
    labels = (numpy.arange(48) % 3).astype("int32")
    images = random.normal(size=(48, 6, 6, 3)).astype("float32") + labels[:, None, None, None]
    return images, labels


def workload(data, **options):
    images, labels = data

    def batches(epoch):
        order = numpy.random.default_rng(epoch).permutation(48)
        return [(images[part], labels[part]) for part in numpy.split(order, 6)]

    def fit(batch, place):
        return batch[1] == labels[[(images == image).all((1, 2, 3)).argmax() for image in batch[0]]]

    return small.keras_workload(
        CPU, batches, [(images[:32], labels[:32]), (images[32:], labels[32:])], fit, **options
    )


without_dropout = functools.partial(small.keras_model, dropout=0.0)


def weights(made):
    return [to_host(weight.value) for weight in made.model.weights]


def steps(made, count, epoch=0):
    return [float(made.step(batch)) for batch in list(made.batches(epoch))[:count]]


def test_a_process_computes_with_one_framework_and_says_so():
    assert import_keras(FRAMEWORK).backend.backend() == FRAMEWORK
    other = {"tensorflow": "jax", "jax": "tensorflow"}[FRAMEWORK]
    if other not in devices.installed():
        pytest.skip(f"{other} is not installed: nothing to change to")
    with pytest.raises(
        RuntimeError,
        match=f"computes with {FRAMEWORK} .* cannot change to {other}.*restarted kernel",
    ):
        import_keras(other)


@of_any
def test_it_learns_and_reads_no_loss_meanwhile(data):
    made = workload(data)
    losses = [made.step(batch) for epoch in range(3) for batch in made.batches(epoch)]
    assert not any(
        isinstance(loss, (float, numpy.ndarray)) for loss in losses
    )  # each is still on the device
    assert made.mean_loss(losses) == pytest.approx(numpy.mean([float(loss) for loss in losses]))
    assert made.mean_loss(losses[-6:]) < 0.7 * float(losses[0])


def test_the_same_seed_gives_the_same_training_and_leaves_pythons_own_alone(data):
    import random

    random.seed(7)
    expected = random.random()
    random.seed(7)
    one, other = workload(data), workload(data)
    assert random.random() == expected
    expected = steps(one, 2)
    assert steps(other, 2) == expected
    assert steps(workload(data, seed=2), 2) != expected


def test_a_step_is_compiled_once(data):
    traced = []

    def loss(outputs, target):
        traced.append(1)
        return cross_entropy(outputs, target)

    made = workload(data, loss=loss)
    steps(made, 6)
    made.restore(made.snapshot())
    steps(made, 6)
    assert len(traced) == 1
    assert made.description()["compiled"] is (FRAMEWORK == "jax")


@pytest.mark.parametrize(
    ("precision", "stored", "computed"),
    [
        ("fp32", "float32", "float32"),
        ("amp_fp16", "float32", "float16"),
        ("bf16", "bfloat16", "bfloat16"),
    ],
)
def test_every_precision_keeps_and_computes_what_it_says(data, precision, stored, computed):
    made = workload(data, settings=Settings(precision=precision))
    assert numpy.isfinite(steps(made, 2)).all()
    convolution = made.network.model.layers[1]
    assert (convolution.kernel.dtype, convolution.compute_dtype) == (stored, computed)
    scaled = type(made.network.optimizer).__name__ == "LossScaleOptimizer"
    assert scaled == ("fp16" in precision)
    assert import_keras(FRAMEWORK).config.dtype_policy().name == "float32"  # afterwards as before


@of_any
def test_xla_changes_no_number_beyond_rounding(data):
    plain, compiled = (
        workload(data, settings=Settings(compiled=choice), make_model=without_dropout)
        for choice in (False, True)
    )
    assert compiled.description()["compiled"] is True
    assert steps(plain, 2) == pytest.approx(steps(compiled, 2), rel=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "amp_fp16"])
def test_parity_with_float64_passes(data, tmp_path, precision):
    make_model = functools.partial(small.keras_model, is_separable=precision == "fp32")
    made = workload(data, settings=Settings(precision=precision), make_model=make_model)
    before = weights(made)
    verdict = parity.check(made, run(tmp_path), 3)
    assert verdict.passed, verdict.reason
    assert verdict.num_steps == 3
    for kept, weight in zip(before, weights(made), strict=True):
        numpy.testing.assert_array_equal(kept, weight)


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_dropout_is_off_in_a_comparison_and_in_nothing_else(data, order):
    never, made = workload(data, make_model=without_dropout), workload(data)
    start, without, were_equal = made.snapshot(), steps(never, 1), []
    for is_compared in order:
        with made.network.without_dropout() if is_compared else contextlib.nullcontext():
            made.restore(start)
            were_equal.append(steps(made, 1) == without)
    assert tuple(were_equal) == order


def test_float64_is_float64_in_every_layer_and_in_the_loss(data, monkeypatch):
    """On JAX Keras rounds to float32 inside batch norms and means, unless this is prevented."""
    keras = import_keras(FRAMEWORK)
    before = keras.backend.result_type("float64", "float32")

    def normalised():
        pixels = keras.Input((6, 6, 3))
        hidden = keras.layers.BatchNormalization(epsilon=0.01)(pixels)
        return keras.Model(pixels, keras.layers.GlobalAveragePooling2D()(hidden))

    images, labels = data
    made = workload(data, make_model=normalised)
    with made.compared() as subject:
        network = float64.Keras(made.plain, subject.weights(), subject.statistics(), FRAMEWORK)
    pixels = images.astype(float) / 3
    logits = (
        (pixels - pixels.mean(axis=(0, 1, 2))) / numpy.sqrt(pixels.var(axis=(0, 1, 2)) + 0.01)
    ).mean(axis=(1, 2))
    share = numpy.exp(logits) / numpy.exp(logits).sum(1, keepdims=True)
    loss, _, _ = network.differentiate((pixels,), labels)
    assert loss == pytest.approx(
        -numpy.log(share[range(48), labels]).mean(), rel=1e-9
    )  # epsilon is float32's
    assert keras.backend.result_type("float64", "float32") == before
    monkeypatch.delattr(
        "keras.src.backend.common.dtypes.BIT64_TO_BIT32_DTYPE"
    )  # as if a release had moved it
    monkeypatch.setattr(keras.backend, "result_type", lambda *types: "float32")
    with (
        pytest.raises(NotImplementedError, match="rounds float64 to float32; allowed: Keras"),
        arithmetic(CPU, "fp64"),
    ):
        pass


@of_any
def test_a_frozen_layer_stays_and_is_not_compared(data):
    made = workload(data, make_model=functools.partial(small.keras_model, trainable=False))
    kernel = weights(made)[0]
    steps(made, 3)
    numpy.testing.assert_array_equal(weights(made)[0], kernel)
    with made.compared() as subject:
        assert len(subject.weights()) == 5
        network = float64.Keras(made.plain, subject.weights(), subject.statistics(), FRAMEWORK)
    images, labels = data
    assert len(network.differentiate((images,), labels)[1]) == 4


@of_any
def test_settings_that_keras_does_not_have_are_unsupported(data):
    with pytest.raises(NotImplementedError, match="allowed with Keras: precision and compiled"):
        workload(data, settings=Settings(channels_last=True))
    with pytest.raises(NotImplementedError, match="has no tf32; allowed: cuda"):
        workload(data, settings=Settings(precision="tf32"))
