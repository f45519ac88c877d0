"""How long ResNet-50 takes to 75.9 % on a chip of which nobody published it: from its rate, and what others needed.

The times on record are those of recipes, batch sizes and input that were chosen for them. What a product took, times
the rate that is predicted of it, is so many epochs' worth of predicted rate; they differ between products by less than
the rates themselves do.
"""

import math
from collections.abc import Callable

import numpy
import pandas

from benchbook.record import chips
from benchbook.record.predictions.features import Unknown
from benchbook.record.predictions.question import Question, Range
from benchbook.report.answers.tasks import IMAGENET, MINUTE

METRIC = "time_to_75.9"
MOST_DEVICES = 16  # beyond, it is the network between them that is measured
PRECISION = "amp_fp16"  # nearly all of the record's times are of 16 bits


def epochs_worth(figures: pandas.DataFrame, rate: Callable[[Question], Range]) -> pandas.Series:
    """Return the epochs at its predicted rate that each product took, by product: the median of its times.

    Args:
        figures: from `record.read`.
        rate: of a question, as `Forecaster.rate`.
    """
    times = figures[figures["metric"].eq(METRIC) & figures["refused"].eq("") & figures["unit"].eq("min")]
    times = times[times["device_count"].between(1, MOST_DEVICES)]
    rates = {chip: predicted for chip in times["chip"].unique() if (predicted := _rate(chip, rate)) is not None}
    times = times[times["chip"].isin(list(rates))]
    images = MINUTE * times["value"] * times["device_count"] * times["chip"].map(lambda chip: rates[chip].value)
    return (images / IMAGENET).groupby(times["chip"].map(chips.product)).median()


def predict(chip: str, worth: pandas.Series, rate: Callable[[Question], Range]) -> Range | None:
    """Return the seconds to 75.9 % on one device, with their 90 % interval; None where its rate is not predicted.

    The interval adds, in logarithms, that of the rate and the farthest that a product lies from the others' median:
    they are too few for a quantile.

    Args:
        chip: its one name.
        worth: from `epochs_worth`, of two products at least.
        rate: as above.
    """
    predicted = _rate(chip, rate)
    if predicted is None:
        return None
    epochs, logs = float(worth.median()), numpy.log(worth)
    apart = max(abs(logs[product] - logs.drop(product).median()) for product in logs.index)
    seconds = epochs * IMAGENET / predicted.value
    far = [math.exp(math.hypot(apart, math.log(predicted.value / bound))) for bound in (predicted.high, predicted.low)]
    basis = (
        f"{epochs:.0f} epochs' worth of its predicted rate, as times of {len(worth)} products show; {predicted.basis}"
    )
    return Range(seconds, seconds / far[0], seconds * far[1], basis)


def _rate(chip: str, rate: Callable[[Question], Range]) -> Range | None:
    try:
        return rate(Question(chip, work="resnet50", precision=PRECISION, image_size=224))
    except (Unknown, chips.UnknownChip):
        return None
