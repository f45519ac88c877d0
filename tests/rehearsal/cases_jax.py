"""JAX with an accelerator that is not its default device; test_cases.py runs it in a process
with two CPU devices.

The second one stands for the accelerator. Whatever is left to JAX's default lies on the first
one, as it would lie on the wrong chip of a machine that has several; and what must be moved
between them is an error.
"""

import jax
import numpy
import pytest

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.runtime import ResidentArrays, import_keras
from benchbook.measuring import sensors
from made import small

import_keras("jax")
FIRST, SECOND, *_ = jax.devices("cpu")
ACCELERATOR = Device("cpu", "a chip", "jax", index=1)


@pytest.fixture(autouse=True)
def _nothing_moves_between_devices(monkeypatch):
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensors.NO_SENSOR)
    with jax.transfer_guard_device_to_device("disallow"):
        yield


def places() -> set:
    """Return every device on which an array lies that is alive."""
    return {device for array in jax.live_arrays() for device in array.devices()}


def build_tiny():
    import keras

    images = numpy.random.default_rng(0).integers(0, 256, (16, 6, 6, 3), dtype=numpy.uint8)
    labels, order = (
        (numpy.arange(16) % 3).astype("int32"),
        numpy.arange(16, dtype="int32").reshape(2, 8),
    )
    arrays = ResidentArrays(
        ACCELERATOR, images, labels, lambda chosen: keras.ops.cast(chosen, "float32") / 255.0
    )
    return small.keras_workload(
        ACCELERATOR, lambda epoch: arrays.batches(order), arrays.batches(order)
    )


@pytest.mark.parametrize(
    ("study", "resident"),
    [
        ("tiny", True),
        pytest.param("mobilenetv2_energy", True, marks=pytest.mark.slow),
        pytest.param("segmentation_scaling", True, marks=pytest.mark.slow),
        pytest.param("segmentation_scaling", False, marks=pytest.mark.slow),
        pytest.param("resnet50_cost", True, marks=pytest.mark.slow),
    ],
)
def test_all_of_a_workload_lies_on_the_device_that_was_chosen(study, resident):
    """Built, trained, evaluated and put back."""
    workload = (
        build_tiny() if study == "tiny" else small.build_either_way(study, ACCELERATOR, resident)
    )
    fresh = workload.snapshot()
    batches = list(workload.batches(0))
    losses = [workload.step(batch) for batch in batches[:2]]
    assert losses[0].devices() == {SECOND}
    evaluation = workload.evaluate()
    assert numpy.isfinite(float(evaluation.loss))
    workload.restore(fresh)
    assert float(workload.step(batches[0])) == float(losses[0])
    assert places() == {SECOND}


@pytest.mark.slow
def test_what_repeats_steps_for_parity_lies_on_the_device_that_was_chosen():
    workload = build_tiny()
    with workload.compared() as subject:
        loss, gradients = subject.step(subject.batches(1)[0])
        assert numpy.isfinite(loss)
        assert len(gradients) == 5
        assert places() == {SECOND}


def test_what_is_left_to_the_default_device_is_found():
    """The first device counts: a workload of that device fails the test above."""
    kept = jax.device_put(numpy.ones(3), FIRST)
    assert FIRST in places()
    with pytest.raises(Exception, match="Disallowed device-to-device transfer"):
        jax.jit(lambda one, other: one + other)(jax.numpy.ones(3), jax.device_put(kept, SECOND))


@pytest.mark.parametrize("kind", ["multiplication", "copy", "launch", "host_to_device"])
def test_ceilings_are_measured_on_the_device_that_was_chosen(kind):
    makers = {
        "multiplication": lambda: operations.multiplication(ACCELERATOR, 8, "fp32"),
        "copy": lambda: operations.copy(ACCELERATOR, 64),
        "launch": lambda: ACCELERATOR.backend.launch(ACCELERATOR),
        "host_to_device": lambda: operations.copy(ACCELERATOR, 64, "host_to_device"),
    }
    last = operations.queue(makers[kind](), 3)
    ACCELERATOR.backend.synchronize(ACCELERATOR, last)
    assert last.devices() == {SECOND}
