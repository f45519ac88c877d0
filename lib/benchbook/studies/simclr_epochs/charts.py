"""Charts of the SimCLR study: minutes for the article's epoch, the input's share, accuracy, support, pairs of views."""

from collections.abc import Callable

import numpy
import pandas
from matplotlib.ticker import PercentFormatter

from benchbook.judging import wording
from benchbook.studies import figures, input_shares
from benchbook.studies.simclr_epochs import matrix, tables
from benchbook.studies.simclr_epochs.tables import EPOCH
from benchbook.studies.study import Drawing, Evidence

DASHES = {"reference": "-", "controlled": "--"}  # of tuned dots, with joint views dots and dashes


def epochs(evidence: Evidence) -> Drawing:
    """Draw the minutes of one epoch and its evaluation."""
    table = tables.epochs(evidence)
    timed = "one epoch of CIFAR-10 and its nearest-neighbour evaluation"
    title = EPOCH.title(table, "One epoch of SimCLR", evidence.names)
    return EPOCH.draw(table, form=".3g", name=_naming(evidence), title=title, of=timed)


def shares(evidence: Evidence) -> Drawing:
    """Draw how much of a step is input."""
    return input_shares.draw(tables.shares(evidence), _naming(evidence), "the views lay on the device", digits=1)


def accuracies(evidence: Evidence) -> Drawing:
    """Draw nearest-neighbour accuracy over epochs, whiskers for its range over runs, published ends in grey."""
    table = tables.accuracies(evidence)
    figure, axes = figures.canvas(4.0)
    key = ["source", "machine", "device", "variant", "dataset"]
    for (source, *_), curve in figures.of_few_machines(axes, table).groupby(key, sort=True):
        first = curve.iloc[0].to_dict()
        shade = figures.colour(first["device"]) if source == "measured" else figures.COLOURS["published"]
        dash = "-." if first["variant"].endswith(tables.JOINT) else DASHES.get(first["variant"], ":")
        errors = [curve["accuracy"] - curve["low"], curve["high"] - curve["accuracy"]]
        label = _naming(evidence)(first).replace("\n", ", ") + figures.num_runs(curve)
        axes.errorbar(curve["epochs"], curve["accuracy"], errors, fmt=f"o{dash}", color=shade, capsize=3, label=label)
    axes.set(xscale="log", xlabel="epochs trained", ylabel="nearest-neighbour accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylim(0, 1)
    axes.grid(visible=True)
    if len(table):
        axes.legend(fontsize=8)
    axes.set_title(accuracies_title(table))
    return Drawing.titled(figure, table, "Nearest-neighbour accuracy over epochs trained")


def accuracies_title(table: pandas.DataFrame) -> str:
    """Return what the chart of accuracies shows: the last one that was measured, else the last in print."""
    if table.empty:
        return "Accuracy: nothing yet"
    measured = table[table["source"] == "measured"]
    last = (measured if len(measured) else table).sort_values("epochs").iloc[-1]
    after = f"after {wording.number(last['epochs'])} epochs"
    return f"Accuracy is {wording.percent(last['accuracy'])} {after}" + ("" if len(measured) else ", published")


def support(evidence: Evidence) -> Drawing:
    """Draw which precisions work, with and without the compiler, and what they gain."""
    table = matrix.table(evidence)
    figure, axes = figures.canvas(1.4 + 0.6 * max(1, len(table[matrix.ROW].drop_duplicates())))
    matrix.draw(axes, table, evidence.names)
    return Drawing.titled(figure, table, "A field for each precision, device and compiler")


def pairs(first: numpy.ndarray, second: numpy.ndarray) -> Drawing:
    """Draw two views of each image, one above the other; pixels 0 to 1, shape (n, height, width, 3)."""
    apart = numpy.abs(first - second).mean()
    title = f"Two views of {len(first)} images; their pixels are {apart:.2f} apart on average"
    return Drawing.of_pictures({"first view": first, "second view": second}, title)


def reading(evidence: Evidence) -> str:
    """Return what one run says of its input and of what was learnt, in sentences with their numbers.

    Args:
        evidence: the rows of the run.
    """
    saved, learnt = tables.shares(evidence)["share"].dropna(), tables.accuracies(evidence)
    sentences = [f"Batches that lie ready would save {wording.percent(saved.iloc[0])} of a step."] if len(saved) else []
    sentences += [f"{accuracies_title(learnt)}."] if len(learnt) else []
    return " ".join(sentences)


def _naming(evidence: Evidence) -> Callable[[dict], str]:
    """Return what names a line of a table; fp32 goes without saying."""

    def name(line: dict) -> str:
        precision = line.get("precision")
        other = "" if pandas.isna(precision) or precision == "fp32" else precision
        return figures.name_point(line, line["variant"], other, names=evidence.names, dataset=EPOCH.dataset)

    return name
