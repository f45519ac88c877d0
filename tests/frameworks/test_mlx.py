"""MLX only computes requested outputs: all timed work must be requested before the clock stops."""

import sys
import time

import pytest

from benchbook.frameworks import devices, operations
from benchbook.machine import identity
from benchbook.measuring import calibration

pytestmark = pytest.mark.frameworks("mlx")
SIZE = 400  # of matrices: some milliseconds each


@pytest.fixture
def cpu():
    return devices.pick("cpu", "mlx")


@pytest.fixture
def nothing_handed_over(monkeypatch):
    """Submit nothing while work is queued, like a loop that forgets to."""
    import mlx.core as mx

    monkeypatch.setattr(mx, "async_eval", lambda *arrays: None)


def cpu_seconds(device, operation, count):
    """Return the CPU seconds of this process for `count` calls and the synchronisation after
    them."""
    started = time.process_time()
    device.backend.synchronize(device, operations.queue(operation, count))
    return time.process_time() - started


@pytest.mark.parametrize(("platform", "num_threads"), [("darwin", 8), ("linux", 1)])
def test_its_products_have_all_cores_on_a_mac_and_one_on_linux(
    cpu, monkeypatch, platform, num_threads
):
    monkeypatch.setattr(identity, "usable_cores", lambda: 8)
    monkeypatch.setattr(sys, "platform", platform)
    assert cpu.backend.num_threads() == num_threads


def test_an_accelerators_memory_is_the_most_that_was_allocated_since_the_reset():
    import mlx.core as mx

    gpu = devices.Device("metal", "an Apple GPU", "mlx")
    mx.eval(mx.ones((512, 512)))
    kept = mx.get_active_memory()  # by earlier tests
    gpu.backend.reset_peak_memory(gpu)
    mx.eval(mx.ones((256, 256)))
    peak, method = devices.peak_memory(gpu)
    assert method == "mlx_allocator_peak"
    assert 256 * 256 * 4 <= peak - kept < 512 * 512 * 4


def test_its_wait_waits_for_work_that_was_handed_over_and_for_work_that_was_not(cpu, monkeypatch):
    import mlx.core as mx

    product = operations.multiplication(cpu, SIZE, "fp32")
    check = {"operation": product, "work_seconds": 0.1}
    assert calibration.check_synchronize(cpu, **check) < 0.1
    with pytest.raises(calibration.NotSynchronized, match="synchronising mlx on cpu left "):
        calibration.check_synchronize(cpu, synchronize=lambda device, last: None, **check)
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: None)
    assert calibration.check_synchronize(cpu, **check) < 0.1
    with pytest.raises(calibration.NotSynchronized, match="synchronising mlx on cpu left "):
        calibration.check_synchronize(
            cpu, synchronize=lambda device, last: mx.synchronize(), **check
        )


@pytest.mark.parametrize("name", ["multiplication", "copy"])
def test_of_many_calls_none_is_left_out_though_only_the_last_output_is_kept(
    cpu, nothing_handed_over, name
):
    operation = (
        operations.copy(cpu, 2**22)
        if name == "copy"
        else operations.multiplication(cpu, SIZE, "fp32")
    )
    cpu_seconds(cpu, operation, 1)
    assert cpu_seconds(cpu, operation, 20) > 5 * cpu_seconds(cpu, operation, 1)


def test_every_launch_adds_one(cpu, nothing_handed_over):
    assert cpu.backend.read(operations.queue(cpu.backend.launch(cpu), 50)) == 50


def test_transfers_make_copies(cpu):
    there, back = (
        operations.copy(cpu, 2**12, direction)(None)
        for direction in ("host_to_device", "device_to_host")
    )
    assert there.tolist() == back.tolist() == [1.0] * 2**10
    assert back.flags.owndata  # not a view of the device's memory
