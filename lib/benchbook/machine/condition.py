"""The machine's condition before, during and after a run: power, heat, clocks, memory pressure
and load.

Nothing here needs root. Everything may be published: other processes are counted, never named,
and no serial number of a battery or disk is read. The parsers are pure functions of a tool's
output.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchbook.machine import contention, identity, nvidia, variables
from benchbook.machine.processes import output

if TYPE_CHECKING:
    import pandas

SYSTEM_FILES = Path("/sys")
# Source: libkern/OSThermalNotification.h of macOS. From `heavy` on, macOS lowers the clocks.
PRESSURES = ("nominal", "moderate", "heavy", "trapping", "sleeping")
# Readings of macOS's tools: the command, a pattern of the value in its output, and the value's
# conversion.
MAC: dict[str, tuple[tuple[str, ...], str, Callable[[str], object]]] = {
    "power_source": (
        ("pmset", "-g", "batt"),
        r"drawing from '(\w+) Power'",
        lambda word: "mains" if word == "AC" else "battery",
    ),
    # A line `lowpowermode 1`, or `powermode 1` (0 automatic, 1 low, 2 high) on other Macs.
    "low_power_mode": (
        ("pmset", "-g"),
        r"^\s*(?:low)?powermode\s+(\d)",
        lambda digit: digit == "1",
    ),
    "translated": (
        ("sysctl", "-n", "sysctl.proc_translated"),
        r"\A\s*(-?\d+)\s*\Z",
        lambda digits: int(digits) == 1,
    ),
    "thermal_pressure": (
        ("notifyutil", "-g", "com.apple.system.thermalpressurelevel"),
        r"thermalpressurelevel\s+([0-4])\s*\Z",
        lambda digit: PRESSURES[int(digit)],
    ),
}


def read() -> dict:
    """Return the values that may change between two runs. Keys name their unit; unknown values
    are None."""
    return _of_system() | {"gpus": nvidia.gpus()}


def sample() -> dict:
    """Return the values that may change within a run; unknown values are left out.

    Call it between two windows, where no clock runs: it takes some milliseconds.
    """
    values = _of_system() | {"gpus": nvidia.states() or None}
    return {name: value for name, value in values.items() if value is not None}


def samples(manifests: Mapping[str, dict]) -> pandas.DataFrame:
    """Return all samples in runs' manifests, each run's in the order of time.

    Args:
        manifests: by run id, from `manifests.read_all`.

    Returns:
        Columns: run_id, variables (see `variables.changing`), device_busy (before the run),
        hypervisor (that hides its host's load), and one for each key of a sample; empty if no
        manifest has samples.
    """
    import pandas

    lines = []
    for run_id, manifest in manifests.items():
        whole_run = {"run_id": run_id, "variables": variables.changing(manifest) or None}
        whole_run["hypervisor"] = (manifest.get("machine") or {}).get("hypervisor") or None
        whole_run["device_busy"] = (manifest.get("condition_before") or {}).get("device_busy")
        lines += [whole_run | line for line in manifest.get("conditions") or ()]
    return pandas.DataFrame(lines, columns=None if lines else ["run_id"])


def virtual(conditions: pandas.DataFrame | None) -> frozenset[str]:
    """Return the runs on virtual machines: those of a hypervisor that hides its host's load, or
    from which a hypervisor took time of the CPU.

    Args:
        conditions: from `samples`.
    """
    if conditions is None:
        return frozenset()
    known = conditions.reindex(columns=["run_id", "cpu_stolen_seconds", "hypervisor"])
    stolen = known["cpu_stolen_seconds"].astype(float) > 0
    return frozenset(known.loc[stolen | known["hypervisor"].notna(), "run_id"])


def seconds_asleep(before: Mapping, after: Mapping) -> float:
    """Return how long the machine slept between two samples: during sleep, one of the two clocks
    stops."""
    awake, elapsed = (after[name] - before[name] for name in ("awake_seconds", "elapsed_seconds"))
    return max(0.0, elapsed - awake)


def clocks() -> tuple[float, float]:
    """Return the seconds of a clock that stops while the machine sleeps, and of a clock that
    does not.

    Network time sets neither. Source: clock_gettime(2) on Linux, clock_gettime(3) on macOS.
    """
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_UPTIME_RAW), time.clock_gettime(
            time.CLOCK_MONOTONIC_RAW
        )
    return time.clock_gettime(time.CLOCK_MONOTONIC), time.clock_gettime(time.CLOCK_BOOTTIME)


def parse(name: str, printed: str):
    """Return the value of a reading of MAC from its tool's output; None if the output lacks it."""
    _, pattern, convert = MAC[name]
    match = re.search(pattern, printed, re.MULTILINE)
    return None if match is None else convert(match[1])


def parse_swap(printed: str) -> dict:
    """Return the bytes swapped in and out since boot from the text of macOS's `vm_stat` or
    Linux's /proc/vmstat.

    psutil adds files that macOS reads, and assumes pages of 4 KiB on Linux.
    """
    page = re.search(r"page size of (\d+) bytes", printed)
    size = int(page.group(1)) if page else os.sysconf("SC_PAGESIZE")
    counts = {
        name: re.search(rf"^(?:{words}):?\s+(\d+)", printed, re.MULTILINE)
        for name, words in {
            "swapped_in_bytes": "Swapins|pswpin",
            "swapped_out_bytes": "Swapouts|pswpout",
        }.items()
    }
    return {
        name: None if match is None else int(match.group(1)) * size
        for name, match in counts.items()
    }


def linux(root: Path = SYSTEM_FILES) -> dict:
    """Return power, heat and throttle counters since boot from Linux's sysfs."""
    profile = _text(root / "firmware/acpi/platform_profile")
    counts = _numbers(root, "devices/system/cpu/cpu*/thermal_throttle/*_throttle_count")
    times = _numbers(root, "devices/system/cpu/cpu*/thermal_throttle/*_throttle_total_time_ms")
    return {
        "low_power_mode": None if profile is None else profile == "low-power",
        "cpu_throttle_count": sum(counts) if counts else None,
        "cpu_throttle_seconds": max(times) / 1000 if times else None,
        "power_source": linux_power(root),
    }


def linux_power(root: Path = SYSTEM_FILES) -> str | None:
    """Return the power source; the battery of a mouse or a keyboard (scope Device) does not count.

    psutil would take such a battery for a desktop computer's own.
    """
    supplies = [
        path
        for path in (root / "class/power_supply").glob("*")
        if _text(path / "scope") != "Device"
    ]
    batteries = [path for path in supplies if _text(path / "type") == "Battery"]
    connected = any(_text(path / "online") == "1" for path in supplies if path not in batteries)
    discharging = any(_text(path / "status") == "Discharging" for path in batteries)
    return (
        "mains" if connected else None if not batteries else "battery" if discharging else "mains"
    )


def mac() -> dict:
    """Return the readings of MAC."""
    return {name: parse(name, output(*command)) for name, (command, *_) in MAC.items()}


def _of_system() -> dict:
    """Return clocks, swap and CPU time, and what only this system tells; unknown values are
    None."""
    awake, elapsed = clocks()
    is_mac = platform.system() == "Darwin"
    printed = output("vm_stat") if is_mac else _text(Path("/proc/vmstat")) or ""
    return {
        "awake_seconds": round(awake, 3),
        "elapsed_seconds": round(elapsed, 3),
        "swap_used_bytes": psutil.swap_memory().used,
        "missing_cores": identity.missing_cores() or None,
        **parse_swap(printed),
        **{name: round(value, 2) for name, value in contention.cpu_seconds().items()},
        **(mac() if is_mac else linux()),
    }


def _numbers(folder: Path, pattern: str) -> list[int]:
    texts = (_text(path) or "" for path in sorted(folder.glob(pattern)))
    return [int(text) for text in texts if re.fullmatch(r"-?\d+", text)]


def _text(path: Path) -> str | None:
    """Return a small file's text; None if it is missing, or its driver refuses to be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
