"""A table of the machines: what each is, and in which condition it measured, from the manifests of its runs.

Manifests have no names of users, hosts or paths; see `machine` and `condition`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import pandas

from benchbook.judging import verdicts
from benchbook.machine import condition, libraries

COLUMNS = ["machine", "chip", "cores", "memory_gib", "accelerator", "system", "software", "condition", "sessions"]
COLUMNS += ["rows"]


def table(rows: pandas.DataFrame, described: Mapping[str, dict]) -> pandas.DataFrame:
    """Return one line per machine that measured, described by its newest run.

    Args:
        rows: measured rows.
        described: the manifests of their runs by run id, from `manifests.read_all`.

    Returns:
        Columns: COLUMNS; cores are physical, condition is sentences. A machine without manifests has only the columns
        that its rows give.
    """
    lines = []
    for name, own in rows.groupby("machine", sort=True):
        own_manifests = [described[run_id] for run_id in sorted(set(own["run_id"])) if run_id in described]
        line = {"machine": name, "chip": next(iter(own["chip"].dropna()), None)}
        line |= {"sessions": own["session"].nunique(), "rows": len(own)}
        lines.append(line | (_description(own_manifests) if own_manifests else {}))
    return pandas.DataFrame(lines, columns=COLUMNS)


def separate_kinds(rows: pandas.DataFrame, described: Mapping[str, dict]) -> pandas.DataFrame:
    """Return rows in which different kinds of computer with the same machine name have different names.

    Args:
        rows: measured rows.
        described: the manifests of their runs by run id, which have the fingerprints.

    Returns:
        The rows. If the runs of a machine have several fingerprints, the first four digits of a run's fingerprint, or
        `unknown` if its manifest has none, follow the machine's name in brackets.
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
    packages = {"Python": environment.get("python")} | (environment.get("packages") or {})
    names_of = {"Python": "Python"} | libraries.WORDS
    software = [f"{word} {packages[name]}" for name, word in names_of.items() if packages.get(name)]
    return {
        "chip": this.get("chip"),
        "cores": this.get("physical_cores"),
        "memory_gib": memory / 2**30 if memory else None,
        "accelerator": ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items()) or None,
        "system": this.get("system"),
        "software": ", ".join(software) or None,
        "condition": " ".join(_sentences(own)),
    }


def _sentences(own: list[dict]) -> list[str]:
    """Return sentences about the condition of a machine in all its runs."""
    befores = [manifest.get("condition_before") or {} for manifest in own]
    samples = [manifest.get("conditions") or [] for manifest in own]
    states = [*befores, *(sample for run in samples for sample in run)]
    sources, pressures = (_values(states, name) for name in ("power_source", "thermal_pressure"))
    celsius = _values(states, "cpu_temperature_celsius")
    loads = _values(befores, "load_average_1_minute")
    pressures = [pressure for pressure in pressures if pressure in condition.PRESSURES]
    slept = [condition.seconds_asleep(run[0], run[-1]) for run in samples if run]
    asleep = [seconds > verdicts.ASLEEP_SECONDS for seconds in slept]
    heat = [f"thermal pressure at most {max(pressures, key=condition.PRESSURES.index)}"] if pressures else []
    heat += [f"CPU at most {max(celsius):.0f} °C"] if celsius else []
    power = f"Power: {' and '.join(sorted(set(sources)))}" if sources else "Power source not recorded"
    afters = [manifest.get("condition_after") or {} for manifest in own]
    used = [_values(ends, "swap_used_bytes") for ends in zip(befores, afters, strict=True)]
    growths = [ends[1] - ends[0] for ends in used if len(ends) == 2]
    swap = f"Swap grew by at most {max(growths) / 2**20:.0f} MiB in a run." if growths else "Swap not recorded."
    changed = [f"{name} ({count} versions)" for name, count in _versions(own).items() if count > 1]
    return [
        power + (", in low-power mode." if any(state.get("low_power_mode") for state in states) else "."),
        f"Load before a run: {min(loads):.2g} to {max(loads):.2g}." if loads else "Load not recorded.",
        f"Heat: {', '.join(heat)}." if heat else "Heat not recorded: no sensor.",
        "Swap did not grow." if growths and max(growths) <= 0 else swap,
        *([f"The machine slept in {sum(asleep)} of {len(asleep)} runs."] if any(asleep) else []),
        *["Another process used the GPU."]
        * any(gpu.get("num_other_processes") for state in states for gpu in state.get("gpus") or ()),
        *_misplaced(own),
        *([f"Changed between runs: {', '.join(changed)}."] if changed else []),
    ]


def _values(states: Iterable[dict], name: str) -> list:
    """Return the values of a name in the states that have one."""
    return [state[name] for state in states if state.get(name) not in (None, "")]


def _misplaced(own: list[dict]) -> list[str]:
    """Return sentences about operations of a training step that ran on the host, because the device has no kernel.

    Each of them copies its inputs and outputs, so the step is slower than the device could be.
    """
    most = {}
    for manifest in own:
        kind = str((manifest.get("parameters") or {}).get("device", "the device"))
        counts = manifest.get("misplaced_operations") or {}
        numbers = {name: count for name, count in counts.items() if isinstance(count, int)}
        if numbers and sum(numbers.values()) > sum(most.get(kind, {}).values()):
            most[kind] = numbers
    return [
        f"Up to {sum(numbers.values())} operations of a training step did not run on {kind}, which lacks them:"
        f" {', '.join(sorted(numbers))}."
        for kind, numbers in sorted(most.items())
    ]


def _versions(own: list[dict]) -> dict[str, int]:
    """Return how many versions of system, Python, lock and commit the runs had."""
    machines, environments = ([manifest.get(part) or {} for manifest in own] for part in ("machine", "environment"))
    versions = {
        "system": _values(machines, "system"),
        "Python": _values(environments, "python"),
        "lock": _values(environments, "lock_sha256"),
        "commit": _values(own, "commit"),
    }
    return {name: len(set(values)) for name, values in versions.items()}
