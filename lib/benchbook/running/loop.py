"""The loop of a study: one kernel after the other, each in a process of its own, until all are done or time is up."""

import json
import math
import os
import time
from dataclasses import dataclass

from benchbook.machine import layout
from benchbook.machine.processes import Stopped
from benchbook.measuring import runs
from benchbook.rows import marker
from benchbook.running import execute, profiles
from benchbook.running.profiles import Point
from benchbook.running.progress import Line

END_SECONDS = 10.0  # to end a kernel at its limit, and to show what was measured


@dataclass(frozen=True)
class LeftOut:
    """A point that the loop has not finished; the next call goes on with it.

    Attributes:
        point: which.
        reason: why, for people.
    """

    point: Point
    reason: str


def run(points: list[Point], machine_name: str, deadline: float = math.inf) -> list[LeftOut]:
    """Run every kernel that is not done yet, in the order of `profiles.rounds`.

    A kernel starts if the longest it may take ends before the deadline. A kernel that fails is a row, and done. Runs
    that the session of this name (BENCHBOOK_SESSION) finished are not repeated.

    Args:
        points: in the profile's order.
        machine_name: whose rows these are.
        deadline: on the monotonic clock. With one, no time is spent on waiting for a calm machine.

    Returns:
        The points that no longer fitted, and those whose run could not be supervised.

    Raises:
        Stopped: after the `interrupted` row was written.
    """
    recover(machine_name)
    session, left_out = os.environ["BENCHBOOK_SESSION"], {}
    for point, kernel in profiles.rounds(points):
        done = layout.state(machine_name) / point.study / point.name / "done"
        if point.name in left_out:
            continue
        if done.exists() and len(json.loads(done.read_text())["statuses"]) >= point.num_kernels:
            continue
        finished = execute.finished(layout.runs(machine_name) / point.study / point.name, session)
        if kernel <= len(finished) and kernel < point.num_kernels:
            continue
        wanted = max(0, kernel - len(finished)) * point.time_limit_seconds
        left = max(0.0, deadline - END_SECONDS - time.monotonic())
        if wanted > left:
            reason = f"needs up to {wanted} s, {left:.0f} s were left"
            left_out[point.name] = LeftOut(point, reason)
            continue
        line = Line(point, kernel)
        try:
            if math.isinf(deadline):
                line.wait_until_calm()
            statuses = execute.execute(point, machine_name, line.watch, kernel)
            if kernel == point.num_kernels:
                done.parent.mkdir(parents=True, exist_ok=True)
                marker.replace(done, json.dumps({"statuses": statuses}) + "\n")
        except Stopped:
            line.end(["interrupted"])
            raise
        except Exception as error:  # the next point may go well
            if os.environ.get("BENCHBOOK_DEBUG"):
                raise
            left_out[point.name] = LeftOut(point, f"{type(error).__name__}: {error}")
            statuses = [type(error).__name__]
        line.end(statuses)
    return list(left_out.values())


def recover(machine_name: str) -> None:
    """End every run of a machine whose process is gone, as `runs.recover` does for a point."""
    for path in layout.runs(machine_name).rglob("*.running"):
        runs.recover(path.parent)
