"""Run one point through papermill, and determine how it ended.

papermill's own result is not enough: it only warns of an unknown parameter, marks cells of a dead kernel as completed,
and limits the time of cells, not of runs. So papermill runs as a child process. If the run's marker is still there when
the child has ended, the run has failed, and its failure row is written here.
"""

import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from benchbook.machine import layout, processes
from benchbook.machine.processes import Stopped
from benchbook.measuring import failures, runs
from benchbook.measuring.writer import Run
from benchbook.rows import marker, points, records
from benchbook.running import kernel, profiles
from benchbook.running.profiles import Point

POLL_SECONDS = 0.5
FULL_BYTES = 2**20  # a disk with less free space counts as full
LOCK_SECONDS = 30.0  # processes of a killed study end within seconds


def execute(
    point: Point, machine_name: str, watch: Callable[[Run], None] = lambda run: None, deadline: float = math.inf
) -> str:
    """Run one kernel of a point, in the session that BENCHBOOK_SESSION names.

    Args:
        point: the point to run.
        machine_name: the machine of the rows.
        watch: called twice a second with the current run.
        deadline: on the monotonic clock; the run is then stopped.

    Returns:
        The run's status: ok, or that of its failure row; interrupted: stopped by the deadline.

    Raises:
        Stopped: after the `interrupted` row was written.
    """
    profiles.check(point.study, point.parameters)
    folder, run_id = layout.point(machine_name, point.study, point.name), runs.new_id()
    run = Run(folder, run_id, runs.identity(point.study, point.name, run_id, machine_name, point.parameters))
    run.mark()
    notebook = folder / f"{run_id}.ipynb"
    stopped, kills = None, processes.memory_kills()
    try:
        status, message = _supervise(point, run, notebook, machine_name, watch, deadline)
    except Stopped as stop:
        status, message = "interrupted", f"stopped by {stop}"
        stopped = stop
    unfinished = runs.resume(folder, run_id)
    if unfinished is not None:  # it neither finished nor wrote its own failure
        error = _error_in(notebook)
        if not status and not error and processes.memory_kills() > kills:
            status, message = "out_of_memory", "the kernel was killed, because it took more memory than there is"
        if not status:
            status = failures.status_of(*error) if error else "crashed"
        is_full = shutil.disk_usage(folder).free < FULL_BYTES
        died = "the kernel died, because the disk is full" if is_full else "the kernel died"
        unfinished.fail(status, message or (": ".join(error) if error else died))
    if notebook.exists():
        kernel.record(notebook)
    if stopped:
        raise stopped
    return _outcome(records.without_refusals(records.read(run.path))["status"])


def finished(folder: Path, session: str) -> list[str]:
    """Return the status of every run of a session that ended on its own, the oldest first."""
    rows = records.gather(records.find(folder), lambda line: None)
    rows = records.without_refusals(rows[rows["session"] == session])
    last = (_outcome(statuses) for _, statuses in rows.groupby("run_id", sort=True)["status"])
    return [status for status in last if status != "interrupted"]


@contextmanager
def only_one(lock: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a lock of this machine's folder: two runs at once would slow each other.

    Args:
        lock: the lock's file.
        seconds: how long to wait for its holder.

    Raises:
        RuntimeError: another process still holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock)
    try:
        held.acquire(blocking=False)
    except Timeout:
        print(f"Waiting up to {seconds:,.0f} s for {_holder(lock)}.", file=sys.stderr, flush=True)
    try:
        held.acquire(timeout=seconds)
    except Timeout:
        name = lock.parent.name
        raise RuntimeError(f"another study measures on this machine ({name}); wait until it ends, or stop it") from None
    try:
        yield
    finally:
        held.release()


def _holder(lock: Path) -> str:
    """Describe the study that holds a machine's lock; its run's marker, if any, has the process."""
    for path in sorted(lock.parent.rglob("*.running"), reverse=True):
        state = marker.read(path)
        if state is None:
            continue
        try:
            process = psutil.Process(state["process"])
            since = datetime.fromtimestamp(process.create_time(), UTC)
        except psutil.NoSuchProcess:  # it has just ended
            continue
        return f"another study on {lock.parent.name} (process {process.pid}, since {since:%H:%M:%S} UTC)"
    return f"another study on {lock.parent.name} (between two runs)"


def _supervise(
    point: Point, run: Run, notebook: Path, machine_name: str, watch: Callable[[Run], None], deadline: float
) -> tuple[str, str]:
    """Run papermill to its end, its time limit, the deadline or a stop; return status and message of the middle two."""
    command = kernel.command(layout.notebook(point.study), notebook, points.nested(point.study, point.parameters))
    limit = time.monotonic() + point.time_limit_seconds
    compiled = Path(tempfile.gettempdir()) / f"torchinductor_{os.environ.get('USER') or os.getuid()}"
    # Short, because it holds a kernel's sockets, whose paths may have about a hundred characters.
    temporary = tempfile.TemporaryDirectory(prefix="benchbook-", ignore_cleanup_errors=True)
    with temporary as place, (run.folder / f"{run.run_id}.log").open("w") as log:
        environment = os.environ | {
            "BENCHBOOK_RUN_ID": run.run_id,
            "BENCHBOOK_MACHINE": machine_name,
            "BENCHBOOK_OUTPUTS": str(layout.outputs()),
            "BENCHBOOK_SUPERVISOR": str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": place,  # torch's compiled kernels stay where they were, for later runs
            "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(compiled),
        }
        options = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "env": environment}
        child = subprocess.Popen(command, **options, start_new_session=True)
        ended = threading.Event()  # wakes this process when the child ends; frequent polling would disturb the windows
        threading.Thread(target=lambda: (child.wait(), ended.set()), daemon=True).start()
        try:
            while not ended.wait(POLL_SECONDS):
                if time.monotonic() > limit:
                    return "timeout", f"took longer than its limit of {point.time_limit_seconds} s"
                if time.monotonic() > deadline:
                    return "interrupted", "stopped by the deadline"
                watch(run)
        finally:
            processes.kill([*processes.tree(child.pid), *processes.of_run(run.run_id)])
            child.wait()
    return "", ""


def _error_in(notebook: Path) -> tuple[str, str] | None:
    """Return name and text of the exception that ended an executed notebook, or None."""
    try:
        outputs = [output for cell in layout.cells(notebook) for output in cell.get("outputs", [])]
    except (OSError, ValueError):  # it is missing, or incomplete because the disk was full
        return None
    errors = [(output["ename"], output["evalue"]) for output in outputs if output["output_type"] == "error"]
    return errors[0] if errors else None


def _outcome(statuses) -> str:
    """Return a run's status: that of its last row that is not ok."""
    wrong = [status for status in statuses if status != "ok"]
    return wrong[-1] if wrong else "ok"
