"""One contract for the workload of every study in every framework that the study is written in."""

import numpy
import pytest

from benchbook.measuring import parity
from made.fakes import run
from made.small import PICTURES, PLANS, build, data, made

# JAX compiles each of these networks for half a minute, and TensorFlow a step of the two for long.
KERAS_TAKES_LONG = ("jax", ("tensorflow", "resnet50_cost"), ("tensorflow", "mobilenetv2_energy"))
ALL = "torch", "tensorflow", "jax", "mlx"
pytestmark = pytest.mark.frameworks(*ALL, slow=KERAS_TAKES_LONG)


# Trainable parameters, and those in rows: with Keras, and for MobileNetV2 everywhere, these include
# moving statistics.
PARAMETERS = {
    "mnist_speedup": (1_199_882, 1_199_882),
    "vae_stability": (652_824, 652_824),
    "mobilenetv2_energy": (1280 * 3 + 3, 2_257_984 + 1280 * 3 + 3),
    "simclr_epochs": (11_497_792, 11_497_792),
    "segmentation_scaling": (1_309_142, 1_309_142 + 2 * 1594),
    "resnet50_cost": (23_508_032 + 2048 * 3 + 3, 23_508_032 + 2048 * 3 + 3),
    "gpt_tokens": (804_096, 804_096),
}
# Operations of a step for one sample, by hand: 2 per multiply-add, thrice for a step, without the
# gradient of images.
FLOPS = {
    "mnist_speedup": 3 * 2 * 11_992_448 - 2 * 26 * 26 * 32 * 9,
    "vae_stability": 3 * 2 * 651_200 - 2 * 784 * 400,
    "segmentation_scaling": 503_956_152,
    "simclr_epochs": 2
    * (3 * 2 * (555_745_280 // 4 + 245_760) - 2 * 16 * 16 * 64 * 27),  # a quarter but for the head
}
RESIDENT = (
    "mnist_speedup",
    "vae_stability",
    "mobilenetv2_energy",
    "segmentation_scaling",
    "gpt_tokens",
)  # can be
ALWAYS_IN_ONE_ORDER = ("segmentation_scaling",)  # like its article
WITHOUT_LABELS = ("vae_stability", "simclr_epochs")


def arrays(workload, epoch: int) -> list[tuple[numpy.ndarray, ...]]:
    """Return the batches of an epoch as NumPy arrays."""
    return [tuple(numpy.asarray(part) for part in batch) for batch in workload.batches(epoch)]


def losses(workload) -> list[float]:
    return [float(workload.step(batch)) for batch in workload.batches(workload.epoch)]


def test_a_row_says_what_is_trained_on_which_data(study, framework):
    workload, found_in, options = made(study, framework), data(study), PLANS[study].SMALLEST
    found = workload.description()
    counts = workload.trainable_parameters(), found["parameters"]
    assert counts == PARAMETERS.get(study, counts)
    assert (found["dataset"], found["dataset_samples"]) == (
        found_in.name,
        16 if study == "gpt_tokens" else 20,
    )
    assert (found["batch_size"], found["num_workers"], found["precision"]) == (8, 0, "fp32")
    size = (
        options.get("sequence_length")
        or options.get("image_size")
        or found_in.train_images.shape[1]
    )
    assert found["sequence_length" if study == "gpt_tokens" else "image_size"] == size
    assert found["flops_per_sample"] == FLOPS.get(study) or (
        study not in FLOPS and found["flops_per_sample"] > 1e4
    )


def test_the_order_of_the_images_depends_on_seed_and_epoch_alone(study, framework):
    other_ways = {"data_resident": True} if study in RESIDENT else {}
    if study == "simclr_epochs":
        other_ways = {"variant": "controlled", "num_workers": 1}
    for options in [{}, other_ways] if framework == "torch" else [{}]:
        workload = build(study, framework, **options) if options else made(study, framework)
        before = workload.device.backend.random_state(workload.device)
        first, again, later = (
            numpy.concatenate([batch[0] for batch in arrays(workload, each)]) for each in (0, 0, 1)
        )
        numpy.testing.assert_array_equal(first, again)
        assert numpy.array_equal(first, later) == (study in ALWAYS_IN_ONE_ORDER)
        if (
            framework == "torch"
        ):  # whose loaders could draw from the generator of weights and dropout
            assert before["cpu"].equal(workload.device.backend.random_state(workload.device)["cpu"])
            other = numpy.concatenate(
                [batch[0] for batch in arrays(build(study, framework, seed=9, **options), 0)]
            )
            assert not numpy.array_equal(first, other)


def test_a_restored_snapshot_repeats_every_loss(study, framework):
    workload = made(study, framework)
    workload.enter()
    fresh, first = workload.snapshot(), losses(workload)
    workload.end_epoch()
    for _ in range(2):  # a snapshot can be restored twice
        workload.restore(fresh)
        assert workload.epoch == 0
        assert losses(workload) == pytest.approx(first, rel=1e-6)
        workload.end_epoch()
    workload.restore(fresh)
    assert numpy.isfinite(first).all()
    assert len(set(first)) == len(first)


def test_an_evaluation_is_of_all_test_images_and_changes_nothing(study, framework):
    workload = made(study, framework)
    fresh = workload.snapshot()
    first = losses(workload)
    workload.restore(fresh)
    found = workload.evaluate()
    expected = {
        "simclr_epochs": ("knn", 20 + 6),
        "segmentation_scaling": ("iou", 6),
        "vae_stability": (None, 6),
    }
    expected["gpt_tokens"] = None, 6
    count = len(PICTURES.test) if study == "resnet50_cost" else 6
    assert (found.metric, found.samples) == expected.get(study, ("top1", count))
    assert found.metric is None or 0 <= float(found.accuracy) <= 1
    assert found.loss is None or numpy.isfinite(float(found.loss))
    if study == "vae_stability":  # it draws noise for its test images, too
        workload.device.backend.restore_random_state(workload.device, fresh["random"])
    assert losses(workload) == pytest.approx(first, rel=1e-6)
    workload.restore(fresh)


@pytest.mark.frameworks(*ALL, studies=RESIDENT, slow=KERAS_TAKES_LONG)
def test_resident_and_loaded_data_hold_every_image_once_with_its_label(study, framework):
    """torch's sampler and a resident permutation give two orders: images are sorted before they
    are compared."""

    def content(**options) -> list[numpy.ndarray]:
        batches = arrays(build(study, framework, **options), 1)
        assert [len(batch[0]) for batch in batches] in (
            [8, 8, 4],
            [8, 8],
        )  # smaller only if nothing is compiled
        parts = [numpy.concatenate(parts).astype(float) for parts in zip(*batches, strict=True)]
        sums = parts[0].reshape(len(parts[0]), -1).sum(1)
        assert len({*sums}) == len(sums)
        order = numpy.argsort(sums)
        return [part[order] for part in parts]

    resident = content(data_resident=True)
    for num_workers in (0, 2):
        for own, other in zip(resident, content(num_workers=num_workers), strict=True):
            numpy.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6)


def test_labels_are_those_of_the_images_and_parity_sees_others(study, framework):
    workload = made(study, framework)
    assert (workload.plain.labels is None) == (study in WITHOUT_LABELS)
    if study in WITHOUT_LABELS:
        return
    with workload.compared() as subject:
        batch = subject.to_host(subject.batches(1)[0])
    assert numpy.all(workload.plain.labels(batch, 0))
    assert not numpy.all(workload.plain.labels((batch[0], numpy.roll(batch[1], 1, axis=0)), 0))


@pytest.mark.frameworks(
    *ALL, slow=("tensorflow", "jax", ("torch", "resnet50_cost"), ("torch", "simclr_epochs"))
)
def test_three_steps_are_those_of_float64(study, framework, tmp_path):
    options = {
        "resnet50_cost": {"data": None, "image_size": 64, "batch_size": 4, "parity_batch_size": 4}
    }
    verdict = parity.check(build(study, framework, **options.get(study, {})), run(tmp_path), 3)
    assert verdict.passed, verdict.reason
