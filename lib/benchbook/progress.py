"""One line per point in the terminal: what runs, how far it is, and how it ended."""

import os
import sys
import time

from benchbook import layout, machine, records, statistics
from benchbook.profiles import Point
from benchbook.runs import Run


class Line:
    """The line of one point.

    Its number comes from BENCHBOOK_POINTS, the names of this session's points in their order.

    Args:
        point: what runs.
        kernel: which of its kernels, from 1; None: all.
    """

    def __init__(self, point: Point, kernel: int | None = None) -> None:
        names = os.environ.get("BENCHBOOK_POINTS", "").split()
        position = f"{names.index(point.name) + 1}/{len(names)}" if point.name in names else ""
        self.title = f"{position:>6}  {point.study}  {point.name}"
        if kernel and point.num_kernels > 1:
            self.title += f"  kernel {kernel} of {point.num_kernels}"
        self.started = time.monotonic()
        self.folder = layout.runs(machine.identify().name) / point.study / point.name
        self._draw("starting")

    def watch(self, run: Run) -> None:
        """Show phase and windows so far, where somebody looks at a terminal."""
        windows = max(0, run.path.read_bytes().count(b"\n") - 1) if run.path.exists() else 0
        self._draw(f"{windows} rows")

    def end(self, statuses: list[str]) -> None:
        """Write the outcome and keep the line."""
        seconds = time.monotonic() - self.started
        text = f"{self.title}  {', '.join(dict.fromkeys(statuses))}  {seconds:.0f} s{self._rate()}"
        print(("\r\033[K" if sys.stdout.isatty() else "") + text, flush=True)

    def _draw(self, state: str) -> None:
        if sys.stdout.isatty():
            print(f"\r\033[K{self.title}  {state}  {time.monotonic() - self.started:.0f} s", end="", flush=True)

    def _rate(self) -> str:
        paths = records.find(self.folder) if self.folder.exists() else []
        summary = statistics.summarise(records.gather(paths, lambda line: None))
        if summary["samples_per_second"].isna().all():
            return ""
        best = summary.iloc[0]
        return f"  {rate_text(best['samples_per_second'])} images/s (spread {best['spread']:.1%})"


def rate_text(rate: float) -> str:
    """Return a rate as it is read: whole, or with two digits where it is below ten."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
