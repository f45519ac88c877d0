"""House style, marks of points, and saving a figure with its table: the same rows give the same bytes."""

import io
import json
from pathlib import Path

import matplotlib
import pandas
from matplotlib.figure import Figure

from benchbook.judging import verdicts
from benchbook.rows import records
from benchbook.studies.figures.house import COLOURS, canvas, colour, span, style
from benchbook.studies.figures.limits import of_few_machines, say_left_out, shown
from benchbook.studies.figures.marks import draw_bars, draw_points, num_windows, size, view
from benchbook.studies.figures.words import name_point, num_runs, stand_in

__all__ = [
    "COLOURS",
    "canvas",
    "colour",
    "draw_bars",
    "draw_points",
    "name_point",
    "num_runs",
    "num_windows",
    "of_few_machines",
    "render",
    "save",
    "save_table",
    "say_left_out",
    "shown",
    "size",
    "span",
    "stand_in",
    "style",
    "view",
]


def save(figure: Figure, table: pandas.DataFrame, folder: Path, name: str, alt: str) -> None:
    """Write a figure as SVG, its table as CSV, and what a page needs as JSON; a figure of an empty table has no SVG.

    Args:
        figure: drawn in the house style; its first title is the caption.
        table: the numbers behind it.
        folder: where to write; it is made.
        name: file name without extension.
        alt: what the figure shows, in words, for those who do not see it.
    """
    save_table(table, folder, name)
    if not table.empty:
        (folder / f"{name}.svg").write_bytes(render(figure, "svg"))
    title = next(axes.get_title(loc="left") for axes in figure.axes)
    page = {"title": " ".join(title.split()), "alt": alt, "empty": table.empty}
    (folder / f"{name}.json").write_text(json.dumps(page, indent=1) + "\n")


def render(figure: Figure, form: str = "png") -> bytes:
    """Return a figure as the content of a PNG or SVG file; the same figure gives the same bytes.

    Placing titles, labels and legends takes most of the time, so that it is done once for all files of a figure.
    """
    file = io.BytesIO()
    with style():
        if figure.get_layout_engine() is not None:
            _lay_out(figure)
        # With the house style's constrained layout, matplotlib would give the figure a new layout engine afterwards.
        with matplotlib.rc_context({"figure.constrained_layout.use": False}):
            figure.set_layout_engine(None)
            figure.savefig(file, format=form, metadata=_METADATA[form])
    return file.getvalue()


_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def _lay_out(figure: Figure) -> None:
    """Place the parts of a figure; its titles are wrapped rather than cut off at its edge."""
    for axes in figure.axes:
        axes.set_title(axes.get_title(loc="left"), wrap=True)
    figure.get_layout_engine().execute(figure)


def save_table(table: pandas.DataFrame, folder: Path, name: str) -> None:
    """Write a table as CSV, with all digits; a verdict as its kind and its reasons."""
    folder.mkdir(parents=True, exist_ok=True)
    records.as_text(verdicts.as_columns(table)).to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
