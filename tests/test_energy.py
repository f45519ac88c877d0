"""Joules an image, with method and boundary; from a Zeus of known joules to what is said of
them."""

from math import nan

import pandas
import pytest

from benchbook.judging import compare, statistics, wording
from benchbook.measuring import protocol, sensors
from benchbook.measuring.protocol import Amount
from benchbook.rows import manifests
from made.fakes import FakeWorkload
from made.rows import make_row, make_rows

NVML = {"energy_method": "nvml", "energy_boundary": "board"}
RAPL = {"energy_method": "rapl", "energy_boundary": "package"}


def counters(clock):
    """Return the counters of two devices of 10 W each."""
    read = lambda: dict.fromkeys((0, 1), 1e4 * clock.seconds)  # noqa: E731
    return sensors.Counters(method="nvml", read=read, moving=[0, 1])


@pytest.fixture
def clock(clock):
    clock.sleep = clock.advance
    return clock


@pytest.fixture
def measured(clock, record, monkeypatch):
    """Return a function to the rows of two windows, by the sensor that it is given."""

    def of(sensor: sensors.Sensor):
        monkeypatch.setattr(sensors, "open_sensor", lambda device: sensor)
        workload = FakeWorkload(clock)
        protocol.warm_up(workload, record, 2)
        protocol.measure_windows(workload, record, Amount(num_windows=2))
        return record.rows()

    return of


def test_windows_have_joules_with_method_and_boundary_after_the_idle_watts_of_a_counter(
    clock, measured
):
    rows = measured(counters(clock))
    assert list(rows["phase"]) == ["idle", "compile", "warmup", "train", "train", "evaluate"]
    assert rows.loc[0, "seconds"] == protocol.IDLE_SECONDS
    said = rows[["idle_watts", "energy_method", "energy_boundary"]].drop_duplicates()
    assert said.to_numpy().tolist() == [[20.0, "nvml", "board"]]
    assert rows["energy_joules"].tolist() == [20 * seconds for seconds in rows["seconds"]]
    point = statistics.summarise(rows).iloc[0]
    assert point["energy_per_sample"] == pytest.approx(20 * 15 / 10)  # 10 images in 15 s
    assert (
        wording.energy(point)
        == "Energy: 30 J an image, idle power included (nvml, board; idle: 20 W)"
    )


@pytest.mark.parametrize("part", ["ane_mj", None])
def test_the_joules_of_each_part_of_apples_chip_are_in_the_manifest(clock, measured, record, part):
    def read():  # as Zeus: a part without a counter is not there
        watts = {"cpu_total_mj": 1e3, "gpu_mj": 8e3} | ({part: 0.0} if part else {})
        return {name: each * clock.seconds for name, each in watts.items()}

    record.manifest = {"run_id": record.run_id}
    rows = measured(sensors.Counters(method="apple_ioreport", read=read, moving=["gpu_mj"]))
    record.end()
    [manifest] = manifests.read_all(record.folder).values()
    parts = [each["energy_parts"] for each in manifest["conditions"] if "index" in each]
    joules = rows.loc[rows["phase"] == "train", "energy_joules"]
    assert [sum(each.values()) for each in parts] == pytest.approx(joules.tolist())
    assert [("ane_mj" in each) for each in parts] == [bool(part)] * len(parts)


def windows(*joules, seconds=4.0, run_id="run-1", **columns):
    rows = [
        make_row(index=index, run_id=run_id, energy_joules=value, seconds=seconds, **columns)
        for index, value in enumerate(joules)
    ]
    return make_rows(rows)


def test_windows_of_two_methods_are_not_averaged():
    both = pandas.concat(
        [windows(64.0, **NVML), windows(640.0, run_id="run-2", **RAPL)], ignore_index=True
    )
    found = statistics.summarise(both).iloc[0]
    assert found[["energy_per_sample", "energy_method", "energy_boundary"]].tolist() == [
        1.0,
        "rapl",
        "package",
    ]


@pytest.mark.parametrize(
    ("seconds", "note"), [(1.9, "windows under 2 s are short for a sensor"), (2.0, "")]
)
def test_windows_too_short_for_a_sensor_are_noted_and_one_without_joules_does_not_count(
    seconds, note
):
    point = statistics.summarise(windows(64.0, None, seconds=seconds, **NVML))
    assert point[["num_windows", "energy_per_sample", "energy_note"]].to_numpy().tolist() == [
        [2, 0.1, note]
    ]


BOARD, PACKAGE, UNREAD = windows(64.0, **NVML), windows(128.0, machine="lap", **RAPL), windows(None)
NONE = [nan] * 3


@pytest.mark.parametrize(
    ("a", "b", "ratio"),
    [
        (
            windows(60.0, 64.0, **NVML),
            windows(124.0, 132.0, **NVML),
            [128 / 62, 124 / 64, 132 / 60],
        ),
        (BOARD, PACKAGE, NONE),
        (UNREAD, BOARD, NONE),
    ],
)
def test_joules_have_a_ratio_within_one_method_and_boundary(a, b, ratio):
    line = compare.table(a, b.assign(session="session-2", run_id="run-2"))[0].iloc[0]
    energies = [
        nan if each is None else each
        for each in line[["energy_ratio", "energy_low", "energy_high"]]
    ]
    assert energies == pytest.approx(ratio, nan_ok=True)
    assert ratio == NONE or line["energy_interval"] == "range"
