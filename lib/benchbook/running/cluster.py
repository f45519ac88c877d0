"""A study on a Slurm cluster: what is compared with one another is one job, on a node that nobody else uses.

The graph on the host that submits has a job for each group; a job runs the graph of `session.measure` on its node, so
that kernels take turns there as they do on one computer. Groups are independent of one another. What is not done, for
whatever reason, the same command goes on with. Rows are those of the kind of node: `<machine>-<four digits>`, from its
fingerprint. What a session keeps lies in `outputs/slurm/<machine>/<group>/`, logs of jobs in `logs/` beside.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas

from benchbook.machine import identity, layout, processes, slurm
from benchbook.machine.processes import Stopped
from benchbook.measuring import runs
from benchbook.rows import marker
from benchbook.running import execute, session
from benchbook.running.groups import Group, groups, resources
from benchbook.running.profiles import Point
from benchbook.running.sites import Site

STOP_SECONDS = 90.0  # for cancelled jobs to end: Slurm kills after KillWait, 30 s by default
SETTLE_SECONDS = 300.0  # Snakemake asks for ended jobs at most so seldom: 180 s, and their files arrive by NFS


class Unfinished(RuntimeError):
    """Jobs ended before their points did; the message names each, its state and its log."""


def end_with_launcher(configuration: dict) -> None:
    """End this process, the graph's on the submitting host, when the one that started it is gone, even by kill -9."""
    launcher = int(configuration.get("launcher", 0))
    if launcher and launcher == os.getppid():
        processes.when_gone(launcher, lambda: os.kill(os.getpid(), signal.SIGKILL))


def check_name(name: str) -> str:
    """Return the name of a cluster's machines; nobody but its user can tell one.

    Raises:
        ValueError: no name, or one that cannot be a folder's.
    """
    if not name:
        raise ValueError("machine name '': a cluster needs one (MACHINE=name); its kinds of node add digits to it")
    return layout.check_name(name, "machine name")


def jobs(points: list[Point], site: Site) -> pandas.DataFrame:
    """Return a line for each job: job, points, gpus, and the minutes that it asks for."""
    return pandas.DataFrame(
        {
            "job": group.name,
            "points": len(group.points),
            "gpus": group.gpus,
            "minutes": resources(group, asdict(site))["runtime"],
        }
        for group in groups(points)
    )


def estimate_seconds(points: list[Point], name: str) -> pandas.DataFrame:
    """Return, per point, how long it should take on the slowest kind of node that has measured; see `session`."""
    kinds = sorted(
        path.name for path in layout.runs(name).parent.glob(f"{name}-{'[0-9a-f]' * identity.KIND}") if path.is_dir()
    )
    parts = [session.estimate_seconds(points, kind) for kind in kinds or [name]]
    return parts[0].assign(seconds=pandas.concat([part["seconds"] for part in parts], axis=1).astype(float).max(axis=1))


def run(
    points: list[Point], name: str, site: Site, retry: bool = False, say: Callable[[str], None] = print
) -> pandas.DataFrame:
    """Run every point that is not done yet, in jobs of Slurm; jobs of a session that was cut short are waited for.

    Args:
        points: from `profiles.read`.
        name: of the machine; each kind of node goes on with digits of its own.
        site: what jobs ask for.
        retry: run points again that ended in a failure row.
        say: takes lines for the user.

    Returns:
        One line per point, as `session.summary`.

    Raises:
        ValueError: no name, or one that cannot be a folder's.
        slurm.Unreachable: there is no Slurm here.
        Unfinished: jobs ended before their points; what was measured is kept, with a row of what ended it.
        Stopped: this process was asked to stop; its jobs were cancelled.
    """
    check_name(name)
    folder = layout.outputs() / "slurm" / name
    session.check_room(folder)
    prefix = f"benchbook-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    slurm.jobs(prefix)  # before anything else: is there a Slurm?
    own = groups(points)
    with execute.only_one(folder / ".study.lock"):
        for group in own if retry else ():
            _forget_failures(folder / group.name)
        try:
            _wait_for_former(prefix, say)
            _settle(folder)
            _graph(own, name, site, folder, prefix, say)
        except subprocess.CalledProcessError:
            pass  # which of them is said below
        except BaseException:
            slurm.cancel(_under_way(prefix), STOP_SECONDS)
            raise
        finally:
            _settle(folder)
        _check_done(own, folder, prefix)
        return _summary(own, folder)


def _graph(own: list[Group], name: str, site: Site, folder: Path, prefix: str, say: Callable[[str], None]) -> None:
    """Submit the jobs of groups that are not done, and wait for them."""
    plan = folder / ".groups.json"
    plan.write_text(json.dumps([asdict(group) for group in own]))
    if not site.memory_gib:
        os.environ["SBATCH_MEM_PER_NODE"] = "0"  # all of a node's; the executor's own resource has no word for that
    options = ["--executor", "slurm", "--jobs", str(len(own)), "--latency-wait", "60", "--ignore-incomplete"]
    options += ["--slurm-status-command", site.status_command, "--slurm-no-requeue", "--slurm-keep-successful-logs"]
    options += ["--slurm-init-seconds-before-status-checks", str(site.check_seconds)]
    options += ["--slurm-logdir", str(folder / "logs"), "--slurm-delete-logfiles-older-than", "0"]
    options += ["--slurm-jobname-prefix", prefix]
    values = {key: value for key, value in asdict(site).items() if value and key not in ("devices", "status_command")}
    state = folder.relative_to(layout.outputs())
    configuration = {"groups": plan, "machine": name, "state": state, "launcher": os.getpid(), **values}
    former = set(slurm.jobs(prefix))
    waiting = {group.name: len(group.points) for group in own if not (folder / group.name / "done").exists()}
    watched = _Watched(prefix, former, waiting, site.check_seconds, folder, say)
    session.run_graph(options, configuration, _kill, watched.watch)


class _Watched:
    """Follows the jobs of a graph: says what changes, and when all are over and need not be waited for.

    Snakemake asks seldom, and waits for ever for a preempted job, of which it expects a second start.

    Args:
        prefix: of the jobs' names.
        former: ids of jobs of a graph before this one.
        waiting: numbers of points by name of the group whose job the graph submits.
        every: seconds between two looks.
        folder: what the session keeps.
        say: takes lines for the user.
    """

    def __init__(
        self,
        prefix: str,
        former: set[str],
        waiting: dict[str, int],
        every: float,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.prefix, self.former, self.waiting, self.every = prefix, former, waiting, every
        self.folder, self.say, self.said = folder, say, {}
        self.next_look, self.since = time.monotonic() + every, None

    def watch(self) -> bool:
        """Return False once nothing is to be waited for."""
        now = time.monotonic()
        if now < self.next_look:
            return True
        self.next_look = now + self.every
        try:
            jobs = {job: words for job, words in slurm.jobs(self.prefix).items() if job not in self.former}
        except slurm.Unreachable:
            return True
        states = [state for _, state in jobs.values()]
        for job, (comment, state) in jobs.items():
            self._say_change(job, comment.removeprefix("rule_"), state)
        if len(states) < len(self.waiting) or not set(states) <= slurm.OVER:
            self.since = None
            return True
        self.since = self.since or now
        return now - self.since < (SETTLE_SECONDS if set(states) <= {"COMPLETED"} else 4 * self.every)

    def _say_change(self, job: str, group: str, state: str) -> None:
        num_points = self.waiting.get(group, 0)
        num_done = min(num_points, len(list((self.folder / group).glob("*/*/*/done"))))
        line = f"{group}: job {job} {state}, {num_done} of {num_points} points done"
        if self.said.get(job) != line:
            self.say(line)
            self.said[job] = line


def _kill(graph: subprocess.Popen) -> None:
    processes.kill(processes.family(graph.pid))
    graph.wait()


def _under_way(prefix: str) -> list[str]:
    return [job for job, (_, name) in slurm.jobs(prefix).items() if name not in slurm.OVER]


def _wait_for_former(prefix: str, say: Callable[[str], None]) -> None:
    """Wait for jobs that a session left behind when its host died: they measure on, and their points will be done."""
    said = False
    while former := _under_way(prefix):
        if not said:
            say(f"Waiting for jobs of a session that was cut short: {', '.join(former)}")
            said = True
        time.sleep(1.0)


def _settle(folder: Path) -> None:
    """Write the failure row of every run whose job has ended without it."""
    for name in {path.name for path in folder.glob("*/*/") if layout.is_name(path.name)}:
        for path in layout.runs(name).rglob("*.running"):
            runs.recover(path.parent)


def _forget_failures(group: Path) -> None:
    """Make points of a group that failed undone, whichever kind of node they ran on."""
    forgotten = [session.forget_failure(done.parent) for done in list(group.glob("*/*/*/done"))]
    if any(forgotten):
        (group / "done").unlink(missing_ok=True)


def _check_done(own: list[Group], folder: Path, prefix: str) -> None:
    latest = {comment.removeprefix("rule_"): (job, state) for job, (comment, state) in slurm.jobs(prefix).items()}
    problems = []
    for group in own:
        if not (folder / group.name / "done").exists():
            job, state = latest.get(group.name, ("", "was not accepted by Slurm"))
            log = folder / "logs" / f"rule_{group.name}" / f"{job}.log"
            problems.append(f"{group.name}: job {job} {state}, {log}" if job else f"{group.name}: {state}")
    if problems:
        raise Unfinished(f"not all points are done ({'; '.join(problems)}); the same command goes on with them")


def _summary(own: list[Group], folder: Path) -> pandas.DataFrame:
    parts = []
    for group in own:
        name = json.loads((folder / group.name / "done").read_text())["machine"]
        parts.append(session.summary([Point(**point) for point in group.points], name))
    return pandas.concat(parts).drop_duplicates(["machine", "study", "point"], ignore_index=True)


def main() -> None:
    """Run one group on this node, as the Snakefile asks: GROUP is its JSON, DONE the file to write last."""
    parser = argparse.ArgumentParser(description="Run one group of points on a node.")
    parser.add_argument("group", help="a group as JSON")
    parser.add_argument("done", type=Path, help="file written when all points have ended")
    parser.add_argument("--machine", required=True, help="name of the machine, without its kind")
    arguments = parser.parse_args()
    processes.stop_on_signals()
    group = Group(**json.loads(arguments.group))
    name = identity.with_kind(arguments.machine, identity.fingerprint())
    os.environ["BENCHBOOK_STATE"] = str(arguments.done.resolve().parent / name)
    try:
        session.measure([Point(**point) for point in group.points], identity.identify(name).name)
    except Stopped as stop:
        sys.exit(stop.status)
    marker.replace(arguments.done, json.dumps({"machine": name, "job": slurm.own_job()}))


if __name__ == "__main__":
    main()
