"""How long ResNet-50 takes to 75.9 % on a chip of which nobody published it: from its rate, and what others needed.

The times on record are those of recipes, batch sizes and input that were chosen for them. What a product took, times
the rate that is predicted of it, is so many epochs' worth of predicted rate; they differ between products by less than
the rates themselves do.
"""

import math
from collections.abc import Mapping

import numpy
import pandas

from benchbook.record import chips
from benchbook.record.forecast import Range
from benchbook.report.answers.tasks import IMAGENET, MINUTE

METRIC = "time_to_75.9"
MOST_DEVICES = 16  # beyond, it is the network between them that is measured
PRECISION = "amp_fp16"  # nearly all of the record's times are of 16 bits


def epochs_worth(figures: pandas.DataFrame, rates: Mapping[str, Range]) -> pandas.Series:
    """Return the epochs at its predicted rate that each product took, by product: the median of its times.

    Args:
        figures: from `record.read`.
        rates: predicted of chips, in PRECISION.
    """
    times = figures[figures["metric"].eq(METRIC) & figures["refused"].eq("") & figures["unit"].eq("min")]
    times = times[times["device_count"].between(1, MOST_DEVICES)]
    times = times[times["chip"].isin(list(rates))]
    images = MINUTE * times["value"] * times["device_count"] * times["chip"].map(lambda chip: rates[chip].value)
    return (images / IMAGENET).groupby(times["chip"].map(chips.product)).median()


def predict(predicted: Range, worth: pandas.Series) -> Range:
    """Return the seconds to 75.9 % on one device at a predicted rate, with their 90 % interval.

    The interval adds, in logarithms, that of the rate and the farthest that a product lies from the others' median:
    they are too few for a quantile.

    Args:
        predicted: the device's rate.
        worth: from `epochs_worth`, of two products at least.
    """
    epochs, logs = float(worth.median()), numpy.log(worth)
    apart = max(abs(logs[product] - logs.drop(product).median()) for product in logs.index)
    seconds = epochs * IMAGENET / predicted.value
    far = [math.exp(math.hypot(apart, math.log(predicted.value / bound))) for bound in (predicted.high, predicted.low)]
    basis = (
        f"{epochs:.0f} epochs' worth of its predicted rate, as times of {len(worth)} products show; {predicted.basis}"
    )
    return Range(seconds, seconds / far[0], seconds * far[1], basis)
