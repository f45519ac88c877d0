"""One `make study`: the graph under a lock, then figures, report and a summary."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas
import psutil

from benchbook.judging import statistics, verdicts
from benchbook.machine import condition, layout, processes, temporary
from benchbook.machine.awake import awake
from benchbook.machine.processes import Stopped
from benchbook.measuring import runs
from benchbook.rows import manifests, records
from benchbook.running import execute, loop, profiles
from benchbook.running.loop import LeftOut
from benchbook.running.profiles import Point

ALIKE = ("framework", "variant", "image_size", "batch_size")  # what makes points alike, the weightiest first
IMAGES = {"imagenet": 1_281_167}  # in an epoch, for a plan before the data set was read
NEEDED_BYTES = 200 * 2**20
SESSION = ".session"  # the file that names a machine's session until all of its points are done
STOP_SECONDS = 3.0  # for a job to end its kernel and to write its row; what it leaves is done here


class Missing(RuntimeError):
    """A point of the profile has no rows."""


def measure(points: list[Point], name: str, retry: bool = False, deadline: float | None = None) -> list[LeftOut]:
    """Run every point that is not done yet, on this computer.

    A session that was cut short is continued under its own name, so that runs it finished are not repeated.

    Args:
        points: from `profiles.read`.
        name: of the machine.
        retry: run points again that ended in a failure row; where there are some, in a session of their own.
        deadline: on the monotonic clock; None: none, and Snakemake runs the points.

    Returns:
        With a deadline, the points that are left for the next call.

    Raises:
        RuntimeError: another study runs on this machine.
        OSError, ValueError: rows cannot be written, or the disk is almost full.
        subprocess.CalledProcessError: the graph failed.
        Stopped: this process was asked to stop; what was measured is kept.
    """
    folder = layout.state(name)
    check_room(folder)
    with execute.only_one(folder / ".study.lock"), awake():
        failed = [point for point in points if retry and forget_failure(folder / point.study / point.name)]
        if failed:
            (folder / SESSION).unlink(missing_ok=True)
        os.environ |= {
            "BENCHBOOK_SESSION": _session(folder),
            "BENCHBOOK_MACHINE": name,
            "BENCHBOOK_POINTS": " ".join(point.name for point in points),
        }
        if deadline is None:
            left_out = []
            _run_locally(points, name, folder)
        else:
            if "MAKELEVEL" in os.environ:  # a run stops when the `make` that began it is gone
                os.environ["BENCHBOOK_LAUNCHER"] = str(os.getppid())
            left_out = loop.run(points, name, deadline)
        if not left_out:
            (folder / SESSION).unlink()
    return left_out


def _run_locally(points: list[Point], name: str, folder: Path) -> None:
    """Run points by a graph on this computer."""
    os.environ |= {"BENCHBOOK_LAUNCHER": str(os.getpid()), "BENCHBOOK_THREADS": execute.thread_settings()}
    plan = folder / ".points.json"
    profiles.write_points(plan, points)
    state = folder.relative_to(layout.outputs())
    options = ["--cores", "1", "--resources", "device=1", "--rerun-incomplete"]
    run_graph(options, {"points": plan, "machine": name, "state": state}, lambda graph: stop(graph, name))


def check_room(folder: Path) -> None:
    """Refuse to begin where rows could not be written.

    Raises:
        OSError: the folder cannot be written.
        ValueError: its disk is almost full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise ValueError(
            f"{folder}: {free / 2**20:.0f} MiB are free on its disk; allowed: {NEEDED_BYTES / 2**20:.0f} MiB or more,"
            " for rows, executed notebooks and the report"
        )


def summary(points: list[Point], machine_name: str, left_out: Sequence[LeftOut] = ()) -> pandas.DataFrame:
    """Return one line per point, in the profile's order, as `statistics.summarise` gives them, and their verdict.

    Args:
        points: that were to run.
        machine_name: whose rows are read.
        left_out: points that may lack rows.

    Raises:
        Missing: a point has no rows; the message names each.
    """
    rows = read_rows(machine_name, lambda line: None)  # the report that follows names what is left out
    conditions = condition.samples(manifests.every(layout.runs(machine_name)))
    summaries = verdicts.summarise(rows, conditions)
    measured = {(each["study"], each["point"]): each for each in summaries.to_dict("records")}
    excused = {(each.point.study, each.point.name) for each in left_out}
    missing = [point for point in points if (point.study, point.name) not in measured.keys() | excused]
    if missing:
        raise Missing(f"no rows for {', '.join(f'{point.study}/{point.name}' for point in missing)}")
    keys = [(point.study, point.name) for point in points]
    return pandas.DataFrame([measured[key] for key in keys if key in measured], columns=summaries.columns)


def read_rows(machine_name: str, say: Callable[[str], None] = print) -> pandas.DataFrame:
    """Return every row of one machine; a file that breaks the schema is named and left out."""
    folder = layout.runs(machine_name)
    return records.gather(records.find(folder) if folder.exists() else [], say)


def estimate_seconds(points: list[Point], machine_name: str) -> pandas.DataFrame:
    """Return, per point, how long it should take.

    A point is estimated from this machine's own rows of the same study and device, where there are any, and of those
    that are most alike: planned images over the median rate, which falls with the area of an image, and for each kernel
    what its process took beside the windows. Its time limit is the upper bound either way.

    Returns:
        Columns: study, point, num_kernels, seconds (missing where nothing was measured yet), limit_seconds.
    """
    rows = read_rows(machine_name)
    measured = statistics.summarise(rows)
    beside = _seconds_beside_windows(rows, machine_name)
    estimates = [
        {
            "study": point.study,
            "point": point.name,
            "num_kernels": point.num_kernels,
            "seconds": _estimate(point, measured, beside),
            "limit_seconds": point.num_kernels * point.time_limit_seconds,
        }
        for point in points
    ]
    return pandas.DataFrame(estimates)


def _estimate(point: Point, measured: pandas.DataFrame, beside: float) -> float | None:
    plan = point.parameters
    same = (measured["study"] == point.study) & (measured["device"] == plan["device"])
    alike = measured[same & measured["samples_per_second"].notna()]
    for name in ALIKE:
        closer = alike[alike[name].eq(plan.get(name)).fillna(False)]
        alike = closer if len(closer) else alike
    if alike.empty:
        return None
    if not {"num_repeats", "num_windows", "samples_per_window"} <= set(plan):
        return None
    epoch = plan.get("num_images") or IMAGES.get(plan.get("dataset"), alike["dataset_samples"].max())
    lasting = plan.get("window_seconds", 0)
    window = plan["samples_per_window"] or (0 if lasting else epoch)
    if pandas.isna(window):  # an epoch of a data set that was not read here yet
        return None
    sides = plan.get("image_size", math.nan) / alike["image_size"].astype(float)
    rates = alike["samples_per_second"].astype(float) / sides.fillna(1.0) ** 2
    windows = plan["num_repeats"] * plan["num_windows"]
    seconds = 60 * plan.get("sustained_minutes", 0) or windows * max(lasting, window / rates.median())
    pauses = plan.get("cooldown_seconds", 0) * (plan["num_repeats"] - 1)
    return point.num_kernels * (seconds + pauses + beside)


def _seconds_beside_windows(rows: pandas.DataFrame, machine_name: str) -> float:
    """Return the median seconds a run's process took beside its training windows; 0 where no manifest tells."""
    training = rows[rows["phase"] == "train"].groupby("run_id")["seconds"].sum()
    by_run = manifests.every(layout.runs(machine_name))
    beside = [
        by_run[run_id]["process_seconds"] - seconds
        for run_id, seconds in training.items()
        if by_run.get(run_id, {}).get("process_seconds") is not None
    ]
    return float(pandas.Series(beside).median()) if beside else 0.0


def run_graph(
    options: list[str],
    configuration: dict[str, object],
    stop: Callable[[subprocess.Popen], None],
    watch: Callable[[], bool] = lambda: True,
) -> None:
    """Run the graph; stop it if this process is to stop, or if the `make` that started it is gone.

    Args:
        options: of Snakemake, beside those that every graph here has.
        configuration: the Snakefile's.
        stop: ends Snakemake and its jobs.
        watch: called five times a second; the graph is stopped, and counts as failed, where it returns False.

    Raises:
        subprocess.CalledProcessError: a job failed.
        Stopped: this process was asked to stop.
    """
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(layout.root() / "Snakefile")]
    command += ["--directory", str(layout.outputs()), *options]
    command += ["--rerun-triggers", "params", "--keep-going", "--quiet", "all"]
    command += ["--nolock"]  # the lock of this session is let go even after kill -9; Snakemake's is not
    configuration = configuration | {"temporary": tempfile.gettempdir()}
    command += ["--config", *(f"{name}={value}" for name, value in configuration.items())]
    parent, made = os.getppid(), "MAKELEVEL" in os.environ
    # What Snakemake leaves where it is killed lies in a folder of this process. Its jobs have the usual one, which the
    # Snakefile names: the paths of their kernels' sockets have to be short.
    with temporary.folder() as place:
        graph = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(place)})
        _wait(graph, parent if made else None, stop, watch)
    if graph.returncode:
        raise subprocess.CalledProcessError(graph.returncode, "snakemake")


def _wait(
    graph: subprocess.Popen, parent: int | None, stop: Callable[[subprocess.Popen], None], watch: Callable[[], bool]
) -> None:
    """Wait until the graph has ended; stop it as `run_graph` says.

    Args:
        graph, stop, watch: see `run_graph`.
        parent: the `make` that started this process; None where no `make` did.
    """
    try:
        while graph.poll() is None:
            if parent is not None and os.getppid() != parent:
                raise Stopped(signal.SIGHUP)
            if not watch():
                stop(graph)
            time.sleep(0.2)
    except BaseException:
        stop(graph)
        raise


def stop(graph: subprocess.Popen, machine_name: str) -> None:
    """End the job that runs, which writes its row, and then the graph; no process and no marker is left.

    Args:
        graph: Snakemake, which starts nothing more.
        machine_name: whose runs it makes.
    """
    if graph.poll() is None:
        graph.send_signal(signal.SIGSTOP)
    members = processes.family(graph.pid)
    jobs = [member for member in members if processes.has_word(member, "benchbook.running.job")]
    for job in jobs:
        job.terminate()
    psutil.wait_procs(jobs, STOP_SECONDS)
    processes.kill(processes.family(graph.pid))
    graph.wait()
    loop.recover(machine_name)


def is_cut_short(points: list[Point], machine_name: str) -> bool:
    """Return whether a session that the next one continues was cut short in one of these points, or after it."""
    file = layout.state(machine_name) / SESSION
    if not file.exists():
        return False
    rows = read_rows(machine_name, lambda line: None)
    begun = rows.loc[rows["session"] == file.read_text(), ["study", "point"]]
    return any(((begun["study"] == point.study) & (begun["point"] == point.name)).any() for point in points)


def _session(folder: Path) -> str:
    """Return the session's name: that of a session cut short, or a new one."""
    file = folder / SESSION
    if not file.exists():
        file.write_text(runs.new_id())
    return file.read_text()


def forget_failure(point: Path) -> bool:
    """Make a point that failed undone; return whether it was one."""
    done = point / "done"
    failed = done.exists() and set(json.loads(done.read_text())["statuses"]) != {"ok"}
    if failed:
        forget(point)
    return failed


def forget(point: Path) -> None:
    """Make a point undone, so that it is measured again; its rows stay."""
    for file in point.glob("*done"):
        file.unlink()
