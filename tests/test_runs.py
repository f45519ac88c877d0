import json
import os
import platform
import re
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchbook.frameworks.devices import DeviceUnavailable
from benchbook.machine import condition, identity, layout, processes
from benchbook.measuring import runs
from benchbook.rows import points, records
from benchbook.running import profiles
from fakes import CPU, run


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


@pytest.fixture(autouse=True)
def _a_run_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    monkeypatch.setenv("BENCHBOOK_MACHINE", "a-machine")
    for name in ("BENCHBOOK_RUN_ID", "BENCHBOOK_SESSION", "BENCHBOOK_SUPERVISOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sleeper():
    """Another process, which lives until the test has ended."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def _start(**changes):
    parameters = profiles.declared("mnist_speedup") | {"device": "best"} | changes
    return runs.start("mnist_speedup", parameters, CPU)


def _belongs_to(record, process: int, supervisor: int = 0, birth: float | None = None) -> None:
    """Rewrite a run's marker as if another process had written it."""
    state = json.loads(record.marker.read_text())
    if birth is None:
        birth = processes.birth(psutil.Process(process)) if psutil.pid_exists(process) else 0.0
    state |= {"process": process, "supervisor": supervisor, "birth": birth}
    record.marker.write_text(json.dumps(state))


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_start_makes_a_marker_with_process_and_phase(tmp_path):
    record = _start()
    state = json.loads(record.marker.read_text())
    assert record.marker == record.folder / f"{record.run_id}.running"
    assert (state["process"], state["phase"], state["supervisor"]) == (os.getpid(), "setup", 0)
    assert state["birth"] == processes.birth(psutil.Process())
    assert record.folder.parent == tmp_path / "runs" / "a-machine" / "mnist_speedup"
    assert _files(record.folder) == {record.marker.name, record.reserve.name}


def test_start_names_the_device_that_was_picked_and_the_point_after_it(monkeypatch):
    record = _start(batch_size=32)
    assert record.common["device"] == "cpu"
    assert record.common["device_name"] == CPU.name
    assert record.folder.name == record.common["point"]
    assert re.fullmatch(r"reference-cpu-batch_size_32-[0-9a-f]{8}", record.folder.name)


def test_run_whose_rows_could_never_be_written_does_not_begin(tmp_path):
    with pytest.raises(records.SchemaError, match="variant is 'typo'; allowed: 'reference', 'controlled' or 'tuned'"):
        _start(variant="typo")
    assert not list(tmp_path.rglob("*.*"))


def test_run_and_session_are_those_of_the_environment_or_the_run_s_own(monkeypatch):
    alone = _start()
    assert alone.common["session"] == alone.run_id
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", alone.run_id)
    monkeypatch.setenv("BENCHBOOK_RUN_ID", "run-7")
    monkeypatch.setenv("BENCHBOOK_SESSION", "session-3")
    together = _start()
    assert (together.run_id, together.common["session"]) == ("run-7", "session-3")


def test_settings_of_a_row_are_the_parameters_that_have_no_column():
    record = _start(num_windows=2)
    row = record.append(seconds=1.0)
    settings = row["settings"]
    assert settings["num_windows"] == 2
    assert not set(settings) & set(records.COLUMNS)
    assert not set(settings) & points.PLACES


def test_marker_follows_the_phase(tmp_path):
    record = run(tmp_path)
    with record.during("train"):
        assert json.loads(record.marker.read_text())["phase"] == "train"
        record.describe(model="fake")
        assert json.loads(record.marker.read_text())["common"]["model"] == "fake"


def test_append_counts_per_phase_and_repeat(tmp_path):
    record = run(tmp_path)
    for phase, repeat in [("train", 0), ("train", 0), ("evaluate", 0), ("train", 1), ("train", 0)]:
        with record.during(phase):
            record.append(repeat=repeat, seconds=1.0)
    rows = records.read(record.path)
    assert list(rows["phase"]) == ["train", "train", "evaluate", "train", "train"]
    assert list(rows["index"]) == [0, 1, 0, 0, 2]
    assert set(rows["status"]) == {"ok"}


def test_append_adds_what_was_described(tmp_path):
    record = run(tmp_path)
    record.describe(model="fake", batch_size=8)
    record.append(loss=2.0, batch_size=4)
    row = records.read(record.path).iloc[0]
    assert (row["model"], row["batch_size"], row["loss"]) == ("fake", 4, 2.0)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OutOfMemoryError("on the device"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("CUDA error: Out Of Memory"), "out_of_memory"),
        # cuBLAS and cuDNN; Metal under MLX; XLA on a TPU.
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out_of_memory"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "out_of_memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), "crashed"),
        (
            RuntimeError(
                "[metal::malloc] Attempting to allocate 48736917632 bytes which is greater than the maximum "
                "allowed buffer size of 30150672384 bytes."
            ),
            "out_of_memory",
        ),
        (
            RuntimeError(
                "[METAL] Command buffer execution failed: Insufficient Memory (00000008:"
                "kIOGPUCommandBufferCallbackErrorOutOfMemory)"
            ),
            "out_of_memory",
        ),
        (
            RuntimeError("RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm."),
            "out_of_memory",
        ),
        (DeviceUnavailable("device 'tpu'"), "unavailable"),
        (NotImplementedError("aten::something on MPS"), "unsupported"),
        (KeyboardInterrupt(), "interrupted"),
        (ValueError("a bad number"), "crashed"),
        (SystemExit(3), "crashed"),
    ],
)
def test_failure_writes_one_row_with_its_status_and_keeps_finished_rows(tmp_path, error, status):
    record = run(tmp_path)
    with record.during("setup"):
        record.append(seconds=1.0)

    def body():
        record.append(seconds=2.0)
        raise error

    with pytest.raises(type(error)), record.during("train"):
        body()
    rows = records.read(record.path)
    assert list(rows["status"]) == ["ok", "ok", status]
    assert list(rows["phase"]) == ["setup", "train", "train"]
    assert list(rows["index"]) == [0, 0, 1]
    assert rows.iloc[-1]["message"].startswith(type(error).__name__)
    assert str(error) in rows.iloc[-1]["message"]
    assert rows.iloc[-1][["seconds", "samples", "loss", "energy_joules"]].isna().all()
    assert not record.marker.exists()


def test_status_of_a_data_set_that_could_not_be_had_is_unavailable():
    assert runs.status_of("DatasetUnavailable", "no network") == "unavailable"
    assert runs.status_of("ResourceExhaustedError", "") == "out_of_memory"


def test_long_message_is_cut(tmp_path):
    record = run(tmp_path)
    record.fail("crashed", "x" * 5000)
    assert len(records.read(record.path).iloc[0]["message"]) == 2000


def test_message_has_home_and_project_folders_replaced_and_no_colours(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    record = run(tmp_path / "point")
    record.fail("crashed", f"\x1b[31mno file\x1b[0m {Path.home()}/data/x in {layout.root()}/lib/y\nsecond line")
    assert records.read(record.path).iloc[0]["message"] == "no file ~/data/x in ./lib/y second line"


def test_recover_ends_a_dead_run_cuts_its_torn_line_and_says_where_it_was(tmp_path, dead):
    record = run(tmp_path)
    with record.during("train"):
        record.append(seconds=1.0)
        record.append(seconds=2.0)
    whole = record.path.read_text()
    with record.path.open("a") as file:
        file.write(whole.splitlines()[-1][:40])
    _belongs_to(record, dead)
    assert runs.recover(tmp_path) == [record.run_id]
    rows = records.read(record.path)
    assert record.path.read_text().startswith(whole)
    assert list(rows["status"]) == ["ok", "ok", "interrupted"]
    assert list(rows["phase"]) == ["train"] * 3
    assert list(rows["index"]) == [0, 1, 2]
    assert _files(tmp_path) == {record.path.name}


def test_recover_a_second_time_does_nothing(tmp_path, dead):
    record = run(tmp_path)
    record.mark()
    _belongs_to(record, dead)
    runs.recover(tmp_path)
    content = record.path.read_text()
    assert runs.recover(tmp_path) == []
    assert record.path.read_text() == content


@pytest.mark.parametrize("left", ["", "schema_version,session,ru"])
def test_recover_a_run_that_had_written_no_row(tmp_path, dead, left):
    record = run(tmp_path)
    record.mark()
    if left:
        record.path.write_text(left)
    _belongs_to(record, dead)
    assert runs.recover(tmp_path) == [record.run_id]
    rows = records.read(record.path)
    assert list(rows["status"]) == ["interrupted"]
    assert list(rows["phase"]) == ["setup"]


def test_recover_of_a_folder_that_is_not_there_does_nothing(tmp_path):
    assert runs.recover(tmp_path / "missing") == []


def test_recover_leaves_a_live_run_alone(tmp_path, sleeper):
    record = run(tmp_path)
    record.mark()
    for supervisor in (0, os.getpid()):
        _belongs_to(record, sleeper.pid, supervisor)
        assert runs.recover(tmp_path) == []
        assert record.marker.exists()
        assert sleeper.poll() is None
    assert not record.path.exists()


def test_recover_ends_an_orphan_whose_supervisor_is_gone(tmp_path, sleeper, dead):
    record = run(tmp_path)
    record.mark()
    _belongs_to(record, sleeper.pid, supervisor=dead)
    assert runs.recover(tmp_path) == [record.run_id]
    assert not processes.is_running(sleeper.pid)
    assert list(records.read(record.path)["status"]) == ["interrupted"]


def test_recover_ends_an_orphan_that_nobody_reaps(tmp_path, dead):
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; exec sleep 60"], stdout=subprocess.PIPE) as parent:
        orphan = int(parent.stdout.readline())
        record = run(tmp_path)
        record.mark()
        _belongs_to(record, orphan, supervisor=dead)
        assert runs.recover(tmp_path) == [record.run_id]
        assert not processes.is_running(orphan)
        parent.kill()


def test_recover_spares_a_process_that_was_given_a_dead_run_s_number(tmp_path, sleeper, dead):
    record = run(tmp_path)
    record.mark()
    _belongs_to(record, sleeper.pid, supervisor=dead, birth=processes.birth(psutil.Process(sleeper.pid)) - 100)
    assert runs.recover(tmp_path) == [record.run_id]
    assert sleeper.poll() is None


def test_a_clock_that_is_set_back_leaves_a_live_run_alone(tmp_path, sleeper, monkeypatch):
    record = run(tmp_path)
    record.mark()
    _belongs_to(record, sleeper.pid)
    began, booted = psutil.Process.create_time, psutil.boot_time()
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: began(self) - 3600)  # as Linux counts it
    monkeypatch.setattr(psutil, "boot_time", lambda: booted - 3600)
    assert runs.recover(tmp_path) == []


def test_recover_ends_an_earlier_run_of_this_process(tmp_path):
    record = run(tmp_path)
    record.mark()
    assert runs.recover(tmp_path) == [record.run_id]


def test_start_recovers_its_point_first(dead):
    gone = _start()
    _belongs_to(gone, dead)
    _start()
    assert list(records.read(gone.path)["status"]) == ["interrupted"]
    assert json.loads(gone.path.with_suffix(".json").read_text())["condition_after"]


def test_resume_gives_back_a_run_that_has_not_ended(tmp_path):
    record = run(tmp_path)
    with record.during("train"):
        record.append(seconds=1.0)
    assert runs.resume(tmp_path, record.run_id) == replace(record, ended_by_another=True)
    record.end()
    assert runs.resume(tmp_path, record.run_id) is None


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_leaves_room_for_the_failure_row_and_the_manifest(small_disk):
    record = run(small_disk / "point")
    record.manifest = {"parameters": {}}

    def fill():
        with record.during("train"):
            record.append(seconds=1.0)
            (small_disk / "pictures").write_bytes(bytes(2**21))

    with pytest.raises(OSError, match="No space left"):
        fill()
    rows = records.read(record.path)
    assert rows["status"].tolist() == ["ok", "crashed"]
    assert "No space left on device" in rows["message"].iloc[1]
    assert _files(record.folder) == {record.path.name, f"{record.run_id}.json"}


def test_a_worker_s_message_is_its_last_line():
    message = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  x\n"
    assert runs.last_line(message + "ValueError: a bad image\n") == "ValueError: a bad image"
    assert runs.last_line("two\nlines") == "two\nlines"
    graph = "Detected at node mul defined at (most recent call last):\n  File x\nIncompatible shapes: [1] vs. [0]\n"
    assert runs.last_line(graph + "\t [[{{node mul}}]] [Op:__inference]") == "Incompatible shapes: [1] vs. [0]"


def test_zombie_is_not_running(sleeper):
    assert processes.is_running(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays until it is waited for
    assert not processes.is_running(sleeper.pid)


def test_time_is_written_as_rows_want_it(tmp_path):
    record = run(tmp_path)
    record.append(started_at=runs.now())
    assert records.read(record.path).iloc[0]["started_at"].endswith("Z")


def test_manifest_has_parameters_environment_and_condition_before_and_after():
    record = _start(seed=5)
    assert not record.path.with_suffix(".json").exists()
    record.end()
    manifest = json.loads((record.folder / f"{record.run_id}.json").read_text())
    expected = profiles.declared("mnist_speedup") | {"device": "cpu", "seed": 5}
    assert manifest["parameters"] == {n: value for n, value in expected.items() if n not in points.PLACES}
    assert manifest["environment"] == identity.environment()
    assert manifest["machine"] == identity.as_dictionary(identity.identify())
    assert set(manifest["condition_before"]) == set(manifest["condition_after"]) == set(condition.read())
    assert _files(record.folder) == {f"{record.run_id}.json"}


def test_no_file_of_a_run_names_user_host_or_home_folder(monkeypatch, tmp_path):
    user, host, home = "alice-planted", "host-planted", str(tmp_path / "home-planted")
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, user)
    monkeypatch.setenv("HOSTNAME", host)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr(platform, "node", lambda: host)
    record = _start(data_root=f"{home}/data-of-{user}")
    with pytest.raises(ValueError, match="not a folder"), record.during("setup"):
        raise ValueError(f"{home}/data is not a folder")
    files = sorted(record.folder.iterdir())
    assert [path.suffix for path in files] == [".csv", ".json"]
    for path in files:
        for secret in (user, host, home):
            assert secret not in path.read_text()


def test_room_that_is_kept_without_a_marker_is_given_back(tmp_path):
    """A kill between two files leaves it, or a disk that was full before the marker was written."""
    (tmp_path / "20260101T000000Z-aaaaaaaa.reserve").write_bytes(b"0")
    assert runs.recover(tmp_path) == []
    assert _files(tmp_path) == set()
