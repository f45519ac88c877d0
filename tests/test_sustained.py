"""Minutes without a pause on a clock that moves only when told, and rates of first and last
minutes by hand."""

import json

import pytest
import yaml

from benchbook.judging import statistics
from benchbook.measuring import protocol
from made.fakes import FakeWorkload, run
from made.rows import make_row, make_rows

TOLD = json.dumps({"sustained_minutes": 10.0})


def measured(folder, minutes, *given):
    record = run(folder)
    protocol.measure_minutes(FakeWorkload(*given), record, minutes)
    return record.rows()


def test_windows_follow_each_other_until_the_minutes_are_over(tmp_path, clock):
    rows = measured(tmp_path / "long", 1.0, clock)
    seconds = rows["seconds"].astype(float)
    assert set(rows["phase"]) == {"train"}
    assert seconds.sum() >= 60 > seconds.iloc[:-1].sum()
    assert rows["epoch"].is_monotonic_increasing
    assert rows["epoch"].max() > 1
    # At first one step, whose input was there: the loader begins before the clock.
    assert measured(tmp_path / "short", 0.25, clock)["seconds"].tolist() == [3, 5, 5, 5]


def test_a_loss_that_is_no_number_ends_it(tmp_path, clock):
    rows = measured(tmp_path, 10.0, clock, {3: float("nan")})
    assert rows["status"].tolist() == ["ok", "diverged"]


def windows(seconds, samples, settings=TOLD, **columns):
    pairs = zip(seconds, samples, strict=True)
    told = [
        {"index": i, "seconds": s, "samples": n, "samples_per_second": n / s}
        for i, (s, n) in enumerate(pairs)
    ]
    return make_rows([make_row(settings=settings, **own, **columns) for own in told])


@pytest.mark.parametrize(
    ("seconds", "samples", "end_minutes", "first", "last"),
    yaml.safe_load("""
- [[30, 30, 30, 30, 30, 30], [90, 90, 60, 60, 30, 60], 1, 3.0, 1.5]
- [[10, 10], [40, 20], 0.166667, 4.0, 2.0]  # a short run is halved
- [[200], [400], 1, 2.0, 2.0]  # one window longer than a minute is first and last
"""),
)
def test_the_first_minute_and_the_last_stand_side_by_side(
    seconds, samples, end_minutes, first, last
):
    timed = statistics.sustained(windows(seconds, samples))
    line = statistics.first_and_last(timed).iloc[0]
    found = line[["end_minutes", "first", "last", "change"]].tolist()
    assert found == pytest.approx([end_minutes, first, last, last / first - 1], 1e-5)


def test_other_points_and_older_runs_are_left_out():
    assert statistics.sustained(windows([10], [10], settings="{}")).empty
    assert statistics.sustained(windows([10], [10], phase="evaluate")).empty
    assert statistics.sustained(make_rows([])).empty
    assert statistics.first_and_last(statistics.sustained(make_rows([]))).empty
    old, new = (
        windows([10], [n], run_id=name, session=name) for name, n in (("run-1", 10), ("run-2", 20))
    )
    timed = statistics.sustained(make_rows([*old.to_dict("records"), *new.to_dict("records")]))
    assert timed["samples"].tolist() == [20]
