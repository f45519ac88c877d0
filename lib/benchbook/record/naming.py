"""Names of machines and devices for people, made of chip, cores, memory and device.

A machine's id, such as `apple-m1-8core-16gb`, stays what folders, links and tables use.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pandas

from benchbook.machine import layout
from benchbook.machine.kinds import KINDS, named_by_driver
from benchbook.record import chips
from benchbook.rows import manifests

MARKS = re.compile(r"\((r|tm)\)|®|™", re.IGNORECASE)
# What makers of CPUs add to a chip's name, and what names of GPUs say in brackets of their cores.
ADDED = re.compile(r"\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*|\bwith radeon.*|\(.*cores?\b.*\)", re.IGNORECASE)
VOWEL = re.compile(r"[aeio]|nvidia|rtx|m\d|8|1[18]\b", re.IGNORECASE)  # names that are spoken with a vowel first
COMPUTER = "server with"
OTHER = "GPU"  # a kind of device that no table names
DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet", "synthetic": "random pixels"}
DRAWN = {"shapes": "drawn shapes", "triangles": "drawn triangles", "digits": "8 x 8 scans of digits"}  # before the size


@dataclass(frozen=True)
class Name:
    """What is known of one machine for its name.

    Attributes:
        chip: its processor, or `server with` the GPU that its article names it after.
        cores: None where the chip's name says them, or where nobody does.
        gigabytes: of main memory; None where nobody says them.
        mark: its id in brackets, where another machine has the same name.
    """

    chip: str
    cores: int | None = None
    gigabytes: int | None = None
    mark: str = ""

    def __str__(self) -> str:
        """Return it as tables and charts show it: `AMD EPYC, 2 cores, 24 GB`."""
        cores = f", {self.cores} core{'s' * (self.cores > 1)}" if self.cores else ""
        return self.chip + cores + (f", {self.gigabytes} GB" if self.gigabytes else "") + self.mark

    def in_sentence(self, device: str) -> str:
        """Return it with a device that is no chip of its own: `a 2-core AMD EPYC`, `an Apple M1's GPU`."""
        if self.chip.startswith(COMPUTER):
            return f"the {device} of a {self.chip}{self.mark}"
        if self.chip.startswith("Apple") or not device.startswith("CPU"):
            return f"{with_article(self.chip)}'s {device}{self.mark}"
        return with_article(f"{self.cores}-core {self.chip}" if self.cores else self.chip) + self.mark


@dataclass(frozen=True)
class Names:
    """The names of some machines.

    Attributes:
        machines: by id.
        chips: of devices that are chips of their own, by machine and kind, such as `NVIDIA RTX 4090`.
        shared: the ids of machines whose devices have the name of another machine's.
    """

    machines: dict[str, Name]
    chips: dict[tuple[str, str], str]
    shared: frozenset[str] = frozenset()

    def table(self) -> pandas.DataFrame:
        """Return every machine's name, for those who have its id alone.

        Returns:
            Columns: machine, name.
        """
        names = [(machine, str(name)) for machine, name in self.machines.items()]
        return pandas.DataFrame(names, columns=["machine", "name"], dtype=str)

    def machine(self, machine: str) -> str:
        """Return a machine's name; one that is not among them keeps its id."""
        return str(self.machines.get(machine, machine))

    def chip(self, machine: str) -> str:
        """Return the chip that a machine is named after; of one that is not among them its id."""
        return self.machines[machine].chip.removeprefix(f"{COMPUTER} ") if machine in self.machines else machine

    def place(self, line: dict) -> str:
        """Return a machine with its device, such as `Apple M1, 16 GB, GPU` or `4 x NVIDIA V100`.

        Args:
            line: with machine and device (may be missing); device_count where several count.
        """
        machine, device = line["machine"], line.get("device")
        if not isinstance(device, str):
            return self.machine(machine)
        if (machine, device) not in self.chips:
            return f"{self.machine(machine)}, {device_word(device)}"
        count, chip = self._chips(line)
        return f"{count} x {chip}" if count > 1 else chip

    def in_sentence(self, line: dict) -> str:
        """Return a machine with its device as a sentence names it: `a 2-core AMD EPYC`, `an Apple M1's GPU`.

        Args:
            line: see `place`.
        """
        machine, device = line["machine"], line.get("device")
        if machine not in self.machines:
            return self.place(line)
        if not isinstance(device, str):
            return with_article(self.machine(machine))
        if (machine, device) not in self.chips:
            return self.machines[machine].in_sentence(device_word(device))
        count, chip = self._chips(line)
        return f"{count} {chip}" if count > 1 else with_article(chip)

    def _chips(self, line: dict) -> tuple[int, str]:
        machine, count = line["machine"], line.get("device_count")
        mark = f" ({machine})" if machine in self.shared else ""
        return int(count) if pandas.notna(count) else 1, self.chips[machine, line["device"]] + mark


def of(rows: pandas.DataFrame, folder: Path | None) -> Names:
    """Return the names of the machines of some rows.

    A machine whose chip is that of its GPU or TPU, as articles name them, is a `server with` it. Cores and memory are
    those of a manifest, else those that the machine's id states. Where two machines that measured would have one name,
    each goes with its id, or with what its id has beyond the other's.

    Args:
        rows: measured and published ones.
        folder: that holds the rows with their manifests: of one machine, or of all, each in its own; None without.
    """
    machines, own_chips = {}, {}
    columns = ["machine", "chip", "device", "device_name"]  # of few columns a table is divided much faster
    for machine, own in rows[columns].groupby("machine", sort=True):
        named = own[own["device_name"].notna() & own["device"].isin(named_by_driver())]
        named = named.drop_duplicates("device", keep="last")[["device", "device_name"]]
        driven = {device: chip_name(name) for device, name in named.values.tolist()}
        own_chips |= {(machine, device): name for device, name in driven.items()}
        chip = chip_name(next(iter(own["chip"].dropna()), machine))
        if chips.product(chip) in map(chips.product, driven.values()):
            chip = f"{COMPUTER} {chip}"
        described = _description(folder, machine)
        cores = described.get("physical_cores") or _stated(machine, "core")
        memory = described.get("memory_bytes")
        gigabytes = max(1, round(memory / 2**30)) if memory else _stated(machine, "gb")
        machines[machine] = Name(chip, None if chip.startswith("Apple") else cores, gigabytes)  # it says its cores
    measured = set(rows.loc[rows["source"] == "measured", "machine"])
    same = {machine: str(machines[machine]) for machine in measured}
    for machine in _named_alike(same):  # of `box` and `box-4606` the first needs no mark
        others = [other for other in same if other != machine and same[other] == same[machine]]
        beyond = [machine.removeprefix(f"{other}-") for other in others if machine.startswith(f"{other}-")]
        if not all(other.startswith(f"{machine}-") for other in others):
            machines[machine] = replace(machines[machine], mark=f" ({min([machine, *beyond], key=len)})")
    alike = _named_alike({key: name for key, name in own_chips.items() if key[0] in measured})
    return Names(machines, own_chips, frozenset(machine for machine, _ in alike))


def chip_name(text: str) -> str:
    """Return a chip's name without marks, cores and clock; one that is in the list of chips by its one name."""
    plain = " ".join(ADDED.sub(" ", MARKS.sub(" ", text)).split())
    return chips.listed(text) or chips.canonical(plain) or text


def dataset(name: str) -> str:
    """Return a data set's title, such as MNIST, CIFAR-10 or drawn shapes."""
    return DATASETS.get(name) or DRAWN.get(name.partition("-")[0], name)


def with_article(name: str) -> str:
    """Return a name with `a`, or with `an` where it is spoken with a vowel first."""
    return f"an {name}" if VOWEL.match(name) else f"a {name}"


def device_word(kind: str) -> str:
    """Return the title of a kind of device, such as CPU, GPU or TPU."""
    return KINDS[kind].word if kind in KINDS else OTHER


def _description(folder: Path | None, machine: str) -> dict:
    """Return what one manifest says of a machine; nothing where there is none that can be read."""
    if folder is None:
        return {}
    is_there = layout.is_name(machine) and (folder / machine).is_dir()
    own = folder / machine if is_there else folder if folder.name == machine else None
    path = next(own.rglob(manifests.FILES), None) if own else None
    try:
        return manifests.read(path).get("machine") or {} if path else {}
    except manifests.ManifestError:
        return {}


def _stated(machine: str, unit: str) -> int | None:
    """Return the number before a unit in a machine's id, such as 16 of `apple-m1-8core-16gb`."""
    match = re.search(rf"(?:^|-)(\d+){unit}(?:-|$| )", machine)
    return int(match[1]) if match else None


def _named_alike(names: dict) -> set:
    """Return the keys that share their name with another key."""
    counts = Counter(names.values())
    return {key for key, name in names.items() if counts[name] > 1}
