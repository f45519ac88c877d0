"""The file that marks a run as under way, and whether the run's process still exists."""

import json
import os
from pathlib import Path

import psutil

from benchbook.machine import processes, slurm


def write(path: Path, state: dict) -> None:
    """Write a marker: what a failure row needs, this process, and the one that started it, if any did.

    Args:
        path: `<run_id>.running` in the point's folder, which is made.
        state: plain values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    process = psutil.Process()
    owner = {"process": process.pid, "birth": processes.birth(process), "job": slurm.own_job()}
    supervisor = int(os.environ.get("BENCHBOOK_SUPERVISOR", 0))
    replace(path, json.dumps(state | owner | {"supervisor": supervisor}))


def read(path: Path) -> dict | None:
    """Return a marker's content; None if there is none, or if a power cut damaged it (it is removed then)."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return state | {name: state[name] + 0 for name in ("process", "birth", "supervisor")}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        path.unlink()
        return None


def is_alive(path: Path) -> bool:
    """Return whether a run goes on: elsewhere, and with whoever started it; an orphan is ended here.

    A run of another job of a cluster goes on as long as that job: its processes are another computer's.
    """
    state = read(path)
    if state is None:
        return False
    if state.get("job") and state["job"] != slurm.own_job():
        return not slurm.is_over(state["job"])
    if state["process"] == os.getpid() or not processes.is_running(state["process"]):
        return False
    try:
        process = psutil.Process(state["process"])
        if abs(processes.birth(process) - state["birth"]) > 1:  # another process has this id now
            return False
    except psutil.NoSuchProcess:
        return False
    if state["supervisor"] and not processes.is_running(state["supervisor"]):
        processes.kill([process])
        return False
    return True


def ending(path: Path) -> tuple[str, str]:
    """Return status and message of a run whose process is gone."""
    job = (read(path) or {}).get("job")
    return slurm.ending(job or "") or ("interrupted", "the process that measured was gone")


def replace(path: Path, content: str) -> None:
    """Write a file whole: after a crash there is the old one or the new one."""
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)
