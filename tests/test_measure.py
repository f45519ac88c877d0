import itertools
import json
import mmap
import os
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pynvml
import pytest
import yaml

from benchbook.frameworks import devices, survey
from benchbook.frameworks.devices import Device
from benchbook.measuring import protocol, sensors
from benchbook.measuring.sensors import Counters, Energy
from benchbook.measuring.window import Inputs, window
from benchbook.rows import records
from benchbook.rows.schema import HINTS
from made.fakes import CPU, FakeWorkload, Sensor

ULTRA = Device("mps", "Apple M3 Ultra")
MPS, CUDA = Device("mps", "an Apple GPU"), Device("cuda", "an NVIDIA GPU", index=1)
PARTS = sensors.APPLE_PARTS
CHIP = PARTS[:2]  # the counters of its CPU and its GPU


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


def test_window_adds_up_what_passed_and_what_was_waited_for_and_becomes_columns_of_a_row(
    clock, log
):
    def batches():
        for wait in (2, 5):
            clock.advance(wait)
            yield wait
        clock.advance(11)  # a loader takes time to find that it is at its end

    with window(CPU, Sensor([], joules=5.0), clock=clock) as timed:
        for _ in range(2):  # two loaders, one after the other
            for _ in Inputs(batches(), lambda: timed):
                clock.advance(100)
    assert timed.columns() == {
        "seconds": 2 * (2 + 100 + 5 + 100 + 11),
        "input_seconds": 2 * (2 + 5 + 11),
        "energy_joules": 5.0,
        "energy_method": "nvml",
        "energy_boundary": "board",
        "energy_parts": None,
        "peak_memory_bytes": 7,
        "memory_method": "counted",
        "page_faults": timed.page_faults,
        "awake_seconds": timed.awake_seconds,
        "started_at": timed.started_at,
    }
    assert set(timed.columns()) - {"awake_seconds", "energy_parts"} <= set(records.COLUMNS)


def test_window_synchronises_once_at_each_end_and_nowhere_inside(clock, log):
    clock.log = log
    with window(CUDA, Sensor(log), clock=clock) as timed:
        log += Inputs(["body"], lambda: timed)
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


# Of a method the counters that moved, the mJ of each part when a window of 2 s begins, and when it
# ends, and the joules; of Apple's parts a number is that of each.
JOULES = """
- [nvml, [1], {1: 7000.0}, {1: 19500.0}, 12.5]
- [nvml, [0, 1], {0: 0.0, 1: 5.0}, {0: 300.0, 1: 305.0}, 0.6]
- [rapl, [0, 1], {0: 0.0, 1: 0.0}, {0: 3000.0, 1: 4500.0}, 7.5]
- [apple_ioreport, &chip [cpu_total_mj, gpu_mj], 5, 405, 2.0]
- [apple_ioreport, &cpu [cpu_total_mj], {cpu_total_mj: 0, gpu_mj: 0}, {cpu_total_mj: 1500, gpu_mj: 0}, 1.5]
# A counter stands, or there is none: of one of two GPUs; of the chip's CPU, or of its GPU, which is measured.
- [nvml, [0], {0: 7.0}, {0: 7.0}, null]
- [nvml, [0, 1], {0: 0.0, 1: 5.0}, {0: 300000.0, 1: 5.0}, null]
- [apple_ioreport, *cpu, {cpu_total_mj: 0, dram_mj: 0}, {cpu_total_mj: 0, dram_mj: 940}, null]
- [apple_ioreport, *chip, {cpu_total_mj: 0, gpu_mj: 0}, {cpu_total_mj: 1500, gpu_mj: 0}, null]
- [apple_ioreport, *chip, {cpu_total_mj: 0}, {cpu_total_mj: 1500}, null]
- [nvml, [0], {}, {0: 5000.0}, null]
# One went back.
- [nvml, [0, 1], {0: 0.0, 1: 5000.0}, {0: 12500.0, 1: 2000.0}, null]
- [apple_ioreport, *cpu, {cpu_total_mj: 0, ane_mj: 1}, {cpu_total_mj: 1500, ane_mj: 0}, null]
"""


@pytest.mark.parametrize(("method", "moving", "before", "after", "joules"), yaml.safe_load(JOULES))
def test_joules_are_those_of_counters_that_moved_and_missing_in_a_doubtful_window(
    clock, method, moving, before, after, joules
):
    if isinstance(before, int):
        before, after = dict.fromkeys(PARTS, before), dict.fromkeys(PARTS, after)
    reads = iter([before, after])
    sensor = Counters(method=method, read=lambda: next(reads), moving=moving)
    sensor.begin()
    clock.advance(2.0)
    boundary, found = sensors.BOUNDARIES[method], sensor.end()
    assert found == (
        Energy() if joules is None else Energy(pytest.approx(joules), method, boundary)
    )
    if joules and boundary == "soc":
        spent = {name: (after[name] - before[name]) / 1000 for name in before}
        assert found.parts == pytest.approx(spent)


def test_a_counter_that_cannot_be_read_in_one_window_ends_no_run(clock):
    reads = iter([pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), {0: 1.0}, {0: 2.0}, {0: 3000.0}])

    def read():
        if isinstance(found := next(reads), Exception):
            raise found
        return found

    sensor, joules = Counters(method="nvml", read=read, moving=[0]), []
    for _ in range(2):
        sensor.begin()
        clock.advance(2.0)
        joules.append(sensor.end().joules)
    assert joules == [None, 2.998]


WATTS, RANGE = 100.0, 262_143.0


# Zeus adds the range of a counter that wrapped when it next looks, up to a second later.
@pytest.mark.parametrize(
    "first", [3.0, 7.0, 9.7, 10.2]
)  # seconds from its opening to the first window
@pytest.mark.parametrize("length", [0.3, 2.0, 900.0])
def test_a_counter_that_wraps_gives_no_window_its_range(clock, first, length):
    """It wraps 10 s after its opening, and every 44 minutes from then on."""

    def read() -> dict[int, float]:
        joules, seen = (WATTS * (clock.seconds - late - 110.0) for late in (0.0, 1.0))
        return {0: 1000 * (joules % RANGE + RANGE * (seen // RANGE))}

    clock.sleep = clock.advance
    sensor = Counters(method="rapl", read=read, moving=[0])
    assert sensor.learn_period()
    clock.advance(first)
    read_joules = []
    for _ in range(20):
        sensor.begin()
        clock.advance(length)
        read_joules.append(sensor.end().joules)
    right = [joules for joules in read_joules if joules is not None]
    assert right == pytest.approx([WATTS * length] * len(right))
    assert len(right) >= 20 - max(2, 1.7 / length)


@pytest.mark.parametrize("device", [CPU, MPS])
def test_windows_are_as_long_as_a_counter_that_moves_every_2_seconds_needs(
    clock, monkeypatch, record, device
):
    """Such a counter gave windows of 1 s no joules, 63 J, no joules and 63 J at 30 W."""
    clock.sleep = clock.advance
    totals = lambda: dict.fromkeys(CHIP, 1000 * 15 * 2.1 * (clock.seconds // 2.1))  # noqa: E731
    sensor = Counters(method="apple_ioreport", read=totals, moving=CHIP)
    assert sensor.learn_period()
    assert sensor.period == pytest.approx(2.1, abs=0.01)
    for length, joules in (
        (1.0, None),
        (2.1, None),
        (sensor.least_seconds, 30 * sensor.least_seconds),
    ):
        sensor.begin()
        clock.advance(length)
        found = sensor.end().joules
        assert found == (joules and pytest.approx(joules, rel=0.3))
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensor)
    workload = FakeWorkload(clock)
    protocol.warm_up(workload, record, 2)
    protocol.measure_windows(workload, record, protocol.Amount(num_windows=6, window_seconds=1.0))
    rows = record.rows()
    trained = rows[rows["phase"] == "train"]
    assert trained["seconds"].min() >= sensor.least_seconds
    assert trained["energy_joules"].sum() == pytest.approx(30 * trained["seconds"].sum(), rel=0.1)
    assert rows["idle_watts"].iloc[0] == pytest.approx(30, rel=0.3)


def test_every_method_and_boundary_is_one_that_rows_allow():
    for method, boundary in sensors.BOUNDARIES.items():
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
        sensors.open_sensor.cache_clear()
        nvml_is_available.cache_clear()
        rapl_is_available.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture
def driver(monkeypatch, forgetful_zeus):
    """Stand in for NVIDIA's driver below the real pynvml functions that Zeus and we call."""
    moved = itertools.count()

    def install(
        num_gpus: int, divided: bool = False, readable: bool = True, nvidias: bool = True
    ) -> None:
        def energy(handle: int) -> int:
            if not readable:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return 1000 * handle + next(moved)

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
            monkeypatch.delattr(
                pynvml, "_nvmlGetFunctionPointer"
            )  # by which Zeus knows NVIDIA's own

    return install


@pytest.mark.parametrize(
    ("given", "handle"),
    [(None, 1), ("3,2,1", 2), ("GPU-3aaaaaaa-0000,GPU-2aaaaaaa-0000", 2), ("GPU-3,GPU-2aa", 2)],
)
def test_the_gpu_that_cuda_shows_by_number_or_by_name_is_read_alone_through_nvml(
    driver, monkeypatch, given, handle
):
    driver(4)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    sensor = sensors.open_sensor(CUDA)
    assert (sensor.method, sensor.moving) == ("nvml", [CUDA.index])
    assert sensor.read()[CUDA.index] // 1000 == handle
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == given


NOT_SHOWN = [(4, given, {}) for given in ("", "-1", "MIG-12345678-0000", "GPU-9", "0")] + [
    (0, None, {})
]


@pytest.mark.parametrize(
    ("gpus", "given", "kind"),
    [
        *NOT_SHOWN,
        *((2, None, kind) for kind in ({"divided": True}, {"readable": False}, {"nvidias": False})),
    ],
)
def test_a_gpu_that_is_not_shown_or_divided_or_cannot_be_read_has_no_sensor(
    driver, monkeypatch, gpus, given, kind
):
    driver(gpus, **kind)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    sensor = sensors.open_sensor(CUDA)
    assert sensor.method is None
    assert "an NVIDIA GPU has no energy counter of its work alone" in sensor.reason or kind == {
        "nvidias": False
    }


@pytest.mark.parametrize(
    ("counts", "nvidias", "hidden", "method"),
    [
        (True, 0, "", "amdsmi"),
        (False, 0, "", None),
        (True, 1, "", None),
        *(
            (True, 0, name, None) for name in ("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
        ),  # Zeus reads neither
        (True, 0, "HIP_VISIBLE_DEVICES", "amdsmi"),
    ],
)
def test_amds_gpu_is_read_alone_through_amdsmi_where_it_counts_energy(
    monkeypatch, driver, counts, nvidias, hidden, method
):
    import zeus.device.gpu as zeus_gpus

    driver(nvidias)
    for name in filter(None, [hidden]):  # Slurm sets the first of them
        monkeypatch.setenv(name, "1,2")
    energies = itertools.count(1000, 6000)  # mJ
    counter = SimpleNamespace(
        supports_get_total_energy_consumption=lambda: counts,
        get_total_energy_consumption=energies.__next__,
    )
    monkeypatch.delattr(zeus_gpus.AMDGPUs, "__del__")
    amds = zeus_gpus.AMDGPUs.__new__(zeus_gpus.AMDGPUs)  # without AMD's driver
    amds._gpus = [None, counter]
    monkeypatch.setattr(zeus_gpus, "_gpus", None if nvidias else amds)
    sensor = sensors.open_sensor(Device("rocm", "AMD Instinct MI300X", index=1))
    assert (sensor.method, "has no energy counter that Zeus can read" in sensor.reason) == (
        method,
        not method,
    )
    if method:
        assert sensor.read()[1] - sensor.read()[1] == -6000


@pytest.mark.parametrize(
    ("name", "read"), [("NVIDIA A", [1, 0]), ("NVIDIA B", [0, 1]), ("NVIDIA C", None)]
)
def test_of_two_kinds_of_gpu_the_one_is_read_that_has_the_devices_name(
    driver, monkeypatch, name, read
):
    driver(2)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetName", lambda handle: ("NVIDIA B", "NVIDIA A")[handle]
    )
    gpus = [sensors.open_sensor(Device("cuda", name, index=index)) for index in (0, 1)]
    assert [getattr(each, "moving", [None]) for each in gpus] == (
        [[each] for each in read] if read else [[None]] * 2
    )


@pytest.mark.parametrize(
    "device", [MPS, Device("metal", "an Apple GPU"), CUDA], ids=lambda device: device.kind
)
def test_without_zeus_a_window_is_kept_and_has_no_energy(log, driver, monkeypatch, device):
    driver(2)
    for name in ("zeus", "zeus.device"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(
        sensors, "sys", SimpleNamespace(platform="linux" if device is CUDA else "darwin")
    )
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
            for file, text in (
                ("name", name),
                ("energy_uj", "100"),
                ("max_energy_range_uj", "262143328850"),
            ):
                (domain / file).write_text(text + "\n")

    monkeypatch.setattr(rapl, "RAPL_DIR", str(tmp_path))
    monkeypatch.setattr(sensors, "RAPL", tmp_path)
    monkeypatch.setattr(Counters, "learn_period", lambda self: True)  # these files stay as they are
    return lay_out


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (("package-0",), [0]),
        (("package-0", "psys"), [0]),
        (("psys", "package-0", "package-1"), [1, 2]),
    ],
)
def test_cpu_is_read_through_rapl_as_its_packages_and_the_platform_is_not_added(
    powercap, driver, names, read
):
    driver(4)
    powercap(*names)
    sensor = sensors.open_sensor(CPU)
    assert (sensor.method, sensor.moving) == ("rapl", read)


def test_cpu_whose_counters_may_not_be_read_has_no_sensor(powercap, monkeypatch):
    import zeus.device.cpu.rapl as rapl

    powercap("package-0")

    def refuse(path, *arguments):
        if str(path).endswith("energy_uj"):
            raise PermissionError(path)
        return Path(path).open(*arguments)

    monkeypatch.setattr(rapl, "open", refuse, raising=False)
    assert "ZeusCPUNoPermissionError" in sensors.open_sensor(CPU).reason


# What Zeus's releases answer on a Mac: their own errors, with the newest library of Apple's
# counters and with an older.
ABSTRACT = (
    "Can't instantiate abstract class AppleSiliconMeasurement with abstract method zeroAllFields"
)
OLD_LIBRARY = AttributeError("'AppleEnergyMetrics' object has no attribute 'efficiency_cluster_mj'")
ON_A_MAC = {
    **{f"zeus {version}": TypeError(ABSTRACT) for version in ("0.13.1", "0.14.0", "0.15.0")},
    **{
        f"zeus {version}, zeus-apple-silicon 1.0.4": OLD_LIBRARY for version in ("0.15.1", "0.16.0")
    },
    **{f"zeus {version}": None for version in ("0.15.1", "0.16.0")},
    "no chip": ValueError("No SoC is available."),
}


@pytest.mark.parametrize(
    "error", [pytest.param(error, id=name) for name, error in ON_A_MAC.items()]
)
@pytest.mark.parametrize(
    "device", [CPU, MPS, ULTRA, replace(ULTRA, kind="cpu")], ids=["cpu", "mps", "ultra", "its cpu"]
)
def test_on_a_mac_each_zeus_reads_the_whole_chip_or_there_is_no_sensor_and_its_reason(
    monkeypatch, command, forgetful_zeus, device, error
):
    import zeus.device

    totals = dict.fromkeys(PARTS)

    def read() -> SimpleNamespace:
        if error:
            raise error
        totals.update(cpu_total_mj=(totals["cpu_total_mj"] or 0) + 1000, dram_mj=3, gpu_mj=7)
        return SimpleNamespace(**totals)

    chip = SimpleNamespace(get_total_energy_consumption=read)
    monkeypatch.setattr(zeus.device, "get_soc", lambda: chip)
    monkeypatch.setattr(sensors, "sys", SimpleNamespace(platform="darwin"))
    if "Ultra" in device.name:  # the library adds no dies
        error = RuntimeError("the energy of one of the two dies of Apple M3 Ultra is not counted")
    sensor = sensors.open_sensor(device)
    assert sensor.reason == (f"{type(error).__name__}: {error}" if error else "")
    assert sensor.method == (None if error else "apple_ioreport")
    assert error or sensor.read().keys() == {"cpu_total_mj", "gpu_mj", "dram_mj"}
    if device is not ULTRA:  # the command says of each kind of device what the sensor says
        return
    answer = survey.Answer((device,))
    monkeypatch.setattr(survey, "ask", lambda framework: answer)
    sought = "apple_ioreport" if not error else str(error)[:40]
    assert sought in command("machine")[1]
    told = json.loads(command("machine", "--json")[1])
    assert sought in str(told["devices"])
    assert told["machine"]["name"]


def test_a_chip_whose_cpu_is_not_counted_has_no_sensor(monkeypatch, forgetful_zeus):
    import zeus.device

    read = lambda: SimpleNamespace(**dict.fromkeys(PARTS, 0) | {"dram_mj": time.monotonic()})  # noqa: E731
    monkeypatch.setattr(
        zeus.device, "get_soc", lambda: SimpleNamespace(get_total_energy_consumption=read)
    )
    monkeypatch.setattr(sensors, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(sensors, "SLOWEST_SECONDS", 0.1)
    assert sensors.open_sensor(MPS).reason == "the counter of apple_ioreport does not move"


def test_zeus_is_not_loaded_where_there_are_no_counters(monkeypatch, tmp_path, forgetful_zeus):
    monkeypatch.setattr(sensors, "RAPL", tmp_path / "missing")
    monkeypatch.setattr(sensors, "sys", SimpleNamespace(platform="linux"))
    monkeypatch.setitem(sys.modules, "zeus.device", None)
    assert sensors.open_sensor(CPU) is sensors.NO_SENSOR
