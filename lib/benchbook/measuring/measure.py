"""Measure one window: device-synchronised seconds, host wait for input, joules, peak memory.

The device is synchronised once at each end of a window and nowhere inside it.
"""

import logging
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.machine import meter, nvidia

RAPL = Path("/sys/class/powercap/intel-rapl")  # where Linux shows the counters of Intel's and AMD's CPUs


@dataclass(frozen=True)
class Energy:
    """Joules of one window, and what they cover.

    Attributes:
        joules: energy, None where nothing could be read.
        method: nvml, apple_ioreport, rapl, meter or estimate_tdp; None without a sensor.
        boundary: board (a GPU's), soc (Apple's chip and its memory), package (a CPU's) or wall (all of it).
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


class MeterSensor:
    """Reads a wall meter's log, which the user's own logger goes on writing while this machine trains.

    Args:
        path: see `benchbook.machine.meter`.
        patience: seconds to wait, off the clock, until the log has reached the window's end.
    """

    def __init__(self, path: Path, patience: float = 5.0) -> None:
        self.path = path
        self.patience = patience
        self.begun = 0.0
        meter.read(path)

    def begin(self) -> None:
        """Note the time."""
        self.begun = time.time()

    def end(self) -> Energy:
        """Return the joules since `begin`; missing where the log does not cover them, or too coarsely."""
        ended = time.time()
        while True:
            log = meter.read(self.path)
            if (len(log) and log["seconds"].iloc[-1] >= ended) or time.time() > ended + self.patience:
                joules = meter.joules(log, self.begun, ended)
                return Energy(joules, "meter", "wall") if joules else Energy()
            time.sleep(0.1)


class EstimateSensor:
    """Takes a power that the user states for the device to be what it draws: an estimate, and labelled so.

    Args:
        watts: such as the maker's thermal design power.
        boundary: what that power is of.
    """

    def __init__(self, watts: float, boundary: str) -> None:
        self.watts = watts
        self.boundary = boundary
        self.begun = 0.0

    def begin(self) -> None:
        """Note the time."""
        self.begun = time.perf_counter()

    def end(self) -> Energy:
        """Return the stated power over the time since `begin`."""
        return Energy(self.watts * (time.perf_counter() - self.begun), "estimate_tdp", self.boundary)


Sensor = NoSensor | ZeusSensor | MeterSensor | EstimateSensor


def open_sensor(device: Device) -> Sensor:
    """Return the energy sensor that covers a device on this machine, or the stand-in where there is none.

    A wall meter's log, BENCHBOOK_METER, comes before this machine's own counters; a stated power, BENCHBOOK_TDP_WATTS,
    stands in only where there are none.

    Raises:
        ValueError: BENCHBOOK_METER is no log of a meter, or BENCHBOOK_TDP_WATTS is no number above 0.
    """
    if device.count == 0:
        return NoSensor()
    log, stated = os.environ.get("BENCHBOOK_METER"), os.environ.get("BENCHBOOK_TDP_WATTS")
    if log:
        if not Path(log).is_file():
            raise ValueError(f"BENCHBOOK_METER {log!r}; allowed: a file with columns timestamp, watts")
        return MeterSensor(Path(log))
    sensor = _counter(device)
    return (
        EstimateSensor(_watts(stated), device.features.energy_boundary)
        if stated and isinstance(sensor, NoSensor)
        else sensor
    )


def _watts(text: str) -> float:
    try:
        watts = float(text)
    except ValueError:
        watts = 0.0
    if not 0 < watts < float("inf"):
        raise ValueError(f"BENCHBOOK_TDP_WATTS {text!r}; allowed: a number above 0")
    return watts


def _counter(device: Device) -> NoSensor | ZeusSensor:
    counter = device.features.energy_counter
    if counter is None or (device.is_cpu and sys.platform != "darwin" and not RAPL.exists()):
        return NoSensor()  # importing Zeus takes seconds
    logging.getLogger("zeus").setLevel(logging.ERROR)  # it warns of every vendor's library that is not there
    from zeus.exception import ZeusBaseError
    from zeus.monitor import ZeusMonitor

    gpus = [*range(device.index, device.index + device.count)] if counter == "nvml" else []
    if any(nvidia.is_divided(gpu) for gpu in gpus):
        return NoSensor()  # the counter is of the whole board, which others compute on as well
    try:
        with nvidia.numbered():
            monitor = ZeusMonitor(gpu_indices=gpus, cpu_indices=_packages() if device.is_cpu else [])
        for gpu in gpus:  # some virtual GPUs have a counter that may not be read: known now, and not in a window
            if monitor.gpus.supports_get_total_energy_consumption(gpu):
                monitor.gpus.get_total_energy_consumption(gpu)
    except (ValueError, IndexError, RuntimeError, ZeusBaseError):  # no driver, no such GPU, or no permission
        return NoSensor()
    if counter == "nvml":
        return ZeusSensor(monitor, "nvml")
    if monitor.soc_is_present and hasattr(monitor.soc.get_total_energy_consumption(), "cpu_total_mj"):
        return ZeusSensor(monitor, "apple_ioreport")
    return ZeusSensor(monitor, "rapl") if monitor.cpu_indices and len(monitor.cpus) else NoSensor()


def _packages() -> list[int]:
    """Return which of RAPL's domains, in Zeus's order, are a processor's package.

    The others would be counted twice: psys is the whole platform, the packages within.

    Source: https://docs.kernel.org/power/powercap/powercap.html
    """
    domains = [path for path in RAPL.glob("intel-rapl:*") if path.name.count(":") == 1]
    domains.sort(key=lambda path: int(path.name.partition(":")[2]))
    names = [(path / "name").read_text().strip() for path in domains]
    return [place for place, name in enumerate(names) if name.startswith("package")]


@dataclass
class Window:
    """What was measured between the two synchronisations.

    Attributes:
        seconds: wall time of the window.
        input_seconds: the part of it in which the host waited for input (it may overlap device work).
        energy: joules with method and boundary.
        peak_memory_bytes, memory_method: see devices.peak_memory.
        page_faults: pages of memory that this process got from the system without reading a disk; None: not counted.
        last: set in the `with` block to the output of the work queued last; see `devices.Backend`.
    """

    seconds: float = 0.0
    input_seconds: float = 0.0
    energy: Energy = field(default_factory=Energy)
    peak_memory_bytes: int | None = None
    memory_method: str | None = None
    page_faults: int | None = None
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
            "page_faults": self.page_faults,
        }


@contextmanager
def window(device: Device, sensor: Sensor) -> Iterator[Window]:
    """Measure the body of a `with` block; the yielded Window is filled in when the block ends.

    Args:
        device: the device that is synchronised at both ends.
        sensor: from `open_sensor`.
    """
    measured = Window()
    device.backend.reset_peak_memory(device)
    device.backend.synchronize(device)
    sensor.begin()
    faults = _page_faults()
    started = time.perf_counter()
    yield measured
    device.backend.synchronize(device, measured.last)
    measured.seconds = time.perf_counter() - started
    measured.page_faults = _page_faults() - faults if faults else None
    measured.energy = sensor.end()
    measured.peak_memory_bytes, measured.memory_method = devices.peak_memory(device)


def _page_faults() -> int:
    """Return the minor page faults of this process since it began: 0 only where the system does not count them."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
