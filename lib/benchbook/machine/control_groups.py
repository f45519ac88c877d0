"""What Linux's control groups allow this process: a container's or a job's share of the CPU, and
of memory.

A group's limits hold for all groups inside it. Inside a container, only its own group may be
visible, as the topmost.
Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html and
scheduler/sched-bwc.html
"""

from collections.abc import Iterator
from pathlib import Path

GROUPS, MOUNTED = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
NO_LIMIT = 2**62  # bytes; version 1 writes the largest number of whole pages


def cpu_quota() -> float | None:
    """Return how many cores' time this process may use, such as 1.5; None: there is no such
    limit."""
    quotas = []
    for found in _files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        most, *period = found.read_text().split()
        if most not in ("max", "-1"):
            quotas.append(
                int(most) / int(*period or found.with_name("cpu.cfs_period_us").read_text().split())
            )
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Return the bytes of memory that this process and its group may use; None: there is no such
    limit."""
    return min((most for _, most in _memory_limits()), default=None)


def memory_left() -> int | None:
    """Return the bytes that are left of these limits; what Linux can drop of a file's copy in
    memory counts as left."""
    left = []
    for file, most in _memory_limits():
        used = file.with_name(
            "memory.current" if file.name == "memory.max" else "memory.usage_in_bytes"
        )
        counts = _counts(file.with_name("memory.stat"))
        cached = counts.get("total_inactive_file", counts.get("inactive_file", 0))
        left.append(max(0, most - int(used.read_text()) + cached))
    return min(left, default=None)


def _memory_limits() -> Iterator[tuple[Path, int]]:
    for file in _files("memory", "memory.max", "memory.limit_in_bytes"):
        most = file.read_text().strip()
        if most != "max" and int(most) < NO_LIMIT:
            yield file, int(most)


def memory_kills() -> int:
    """Return how many processes of this process's group Linux has killed to free memory; 0 if
    unknown."""
    for file in _files("memory", "memory.events", "memory.oom_control"):
        return _counts(file).get("oom_kill", 0)
    return 0


def _files(controller: str, second: str, first: str) -> Iterator[Path]:
    """Yield a file of each group that holds this process, the innermost first.

    Args:
        controller: its name in version 1.
        second, first: the file's names in versions 2 and 1.
    """
    for line in GROUPS.read_text().splitlines() if GROUPS.exists() else ():
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        top, name = (
            (MOUNTED, second) if number == "0" else (MOUNTED / controller, first)
        )  # version 2 has one hierarchy
        for group in (top / path.lstrip("/"), *(top / path.lstrip("/")).parents):
            if group.is_relative_to(top) and (group / name).is_file():
                yield group / name


def _counts(file: Path) -> dict[str, int]:
    lines = map(str.split, file.read_text().splitlines())
    return {name: int(count) for name, count in lines}
