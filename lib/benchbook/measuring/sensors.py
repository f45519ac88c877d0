"""Energy of one window, from the machine's own counters through Zeus."""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchbook.frameworks.devices import Device
from benchbook.machine import nvidia

RAPL = Path("/sys/class/powercap/intel-rapl")  # Linux's counters of Intel and AMD CPUs


@dataclass(frozen=True)
class Energy:
    """Joules of one window, and what they cover.

    Attributes:
        joules: energy; None if nothing could be read.
        method: nvml, amdsmi, apple_ioreport or rapl; None without a sensor.
        boundary: board (of a GPU), soc (Apple's chip and its memory) or package (of a CPU).
    """

    joules: float | None = None
    method: str | None = None
    boundary: str | None = None


class Sensor:
    """Measures the energy of a window; this base class, for machines without a counter, leaves it missing, not zero."""

    def begin(self) -> None:
        """Begin a window. The caller has synchronised the device."""

    def end(self) -> Energy:
        """End the window and return its joules."""
        return Energy()


NO_SENSOR = Sensor()


@dataclass
class ZeusSensor(Sensor):
    """Reads the energy counter of one device through Zeus.

    If the counter did not move, or began again from 0 in the window, energy is missing, not zero.

    Attributes:
        monitor: a zeus.monitor.ZeusMonitor of this device only.
        method: nvml, amdsmi, apple_ioreport or rapl.
    """

    monitor: Any
    method: str

    BOUNDARIES: ClassVar = {"nvml": "board", "amdsmi": "board", "apple_ioreport": "soc", "rapl": "package"}

    def begin(self) -> None:  # Zeus can synchronise only CUDA
        self.monitor.begin_window("window", sync_execution=False, restart=True)

    def end(self) -> Energy:
        measurement = self.monitor.end_window("window", sync_execution=False)
        if self.method == "apple_ioreport":  # in mJ; a part that the chip does not report is None
            soc = measurement.soc_energy
            read = (soc.cpu_total_mj, soc.gpu_mj, soc.gpu_sram_mj, soc.ane_mj, soc.dram_mj)
            parts = [part / 1000 for part in read if part is not None]
        else:
            read = measurement.cpu_energy if self.method == "rapl" else measurement.gpu_energy
            parts = list((read or {}).values())
        if not any(parts) or min(parts) < 0:
            return Energy()
        return Energy(sum(parts), self.method, self.BOUNDARIES[self.method])


def open_sensor(device: Device) -> Sensor:
    """Return the energy sensor of a device on this machine; NO_SENSOR without Zeus, or without a readable counter."""
    counter = device.features.energy_counter
    if device.count == 0 or counter is None or (device.is_cpu and sys.platform != "darwin" and not RAPL.exists()):
        return NO_SENSOR  # without importing Zeus, which takes seconds
    gpus = nvidia.numbers_from_cuda(device.name, device.index, device.count) if counter == "nvml" else []
    if counter == "nvml" and not (len(gpus) == device.count and all(map(nvidia.counts_energy, gpus))):
        return NO_SENSOR
    if counter == "amdsmi":  # Zeus numbers AMD's GPUs as torch does
        gpus = list(range(device.index, device.index + device.count))
    logging.getLogger("zeus").setLevel(logging.ERROR)  # Zeus warns about each missing vendor library
    try:
        from zeus.monitor import ZeusMonitor

        if counter == "amdsmi" and not _counts_amd_energy(gpus):
            return NO_SENSOR
        with nvidia.visible_by_index():
            monitor = ZeusMonitor(gpu_indices=gpus, cpu_indices=_packages() if device.is_cpu else [])
    except Exception:  # no Zeus, another library called pynvml, no permission, a driver that refuses
        return NO_SENSOR
    if gpus:
        return ZeusSensor(monitor, counter)
    if monitor.soc_is_present and hasattr(monitor.soc.get_total_energy_consumption(), "cpu_total_mj"):
        return ZeusSensor(monitor, "apple_ioreport")
    return ZeusSensor(monitor, "rapl") if monitor.cpu_indices and len(monitor.cpus) else NO_SENSOR


def _counts_amd_energy(gpus: list[int]) -> bool:
    """Return whether AMD's GPUs have energy counters; Zeus would otherwise poll their power without a pause."""
    from zeus.device.gpu import AMDGPUs, get_gpus

    there = get_gpus()  # NVIDIA's, if this computer has both
    return isinstance(there, AMDGPUs) and all(map(there.supports_get_total_energy_consumption, gpus))


def _packages() -> list[int]:
    """Return the indices of RAPL's package domains, in Zeus's order.

    The platform domain (psys) contains the packages, so adding it would count them twice.

    Source: https://docs.kernel.org/power/powercap/powercap.html
    """
    domains = [path for path in RAPL.glob("intel-rapl:*") if path.name.count(":") == 1]
    domains.sort(key=lambda path: int(path.name.partition(":")[2]))
    names = [(path / "name").read_text().strip() for path in domains]
    return [place for place, name in enumerate(names) if name.startswith("package")]
