"""MobileNetV2 in every framework.

Weights and images come from NumPy, so that each framework can be compared with torch's twin, which is compared with a
formula.
"""

import copy
from dataclasses import replace

import numpy
import pytest

from benchbook.frameworks import batches, devices
from benchbook.frameworks.workload import Settings
from benchbook.measuring import parity, reference
from benchbook.studies.datasets import Dataset
from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
from benchbook.studies.mobilenetv2_energy import weights as initial
from fakes import run
from processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("jax",))
IS_KERAS = FRAMEWORK != "torch"
CPU = devices.pick("cpu", FRAMEWORK)
OPTIONS = {"image_size": 32, "batch_size": 8, "num_workers": 0}
NORMS = sum(shape[-1] if shape[-1] > 1 else shape[-2] for _, shape in initial.convolutions().values())


def images(count: int, seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    pixels = numpy.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=numpy.uint8)
    return pixels, numpy.arange(count) % 10


DATA = Dataset("random", *images(20, 0), *images(10, 1))


def lively_weights() -> initial.Weights:
    """Return weights from which images still differ at the head, and batch norms that are not what they begin as."""
    arrays, random = initial.draw(10, 1), numpy.random.default_rng(2)
    low = numpy.array([0.8, -0.2, -0.2, 0.3])[:, None]
    for name, (norm, shape) in initial.convolutions().items():
        fan = shape[0] * shape[1] * (1 if shape[-1] == 1 else shape[2])
        arrays[name] = [random.normal(0, (2 / fan) ** 0.5, shape).astype(numpy.float32)]
        parts = random.uniform(low, low + 0.4, (4, len(arrays[norm][0])))
        arrays[norm] = list(parts.astype(numpy.float32))
    return arrays


def build(framework: str = FRAMEWORK, **options):
    return mobilenetv2.build(DATA, devices.pick("cpu", framework), **OPTIONS | options)


def state(made) -> dict[str, numpy.ndarray]:
    """Return weights and moving statistics by name."""
    if made.device.framework == "torch":
        return {
            name: part.numpy().copy() for name, part in made.model.state_dict().items() if "num_batches" not in name
        }
    from benchbook.frameworks.keras.runtime import to_host

    return {weight.path: to_host(weight.value) for weight in made.model.weights}


def head_of(names) -> set[str]:
    return {name for name in names if name.startswith(("classifier", initial.HEAD))}


def exact_steps(made, count):
    """Return steps of the reference, all with the first training batch; both frameworks have the same order."""
    with made.compared("fp32") as subject:
        batches = [subject.to_host(subject.batches(1)[0])] * count
        start = (made.plain, subject.weights(), subject.statistics(), batches)
    return list(map(reference.follow(made.device.framework, *start), range(count)))


def logits(made, pixels: numpy.ndarray, precision: str = "fp32") -> numpy.ndarray:
    """Return the outputs in inference mode; fp64 is for comparing, since rounding grows through 52 batch norms."""
    images = mobilenetv2.enlarge(pixels, 32, channels_first=made.device.framework == "torch")
    images = images.astype("float64" if precision == "fp64" else "float32")
    if made.device.framework != "torch":
        from benchbook.frameworks.keras.runtime import to_host

        if precision == "fp32":  # in the batches of an evaluation, whose graphs are there
            return numpy.concatenate([made.network.predict(part) for part in numpy.split(images, [8])])
        exact = replace(made, settings=Settings(precision))
        exact.network.load([to_host(weight.value) for weight in made.model.weights])
        return exact.network.predict(images)
    import torch

    model = copy.deepcopy(made.model).eval()
    with torch.no_grad():
        return (model.double() if precision == "fp64" else model)(torch.from_numpy(images)).numpy()


def learning_rate(made) -> float:
    if made.device.framework == "torch":
        return made.optimizer.param_groups[0]["lr"]
    made.network.update_model()
    return float(made.network.optimizer.learning_rate)


@pytest.fixture(scope="module")
def frozen():
    return build(weights=("imagenet", lively_weights()))


@pytest.fixture(scope="module")
def unfrozen():
    return build(trainable=True)


def test_parameters_are_the_articles_and_batch_norms_statistics_are_among_them(frozen, unfrozen):
    for made, trained in ((frozen, 12_810), (unfrozen, 2_236_682)):
        assert made.description()["parameters"] == 2_270_794
        assert made.trainable_parameters() == trained
    assert 2_236_682 + 2 * NORMS == 2_270_794  # a moving mean and a moving variance for each channel of a norm
    if not IS_KERAS:  # torch counts no statistics: its twin's own number is what training changes
        assert sum(part.numel() for part in unfrozen.model.parameters()) == 2_236_682


def test_arithmetic_is_counted_alike_whatever_the_framework(frozen, unfrozen):
    features, head, first = 12_224_256, 2 * 1280 * 10, 2 * 16 * 16 * 27 * 32  # forward, 2 per multiply-add
    assert frozen.description()["flops_per_sample"] == features + 2 * head
    assert unfrozen.description()["flops_per_sample"] == 3 * (features + head) - first  # images need no gradient


@pytest.mark.frameworks("torch", "tensorflow")  # JAX is compared with the torch twin, and that with a formula
def test_outputs_are_those_of_an_independent_model(frozen):
    """Keras: the article's own lines. torch: the network written out, with TensorFlow's padding as documented."""
    pixels = mobilenetv2.enlarge(DATA.test_images, 32).astype("float64")
    expected = articles_outputs(pixels) if IS_KERAS else outputs_by_hand(pixels)
    found = logits(frozen, DATA.test_images, "fp64")
    shares = numpy.exp(found) / numpy.exp(found).sum(axis=1, keepdims=True)
    assert expected.std(axis=0).max() > 0.1  # images differ: it is no constant that is compared
    numpy.testing.assert_allclose(shares, expected, rtol=1e-7)


def articles_outputs(pixels: numpy.ndarray) -> numpy.ndarray:
    """Return class probabilities of the model as the article's notebook makes it, in float64."""
    import keras

    keras.config.set_dtype_policy("float64")
    try:
        base = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None)
        layers = [base, keras.layers.GlobalAveragePooling2D(), keras.layers.Dropout(0.4)]
        model = keras.Sequential([*layers, keras.layers.Dense(10, activation="softmax")])
        model.build((None, 32, 32, 3))
    finally:
        keras.config.set_dtype_policy("float32")
    arrays = lively_weights()
    for layer in (layer for layer in base.layers if layer.weights):
        layer.set_weights(arrays[layer.name])
    model.layers[-1].set_weights(arrays[initial.HEAD])
    return numpy.asarray(model(pixels, training=False))


def outputs_by_hand(pixels: numpy.ndarray) -> numpy.ndarray:
    """Return class probabilities in float64, padded as TensorFlow documents "same": less before than after."""
    import torch
    from torch.nn import functional as F

    arrays = {name: [torch.from_numpy(part).double() for part in parts] for name, parts in lively_weights().items()}

    def convolve(values, name, norm, stride=1, active=True):
        kernel = arrays[name][0]
        depthwise = name.endswith("depthwise")
        size, side = values.shape[-1], kernel.shape[0]
        missing = max(0, (-(-size // stride) - 1) * stride + side - size)
        values = F.pad(values, (missing // 2, missing - missing // 2) * 2)
        kernel = kernel.permute(*((2, 3, 0, 1) if depthwise else (3, 2, 0, 1)))
        values = F.conv2d(values, kernel, stride=stride, groups=values.shape[1] if depthwise else 1)
        scale, offset, mean, variance = (part[:, None, None] for part in arrays[norm])
        values = (values - mean) / (variance + 1e-3).sqrt() * scale + offset
        return values.clamp(0, 6) if active else values

    values = convolve(torch.from_numpy(pixels).double().permute(0, 3, 1, 2), "Conv1", "bn_Conv1", 2)
    number = 0
    for expansion, channels, repeats, stride in initial.BLOCKS:
        for repeat in range(repeats):
            prefix, hidden = f"block_{number}" if number else "expanded_conv", values
            for part in ("expand", "depthwise", "project")[expansion == 1 :]:
                name, step = f"{prefix}_{part}", stride if part == "depthwise" and repeat == 0 else 1
                hidden = convolve(hidden, name, f"{name}_BN", step, part != "project")
            values, number = values + hidden if repeat else hidden, number + 1
            assert values.shape[1] == channels
    values = convolve(values, "Conv_1", "Conv_1_bn").mean(dim=(2, 3))
    kernel, bias = arrays[initial.HEAD]
    return torch.softmax(values @ kernel + bias, dim=1).numpy()


@pytest.mark.frameworks("tensorflow")  # Keras's Adam is one, and compared with torch's
def test_losses_of_the_head_and_adams_steps_are_those_of_the_torch_twin(frozen):
    """In float64 the frameworks agree to rounding; Adam's epsilon stands elsewhere, so its steps agree to less."""
    pytest.importorskip("torch", reason="torch is not installed: no twin to compare with")
    twin = build("torch", weights=("imagenet", lively_weights()))
    for step, other, tolerance in zip(exact_steps(frozen, 3), exact_steps(twin, 3), (1e-7, 1e-4, 1e-4), strict=True):
        assert step.loss == pytest.approx(other.loss, rel=tolerance)  # the second is that after a step


@pytest.mark.frameworks("tensorflow", "jax", slow=("jax",))
def test_gradients_of_all_layers_are_those_of_the_torch_twin(unfrozen):
    """Batch norms in training mode, their constants, padding: one of them wrong would show in the gradient's norm."""
    pytest.importorskip("torch", reason="torch is not installed: no twin to compare with")
    twin = build("torch", trainable=True)
    (step,), (other,) = exact_steps(unfrozen, 1), exact_steps(twin, 1)
    assert step.loss == pytest.approx(other.loss, rel=1e-7)
    norms = [sorted(numpy.linalg.norm(part) for part in each.gradients.values()) for each in (step, other)]
    numpy.testing.assert_allclose(*norms, rtol=1e-4, atol=1e-9)


def test_frozen_features_stay_and_so_do_their_batch_norms(frozen):
    fresh, before = frozen.snapshot(), state(frozen)
    losses = [float(frozen.step(batch)) for batch in frozen.batches(0)]
    after = state(frozen)
    assert len(losses) == 2  # 20 images; the 4 that do not fill a batch are left out
    changed = {name for name in before if not numpy.array_equal(before[name], after[name])}
    assert changed == head_of(before)
    assert len(changed) == 2
    frozen.restore(fresh)


# JAX has the same layers, and gradients of all of them above. TensorFlow builds the graph of a training step for ten
# seconds; the smoke profile takes one.
@pytest.mark.frameworks("torch", "tensorflow", slow=("tensorflow",))
def test_a_step_moves_every_layer_and_a_tenth_of_the_way_every_statistic(unfrozen):
    fresh, before = unfrozen.snapshot(), state(unfrozen)
    batch = next(unfrozen.batches(0))
    unfrozen.step(batch)
    after = state(unfrozen)
    assert not [name for name in before if numpy.array_equal(before[name], after[name])]
    kernel = initial.draw(10, 1)["Conv1"][0]
    pixels = mobilenetv2.enlarge(DATA.train_images[batches.training_order(20, 8, 1, 0)[0]], 32)
    padded = numpy.pad(pixels, ((0, 0), (0, 1), (0, 1), (0, 0)))  # below and on the right alone
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    values = numpy.einsum("nhwcij,ijco->nhwo", windows.astype(float), kernel).reshape(-1, 32)
    norm = "bn_Conv1/moving_{}" if IS_KERAS else "features.0.1.running_{}"
    variance = values.var(axis=0, ddof=0 if IS_KERAS else 1)  # torch keeps the unbiased one
    numpy.testing.assert_allclose(after[norm.format("mean")], 0.1 * values.mean(axis=0), rtol=1e-3, atol=1e-6)
    moved = after[norm.format("variance" if IS_KERAS else "var")].astype(float) - 0.9
    numpy.testing.assert_allclose(moved, 0.1 * variance, rtol=2e-4)
    unfrozen.restore(fresh)
    assert learning_rate(unfrozen) == pytest.approx(5e-4, rel=1e-6)


def test_batch_norms_keep_what_is_recorded(frozen, unfrozen):
    for made, kind in ((frozen, "imagenet"), (unfrozen, "random")):
        momentum = {"imagenet": 0.999, "random": 0.9}[kind]
        if IS_KERAS:
            norms = [layer for layer in made.network.model.layers if type(layer).__name__ == "BatchNormalization"]
            found = {(norm.momentum, norm.epsilon) for norm in norms}
        else:
            norms = [part for part in made.model.modules() if type(part).__name__ == "BatchNorm2d"]
            found = {(round(1 - norm.momentum, 9), norm.eps) for norm in norms}
        assert found == {(momentum, 1e-3)}
        assert len(norms) == 52
        assert initial.MOMENTUM[kind] == momentum


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


def test_batches_are_the_same_in_every_framework(frozen):
    """Those of the loader, which `test_workloads` compares with resident ones."""
    for epoch in (0, 1):
        chosen = batches.training_order(20, 8, 1, epoch)
        for part, (pixels, labels) in zip(chosen, frozen.batches(epoch), strict=True):
            expected = mobilenetv2.enlarge(DATA.train_images[part], 32, channels_first=not IS_KERAS)
            numpy.testing.assert_allclose(numpy.asarray(pixels), expected, rtol=1e-6)
            numpy.testing.assert_array_equal(numpy.asarray(labels), DATA.train_labels[part])


@pytest.mark.frameworks("tensorflow")
@pytest.mark.parametrize("size", [32, 96, 100, 160])
def test_images_are_enlarged_as_the_article_enlarged_them(size):
    import tensorflow

    expected = tensorflow.image.resize(DATA.train_images.astype("float32") / 255, (size, size), "nearest").numpy()
    numpy.testing.assert_array_equal(mobilenetv2.enlarge(DATA.train_images, size), expected)


def test_an_evaluation_is_the_mean_over_the_test_images(frozen):
    found = frozen.evaluate()
    outputs = logits(frozen, DATA.test_images).astype(float)
    losses = numpy.log(numpy.exp(outputs).sum(axis=1)) - outputs[range(10), DATA.test_labels]
    assert (found.samples, found.metric) == (10, "top1")
    assert float(found.loss) == pytest.approx(losses.mean(), rel=1e-4)
    assert float(found.accuracy) == pytest.approx((outputs.argmax(axis=1) == DATA.test_labels).mean())


@pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("tensorflow", "jax"))  # the head alone is in smoke
def test_three_steps_of_all_layers_are_those_of_float64(unfrozen, tmp_path):
    verdict = parity.check(unfrozen, run(tmp_path), 3)
    assert verdict.passed, verdict.reason


def test_parity_opens_the_relus_that_cut_off_and_changes_nothing_else(unfrozen):
    with unfrozen.compared("fp32") as subject:
        weights = subject.weights()
    settled = unfrozen.plain.settle(None, weights)
    changed = [name for name in weights if not numpy.array_equal(weights[name], settled[name])]
    sizes = [
        shape[-1] if shape[-1] > 1 else shape[-2]
        for name, (_, shape) in initial.convolutions().items()
        if "_project" not in name
    ]
    assert [settled[name].tolist() for name in changed] == [[3.0] * size for size in sizes]


@pytest.mark.frameworks("torch")  # test_keras.py plants one in Keras
def test_a_tenth_too_much_gradient_in_one_layer_fails_parity(frozen, tmp_path):
    head = next(part for part in frozen.model.parameters() if part.requires_grad)
    hook = head.register_hook(lambda gradient: gradient * 1.1)
    verdict = parity.check(frozen, run(tmp_path), 1)
    hook.remove()
    assert not verdict.passed
    assert "norm 1.1" in verdict.reason


def test_tuned_settings_change_how_it_is_computed_and_not_what(frozen):
    chosen = {
        "torch": Settings(channels_last=True, fused=True),
        "tensorflow": Settings(compiled=True),
        "jax": Settings(),
    }[FRAMEWORK]
    made = build(variant="tuned", weights=("imagenet", lively_weights()), settings=chosen, data_resident=True)
    assert made.description()["compiled"] is (FRAMEWORK != "torch")
    if IS_KERAS:  # what XLA computes, test_keras.py compares for a network that it compiles sooner
        for found, expected in zip(state(made).values(), state(frozen).values(), strict=True):
            numpy.testing.assert_array_equal(found, expected)
        with pytest.raises(NotImplementedError, match="allowed with Keras: precision and compiled"):
            build(variant="tuned", settings=Settings(channels_last=True))
    else:
        import torch

        expected = logits(frozen, DATA.test_images)  # up to 8, from weights that make rounding grow
        numpy.testing.assert_allclose(logits(made, DATA.test_images), expected, atol=0.02)
        assert made.to_device(next(made.batches(0)))[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.frameworks("torch")  # Keras's layers are not taken apart
def test_a_frozen_networks_batch_norms_are_folded_only_where_they_are_never_trained():
    import torch

    made = {
        kept: build(variant="tuned", trainable=kept, weights=("imagenet", lively_weights())) for kept in (False, True)
    }
    norms = {
        kept: [m for m in one.model.modules() if isinstance(m, torch.nn.BatchNorm2d)] for kept, one in made.items()
    }
    assert (len(norms[False]), len(norms[True])) == (0, 52)
    images = torch.from_numpy(mobilenetv2.enlarge(DATA.test_images, 32, channels_first=True)).double()
    folded, plain = (one.model.double().eval()(images).detach() for one in made.values())
    assert plain.abs().max() > 1
    torch.testing.assert_close(folded, plain, rtol=0, atol=0.02)  # as above
    assert made[False].description()["parameters"] == made[True].description()["parameters"]


@pytest.mark.frameworks("tensorflow")
def test_a_weights_file_is_read_as_keras_reads_it(tmp_path):
    import h5py
    import keras

    arrays, path = lively_weights(), tmp_path / "weights.h5"
    model = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None)
    names = [layer.name for layer in model.layers]
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"], file.attrs["keras_version"] = names, "2.2.0"
        for name in names:
            group, parts = file.create_group(name), arrays.get(name, [])
            group.attrs["weight_names"] = [f"{name}/part_{number}:0" for number in range(len(parts))]
            for number, part in enumerate(parts):
                group[f"{name}/part_{number}:0"] = part
    model.load_weights(path)
    found = initial.read(path)
    assert set(found) == set(arrays) - {initial.HEAD}
    for layer in (layer for layer in model.layers if layer.weights):
        for read, loaded in zip(found[layer.name], layer.get_weights(), strict=True):
            numpy.testing.assert_array_equal(read, loaded)
