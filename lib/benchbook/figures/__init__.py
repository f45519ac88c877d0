"""House style, marks of points, and saving a figure with its table: the same rows give the same bytes."""

import json
from pathlib import Path

import pandas
from matplotlib.figure import Figure

from benchbook.figures.house import COLOURS, canvas, colour, span, style
from benchbook.figures.marks import (
    draw_bars,
    draw_input_shares,
    draw_points,
    num_windows,
    size,
    view,
)

__all__ = [
    "COLOURS",
    "canvas",
    "colour",
    "draw_bars",
    "draw_input_shares",
    "draw_points",
    "num_windows",
    "save",
    "save_table",
    "size",
    "span",
    "style",
    "view",
]


def save(figure: Figure, table: pandas.DataFrame, folder: Path, name: str, alt: str) -> None:
    """Write a figure as SVG and PNG, its table as CSV and Markdown, and what a page needs as JSON.

    Args:
        figure: drawn in the house style; its first title is the caption.
        table: the numbers behind it.
        folder: where to write; it is made.
        name: file name without extension.
        alt: what the figure shows, in words, for those who do not see it.
    """
    title = next(axes.get_title(loc="left") for axes in figure.axes)
    with style():
        folder.mkdir(parents=True, exist_ok=True)
        for axes in figure.axes:
            axes.set_title(axes.get_title(loc="left"), wrap=True)  # rather than cut off at the figure's edge
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
        figure.savefig(folder / f"{name}.png", metadata={"Software": None})
    save_table(table, folder, name)
    told = {"title": " ".join(title.split()), "alt": alt, "empty": table.empty}
    (folder / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def save_table(table: pandas.DataFrame, folder: Path, name: str) -> None:
    """Write a table as CSV (all digits) and Markdown (as read)."""
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    text = table.map(_markdown).to_markdown(index=False, floatfmt=".4g")
    (folder / f"{name}.md").write_text(text + "\n")


def _markdown(value):
    return "" if pandas.isna(value) else value.replace("|", "\\|") if isinstance(value, str) else value
