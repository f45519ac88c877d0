"""Run one point through papermill, and determine how it ended.

papermill's own result is not enough: it only warns of an unknown parameter, marks cells of a
dead kernel as completed, and limits the time of cells, not of runs. So papermill runs as a child
process. The processes that its notebook starts write their own rows; what else fails is written
here.
"""

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from benchbook.machine import context, identity, launch, layout, processes, temporary
from benchbook.machine.stopping import Stopped
from benchbook.measuring import failures, runs
from benchbook.running import kernel, profiles
from benchbook.running.profiles import Point
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.experiments.parameters import nested

LOCK_SECONDS = 30.0  # processes of a killed study end within seconds


def execute(
    point: Point,
    machine_name: str,
    watch: Callable[[Path], None] = lambda folder: None,
    deadline: float = math.inf,
    patience: float = 0.0,
) -> list[str]:
    """Run a point's notebook, which measures it in the session of the context.

    Args:
        point: the point to run.
        machine_name: the machine of the rows.
        watch: called twice a second with the folder of the point's rows.
        deadline: on the monotonic clock; the point is then stopped.
        patience: seconds that its measurement may lose to others, see `contention.patience`.

    Returns:
        The status of each of its processes that has ended. The point is over unless
        `interrupted` is among them.

    Raises:
        Stopped: after the `interrupted` row was written.
    """
    profiles.check(point.study, point.parameters)
    session = context.current().session
    measurement = Measurement(
        point.study, machine_name, point.parameters, session, patience=patience
    )
    folder, run_id = measurement.folder, runs.new_id()
    folder.mkdir(parents=True, exist_ok=True)
    notebook = folder / f"{run_id}.ipynb"
    try:
        failure = _supervise(
            point, run_id, notebook, machine_name, lambda: watch(folder), deadline, patience
        )
    except Stopped as stop:
        runs.recover(folder, ("interrupted", f"stopped by {stop}"))
        raise
    if notebook.exists() and not failure:
        kernel.keep(
            notebook,
            point.study,
            folder.name,
            point.parameters.get("variant", "reference") == "reference",
        )
    if failure and not runs.recover(folder, failure):
        if left := measurement.left():
            measurement.fail(left[0], runs.new_id(), *failure)
        else:  # a chart, for example; the rows stay as they are
            place = notebook.relative_to(layout.outputs())
            print(
                f"\nThe rows are complete, but a later cell of {place} failed: {failure[1]}",
                flush=True,
            )
    statuses = list(measurement.finished().values())
    return (
        [*statuses, "interrupted"] if measurement.left() and set(statuses) <= {"ok"} else statuses
    )


def skip(point: Point, machine_name: str, status: str, reason: str) -> list[str]:
    """Write the failure row of a point that is not tried; return its statuses."""
    measurement = Measurement(
        point.study, machine_name, point.parameters, context.current().session
    )
    measurement.folder.mkdir(parents=True, exist_ok=True)
    measurement.fail(1, runs.new_id(), status, reason)
    return [status]


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
    try:
        held = acquire(lock, 0)
    except Timeout:
        other = f"another study measures on this machine ({lock.parent.name})"
        print(f"Waiting up to {seconds:,.0f} s: {other}.", file=sys.stderr, flush=True)
        try:
            held = acquire(lock, seconds)
        except Timeout:
            raise RuntimeError(f"{other}; wait until it ends, or stop it") from None
    with held:
        yield


def acquire(lock: Path, seconds: float) -> AbstractContextManager:
    """Acquire a file's lock, and return a context manager that releases it.

    Raises:
        Timeout: another process still holds it.
        OSError: the file cannot be locked, as in some network folders.
    """
    try:
        return FileLock(lock).acquire(timeout=seconds)
    except Timeout:
        raise
    except OSError as error:
        if error.filename:  # it could not be opened
            raise
        allowed = "a folder with file locks, such as one on a local disk, in BENCHBOOK_OUTPUTS"
        raise OSError(f"{lock} cannot be locked ({error.strerror}); allowed: {allowed}") from error


def _supervise(
    point: Point,
    run_id: str,
    notebook: Path,
    machine_name: str,
    watch: Callable[[], None],
    deadline: float,
    patience: float,
) -> tuple[str, str] | None:
    """Run papermill to its end, its limit, the deadline or a stop; return status and message
    unless all went well."""
    files = str(layout.notebook(point.study)), str(notebook), nested(point.study, point.parameters)
    left = deadline - time.monotonic()
    compiled = (
        Path(tempfile.gettempdir()) / f"torchinductor_{os.environ.get('USER') or os.getuid()}"
    )
    given = {
        "run_id": run_id,
        "machine": machine_name,
        "outputs": str(layout.outputs()),
        "supervisor": os.getpid(),
    }
    given |= {
        "process_seconds": point.time_limit_seconds,
        "patience": patience,
        "limits": identity.limits(),
    }
    with temporary.folder() as place, context.changed(**given):
        context.write(place / "run.json")
        variables = {
            context.FILE: str(place / "run.json"),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(place),  # torch's compiled kernels stay where they were, for later runs
            "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(compiled),
        }
        try:
            error, failed = launch.call(
                f"{kernel.__name__}:{kernel.attempt.__name__}",
                *files,
                log=notebook.with_suffix(".log"),
                seconds=min(point.limit_seconds, left),
                variables=variables,
                on_wait=watch,
                interrupt_seconds=0.0,
            )
        finally:
            processes.kill(processes.with_variable(context.FILE, variables[context.FILE]))
    if failed and failed.is_late and left < point.limit_seconds:
        return "interrupted", "stopped by the deadline"
    if failed:
        return failures.of_process(failed)
    return (failures.status_of(*error), ": ".join(error)) if error else None
