"""A wall meter's log: known joules from known watts, and nothing where it says too little."""

import re

import pandas
import pytest

from benchbook.frameworks.devices import Device
from benchbook.machine import meter
from benchbook.measuring import sensors
from benchbook.rows import records
from fakes import CPU, Clock
from rows import make_row, make_rows

START = "2026-11-21T15:00:{:02d}Z"
T0 = pandas.Timestamp(START.format(0)).timestamp()


def write(path, watts, every=1, header="timestamp,watts"):
    lines = [header, *(f"{START.format(index * every)},{value}" for index, value in enumerate(watts))]
    path.write_text("\n".join(lines) + "\n")
    return path


STEADY, RISING, TEETH = [50] * 11, range(0, 110, 10), [0, 100, 0, 100, 0]


@pytest.mark.parametrize(
    ("watts", "every", "begun", "ended", "expected"),
    [
        *((STEADY, 1, *window, joules) for *window, joules in ((2, 8, 300), (2.25, 7.5, 50 * 5.25), (0, 10, 500))),
        *((RISING, 1, a, b, 5 * (b**2 - a**2)) for a, b in ((2, 6), (2.5, 5.5))),  # by the trapezoid rule
        (TEETH, 1, 0, 4, 200),
        *((STEADY, 1, a, b, None) for a, b in ((-1, 5), (5, 11), (11, 15), (-5, -1), (5, 5), (6, 5))),  # not covered
        ([50] * 6, 5, 1, 11, 500),
        ([50] * 6, 5, 1, 10.9, None),  # samples farther apart than half a window
        ([], 1, 0, 1, None),
    ],
)
def test_a_window_has_the_joules_of_the_watts_that_cover_it(tmp_path, watts, every, begun, ended, expected):
    joules = meter.joules(meter.read(write(tmp_path / "m.csv", watts, every)), T0 + begun, T0 + ended)
    assert joules == (None if expected is None else pytest.approx(expected))


def test_times_with_another_zone_extra_columns_and_any_order_are_read_and_a_torn_line_is_left_out(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("volts,watts,timestamp\n230,20,2026-11-21T16:00:02+01:00\n231,10,2026-11-21T15:00:00Z\n229,7")
    assert meter.read(path).values.tolist() == [[T0, 10], [T0 + 2, 20]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,watts\n", "m.csv: no column timestamp; allowed: timestamp, watts"),
        ("timestamp,watts\n2026-11-21T15:00:00,5\n", "timestamp '2026-11-21T15:00:00'; allowed: ISO 8601 with a zone"),
        ("timestamp,watts\nnoon,5\n", "timestamp 'noon'; allowed"),
        ("timestamp,watts\n2026-11-21T15:00:00Z,-5\n", "watts '-5'; allowed: numbers from 0"),
        ("timestamp,watts\n2026-11-21T15:00:00Z,much\n", "watts 'much'; allowed: numbers from 0"),
        ("timestamp,watts\n2026-11-21T15:00:00Z,nan\n", "watts 'nan'; allowed: numbers from 0"),
    ],
)
def test_a_log_that_cannot_be_read_says_where_and_what_is_allowed(tmp_path, text, message):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        meter.read(path)


def row(**columns):
    return make_row(started_at=START.format(2), seconds=4.0, **columns)


def test_a_log_had_after_the_run_fills_the_windows_it_covers_and_no_other(tmp_path, monkeypatch):
    path = str(write(tmp_path / "m.csv", [50] * 11))
    nvml = {"energy_joules": 7.0, "energy_method": "nvml", "energy_boundary": "board"}
    rows = make_rows(
        [
            row(index=0),
            row(index=1, **nvml),
            row(index=2) | {"started_at": START.format(9)},
            row(index=3, machine="another"),
            row(index=4) | {"seconds": None},
        ]
    )
    filled = records.validate(meter.fill(rows, "desk", path))
    energy = filled[["energy_joules", "energy_method", "energy_boundary"]].astype(object)
    assert energy.where(energy.notna(), None).values.tolist() == [
        [200, "meter", "wall"],
        [*nvml.values()],
        *[[None] * 3] * 3,
    ]
    assert rows["energy_joules"].isna().tolist() == [True, False, True, True, True]
    monkeypatch.delenv("BENCHBOOK_METER", raising=False)
    assert meter.fill(rows, "desk") is rows
    monkeypatch.setenv("BENCHBOOK_METER", path)
    assert meter.fill(rows, "desk").equals(filled)


class Logged(Clock):
    """Time that passes only in sleep, while the logger writes a line a second."""

    path = None
    time = Clock.perf_counter

    def sleep(self, seconds):
        super().sleep(seconds)
        self.advance(seconds)
        if self.path is not None:
            write(self.path, [40] * (int(self.seconds - T0) + 1))


@pytest.mark.parametrize(
    ("is_written", "expected", "least", "most"),
    [(True, sensors.Energy(pytest.approx(40 * 4.5), "meter", "wall"), 0.05, 1), (False, sensors.Energy(), 2, 3)],
)
def test_a_window_waits_for_a_while_until_the_log_has_reached_its_end(
    monkeypatch, tmp_path, is_written, expected, least, most
):
    path = write(tmp_path / "m.csv", [40] * 3)
    clock = Logged()
    clock.seconds, clock.path = T0 + 1, path if is_written else None
    monkeypatch.setattr(sensors, "time", clock)
    sensor = sensors.MeterSensor(path, patience=2.0)
    sensor.begin()
    clock.seconds = T0 + 5.5
    assert sensor.end() == expected
    assert least <= sum(clock.slept) < most


def test_a_meter_comes_before_the_counters_and_its_file_has_to_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHBOOK_METER", str(write(tmp_path / "m.csv", [1])))
    assert isinstance(sensors.open_sensor(CPU), sensors.MeterSensor)
    monkeypatch.setenv("BENCHBOOK_METER", str(tmp_path / "missing.csv"))
    with pytest.raises(ValueError, match=r"missing.csv'; allowed: a file with columns timestamp, watts"):
        sensors.open_sensor(CPU)


@pytest.mark.parametrize(("kind", "boundary"), [("cpu", "package"), ("mps", "soc"), ("cuda", "board")])
def test_a_stated_power_is_an_estimate_only_where_it_was_asked_for_and_nothing_measures(monkeypatch, kind, boundary):
    monkeypatch.setattr(sensors, "_counter", lambda device: sensors.NO_SENSOR)
    device = Device(kind, "a device")
    monkeypatch.delenv("BENCHBOOK_TDP_WATTS", raising=False)
    assert sensors.open_sensor(device) is sensors.NO_SENSOR
    monkeypatch.setenv("BENCHBOOK_TDP_WATTS", "65")
    sensor = sensors.open_sensor(device)
    times = iter([10.0, 14.0])
    monkeypatch.setattr(sensors.time, "perf_counter", lambda: next(times))
    sensor.begin()
    assert sensor.end() == sensors.Energy(260.0, "estimate_tdp", boundary)
    counter = sensors.ZeusSensor(None, "rapl")
    monkeypatch.setattr(sensors, "_counter", lambda device: counter)
    assert sensors.open_sensor(device) is counter


@pytest.mark.parametrize("text", ["0", "-5", "many", "inf"])
def test_a_stated_power_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setattr(sensors, "_counter", lambda device: sensors.NO_SENSOR)
    monkeypatch.setenv("BENCHBOOK_TDP_WATTS", text)
    with pytest.raises(ValueError, match=f"BENCHBOOK_TDP_WATTS '{text}'; allowed: a number above 0"):
        sensors.open_sensor(CPU)
