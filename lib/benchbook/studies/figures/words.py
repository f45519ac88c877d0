"""What points, bars and curves are called in charts."""

import pandas

from benchbook.record import naming
from benchbook.record.naming import Names


def name_point(line: dict, *words: str, names: Names, dataset: str) -> str:
    """Return what a point is called: its machine and device; below words, a stand-in's name and a printed one's source.

    Args:
        line: with machine, device and dataset; source where the table has it.
        words: what tells the point from others of its device; empty ones are left out.
        names: of machines.
        dataset: the study's own.
    """
    source = line.get("source", "measured")
    parts = [*words, stand_in(line, dataset), "" if source == "measured" else source]
    return "\n".join(filter(None, (names.place(line), ", ".join(filter(None, parts)))))


def stand_in(line: dict, dataset: str) -> str:
    """Return the name of the data set that stood in for a study's own, else nothing.

    Args:
        line: with dataset, missing where a point failed before it had one.
        dataset: the study's own.
    """
    return "" if pandas.isna(line["dataset"]) or line["dataset"] == dataset else naming.dataset(line["dataset"])


def num_runs(curve: pandas.DataFrame) -> str:
    """Return how many runs the points of a curve are from, to stand after a label; of one run nothing."""
    most = curve["num_runs"].max()
    return f", range of {most} runs" if most > 1 else ""
