"""Names of machines and devices for people, made from chip, cores, memory and device.

Folders, links and tables use a machine's id, such as `apple-m1-8core-16gb`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from benchbook.judging import wording
from benchbook.machine import identity, layout, libraries
from benchbook.machine.kinds import KINDS, named_by_driver
from benchbook.record import chips
from benchbook.rows import files, manifests, titles

if TYPE_CHECKING:
    import pandas

# Words that CPU makers add to a chip's name, and the number of cores in brackets after a GPU's
# name.
ADDED = re.compile(
    r"\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*|\bwith radeon.*|\(.*cores?\b.*\)", re.IGNORECASE
)
VOWEL = re.compile(r"[aeio]|nvidia|rtx|m\d|8|1[18]\b", re.IGNORECASE)  # names that take "an"
SERVER = "server with"
YOURS = " (yours)"
OTHER = "GPU"  # the word for a kind of device that is not in KINDS

# How labels and titles show a value, by column or parameter; False, 0 and "" are left out. Another
# text is shown as it is, another number after its name.
FORMATS = {
    "device": lambda kind: device_word(kind),
    "batch_size": "batch {:.0f}".format,
    "image_size": "{:.0f} px".format,
    "sequence_length": "{:.0f} tokens".format,
    "framework": lambda name: libraries.WORDS.get(name, name),
    "precision": lambda name: name.replace("amp_", "mixed "),
    "lora_rank": "LoRA of rank {}".format,
    "width": "width {:g}".format,
    "learning_rate": "rate {:g}".format,
    "device_count": lambda count: f"{count:.0f} processes" if count > 1 else "",
    "num_workers": "{:.0f} workers".format,
    "sustained_minutes": "{:g} min".format,
    "trainable": "all layers".format,
    "compiled": "compiled".format,
    "data_resident": "data on the device".format,
    "dataset": titles.dataset,
    "weights": "{} weights".format,
    "variant": lambda name: {"controlled": "equal loader"}.get(name, name),
    "matrix": {"eager": "each precision tried", "all": "each precision tried, compiled too"}.get,
    "loader": lambda name: {"resident": "data on the device"}.get(name, name),
    "kind": lambda kind: kind.replace("_", " "),
    "ladder": lambda settings: (
        settings.replace(" ", " + ").replace("amp_", "mixed ").replace("_", " ")
    ),
}


@dataclass(frozen=True)
class Name:
    """The parts of one machine's name.

    Attributes:
        chip: its processor, or `server with` and the GPU that its article names the machine after.
        cores: None if the chip's name implies the number, or if it is unknown.
        gigabytes: of main memory; None if unknown.
        suffix: the name that somebody gave the machine, in brackets; or a number, only if another
        machine has the same name.
    """

    chip: str
    cores: int | None = None
    gigabytes: int | None = None
    suffix: str = ""

    def __str__(self) -> str:
        """Return the name in tables and charts: `AMD EPYC, 2 cores, 24 GB`."""
        cores = f", {wording.count(self.cores, 'core')}" if self.cores else ""
        return (
            self.chip + cores + (f", {self.gigabytes} GB" if self.gigabytes else "") + self.suffix
        )

    def in_sentence(self, device: str) -> str:
        """Return a device of the machine that is not a separate chip: `a 2-core AMD EPYC`, `an
        Apple M1's GPU`."""
        if self.chip.startswith(SERVER):
            own = with_article(self.chip.removeprefix(f"{SERVER} "))
            return f"the {device} of a {SERVER} {own}{self.suffix}"
        if self.chip.startswith("Apple") or not device.startswith("CPU"):
            return f"{with_article(self.chip)}'s {device}{self.suffix}"
        return (
            with_article(f"{self.cores}-core {self.chip}" if self.cores else self.chip)
            + self.suffix
        )


@dataclass(frozen=True)
class Names:
    """The names of some machines.

    Attributes:
        machines: names by machine id.
        chips: names of devices that are separate chips, such as `NVIDIA RTX 4090`, by machine id
        and kind of device.
        shared: ids of machines with a device that has the same name as another machine's device.
        yours: ids of the reader's own machines.
        given: ids of machines that somebody named.
    """

    machines: dict[str, Name]
    chips: dict[tuple[str, str], str]
    shared: frozenset[str] = frozenset()
    yours: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    def machine(self, machine: str) -> str:
        """Return a machine's name, or its id if the machine is unknown."""
        return str(self.machines.get(machine, machine))

    def kind(self, line: dict) -> tuple:
        """Return what a line's machine shares with machines like it: chip, cores, memory; of the
        reader's, and of one that somebody named, its id."""
        machine = line["machine"]
        if machine not in self.machines or machine in self.yours | self.given:
            return (machine,)
        return replace(self.machines[machine], suffix=""), self.chips.get(
            (machine, line.get("device"))
        )

    def _name(self, line: dict) -> Name | None:
        name, pooled = self.machines.get(line["machine"]), line.get("pooled")
        return (
            replace(name, suffix=f" ({len(pooled)} machines)")
            if name and isinstance(pooled, list)
            else name
        )

    def chip(self, machine: str) -> str:
        """Return the chip that a machine is named after, or the machine's id if the machine is
        unknown."""
        return (
            self.machines[machine].chip.removeprefix(f"{SERVER} ")
            if machine in self.machines
            else machine
        )

    def place(self, line: dict) -> str:
        """Return a machine with its device, such as `Apple M1, 16 GB, GPU` or `4 x NVIDIA V100`.

        Args:
            line: with machine, device (may be missing) and, optionally, device_count and pooled
            (ids).
        """
        import pandas

        machine, device = line["machine"], line.get("device")
        if not isinstance(device, str):
            return self.machine(machine)
        if (machine, device) not in self.chips:
            return f"{self._name(line) or machine}, {device_word(device)}"
        count = line.get("device_count")
        several = f"{count:.0f} x " if pandas.notna(count) and count > 1 else ""
        suffix = f" ({machine})" if machine in self.shared | self.given else ""
        suffix += YOURS if machine in self.yours else ""
        suffix = self._name(line).suffix if isinstance(line.get("pooled"), list) else suffix
        return several + self.chips[machine, device] + suffix

    def in_sentence(self, line: dict) -> str:
        """Return a machine with its device for a sentence: `a 2-core AMD EPYC`, `an Apple M1's
        GPU`.

        Args:
            line: see `place`; several devices have no article.
        """
        machine, device, place = line["machine"], line.get("device"), self.place(line)
        if machine not in self.machines or " x " in place:
            return place.replace(" x ", " ", 1)
        if not isinstance(device, str) or (machine, device) in self.chips:
            return with_article(place)
        return self._name(line).in_sentence(device_word(device))


def from_rows(
    rows: pandas.DataFrame, folder: Path | None, yours: frozenset[str] = frozenset()
) -> Names:
    """Return the names of the machines in some rows.

    Articles often name a computer after its GPU or TPU; such a machine is called `server with`
    that chip. Cores and memory come from a manifest, else from the machine's id. A measured
    machine that somebody named has this name in brackets. Another machine of the same name is
    `another`, and several end with a number, in the order of their ids; the reader's, with YOURS.

    Args:
        rows: measured and published rows.
        folder: the folder of one machine, or of all machines, with rows and manifests; None if
        there are no manifests.
        yours: the reader's own machines, whose names end with YOURS.
    """
    machines, own_chips, given = {}, {}, set()
    columns = [
        "machine",
        "chip",
        "device",
        "device_name",
    ]  # grouping a table of few columns is much faster
    for machine, own in rows[columns].groupby("machine", sort=True):
        named = own[own["device_name"].notna() & own["device"].isin(named_by_driver())]
        named = named.drop_duplicates("device", keep="last")[["device", "device_name"]]
        driven = {device: chip_name(name) for device, name in named.values.tolist()}
        own_chips |= {(machine, device): name for device, name in driven.items()}
        chip = chip_name(next(iter(own["chip"].dropna()), machine))
        if chips.product(chip) in map(chips.product, driven.values()):
            chip = f"{SERVER} {chip}"
        described = _description(folder, machine)
        given |= {machine} if identity.is_given(machine, described) else set()
        cores = described.get("physical_cores") or _number_in_id(machine, "core")
        memory = described.get("memory_bytes")
        gigabytes = max(1, round(memory / 2**30)) if memory else _number_in_id(machine, "gb")
        machines[machine] = computer(chip, cores, gigabytes)
    measured = set(rows.loc[rows["source"] == "measured", "machine"])
    names, counts = {machine: str(machines[machine]) for machine in measured}, Counter()
    for machine in given:
        machines[machine] = replace(machines[machine], suffix=f" ({machine})")
    others = sorted(_with_shared_name(names) - given - yours)
    several = _with_shared_name({machine: names[machine] for machine in others})
    for machine in others:
        counts[names[machine]] += 1
        number = f"no. {counts[names[machine]]}" if machine in several else "another"
        machines[machine] = replace(machines[machine], suffix=f" ({number})")
    for machine in machines.keys() & yours:
        machines[machine] = replace(machines[machine], suffix=machines[machine].suffix + YOURS)
    shared = _with_shared_name({key: name for key, name in own_chips.items() if key[0] in measured})
    is_shared = frozenset(machine for machine, _ in shared)
    return Names(machines, own_chips, is_shared, yours, frozenset(given))


def computer(chip: str, cores: int | None, gigabytes: int | None = None) -> Name:
    """Return the name of a computer with a chip, whose name may imply the cores."""
    return Name(chip, None if chip.startswith("Apple") else cores, gigabytes)


def chip_name(text: str) -> str:
    """Return a chip's canonical name; for a chip that is not in the list, its name without ™,
    cores and clock."""
    plain = " ".join(ADDED.sub(" ", chips.TRADEMARKS.sub(" ", text)).split())
    return chips.listed(text) or chips.canonical(plain) or text


def words(line: Mapping, columns: Iterable[str], usual: Mapping = MappingProxyType({})) -> str:
    """Return a line's values in these columns in words; missing values, and those in `usual`,
    are left out."""
    import pandas

    told = []
    for name in columns:
        value = line.get(name)
        if pandas.notna(value) and value != usual.get(name):
            plain = value if isinstance(value, str) else f"{name.replace('_', ' ')} {value}"
            told.append((FORMATS[name](value) if value else "") if name in FORMATS else plain)
    return ", ".join(filter(None, told))


def with_article(name: str) -> str:
    """Return a name after `a` or `an`."""
    return f"an {name}" if VOWEL.match(name) else f"a {name}"


def device_word(kind: str) -> str:
    """Return the word for a kind of device, such as CPU, GPU or TPU."""
    return KINDS[kind].word if kind in KINDS else OTHER


def _description(folder: Path | None, machine: str) -> dict:
    """Return the machine's description in one of its manifests; empty if no manifest can be
    read."""
    if folder is None:
        return {}
    has_folder = layout.is_name(machine) and (folder / machine).is_dir()
    own = folder / machine if has_folder else folder if folder.name == machine else None
    paths = files.find(own, "json")[0] if own else []
    try:
        return manifests.read(paths[0]).get("machine") or {} if paths else {}
    except manifests.ManifestError:
        return {}


def _number_in_id(machine: str, unit: str) -> int | None:
    """Return the number before a unit in a machine's id, such as 16 in `apple-m1-8core-16gb`."""
    match = re.search(rf"(?:^|-)(\d+){unit}(?:-|$| )", machine)
    return int(match[1]) if match else None


def _with_shared_name(names: dict) -> set:
    """Return the keys that share their name with another key."""
    counts = Counter(names.values())
    return {key for key, name in names.items() if counts[name] > 1}
