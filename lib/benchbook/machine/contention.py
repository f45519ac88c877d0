"""How much of the computer others take: their processes, and the hypervisor of a virtual machine."""

import time

import psutil

from benchbook.machine import identity, processes

OTHERS_SHARE = 0.05  # share of the CPU time of our cores; an idle system takes about 0.01
STOLEN_SHARE = 0.05
LOOK_SECONDS = 0.5  # fifty ticks of Linux's clock on each core


def cpu_seconds() -> dict[str, float]:
    """Return CPU seconds since boot of the cores that this process may use, and those of this run's processes.

    Returns:
        cpu_cores (a count), cpu_busy_seconds (all processes), cpu_own_seconds (this run's: from whoever supervises it
        down to loader workers, ended ones included) and cpu_stolen_seconds (the hypervisor's; 0 where no one tells).
    """
    cores = identity.cores()
    times = [core for number, core in enumerate(psutil.cpu_times(percpu=True)) if number in cores]
    busy = ("user", "nice", "system", "irq", "softirq")
    return {
        "cpu_cores": len(times),
        "cpu_busy_seconds": sum(getattr(core, name, 0.0) for core in times for name in busy),
        "cpu_own_seconds": sum(map(_consumed, processes.family(processes.root()))),
        "cpu_stolen_seconds": sum(getattr(core, "steal", 0.0) for core in times),
    }


def shares(before: dict, after: dict, seconds: float) -> tuple[float, float]:
    """Return the shares of the CPU time between two moments that other processes and the hypervisor took.

    Args:
        before, after: from `cpu_seconds`; 0 and 0 where one of them is of an older version that did not count.
        seconds: that lay between.
    """
    names = ("cpu_busy_seconds", "cpu_own_seconds", "cpu_stolen_seconds")
    if seconds <= 0 or any(end.get(name) is None for end in (before, after) for name in names):
        return 0.0, 0.0
    busy, own, stolen = (after[name] - before[name] for name in names)
    offered = after["cpu_cores"] * seconds
    return max(0.0, busy - own) / offered, max(0.0, stolen) / offered


def look(seconds: float = LOOK_SECONDS) -> float:
    """Return the share of the CPU that others take now, measured over so many seconds."""
    before, clock = cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return shares(before, cpu_seconds(), time.monotonic() - clock)[0]


def _consumed(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])  # user and system, its own and its children's
    except psutil.Error:  # it has just ended
        return 0.0
