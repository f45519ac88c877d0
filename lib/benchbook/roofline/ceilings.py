"""The best rates of a device from calibration rows, and trained points held against them."""

import pandas

from benchbook import records

WORK = {"matmul": "flops_per_sample", "copy": "bytes_per_sample", "launch": None}
WORK |= {"host_to_device": "bytes_per_sample", "device_to_host": "bytes_per_sample"}
UNITS = {"flops_per_sample": "FLOP/s", "bytes_per_sample": "B/s", None: "1/s"}
ARITHMETIC = {"amp_bf16": "bf16", "amp_fp16": "fp16"}  # what a mixed precision multiplies in
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
    sizes = records.as_text(kept)["settings"].rename("sizes")  # groupby cannot tell dictionaries apart
    lines = [_ceiling(group) for _, group in kept.groupby([*KEY, sizes], dropna=False, sort=True)]
    rates = pandas.DataFrame(lines, columns=[*KEY, "size", "rate", "low", "high", "unit", "num_windows"])
    best = rates.sort_values("rate", ascending=False).drop_duplicates(KEY)
    return best.sort_values(KEY).reset_index(drop=True)


def efficiency(summary: pandas.DataFrame, calibration: pandas.DataFrame) -> pandas.DataFrame:
    """Hold the arithmetic of trained points against the ceiling of the same device in the same session.

    Args:
        summary: from `statistics.summarise`.
        calibration: rows that `ceilings` reads.

    Returns:
        The points whose arithmetic is known, with columns flops_per_second, ceiling (FLOP/s of a matrix product in
        the precision that the point multiplies in) and efficiency (a fraction); both are missing where that session
        did not calibrate that device.
    """
    known = summary.reindex(columns=dict.fromkeys([*summary, "flops_per_sample", "samples_per_second"]))
    known = known[known["flops_per_sample"].notna() & known["samples_per_second"].notna()]
    points = known.assign(
        arithmetic=known["precision"].replace(ARITHMETIC),
        flops_per_second=(known["flops_per_sample"] * known["samples_per_second"]).astype(float),
    )
    best = ceilings(calibration)
    best = best[best["model"] == "matmul"].rename(columns={"precision": "arithmetic", "rate": "ceiling"})
    key = ["machine", "device", "session", "framework", "arithmetic"]
    joined = points.merge(best[[*key, "ceiling"]], on=key, how="left").drop(columns="arithmetic")
    return joined.assign(efficiency=joined["flops_per_second"] / joined["ceiling"].astype(float))


def _ceiling(group: pandas.DataFrame) -> dict:
    first = group.iloc[0]
    work = WORK[first["model"]]
    rates = group["samples_per_second"].astype(float) * (float(first[work]) if work else 1.0)
    settings = first["settings"]
    return {name: first[name] for name in KEY} | {
        "size": settings.get("matrix_size", settings.get("copy_bytes")),
        "rate": float(rates.median()),
        "low": float(rates.min()),
        "high": float(rates.max()),
        "unit": UNITS[work],
        "num_windows": len(group),
    }
