"""The house style: fonts and colours of every figure."""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchbook.studies.figures import limits

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
    "figure.constrained_layout.w_pad": 0.14,  # an SVG's text is wider than the PNG's that its place was measured for
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "hatch.linewidth": 1.5,
    "legend.frameon": False,
    "svg.hashsalt": "benchbook",  # without it, element ids differ from run to run
    "svg.fonttype": "path",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house style inside a `with` block."""
    with matplotlib.rc_context(STYLE):
        yield


def canvas(height: float, width: float = 8.0, panels: int = 1, **options) -> tuple[Figure, numpy.ndarray | Axes]:
    """Return a figure and its axes, side by side where there are several panels.

    Args:
        height, width: in inches; none is taller than `limits.TALLEST`.
        panels: how many axes.
        options: for `Figure.subplots`.
    """
    figure = Figure(figsize=(width, min(height, limits.TALLEST)))
    FigureCanvasAgg(figure)  # placing the parts and drawing the PNG then measure each text once
    return figure, figure.subplots(**{"ncols": panels, **options})


def colour(device: str) -> str:
    """Return a device's colour: one for CPUs, one for accelerators."""
    return COLOURS["cpu" if device == "cpu" else "accelerator"]


def span(values: pandas.Series, form: str) -> str:
    """Return the least and the most of some values as a title says them; where both read alike, once.

    Args:
        values: of which there is at least one.
        form: a format specification, such as `.0%`.
    """
    low, high = f"{values.min():{form}}", f"{values.max():{form}}"
    return low if low == high else f"{low} to {high}"
