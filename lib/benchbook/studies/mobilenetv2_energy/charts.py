"""Charts of the MobileNetV2 study, and the sentences above them."""

import textwrap

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import figures, records
from benchbook.studies.mobilenetv2_energy.tables import NUM_CLASSES

DASHES = {"tensorflow": "-", "jax": "--", "torch": ":"}
MARKERS = "os^vDP*X"
# Columns in which the points of one curve differ.
NO_CURVE_OF_ITS_OWN = ("images_seen", "loss", "low", "high", "num_runs", "accuracy", "status")
TITLE = 48  # characters in a line: half of a wide figure


def draw_rates(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw images a second of each setting; a cross and a word where it failed."""
    labels = [_label(line) for line in table.to_dict("records")]
    figures.draw_bars(axes, table, "images_per_second", labels, lambda line: f"{line['images_per_second']:,.0f}")
    axes.set_xlabel("images a second, training")
    axes.margins(x=0.25)
    axes.set_title(textwrap.fill(rates_title(table), TITLE))


def draw_joules(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw joules an image of each setting, with what they cover; said where no sensor could be read."""
    joules = table.assign(low=table["joules_low"], high=table["joules_high"])
    labels = [_label(line) for line in table.to_dict("records")]
    figures.draw_bars(axes, joules, "joules_per_image", labels, _joules)
    axes.set_xlabel("joules an image")
    axes.margins(x=0.4)
    axes.set_title(textwrap.fill(joules_title(table), TITLE))


def draw_losses(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw the loss over images seen, a line for each point; its test accuracy stands in the legend, beside it."""
    sizes = sorted({(line["trainable"], line["image_size"], line["batch_size"]) for line in table.to_dict("records")})
    several = table["machine"].nunique() > 1
    for curve in _curves(table):
        first = curve.iloc[0].to_dict()
        marker = MARKERS[sizes.index((first["trainable"], first["image_size"], first["batch_size"])) % len(MARKERS)]
        style = {"color": figures.colour(first["device"]), "markersize": 4, "label": _curve_label(curve, several)}
        axes.plot(curve["images_seen"], curve["loss"], DASHES[first["framework"]] + marker, **style)
        axes.vlines(curve["images_seen"], curve["low"], curve["high"], color=style["color"], linewidth=1)
    axes.axhline(numpy.log(NUM_CLASSES), color=figures.COLOURS["published"], linewidth=1)
    axes.set(xlabel="images seen", ylabel="loss (grey: of guessing)")
    axes.set_ylim(0, 1.1 * axes.dataLim.ymax)  # a loss that does not fall is not to look as if it did
    axes.grid(visible=True)
    if len(table):
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1), handlelength=4)
    axes.set_title(textwrap.fill(losses_title(table), TITLE))


def num_curves(table: pandas.DataFrame) -> int:
    """Return how many lines the chart of losses has, and so its legend."""
    return len(_curves(table))


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
    known = table[(table["source"] == "measured") & table["joules_per_image"].notna()]
    known = known[known["status"].isin(records.TRAINED)]
    if known.empty:
        return "Joules an image: no sensor could be read"
    return f"{figures.span(known['joules_per_image'], '.3g')} J an image ({', '.join(sorted(set(known['boundary'])))})"


def losses_title(table: pandas.DataFrame) -> str:
    """Return what the chart of losses shows."""
    tested = table[table["accuracy"].notna()]
    if tested.empty:
        return "Loss: nothing measured here yet"
    best = tested.sort_values("accuracy").iloc[-1]
    return f"Best test accuracy {best['accuracy']:.1%} after {best['images_seen']:,.0f} images ({_work(best)})"


def _curves(table: pandas.DataFrame) -> list[pandas.DataFrame]:
    key = [name for name in table.columns if name not in NO_CURVE_OF_ITS_OWN]
    return [curve for _, curve in table.groupby(key, dropna=False, sort=True)]


def _curve_label(curve: pandas.DataFrame, several: bool) -> str:
    line, runs = curve.iloc[0].to_dict(), curve["num_runs"].max()
    counted = f", n={len(curve)}" + (f", range of {runs} runs" if runs > 1 else "")
    machine = f"{line['machine']}, " if several else ""
    tested = f": test {line['accuracy']:.0%}" if pandas.notna(line["accuracy"]) else ""
    return machine + _work(line) + counted + tested


def _joules(line: dict) -> str:
    if pandas.notna(line["joules_per_image"]):
        return f"{line['joules_per_image']:.3g} J ({line['boundary']})"
    return "no sensor" if line["source"] == "measured" else "not printed"


def _work(line: dict) -> str:
    """Return a setting in few words; data that stand in for CIFAR-10 are named."""
    return _short(line) + _stand_in(line)


def _stand_in(line: dict) -> str:
    dataset = line["dataset"]  # missing where a point failed before it had one
    return "" if pandas.isna(dataset) or dataset == "cifar10" else f", {dataset}"


def _short(line: dict) -> str:
    trained = "" if pandas.isna(line["trainable"]) else ", all layers" if line["trainable"] else ", head"
    rate = line["learning_rate"]
    rate = f", rate {rate:g}" if pandas.notna(rate) and rate != 5e-4 else ""
    variant = "" if line["variant"] == "reference" else f", {line['variant']}"
    return f"{line['framework']} {line['device']}{trained}{figures.size(line)}{rate}{variant}"


def _label(line: dict) -> str:
    if line["source"] == "measured":
        return f"{line['machine']}{_stand_in(line)}\n{_short(line)}"
    over = f", over {line['image_size_over']:.0f} px" if pandas.notna(line["image_size_over"]) else ""
    device = line["device"] if pandas.notna(line["device"]) else "any device"
    return f"{line['machine']}, {line['source']}\n{_short(line | {'framework': 'tensorflow', 'device': device})}{over}"
