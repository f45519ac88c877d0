"""How much of the computer others take: their processes, and the hypervisor of a virtual
machine."""

import os
import time
from collections.abc import Callable

import psutil

from benchbook.machine import context, identity, processes

OTHERS_SHARE = 0.05  # share of the CPU time of our cores; an idle system takes about 0.01
STOLEN_SHARE = 0.05
PATIENCE_SECONDS = 120.0
SAMPLE_SECONDS = 0.5  # fifty ticks of Linux's clock on each core


def cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds since boot on the cores that this process may use, and those of
    this run's processes.

    Returns:
        cpu_cores (a count), cpu_busy_seconds (all processes), cpu_own_seconds (this run's
        processes, from its supervisor to its loader workers, ended ones included) and
        cpu_stolen_seconds (the hypervisor's; 0 where the system does not report it).
    """
    cores = identity.cores()
    times = [core for number, core in enumerate(psutil.cpu_times(percpu=True)) if number in cores]
    busy = ("user", "nice", "system", "irq", "softirq")
    return {
        "cpu_cores": len(times),
        "cpu_busy_seconds": sum(getattr(core, name, 0.0) for core in times for name in busy),
        "cpu_own_seconds": sum(map(consumed, processes.own())),
        "cpu_stolen_seconds": sum(getattr(core, "steal", 0.0) for core in times),
    }


def shares(before: dict, after: dict, seconds: float) -> tuple[float, float]:
    """Return the shares of CPU time that other processes and the hypervisor took between two
    moments.

    Args:
        before, after: from `cpu_seconds`; the shares are 0 if either lacks these counters, as
        older manifests do.
        seconds: the time between them.
    """
    names = ("cpu_busy_seconds", "cpu_own_seconds", "cpu_stolen_seconds")
    if seconds <= 0 or any(end.get(name) is None for end in (before, after) for name in names):
        return 0.0, 0.0
    busy, own, stolen = (after[name] - before[name] for name in names)
    available = after["cpu_cores"] * seconds
    return max(0.0, busy - own) / available, max(0.0, stolen) / available


def others_share() -> float:
    """Return the share of the CPU that others take now, measured over SAMPLE_SECONDS."""
    before, start = cpu_seconds(), time.monotonic()
    time.sleep(SAMPLE_SECONDS)
    return shares(before, cpu_seconds(), time.monotonic() - start)[0]


def patience() -> float:
    """Return how many seconds a point may wait for a calm machine and measure what others
    disturb."""
    given = context.current().patience
    return float(os.environ.get("BENCHBOOK_PATIENCE", PATIENCE_SECONDS)) if given is None else given


def wait_until_calm(seconds: float, say: Callable[[float], object] = lambda share: None) -> float:
    """Wait while others take much of the CPU; return the seconds waited.

    Args:
        seconds: the longest wait.
        say: called with the others' share.
    """
    started = time.monotonic()
    while (waited := time.monotonic() - started) < seconds and (
        share := others_share()
    ) > OTHERS_SHARE:
        say(share)
    return waited


def consumed(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])  # user and system, its own and its children's
    except psutil.Error:  # it has just ended
        return 0.0
