import mmap
import os
import resource
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import get_args

import pynvml
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.measuring import sensors
from benchbook.measuring.sensors import Energy, ZeusSensor
from benchbook.measuring.window import window
from benchbook.rows import records
from benchbook.rows.schema import HINTS
from fakes import CPU, Clock, Sensor

MPS, CUDA = Device("mps", "an Apple GPU"), Device("cuda", "an NVIDIA GPU", index=1)


@pytest.fixture
def log(monkeypatch):
    """What a window does, in order, on a device that is not there."""
    calls = []
    fake = SimpleNamespace(
        reset_peak_memory=lambda device: calls.append("reset"),
        synchronize=lambda device, last=None: calls.append(f"synchronize {device.kind}"),
        peak_memory=lambda device: (7, "counted"),
    )
    monkeypatch.setattr(devices, "backend", lambda framework: fake)
    monkeypatch.setattr(devices, "peak_memory", fake.peak_memory)
    return calls


class Zeus:
    """Stands in for a ZeusMonitor: answers with the energies it was given."""

    def __init__(self, **energies) -> None:
        self.energies = energies
        self.log = []

    def begin_window(self, key, sync_execution=True, restart=False):
        self.log.append(("begin", key, sync_execution))

    def end_window(self, key, sync_execution=True):
        self.log.append(("end", key, sync_execution))
        return SimpleNamespace(**{"gpu_energy": {}, "cpu_energy": None, "soc_energy": None} | self.energies)


def _apple(**parts) -> SimpleNamespace:
    names = ("cpu_total_mj", "gpu_mj", "gpu_sram_mj", "ane_mj", "dram_mj")
    return SimpleNamespace(**dict.fromkeys(names) | parts)


def test_window_adds_up_what_passed_and_what_was_waited_for_and_becomes_columns_of_a_row(monkeypatch, log):
    clock = Clock()
    monkeypatch.setattr("benchbook.measuring.window.time", clock)

    def batches():
        for wait in (2, 5):
            clock.advance(wait)
            yield wait
        clock.advance(11)  # a loader takes time to find that it is at its end

    with window(CPU, Sensor([], joules=5.0)) as timed:
        for _ in range(2):  # two loaders, one after the other
            for _ in timed.inputs(batches()):
                clock.advance(100)
    assert timed.columns() == {
        "seconds": 2 * (2 + 100 + 5 + 100 + 11),
        "input_seconds": 2 * (2 + 5 + 11),
        "energy_joules": 5.0,
        "energy_method": "nvml",
        "energy_boundary": "board",
        "peak_memory_bytes": 7,
        "memory_method": "counted",
        "page_faults": timed.page_faults,
    }
    assert set(timed.columns()) <= set(records.COLUMNS)


def test_window_synchronises_once_at_each_end_and_nowhere_inside(monkeypatch, log):
    monkeypatch.setattr("benchbook.measuring.window.time", Clock(log))
    with window(CUDA, Sensor(log)) as timed:
        log += timed.inputs(["body"])
    body = [*["clock"] * 3, "body", *["clock"] * 2]  # its start; two for the input, two for its end
    assert log == ["reset", "synchronize cuda", "begin", *body, "synchronize cuda", "clock", "end"]


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
def test_a_window_has_the_page_faults_of_its_own_memory(monkeypatch, log, counted):
    if not counted:  # as gVisor answers
        monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_minflt=0))
    memory = mmap.mmap(-1, 1000 * mmap.PAGESIZE)
    with window(CPU) as timed:
        for page in range(1000):
            memory[page * mmap.PAGESIZE] = 1
    with window(CPU) as again:
        for page in range(1000):
            memory[page * mmap.PAGESIZE] = 1
    if counted:
        assert timed.page_faults - again.page_faults == pytest.approx(1000, rel=0.1)
    else:
        assert timed.page_faults is None


@pytest.mark.parametrize(
    ("method", "energies", "expected"),
    [
        ("nvml", {"gpu_energy": {1: 12.5}}, Energy(12.5, "nvml", "board")),
        ("rapl", {"cpu_energy": {0: 3.0, 1: 4.5}}, Energy(7.5, "rapl", "package")),
        (
            "apple_ioreport",
            {"soc_energy": _apple(cpu_total_mj=1000, gpu_mj=250, gpu_sram_mj=20, ane_mj=3, dram_mj=400)},
            Energy(1.673, "apple_ioreport", "soc"),
        ),
        ("apple_ioreport", {"soc_energy": _apple(cpu_total_mj=1500)}, Energy(1.5, "apple_ioreport", "soc")),
        ("nvml", {"gpu_energy": {0: 0.0}}, Energy()),
        ("nvml", {"gpu_energy": {}}, Energy()),
        ("nvml", {"gpu_energy": {0: 12.5, 1: -3.0}}, Energy()),  # a counter that began again from 0
        ("rapl", {"cpu_energy": {0: -262_143.3}}, Energy()),
        ("apple_ioreport", {"soc_energy": _apple(cpu_total_mj=1500, gpu_mj=-1)}, Energy()),
        ("rapl", {"cpu_energy": {0: 0.0}}, Energy()),
        ("rapl", {"cpu_energy": None}, Energy()),
        ("apple_ioreport", {"soc_energy": _apple(cpu_total_mj=0)}, Energy()),
        ("apple_ioreport", {"soc_energy": _apple()}, Energy()),
    ],
)
def test_sensor_reads_joules_of_counters_that_moved_and_leaves_synchronising_to_the_window(method, energies, expected):
    zeus = Zeus(**energies)
    sensor = ZeusSensor(zeus, method)
    sensor.begin()
    assert sensor.end() == expected
    assert [(call, synchronises) for call, _, synchronises in zeus.log] == [("begin", False), ("end", False)]
    assert zeus.log[0][1] == zeus.log[1][1]


def test_every_method_and_boundary_is_one_that_rows_allow():
    for method, boundary in ZeusSensor.BOUNDARIES.items():
        for column, value in (("energy_method", method), ("energy_boundary", boundary)):
            assert value in get_args(get_args(HINTS[column])[0])


@pytest.fixture
def forgetful_zeus():
    """Let the real Zeus look for sensors anew, before a test and after it."""
    import zeus.device.cpu
    import zeus.device.gpu
    from zeus.device.cpu.rapl import rapl_is_available
    from zeus.device.gpu.nvidia import nvml_is_available

    def forget() -> None:
        zeus.device.gpu._gpus = zeus.device.cpu._cpus = None
        nvml_is_available.cache_clear()
        rapl_is_available.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture
def driver(monkeypatch, forgetful_zeus):
    """Stand in for NVIDIA's driver below the real pynvml functions that Zeus and we call."""

    def install(num_gpus: int, divided: bool = False, readable: bool = True, nvidias: bool = True) -> None:
        def energy(handle: int) -> int:
            if not readable:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return 1000 * handle

        def refuse(*arguments):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        def start() -> None:
            if not num_gpus:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

        answers = {
            "nvmlInit": start,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: num_gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}aaaaaaa-0000",
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlDeviceGetArchitecture": lambda handle: pynvml.NVML_DEVICE_ARCH_HOPPER,
            "nvmlDeviceGetMigMode": (lambda handle: [1, 1]) if divided else refuse,
            "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 0,
            "nvmlDeviceGetC2cModeInfoV": refuse,
            "nvmlDeviceGetTotalEnergyConsumption": energy,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if not nvidias:  # another library called pynvml
            monkeypatch.delattr(pynvml, "_nvmlGetFunctionPointer")  # by which Zeus knows NVIDIA's own

    return install


@pytest.mark.parametrize(
    ("given", "handle"),
    [(None, 1), ("3,2,1", 2), ("GPU-3aaaaaaa-0000,GPU-2aaaaaaa-0000", 2), ("GPU-3,GPU-2aa", 2)],
)
def test_the_gpu_that_cuda_shows_by_number_or_by_name_is_read_alone_through_nvml(driver, monkeypatch, given, handle):
    driver(4)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    sensor = sensors.open_sensor(CUDA)
    assert (sensor.method, sensor.monitor.gpu_indices, sensor.monitor.cpu_indices) == ("nvml", [CUDA.index], [])
    assert sensor.monitor.gpus.gpus[CUDA.index].handle == handle
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == given


NOT_SHOWN = [(4, given, {}) for given in ("", "-1", "MIG-12345678-0000", "GPU-9", "0")] + [(0, None, {})]


@pytest.mark.parametrize(
    ("gpus", "given", "kind"),
    [*NOT_SHOWN, *((2, None, kind) for kind in ({"divided": True}, {"readable": False}, {"nvidias": False}))],
)
def test_a_gpu_that_is_not_shown_or_divided_or_cannot_be_read_has_no_sensor(driver, monkeypatch, gpus, given, kind):
    driver(gpus, **kind)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert sensors.open_sensor(CUDA) is sensors.NO_SENSOR


@pytest.mark.parametrize(("counts", "nvidias", "joules"), [(True, 0, 6.0), (False, 0, None), (True, 1, None)])
def test_amds_gpu_is_read_alone_through_amdsmi_where_it_counts_energy(monkeypatch, driver, counts, nvidias, joules):
    import zeus.device.gpu as zeus_gpus

    driver(nvidias)
    energies = iter([1000, 7000])  # mJ
    counter = SimpleNamespace(
        supports_get_total_energy_consumption=lambda: counts, get_total_energy_consumption=energies.__next__
    )
    monkeypatch.delattr(zeus_gpus.AMDGPUs, "__del__")
    amds = zeus_gpus.AMDGPUs.__new__(zeus_gpus.AMDGPUs)  # without AMD's driver
    amds._gpus = [None, counter]
    monkeypatch.setattr(zeus_gpus, "_gpus", None if nvidias else amds)
    sensor = sensors.open_sensor(Device("rocm", "AMD Instinct MI300X", index=1))
    sensor.begin()
    assert sensor.end() == (Energy(joules, "amdsmi", "board") if joules else Energy())


@pytest.mark.parametrize(("name", "read"), [("NVIDIA A", [1, 0]), ("NVIDIA B", [0, 1]), ("NVIDIA C", None)])
def test_of_two_kinds_of_gpu_the_one_is_read_that_has_the_devices_name(driver, monkeypatch, name, read):
    driver(2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: ("NVIDIA B", "NVIDIA A")[handle])
    gpus = [sensors.open_sensor(Device("cuda", name, index=index)) for index in (0, 1)]
    assert [getattr(each, "monitor", None) and each.monitor.gpu_indices[0] for each in gpus] == (read or [None, None])


@pytest.mark.parametrize("device", [MPS, Device("metal", "an Apple GPU"), CUDA], ids=lambda device: device.kind)
def test_without_zeus_a_window_is_kept_and_has_no_energy(log, driver, monkeypatch, device):
    driver(2)
    for name in ("zeus", "zeus.monitor"):
        monkeypatch.setitem(sys.modules, name, None)
    with window(device, sensors.open_sensor(device)) as timed:
        pass
    assert (timed.seconds > 0, timed.energy) == (True, Energy())


@pytest.fixture
def powercap(monkeypatch, tmp_path, forgetful_zeus):
    """Lay out RAPL's domains as Linux does."""
    import zeus.device.cpu.rapl as rapl

    def lay_out(*names: str) -> None:
        for number, name in enumerate(names):
            domain = tmp_path / f"intel-rapl:{number}"
            domain.mkdir()
            for file, text in (("name", name), ("energy_uj", "100"), ("max_energy_range_uj", "262143328850")):
                (domain / file).write_text(text + "\n")

    monkeypatch.setattr(rapl, "RAPL_DIR", str(tmp_path))
    monkeypatch.setattr(sensors, "RAPL", tmp_path)
    return lay_out


@pytest.mark.parametrize(
    ("names", "read"),
    [(("package-0",), [0]), (("package-0", "psys"), [0]), (("psys", "package-0", "package-1"), [1, 2])],
)
def test_cpu_is_read_through_rapl_as_its_packages_and_the_platform_is_not_added(powercap, driver, names, read):
    driver(4)
    powercap(*names)
    sensor = sensors.open_sensor(CPU)
    assert (sensor.method, sensor.monitor.cpu_indices, sensor.monitor.gpu_indices) == ("rapl", read, [])


def test_cpu_whose_counters_may_not_be_read_has_no_sensor(powercap, monkeypatch):
    import zeus.device.cpu.rapl as rapl

    powercap("package-0")

    def refuse(path, *arguments):
        if str(path).endswith("energy_uj"):
            raise PermissionError(path)
        return Path(path).open(*arguments)

    monkeypatch.setattr(rapl, "open", refuse, raising=False)
    assert sensors.open_sensor(CPU) is sensors.NO_SENSOR


@pytest.fixture
def zeus_finds(monkeypatch, tmp_path):
    """Install a Zeus that finds Apple's counters, which no other system has; return what it was asked to watch."""

    def install(soc, system: str) -> list[list[int]]:
        asked = []

        def open_monitor(gpu_indices, cpu_indices):
            asked.append(cpu_indices)
            counters = SimpleNamespace(get_total_energy_consumption=lambda: soc)
            return SimpleNamespace(cpu_indices=cpu_indices, soc_is_present=soc is not None, soc=counters)

        module = ModuleType("zeus.monitor")
        module.ZeusMonitor = open_monitor
        monkeypatch.setitem(sys.modules, "zeus.monitor", module)
        monkeypatch.setattr(sensors, "RAPL", tmp_path / "missing")
        monkeypatch.setattr(sensors, "sys", SimpleNamespace(platform=system))
        return asked

    return install


@pytest.mark.parametrize(
    ("device", "system", "soc", "method"),
    [
        *((device, "darwin", _apple(cpu_total_mj=1), "apple_ioreport") for device in (CPU, MPS)),
        *((device, "darwin", None, None) for device in (CPU, MPS)),
        (CPU, "linux", None, None),
    ],
)
def test_apple_chip_is_read_as_a_whole_and_zeus_is_not_loaded_where_there_are_no_counters(
    zeus_finds, device, system, soc, method
):
    asked = zeus_finds(soc, system)
    assert getattr(sensors.open_sensor(device), "method", None) == method
    assert bool(asked) == (system == "darwin")
