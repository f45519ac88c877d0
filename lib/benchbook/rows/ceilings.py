"""The best rates of a device from calibration rows, and the efficiency of trained points relative to them."""

import pandas

from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import records

WORK = {"matmul": "flops_per_sample", "copy": "bytes_per_sample", "launch": None}
WORK |= {"host_to_device": "bytes_per_sample", "device_to_host": "bytes_per_sample"}
UNITS = {"flops_per_sample": "FLOP/s", "bytes_per_sample": "B/s", None: "1/s"}
ARITHMETIC = {name: each.autocast for name, each in PRECISIONS.items() if each.autocast}
KEY = ["machine", "chip", "device", "session", "framework", "model", "precision"]


def ceilings(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the best rate of each kind: the median over windows, the best over sizes.

    Args:
        rows: rows of any phase; those of phase `calibrate` that were measured count, of no network.

    Returns:
        Columns: machine, chip, device, session, framework, model, precision (empty for copies and transfers), size
        (matrix size or bytes), rate, low, high (over the windows), unit (FLOP/s, B/s, 1/s), num_windows.
    """
    kept = rows[(rows["phase"] == "calibrate") & (rows["status"] == "ok") & rows["samples_per_second"].notna()]
    kept = kept[kept["model"].isin(list(WORK))]
    work = kept["model"].map(WORK)
    done = kept["flops_per_sample"].where(work == "flops_per_sample", kept["bytes_per_sample"]).where(work.notna(), 1.0)
    settings = kept["settings"]
    windows = kept[KEY].assign(
        text=records.as_text(kept)["settings"],  # groupby cannot tell dictionaries apart
        size=[stated.get("matrix_size", stated.get("copy_bytes")) for stated in settings],
        rate=kept["samples_per_second"].astype(float) * done.astype(float),
        unit=work.map(UNITS).where(work.notna(), UNITS[None]),
    )
    groups = windows.groupby([*KEY, "text"], dropna=False, sort=True)
    rate = {"rate": ("rate", "median"), "low": ("rate", "min"), "high": ("rate", "max")}
    rates = groups.agg(size=("size", "first"), **rate, unit=("unit", "first"), num_windows=("rate", "size"))
    best = rates.reset_index().drop(columns="text").sort_values("rate", ascending=False).drop_duplicates(KEY)
    return best.sort_values(KEY).reset_index(drop=True)


def efficiency(summary: pandas.DataFrame, best: pandas.DataFrame) -> pandas.DataFrame:
    """Compare the arithmetic of trained points with the ceiling of the same device in the same session.

    Args:
        summary: from `statistics.summarise`.
        best: from `ceilings`.

    Returns:
        The points whose operations are counted, with columns flops_per_second, ceiling (FLOP/s of a matrix product in
        the precision that the point multiplies in) and efficiency (a fraction); both are missing where that session
        did not calibrate that device.
    """
    counted = summary.reindex(columns=dict.fromkeys([*summary, "flops_per_sample", "samples_per_second"]))
    counted = counted[counted["flops_per_sample"].notna() & counted["samples_per_second"].notna()]
    points = counted.assign(
        arithmetic=counted["precision"].replace(ARITHMETIC),
        flops_per_second=(counted["flops_per_sample"] * counted["samples_per_second"]).astype(float),
    )
    best = best[best["model"] == "matmul"].rename(columns={"precision": "arithmetic", "rate": "ceiling"})
    key = ["machine", "device", "session", "framework", "arithmetic"]
    joined = points.merge(best[[*key, "ceiling"]], on=key, how="left").drop(columns="arithmetic")
    return joined.assign(efficiency=joined["flops_per_second"] / joined["ceiling"].astype(float))
