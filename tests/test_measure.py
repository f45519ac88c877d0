import sys
from types import ModuleType, SimpleNamespace

import pytest

from benchbook import measure, records
from benchbook.devices import Device
from benchbook.measure import Energy, NoSensor, ZeusSensor
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
    monkeypatch.setattr(measure, "devices", fake)
    return calls


class Zeus:
    """Stands in for a ZeusMonitor: answers with the energies it was given."""

    def __init__(self, log: list | None = None, **energies) -> None:
        self.energies = energies
        self.log = [] if log is None else log

    def begin_window(self, key, sync_execution=True, restart=False):
        self.log.append(("begin", key, sync_execution))

    def end_window(self, key, sync_execution=True):
        self.log.append(("end", key, sync_execution))
        return SimpleNamespace(**{"gpu_energy": {}, "cpu_energy": None, "soc_energy": None} | self.energies)


def _apple(**parts) -> SimpleNamespace:
    names = ("cpu_total_mj", "gpu_mj", "gpu_sram_mj", "ane_mj", "dram_mj")
    return SimpleNamespace(**dict.fromkeys(names) | parts)


def test_window_adds_up_what_passed_and_what_was_waited_for(monkeypatch, log):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    def batches():
        for wait in (2, 5):
            clock.advance(wait)
            yield wait
        clock.advance(11)  # a loader takes time to find that it is at its end

    with measure.window(CPU, NoSensor()) as window:
        for _ in window.inputs(batches()):
            clock.advance(100)
    assert window.seconds == 2 + 100 + 5 + 100 + 11
    assert window.input_seconds == 2 + 5 + 11


def test_window_counts_several_inputs_together(monkeypatch, log):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    def slow(seconds):
        clock.advance(seconds)
        yield seconds

    with measure.window(CPU, NoSensor()) as window:
        assert [*window.inputs(slow(2)), *window.inputs(slow(3))] == [2, 3]
    assert window.input_seconds == 5


def test_window_synchronises_once_at_each_end_and_nowhere_inside(monkeypatch, log):
    monkeypatch.setattr(measure, "time", Clock(log))
    with measure.window(CUDA, Sensor(log)):
        log.append("body")
    assert log == ["reset", "synchronize cuda", "begin", "clock", "body", "synchronize cuda", "clock", "end"]


def test_asking_for_input_does_not_synchronise(monkeypatch, log):
    monkeypatch.setattr(measure, "time", Clock())
    with measure.window(MPS, NoSensor()) as window:
        assert list(window.inputs([1, 2, 3])) == [1, 2, 3]
    assert log.count("synchronize mps") == 2


def test_window_becomes_columns_of_a_row(monkeypatch, log):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    with measure.window(CPU, Sensor([], joules=5.0)) as window:
        clock.advance(4)
    assert window.columns() == {
        "seconds": 4.0,
        "input_seconds": 0.0,
        "energy_joules": 5.0,
        "energy_method": "nvml",
        "energy_boundary": "board",
        "peak_memory_bytes": 7,
        "memory_method": "counted",
    }
    assert set(window.columns()) <= set(records.COLUMNS)


def test_exception_in_a_window_is_raised_again(log):
    with pytest.raises(ZeroDivisionError), measure.window(CPU, NoSensor()):
        _ = 1 / 0


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
    ],
)
def test_sensor_reads_joules_and_names_what_they_cover(method, energies, expected):
    sensor = ZeusSensor(Zeus(**energies), method)
    sensor.begin()
    assert sensor.end() == expected


@pytest.mark.parametrize(
    ("method", "energies"),
    [
        ("nvml", {"gpu_energy": {0: 0.0}}),
        ("nvml", {"gpu_energy": {}}),
        ("rapl", {"cpu_energy": {0: 0.0}}),
        ("rapl", {"cpu_energy": None}),
        ("apple_ioreport", {"soc_energy": _apple(cpu_total_mj=0)}),
        ("apple_ioreport", {"soc_energy": _apple()}),
    ],
)
def test_counter_that_did_not_move_is_missing_not_zero(method, energies):
    sensor = ZeusSensor(Zeus(**energies), method)
    sensor.begin()
    assert sensor.end() == Energy(None, None, None)


def test_no_sensor_is_missing_not_zero():
    sensor = NoSensor()
    sensor.begin()
    assert sensor.end() == Energy(None, None, None)


def test_sensor_leaves_synchronising_to_the_window():
    zeus = Zeus(gpu_energy={0: 1.0})
    sensor = ZeusSensor(zeus, "nvml")
    sensor.begin()
    sensor.end()
    assert [(call, synchronises) for call, _, synchronises in zeus.log] == [("begin", False), ("end", False)]
    assert zeus.log[0][1] == zeus.log[1][1]


def test_every_method_and_boundary_is_one_that_rows_allow():
    for method, boundary in ZeusSensor.BOUNDARIES.items():
        for column, value in (("energy_method", method), ("energy_boundary", boundary)):
            allowed = records.SCHEMA.columns[column].checks[0].statistics["allowed_values"]
            assert value in allowed


@pytest.fixture
def zeus_finds(monkeypatch, tmp_path):
    """Install a Zeus that finds the sensors it is told; return what it was asked to watch."""

    def install(gpus: int = 0, cpus: int = 0, soc=None, rapl: bool = False, system: str = "linux") -> list[dict]:
        asked = []

        def open_monitor(gpu_indices, cpu_indices):
            asked.append({"gpu_indices": gpu_indices, "cpu_indices": cpu_indices})
            return SimpleNamespace(
                gpus=range(gpus),
                cpu_indices=list(range(cpus)) if cpu_indices is None else cpu_indices,
                soc_is_present=soc is not None,
                soc=SimpleNamespace(get_total_energy_consumption=lambda: soc),
            )

        module = ModuleType("zeus.monitor")
        module.ZeusMonitor = open_monitor
        monkeypatch.setitem(sys.modules, "zeus", ModuleType("zeus"))
        monkeypatch.setitem(sys.modules, "zeus.monitor", module)
        monkeypatch.setattr(measure, "RAPL", tmp_path if rapl else tmp_path / "missing")
        monkeypatch.setattr(measure, "sys", SimpleNamespace(platform=system))
        return asked

    return install


def test_gpu_is_read_alone_through_nvml(zeus_finds):
    asked = zeus_finds(gpus=4, cpus=2, rapl=True)
    assert measure.open_sensor(CUDA).method == "nvml"
    assert asked == [{"gpu_indices": [CUDA.index], "cpu_indices": []}]


def test_gpu_whose_driver_tells_nothing_has_no_sensor(zeus_finds):
    zeus_finds(gpus=0, cpus=2, rapl=True)
    assert isinstance(measure.open_sensor(CUDA), NoSensor)


def test_cpu_is_read_through_rapl_and_no_gpu_with_it(zeus_finds):
    asked = zeus_finds(gpus=4, cpus=2, rapl=True)
    assert measure.open_sensor(CPU).method == "rapl"
    assert asked == [{"gpu_indices": [], "cpu_indices": None}]


def test_cpu_whose_counters_may_not_be_read_has_no_sensor(zeus_finds):
    zeus_finds(cpus=0, rapl=True)
    assert isinstance(measure.open_sensor(CPU), NoSensor)


def test_cpu_without_counters_has_no_sensor_and_zeus_is_not_even_loaded(zeus_finds):
    asked = zeus_finds(rapl=False)
    assert isinstance(measure.open_sensor(CPU), NoSensor)
    assert asked == []


@pytest.mark.parametrize("device", [CPU, MPS])
def test_apple_chip_is_read_as_a_whole(zeus_finds, device):
    zeus_finds(soc=_apple(cpu_total_mj=1), system="darwin")
    assert measure.open_sensor(device).method == "apple_ioreport"


@pytest.mark.parametrize("device", [CPU, MPS])
def test_mac_without_apple_silicon_counters_has_no_sensor(zeus_finds, device):
    zeus_finds(soc=None, system="darwin")
    assert isinstance(measure.open_sensor(device), NoSensor)
