"""ResNet-50: size, schedule, weight decay, crops, and the batches of a group of processes."""

import functools
import math
from types import SimpleNamespace
from unittest import mock

import numpy
import pytest
import torch

from benchbook.datasets import Collection, Pictures
from benchbook.frameworks import batches
from benchbook.frameworks.devices import Group
from benchbook.frameworks.workload import Settings
from benchbook.measuring import failures, parity
from benchbook.studies.resnet50_cost import inputs, weights
from benchbook.studies.resnet50_cost import plan as resnet50
from benchbook.studies.resnet50_cost.plan import Plan
from made.fakes import CPU, run


@pytest.fixture(scope="module", autouse=True)
def _weights_are_drawn_once():
    """Networks take copies of the 25 million numbers."""
    with mock.patch.object(weights, "draw", functools.cache(weights.draw)):
        yield


@pytest.fixture(scope="module")
def pictures():
    """Forty pictures of four sizes; a picture's label is the channel that is bright."""
    random = numpy.random.default_rng(0)
    stored, labels = [], numpy.arange(40) % 3
    for number, label in enumerate(labels):
        pixels = random.integers(0, 60, (30 + number % 4, 40, 3), dtype=numpy.uint8)
        pixels[..., label] += 180
        stored.append(pixels)
    return Collection(
        "bright", Pictures(stored[:32], labels[:32]), Pictures(stored[32:], labels[32:]), 3
    )


@pytest.fixture(scope="module")
def synthetic():
    return resnet50.Plan.build(None, CPU, image_size=32, batch_size=4)


def test_bfloat16_passes_parity(tmp_path):
    options = {
        "image_size": 64,
        "batch_size": 2,
        "parity_batch_size": 2,
        "settings": Settings("amp_bf16"),
    }
    verdict = parity.check(resnet50.Plan.build(None, CPU, "tuned", **options), run(tmp_path), 1)
    assert verdict.passed, verdict.reason


def test_it_is_torchvisions_resnet_50_with_weights_of_the_same_spread(synthetic):
    import torchvision

    assert synthetic.trainable_parameters() == synthetic.description()["parameters"] == 25_557_032
    other = torchvision.models.resnet50()
    own, theirs = (
        {name: part.std().item() for name, part in model.named_parameters()}
        for model in (synthetic.model, other)
    )
    assert own == pytest.approx(theirs, rel=0.1)
    other.load_state_dict(synthetic.model.state_dict())
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(images), synthetic.model.eval()(images))
    synthetic.model.train()
    # 4.09 G multiply-adds forward at 224 px (Table 1 of the paper has 3.8, v1); thrice, less the
    # first layer's input.
    whole = resnet50.Plan.build(None, CPU, batch_size=1).description()["flops_per_sample"]
    assert whole == pytest.approx(3 * 2 * 4.09e9, rel=0.01)


@pytest.mark.parametrize(
    ("steps_per_epoch", "epochs"), [(10, 90), (100, 9)]
)  # a tenth of the epochs, ten times longer
def test_the_schedule_at_its_corners(steps_per_epoch, epochs):
    schedule = {
        "steps_per_epoch": steps_per_epoch,
        "schedule_epochs": epochs,
        "learning_rate": 0.4,
        "peak": 0.4,
    }
    plan = SimpleNamespace(**schedule, batch_size=256, parity_batch_size=2, dataset=None)
    expected = {
        0: 0.4 / 50,
        24: 0.2,
        49: 0.4,
        50: 0.4,
        299: 0.4,
    }  # the rise ends with the fifth epoch
    expected |= {300: 0.04, 599: 0.04, 600: 0.004, 799: 0.004, 800: 0.0004, 900: 0.00004}
    for rate in (
        functools.partial(Plan.rate, plan),
        Plan.plain(plan, None, None).make_optimizer().rate,
    ):
        assert {step: rate(step) for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("framework", "count", "said"),
    [("jax", 2, "synchronised"), ("jax", 1, "per replica"), ("torch", 2, "per replica")],
)
def test_rows_say_whether_batch_norms_see_the_whole_batch(framework, count, said):
    process = mock.MagicMock(parameters={"device_count": count, "batch_size": 8})
    process.device.framework = framework
    Plan.start(process, None)
    process.run.add_settings.assert_called_once_with(batch_norm=said)


def test_synthetic_images_are_made_once_and_stay_as_a_step_needs_them():
    made = resnet50.Plan.build(
        None, CPU, "tuned", image_size=32, batch_size=4, settings=Settings(channels_last=True)
    )
    batches = iter(made.batches(0))
    first, second = next(batches), next(batches)
    assert first[0] is second[0]
    assert made.to_device(first)[0].data_ptr() == first[0].data_ptr()
    assert first[0].is_contiguous(memory_format=torch.channels_last)
    assert (len(first[0]), int(first[1].max()) < 1000) == (4, True)
    found = made.evaluate()
    assert (math.isnan(found.accuracy), found.metric, found.samples) == (True, None, 4)
    assert made.description()["dataset_samples"] is None


@pytest.mark.parametrize("num_workers", [0, 2])
def test_pictures_are_cropped_the_same_in_every_process(pictures, num_workers):
    made = resnet50.Plan.build(pictures, CPU, image_size=32, batch_size=8, num_workers=num_workers)
    images, labels = next(iter(made.batches(1)))
    order = batches.full_batches(32, 8, 1, 1)[0]
    expected, named = inputs.Crops(pictures.train, 32, 1, 1).batch(order)
    numpy.testing.assert_array_equal(labels.numpy(), named)
    moved = made.to_device((images, labels))[0]
    numpy.testing.assert_allclose(moved.permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)
    assert (moved.mean((2, 3)).argmax(1) == labels).all()  # the bright channel is the label
    other = inputs.Crops(pictures.train, 32, 1, 2).batch(order)[0]
    assert not numpy.array_equal(other, expected)
    epochs = made.epochs()  # whose processes stay, from epoch 0 on
    list(next(epochs))
    made.epoch = 1
    numpy.testing.assert_array_equal(next(iter(next(epochs)))[0].numpy(), images.numpy())


def test_random_boxes_keep_area_and_ratio_and_fill_the_range():
    random = numpy.random.default_rng(0)
    boxes = numpy.array([inputs.random_box(500, 375, random) for _ in range(2000)])
    across, down = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    areas, ratios = across * down / (500 * 375), across / down
    assert boxes.min() >= 0
    assert boxes[:, 2].max() == 500
    assert boxes[:, 3].max() == 375
    assert areas.min() == pytest.approx(0.08, abs=0.01)
    assert areas.max() > 0.9
    assert (ratios.min(), ratios.max()) == pytest.approx((0.75, 4 / 3), rel=0.02)
    # In a strip 100 times as wide as high, no crop has an allowed ratio: the middle is taken, as in
    # torchvision.
    left, upper, right, lower = inputs.random_box(1000, 10, random)
    assert (right - left, lower - upper, (left + right) / 2) == pytest.approx((40 / 3, 10, 500))
    assert inputs.middle_box(512, 256) == (144.0, 16.0, 368.0, 240.0)


def test_a_batch_too_large_for_memory_is_out_of_memory():
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        resnet50.Plan.build(None, CPU, batch_size=10**9)
    assert failures.status_of(caught.typename, str(caught.value)) == "out_of_memory"


def test_a_group_takes_each_image_once(pictures):
    parts = [Plan(pictures, CPU, batch_size=8, group=Group(rank, 2)).order(0) for rank in range(2)]
    whole = batches.full_batches(32, 8, 1, 0)
    for first, second, both in zip(*parts, whole, strict=True):
        numpy.testing.assert_array_equal(numpy.concatenate([first, second]), both)
