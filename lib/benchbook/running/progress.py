"""The lines of one point in the terminal: its title, its progress, and its result."""

import shutil
import sys
import textwrap
import time
from pathlib import Path

import pandas

from benchbook.judging import statistics, verdicts, wording
from benchbook.machine import condition, contention, layout, sessions
from benchbook.record import estimates
from benchbook.rows import manifests, records
from benchbook.running.profiles import Point

MARGIN = 9  # columns before a result
MESSAGE_CHARACTERS = 120  # of a failure; the report and the log have the whole message


class Line:
    """The lines of one point; the title is printed at once.

    Args:
        point: the point that runs.
        machine_name: the machine of the rows.
        position: number of the point in the session, such as "2/12".
    """

    def __init__(self, point: Point, machine_name: str, position: str = "") -> None:
        self.started, self.device = time.monotonic(), point.parameters.get("device", "cpu")
        self.folder = layout.point(machine_name, point.study, point.name)
        self.there = set(records.find(self.folder))
        self.ended, self.so_far = 0, "no process yet"
        print(_wrapped(f"{position:>{MARGIN - 2}}  {point.title}"), flush=True)

    def watch(self, folder: Path) -> None:
        """Show the processes so far and the width of their interval, if the output is a
        terminal."""
        new = [path for path in records.find(folder) if path not in self.there]
        ended = sum(path.with_suffix(".json").exists() for path in new)
        if (
            sys.stdout.isatty() and ended != self.ended
        ):  # reading more often would disturb the windows
            self.ended, point = ended, _judged(folder, new)
            if pandas.notna(point["samples_per_second"]):
                width = wording.half_width(point)
                rate, *_, unit = statistics.in_units(point)
                counted = wording.count(point["num_processes"], "process")
                self.so_far = f"{counted}, {wording.rate(rate)} {unit}/s {width} so far"
        self._draw(self.so_far)

    def wait_until_calm(self, seconds: float) -> float:
        """Wait while others take much of the CPU or the device; return the seconds waited, at most
        so many."""
        return contention.wait_until_calm(seconds, self.device, self._draw)

    def end(self, statuses: list[str], seconds_left: float | None = None) -> None:
        """Print the result.

        Args:
            statuses: of the point's processes.
            seconds_left: estimate until the session ends; 0: none or unknown; None: the point
            was measured before.
        """
        parts = [result(self.folder) or ", ".join(dict.fromkeys(statuses))]
        parts.append(
            "measured before"
            if seconds_left is None
            else wording.duration(time.monotonic() - self.started)
        )
        parts += [f"about {wording.duration(seconds_left)} left"] if seconds_left else []
        print(
            ("\r\033[K" if sys.stdout.isatty() else "") + _wrapped(" " * MARGIN + "; ".join(parts)),
            flush=True,
        )

    def _draw(self, state: str) -> None:
        if sys.stdout.isatty():
            taken = wording.duration(time.monotonic() - self.started)
            print(f"\r\033[K{' ' * MARGIN}{state}; {taken}", end="", flush=True)


def result(folder: Path) -> str:
    """Return the doubts, the rate and the interval of a point's rows, or how it failed; empty
    without rows."""
    point = _judged(folder, records.find(folder))
    if not point:
        return ""
    parts = []
    if point["status"] != "ok" or point["message"]:
        failure = ": ".join(filter(None, (point["status"], point["message"]))).removeprefix("ok: ")
        parts.append(textwrap.shorten(failure, MESSAGE_CHARACTERS, placeholder=" ..."))
    if pandas.notna(point["samples_per_second"]):
        rate, low, high, unit = statistics.in_units(point)
        bounds = wording.bounds(low, high, point["interval"], wording.rate)
        parts.append(f"{wording.rate(rate)} {unit}/s ({bounds})")
        known = [name for name in ("model", "image_size", "precision") if pandas.notna(point[name])]
        if len(known) == 3 and (other := estimates.neighbour(*(point[name] for name in known))):
            parts.append(f"{other.chip} {wording.rate(other.value)}, published")
    if (
        point["status"] == "ok" and point["verdict"] and point["verdict"].is_doubtful
    ):  # ceilings have no verdict
        parts.insert(0, str(point["verdict"]))
    return "; ".join(parts)


def _judged(folder: Path, paths: list[Path]) -> dict:
    """Return the line of a point's summary, from some of its files; empty without rows. If the
    reader measured it, the rows of others do not count."""
    rows = records.gather(paths, lambda line: None)
    is_own = rows["session"].isin(sessions.own())
    rows = rows[is_own] if is_own.any() else rows
    judged = (
        verdicts.summarise(rows, condition.samples(manifests.read_all(folder)))
        if len(rows)
        else rows
    )
    return next(iter(judged.to_dict("records")), {})


def _wrapped(text: str) -> str:
    """Return a text in lines that fit the terminal, without broken words."""
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        text, width, subsequent_indent=" " * MARGIN, drop_whitespace=True, break_long_words=False
    )
