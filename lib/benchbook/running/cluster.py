"""Run a study on a Slurm cluster: one job for each study, on a node without other jobs.

A job runs `benchbook study` for its study and the calibration. Its state and its log are in
outputs/slurm, so that jobs on nodes of one kind share a folder of rows, but neither locks nor
sessions. The options of sbatch that a cluster needs come from sbatch's own environment
variables, such as SBATCH_PARTITION.

Source: https://slurm.schedmd.com/sbatch.html
"""

import re
import shlex
import subprocess
import sys

from benchbook.machine import layout
from benchbook.running import profiles
from benchbook.running.profiles import CALIBRATION

EXECUTORS = ("local", "slurm")
# A job does not share its node, has all of its memory, and waits for an earlier job of the same
# name.
OPTIONS = (
    "--parsable",
    "--exclusive",
    "--nodes=1",
    "--mem=0",
    "--no-requeue",
    "--dependency=singleton",
)


def submit(profile: str, studies: str, machine: str, options: list[str]) -> list[str]:
    """Submit a job for each study, and return a line about each.

    The same command may be repeated: its jobs wait for the earlier ones, and measure only what
    these have left.

    Args:
        profile, studies, machine: see `benchbook study`.
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
        command += [
            sys.executable,
            "-m",
            "benchbook",
            "study",
            "--profile",
            profile,
            "--studies",
            names,
        ]
        command += ["--machine", machine, "--state", str(folder / job), *options]
        words = [
            f"--job-name=benchbook-{machine or 'any'}-{job}",
            f"--output={folder / job}-%j.log",
        ]
        words += [f"--wrap=exec {shlex.join(command)}"]
        try:
            done = subprocess.run(
                ["sbatch", *OPTIONS, *words], capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            raise RuntimeError(
                "sbatch is not here; allowed: a host that has Slurm's commands"
            ) from None
        if done.returncode:
            raise RuntimeError(
                f"{job}: {done.stderr.strip() or f'sbatch ended with {done.returncode}'}"
            )
        found = re.findall(
            r"^(\d+)(?:;.*)?$", done.stdout, re.MULTILINE
        )  # a cluster's name may follow
        number = (
            found[-1] if found else done.stdout.strip()
        )  # a wrapper of sbatch may have its say before
        lines.append(f"{job}: job {number}, log {folder / job}-{number}.log")
    return lines
