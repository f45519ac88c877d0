"""Charts of the MobileNetV2 study, and the sentences above them."""

import textwrap
from collections.abc import Callable

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook.judging import wording
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.rows import records
from benchbook.studies import figures
from benchbook.studies.mobilenetv2_energy import tables
from benchbook.studies.study import Drawing, Evidence

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
    name = _naming(evidence.names)
    figures.draw_bars(left, drawn, rate, name=name, text=lambda line: f"{line[rate]:,.0f}")
    left.set(xlabel="images a second, training", title=_folded(rates_title(table)))
    read = drawn.assign(low=drawn["joules_low"], high=drawn["joules_high"])
    figures.draw_bars(right, read, "joules_per_image", name=name, text=_joules)
    right.set(xlabel="joules an image", title=_folded(joules_title(table)))
    right.margins(x=0.4)
    alt = f"Bars of images a second and of joules an image. {rates_title(table)}. {joules_title(table)}."
    return Drawing(figure, table, alt)


def losses(evidence: Evidence) -> Drawing:
    """Draw the loss over images seen, and judge whether the frozen network converges."""
    table = tables.losses(evidence)
    figure, axes = figures.canvas(max(4, 1 + 0.17 * len(_curves(table))), 12.0)
    curves = _curves(figures.of_few_machines(axes, table))
    _draw_curves(axes, curves, evidence.names, several=table["machine"].nunique() > 1)
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
    measured = own[own["status"].isin(records.TRAINED) & own["images_per_second"].notna()]
    if measured.empty:
        return f"All {len(own)} settings of MobileNetV2 failed" if len(own) else "MobileNetV2 was not measured here yet"
    best = measured.sort_values("images_per_second").iloc[-1]
    how = f"{best['framework']}, {naming.device_word(best['device'])}"
    return f"MobileNetV2 trains up to {wording.number(best['images_per_second'])} images a second ({how})"


def joules_title(table: pandas.DataFrame) -> str:
    """Return what the chart of joules shows, in a few words with their numbers."""
    read = table[(table["source"] == "measured") & table["joules_per_image"].notna()]
    read = read[read["status"].isin(records.TRAINED)]
    if read.empty:
        return "No sensor could read its energy"
    boundaries = ", ".join(sorted(set(read["boundary"])))
    return f"An image takes {wording.span(read['joules_per_image'])} J ({boundaries})"


def described(line: dict) -> str:
    """Return what of the network a setting trains, and on what images, as a sentence says it."""
    trained = "" if pandas.isna(line["trainable"]) else "all layers" if line["trainable"] else "its last layer alone"
    size = "" if pandas.isna(line["image_size"]) else f"{line['image_size']:.0f}-pixel images"
    return " on ".join(filter(None, (trained, size)))


def losses_title(table: pandas.DataFrame) -> str:
    """Return what the chart of losses shows."""
    tested = table[table["accuracy"].notna()]
    if tested.empty:
        return "Loss: nothing measured here yet"
    best = tested.sort_values("accuracy").iloc[-1]
    after = f"after {best['images_seen']:,.0f} images"
    if best["accuracy"] <= tables.GUESSED:
        return f"Test accuracy {after} is no better than guessing ({wording.percent(best['accuracy'])})"
    return f"Test accuracy reaches {wording.percent(best['accuracy'])} {after} ({_work(best)})"


def _draw_curves(axes: Axes, curves: list[pandas.DataFrame], names: Names, several: bool) -> None:
    """Draw a line for each point; its test accuracy stands in the legend, beside it.

    Args:
        axes: where to draw.
        curves: the lines of the table that belong to a point each.
        names: of machines.
        several: whether machines are to be named.
    """
    shapes = sorted({_shape(curve) for curve in curves})
    for curve in curves:
        first = curve.iloc[0].to_dict()
        marker = MARKERS[shapes.index(_shape(curve)) % len(MARKERS)]
        style = {
            "color": figures.colour(first["device"]),
            "markersize": 4,
            "label": _curve_name(curve, names if several else None),
        }
        axes.plot(curve["images_seen"], curve["loss"], DASHES[first["framework"]] + marker, **style)
        axes.vlines(curve["images_seen"], curve["low"], curve["high"], color=style["color"], linewidth=1)


def _curves(table: pandas.DataFrame) -> list[pandas.DataFrame]:
    key = [name for name in table.columns if name not in NO_CURVE_OF_ITS_OWN]
    return [curve for _, curve in table.groupby(key, dropna=False, sort=True)]


def _shape(curve: pandas.DataFrame) -> tuple:
    return tuple(curve.iloc[0][["trainable", "image_size", "batch_size"]])


def _curve_name(curve: pandas.DataFrame, names: Names | None) -> str:
    line = curve.iloc[0].to_dict()
    machine = f"{names.machine(line['machine'])}, " if names else ""
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
    trained = "" if pandas.isna(line["trainable"]) else ", all layers" if line["trainable"] else ", last layer"
    rate = line["learning_rate"]
    rate = f", rate {rate:g}" if pandas.notna(rate) and rate != tables.LEARNING_RATE else ""
    variant = "" if line["variant"] == "reference" else f", {line['variant']}"
    device = naming.device_word(line["device"]) if pandas.notna(line["device"]) else "any device"
    device = device.removesuffix(" with TensorFlow")
    return f"{line['framework']} {device}{trained}{figures.size(line)}{rate}{variant}"


def _naming(names: Names) -> Callable[[dict], str]:
    """Return what names a setting's bars: its machine with stand-in data or an article's kind, and the setting."""

    def name(line: dict) -> str:
        measured = line["source"] == "measured"
        other = figures.stand_in(line, "cifar10") if measured else line["source"]
        over = f", over {line['image_size_over']:.0f} px" if pandas.notna(line["image_size_over"]) else ""
        short = _short(line if measured else line | {"framework": "tensorflow"})
        return f"{', '.join(filter(None, (names.machine(line['machine']), other)))}\n{short}{over}"

    return name


def _folded(title: str) -> str:
    """Return a title in lines that fit half of a wide figure."""
    return textwrap.fill(title, 48, break_on_hyphens=False)
