"""Processes that the launcher starts: results, errors, limits, and none left when this one or a
rank dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.machine import launch
from benchbook.measuring import protocol
from benchbook.rows import records
from made.fakes import CPU, run
from made.processes import wait_for

CHOICES = {
    "dataset": "shapes",
    "image_size": 32,
    "batch_size": 8,
    "num_workers": 0,
    "learning_rate": 1.0,
}
CHOICES |= {"schedule_epochs": 0.05}  # the rate is at its highest within three steps


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


def test_a_result_a_message_and_what_is_printed_come_back_apart(log, tmp_path, monkeypatch):
    """Some environments print at the start of each process."""
    (tmp_path / "sitecustomize.py").write_text("print('{}')")
    monkeypatch.syspath_prepend(tmp_path)
    messages = []
    assert launch.call("made.launch_cases:double", 21, log=log, on_message=messages.append) == (
        42,
        None,
    )
    assert messages == [{"number": 21}]
    assert log.read_text() == "{}\nprinted\nwritten by C code\n"


def test_an_error_has_its_type_and_a_death_its_signal_and_the_last_line(log):
    _, failed = launch.call("made.launch_cases:fail", "no such kernel", log=log)
    assert failed == ("NotImplementedError", "no such kernel", False)
    assert "launch_cases.py" in log.read_text()  # the traceback
    _, failed = launch.call("made.launch_cases:die", signal.SIGKILL, log=log)
    assert failed == (
        "",
        "the process was ended by SIGKILL; it last printed: the last words",
        False,
    )
    _, failed = launch.call("made.launch_cases:missing", log=log)
    assert failed.name == "AttributeError"


@pytest.mark.parametrize(("function", "argument"), [("hang", "id"), ("die", signal.SIGSTOP)])
def test_a_process_that_hangs_or_is_stopped_is_killed_at_its_limit(
    log, tmp_path, monkeypatch, function, argument
):
    monkeypatch.chdir(tmp_path)
    _, failed = launch.call(f"made.launch_cases:{function}", argument, log=log, seconds=3.0)
    assert failed == ("", "took longer than its limit of 3 s", True)
    assert not psutil.Process().children(recursive=True)


CALLER = """
import sys
from pathlib import Path
from benchbook.machine import launch
launch.call("made.launch_cases:hang", sys.argv[1], log=Path(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_ends_with_the_one_that_called_and_is_interrupted_with_it(log, tmp_path, number):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("a shell's background job ignores interrupts, and so do its processes")
    marker = tmp_path / "id"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])
    }
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(marker), str(log)], env=environment
    )
    wait_for(lambda: marker.exists() and marker.read_text(), caller)
    called = psutil.Process(int(marker.read_text()))
    caller.send_signal(number)
    caller.wait(120)
    assert not psutil.wait_procs([called], timeout=10)[1]
    assert (marker.read_text() == "interrupted") is (number == signal.SIGINT)


@pytest.mark.slow
def test_two_ranks_train_as_one_process_and_test_with_the_first_ones_statistics(log, tmp_path):
    from made.small_replica import build

    losses, failed = launch.call(
        "made.launch_cases:train_replica", str(tmp_path), CHOICES, log=log, num_ranks=2
    )
    assert failed is None, log.read_text()
    rows = records.read(tmp_path / "0" / "run-1.csv")
    assert rows["phase"].tolist() == ["compile", "warmup", "train", "train", "train", "evaluate"]
    assert rows.loc[rows["phase"] == "train", "samples"].tolist() == [8, 8, 8]
    assert len(set(losses)) == 4

    alone, other = build(CPU, devices.Group(), **CHOICES), run(tmp_path / "one")
    protocol.warm_up(alone, other, 1)
    protocol.measure_windows(alone, other, protocol.Amount(num_windows=3, samples_per_window=8))
    expected = other.rows().query("phase in ('train', 'evaluate')")
    assert losses == pytest.approx(expected["loss"].tolist(), rel=1e-6)
    assert rows["accuracy"].iloc[-1] == expected["accuracy"].iloc[-1]


def test_a_rank_that_is_killed_ends_all_ranks(log, tmp_path):
    begun, choices = time.monotonic(), CHOICES | {"dataset": "synthetic"}
    _, failed = launch.call(
        "made.launch_cases:train_replica", str(tmp_path), choices, 3, log=log, num_ranks=2
    )
    assert time.monotonic() - begun < 120
    assert failed is not None
    assert "SIGKILL" in failed.message + log.read_text()
    assert records.read(tmp_path / "0" / "run-1.csv")["phase"].tolist()[:3] == [
        "compile",
        "warmup",
        "train",
    ]
    assert not psutil.Process().children(recursive=True)


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        (
            Device("mps", "a GPU"),
            NotImplementedError,
            "device_count 4 with torch on mps; allowed: on cpu or cuda",
        ),
        (CPU, DeviceUnavailable, "device_count 4 on this host; allowed: up to 2"),
    ],
)
def test_groups_that_cannot_be_are_refused(monkeypatch, device, error, message):
    monkeypatch.setattr(devices.backend("torch"), "count", lambda device: 2)
    with pytest.raises(error, match=message):
        devices.with_count(device, 4)


def test_jax_has_its_devices_in_one_process(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    devices.split_cpu("torch", 2)
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    devices.split_cpu("jax", 2)
    devices.split_cpu("jax", 2)
    assert (
        os.environ["XLA_FLAGS"]
        == "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=2"
    )
    chip = Device("cpu", "a chip", "jax")
    assert devices.with_count(chip, 2).count == 2
    with pytest.raises(DeviceUnavailable, match="device_count 3 on this host; allowed: up to 2"):
        devices.with_count(chip, 3)
    for framework in ("tensorflow", "mlx"):
        with pytest.raises(
            NotImplementedError, match=f"device_count 2 with {framework}; allowed: 1"
        ):
            devices.with_count(Device("cpu", "a chip", framework), 2)
