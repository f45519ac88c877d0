"""House style, and saving a figure with its table: the same rows give the same bytes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision: https://jfly.uni-koeln.de/color/
COLOURS = {
    "cpu": "#0072B2",
    "accelerator": "#D55E00",
    "published": "#999999",
    "setup": "#CC79A7",
    "evaluate": "#56B4E9",
    "line": "#000000",
}

STYLE = {
    "figure.figsize": (8.0, 4.0),
    "figure.dpi": 120,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "svg.hashsalt": "benchbook",  # without it, element ids differ from run to run
    "svg.fonttype": "path",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house style inside a `with` block."""
    with matplotlib.rc_context(STYLE):
        yield


def colour(device: str) -> str:
    """Return a device's colour: one for CPUs, one for accelerators."""
    return COLOURS["cpu" if device == "cpu" else "accelerator"]


def draw_whiskers(axes: Axes, order: pandas.DataFrame, column: str) -> None:
    """Draw each bar's interval; where a line has none, none is drawn.

    Args:
        axes: with a horizontal bar for each line of the table.
        order: the table, its index the bars' positions, with columns low and high.
        column: the bars' lengths.
    """
    value, low, high = (order[name].astype(float) for name in (column, "low", "high"))
    errors = [(value - low).clip(lower=0), (high - value).clip(lower=0)]
    axes.errorbar(value, order.index, xerr=errors, fmt="none", color=COLOURS["line"], capsize=3)


def draw_input_shares(axes: Axes, shares: pandas.DataFrame, labels: list[str], ready: str, digits: int = 0) -> None:
    """Draw, one line of the table above the other, the share of a step the host waited and the share that is input.

    Args:
        axes: where to draw.
        shares: with columns waited and share, both fractions; a missing share is not drawn.
        labels: what each line is called.
        ready: what would save the share, after "saved if".
        digits: of the percentages written beside the bars.
    """
    height, places = 0.38, range(len(shares))[::-1]  # the first line on top
    both = (("waited", 1, "host waited for input"), ("share", -1, f"saved if {ready}"))
    for (column, side, label), shade in zip(both, ("#999999", COLOURS["cpu"]), strict=True):
        values = pandas.Series(shares[column].astype(float).array, index=places).sort_index()
        axes.barh(values.index + side * height / 2, values, height, color=shade, label=label)
        for position, value in values.dropna().items():
            axes.text(max(value, 0), position + side * height / 2, f"  {value:.{digits}%}", va="center", fontsize=9)
    axes.set_yticks(range(len(shares)), labels[::-1])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.axvline(0, color=COLOURS["line"], linewidth=1)
    axes.margins(x=0.15)
    axes.set_xlabel("share of training time")
    axes.figure.legend(loc="outside lower center", ncols=2, fontsize=8)


def patches(names: dict[str, str]) -> list:
    """Return a legend's entries: a name of COLOURS to what it stands for."""
    from matplotlib.patches import Patch

    return [Patch(color=COLOURS[name], label=label) for name, label in names.items()]


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
