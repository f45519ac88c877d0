"""Ask Slurm whether a job has ended, through its own command.

Source: https://slurm.schedmd.com/squeue.html
"""

import os
import subprocess

ANSWER_SECONDS = 60.0  # a busy controller may take this long to answer


def own_job() -> str:
    """Return the id of this process's job; empty outside Slurm."""
    return os.environ.get("SLURM_JOB_ID", "")


def is_over(job: str) -> bool:
    """Return whether a job has ended; False if Slurm does not answer."""
    command = [
        "squeue",
        "--noheader",
        "--format=%T",
        "--jobs",
        job,
    ]  # squeue shows jobs that have not ended
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    is_known = (
        done.returncode == 0 or "Invalid job id" in done.stderr
    )  # Slurm forgets a job minutes after its end
    return is_known and not done.stdout.strip()
