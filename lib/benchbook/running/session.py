"""One `make study`: run every point, one process at a time, then summarise.

A point that is over gets a file `<point>/done` in the folder of `layout.state`. If a session is cut
short, the same command measures the remaining points under the name of that session.
"""

import errno
import json
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import pandas

from benchbook.judging import intervals, rules, verdicts, wording
from benchbook.machine import contention, context, identity, layout, temporary, variables
from benchbook.machine.awake import awake
from benchbook.machine.stopping import Stopped
from benchbook.measuring import runs, tuned
from benchbook.rows import ceilings, records
from benchbook.running import execute, series
from benchbook.running.profiles import CALIBRATION, Point
from benchbook.running.progress import Line
from benchbook.studies.checks import CHECKS
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.experiments.parameters import budget
from benchbook.studies.experiments.process import CHECK
from benchbook.studies.results import points as results

NEEDED_BYTES = 200 * 2**20
OUT_OF_MEMORY = "out_of_memory"
FIRST_ANSWERS = 3  # points after which a user may stop
POINTS_OF_PATIENCE = (
    2.5  # a study loses at most so many times what a point may, see `contention.patience`
)
SESSION = ".session"  # the file that names a machine's session until all of its points are done
END_SECONDS = 10.0  # to end a point at the deadline, and to print the summary
START_SECONDS = 5.0  # of each point's notebook, outside the processes that it starts
PROCESS_SECONDS = (
    8.0  # of a process outside its windows, on a machine that has measured nothing yet
)


UNLIKE = 2.0  # the factor by which the rate of another setting may be off


class Missing(RuntimeError):
    """A point of the profile has no rows."""


def measure(
    points: list[Point], name: str, retry: bool = False, deadline: float = math.inf
) -> list[tuple[Point, str]]:
    """Run every point that is not done yet, on this computer.

    A session that was cut short continues under its own name, so its finished runs are not
    repeated.

    Args:
        points: from `profiles.read`.
        name: of the machine.
        retry: run failed and unstable points again; if there are any, a new session begins.
        deadline: on the monotonic clock.

    Returns:
        The points that are left for the next call, each with the reason; see `Session`.

    Raises:
        RuntimeError: another study runs on this machine.
        OSError: rows cannot be written.
        ValueError: the disk is almost full.
        Stopped: this process was asked to stop; finished windows are kept.
    """
    folder = layout.state(name)
    check_room(folder)
    with execute.only_one(folder / ".study.lock"), awake():
        file = folder / SESSION
        again = _unreliable(points, name) if retry else ()
        for point in again:
            forget(_state(name, point))
        if again:
            file.unlink(missing_ok=True)
        if not (
            file.exists() and layout.is_name(file.read_text(errors="replace"))
        ):  # a power cut may damage it
            temporary.write(file, runs.new_id())
        with context.changed(session=file.read_text(), machine=name):
            left_out = Session(points, name, deadline).run()
        if not left_out:
            file.unlink()
    return left_out


class Session:
    """The points of one `make study`, in the profile's order.

    A point starts only if its estimate ends before the deadline. One that takes longer is
    stopped there and keeps its finished windows. A point that fails writes a row and counts as
    done; so does one whose batch is too large.

    Args:
        points, machine_name: in the profile's order; of the rows.
        deadline: on the monotonic clock. With a deadline, the session does not wait for a calm
        machine.

    Attributes:
        left_out: points that did not fit, were stopped or could not run, with reasons.
    """

    def __init__(self, points: list[Point], machine_name: str, deadline: float = math.inf) -> None:
        recover(machine_name)
        self.points, self.machine, self.end = points, machine_name, deadline - END_SECONDS
        self.left_out: list[tuple[Point, str]] = []
        self._spent: list[tuple[float, float]] = []
        self._failed: list[Point] = []
        self._patience = contention.patience() if math.isinf(deadline) else 0.0
        lost = sum(_lost(point, machine_name) for point in points)
        self._left = POINTS_OF_PATIENCE * self._patience - lost
        self._estimates = _estimates(points, machine_name)

    def run(self) -> list[tuple[Point, str]]:
        """Run every point that is not done yet; return `left_out`."""
        print(_announced(self.points, self.machine, self._estimates), flush=True)
        for number, point in enumerate(self.points, start=1):
            statuses, position = self._known(point), f"{number}/{len(self.points)}"
            if statuses:
                Line(point, self.machine, position).end(statuses)
            elif self._fits(point):
                self._take(point, Line(point, self.machine, position), self.points[number:])
        return self.left_out

    def _known(self, point: Point) -> list[str]:
        """Return the statuses of a point that is done or whose batch is too large."""
        statuses = _statuses(_state(self.machine, point))
        if not statuses and (reason := series.too_large(point, self._failed)):
            statuses = execute.skip(point, self.machine, OUT_OF_MEMORY, reason)
            _write_done(_state(self.machine, point), statuses)
        self._remember(point, statuses)
        return statuses

    def _remember(self, point: Point, statuses: list[str]) -> None:
        if OUT_OF_MEMORY in statuses:
            self._failed.append(point)

    def _fits(self, point: Point) -> bool:
        """Return whether a point ends before the deadline; one that does not is left out."""
        estimate, until = self._estimates[point.key], max(0.0, self.end - time.monotonic())
        wanted = START_SECONDS if math.isnan(estimate) else estimate
        if wanted > until:
            reason = f"needs about {wanted:.0f} s, {until:.0f} s were left"
            self.left_out.append((point, reason))
        return wanted <= until

    def _take(self, point: Point, line: Line, later: list[Point]) -> None:
        """Measure a point, and print its result and the time that later ones take."""
        estimate = self._estimates[point.key]
        try:
            statuses = self._attempt(point, line)
        except Stopped:
            line.end(["interrupted"], 0)
            raise
        except Exception as error:  # the next point may succeed
            is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            if is_full or os.environ.get("BENCHBOOK_DEBUG"):
                raise
            self.left_out.append((point, f"{type(error).__name__}: {error}"))
            statuses = [type(error).__name__]
        if point.study == CALIBRATION:
            self._estimates = _estimates(self.points, self.machine)
        else:
            self._spent.append((time.monotonic() - line.started, estimate))
        seconds_left = _left(self._spent, [self._estimates[each.key] for each in later])
        line.end(statuses, seconds_left)
        if len(self._spent) == FIRST_ANSWERS and later:
            many = f"the other {wording.count(len(later), 'point')} take about {wording.duration(seconds_left)}"
            print(f"First answers are above; {many}; Ctrl-C keeps all.", flush=True)

    def _attempt(self, point: Point, line: Line) -> list[str]:
        """Run a point once the machine is calm; return the statuses of its processes."""
        before, allowed = _lost(point, self.machine), max(0.0, min(self._patience, self._left))
        waited = line.wait_until_calm(allowed)
        statuses = execute.execute(point, self.machine, line.watch, self.end, allowed - waited)
        self._left -= waited + _lost(point, self.machine) - before
        if "interrupted" in statuses:
            reason = "stopped by the deadline; its finished windows are kept"
            self.left_out.append((point, reason))
        else:
            _write_done(_state(self.machine, point), statuses)
            self._remember(point, statuses)
        return statuses


def _estimates(points: list[Point], machine_name: str) -> dict[tuple[str, str], float]:
    lines = estimate_seconds(points, machine_name).set_index(["study", "point"])
    return lines["seconds"].astype(float).to_dict()


def _announced(
    points: list[Point], machine_name: str, estimates: dict[tuple[str, str], float]
) -> str:
    """Return how many points are to be measured, how long they should take, and which variables of
    the environment change some."""
    new = [point for point in points if not is_done(_state(machine_name, point))]
    known = [estimates[point.key] for point in new if not math.isnan(estimates[point.key])]
    some = f" for {len(known)} of them" if len(known) < len(new) else ""
    lasting = f", about {wording.duration(sum(known))}{some}" if known else ""
    lines = [f"{wording.count(len(new), 'point')} to measure on {machine_name}{lasting}."]
    users = identity.users_variables()
    changed = Counter(variables.changed(point.parameters, users) for point in new)
    lines += [
        f"{text}: {wording.count(count, 'point')} will be marked as changed. Unset it to measure"
        " without."
        for text, count in changed.items()
        if text
    ]
    return "\n".join(lines)


def _left(spent: list[tuple[float, float]], later: list[float]) -> float:
    """Return how many seconds later points should take, from their estimates.

    Starts, and waits for a calm machine, make points longer than estimated, so estimates are
    scaled by the points that have run. A point without an estimate should take as long as those
    on average.

    Args:
        spent: of each point that has run, its seconds and its estimate (NaN: none).
        later: estimates of later points (NaN: none).
    """
    known = [pair for pair in spent if not math.isnan(pair[1])]
    scale = (
        sum(taken for taken, _ in known) / sum(estimate for _, estimate in known) if known else 1.0
    )
    mean = sum(taken for taken, _ in spent) / len(spent) if spent else 0.0
    return sum(mean if math.isnan(each) else scale * each for each in later)


def _lost(point: Point, machine_name: str) -> float:
    """Return how many seconds a point of this session has lost to others."""
    return (
        Measurement(point.study, machine_name, point.parameters, context.current().session)
        .state()
        .lost
    )


def is_done(folder: Path) -> bool:
    """Return whether a point is over, in a folder of `layout.state`."""
    return bool(_statuses(folder))


def _state(machine_name: str, point: Point) -> Path:
    return layout.state(machine_name) / point.study / point.name


def _write_done(folder: Path, statuses: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    temporary.write(folder / "done", json.dumps({"statuses": statuses}) + "\n")


def _statuses(folder: Path) -> list[str]:
    """Return the statuses of a done point's runs; empty if the point is not done or its file is
    damaged."""
    try:
        return [str(status) for status in json.loads((folder / "done").read_text())["statuses"]]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def recover(machine_name: str) -> None:
    """Write the failure rows of a machine's runs whose process is gone; see `runs.recover`."""
    for path in layout.runs(machine_name).rglob("*.running"):
        runs.recover(path.parent)


def check_room(folder: Path) -> None:
    """Refuse to begin if rows cannot be written.

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


def summary(
    points: list[Point], machine_name: str, left_out: Sequence[tuple[Point, str]] = ()
) -> pandas.DataFrame:
    """Return one line per point, in the profile's order: the columns of `statistics.summarise`,
    and the verdict.

    Args:
        points: of the session.
        machine_name: the machine of the rows.
        left_out: points that may lack rows.

    Raises:
        Missing: a point has no rows; the message names each.
    """
    said = []  # the report says it as well
    summaries = _judged(machine_name, said.append)
    measured = {(each["study"], each["point"]): each for each in summaries.to_dict("records")}
    excused = {point.key for point, _ in left_out}
    missing = [point for point in points if point.key not in measured.keys() | excused]
    if missing:
        names = ", ".join(f"{point.study}/{point.name}" for point in missing)
        raise Missing("; ".join([f"no rows for {names}", *said]))
    lines = [measured[point.key] for point in points if point.key in measured]
    return pandas.DataFrame(lines, columns=summaries.columns)


def _judged(machine_name: str, say: Callable[[str], object]) -> pandas.DataFrame:
    """Return the summary of a machine's rows, without those of others under its name."""
    judged = results.summary(layout.runs(machine_name), say)
    return judged[judged["machine"] == machine_name]


def estimate_seconds(points: list[Point], machine_name: str) -> pandas.DataFrame:
    """Return an estimate of each point's time.

    A point that this machine has measured is expected to take as long again, in as many
    processes as make it known. One that only another machine has measured takes as long as
    there, scaled by both machines' matrix products. Another point takes as long as its windows
    last, and for each process the machine's median time outside windows. Windows of so many
    images last as long as at the rate of this machine's nearest point of the study, which may be
    off by UNLIKE. The bounds are those of the fewest and the most processes. The time limit is
    the upper bound either way.

    Returns:
        Columns: study, point, num_processes (expected), seconds, low, high (missing where nothing
        like it was measured yet), limit_seconds.
    """
    folder = layout.outputs() / "runs"
    rows, described = CHECKS.read(folder, str)
    trained = rows["phase"].eq("train")
    timed = rows.assign(seconds=rows["seconds"].where(trained, 0.0).astype(float))
    timed = timed.assign(rate=rows["samples_per_second"].where(trained).astype(float))
    groups = timed.groupby(["run_id", "machine", "device", "session", "study", "point"])
    taken = groups.agg(
        seconds=("seconds", "sum"), rate=("rate", "median"), epoch=("dataset_samples", "max")
    ).reset_index()  # the oldest first
    for column, key in (("process", "process_seconds"), ("number", "process")):
        told = [described.get(run_id, {}).get(key) for run_id in taken["run_id"]]
        taken[column] = pandas.Series(told, taken.index, float)
    taken["parameters"] = [
        described.get(run, {}).get("parameters") or {} for run in taken["run_id"]
    ]
    taken = taken[taken["process"] > 0].assign(outside=taken["process"] - taken["seconds"])
    best = records.having(ceilings.ceilings(rows), model="matmul", precision="fp32")
    products = best.groupby(["machine", "device"])["rate"].max().to_dict()
    lines = [
        (*point.key, *_estimate(point, machine_name, taken, products), point.limit_seconds)
        for point in points
    ]
    table = pandas.DataFrame(
        lines,
        columns=["study", "point", "num_processes", "seconds", "low", "high", "limit_seconds"],
    )
    ends = ["seconds", "low", "high"]
    return table.assign(**table[ends].clip(upper=table["limit_seconds"], axis=0))


def _estimate(
    point: Point, machine_name: str, taken: pandas.DataFrame, products: dict
) -> tuple[int, float, float, float]:
    """Return the expected processes and the seconds of a point, with their bounds.

    Args:
        point, machine_name: see `estimate_seconds`.
        taken: each run's seconds, of its process, in its windows and outside, its rate, the
        images of an epoch, and its parameters.
        products: rates of matrix products by machine and device.
    """
    plan, most = point.parameters, point.parameters.get("num_processes", 1)
    fewest = plan.get("fewest_processes", most)
    again = taken[(taken["study"] == point.study) & (taken["point"] == point.name)]
    own, here = again["machine"] == machine_name, taken[taken["machine"] == machine_name]
    deviation, factor = rules.STEADY, 1.0
    if len(again := again[own] if own.any() else again):
        again = again[again["session"] == again["session"].iloc[-1]]
        places = [
            (machine, plan["device"]) for machine in (again["machine"].iloc[-1], machine_name)
        ]
        there, this = (products.get(place, math.nan) for place in places)
        scale = 1.0 if own.any() or math.isnan(there / this) else there / this
        is_check = again["number"] == CHECK
        spread = numpy.log(again.loc[~is_check, "rate"]).std()
        deviation = spread if spread >= 0 else deviation
        once = scale * again.loc[is_check, "process"].sum()
        each = scale * again.loc[~is_check, "process"].mean()
    else:
        outside = here["outside"].median() if len(here) else PROCESS_SECONDS
        window, factor = _window(point, here)
        is_tuned = plan.get("variant") == "tuned"
        repeats = plan.get("num_repeats", 1)
        windows = repeats * plan.get("num_windows", 1) + is_tuned * len(tuned.ORDER)
        each = outside + (60 * plan.get("sustained_minutes", 0) or windows * window)
        each += plan.get("cooldown_seconds", 0) * (repeats - 1)
        # One more process searches and compares with float64.
        once = outside + is_tuned * plan.get("search_seconds", 0)
    count = intervals.processes_needed(deviation, plan.get("processes_part", 0.0), fewest, most)
    return count, *(
        START_SECONDS + once + number * each * by
        for number, by in ((count, 1.0), (fewest, 1 / factor), (most, factor))
    )


def _window(point: Point, here: pandas.DataFrame) -> tuple[float, float]:
    """Return how long a point's windows last, and the factor by which that may be off; NaN if
    nothing like it was measured.

    Args:
        point: that was not measured anywhere.
        here: see `_estimate`, of this machine.
    """
    plan, least = point.parameters, point.parameters.get("window_seconds", 0)
    if least or "num_repeats" not in plan:  # a calibration has no repeats
        return (least if "num_repeats" in plan else math.nan), 1.0
    like = here[here["study"].eq(point.study) & here["rate"].gt(0)]
    like = like[like["device"].eq(plan["device"])]
    if like.empty or (plan.get("sequence_length") and not plan.get("samples_per_window")):
        return math.nan, 1.0
    choices = plan.keys() - budget(point.study).keys()
    differ = like["parameters"].map(
        lambda own: sum(plan[name] != own[name] for name in choices & own.keys())
    )
    nearest = like.iloc[differ.argmin()]
    size, own = plan.get("image_size"), nearest["parameters"].get("image_size")
    work = (size / own) ** 2 if size and own else 1.0
    samples = plan.get("samples_per_window") or plan.get("num_images") or nearest["epoch"]
    return float(samples) * work / nearest["rate"], UNLIKE if min(differ) else 1.0


def _unreliable(points: list[Point], machine_name: str) -> list[Point]:
    """Return the points that failed, and those that are unstable."""
    judged = _judged(machine_name, str)
    unstable = judged[judged["verdict"].map(verdicts.is_unstable).astype(bool)]
    keys = {*zip(unstable["study"], unstable["point"], strict=True)}
    failed = {
        point.key
        for point in points
        if not {"ok"}.issuperset(_statuses(_state(machine_name, point)))
    }
    return [point for point in points if point.key in keys | failed]


def forget(point: Path) -> None:
    """Mark a point as not done, so that it is measured again; its rows stay."""
    (point / "done").unlink(missing_ok=True)
