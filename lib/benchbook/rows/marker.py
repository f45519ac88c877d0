"""The marker: a file that says a run is under way, with its process."""

import json
import os
from pathlib import Path

import psutil

from benchbook.machine import context, processes, slurm, temporary
from benchbook.rows.schema import RUN_ID


def write(path: Path, state: dict) -> None:
    """Write a marker with this process, its supervisor (if any) and what a failure row needs.

    Args:
        path: `<run_id>.running` in the point's folder, which is created.
        state: what a failure row needs, as values for JSON.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    process = psutil.Process()
    owner = {"process": process.pid, "birth": processes.birth(process), "job": slurm.own_job()}
    temporary.write(path, json.dumps(state | owner | {"supervisor": context.current().supervisor}))


def read(path: Path) -> dict | None:
    """Return a marker's content, or None; one of a run that a power cut damaged is removed."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return state | {name: state[name] + 0 for name in ("process", "birth", "supervisor")}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        if RUN_ID.fullmatch(path.stem):  # any other is a user's file
            path.unlink()
        return None


def is_alive(path: Path) -> bool:
    """Return whether another process still measures a run. A run whose supervisor has ended is
    killed.

    A run in another job of a cluster counts as alive while that job is: its processes are on
    another computer.
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
