"""Identify this computer and its software.

Everything here may be published: it holds no user, host name, home path, serial number or
process name.
"""

import fnmatch
import glob
import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from benchbook.machine import context, control_groups, layout, nvidia, variables
from benchbook.machine.kinds import KINDS, TPUS
from benchbook.machine.processes import output
from benchbook.machine.variables import TENSORFLOW_THREADS, THREADS, XLA_THREADS

KIND_DIGITS = 4  # of a fingerprint, in the name of a machine whose plain name is taken
CPUINFO, DEVICE_TREE = Path("/proc/cpuinfo"), Path("/proc/device-tree/model")
PCI = Path("/sys/bus/pci/devices")

HIDING = {
    "wsl": "WSL",
    "microsoft": "Hyper-V",
    "vmware": "VMware",
    "oracle": "VirtualBox",
    "parallels": "Parallels",
    "bhyve": "bhyve",
    "apple": "Apple's",
}
INSTRUCTION_SETS = re.compile(
    r"(sse|ssse|avx|amx|fma|f16c|bmi|asimd|sve|bf16|i8mm|fphp)"
)  # those that training uses


@dataclass(frozen=True)
class Machine:
    """The properties of a machine that do not change while it is switched on.

    Attributes:
        name: the machine's folder under outputs/runs, see `layout.check_name`.
        chip: the processor's marketing name.
        physical_cores, logical_cores: cores that the operating system reports.
        usable_cores: see `usable_cores`.
        cpu_quota: see `control_groups.cpu_quota`.
        hypervisor: see `hypervisor`.
        memory_bytes: see `memory_bytes`.
        system: operating system with its version (macOS: with its build).
        accelerators: one name per NVIDIA GPU or TPU chip; on Apple silicon the name of the chip.
        AMD and Intel: none.
        fingerprint: of the kind of computer, not of this computer or its owner; see `fingerprint`.
    """

    name: str
    chip: str
    physical_cores: int
    logical_cores: int
    usable_cores: int
    memory_bytes: int
    system: str
    accelerators: list[str]
    fingerprint: str
    cpu_quota: float | None = None
    hypervisor: str = ""


def identify(name: str = "") -> Machine:
    """Describe this computer.

    Args:
        name: the machine's name; empty: BENCHBOOK_MACHINE, else a name made of chip, cores,
        memory and accelerators.
            It gets digits of the fingerprint if only other kinds of computer, or unknown ones,
            have rows under it; the cores and threads that may be used count.

    Raises:
        ValueError: a folder cannot have the given name.
    """
    chip, memory = processor(), memory_bytes()
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count()
    digits = fingerprint()
    cards, is_mac = [gpu for gpu, _ in nvidia.kinds()] or _tpus(), platform.system() == "Darwin"
    identified = "" if name else context.current().machine  # by the process that started this one
    name = identified or name or os.environ.get("BENCHBOOK_MACHINE")
    name = layout.check_name(name or default_name(chip, physical, memory, cards), "machine name")
    if not identified and _is_taken(name, digits):
        name = with_kind(name, digits)
    return Machine(
        name=name,
        chip=chip,
        physical_cores=physical,
        logical_cores=psutil.cpu_count(),
        usable_cores=usable_cores(),
        memory_bytes=memory,
        system=f"macOS {macos()} ({output('sysctl', '-n', 'kern.osversion')})"
        if is_mac
        else f"{platform.system()} {platform.release()}",
        accelerators=cards or ([chip] if is_mac and platform.machine() == "arm64" else []),
        fingerprint=digits,
        cpu_quota=limits().get("cpu_quota"),
        hypervisor=hypervisor(),
    )


def with_kind(name: str, *digits: str) -> str:
    """Return a machine's name with the first digits of its fingerprint, and of what else
    distinguishes computers.

    Args:
        name: the machine's name.
        digits: its fingerprint, and others.

    Raises:
        ValueError: the name or the digits cannot be part of a folder's name.
    """
    ending = "".join(f"-{each[:KIND_DIGITS]}" for each in digits)
    short = name[: layout.MAX_NAME_LENGTH - len(ending)]
    return layout.check_name(f"{short}{ending}", "machine name")


def fingerprint() -> str:
    """Return twelve hexadecimal digits that all computers of one kind share and that reveal
    nothing about their owners.

    They are a hash of the processor's family, model and stepping, the instruction sets that
    training uses, cores, caches, memory in whole GiB, the family of the operating system, the
    GPUs with their memory, or the TPUs, and limits of cores and threads.
    """
    if platform.system() == "Darwin":
        names = ("hw.cpufamily", "hw.cpusubfamily", "hw.l1dcachesize", "hw.l2cachesize", "hw.model")
        own = {name: output("sysctl", "-n", name) for name in (*names, "hw.perflevel0.physicalcpu")}
    else:
        own = _linux_traits(CPUINFO, Path("/sys/devices/system/cpu/cpu0/cache"))
    traits = own | {
        "architecture": platform.machine(),
        "system": platform.system(),
        "chip": processor(),
        "cores": [psutil.cpu_count(logical=False), psutil.cpu_count()],
        "memory_gib": round(memory_bytes() / 2**30),
        "gpus": nvidia.kinds() or _tpus(),
        **limits(),
    }
    return hashlib.sha256(json.dumps(traits, sort_keys=True).encode()).hexdigest()[:12]


def hypervisor() -> str:
    """Return the hypervisor of this virtual machine if it hides how busy its host is: others' work
    there is neither this system's nor stolen time.

    KVM and Xen count stolen time. Source: systemd-detect-virt(1)
    """
    if platform.system() == "Darwin":
        return "Apple's" if output("sysctl", "-n", "kern.hv_vmm_present") == "1" else ""
    if "microsoft" in platform.release().lower():
        return "WSL"
    return HIDING.get(output("systemd-detect-virt", "--vm"), "")


def macos() -> str:
    """Return the release of macOS; empty on other systems.

    macOS 26 tells a Python that was built for an older one that it is 16.
    """
    told = platform.mac_ver()[0]
    return (output("sysctl", "-n", "kern.osproductversion") or told) if told else ""


def cores() -> set[int]:
    """Return the numbers of the logical cores that this process may run on."""
    return (
        os.sched_getaffinity(0)
        if hasattr(os, "sched_getaffinity")
        else set(range(psutil.cpu_count()))
    )


def usable_cores() -> int:
    """Return how many logical cores this process may use at a time: fewer than all by affinity,
    or by a CPU quota."""
    return min(len(cores()), math.ceil(control_groups.cpu_quota() or len(cores())))


def memory_bytes() -> int:
    """Return the main memory that this process may use: all, or a container's limit."""
    total = psutil.virtual_memory().total
    return min(total, control_groups.memory_limit() or total)


def missing_cores() -> int:
    """Return how many of the cores that this study's first process could use are taken away now, by
    affinity or by a quota."""
    return max(0, limits().get("usable_cores", psutil.cpu_count()) - usable_cores())


def limits() -> dict[str, float | str]:
    """Return the limits of this machine's CPU: usable cores, a container's quota, and threads;
    empty without any.

    All processes of a study have the limits of the first one: frameworks bind threads to cores,
    and processes that train together get threads of their own. By themselves, frameworks do not
    see a quota: their threads are limited.
    """
    if context.current().limits is None:
        usable, threads = usable_cores(), os.environ.get(THREADS)
        found = {"usable_cores": usable} if usable != psutil.cpu_count() else {}
        if (quota := control_groups.cpu_quota()) and quota < len(cores()):
            found["cpu_quota"] = quota
            threads = threads if threads != str(usable) else None  # which a parent process set
            for name in (THREADS, TENSORFLOW_THREADS, XLA_THREADS):
                os.environ.setdefault(name, str(usable))
        context.change(limits=found | ({"threads": threads} if threads else {}))
    return context.current().limits


def environment() -> dict:
    """Return the software that a run uses: Python, packages, environment variables, the lock's
    name and SHA-256."""
    lock, packages = layout.lock(), dict(reversed([*_packages()]))  # the first on the path counts
    return {
        "python": platform.python_version(),
        "packages": dict(sorted(packages.items())),
        "variables": users_variables(),
        "lock": lock.name if lock else None,
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest() if lock else None,
    }


def users_variables() -> dict[str, str]:
    """Return the listed variables that a user set, without what `limits` set for a quota; of
    threads, the limit."""
    found, by_quota = variables.recorded(), str(usable_cores())
    for name in (TENSORFLOW_THREADS, XLA_THREADS):
        if "cpu_quota" in limits() and found.get(name) == by_quota:
            del found[name]
    found.pop(THREADS, None)
    return found | ({THREADS: limits()["threads"]} if "threads" in limits() else {})


def commit() -> str:
    """Return the project's git commit, with '+changed' if library or notebooks differ.

    If pip installed the project from a repository, pip's own record has the commit. It is empty
    without a repository, and "unknown" if git does not read the one that is there; see
    `git_fault`.
    """
    if (folder := layout.checkout()) and not (folder / ".git").exists():
        return ""  # a copy without its repository, maybe inside another one
    if not folder:
        recorded = metadata.distribution("benchbook").read_text("direct_url.json")
        return json.loads(recorded or "{}").get("vcs_info", {}).get("commit_id", "")[:12]
    head = output("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD")
    changed = output("git", "-C", str(folder), "status", "--porcelain", "--", "lib", "notebooks")
    if not head and git_fault():
        return "unknown"
    return f"{head}+changed" if head and changed else head


def version() -> str:
    """Return the project's name, version and commit, for people."""
    return f"benchbook {metadata.version('benchbook')}, commit {commit() or 'unknown'}"


def git_fault() -> str:
    """Return git's words if it refuses the checkout's repository, such as one of another owner;
    else empty."""
    if not ((folder := layout.checkout()) and (folder / ".git").exists()):
        return ""
    try:
        subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"],
            check=True,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        return str(error)
    except subprocess.CalledProcessError as error:
        return error.stderr.strip().partition("\n")[0]
    return ""


def repository() -> str:
    """Return owner/name on GitHub, from BENCHBOOK_REPOSITORY, else from the package; empty if
    neither has one."""
    addresses = dict(
        line.split(", ", 1) for line in metadata.metadata("benchbook").get_all("Project-URL", [])
    )
    own = addresses.get("Repository", "").removeprefix("https://github.com/")
    named = os.environ.get("BENCHBOOK_REPOSITORY") or own
    return named if re.fullmatch(r"[A-Za-z0-9-]+/[\w.-]+", named) else ""


def _linux_traits(cpuinfo: Path, caches: Path) -> dict:
    """Return family, model, stepping, instruction sets and caches of the first core."""
    fields = _first_core(cpuinfo)
    sets = fields.get("flags", fields.get("Features", "")).split()
    names = (
        "vendor_id",
        "cpu family",
        "model",
        "stepping",
        "CPU implementer",
        "CPU part",
        "CPU variant",
    )
    return {
        **{name: fields.get(name) for name in names},
        "instruction_sets": sorted(name for name in sets if INSTRUCTION_SETS.match(name)),
        "caches": [path.read_text().strip() for path in sorted(caches.glob("index*/size"))],
    }


def _is_taken(name: str, digits: str) -> bool:
    """Return whether all rows under a machine's name are of other fingerprints, or of none."""
    kinds = set()
    for path in layout.runs(name).rglob("*Z-*.json"):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            kinds.add(manifest["machine"].get("fingerprint"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # reading the rows reports a bad file
        if digits in kinds:
            return False
    return bool(kinds)


def default_name(chip: str, cores: int, memory: int, accelerators: list[str]) -> str:
    """Return a name such as `intel-xeon-2core-13gb-tesla-t4`.

    Args:
        chip: the processor's marketing name.
        cores, memory: physical cores, and bytes.
        accelerators: one name for each; a Mac's own chip is none.
    """
    plain = re.sub(r"\((r|tm)\)|processor|cpu|@.*", " ", chip.lower())
    words = [*re.findall(r"[a-z0-9]+", plain), f"{cores}core", f"{max(1, round(memory / 2**30))}gb"]
    for name, count in Counter(accelerators).items():
        several = f"{count}x " if count > 1 else ""
        words += re.findall(r"[a-z0-9]+", several + name.lower())
    return "-".join(words)[: layout.MAX_NAME_LENGTH - KIND_DIGITS - 1].strip("-")


def is_given(name: str, about: Mapping) -> bool:
    """Return whether somebody chose a machine's name: it is not made of chip, cores and memory,
    with digits of its fingerprint or session.

    Args:
        name: the machine's.
        about: the machine in one of its manifests; without a chip, nothing is known.
    """
    chip, memory = about.get("chip"), about.get("memory_bytes")
    if not chip or not memory or not about.get("physical_cores"):
        return False
    cards = [card for card in about.get("accelerators") or () if card != chip]
    usual = default_name(chip, about["physical_cores"], memory, cards)
    return not re.fullmatch(rf"{re.escape(usual)}(-[0-9a-f]{{{KIND_DIGITS}}})*", name)


def processor() -> str:
    """Return the processor's marketing name."""
    if platform.system() == "Darwin":
        return output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    fields = _first_core(CPUINFO)
    return (
        fields.get("model name", "").strip()
        or _arm_chip(fields)
        or platform.processor()
        or platform.machine()
    )


def _first_core(cpuinfo: Path) -> dict[str, str]:
    first = cpuinfo.read_text().partition("\n\n")[0] if cpuinfo.exists() else ""
    return dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", first, re.MULTILINE))


def _arm_chip(fields: dict[str, str]) -> str:
    """Return the name of an ARM chip: its board's (Jetson, Raspberry Pi), else its kinds of
    core; empty for others.

    Linux shows numbers for the implementer and the design of a core; lscpu knows the names of most.
    """
    if "CPU part" not in fields:
        return ""
    board = DEVICE_TREE.read_text().strip("\0\n ") if DEVICE_TREE.exists() else ""
    if board and "dummy" not in board:  # a virtual machine is linux,dummy-virt
        return board
    printed = output("env", "LC_ALL=C", "lscpu")
    names = dict.fromkeys(re.findall(r"^ *Model name: +(\w\S*.*)$", printed, re.MULTILINE))
    return " + ".join(names) or f"ARM {fields.get('CPU implementer')} {fields['CPU part']}"


def present() -> tuple[str, ...]:
    """Return the kinds of accelerator whose driver files or cards this computer has, whether or
    not the driver works.

    A container may show the cards of its host. Those that the user hides on purpose do not count.
    """
    cards = [path.read_text() for path in PCI.glob("*/modalias")]
    return tuple(
        name
        for name, kind in KINDS.items()
        if any(map(glob.glob, kind.files))
        or any(fnmatch.filter(cards, pattern) for pattern in kind.cards)
        if os.environ.get(kind.hidden_by) not in ("", "-1")
    )


def _tpus() -> list[str]:
    """Return the name of every Cloud TPU chip on the PCI bus."""
    cards = (
        re.match("pci:v00001AE0d000000(..)", path.read_text()) for path in PCI.glob("*/modalias")
    )
    return [TPUS[card[1]] for card in cards if card and card[1] in TPUS]


def _packages() -> Iterator[tuple[str, str]]:
    """Yield name and version of every installed package; a broken installation has neither and
    is left out.

    It searches the header of each package's metadata: parsing all metadata takes twenty times as
    long.
    """
    for package in metadata.distributions():
        header = (package.read_text("METADATA") or package.read_text("PKG-INFO") or "").partition(
            "\n\n"
        )[0]
        name, version = (
            re.search(rf"^{field}: *(\S+)", header, re.MULTILINE) for field in ("Name", "Version")
        )
        if name and version:
            yield name[1].lower(), version[1]
