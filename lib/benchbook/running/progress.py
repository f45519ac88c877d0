"""One line per point in the terminal: its point, its progress and its result."""

import os
import sys
import time
from pathlib import Path

from benchbook.judging import statistics, verdicts, wording
from benchbook.machine import condition, contention, layout
from benchbook.rows import manifests, records
from benchbook.running.profiles import Point

PATIENCE_SECONDS = 60.0


class Line:
    """The line of one point.

    Args:
        point: the point that runs.
        machine_name: the machine of the rows.
        position: number of the point in the session, such as "2/12".
    """

    def __init__(self, point: Point, machine_name: str, position: str = "") -> None:
        self.title = f"{position:>6}  {point.title}"
        self.started = time.monotonic()
        self.folder = layout.point(machine_name, point.study, point.name)
        self.there = set(records.find(self.folder))
        self._draw("starting")

    def watch(self, folder: Path) -> None:
        """Show the number of rows so far, if the output is a terminal."""
        new = [path for path in records.find(folder) if path not in self.there]
        lines = sum(len(path.read_bytes().splitlines()) - 1 for path in new)
        self._draw(f"{lines} rows of {len(new)} processes")

    def wait_until_calm(self) -> None:
        """Wait, with a message, while other processes take much of the CPU; at most BENCHBOOK_PATIENCE seconds."""
        patience = float(os.environ.get("BENCHBOOK_PATIENCE", PATIENCE_SECONDS))
        deadline, announced = time.monotonic() + patience, False
        while patience and (share := contention.others_share()) > contention.OTHERS_SHARE:
            if not announced:
                announced = True
                print(f"{self.title}  other processes take {share:.0%} of the CPU: waiting for them", flush=True)
            if time.monotonic() > deadline:
                print(f"{self.title}  continuing; the result will be marked unstable", flush=True)
                return

    def end(self, statuses: list[str], seconds_left: float = 0.0) -> None:
        """Write the outcome and keep the line.

        Args:
            statuses: of the point's processes.
            seconds_left: estimate until the session ends; 0: none or unknown.
        """
        failed = "" if set(statuses) == {"ok"} else f"  {', '.join(dict.fromkeys(statuses))}"
        text = f"{self.title}{failed}{self._rate()}  {wording.duration(time.monotonic() - self.started)}"
        text += f"  (about {wording.duration(seconds_left)} left)" if seconds_left else ""
        print(("\r\033[K" if sys.stdout.isatty() else "") + text, flush=True)

    def _draw(self, state: str) -> None:
        if sys.stdout.isatty():
            taken = wording.duration(time.monotonic() - self.started)
            print(f"\r\033[K{self.title}  {state}  {taken}", end="", flush=True)

    def _rate(self) -> str:
        rows = records.gather(records.find(self.folder), lambda line: None)
        summary = verdicts.summarise(rows, condition.samples(manifests.read_all(self.folder)) if len(rows) else None)
        if summary["samples_per_second"].isna().all():
            return ""
        best = summary.iloc[0]
        rate, _, _, unit = statistics.in_units(best)
        rate = f"  {wording.rate(rate)} {unit}/s"
        return rate + (f" ({best['verdict']})" if best["verdict"].is_doubtful else "")
