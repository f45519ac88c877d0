"""Run a study on a Slurm cluster: points that are compared run in one job, on a node without other jobs.

A job measures the points of one study and their calibrations, as `session.measure` does on one computer. Each kind of
node is a machine, `<machine>-<four digits of its fingerprint>`. A session's state is in
`outputs/slurm/<machine>/<study>/<kind of node>/`, the logs of jobs are in `outputs/slurm/<machine>/logs/`. The same
command continues with the points that are not done.
"""

import hashlib
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pandas
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from benchbook.frameworks import devices
from benchbook.machine import identity, layout, processes, slurm
from benchbook.machine.processes import Stopped
from benchbook.running import execute, profile_files, profiles, session
from benchbook.running.profiles import CALIBRATION, Point

EXECUTORS = ("local", "slurm")
MARGIN_MINUTES = 5  # of a job, for work outside its kernels
LOOK_SECONDS = 10.0  # between two queries of the queue
STOP_SECONDS = 90.0  # to wait for the end of cancelled jobs: Slurm kills after KillWait, 30 s by default
NFS_SECONDS = 60.0  # to wait for the files of an ended job, which NFS may show late


class Unfinished(RuntimeError):
    """Jobs ended with points left; the message names each job, its state and its log."""


def _of_kinds(text: str) -> str:
    if not text.split() or not set(text.split()) <= set(devices.KINDS):
        raise PydanticCustomError("kinds", "{kinds}, with blanks between them", {"kinds": ", ".join(devices.KINDS)})
    return text


Word = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]


class Site(BaseModel):
    """The resources of jobs, from a YAML file; `sites/example.yaml` explains it. Empty or 0: the cluster's default.

    Attributes:
        partition, account, qos, constraint: options of sbatch.
        gpu_type: the GPUs' name on the cluster, such as a100.
        max_minutes: the longest job of the partition; a longer study continues with the same command.
        memory_gib: of a node; 0: all of it.
        devices: the nodes' kinds of device, separated by blanks, the fastest first; the submitting host may differ.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    constraint: Word = ""
    gpu_type: Word = ""
    max_minutes: Annotated[int, Field(strict=True, ge=0)] = 0
    memory_gib: Annotated[int, Field(strict=True, ge=0)] = 0
    devices: Annotated[str, AfterValidator(_of_kinds)] = "cpu"

    def kinds(self, framework: str) -> tuple[str, ...]:
        """Return the kinds of device that nodes have for a framework."""
        return tuple(kind for kind in self.devices.split() if framework in devices.KINDS[kind].frameworks)


def choose_site(executor: str, path: Path | None) -> Site | None:
    """Return the cluster's settings for executor slurm, and None for executor local.

    Raises:
        ValueError: an unknown executor, or a site with executor local.
        ProfileError: see `read_site`.
    """
    if executor not in EXECUTORS:
        raise ValueError(f"executor {executor!r}; allowed: {', '.join(EXECUTORS)}")
    if executor == "local" and path is not None:
        raise ValueError(f"site {path} with executor local; allowed: executor slurm, or no site")
    return (read_site(path) if path else Site()) if executor == "slurm" else None


def read_site(path: Path) -> Site:
    """Return the settings in a file.

    Raises:
        ProfileError: the file is missing or not YAML, or has a key or value that is not allowed; the message names it.
    """
    if not path.is_file():
        raise profile_files.ProfileError(f"{path} does not exist; sites/example.yaml shows what such a file holds")
    names = list(Site.model_fields)
    return profile_files.load(path, Site, names, ", ".join(names))[1]


def groups(points: list[Point]) -> dict[str, list[Point]]:
    """Return the points of each job: those of a study and the calibrations of its devices and frameworks.

    Calibrations that no study needs share one more job.
    """
    ceilings = [point for point in points if point.study == CALIBRATION]
    made, left = {}, ceilings
    for study in dict.fromkeys(point.study for point in points if point.study != CALIBRATION):
        own = [point for point in points if point.study == study]
        places = {point.place for point in own}
        made[study] = [*(point for point in ceilings if point.place in places), *own]
        left = [point for point in left if point.place not in places]
    return made | ({CALIBRATION: left} if left else {})


def resources(group: list[Point], site: Site) -> dict[str, object]:
    """Return the resources that a job requests, by the name of sbatch's option; a job does not share its node.

    Source: https://slurm.schedmd.com/sbatch.html
    """
    gpus = [point.parameters.get("device_count", 1) for point in group if point.parameters["device"] == "cuda"]
    minutes = math.ceil(sum(point.num_kernels * point.time_limit_seconds for point in group) / 60) + MARGIN_MINUTES
    options = {"time": min(minutes, site.max_minutes or minutes)}
    options["mem"] = f"{site.memory_gib}G" if site.memory_gib else 0
    if gpus:
        options["gres"] = ":".join(filter(None, ["gpu", site.gpu_type, str(max(gpus))]))
    named = {name: getattr(site, name) for name in ("partition", "account", "qos", "constraint")}
    return options | {name: value for name, value in named.items() if value}


def jobs(points: list[Point], site: Site) -> pandas.DataFrame:
    """Return a line for each job: job, points, and the requested gpus and minutes."""
    lines = []
    for study, group in groups(points).items():
        options = resources(group, site)
        gpus = int(str(options.get("gres", 0)).rpartition(":")[2])
        lines.append({"job": study, "points": len(group), "gpus": gpus, "minutes": options["time"]})
    return pandas.DataFrame(lines)


def check_name(name: str) -> str:
    """Return the checked name of a cluster's machines; it has no default.

    Raises:
        ValueError: no name, or one that a folder cannot have.
    """
    if not name:
        raise ValueError("machine name ''; a cluster needs one (MACHINE=name), to which kinds of node add digits")
    return layout.check_name(name, "machine name")


def estimate_seconds(points: list[Point], name: str) -> pandas.DataFrame:
    """Return an estimate of each point's time on the slowest kind of node that has rows; see `session`."""
    pattern = f"{name}-{'[0-9a-f]' * identity.KIND_DIGITS}"
    kinds = sorted(path.name for path in layout.runs(name).parent.glob(pattern) if path.is_dir())
    parts = [session.estimate_seconds(points, kind) for kind in kinds or [name]]
    return parts[0].assign(seconds=pandas.concat([part["seconds"] for part in parts], axis=1).astype(float).max(axis=1))


def run(
    points: list[Point], name: str, site: Site, retry: bool = False, say: Callable[[str], None] = print
) -> pandas.DataFrame:
    """Run every point that is not done yet, in jobs of Slurm, after the jobs of a session that was cut short.

    Args:
        points: from `profiles.read`.
        name: of the machine, see `check_name`; each kind of node adds its digits.
        site: the resources of jobs.
        retry: run failed points again.
        say: takes lines for the user.

    Returns:
        One line per point, as `session.summary`.

    Raises:
        slurm.Unreachable: there is no Slurm here.
        Unfinished: jobs ended with points left; finished windows are kept, and a row says what ended the run.
        Stopped: this process was asked to stop; its jobs were cancelled.
    """
    folder, own = layout.outputs() / "slurm" / name, groups(points)
    prefix = f"benchbook-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}-"
    session.check_room(folder)
    slurm.jobs(prefix)  # fails at once where Slurm is missing
    with execute.only_one(folder / ".study.lock"):
        if retry:
            for done in folder.glob("*/*/*/*/done"):
                if done.parts[-5] in own and session.forget_failure(done.parent):
                    (done.parents[2] / session.SESSION).unlink(missing_ok=True)
        try:
            if earlier := _running_jobs(prefix):
                say(f"Waiting for jobs of a session that was cut short: {', '.join(earlier)}")
                _wait_for(earlier, prefix, own, folder, say)
            waiting = [study for study in own if not _done_on(folder / study, own[study])]
            submitted = {_submit(study, own[study], name, site, folder, prefix): study for study in waiting}
            states = _wait_for(submitted, prefix, own, folder, say)
        except BaseException:
            slurm.cancel(_running_jobs(prefix), STOP_SECONDS)
            raise
        finally:
            for path in folder.glob("*/*/"):
                session.recover(path.name)
    problems = [
        f"{study}: job {job} {states[job]}, {folder}/logs/{study}-{job}.log"
        for job, study in submitted.items()
        if not _done_on(folder / study, own[study])
    ]
    if problems:
        raise Unfinished(f"not all points are done ({'; '.join(problems)}); run the same command again to continue")
    parts = [session.summary(group, _done_on(folder / study, group)) for study, group in own.items()]
    return pandas.concat(parts).drop_duplicates(["machine", "study", "point"], ignore_index=True)


def _running_jobs(prefix: str) -> dict[str, str]:
    """Return the study of each job that has not ended."""
    return {job: study for job, (study, state) in slurm.jobs(prefix).items() if state not in slurm.OVER}


def _done_on(folder: Path, group: list[Point]) -> str:
    """Return the machine, a kind of node, on which all points of a group are done; empty if there is none yet."""
    kinds = [kind for kind in folder.glob("*/") if _num_done(kind, group) == len(group)]
    return max(kinds, key=lambda kind: kind.stat().st_mtime).name if kinds else ""


def _num_done(kind: Path, group: list[Point]) -> int:
    return sum(session.is_done(kind / point.study / point.name, point) for point in group)


def _submit(study: str, group: list[Point], name: str, site: Site, folder: Path, prefix: str) -> str:
    """Submit the job of a group and return its id."""
    (folder / "logs").mkdir(exist_ok=True)
    plan = folder / f"{study}.json"
    profiles.write_points(plan, group)
    options = resources(group, site) | {"job-name": prefix + study, "output": f"{folder}/logs/{study}-%j.log"}
    words = [f"--{option}={value}" for option, value in options.items()]
    command = [sys.executable, "-m", "benchbook.running.cluster", str(plan), name]
    return slurm.submit([*words, "--exclusive", "--nodes=1", "--ntasks=1"], command)


def _wait_for(
    awaited: dict[str, str], prefix: str, own: dict[str, list[Point]], folder: Path, say: Callable[[str], None]
) -> dict[str, str]:
    """Wait until jobs are over, and print changes; return the jobs' last states.

    Args:
        awaited: the study of each job.
        prefix, own, folder, say: see `run`.
    """
    states, printed = dict.fromkeys(awaited, "SUBMITTED"), {}
    while not set(states.values()) <= slurm.OVER:
        time.sleep(LOOK_SECONDS)
        with suppress(slurm.Unreachable):  # the controller restarts
            found = slurm.jobs(prefix)
            states = {job: found.get(job, ("", slurm.GONE))[1] for job in awaited}
        for job, study in awaited.items():
            points = own.get(study, [])
            done = max((_num_done(kind, points) for kind in (folder / study).glob("*/")), default=0)
            line = f"{study}: job {job} {states[job]}, {done} of {len(points)} points done"
            if printed.get(job) != line:
                say(line)
                printed[job] = line
    deadline = time.monotonic() + NFS_SECONDS
    completed = [study for job, study in awaited.items() if states[job] == "COMPLETED" and study in own]
    while time.monotonic() < deadline and not all(_done_on(folder / study, own[study]) for study in completed):
        time.sleep(1.0)
    return states


def main() -> None:
    """Measure the points of a file on this node. Arguments: FILE MACHINE, a name without the digits of the node."""
    points, name = Path(sys.argv[1]), identity.with_kind(sys.argv[2], identity.fingerprint())
    processes.stop_on_signals()
    os.environ["BENCHBOOK_STATE"] = str(points.with_suffix("") / name)
    try:
        left_out = session.measure(profiles.read_points(points), name)
    except Stopped as stop:
        sys.exit(stop.status)
    if left_out:
        sys.exit("\n".join(f"Left out: {point.title} ({reason})" for point, reason in left_out))


if __name__ == "__main__":
    main()
