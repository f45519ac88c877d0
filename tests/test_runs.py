"""One run of a point: its rows, its marker, its manifest, how it ends, and who ends it where it
cannot."""

import json
import os
import platform
import re
import socket
import subprocess
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from benchbook.machine import condition, context, identity, layout, processes
from benchbook.measuring import failures, runs
from benchbook.rows import points, records
from benchbook.running import profiles
from benchbook.studies.experiments.parameters import point_name
from made.fakes import CPU, run


@pytest.fixture(autouse=True)
def _a_run_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    monkeypatch.setenv("BENCHBOOK_MACHINE", "a-machine")


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


@pytest.fixture
def marked(tmp_path):
    """A run that has a marker and no row."""
    record = run(tmp_path)
    record.mark()
    return record


def _start(**changes):
    parameters = profiles.declared("mnist_speedup") | {"device": "cpu"} | changes
    return runs.start("mnist_speedup", point_name("mnist_speedup", parameters), parameters, CPU)


def _belongs_to(record, process: int, supervisor: int = 0, birth: float | None = None) -> None:
    """Rewrite a run's marker as if another process had written it."""
    state = json.loads(record.marker.read_text())
    if birth is None:
        birth = processes.birth(psutil.Process(process)) if psutil.pid_exists(process) else 0.0
    state |= {"process": process, "supervisor": supervisor, "birth": birth}
    record.marker.write_text(json.dumps(state))


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_run_starts_with_a_marker_at_its_points_place_and_the_device_that_was_picked(tmp_path):
    record = _start(batch_size=32, num_windows=2)
    state = json.loads(record.marker.read_text())
    assert record.marker == record.folder / f"{record.run_id}.running"
    own = {
        "process": os.getpid(),
        "phase": "setup",
        "supervisor": 0,
        "birth": processes.birth(psutil.Process()),
    }
    assert own.items() <= state.items()
    assert (
        record.folder == tmp_path / "runs" / "a-machine" / "mnist_speedup" / record.common["point"]
    )
    assert re.fullmatch(r"reference-cpu-batch_size_32-[0-9a-f]{8}", record.folder.name)
    assert _files(record.folder) == {record.marker.name}
    assert (record.common["device"], record.common["device_name"]) == ("cpu", CPU.name)
    settings = record.append(seconds=1.0)["settings"]  # the parameters that have no column
    assert settings["num_windows"] == 2
    assert not set(settings) & {*records.COLUMNS, *points.UNMEASURED}


def test_run_whose_rows_could_never_be_written_does_not_begin(tmp_path):
    with pytest.raises(
        records.SchemaError,
        match="variant is 'typo'; allowed: 'reference', 'controlled' or 'tuned'",
    ):
        _start(variant="typo")
    assert not list(tmp_path.rglob("*.*"))


def test_a_run_ends_with_a_manifest_and_has_the_contexts_session_or_its_own():
    record = _start(seed=5)
    assert record.common["session"] == record.run_id
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", record.run_id)
    assert not record.path.with_suffix(".json").exists()
    record.end()
    manifest = json.loads((record.folder / f"{record.run_id}.json").read_text())
    expected = profiles.declared("mnist_speedup") | {"device": "cpu", "seed": 5}
    assert manifest["parameters"] == {
        n: value for n, value in expected.items() if n not in points.UNMEASURED
    }
    assert manifest["environment"] == identity.environment()
    assert manifest["machine"] == asdict(identity.identify())
    assert (
        set(manifest["condition_before"])
        == set(manifest["condition_after"])
        == set(condition.read())
    )
    assert _files(record.folder) == {f"{record.run_id}.json"}
    context.change(session="session-3")
    together = runs.start("mnist_speedup", "reference-cpu", manifest["parameters"], CPU, "run-7", 2)
    assert (together.run_id, together.common["session"]) == ("run-7", "session-3")
    assert together.manifest["process"] == 2


STATUSES = """
out_of_memory RuntimeError CUDA error: Out Of Memory
out_of_memory RuntimeError CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
out_of_memory RuntimeError cuDNN error: CUDNN_STATUS_ALLOC_FAILED
out_of_memory RuntimeError [metal::malloc] Attempting to allocate 9 bytes, greater than the maximum allowed buffer size
out_of_memory RuntimeError [METAL] Command buffer failed: Insufficient Memory (00000008:kIOGPUCommandBuffer)
out_of_memory RuntimeError RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.
out_of_memory OutOfMemoryError
out_of_memory ResourceExhaustedError
out_of_memory MemoryError
crashed RuntimeError CUDA error: CUBLAS_STATUS_EXECUTION_FAILED
unavailable DeviceUnavailable device 'tpu'
unavailable DatasetUnavailable no network
unavailable ModuleNotFoundError No module named 'kornia'
unsupported NotImplementedError aten::something on MPS
"""


@pytest.mark.parametrize("line", STATUSES.strip().splitlines())
def test_an_error_has_a_status(line):
    status, name, *message = line.split(maxsplit=2)
    assert failures.status_of(name, "".join(message)) == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(3), "crashed"),
        (ValueError("bad"), "crashed"),
    ],
)
def test_failure_writes_one_row_with_its_status_and_keeps_finished_rows(record, error, status):
    with record.during("setup"):
        record.append(seconds=1.0)

    def body():
        record.append(seconds=2.0)
        raise error

    with pytest.raises(type(error)), record.during("train"):
        body()
    rows = record.rows()
    found = rows[["phase", "index", "status"]].to_numpy().tolist()
    assert found == [["setup", 0, "ok"], ["train", 0, "ok"], ["train", 1, status]]
    is_interrupt = isinstance(error, KeyboardInterrupt)
    message = "stopped by an interrupt" if is_interrupt else f"{type(error).__name__}: {error}"
    assert rows.iloc[-1]["message"] == message
    assert rows.iloc[-1][["seconds", "samples", "loss", "energy_joules"]].isna().all()
    assert not record.marker.exists()


def test_a_message_is_cut_and_has_no_folders_and_no_colours(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    record = run(tmp_path / "point")
    record.fail(
        "crashed",
        f"\x1b[31mno file\x1b[0m {Path.home()}/data/x in {layout.root()}/lib/y\nline {'x' * 5000}",
    )
    message = record.rows().iloc[0]["message"]
    assert message.startswith("no file ~/data/x in ./lib/y line xxx")
    assert len(message) == 2000


def test_recover_ends_a_dead_run_cuts_its_torn_line_and_says_where_it_was(tmp_path, dead, record):
    with record.during("train"):
        record.append(seconds=1.0)
        record.append(seconds=2.0)
    whole = record.path.read_text()
    with record.path.open("a") as file:
        file.write(whole.splitlines()[-1][:40])
    _belongs_to(record, dead)
    assert runs.recover(tmp_path) == [record.run_id]
    rows = record.rows()
    assert record.path.read_text().startswith(whole)
    found = rows[["phase", "index", "status"]].to_numpy().tolist()
    assert found == [["train", 0, "ok"], ["train", 1, "ok"], ["train", 2, "interrupted"]]
    assert _files(tmp_path) == {record.path.name}
    content = record.path.read_text()
    assert runs.recover(tmp_path) == runs.recover(tmp_path / "missing") == []
    assert record.path.read_text() == content


@pytest.mark.parametrize(
    "left", ["", "schema_version,session,ru", None]
)  # None: an earlier run of this process
def test_recover_a_run_that_had_written_no_row(tmp_path, marked, dead, left):
    if left:
        marked.path.write_text(left)
    if left is not None:
        _belongs_to(marked, dead)
    assert runs.recover(tmp_path) == [marked.run_id]
    rows = marked.rows()
    assert (list(rows["status"]), list(rows["phase"])) == (["interrupted"], ["setup"])


@pytest.mark.parametrize(
    ("text", "left"), [("", None), ("a,b\n1,", None), ("a,b\n1,2\n3", "a,b\n1,2\n")]
)
def test_recover_after_a_damaged_marker_keeps_whole_rows_alone(tmp_path, text, left):
    table, ended, theirs = (tmp_path / f"{name}.csv" for name in (runs.new_id(), "ended", "mine"))
    for path in (table, ended, theirs):
        path.write_text(text)
        if path is not ended:
            path.with_suffix(".running").write_bytes(bytes(range(256)))
    ended.with_suffix(".json").write_text("{}")
    assert runs.recover(tmp_path) == []
    assert (table.read_text() if table.exists() else None) == left
    assert ended.read_text() == theirs.read_text() == text  # a run that ended, and no run
    assert theirs.with_suffix(".running").exists()


def test_recover_leaves_a_live_run_alone_even_if_the_clock_is_set_back(
    tmp_path, marked, sleeper, monkeypatch
):
    for supervisor in (0, os.getpid()):
        _belongs_to(marked, sleeper.pid, supervisor)
        assert runs.recover(tmp_path) == []
        assert marked.marker.exists()
        assert sleeper.poll() is None
    assert not marked.path.exists()
    began, booted = psutil.Process.create_time, psutil.boot_time()
    monkeypatch.setattr(
        psutil.Process, "create_time", lambda self: began(self) - 3600
    )  # as Linux counts it
    monkeypatch.setattr(psutil, "boot_time", lambda: booted - 3600)
    assert runs.recover(tmp_path) == []


def test_recover_ends_an_orphan_whose_supervisor_is_gone_even_if_nobody_reaps_it(
    tmp_path, marked, dead
):
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; exec sleep 60"], stdout=subprocess.PIPE
    ) as parent:
        orphan = int(parent.stdout.readline())
        assert processes.is_running(orphan)
        _belongs_to(marked, orphan, supervisor=dead)
        assert runs.recover(tmp_path) == [marked.run_id]
        assert not processes.is_running(orphan)
        parent.kill()
    assert list(marked.rows()["status"]) == ["interrupted"]


def test_recover_spares_a_process_that_was_given_a_dead_run_s_number(
    tmp_path, marked, sleeper, dead
):
    _belongs_to(
        marked,
        sleeper.pid,
        supervisor=dead,
        birth=processes.birth(psutil.Process(sleeper.pid)) - 100,
    )
    assert runs.recover(tmp_path) == [marked.run_id]
    assert sleeper.poll() is None


def test_start_recovers_its_point_first(dead):
    gone = _start()
    _belongs_to(gone, dead)
    _start()
    assert list(gone.rows()["status"]) == ["interrupted"]
    assert json.loads(gone.path.with_suffix(".json").read_text())["condition_after"]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_run_on_a_full_disk_keeps_its_rows_and_is_ended_once_there_is_room(small_disk):
    record = run(small_disk / "point")
    record.manifest = {"parameters": {}}

    def fill():
        with record.during("train"):
            record.append(seconds=1.0)
            (small_disk / "pictures").write_bytes(bytes(2**21))

    with pytest.raises(OSError, match="No space left"):
        fill()
    (small_disk / "pictures").unlink()
    assert runs.recover(record.folder) == [record.run_id]
    statuses = record.rows()["status"].tolist()
    assert (statuses[0], set(statuses[1:]) <= {"crashed", "interrupted"}, len(statuses) > 1) == (
        "ok",
        True,
        True,
    )
    assert _files(record.folder) == {record.path.name, f"{record.run_id}.json"}


def test_the_message_of_an_error_that_quotes_a_traceback_is_its_last_line():
    message = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  x\n"
    assert failures.last_line(message + "ValueError: a bad image\n") == "ValueError: a bad image"
    traced = 'in user code:\n\n    File "/x/keras.py", line 8, in loss  *\n        raise x\n\n    Misfit: no scalar\n'
    assert failures.last_line(f"Misfit: {traced}") == "Misfit: no scalar"
    assert failures.last_line("two\nlines") == "two\nlines"
    graph = "Detected at node mul defined at (most recent call last):\n  File x\nIncompatible shapes: [1] vs. [0]\n"
    assert (
        failures.last_line(graph + "\t [[{{node mul}}]] [Op:__inference]")
        == "Incompatible shapes: [1] vs. [0]"
    )


def test_no_file_of_a_run_names_user_host_or_home_folder(monkeypatch, tmp_path):
    user, host, home = "alice-planted", "host-planted", str(tmp_path / "home-planted")
    real = platform.uname()
    for value, names in {
        user: "USER LOGNAME USERNAME",
        host: "HOST HOSTNAME",
        home: "HOME",
    }.items():
        for name in names.split():
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(platform, "uname", lambda: real._replace(node=host))
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr(platform, "node", lambda: host)
    record = _start(data_root=f"{home}/data-of-{user}")
    with pytest.raises(ValueError, match="not a folder"), record.during("setup"):
        raise ValueError(f"{home}/data is not a folder")
    files = sorted(record.folder.iterdir())
    assert [path.suffix for path in files] == [".csv", ".json"]
    assert not [
        secret for path in files for secret in (user, host, home) if secret in path.read_text()
    ]
