"""The best measured rates of a device, from calibration rows, and the efficiency of points
relative to them."""

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
    """Compare points' arithmetic with the ceiling of the same device in the same session.

    Args:
        summary: from `statistics.summarise`.
        best: from `ceilings`.

    Returns:
        The points with counted operations, with columns flops_per_second, ceiling (FLOP/s of a
        matrix product in the precision of the point's products) and efficiency (a fraction).
        Both ceiling and efficiency are missing if the session did not calibrate the device.
    """
    counted = summary.reindex(
        columns=dict.fromkeys([*summary, "flops_per_sample", "samples_per_second"])
    )
    counted = counted[counted["flops_per_sample"].notna() & counted["samples_per_second"].notna()]
    points = counted.assign(
        arithmetic=counted["precision"].replace(ARITHMETIC),
        flops_per_second=(counted["flops_per_sample"] * counted["samples_per_second"]).astype(
            float
        ),
    )
    best = best[best["model"] == "matmul"].rename(
        columns={"precision": "arithmetic", "rate": "ceiling"}
    )
    key = ["machine", "device", "session", "framework", "arithmetic"]
    joined = points.merge(best[[*key, "ceiling"]], on=key, how="left").drop(columns="arithmetic")
    return joined.assign(efficiency=joined["flops_per_second"] / joined["ceiling"].astype(float))
