"""Submit, follow and cancel jobs of a Slurm cluster through Slurm's own commands, without its accounting database.

Source: https://slurm.schedmd.com/scontrol.html and https://slurm.schedmd.com/squeue.html (job states)
"""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path

ANSWER_SECONDS = 60.0  # a busy controller may take this long to answer
GONE = "GONE"  # the state of a job that the controller has forgotten, MinJobAge (5 minutes by default) after its end
OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
OVER |= {"TIMEOUT", GONE}
# Status and message of the failure row of a run whose job Slurm ended, by the job's state.
ENDINGS = {
    "TIMEOUT": ("timeout", "its time limit was over"),
    "OUT_OF_MEMORY": ("out_of_memory", "it took more memory than the job was given"),
    "NODE_FAIL": ("interrupted", "its node failed"),
    "PREEMPTED": ("interrupted", "a job of higher priority took its node"),
    "CANCELLED": ("interrupted", "it was cancelled"),
}
# Slurm's line in the log of a job that it ended for its memory; the job's state may be another.
OUT_OF_MEMORY_LINE = re.compile(r"slurmstepd.*(exceeded memory limit|oom.kill)")
LOG_BYTES = 2**16  # of the log's end are searched


class Unreachable(RuntimeError):
    """Slurm is not installed here, or its controller does not answer."""


def own_job() -> str:
    """Return the id of this process's job; empty outside Slurm."""
    return os.environ.get("SLURM_JOB_ID", "")


def fields(job: str) -> dict[str, str]:
    """Return a job's fields by the names of `scontrol show job`; empty if the controller has forgotten the job.

    Raises:
        Unreachable: no answer.
    """
    try:
        text = _ask("scontrol", "show", "job", "--oneliner", job)
    except Unreachable as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    return dict(re.findall(r"(?:^|\s)(\w[\w:/]*)=(\S*)", text))


def state(job: str) -> str:
    """Return a job's state; a job that Slurm is ending has its final state already while it writes its last rows.

    Raises:
        Unreachable: no answer.
    """
    answer = fields(job)
    if not answer:
        return GONE
    if answer["JobState"] in ("COMPLETING", "CANCELLED", "FAILED"):  # the reason says more
        if answer.get("Reason") == "TimeLimit":
            return "TIMEOUT"
        if answer.get("PreemptTime", "None") not in ("None", "Unknown"):
            return "PREEMPTED"
        if OUT_OF_MEMORY_LINE.search(_tail(answer.get("StdOut", ""))):
            return "OUT_OF_MEMORY"
    return answer["JobState"]


def is_over(job: str) -> bool:
    """Return whether a job has ended; False if the controller does not answer."""
    try:
        return fields(job).get("JobState", GONE) in OVER
    except Unreachable:
        return False


def ending(job: str) -> tuple[str, str] | None:
    """Return status and message for a run whose job Slurm ended or is ending; None if it did not, or outside Slurm."""
    try:
        name = state(job) if job else ""
    except Unreachable:
        return None
    name = "CANCELLED" if name == "COMPLETING" else name
    if name not in ENDINGS:
        return None
    status, reason = ENDINGS[name]
    return status, f"Slurm ended job {job}: {reason} ({name})"


def jobs(prefix: str) -> dict[str, tuple[str, str]]:
    """Return this user's jobs whose names begin with a prefix: by id, the rest of the name and the state.

    Raises:
        Unreachable: no answer.
    """
    text = _ask("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%j")
    words = [line.split("|", 2) for line in text.splitlines()]
    return {job: (name.removeprefix(prefix), word) for job, word, name in words if name.startswith(prefix)}


def submit(options: Iterable[str], command: Iterable[str]) -> str:
    """Submit a command as a job that Slurm never requeues, and return its id.

    Raises:
        Unreachable: no answer, or Slurm refuses the job; the message is Slurm's.
    """
    text = _ask("sbatch", "--parsable", "--no-requeue", *options, f"--wrap=exec {shlex.join(command)}")
    return text.strip().partition(";")[0]  # a cluster's name may follow


def cancel(ids: Collection[str], seconds: float) -> None:
    """Cancel jobs, and wait up to `seconds` until they have written their last rows and ended."""
    if not ids:
        return
    _ask("scancel", *ids)
    deadline = time.monotonic() + seconds
    while not all(is_over(job) for job in ids) and time.monotonic() < deadline:
        time.sleep(0.5)


def _tail(log: str) -> str:
    """Return the end of a job's log; empty if this host cannot read it."""
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, Path(log).stat().st_size - LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except FileNotFoundError:
        raise Unreachable(f"{command[0]} is not here; allowed: a host that has Slurm's commands") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"{command[0]} does not answer ({error})") from error
    if done.returncode:
        raise Unreachable(f"{' '.join(command[:3])}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
