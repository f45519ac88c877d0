"""The marker: a file that says a run is under way, with its process; see `writer.Run.mark`."""

import json
import os
import subprocess
from pathlib import Path

import psutil

from benchbook.machine import processes
from benchbook.rows.schema import RUN_ID

JOB = "SLURM_JOB_ID"  # in the environment: this process's job of Slurm
ANSWER_SECONDS = 60.0  # a busy controller may take this long to answer


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
    if state.get("job") and state["job"] != os.environ.get(JOB):
        return not _is_over(state["job"])
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


def _is_over(job: str) -> bool:
    """Return whether a job of Slurm has ended; False if Slurm does not answer.

    Source: https://slurm.schedmd.com/squeue.html
    """
    # It shows jobs that have not ended.
    command = ["squeue", "--noheader", "--format=%T", "--jobs", job]
    options = {"capture_output": True, "text": True, "timeout": ANSWER_SECONDS}
    try:
        done = subprocess.run(command, check=False, **options)
    except (OSError, subprocess.TimeoutExpired):
        return False
    is_forgotten = "Invalid job id" in done.stderr  # minutes after its end
    return (done.returncode == 0 or is_forgotten) and not done.stdout.strip()
