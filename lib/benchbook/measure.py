"""Measure one window: device-synchronised seconds, host wait for input, joules, peak memory.

The device is synchronised once at each end of a window and nowhere inside it.
"""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchbook import devices
from benchbook.devices import Device

RAPL = Path("/sys/class/powercap/intel-rapl")  # where Linux shows the counters of Intel's and AMD's CPUs


@dataclass(frozen=True)
class Energy:
    """Joules of one window, and what they cover.

    Attributes:
        joules: energy, None where nothing could be read.
        method: nvml, apple_ioreport or rapl; None without a sensor.
        boundary: board (a GPU's), soc (Apple's chip and its memory) or package (a CPU's).
    """

    joules: float | None = None
    method: str | None = None
    boundary: str | None = None


class NoSensor:
    """Stands in on a machine whose energy cannot be read: missing, not zero."""

    def begin(self) -> None:
        """Begin nothing."""

    def end(self) -> Energy:
        """Return missing."""
        return Energy()


class ZeusSensor:
    """Reads the counter that covers one device, through Zeus.

    Args:
        monitor: a zeus.monitor.ZeusMonitor that watches this device alone.
        method: nvml, apple_ioreport or rapl.
    """

    BOUNDARIES = {"nvml": "board", "apple_ioreport": "soc", "rapl": "package"}  # noqa: RUF012 (a constant)

    def __init__(self, monitor, method: str) -> None:
        self.monitor = monitor
        self.method = method

    def begin(self) -> None:
        """Begin a window. The caller has synchronised: Zeus itself can do so on CUDA only."""
        self.monitor.begin_window("window", sync_execution=False, restart=True)

    def end(self) -> Energy:
        """End the window and return its joules; a counter that did not move is missing, not zero."""
        joules = self._joules(self.monitor.end_window("window", sync_execution=False))
        return Energy(joules, self.method, self.BOUNDARIES[self.method]) if joules else Energy()

    def _joules(self, measurement) -> float:
        if self.method == "nvml":
            return sum(measurement.gpu_energy.values())
        if self.method == "rapl":
            return sum((measurement.cpu_energy or {}).values())
        # Apple's figures are millijoules; a part that this chip does not report is None.
        soc = measurement.soc_energy
        parts = (soc.cpu_total_mj, soc.gpu_mj, soc.gpu_sram_mj, soc.ane_mj, soc.dram_mj)
        return sum(part or 0 for part in parts) / 1000


def open_sensor(device: Device) -> NoSensor | ZeusSensor:
    """Return the energy sensor that covers a device on this machine, or the stand-in where there is none."""
    if device.is_cpu and sys.platform != "darwin" and not RAPL.exists():
        return NoSensor()  # importing Zeus takes seconds
    logging.getLogger("zeus").setLevel(logging.ERROR)  # it warns of every vendor's library that is not there
    from zeus.monitor import ZeusMonitor

    gpus = [device.index] if device.kind == "cuda" else []
    monitor = ZeusMonitor(gpu_indices=gpus, cpu_indices=None if device.is_cpu else [])
    if device.kind == "cuda":
        return ZeusSensor(monitor, "nvml") if len(monitor.gpus) else NoSensor()
    if monitor.soc_is_present and hasattr(monitor.soc.get_total_energy_consumption(), "cpu_total_mj"):
        return ZeusSensor(monitor, "apple_ioreport")
    return ZeusSensor(monitor, "rapl") if device.is_cpu and monitor.cpu_indices else NoSensor()


@dataclass
class Window:
    """What was measured between the two synchronisations.

    Attributes:
        seconds: wall time of the window.
        input_seconds: the part of it in which the host waited for input (it may overlap device work).
        energy: joules with method and boundary.
        peak_memory_bytes, memory_method: see devices.peak_memory.
        last: set in the `with` block to the output of the work queued last; see devices.synchronize.
    """

    seconds: float = 0.0
    input_seconds: float = 0.0
    energy: Energy = field(default_factory=Energy)
    peak_memory_bytes: int | None = None
    memory_method: str | None = None
    last: Any = None

    def inputs(self, batches: Iterable) -> Iterator:
        """Yield batches while adding the time spent waiting for each to `input_seconds`."""
        iterator, clock = iter(batches), time.perf_counter
        while True:
            asked = clock()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.input_seconds += clock() - asked
            yield batch

    def columns(self) -> dict:
        """Return the window as columns of a row."""
        return {
            "seconds": self.seconds,
            "input_seconds": self.input_seconds,
            "energy_joules": self.energy.joules,
            "energy_method": self.energy.method,
            "energy_boundary": self.energy.boundary,
            "peak_memory_bytes": self.peak_memory_bytes,
            "memory_method": self.memory_method,
        }


@contextmanager
def window(device: Device, sensor: NoSensor | ZeusSensor) -> Iterator[Window]:
    """Measure the body of a `with` block; the yielded Window is filled in when the block ends.

    Args:
        device: the device that is synchronised at both ends.
        sensor: from `open_sensor`.
    """
    measured = Window()
    devices.reset_peak_memory(device)
    devices.synchronize(device)
    sensor.begin()
    started = time.perf_counter()
    yield measured
    devices.synchronize(device, measured.last)
    measured.seconds = time.perf_counter() - started
    measured.energy = sensor.end()
    measured.peak_memory_bytes, measured.memory_method = devices.peak_memory(device)
