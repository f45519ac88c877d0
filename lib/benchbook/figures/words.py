"""What points, bars and curves are called, and what articles printed, in the words of charts."""

import pandas

from benchbook.figures.house import span


def name_point(line: dict, *words: str, dataset: str) -> str:
    """Return what a point is called: its machine; below it device, words, a stand-in's name and a printed one's source.

    Args:
        line: with machine, device and dataset; source where it is known.
        words: what tells the point from others of its device; empty ones are left out.
        dataset: the study's own.
    """
    source = line.get("source", "measured")
    parts = (line["device"], *words, stand_in(line, dataset), "" if source == "measured" else source)
    return f"{line['machine']}\n" + ", ".join(part for part in parts if part)


def stand_in(line: dict, dataset: str) -> str:
    """Return the name of the data set that stood in for a study's own, else nothing.

    Args:
        line: with dataset, missing where a point failed before it had one.
        dataset: the study's own.
    """
    return "" if pandas.isna(line["dataset"]) or line["dataset"] == dataset else line["dataset"]


def num_runs(curve: pandas.DataFrame) -> str:
    """Return how many runs the points of a curve are from, to stand after a label; of one run nothing."""
    most = curve["num_runs"].max()
    return f", range of {most} runs" if most > 1 else ""


def published_span(values: pandas.Series, form: str, unit: str) -> str:
    """Return what articles printed, as a title says it.

    Args:
        values: what they printed; there may be none.
        form: a format specification, such as `.0%`.
        unit: of the values.
    """
    return f"published {span(values, form)} {unit}" if len(values) else "none published"
