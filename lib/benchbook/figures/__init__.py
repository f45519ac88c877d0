"""House style, marks of points, and saving a figure with its table: the same rows give the same bytes."""

import html
import io
import json
import re
from pathlib import Path

import matplotlib
import pandas
from matplotlib.figure import Figure

from benchbook import records
from benchbook.figures.house import COLOURS, canvas, colour, span, style
from benchbook.figures.limits import of_few_machines, say_left_out, shown
from benchbook.figures.marks import (
    draw_bars,
    draw_points,
    num_windows,
    size,
    view,
)
from benchbook.figures.words import name_point, num_runs, stand_in

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


MOST_LINES = 300  # of a table in Markdown, which is for reading


def save(
    figure: Figure, table: pandas.DataFrame, folder: Path, name: str, alt: str, picture: bytes | None = None
) -> bytes:
    """Write a figure as SVG and PNG, its table as CSV and Markdown, and what a page needs as JSON; return the PNG.

    Args:
        figure: drawn in the house style; its first title is the caption.
        table: the numbers behind it.
        folder: where to write; it is made.
        name: file name without extension.
        alt: what the figure shows, in words, for those who do not see it.
        picture: the figure from `render`, where that was made before; None: render it now.
    """
    save_table(table, folder, name)
    picture = picture or render(figure)
    (folder / f"{name}.png").write_bytes(picture)
    (folder / f"{name}.svg").write_bytes(render(figure, "svg"))
    title = next(axes.get_title(loc="left") for axes in figure.axes)
    page = {"title": " ".join(title.split()), "alt": alt, "empty": table.empty}
    (folder / f"{name}.json").write_text(json.dumps(page, indent=1) + "\n")
    return picture


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
    """Write a table as CSV (all digits) and Markdown (as read: of very many lines, the first)."""
    folder.mkdir(parents=True, exist_ok=True)
    table = records.as_text(table)
    table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    text = table.head(MOST_LINES).map(_markdown).to_markdown(index=False, floatfmt=".4g")
    more = f"\n{MOST_LINES} of {len(table):,} lines; {name}.csv has all.\n" if len(table) > MOST_LINES else ""
    (folder / f"{name}.md").write_text(f"{text}\n{more}")


def _markdown(value: object) -> object:
    """Return a value as Markdown shows it and does not read it: rows may be of strangers."""
    if not isinstance(value, str):
        return "" if pandas.api.types.is_scalar(value) and pandas.isna(value) else value
    return re.sub(r"[\\`*\[\]|]", r"\\\g<0>", html.escape(" ".join(value.split()), quote=False))
