"""Energy of one window, from the machine's own counters, a wall meter's log, or a power that the user states."""

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchbook.frameworks.devices import Device
from benchbook.machine import meter, nvidia

RAPL = Path("/sys/class/powercap/intel-rapl")  # Linux's counters of Intel and AMD CPUs


@dataclass(frozen=True)
class Energy:
    """Joules of one window, and what they cover.

    Attributes:
        joules: energy; None if nothing could be read.
        method: nvml, nvml_power, apple_ioreport, rapl, meter or estimate_tdp; None without a sensor.
        boundary: board (of a GPU), soc (Apple's chip and its memory), package (of a CPU) or wall (the whole computer).
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
    """Reads the energy counter of one device through Zeus; if it did not move, energy is missing, not zero.

    Attributes:
        monitor: a zeus.monitor.ZeusMonitor of this device only.
        method: nvml, apple_ioreport or rapl.
    """

    monitor: Any
    method: str

    BOUNDARIES: ClassVar = {"nvml": "board", "apple_ioreport": "soc", "rapl": "package"}

    def begin(self) -> None:  # Zeus can synchronise only CUDA
        self.monitor.begin_window("window", sync_execution=False, restart=True)

    def end(self) -> Energy:
        measurement = self.monitor.end_window("window", sync_execution=False)
        if self.method == "apple_ioreport":  # in mJ; a part that the chip does not report is None
            soc = measurement.soc_energy
            parts = (soc.cpu_total_mj, soc.gpu_mj, soc.gpu_sram_mj, soc.ane_mj, soc.dram_mj)
            joules = sum(part or 0 for part in parts) / 1000
        else:
            read = measurement.gpu_energy if self.method == "nvml" else measurement.cpu_energy
            joules = sum((read or {}).values())
        return Energy(joules, self.method, self.BOUNDARIES[self.method]) if joules else Energy()


@dataclass
class PowerSensor(Sensor):
    """Samples the power of GPUs without an energy counter, ten times a second; Zeus would sample without a pause.

    Attributes:
        readers: functions that return the watts of each GPU.
    """

    readers: list[Callable[[], float]]

    PERIOD_SECONDS: ClassVar = 0.1

    def begin(self) -> None:
        self.samples: list[tuple[float, float]] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self._sample()
        self.thread.start()

    def end(self) -> Energy:
        self.ended.set()
        self.thread.join()
        self._sample()
        pairs = itertools.pairwise(self.samples)  # trapezoidal rule
        joules = sum((after - before) * (one + other) / 2 for (before, one), (after, other) in pairs)
        return Energy(joules, "nvml_power", "board") if joules else Energy()

    def _watch(self) -> None:
        while not self.ended.wait(self.PERIOD_SECONDS):
            self._sample()

    def _sample(self) -> None:
        self.samples.append((time.perf_counter(), sum(read() for read in self.readers)))


@dataclass
class MeterSensor(Sensor):
    """Reads a wall meter's log, which the user's own logger writes while this machine trains.

    Energy is missing if the log does not cover the window, or has too few readings.

    Attributes:
        path: see `benchbook.machine.meter`.
        patience: seconds to wait, off the clock, for the log to reach the window's end.
    """

    path: Path
    patience: float = 5.0

    def __post_init__(self) -> None:
        meter.read(self.path)

    def begin(self) -> None:
        self.begun = time.time()

    def end(self) -> Energy:
        ended = time.time()
        while True:
            log = meter.read(self.path)
            if (len(log) and log["seconds"].iloc[-1] >= ended) or time.time() > ended + self.patience:
                joules = meter.joules(log, self.begun, ended)
                return Energy(joules, "meter", "wall") if joules else Energy()
            time.sleep(0.1)


@dataclass
class EstimateSensor(Sensor):
    """Computes energy from a power that the user states; rows label the result an estimate.

    Attributes:
        watts: for example the vendor's thermal design power.
        boundary: of the device's energy, see `Energy`.
    """

    watts: float
    boundary: str

    def begin(self) -> None:
        self.begun = time.perf_counter()

    def end(self) -> Energy:
        return Energy(self.watts * (time.perf_counter() - self.begun), "estimate_tdp", self.boundary)


def open_sensor(device: Device) -> Sensor:
    """Return the energy sensor of a device on this machine, or NO_SENSOR.

    A wall meter's log (BENCHBOOK_METER) has priority over this machine's counters. A stated power (BENCHBOOK_TDP_WATTS)
    is used only if there is no counter.

    Raises:
        ValueError: BENCHBOOK_METER is not a meter's log, or BENCHBOOK_TDP_WATTS is not a number above 0.
    """
    if device.count == 0:
        return NO_SENSOR
    log, stated = os.environ.get("BENCHBOOK_METER"), os.environ.get("BENCHBOOK_TDP_WATTS")
    if log:
        if not Path(log).is_file():
            raise ValueError(f"BENCHBOOK_METER {log!r}; allowed: a file with columns timestamp, watts")
        return MeterSensor(Path(log))
    sensor = _counter(device)
    if not stated or sensor is not NO_SENSOR:
        return sensor
    try:
        watts = float(stated)
    except ValueError:
        watts = 0.0
    if not 0 < watts < float("inf"):
        raise ValueError(f"BENCHBOOK_TDP_WATTS {stated!r}; allowed: a number above 0")
    return EstimateSensor(watts, device.features.energy_boundary)


def _counter(device: Device) -> Sensor:
    counter = device.features.energy_counter
    if counter is None or (device.is_cpu and sys.platform != "darwin" and not RAPL.exists()):
        return NO_SENSOR  # without importing Zeus, which takes seconds
    gpus = nvidia.numbers_from_cuda(device.name, device.index, device.count) if counter == "nvml" else []
    if (counter == "nvml" and len(gpus) < device.count) or any(nvidia.is_divided(gpu) for gpu in gpus):
        return NO_SENSOR  # the GPU cannot be identified, or others compute on the same board
    readers = [read for gpu in gpus if (read := nvidia.power_reader(gpu))]
    if gpus and len(readers) == len(gpus):
        return PowerSensor(readers)
    logging.getLogger("zeus").setLevel(logging.ERROR)  # Zeus warns about each missing vendor library
    from zeus.exception import ZeusBaseError
    from zeus.monitor import ZeusMonitor

    try:
        with nvidia.visible_by_index():
            monitor = ZeusMonitor(gpu_indices=gpus, cpu_indices=_packages() if device.is_cpu else [])
        for gpu in gpus:  # some virtual GPUs have a counter that may not be read: raise here and not in a window
            if monitor.gpus.supports_get_total_energy_consumption(gpu):
                monitor.gpus.get_total_energy_consumption(gpu)
    except (ImportError, ValueError, IndexError, RuntimeError, ZeusBaseError):  # another pynvml, no permission
        return NO_SENSOR
    if counter == "nvml":
        return ZeusSensor(monitor, "nvml")
    if monitor.soc_is_present and hasattr(monitor.soc.get_total_energy_consumption(), "cpu_total_mj"):
        return ZeusSensor(monitor, "apple_ioreport")
    return ZeusSensor(monitor, "rapl") if monitor.cpu_indices and len(monitor.cpus) else NO_SENSOR


def _packages() -> list[int]:
    """Return the indices of RAPL's package domains, in Zeus's order.

    The platform domain (psys) contains the packages, so adding it would count them twice.

    Source: https://docs.kernel.org/power/powercap/powercap.html
    """
    domains = [path for path in RAPL.glob("intel-rapl:*") if path.name.count(":") == 1]
    domains.sort(key=lambda path: int(path.name.partition(":")[2]))
    names = [(path / "name").read_text().strip() for path in domains]
    return [place for place, name in enumerate(names) if name.startswith("package")]
