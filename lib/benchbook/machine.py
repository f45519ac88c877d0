"""Who this computer is, and what software it runs.

Everything here may be published: no user, host name, home path, serial number or process name.
"""

import hashlib
import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import psutil

from benchbook import layout, nvidia


@dataclass(frozen=True)
class Machine:
    """What does not change while a machine is switched on.

    Attributes:
        name: the machine's folder under outputs/runs: letters, digits, '.', '_' and '-'.
        chip: the processor's marketing name.
        physical_cores, logical_cores: cores the operating system shows.
        usable_cores: cores this process may use (a container or a scheduler may allow fewer).
        memory_bytes: main memory.
        system: operating system with its version (macOS: with its build).
        accelerators: one name per NVIDIA GPU; on Apple silicon the chip's own.
    """

    name: str
    chip: str
    physical_cores: int
    logical_cores: int
    usable_cores: int
    memory_bytes: int
    system: str
    accelerators: tuple[str, ...]


def identify(name: str = "") -> Machine:
    """Describe this computer.

    Args:
        name: what to call it; empty takes BENCHBOOK_MACHINE, else a name made of chip, cores and memory.

    Raises:
        ValueError: the name has characters that cannot stand in a folder's name.
    """
    chip, memory = _chip(), psutil.virtual_memory().total
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count()
    name = name or os.environ.get("BENCHBOOK_MACHINE", "") or _default_name(chip, cores, memory)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise ValueError(f"machine name {name!r}: allowed are up to 64 letters, digits, '.', '_' and '-'")
    return Machine(
        name=name,
        chip=chip,
        physical_cores=cores,
        logical_cores=psutil.cpu_count(),
        usable_cores=usable_cores(),
        memory_bytes=memory,
        system=_system(),
        accelerators=tuple(nvidia.names()) or ((chip,) if _is_apple_silicon() else ()),
    )


def usable_cores() -> int:
    """Return how many logical cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count()


def environment() -> dict:
    """Return the software a run used: Python, every installed package, and the lock's SHA-256."""
    lock = layout.lock()
    # An installation that broke off leaves a package without a name.
    packages = {d.metadata["Name"].lower(): d.version for d in metadata.distributions() if d.metadata["Name"]}
    return {
        "python": platform.python_version(),
        "packages": dict(sorted(packages.items())),
        "lock": lock.name if lock else None,
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest() if lock else None,
    }


def commit() -> str:
    """Return the project's git commit, with '+changed' if library or notebooks differ; empty outside git."""
    head = _output("git", "-C", str(layout.root()), "rev-parse", "--short=12", "HEAD")
    watched = ("lib", "notebooks", "Snakefile")
    changed = _output("git", "-C", str(layout.root()), "status", "--porcelain", "--", *watched)
    return f"{head}+changed" if head and changed else head


def as_dictionary(machine: Machine) -> dict:
    """Return a machine as plain values, for JSON."""
    return asdict(machine) | {"accelerators": list(machine.accelerators)}


def _default_name(chip: str, cores: int, memory: int) -> str:
    gigabytes = max(1, round(memory / 2**30))
    plain = re.sub(r"\((r|tm)\)|processor|cpu|@.*", " ", chip.lower())
    words = [*re.findall(r"[a-z0-9]+", plain), f"{cores}core", f"{gigabytes}gb"]
    return "-".join(words)[:64].strip("-")


def _chip() -> str:
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system() -> str:
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]} ({_output('sysctl', '-n', 'kern.osversion')})"
    return f"{platform.system()} {platform.release()}"


def _is_apple_silicon() -> bool:
    return platform.system() == "Darwin" and platform.machine() == "arm64"


def _output(*command: str) -> str:
    """Return what a command prints, or an empty string if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
