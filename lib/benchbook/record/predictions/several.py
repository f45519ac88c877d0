"""How a rate grows from one device to several: from the record's figures of 2 to 8 devices, and no further."""

import math

import numpy
import pandas

from benchbook.record.predictions.features import Unknown

FEWEST, MOST = 2, 8
LEVEL = 0.90
SAME = ["article", "product", "network", "image_size", "computed", "framework", "data"]


def efficiencies(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return what each publication's several devices reached of as many times one.

    Args:
        figures: from `record.read`, with the column product.

    Returns:
        Columns: article, product, network, computed, count, efficiency (1 is as many times one), per_doubling (the
        logarithm of the efficiency that a doubling of devices keeps).
    """
    rates = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].le(MOST)]
    best = rates.groupby([*SAME, "device_count"], dropna=False)["rate"].max().reset_index()
    one = best[best["device_count"] == 1].drop(columns="device_count").rename(columns={"rate": "one"})
    more = best[best["device_count"].between(FEWEST, MOST)].merge(one, on=SAME)
    efficiency = more["rate"] / (more["one"] * more["device_count"])
    doublings = numpy.log2(more["device_count"].astype(float))
    columns = ["article", "product", "network", "computed"]
    return more[columns].assign(
        count=more["device_count"].astype(int),
        efficiency=efficiency,
        per_doubling=numpy.log(efficiency.astype(float)) / doublings,
    )


def scale(table: pandas.DataFrame, count: int) -> tuple[float, float]:
    """Return by how much so many devices are faster than one, in logarithms, and how far that may be off.

    The distance holds 90 % of the record's cases, chips left out one at a time.

    Args:
        table: from `efficiencies`.
        count: of devices.

    Raises:
        Unknown: a count beyond those of the record.
    """
    if count == 1:
        return 0.0, 0.0
    if not FEWEST <= count <= MOST:
        raise Unknown(f"{count} devices; the record's figures of one publication reach from 1 to {MOST}")
    doublings = math.log2(count)
    off = [
        abs(group["per_doubling"] - table.loc[table["product"] != product, "per_doubling"].median())
        for product, group in table.groupby("product")
    ]
    off = numpy.sort(pandas.concat(off).to_numpy()) * doublings
    far = off[min(len(off), math.ceil(LEVEL * (len(off) + 1))) - 1]
    return math.log(count) + float(table["per_doubling"].median()) * doublings, float(far)
