"""What machines and their devices are called for people: made of chip, cores, memory and device, never by hand.

A machine's id, such as `apple-m1-8core-16gb`, stays what folders, links and tables use.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas

from benchbook import chips, manifests
from benchbook.devices.kinds import KINDS, named_by_driver

MARKS = re.compile(r"\((r|tm)\)|®|™", re.IGNORECASE)
# What makers of CPUs add to a chip's name, and what names of GPUs say in brackets of their cores.
ADDED = re.compile(r"\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*|\bwith radeon.*|\(.*cores?\b.*\)", re.IGNORECASE)
OTHER = "GPU"  # a kind of device that no table names
DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet", "synthetic": "random pixels"}
DRAWN = {"shapes": "drawn shapes", "triangles": "drawn triangles", "digits": "8 x 8 scans of digits"}  # before the size


@dataclass(frozen=True)
class Names:
    """The names of some machines.

    Attributes:
        machines: by id, such as `Apple M1, 16 GB`.
        chips: of devices that are chips of their own, by machine and kind, such as `NVIDIA RTX 4090`.
        shared: the ids of machines whose devices' names are also those of another machine's.
    """

    machines: dict[str, str]
    chips: dict[tuple[str, str], str]
    shared: frozenset[str] = frozenset()

    def machine(self, machine: str) -> str:
        """Return a machine's name; one that is not among them keeps its id."""
        return self.machines.get(machine, machine)

    def place(self, line: dict) -> str:
        """Return a machine with its device, such as `Apple M1, 16 GB, GPU` or `4 x NVIDIA V100`.

        Args:
            line: with machine and device (may be missing); device_count where several count.
        """
        machine, device, count = line["machine"], line.get("device"), line.get("device_count")
        if not isinstance(device, str):
            return self.machine(machine)
        if (machine, device) not in self.chips:
            return f"{self.machine(machine)}, {device_word(device)}"
        name = self.chips[machine, device]
        name = f"{count:.0f} x {name}" if pandas.notna(count) and count > 1 else name
        return f"{name} ({machine})" if machine in self.shared else name


def of(rows: pandas.DataFrame, folder: Path | None) -> Names:
    """Return the names of the machines of some rows.

    A machine whose chip is that of its GPU or TPU, as articles name them, is a `computer with` it. Cores and memory are
    those of a manifest, else those that the machine's id states. Where two machines that measured would have one name,
    each goes with its id.

    Args:
        rows: measured and published ones.
        folder: that holds the rows with their manifests: of one machine, or of all, each in its own; None without.
    """
    plain, own_chips = {}, {}
    for machine, own in rows.groupby("machine", sort=True):
        named = own[own["device_name"].notna() & own["device"].isin(named_by_driver())].drop_duplicates(
            "device", keep="last"
        )
        driven = {device: chip_name(name) for device, name in named[["device", "device_name"]].values.tolist()}
        own_chips |= {(machine, device): name for device, name in driven.items()}
        chip = chip_name(next(iter(own["chip"].dropna()), machine))
        alike = {chips.product(name) for name in driven.values()} & {chips.product(chip)}
        chip = f"computer with {chip}" if alike else chip  # its rows name it after its accelerator
        plain[machine] = ", ".join([chip, *_size(machine, chip, _description(folder, machine))])
    measured = set(rows.loc[rows["source"] == "measured", "machine"])
    twice = _named_alike({machine: plain[machine] for machine in measured})
    shared = {
        machine for machine, _ in _named_alike({key: name for key, name in own_chips.items() if key[0] in measured})
    }
    machines = {machine: f"{name} ({machine})" if machine in twice else name for machine, name in plain.items()}
    return Names(machines, own_chips, frozenset(shared))


def chip_name(text: str) -> str:
    """Return a chip's name without marks, cores and clock; one that is in the list of chips by its one name."""
    listed = chips.canonical(text)
    if listed != text or text in chips.table().index:
        return listed
    plain = " ".join(ADDED.sub(" ", MARKS.sub(" ", text)).split())
    return chips.canonical(plain) or text


def dataset(name: str) -> str:
    """Return what a data set is called: MNIST, CIFAR-10, drawn shapes."""
    return DATASETS.get(name) or DRAWN.get(name.partition("-")[0], name)


def device_word(kind: str) -> str:
    """Return what a kind of device is called: CPU, GPU, TPU."""
    return KINDS[kind].word if kind in KINDS else OTHER


def _description(folder: Path | None, machine: str) -> dict:
    """Return what one manifest says of a machine; nothing where there is none that can be read."""
    if folder is None:
        return {}
    own = folder / machine if (folder / machine).is_dir() else folder if folder.name == machine else None
    path = next(own.rglob(manifests.FILES), None) if own else None
    try:
        return manifests.read(path).get("machine") or {} if path else {}
    except manifests.ManifestError:
        return {}


def _size(machine: str, chip: str, described: dict) -> list[str]:
    """Return cores and memory in words; the name of an Apple chip says its cores."""
    cores = described.get("physical_cores") or _stated(machine, "core")
    memory = described.get("memory_bytes")
    gigabytes = max(1, round(memory / 2**30)) if memory else _stated(machine, "gb")
    counted = [] if not cores or chip.startswith("Apple") else [f"{cores} core{'s' * (cores > 1)}"]
    return counted + ([f"{gigabytes} GB"] if gigabytes else [])


def _stated(machine: str, unit: str) -> int | None:
    """Return the number before a unit in a machine's id, such as 16 of `apple-m1-8core-16gb`."""
    match = re.search(rf"(?:^|-)(\d+){unit}(?:-|$| )", machine)
    return int(match[1]) if match else None


def _named_alike(names: dict) -> set:
    """Return the keys whose name another key has too."""
    counts = Counter(names.values())
    return {key for key, name in names.items() if counts[name] > 1}
