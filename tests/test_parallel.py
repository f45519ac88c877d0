"""Several processes: the same training as one, rows from the first alone, and no process left when one dies."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.measuring import parallel, protocol, sensors
from benchbook.measuring.protocol import Plan
from benchbook.rows import records
from fakes import CPU, run

PLAN = Plan(num_windows=3, samples_per_window=8)
OPTIONS = {
    "dataset": "shapes",
    "data_root": "",
    "allow_embedded": True,
    "settings": {"precision": "fp64"},
    "image_size": 32,
    "batch_size": 8,
    "num_workers": 0,
    "learning_rate": 1.0,
    "schedule_epochs": 0.05,  # the rate is at its highest within three steps
}


def make_job(**changes) -> parallel.Job:
    """Return a job of two processes, with these attributes changed."""
    job = {"build": "parallel_cases:small", "device": CPU, "device_count": 2, "plan": PLAN, "options": OPTIONS}
    return parallel.Job(**job | {"num_warmup_steps": 1, "timeout_seconds": 60.0} | changes)


@pytest.fixture(autouse=True)
def _tests_can_be_imported(monkeypatch):
    """Ranks import what they build from this folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensors.NO_SENSOR)
    monkeypatch.setattr(devices.backend("torch"), "count", lambda device: 2)


def losses(rows):
    return rows.loc[rows["phase"].isin(["train", "evaluate"]), "loss"].tolist()


@pytest.mark.slow
def test_two_processes_train_as_one_with_synchronised_batch_norms(tmp_path):
    from parallel_cases import small

    job = make_job(options=OPTIONS | {"sync_batch_norm": True})
    rows = parallel.measure(job, run(tmp_path / "two"))
    assert rows["phase"].tolist() == ["compile", "warmup", "train", "train", "train", "evaluate"]
    assert rows["device_count"].unique().tolist() == [2]
    assert rows.loc[rows["phase"] == "train", "samples"].tolist() == [8, 8, 8]
    assert sorted(path.suffix for path in (tmp_path / "two").iterdir()) == [".csv", ".log", ".running"]
    assert rows["loss"].iloc[2:5].nunique() == 3

    alone = small(CPU, devices.Group(), **OPTIONS)
    other = run(tmp_path / "one")
    protocol.warm_up(alone, other, 1)
    expected = protocol.measure_windows(alone, other, PLAN)
    assert losses(rows) == pytest.approx(losses(expected), rel=1e-6)
    assert rows["accuracy"].iloc[-1] == expected["accuracy"].iloc[-1]


def test_a_rank_that_is_killed_ends_the_run_as_crashed_and_leaves_no_process(record):
    begun = time.monotonic()
    job = make_job(options=OPTIONS | {"dataset": "synthetic", "killed_at": 3})
    with pytest.raises(parallel.RankFailed, match="a rank was ended by SIGKILL"):
        parallel.measure(job, record)
    assert time.monotonic() - begun < 2 * job.timeout_seconds
    rows = records.read(record.path)
    assert rows["phase"].tolist() == ["compile", "warmup", "train", "train"]
    assert rows["status"].tolist() == ["ok", "ok", "ok", "crashed"]
    assert "SIGKILL" in rows["message"].iloc[-1]
    assert not [child for child in psutil.Process().children(recursive=True) if "rank" in " ".join(child.cmdline())]


def test_what_a_rank_ran_out_of_or_lacks_is_said(tmp_path):
    (tmp_path / "log").write_text("")
    for kind, name in ((MemoryError, "OutOfMemoryError"), (NotImplementedError, "NotImplementedError")):
        for rank, error in enumerate(({"name": "RuntimeError", "message": "closed"}, {"name": name, "message": "no"})):
            (tmp_path / f"error-{rank}.json").write_text(json.dumps(error | {"rank": rank}))
        found = parallel._error(tmp_path, tmp_path / "log")
        assert (type(found), str(found)) == (kind, f"rank 1: {name}: no")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"plan": Plan(window_seconds=2.0)}, ValueError, "window_seconds 2.0; allowed on several devices: 0"),
        ({"device": Device("mps", "a GPU")}, NotImplementedError, "torch on mps; allowed: torch on cpu or cuda"),
        ({"device": Device("cpu", "a chip", "jax")}, NotImplementedError, "jax on cpu; allowed"),
        ({"device_count": 4}, DeviceUnavailable, "device_count 4 on this host; allowed: up to 2"),
    ],
)
def test_jobs_that_cannot_be_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        make_job(**change)


def test_the_energy_of_all_gpus_of_a_host_is_read_by_the_first_process(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    job = {"device": {"kind": "cuda", "name": "a GPU"}, "device_count": 4}
    first, second = (parallel._device_of_rank(job, number) for number in (0, 1))
    assert (first.count, second.count, second.index) == (4, 0, 1)


def test_a_mean_of_one_process_is_its_own():
    from benchbook.frameworks.torch import replicas

    assert replicas.mean(0.25, CPU, 1) == 0.25


def test_jax_has_its_devices_in_one_process(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    devices.split_cpu("torch", 2)
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    devices.split_cpu("jax", 2)
    devices.split_cpu("jax", 2)
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=2"
    assert devices.with_count(CPU, 2) == CPU
    chip = Device("cpu", "a chip", "jax")
    assert devices.with_count(chip, 2).count == 2
    with pytest.raises(DeviceUnavailable, match="device_count 3 on this host; allowed: up to 2"):
        devices.with_count(chip, 3)
    for framework in ("tensorflow", "mlx"):
        with pytest.raises(NotImplementedError, match=f"device_count 2 with {framework}; allowed: 1"):
            devices.with_count(Device("cpu", "a chip", framework), 2)


def test_a_process_whose_kernel_is_gone_ends_while_it_waits_for_the_others(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / "job.json").write_text(json.dumps({"job": {"device": asdict(CPU), "timeout_seconds": 60.0}}))
    group = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    group |= {"BENCHBOOK_KERNEL": gone.stdout.decode().strip()}
    command = [sys.executable, "-m", "benchbook.measuring.parallel", str(tmp_path)]
    assert subprocess.Popen(command, env=os.environ | group).wait(30) == 1
    assert not list(tmp_path.glob("error-*"))  # it was ended, and did not fail
