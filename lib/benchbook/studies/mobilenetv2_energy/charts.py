"""Charts of the MobileNetV2 study, and the sentences above them."""

import textwrap

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import figures, records
from benchbook.studies.mobilenetv2_energy import tables
from benchbook.study import Drawing, Evidence

DASHES = {"tensorflow": "-", "jax": "--", "torch": ":", "mlx": "-."}
MARKERS = "os^vDP*X"
# Columns in which the points of one curve differ.
NO_CURVE_OF_ITS_OWN = ("images_seen", "loss", "low", "high", "num_runs", "accuracy", "status")


def settings(evidence: Evidence) -> Drawing:
    """Draw images a second and joules an image of every setting; a cross and a word where it failed."""
    table = tables.settings(evidence)
    figure, (left, right) = figures.canvas(1.8 + 0.42 * len(table), 12.0, panels=2, sharey=True)
    rate = "images_per_second"
    drawn = figures.shown(table, rate)
    figures.say_left_out(right, drawn, table, "the fastest")
    figures.draw_bars(left, drawn, rate, name=_name, text=lambda line: f"{line[rate]:,.0f}")
    left.set(xlabel="images a second, training", title=_folded(rates_title(table)))
    read = drawn.assign(low=drawn["joules_low"], high=drawn["joules_high"])
    figures.draw_bars(right, read, "joules_per_image", name=_name, text=_joules)
    right.set(xlabel="joules an image", title=_folded(joules_title(table)))
    right.margins(x=0.4)
    joules = joules_title(table)
    alt = f"Bars of images a second and of joules an image. {rates_title(table)}. {joules}."
    return Drawing(figure, table, alt, joules)


def losses(evidence: Evidence) -> Drawing:
    """Draw the loss over images seen, and judge whether the frozen network converges."""
    table = tables.losses(evidence)
    figure, axes = figures.canvas(max(4, 1 + 0.17 * len(_curves(table))), 12.0)
    curves = _curves(figures.of_few_machines(axes, table))
    _draw_curves(axes, curves, several=table["machine"].nunique() > 1)
    axes.axhline(numpy.log(tables.NUM_CLASSES), color=figures.COLOURS["published"], linewidth=1)
    axes.set(xlabel="images seen", ylabel="loss (grey: of guessing)")
    axes.set_ylim(0, 1.1 * axes.dataLim.ymax)  # a loss that does not fall is not to look as if it did
    axes.grid(visible=True)
    if curves:
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1), handlelength=4)
    axes.set_title(_folded(losses_title(table)))
    judged = {"mobilenetv2-convergence": tables.convergence(evidence)}
    return Drawing.titled(figure, table, "Loss over images seen, with test accuracies", tables=judged)


def rates_title(table: pandas.DataFrame) -> str:
    """Return what the chart of rates shows, in a sentence with its numbers."""
    own = table[table["source"] == "measured"]
    broken = own[~own["status"].isin(records.TRAINED)]
    measured = own[own["status"].isin(records.TRAINED) & own["images_per_second"].notna()]
    failed = f"; {len(broken)} of {len(broken) + len(measured)} settings failed" if len(broken) else ""
    if measured.empty:
        return f"Nothing measured here yet{failed}"
    best = measured.sort_values("images_per_second").iloc[-1]
    return f"Up to {best['images_per_second']:,.0f} images/s ({_work(best)}){failed}"


def joules_title(table: pandas.DataFrame) -> str:
    """Return what the chart of joules shows, in a few words with their numbers."""
    read = table[(table["source"] == "measured") & table["joules_per_image"].notna()]
    read = read[read["status"].isin(records.TRAINED)]
    if read.empty:
        return "Joules an image: no sensor could be read"
    return f"{figures.span(read['joules_per_image'], '.3g')} J an image ({', '.join(sorted(set(read['boundary'])))})"


def losses_title(table: pandas.DataFrame) -> str:
    """Return what the chart of losses shows."""
    tested = table[table["accuracy"].notna()]
    if tested.empty:
        return "Loss: nothing measured here yet"
    best = tested.sort_values("accuracy").iloc[-1]
    return f"Best test accuracy {best['accuracy']:.1%} after {best['images_seen']:,.0f} images ({_work(best)})"


def _draw_curves(axes: Axes, curves: list[pandas.DataFrame], several: bool) -> None:
    """Draw a line for each point; its test accuracy stands in the legend, beside it.

    Args:
        axes: where to draw.
        curves: the lines of the table that belong to a point each.
        several: whether machines are to be named.
    """
    shapes = sorted({_shape(curve) for curve in curves})
    for curve in curves:
        first = curve.iloc[0].to_dict()
        marker = MARKERS[shapes.index(_shape(curve)) % len(MARKERS)]
        style = {"color": figures.colour(first["device"]), "markersize": 4, "label": _curve_name(curve, several)}
        axes.plot(curve["images_seen"], curve["loss"], DASHES[first["framework"]] + marker, **style)
        axes.vlines(curve["images_seen"], curve["low"], curve["high"], color=style["color"], linewidth=1)


def _curves(table: pandas.DataFrame) -> list[pandas.DataFrame]:
    key = [name for name in table.columns if name not in NO_CURVE_OF_ITS_OWN]
    return [curve for _, curve in table.groupby(key, dropna=False, sort=True)]


def _shape(curve: pandas.DataFrame) -> tuple:
    return tuple(curve.iloc[0][["trainable", "image_size", "batch_size"]])


def _curve_name(curve: pandas.DataFrame, several: bool) -> str:
    line = curve.iloc[0].to_dict()
    machine = f"{line['machine']}, " if several else ""
    tested = f": test {line['accuracy']:.0%}" if pandas.notna(line["accuracy"]) else ""
    return f"{machine}{_work(line)}, n={len(curve)}{figures.num_runs(curve)}{tested}"


def _joules(line: dict) -> str:
    if pandas.notna(line["joules_per_image"]):
        return f"{line['joules_per_image']:.3g} J ({line['boundary']})"
    return "no sensor" if line["source"] == "measured" else "not printed"


def _work(line: dict) -> str:
    """Return a setting in few words; data that stand in for CIFAR-10 are named."""
    return ", ".join(part for part in (_short(line), figures.stand_in(line, "cifar10")) if part)


def _short(line: dict) -> str:
    trained = "" if pandas.isna(line["trainable"]) else ", all layers" if line["trainable"] else ", head"
    rate = line["learning_rate"]
    rate = f", rate {rate:g}" if pandas.notna(rate) and rate != tables.LEARNING_RATE else ""
    variant = "" if line["variant"] == "reference" else f", {line['variant']}"
    return f"{line['framework']} {line['device']}{trained}{figures.size(line)}{rate}{variant}"


def _name(line: dict) -> str:
    """Return what a setting's bars are called: its machine with stand-in data or an article's kind, and the setting."""
    if line["source"] == "measured":
        stand_in = figures.stand_in(line, "cifar10")
        return line["machine"] + (f", {stand_in}" if stand_in else "") + f"\n{_short(line)}"
    over = f", over {line['image_size_over']:.0f} px" if pandas.notna(line["image_size_over"]) else ""
    device = line["device"] if pandas.notna(line["device"]) else "any device"
    return f"{line['machine']}, {line['source']}\n{_short(line | {'framework': 'tensorflow', 'device': device})}{over}"


def _folded(title: str) -> str:
    """Return a title in lines that fit half of a wide figure."""
    return textwrap.fill(title, 48, break_on_hyphens=False)
