"""ResNet-50's training in Keras around a tiny network: optimiser, schedule, and two devices that
train as one."""

import numpy
import pytest

from benchbook.datasets import Collection, Pictures
from benchbook.frameworks import devices
from benchbook.frameworks.keras.runtime import to_host
from benchbook.measuring import parity
from benchbook.studies.resnet50_cost import network_keras as keras_side
from benchbook.studies.resnet50_cost import plan as resnet50
from made.fakes import run
from made.processes import FRAMEWORK
from made.small import images

pytestmark = pytest.mark.frameworks("tensorflow", "jax", slow=("jax",))
CPU = devices.pick("cpu", FRAMEWORK)
OPTIONS = {
    "image_size": 32,
    "batch_size": 8,
    "num_workers": 0,
    "learning_rate": 1.0,
    "schedule_epochs": 0.05,
}
DRAWN = images((32, 32, 3), 48, 16)
PARTS = (DRAWN.train_images, DRAWN.train_labels), (DRAWN.test_images, DRAWN.test_labels)
PICTURES = Collection("random", *(Pictures(*part) for part in PARTS), 3)


def small(plan):
    """Return a network of one convolution, one batch norm and one layer."""
    import keras

    keras.utils.set_random_seed(0)
    layers, pixels = keras.layers, keras.Input((32, 32, 3))
    hidden = layers.Conv2D(8, 3, 2, use_bias=False)(pixels)
    hidden = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="bn1")(hidden)
    hidden = layers.GlobalAveragePooling2D()(layers.ReLU()(hidden))
    return keras.Model(pixels, layers.Dense(plan.num_classes)(hidden))


@pytest.fixture(autouse=True)
def small_network(monkeypatch):
    monkeypatch.setattr(keras_side, "make_model", small)


def build(count, data=PICTURES, **options):
    device = devices.with_count(CPU, count)
    assert device.count == count
    options = OPTIONS | {"schedule_epochs": 6} | options  # of four steps each
    return resnet50.Plan.build(data, device, **options)


@pytest.fixture
def workload():
    return resnet50.Plan.build(None, CPU, **OPTIONS | {"schedule_epochs": 4e-4})


def images_on_each_device(workload, images):
    """Return how many of a batch's images are on each device."""
    return [shard.data.shape[0] for shard in workload.network.scatter(images)[0].addressable_shards]


def test_three_steps_of_weight_decay_and_momentum_are_those_of_float64(tmp_path):
    verdict = parity.check(build(1), run(tmp_path), 3)
    assert verdict.passed, verdict.reason


def test_the_rate_is_the_schedules(workload):
    plan = workload.make_optimizer.args[0]
    length = plan.steps_per_epoch * plan.schedule_epochs
    schedule = workload.make_optimizer()._learning_rate
    for step in (
        0,
        1,
        round(length / 18),
        round(length / 2),
        round(length * 0.9),
        2 * round(length),
    ):
        assert float(schedule(step)) == pytest.approx(plan.rate(step), rel=1e-4)


@pytest.mark.frameworks("jax", slow=("jax",))
def test_two_devices_with_synchronised_batch_norms_train_as_one():
    losses, tested, derived = [], [], []
    for count in (1, 2):
        made = build(count)
        batches = [*made.batches(0)]
        losses.append([float(made.step(batch)) for batch in batches])
        found = made.evaluate()
        tested.append([float(found.loss), float(found.accuracy), found.samples])
        with made.compared() as subject:
            _, gradients = subject.step(batches[0])
            derived.append([*gradients.values(), *subject.weights().values()])
    assert images_on_each_device(made, batches[0][0]) == [4, 4]
    for gradient, expected in zip(derived[1], derived[0], strict=True):
        numpy.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert tested[1] == pytest.approx(tested[0], rel=1e-3)
    assert len(set(numpy.round(losses[0], 4))) == 4


@pytest.mark.frameworks("jax", slow=("jax",))
def test_parity_compares_a_whole_batch_at_a_later_rate_of_the_warm_up():
    """Synthetic images are on their devices from the start, each device with its part of a
    batch."""
    made = build(2, data=None, schedule_epochs=90, learning_rate=0.1)
    assert made.plain.schedule_start > 100
    with made.compared() as subject:
        (batch,) = subject.batches(1)
        before = subject.weights()
        _, gradients = subject.step(batch)
        after = subject.weights()
    assert [len(part) for part in subject.to_host(batch)] == [8, 8]
    assert subject.schedule_step == made.plain.schedule_start + 1
    name = list(before)[
        -1
    ]  # the biases of the last layer, which begin at 0: weight decay does not change them
    rate = made.plain.make_optimizer().rate(made.plain.schedule_start)
    numpy.testing.assert_allclose(after[name], -rate * 1.9 * gradients[name], rtol=1e-3, atol=1e-7)
    assert to_host(made.network.iterations.value) == 0


@pytest.mark.frameworks("jax", slow=("jax",))
def test_synthetic_images_are_on_each_device_and_all_are_counted():
    made = build(2, data=None)
    batch = next(made.batches(0))
    before = [float(made.step(batch)) for _ in range(2)]
    state = made.snapshot()
    after = float(made.step(batch))
    made.restore(state)
    assert float(made.step(batch)) == pytest.approx(after, rel=1e-5)
    assert (made.num_samples(batch), len(set(before))) == (8, 2)
    tested = made.evaluate()
    assert (numpy.isnan(tested.accuracy), tested.metric, tested.samples) == (True, None, 8)
