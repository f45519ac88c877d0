"""A table of the machines: what each is, from the manifests of its runs.

Manifests have no names of users, hosts or paths; see `machine`.
"""

from collections import Counter
from collections.abc import Mapping

import pandas

from benchbook.machine.variables import THREADS

_COLUMNS = "machine chip cores memory_gib accelerator system notes sessions rows"
COLUMNS = _COLUMNS.split()


def table(rows: pandas.DataFrame, described: Mapping[str, dict]) -> pandas.DataFrame:
    """Return one line per machine that measured, described by its newest run.

    Args:
        rows: any; only measured rows count.
        described: the manifests of their runs by run id, from `manifests.read_all`.

    Returns:
        Columns: COLUMNS; cores are physical, notes are sentences. A machine without manifests
        has only the columns that its rows give.
    """
    lines = []
    for name, own in rows[rows["source"] == "measured"].groupby("machine", sort=True):
        own_manifests = [
            described[run_id] for run_id in sorted(set(own["run_id"])) if run_id in described
        ]
        line = {"machine": name, "chip": next(iter(own["chip"].dropna()), None)}
        line |= {"sessions": own["session"].nunique(), "rows": len(own)}
        lines.append(line | (_description(own_manifests) if own_manifests else {}))
    return pandas.DataFrame(lines, columns=COLUMNS)


def _description(own: list[dict]) -> dict:
    this, environment = own[-1].get("machine") or {}, own[-1].get("environment") or {}
    names, memory = Counter(this.get("accelerators") or ()), this.get("memory_bytes")
    usable, logical = this.get("usable_cores"), this.get("logical_cores")
    threads = (environment.get("variables") or {}).get(THREADS)
    quota = this.get("cpu_quota") or 0
    # Each operation that the device has no kernel for copies its inputs and outputs, and so slows a
    # step.
    misplaced = sorted(
        {name for manifest in own for name in manifest.get("misplaced_operations") or ()}
    )
    is_cut = usable and logical and usable != logical
    notes = {
        f"{usable} of {logical} logical cores were usable.": is_cut,
        f"A quota allowed the time of {quota:g} cores.": quota,
        f"{THREADS} was {threads}.": threads,
        f"Operations that the device lacks ran on the host: {', '.join(misplaced)}.": misplaced,
    }
    return {
        "chip": this.get("chip"),
        "cores": this.get("physical_cores"),
        "memory_gib": memory / 2**30 if memory else None,
        "accelerator": ", ".join(
            f"{count} x {name}" if count > 1 else name for name, count in names.items()
        )
        or None,
        "system": this.get("system"),
        "notes": " ".join(note for note, holds in notes.items() if holds) or None,
    }
