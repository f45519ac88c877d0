"""Run a study on a Slurm cluster: one job for each study, on a node without other jobs, or on the
GPUs that were asked for.

A job runs `benchbook study` for its study and the calibration. Its state and its log are in
outputs/slurm, so that jobs on nodes of one kind share a folder of rows, but neither locks nor
sessions. The options of sbatch that a cluster needs come from sbatch's own environment
variables, such as SBATCH_PARTITION.

Source: https://slurm.schedmd.com/sbatch.html
"""

import os
import re
import shlex
import subprocess
import sys

from benchbook.machine import layout
from benchbook.running import profiles
from benchbook.running.profiles import CALIBRATION

EXECUTORS = ("local", "slurm")
# A job waits for an earlier job of the same name.
OPTIONS = ("--parsable", "--nodes=1", "--no-requeue", "--dependency=singleton")
WHOLE = ("--exclusive", "--mem=0")  # a node without other jobs, and all of its memory
GPUS = {"SBATCH_GPUS", "SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_TASK", "SBATCH_GRES"}


def submit(profile: str, studies: str, machine: str, device: str, options: list[str]) -> list[str]:
    """Submit a job for each study, and return a line about each.

    The same command may be repeated: its jobs wait for the earlier ones, and measure only what
    these have left.

    Args:
        profile, studies, machine, device: see `benchbook study`.
        options: its other options.

    Raises:
        ValueError: an unknown profile or study, a broken profile, or a name that a folder cannot
        have.
        RuntimeError: Slurm is not here, or refuses a job; the message is Slurm's.
    """
    chosen = [*profiles.chosen(profile, studies)]
    own = [study for study in chosen if study != CALIBRATION] or chosen
    jobs = {
        study: " ".join(each for each in chosen if each in (CALIBRATION, study)) for study in own
    }
    if machine:
        layout.check_name(machine, "machine name")
    folder, lines = layout.outputs() / "slurm", []
    folder.mkdir(parents=True, exist_ok=True)
    for job, names in jobs.items():
        command = ["env", f"BENCHBOOK_OUTPUTS={layout.outputs()}"]
        command += [f"{layout.STUDIES}={own}" for own in layout.folders()[1:]]
        command += [sys.executable, "-m", "benchbook", "study"]
        command += ["--profile", profile, "--studies", names]
        command += ["--machine", machine, "--device", device]
        command += ["--state", str(folder / job), *options]
        words = [f"--job-name=benchbook-{machine or 'any'}-{job}"]
        words += [f"--output={folder / job}-%j.log", f"--wrap=exec {shlex.join(command)}"]
        number = _number(job, [*OPTIONS, *_place(device), *words])
        lines.append(f"{job}: job {number}, log {folder / job}-{number}.log")
    return lines


def _place(device: str) -> tuple[str, ...]:
    """Return the options for what a job has of its node: all of it, but where an accelerator is
    measured and the environment asks for some of the node's GPUs, or says itself what is shared.
    """
    own_gpus = device not in ("all", "cpu") and GPUS & os.environ.keys()
    return () if own_gpus or "SBATCH_EXCLUSIVE" in os.environ else WHOLE


def _number(job: str, words: list[str]) -> str:
    """Submit a job, and return its number.

    Raises:
        RuntimeError: see `submit`.
    """
    try:
        done = subprocess.run(["sbatch", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RuntimeError(
            "sbatch is not here; allowed: a host that has Slurm's commands"
        ) from None
    if done.returncode:
        why = done.stderr.strip() or f"sbatch ended with {done.returncode}"
        raise RuntimeError(f"{job}: {why}")
    # a cluster's name may follow the number, and a wrapper of sbatch may have its say before
    found = re.findall(r"^(\d+)(?:;.*)?$", done.stdout, re.MULTILINE)
    return found[-1] if found else done.stdout.strip()
