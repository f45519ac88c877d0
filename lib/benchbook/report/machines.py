"""A table of the machines: what each is, from the manifests of its runs.

Manifests have no names of users, hosts or paths; see `machine`.
"""

from collections import Counter
from collections.abc import Mapping

import pandas

from benchbook.machine.variables import THREADS

COLUMNS = [
    "machine",
    "chip",
    "cores",
    "memory_gib",
    "accelerator",
    "system",
    "notes",
    "sessions",
    "rows",
]


def table(rows: pandas.DataFrame, described: Mapping[str, dict]) -> pandas.DataFrame:
    """Return one line per machine that measured, described by its newest run.

    Args:
        rows: measured rows.
        described: the manifests of their runs by run id, from `manifests.read_all`.

    Returns:
        Columns: COLUMNS; cores are physical, notes are sentences. A machine without manifests
        has only the columns that its rows give.
    """
    lines = []
    for name, own in rows.groupby("machine", sort=True):
        own_manifests = [
            described[run_id] for run_id in sorted(set(own["run_id"])) if run_id in described
        ]
        line = {"machine": name, "chip": next(iter(own["chip"].dropna()), None)}
        line |= {"sessions": own["session"].nunique(), "rows": len(own)}
        lines.append(line | (_description(own_manifests) if own_manifests else {}))
    return pandas.DataFrame(lines, columns=COLUMNS)


def separate_kinds(rows: pandas.DataFrame, described: Mapping[str, dict]) -> pandas.DataFrame:
    """Return rows in which different kinds of computer with the same machine name have different
    names.

    Args:
        rows: measured rows.
        described: the manifests of their runs by run id, which have the fingerprints.

    Returns:
        The rows. If the runs of a machine have several fingerprints, the first four digits of a
        run's fingerprint, or `unknown` if its manifest has none, follow the machine's name in
        brackets.
    """
    machines = {run_id: manifest.get("machine") or {} for run_id, manifest in described.items()}
    kinds = {run_id: machine.get("fingerprint", "unknown") for run_id, machine in machines.items()}
    kind = rows["run_id"].map(kinds).astype("object")  # missing if a run has no manifest
    several = kind.groupby(rows["machine"]).transform("nunique") > 1
    short = kind.map(lambda text: text if text == "unknown" else text[:4], na_action="ignore")
    named = rows["machine"] + " (" + short.astype("string") + ")"
    return rows.assign(machine=rows["machine"].mask(several & kind.notna(), named))


def _description(own: list[dict]) -> dict:
    this, environment = own[-1].get("machine") or {}, own[-1].get("environment") or {}
    names, memory = Counter(this.get("accelerators") or ()), this.get("memory_bytes")
    usable, logical = this.get("usable_cores"), this.get("logical_cores")
    threads = (environment.get("variables") or {}).get(THREADS)
    notes = (
        [f"{usable} of {logical} logical cores were usable."]
        if usable and logical and usable != logical
        else []
    )
    notes += (
        [f"A quota allowed the time of {this['cpu_quota']:g} cores."]
        if this.get("cpu_quota")
        else []
    )
    notes += [f"{THREADS} was {threads}."] if threads else []
    # Each operation that the device has no kernel for copies its inputs and outputs, and so slows a
    # step.
    misplaced = sorted(
        {name for manifest in own for name in manifest.get("misplaced_operations") or ()}
    )
    notes += (
        [f"Operations that the device lacks ran on the host: {', '.join(misplaced)}."]
        if misplaced
        else []
    )
    return {
        "chip": this.get("chip"),
        "cores": this.get("physical_cores"),
        "memory_gib": memory / 2**30 if memory else None,
        "accelerator": ", ".join(
            f"{count} x {name}" if count > 1 else name for name, count in names.items()
        )
        or None,
        "system": this.get("system"),
        "notes": " ".join(notes) or None,
    }
