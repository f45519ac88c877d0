"""Tables of calibration: what each device can do at most, and how much of it training uses."""

import pandas

from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import ceilings as best
from benchbook.studies.study import Evidence

ORDER = tuple(name for name, precision in PRECISIONS.items() if not precision.autocast)
MEMORY = {"copy": "memory copy", "host_to_device": "host to device", "device_to_host": "device to host"}


def ceilings(evidence: Evidence) -> pandas.DataFrame:
    """Return what `rows.ceilings` does, of each device's last session; a session's name begins with its time."""
    every = evidence.ceilings
    last = every.groupby(["machine", "device", "framework"])["session"].transform("max")
    return every[every["session"] == last].reset_index(drop=True)


def efficiency(evidence: Evidence) -> pandas.DataFrame:
    """Return the share of its session's ceiling that each trained point reached.

    Returns:
        Columns: machine, device, study, point, variant, framework, precision, dataset, batch_size, flops_per_second,
        ceiling, efficiency, low, high (the bounds of the point's rate, over the ceiling's median), interval (their
        kind), num_windows, verdict, status.
    """
    table = best.efficiency(evidence.summary, evidence.ceilings)
    table = table.assign(
        low=table["efficiency"] / table["samples_per_second"] * table["low"],
        high=table["efficiency"] / table["samples_per_second"] * table["high"],
    )
    columns = ["machine", "device", "study", "point", "variant", "framework", "precision", "dataset", "batch_size"]
    columns += ["flops_per_second", "ceiling", "efficiency", "low", "high", "interval", "num_windows", "verdict"]
    columns += ["status"]
    return table[columns]
