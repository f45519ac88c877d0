"""The measured points as a table for an analysis of one's own."""

import sys
from pathlib import Path

import pandas

from benchbook.judging import verdicts
from benchbook.machine import condition, layout
from benchbook.machine.terminal import printable
from benchbook.rows import files
from benchbook.studies.checks import CHECKS


def summary(runs: Path, say: files.Say) -> pandas.DataFrame:
    """Return the lines of `verdicts.summarise` of the rows below a folder that no check refuses.

    Args:
        runs, say: see `Checker.read`.
    """
    rows, manifests = CHECKS.read(runs, say)
    return verdicts.summarise(rows, condition.samples(manifests))


def results(folder: str | Path | None = None, machine: str = "") -> pandas.DataFrame:
    """Return a line for each measured point: its rate with an interval, verdict, energy and day.

    docs/data.md explains the columns. What the checks refuse is left out and named on standard
    error.

    Args:
        folder: of rows, such as another checkout's outputs/runs; None: this checkout's.
        machine: its name; empty: all machines.

    Raises:
        ValueError: there is no such folder, or no such machine; the message lists those there are.
    """
    runs = Path(folder) if folder else layout.outputs() / "runs"
    if not runs.is_dir():
        raise ValueError(f"{str(runs)!r} is not a folder; allowed: a folder of machines' rows")
    points = summary(runs, lambda line: print(printable(line), file=sys.stderr))
    names = sorted(set(points["machine"]))
    if machine and machine not in names:
        raise ValueError(f"no machine {machine!r} in {runs}; allowed: {', '.join(names) or 'none'}")
    points["verdict"] = points["verdict"].map(str, na_action="ignore")
    points.insert(0, "day", points["started_at"].str[:10])
    return points[points["machine"].eq(machine)] if machine else points
