"""Minutes without a pause on a clock that moves only when told, and rates of first and last minutes by hand."""

import json

import pytest

from benchbook.judging import statistics
from benchbook.measuring import protocol, sensors
from fakes import Clock, FakeWorkload, run
from rows import make_row, make_rows

TOLD = json.dumps({"sustained_minutes": 10.0})


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(protocol, "time", made)
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensors.NO_SENSOR)
    return made


def test_windows_follow_each_other_until_the_minutes_are_over(tmp_path, clock):
    rows = protocol.measure_minutes(FakeWorkload(clock), run(tmp_path), 1.0)
    seconds = rows["seconds"].astype(float)
    assert set(rows["phase"]) == {"train"}
    assert seconds.sum() >= 60 > seconds.iloc[:-1].sum()
    assert seconds.iloc[0] == 5  # one step: two seconds of input, three of work
    assert set(seconds.iloc[1:]) == {10.0}
    assert rows["epoch"].is_monotonic_increasing
    assert rows["epoch"].max() > 1


def test_a_short_run_takes_about_as_long_as_it_should_in_several_windows(tmp_path, clock):
    seconds = protocol.measure_minutes(FakeWorkload(clock), run(tmp_path), 0.25)["seconds"].tolist()
    assert seconds == [5, 5, 5]


def test_a_loss_that_is_no_number_ends_it(tmp_path, clock):
    rows = protocol.measure_minutes(FakeWorkload(clock, {3: float("nan")}), run(tmp_path), 10.0)
    assert rows["status"].tolist() == ["ok", "ok", "diverged"]


def test_no_minutes_are_refused(tmp_path, clock):
    with pytest.raises(ValueError, match="sustained_minutes 0; allowed: above 0"):
        protocol.measure_minutes(FakeWorkload(clock), run(tmp_path), 0)


def windows(seconds, samples, settings=TOLD, **columns):
    pairs = enumerate(zip(seconds, samples, strict=True))
    return make_rows(
        [
            make_row(index=i, seconds=s, samples=n, samples_per_second=n / s, settings=settings, **columns)
            for i, (s, n) in pairs
        ]
    )


def test_the_first_minute_and_the_last_stand_side_by_side():
    timed = statistics.sustained(windows([30, 30, 30, 30, 30, 30], [90, 90, 60, 60, 30, 60]))
    assert timed["minutes"].tolist() == [0.5, 1, 1.5, 2, 2.5, 3]
    line = statistics.first_and_last(timed).iloc[0]
    assert (line["minutes"], line["stretch"], line["first"], line["last"]) == (3, 1, 3.0, 1.5)
    assert line["change"] == -0.5


def test_a_short_run_is_halved_and_says_so():
    line = statistics.first_and_last(statistics.sustained(windows([10, 10], [40, 20]))).iloc[0]
    assert (line["stretch"], line["first"], line["last"]) == (pytest.approx(1 / 6), 4.0, 2.0)


def test_one_window_longer_than_a_minute_is_first_and_last():
    line = statistics.first_and_last(statistics.sustained(windows([200], [400]))).iloc[0]
    assert (line["first"], line["last"], line["change"]) == (2.0, 2.0, 0.0)


def test_other_points_and_older_runs_are_left_out():
    assert statistics.sustained(windows([10], [10], settings="{}")).empty
    assert statistics.sustained(make_rows([])).empty
    assert statistics.first_and_last(statistics.sustained(make_rows([]))).empty
    old, new = (windows([10], [n], run_id=name, session=name) for name, n in (("run-1", 10), ("run-2", 20)))
    timed = statistics.sustained(make_rows([*old.to_dict("records"), *new.to_dict("records")]))
    assert timed["samples"].tolist() == [20]
