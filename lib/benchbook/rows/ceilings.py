"""The best measured rates of a device, from calibration rows, and the share of them that points
reach."""

import pandas

from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import records

# By operation, the column of the work in a sample; a launch has none.
WORK = {"matmul": "flops_per_sample", "copy": "bytes_per_sample", "launch": None}
WORK |= {"host_to_device": "bytes_per_sample", "device_to_host": "bytes_per_sample"}
UNITS = {"flops_per_sample": "FLOP/s", "bytes_per_sample": "B/s", None: "1/s"}
# The precision of products, for mixed precisions.
ARITHMETIC = {name: each.autocast for name, each in PRECISIONS.items() if each.autocast}
KEY = ["machine", "chip", "device", "session", "framework", "model", "precision"]


def ceilings(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the best rate of each operation: the median over windows, the best over sizes.

    Args:
        rows: of any phase; only measured rows of phase `calibrate` count, without those of
        networks.

    Returns:
        Columns: machine, chip, device, session, framework, model, precision (empty for copies
        and transfers), size (matrix size or bytes), rate, low, high (over the windows), unit
        (FLOP/s, B/s, 1/s), num_windows.
    """
    kept = rows[
        (rows["phase"] == "calibrate")
        & (rows["status"] == "ok")
        & rows["samples_per_second"].notna()
    ]
    kept = kept[kept["model"].isin(list(WORK))]
    column = kept["model"].map(WORK)
    work = kept["flops_per_sample"].where(column == "flops_per_sample", kept["bytes_per_sample"])
    windows = kept[KEY].assign(
        text=records.as_text(kept)["settings"],  # groupby cannot compare dictionaries
        size=[
            settings.get("matrix_size", settings.get("copy_bytes")) for settings in kept["settings"]
        ],
        rate=kept["samples_per_second"].astype(float)
        * work.where(column.notna(), 1.0).astype(float),
        unit=column.map(UNITS).where(column.notna(), UNITS[None]),
    )
    groups = windows.groupby([*KEY, "text"], dropna=False, sort=True)
    rate = {"rate": ("rate", "median"), "low": ("rate", "min"), "high": ("rate", "max")}
    rates = groups.agg(
        size=("size", "first"), **rate, unit=("unit", "first"), num_windows=("rate", "size")
    )
    best = (
        rates.reset_index()
        .drop(columns="text")
        .sort_values("rate", ascending=False)
        .drop_duplicates(KEY)
    )
    return best.sort_values(KEY).reset_index(drop=True)


def efficiency(summary: pandas.DataFrame, best: pandas.DataFrame) -> pandas.DataFrame:
    """Compare points' arithmetic with the best products of the same machine's device, of any
    framework and session: on some CPUs one framework's products are half as fast as another's.

    Args:
        summary: from `statistics.summarise`.
        best: from `ceilings`.

    Returns:
        The points with counted operations, with columns flops_per_second, arithmetic (the
        precision of their products), ceiling (FLOP/s of a matrix product in it, on so many
        devices; processes on one CPU share it) and efficiency (a fraction). The last two are
        missing if the device was not calibrated in that precision.
    """
    counted = summary.reindex(
        columns=dict.fromkeys([*summary, "flops_per_sample", "samples_per_second"])
    )
    counted = counted[counted["flops_per_sample"].notna() & counted["samples_per_second"].notna()]
    rate = counted["flops_per_sample"] * counted["samples_per_second"]
    points = counted.assign(
        arithmetic=counted["precision"].replace(ARITHMETIC), flops_per_second=rate.astype(float)
    )
    key = ["machine", "device", "arithmetic"]
    products = best[best["model"] == "matmul"].rename(columns={"precision": "arithmetic"})
    joined = points.join(products.groupby(key)["rate"].max().rename("ceiling"), on=key)
    devices = joined["device_count"].mask(joined["device"] == "cpu", 1).fillna(1).astype(float)
    ceiling = joined["ceiling"].astype(float) * devices
    return joined.assign(ceiling=ceiling, efficiency=joined["flops_per_second"] / ceiling)


def shares(summary: pandas.DataFrame, best: pandas.DataFrame) -> dict[str, str]:
    """Return in a sentence which share of its machine's best products each point reaches, by
    session, study and point; for the arguments see `efficiency`."""
    found = efficiency(summary, best).dropna(subset="efficiency")
    low = {True: ", whose calibration was too low", False: ""}
    return {
        f"{line.session} {line.study} {line.point}": f"{line.efficiency:.0%} of this machine's best"
        f" measured {line.arithmetic} products{low[line.efficiency > 1]}."
        for line in found.itertuples()
    }
