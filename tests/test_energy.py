"""Joules an image, with method and boundary; from a Zeus of known joules to what is said of them."""

from types import SimpleNamespace

import pandas
import pytest

from benchbook.judging import compare, statistics, wording
from benchbook.measuring import protocol, sensors
from benchbook.measuring.protocol import Plan
from fakes import FakeWorkload, run
from rows import make_row, make_rows

NVML = {"energy_method": "nvml", "energy_boundary": "board"}
RAPL = {"energy_method": "rapl", "energy_boundary": "package"}


class Zeus:
    """A monitor whose device draws 20 W, always."""

    def __init__(self, clock):
        self.clock = clock

    def begin_window(self, key, sync_execution=True, restart=False):
        self.begun = self.clock.seconds

    def end_window(self, key, sync_execution=True):
        return SimpleNamespace(gpu_energy={0: 20.0 * (self.clock.seconds - self.begun)})


@pytest.fixture
def clock(clock, monkeypatch):
    clock.sleep = clock.advance
    monkeypatch.setattr(sensors, "time", clock)
    return clock


def rows_of(clock, folder, sensor, monkeypatch):
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensor)
    workload, record = FakeWorkload(clock), run(folder)
    protocol.warm_up(workload, record, 2)
    return protocol.measure_windows(workload, record, Plan(num_windows=2))


def test_idle_watts_come_first_and_every_window_has_joules_with_method_and_boundary(clock, tmp_path, monkeypatch):
    rows = rows_of(clock, tmp_path, sensors.ZeusSensor(Zeus(clock), "nvml"), monkeypatch)
    assert list(rows["phase"]) == ["idle", "compile", "warmup", "train", "train", "evaluate"]
    assert rows.loc[0, "seconds"] == protocol.IDLE_SECONDS
    assert set(rows["idle_watts"]) == {20.0}
    assert rows["energy_joules"].tolist() == [20 * seconds for seconds in rows["seconds"]]
    assert set(rows["energy_method"]) == {"nvml"}
    assert set(rows["energy_boundary"]) == {"board"}
    point = statistics.summarise(rows).iloc[0]
    assert point["energy_per_sample"] == pytest.approx(20 * 15 / 10)  # 10 images in 15 s
    assert wording.energy(point) == "Energy: 30 J an image, idle power included (nvml, board; idle: 20 W)"


def test_a_plain_machine_gives_missing_and_waits_for_nothing(clock, tmp_path, monkeypatch):
    rows = rows_of(clock, tmp_path, sensors.NO_SENSOR, monkeypatch)
    assert list(rows["phase"]) == ["compile", "warmup", "train", "train", "evaluate"]
    assert rows[["energy_joules", "energy_method", "energy_boundary", "idle_watts"]].isna().all(axis=None)
    point = statistics.summarise(rows).iloc[0]
    assert pandas.isna(point["energy_per_sample"])
    assert wording.energy(point) == "Energy: no sensor measures it here, so it is missing"


def test_a_stated_power_is_labelled_and_has_no_idle_watts(clock, tmp_path, monkeypatch):
    rows = rows_of(clock, tmp_path, sensors.EstimateSensor(65, "package"), monkeypatch)
    assert "idle" not in set(rows["phase"])
    assert rows["idle_watts"].isna().all()
    assert set(rows["energy_method"]) == {"estimate_tdp"}
    point = statistics.summarise(rows).iloc[0]
    assert point["energy_note"] == "an estimate from a stated power, not measured"
    assert "estimate_tdp, package; idle: not measured; an estimate" in wording.energy(point)


def windows(*joules, seconds=4.0, run_id="run-1", **columns):
    rows = [
        make_row(index=index, run_id=run_id, energy_joules=value, seconds=seconds, **columns)
        for index, value in enumerate(joules)
    ]
    return make_rows(rows)


def point(*joules, **columns):
    """Return the line of a point with these joules in its windows."""
    return statistics.summarise(windows(*joules, **columns)).iloc[0].to_dict()


def test_joules_an_image_are_the_median_over_windows_that_were_read():
    found = point(64.0, 128.0, 640.0, idle_watts=5.0, **NVML)
    assert found["energy_per_sample"] == 128 / 640
    assert (found["idle_watts"], found["energy_note"]) == (5.0, "")
    unread = point(None, None)
    assert all(
        pandas.isna(unread[name]) for name in ("energy_per_sample", "energy_method", "idle_watts", "energy_note")
    )


def test_windows_of_two_methods_are_not_averaged():
    both = pandas.concat([windows(64.0, **NVML), windows(640.0, run_id="run-2", **RAPL)], ignore_index=True)
    found = statistics.summarise(both).iloc[0]
    assert (found["energy_per_sample"], found["energy_method"], found["energy_boundary"]) == (1.0, "rapl", "package")


@pytest.mark.parametrize(("seconds", "note"), [(1.9, "windows under 2 s are short for a sensor"), (2.0, "")])
def test_windows_too_short_for_a_sensor_are_noted(seconds, note):
    assert point(64.0, seconds=seconds, **NVML)["energy_note"] == note


def compared(a, b):
    """Return the line that compares two sets of windows, of two sessions."""
    return compare.table(a, b.assign(session="session-2", run_id="run-2")).iloc[0]


def test_a_ratio_within_one_boundary_has_nothing_to_say():
    line = compared(windows(60.0, 64.0, **NVML), windows(124.0, 132.0, **NVML))
    assert (line["energy_ratio"], line["energy_note"]) == (pytest.approx(128 / 62), "")
    assert line[["energy_low", "energy_high"]].tolist() == pytest.approx([124 / 64, 132 / 60])
    assert line["energy_interval"] == "range"


def test_a_ratio_across_boundaries_or_with_an_estimate_says_so():
    board, package = windows(64.0, **NVML), windows(128.0, machine="lap", **RAPL)
    line = compared(board, package)
    assert line["energy_note"] == "different boundaries: board, package; different methods: nvml, rapl"
    assert line[["energy_a", "energy_b"]].tolist() == pytest.approx([0.1, 0.2])
    assert pandas.isna(line["energy_ratio"])
    guess = windows(128.0, machine="lap", energy_method="estimate_tdp", energy_boundary="package")
    assert "B: an estimate from a stated power" in compared(package, guess)["energy_note"]


def test_a_ratio_with_a_missing_end_is_missing():
    read, missing = windows(64.0, **NVML), windows(None)
    for line in (compared(read, missing), compared(missing, read)):
        assert pandas.isna(line["energy_ratio"])
        assert line["energy_note"] == ""


def test_a_ratio_of_joules_has_the_interval_of_its_kernels():
    a, b = (
        pandas.concat(
            [
                windows(*[level * joules] * 6, run_id=f"{side}-{level}", session=side, **NVML)
                for level in (0.98, 1.0, 1.02)
            ],
            ignore_index=True,
        )
        for side, joules in (("s1", 64.0), ("s2", 128.0))
    )
    line = compare.table(a, b).iloc[0]
    assert line["energy_interval"] == "interval"
    assert line["energy_ratio"] == pytest.approx(2.0)
    assert 1.6 < line["energy_low"] < 2.0 < line["energy_high"] < 2.5
