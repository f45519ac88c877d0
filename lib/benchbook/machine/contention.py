"""How much of the computer others take: their processes, and the hypervisor of a virtual
machine."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from benchbook.machine import context, identity, nvidia, processes
from benchbook.machine.kinds import KINDS

OTHERS_SHARE = 0.05  # share of the CPU time of our cores; an idle system takes about 0.01
SYSTEM_FILES = Path("/sys")
STOLEN_SHARE = 0.05
DEVICE_SHARE = 0.1  # of an accelerator's time; drawing a desktop takes less
DEVICE_READINGS = 3  # of which the lowest counts: a tool's number may be of this study's last work
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


def is_virtual() -> bool:
    """Return whether a hypervisor hides this computer's host, or took time of its CPU."""
    return bool(identity.hypervisor() or cpu_seconds()["cpu_stolen_seconds"])


def shares(before: dict, after: dict, seconds: float) -> tuple[float, float]:
    """Return the shares of CPU time that other processes and the hypervisor took between two
    moments.

    Args:
        before, after: from `cpu_seconds`; the shares are 0 if either lacks these counters, as
        older manifests do.
        seconds: the time between them.
    """
    names = ("cpu_busy_seconds", "cpu_own_seconds", "cpu_stolen_seconds")
    available = (after.get("cpu_cores") or 0) * seconds
    if available <= 0 or any(end.get(name) is None for end in (before, after) for name in names):
        return 0.0, 0.0
    busy, own, stolen = (after[name] - before[name] for name in names)
    return max(0.0, busy - own) / available, max(0.0, stolen) / available


def others_share() -> float:
    """Return the share of the CPU that others take now, measured over SAMPLE_SECONDS."""
    before, start = cpu_seconds(), time.monotonic()
    time.sleep(SAMPLE_SECONDS)
    return shares(before, cpu_seconds(), time.monotonic() - start)[0]


def device_busy(kind: str) -> float | None:
    """Return in which share of the time others use an accelerator, while this study leaves it idle;
    None if no tool tells.

    Of several devices that one tool reads, the least busy counts.
    """
    readings: list[float] = []
    while len(readings) < DEVICE_READINGS:
        if readings:
            time.sleep(SAMPLE_SECONDS)
        if not (shares := device_shares(kind)):
            break
        readings.append(min(shares))
        if readings[-1] <= DEVICE_SHARE:
            break
    return min(readings, default=None)


def device_shares(kind: str) -> list[float]:
    """Return in which share of the time each accelerator of a kind is busy now, as a tool tells;
    empty if none does. Of NVIDIA's, only the first visible one is read."""
    features = KINDS[kind]
    if features.energy_counter == "nvml":
        return nvidia.utilisation()[:1]
    texts = [processes.output(*features.busy_command)] if features.busy_command else []
    for path in sorted(SYSTEM_FILES.glob(features.busy_files)) if features.busy_files else ():
        try:
            texts.append(path.read_text())
        except OSError:  # a sleeping card refuses
            return []
    found = [re.search(features.busy_pattern, text, re.MULTILINE) for text in texts]
    return [float(match[1]) / 100 for match in found if match]


def patience() -> float:
    """Return how many seconds a point may wait for a calm machine and measure what others
    disturb."""
    given = context.current().patience
    return float(os.environ.get("BENCHBOOK_PATIENCE", PATIENCE_SECONDS)) if given is None else given


def disturbance(kind: str = "cpu") -> str:
    """Return who takes much of the CPU, or of a kind of accelerator, now; empty if nobody does."""
    before = _used_by_others()
    if (share := others_share()) > OTHERS_SHARE:
        most = (_used_by_others() - before).most_common(1)
        who = f"{most[0][0]} and others" if most else "other processes"
        return f"{who} take {share:.0%} of the CPU"
    busy = None if kind == "cpu" else device_busy(kind)
    word = KINDS[kind].word
    return f"others use the {word} for {busy:.0%} of the time" if (busy or 0) > DEVICE_SHARE else ""


def wait_until_calm(
    seconds: float, kind: str = "cpu", say: Callable[[str], object] = lambda line: None
) -> float:
    """Wait while others take much of the CPU or the device; return the seconds waited.

    Args:
        seconds: the longest wait.
        kind: of the device that is to be measured.
        say: called with what is waited for, and for how long at most.
    """
    started = time.monotonic()
    while (waited := time.monotonic() - started) < seconds and (who := disturbance(kind)):
        left = max(0.0, seconds - (time.monotonic() - started))
        say(f"waiting: {who}; at most {left:.0f} s more, BENCHBOOK_PATIENCE=0 skips")
    return waited


def _used_by_others() -> Counter:
    """Return the CPU seconds of the other processes that run now, by their names."""
    own, used = {process.pid for process in processes.own()}, Counter()
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # another user's, or it has just ended
            if process.pid not in own:
                used[process.name()] += consumed(process)
    return used


def consumed(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])  # user and system, its own and its children's
    except psutil.Error:  # it has just ended
        return 0.0
