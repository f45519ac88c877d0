"""Energy of one window, from the machine's own counters through Zeus."""

import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchbook.frameworks.devices import Device
from benchbook.machine import nvidia
from benchbook.measuring import failures

RAPL = Path("/sys/class/powercap/intel-rapl")  # Linux's counters of Intel and AMD CPUs
SLOWEST_SECONDS = 3.0  # between two moves of a counter; Apple's move every 2.1 s at the slowest
POLL_SECONDS = 0.002
# A window with joules lasts this many periods of its counter, and those whose length is chosen last
# some more.
LEAST_PERIODS, CHOSEN_PERIODS = 3, 4
BOUNDARIES = {
    "nvml": "board",
    "amdsmi": "board",
    "apple_ioreport": "soc",
    "rapl": "package",
}  # by method
# The parts of Apple's chip. The last two have no counter on some chips.
APPLE_PARTS = ("cpu_total_mj", "gpu_mj", "dram_mj", "gpu_sram_mj", "ane_mj")


@dataclass(frozen=True)
class Energy:
    """Joules of one window, and what they cover.

    Attributes:
        joules: energy; None if nothing could be read.
        method: nvml, amdsmi, apple_ioreport or rapl; None without a sensor.
        boundary: board (of a GPU), soc (Apple's chip and its memory) or package (of a CPU).
        parts: the joules of each part of Apple's chip, by its name in APPLE_PARTS.
    """

    joules: float | None = None
    method: str | None = None
    boundary: str | None = None
    parts: dict[str, float] | None = field(default=None, compare=False)


@dataclass
class Sensor:
    """Measures the energy of a window; this base class, for machines without a counter, leaves
    it missing, not zero.

    Attributes:
        reason: why there is no counter; empty: none was expected.
        method: see `Energy`; None without a counter.
        least_seconds: how long a window should last.
    """

    reason: str = ""
    method: str | None = None
    least_seconds: float = 0.0

    def begin(self) -> None:
        """Begin a window. The caller has synchronised the device."""

    def end(self) -> Energy:
        """End the window and return its joules."""
        return Energy()


NO_SENSOR = Sensor()


@dataclass(kw_only=True)
class Counters(Sensor):
    """Reads the energy counters of one device, or of several that train together.

    Energy is missing, not zero, if a counter stood still that should move, if one went back, if
    the window was too short for the counters, and if the joules are more than such devices can
    draw.

    Attributes:
        read: returns the mJ of each part so far.
        moving: the parts whose counters move in every window.
        period: seconds between two moves of a counter.
    """

    read: Callable[[], dict[Any, float]]
    moving: Sequence[Any]
    period: float = 0.0
    _highest: dict[Any, float] = field(default_factory=dict)

    def begin(self) -> None:
        self._begun = self._totals(), time.monotonic()

    def end(self) -> Energy:
        (before, began), after = self._begun, self._totals()
        seconds, boundary = time.monotonic() - began, BOUNDARIES[self.method]
        spent = {
            name: (total - before[name]) / 1000 for name, total in after.items() if name in before
        }
        stood = any(spent.get(name, 0) <= 0 for name in self.moving)
        if stood or seconds < LEAST_PERIODS * self.period:
            return Energy()
        parts = spent if boundary == "soc" else None
        return Energy(sum(spent.values()), self.method, boundary, parts)

    def learn_period(self) -> bool:
        """Watch a counter until it has moved twice; return whether it did."""
        self._highest, moves, began = self.read(), [], time.monotonic()
        last = self._highest[self.moving[0]]
        while len(moves) < 2:
            if time.monotonic() - began > 2 * SLOWEST_SECONDS:
                return False
            time.sleep(POLL_SECONDS)
            total = self.read()[self.moving[0]]
            if total != last:
                moves.append(time.monotonic())
                last = total
        self.period = moves[1] - moves[0]
        self.least_seconds = CHOSEN_PERIODS * self.period
        return True

    def _totals(self) -> dict[Any, float]:
        """Return the mJ of each part so far; empty if they cannot be read, or if a counter is
        below its highest.

        RAPL's counters begin again from 0 about once an hour. Zeus adds what was before up to a
        second too late: until then, all that it returns is too small.
        """
        try:
            totals = self.read()
        except Exception:  # of any type that a library has
            return {}
        is_behind = any(total < self._highest.get(name, total) for name, total in totals.items())
        self._highest = {
            name: max(total, self._highest.get(name, total)) for name, total in totals.items()
        }
        return {} if is_behind else totals


@functools.cache
def open_sensor(device: Device | None) -> Sensor:
    """Return the energy sensor of a device on this machine, the same at each call; an unknown
    device has none.

    Without Zeus, or without a counter that moves and may be read, it is a `Sensor` that says why.
    """
    counter = device and device.features.energy_counter
    if not (counter and device.count) or (
        device.is_cpu and sys.platform != "darwin" and not RAPL.exists()
    ):
        return NO_SENSOR  # without importing Zeus, which takes seconds
    logging.getLogger("zeus").setLevel(
        logging.ERROR
    )  # Zeus warns about each missing vendor library
    try:
        sensor = _counters(device, "apple_ioreport" if sys.platform == "darwin" else counter)
        return (
            sensor
            if sensor.learn_period()
            else Sensor(f"the counter of {sensor.method} does not move")
        )
    except (
        Exception
    ) as error:  # no Zeus, another library called pynvml, no permission, a driver that refuses
        return Sensor(failures.refusal(error)["message"])


def _counters(device: Device, method: str) -> Counters:
    """Return the counters of a device as Zeus reads them.

    Raises:
        Exception: whatever Zeus or a driver raises, and RuntimeError if there is no counter of
        this device alone.
    """
    numbers = list(
        range(device.index, device.index + device.count)
    )  # Zeus numbers AMD's GPUs as torch does
    if method == "nvml":
        numbers = nvidia.numbers_from_cuda(device.name, device.index, device.count)
        if not (len(numbers) == device.count and all(map(nvidia.counts_energy, numbers))):
            raise RuntimeError(f"{device.name} has no energy counter of its work alone")
    from zeus.device import get_cpus, get_gpus, get_soc

    if method == "apple_ioreport":
        if "Ultra" in device.name:  # zeus-apple-silicon 1.1.0 keeps what the last die counted
            raise RuntimeError(f"the energy of one of the two dies of {device.name} is not counted")
        chip, numbers = get_soc(), APPLE_PARTS[: 1 if device.is_cpu else 2]

        def read() -> dict[str, float]:
            totals = chip.get_total_energy_consumption()
            parts = {name: getattr(totals, name) for name in APPLE_PARTS}
            return {name: total for name, total in parts.items() if total is not None}

    elif method == "rapl":
        numbers, cpus = _packages(), get_cpus()
        read = lambda: {each: cpus.get_total_energy_consumption(each).cpu_mj for each in numbers}  # noqa: E731
    else:
        with nvidia.visible_by_index():
            gpus = get_gpus()
        if method == "amdsmi" and not _are_amds_with_counters(gpus, numbers):
            raise RuntimeError(f"{device.name} has no energy counter that Zeus can read")
        read = lambda: {each: gpus.get_total_energy_consumption(each) for each in numbers}  # noqa: E731
    return Counters(method=method, read=read, moving=numbers)


def _are_amds_with_counters(gpus: Any, numbers: list[int]) -> bool:
    from zeus.device.gpu import AMDGPUs

    # NVIDIA's are found if this computer has both. Of several GPUs, Zeus reads others than torch's
    # if one of these variables, such as Slurm's, hides some: it follows HIP's and CUDA's alone.
    known = len(gpus) == 1 or not {"ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"} & os.environ.keys()
    return (
        known
        and isinstance(gpus, AMDGPUs)
        and all(map(gpus.supports_get_total_energy_consumption, numbers))
    )


def _packages() -> list[int]:
    """Return the indices of RAPL's package domains, in Zeus's order.

    The platform domain (psys) contains the packages, so adding it would count them twice.

    Source: https://docs.kernel.org/power/powercap/powercap.html
    """
    domains = [path for path in RAPL.glob("intel-rapl:*") if path.name.count(":") == 1]
    domains.sort(key=lambda path: int(path.name.partition(":")[2]))
    names = [(path / "name").read_text().strip() for path in domains]
    return [place for place, name in enumerate(names) if name.startswith("package")]
