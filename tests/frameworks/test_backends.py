"""Every framework reports its devices, and its synchronisation waits; test_mlx.py tests what
only MLX has."""

import sys
from dataclasses import replace
from unittest import mock

import numpy
import pytest

from benchbook.frameworks import devices, operations
from benchbook.frameworks.workload import Settings
from benchbook.machine import identity
from benchbook.measuring import calibration, tuned
from made.processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("torch", "tensorflow", "jax", "mlx")
CPU = devices.pick("cpu", FRAMEWORK)


def of_framework(**choices):
    return choices[FRAMEWORK]


def library():
    """Return the module with the framework's functions."""
    return pytest.importorskip("mlx.core" if FRAMEWORK == "mlx" else FRAMEWORK)


def test_a_device_has_its_software_and_memory():
    assert devices.backend(FRAMEWORK).kinds()[-1] == "cpu"
    assert (CPU.name, CPU.capability, CPU.is_cpu) == (identity.identify().chip, None, True)
    software = CPU.backend.software(CPU)
    assert (software["framework"], software["framework_version"]) == (
        FRAMEWORK,
        str(library().__version__),
    )
    assert FRAMEWORK != "torch" or software["num_threads"] == library().get_num_threads()
    assert 1 <= software["num_threads"] <= identity.usable_cores()
    assert FRAMEWORK not in ("torch", "jax") or CPU.backend.count(CPU) >= 1
    CPU.backend.reset_peak_memory(CPU)
    assert devices.peak_memory(CPU)[1] == "process_peak_resident"


def test_float32_goes_through_tf32_units_only_where_that_is_allowed():
    def precision(framework):
        return of_framework(
            torch=lambda: framework.get_float32_matmul_precision(),
            tensorflow=lambda: framework.config.experimental.tensor_float_32_execution_enabled(),
            jax=lambda: framework.config.jax_default_matmul_precision,
            mlx=lambda: "float32",
        )()

    without = of_framework(torch="highest", tensorflow=False, jax="float32", mlx="float32")
    try:
        if FRAMEWORK == "mlx":
            with pytest.raises(NotImplementedError, match="MLX with tf32; allowed: fp32"):
                CPU.backend.allow_tf32(True)
        else:
            CPU.backend.allow_tf32(True)
            assert precision(library()) == of_framework(
                torch="high", tensorflow=True, jax="tensorfloat32"
            )
    finally:
        CPU.backend.allow_tf32(False)
    assert precision(library()) == without


@pytest.mark.frameworks("torch", "tensorflow", "mlx")  # JAX has no global state
def test_a_restored_random_state_repeats_the_draws():
    def draw():
        return of_framework(
            torch=lambda: library().rand(3).tolist(),
            tensorflow=lambda: library().random.get_global_generator().normal([3]).numpy().tolist(),
            mlx=lambda: library().random.normal((3,)).tolist(),
        )()

    state = CPU.backend.random_state(CPU)
    first, second = draw(), draw()
    assert first != second
    CPU.backend.restore_random_state(CPU, state)
    assert draw() == first
    CPU.backend.restore_random_state(CPU, state)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_products_are_of_the_precision_that_was_asked_for(precision):
    product = operations.multiplication(CPU, 8, precision)(None)
    kept = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision]
    assert kept in str(product.dtype)
    generator = numpy.random.default_rng(0)
    first, second = (generator.standard_normal((8, 8), numpy.float32) for _ in range(2))
    tolerance = {"fp32": 1e-5, "bf16": 5e-2, "fp16": 5e-3}[precision]
    assert CPU.backend.read(product) == pytest.approx((first @ second)[0, 0], abs=tolerance * 8)


@pytest.mark.parametrize("name", ["copy", "host_to_device", "device_to_host", "launch"])
def test_operations_can_be_chained_and_read(name):
    operation = CPU.backend.launch(CPU) if name == "launch" else operations.copy(CPU, 64, name)
    last = operations.queue(operation, 3)
    CPU.backend.synchronize(CPU, last)
    assert abs(CPU.backend.read(last)) in (
        (1, 3) if name == "launch" else (1,)
    )  # some add to what came before
    assert name == "launch" or numpy.asarray(last).nbytes == 64


@pytest.mark.parametrize("name", operations.EXACT)
def test_on_a_cpu_fp32_keeps_its_bits_and_long_products_are_right(name):
    if name == "attention" and FRAMEWORK in ("tensorflow", "jax"):
        with pytest.raises(
            NotImplementedError, match="no fused attention here; allowed: torch, mlx"
        ):
            operations.mantissa_bits(CPU, name)
        return
    assert operations.mantissa_bits(CPU, name) >= (20 if name == "attention" else 23)
    assert name not in ("mm", "bmm") or operations.wrong_outputs(CPU, name) == []


def test_every_candidate_of_a_search_is_another_setting_than_the_reference():
    for kind in (
        kind for kind, features in devices.KINDS.items() if FRAMEWORK in features.frameworks
    ):
        candidates = tuned.candidates(devices.Device(kind, "a chip", FRAMEWORK))
        changed = [replace(Settings(), **change) for change in candidates]
        assert len({*changed, Settings()}) == len(changed) + 1
        compiling = [setting.compiled for setting in changed]
        assert compiling == sorted(compiling)  # it may take longer than all others together


@pytest.mark.frameworks("torch", "tensorflow", "jax")
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

    rows = jax.sharding.NamedSharding(
        jax.sharding.Mesh(jax.devices(), "rows"), jax.sharding.PartitionSpec("rows")
    )
    spread = jax.device_put(jax.numpy.ones((2, 3000, 3000)), rows)
    output = {"deep": [jax.jit(lambda a: a @ a)(spread)]}
    assert len(output["deep"][0].sharding.device_set) == 2
    CPU.backend.synchronize(CPU, output if given else None)
    assert all(part.data.is_ready() for part in output["deep"][0].addressable_shards)
    assert CPU.backend.handle(CPU) == jax.devices()[0]


@pytest.mark.frameworks("jax")
def test_a_gpus_compute_capability_is_a_number(monkeypatch):
    import jax

    monkeypatch.setattr(jax, "devices", lambda kind: [mock.Mock(compute_capability="8.6")])
    assert CPU.backend.capability("cuda") == 8.6


@pytest.mark.skipif(FRAMEWORK in ("torch", "mlx"), reason="asks only what is public")
def test_a_release_without_the_private_parts_names_no_device_in_use(monkeypatch):
    module, array = sys.modules[type(CPU.backend).__module__], numpy.zeros(1, "float32")
    assert CPU.backend.place(CPU, array) is not None
    assert ("cpu", 0) in CPU.backend.in_use()
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", None)
    monkeypatch.setattr(module, "PRIVATE", None, raising=False)
    assert CPU.backend.in_use() == []
