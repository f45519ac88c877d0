"""What devices answer with TensorFlow and with JAX, and that their waiting waits."""

import pytest

from benchbook.frameworks import devices
from benchbook.machine import identity
from benchbook.measuring import calibration
from processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("tensorflow", "jax")
CPU = devices.pick("cpu", FRAMEWORK)


def test_a_device_has_its_software_memory_and_precision():
    framework = pytest.importorskip(FRAMEWORK)
    assert devices.backend(FRAMEWORK).kinds()[-1] == "cpu"
    assert CPU.name == identity.identify().chip
    software = CPU.backend.software()
    assert (software["framework"], software["framework_version"]) == (FRAMEWORK, framework.__version__)
    assert devices.peak_memory(CPU)[1] == "process_peak_resident"
    CPU.backend.allow_tf32(True)
    with_tf32 = precision_of(framework)
    CPU.backend.allow_tf32(False)
    assert (with_tf32, precision_of(framework)) == {"jax": ("tensorfloat32", "float32"), "tensorflow": (True, False)}[
        FRAMEWORK
    ]


def precision_of(framework):
    if FRAMEWORK == "jax":
        return framework.config.jax_default_matmul_precision
    return framework.config.experimental.tensor_float_32_execution_enabled()


@pytest.mark.frameworks("tensorflow")  # JAX has no state of its own
def test_restored_random_state_repeats_the_draws():
    import tensorflow

    def draw():
        return tensorflow.random.get_global_generator().normal([3]).numpy().tolist()

    devices.backend("tensorflow").seed(7)
    state = CPU.backend.random_state(CPU)
    first, second = draw(), draw()
    CPU.backend.restore_random_state(CPU, state)
    assert draw() == first != second


def test_its_own_wait_waits():
    assert calibration.check_synchronize(CPU, work_seconds=0.2) < 0.1


@pytest.mark.frameworks("jax")
def test_jax_queues_its_work_and_every_way_to_wait_is_needed():
    without_output = calibration.check_synchronize(
        CPU, work_seconds=0.2, synchronize=lambda device, last: device.backend.synchronize(device)
    )
    assert without_output < 0.1
    with pytest.raises(calibration.NotSynchronized, match="synchronising jax on cpu left "):
        calibration.check_synchronize(CPU, work_seconds=0.2, synchronize=lambda device, last: None)


@pytest.mark.frameworks("jax")
@pytest.mark.parametrize("given", [True, False])
def test_jax_waits_for_every_part_of_an_output_that_lies_on_several_devices(given):
    import jax

    rows = jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices(), "rows"), jax.sharding.PartitionSpec("rows"))
    spread = jax.device_put(jax.numpy.ones((2, 3000, 3000)), rows)
    output = {"deep": [jax.jit(lambda a: a @ a)(spread)]}
    assert len(output["deep"][0].sharding.device_set) == 2
    CPU.backend.synchronize(CPU, output if given else None)
    assert all(part.data.is_ready() for part in output["deep"][0].addressable_shards)
    assert CPU.backend.handle(CPU) == jax.devices()[0]
