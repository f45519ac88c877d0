"""The loop of a study: what a deadline leaves out, what a second call goes on with, and what a failure stops."""

import json
import re
import time
from dataclasses import replace

import pytest

from benchbook.machine import layout
from benchbook.rows import records
from benchbook.running import execute, session
from benchbook.running.profiles import Point
from test_execute import points_of

pytestmark = pytest.mark.notebook

BODY = """
with run.during("train"):
    run.append(samples=1, seconds=1.0)
run.end()
"""


@pytest.fixture
def points(tmp_path, monkeypatch) -> list[Point]:
    """Return two points of a study of one row."""
    monkeypatch.setenv("BENCHBOOK_MACHINE", "tester")
    return points_of(tmp_path, BODY, 500, ("reference", "controlled"), monkeypatch)


def measured() -> list[tuple[str, str, str]]:
    """Return variant, run and status of each row there is, the oldest run first."""
    rows = records.gather(records.find(layout.runs("tester")), pytest.fail).sort_values(["run_id", "index"])
    return [tuple(row) for row in rows[["variant", "run_id", "status"]].values.tolist()]


def statuses_of(point: Point) -> list[str]:
    return json.loads((layout.state("tester") / point.study / point.name / "done").read_text())["statuses"]


def test_a_point_starts_if_its_estimate_fits_and_what_is_left_out_is_named_and_measured_next(points, monkeypatch):
    long, short = points  # each may take 500 s
    assert session.run([long], "tester") == []
    [manifest] = layout.runs("tester").rglob("*.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"process_seconds": 400}))
    session.forget(layout.state("tester") / long.study / long.name)
    monkeypatch.setenv("BENCHBOOK_SESSION", "another")
    [(point, reason)] = session.run([long, short], "tester", time.monotonic() + 209)
    assert point.title == "faults: reference, CPU"
    assert re.fullmatch("needs about 805 s, 19. s were left", reason)  # 10 s are for the end
    assert [(variant, status) for variant, _, status in measured()] == [("reference", "ok"), ("controlled", "ok")]
    assert session.run([long, short], "tester") == []
    assert [variant for variant, _, _ in measured()] == ["reference", "controlled", "reference"]
    monkeypatch.setenv("BENCHBOOK_SESSION", "a third")
    assert session.run([long, short], "tester") == []  # what is done stays done
    assert len(measured()) == 3


def test_without_time_every_point_is_named_and_nothing_runs(points):
    left_out = session.run([*points, replace(points[0], name="x-0123abcd")], "tester", time.monotonic())
    assert [point.title for point, _ in left_out] == ["faults: reference, CPU", "faults: controlled, CPU", "faults: x"]
    assert {reason for _, reason in left_out} == {"needs about 5 s, 0 s were left"}
    assert not list(layout.outputs().rglob("*.csv"))


def test_the_loop_goes_on_after_a_failure_and_leaves_out_a_point_whose_run_cannot_be_supervised(
    points, monkeypatch, capsys
):
    lost, tried = replace(points[0], name="lost"), []

    def run(point, machine_name, watch, deadline):
        tried.append(point)
        if point == lost:
            raise OSError("planted")
        return ["crashed"] if point == points[0] else ["ok"]

    monkeypatch.setattr(execute, "execute", run)
    order = [points[0], lost, points[1]]
    assert session.run(order, "tester", time.monotonic() + 3600) == [(lost, "OSError: planted")]
    assert tried == order
    assert [statuses_of(point) for point in points] == [["crashed"], ["ok"]]
    assert "crashed" in capsys.readouterr().out
