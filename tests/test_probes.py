"""A probe that may crash: a kernel that dies at 224 pixels is one row, and the study goes on to the next point."""

import json
import subprocess
import sys
import time

import psutil
import pytest

from benchbook.frameworks import devices
from benchbook.machine import layout
from benchbook.running import profiles, session
from benchbook.running.profiles import Point
from benchbook.studies.mobilenetv2_energy import study as mobilenetv2
from benchbook.studies.study import Evidence
from processes import is_kernel


def probe(**parameters) -> Point:
    """Return the study's point at 224 pixels in the first framework there is."""
    given = {"device": "cpu", "framework": devices.installed()[0], "image_size": 224, "trainable": True}
    given |= {"dataset": "shapes", "weights": "random", "batch_size": 8}
    whole = profiles.declared("mobilenetv2_energy") | given | parameters
    return Point("mobilenetv2_energy", profiles.point_name("mobilenetv2_energy", whole), whole, 1, 120)


def kill_kernel_at_its_first_row(process: subprocess.Popen, folder) -> None:
    """Kill the kernel under a process as soon as it has written a row, as a segmentation fault would end it."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.stat().st_size for path in folder.rglob("*.csv")):
            for member in psutil.Process(process.pid).children(recursive=True):
                if is_kernel(member):
                    member.kill()
                    return
        time.sleep(0.1)
    raise AssertionError("the kernel wrote no row")


@pytest.mark.notebook
def test_a_kernel_killed_at_224_pixels_is_one_crashed_row_and_its_point_is_done(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    monkeypatch.setenv("BENCHBOOK_MACHINE", "tester")
    point = probe()
    profiles.write_points(tmp_path / "points.json", [point])
    code = "from pathlib import Path; from benchbook.running import profiles, session; "
    code += f"session.measure(profiles.read_points(Path({str(tmp_path / 'points.json')!r})), 'tester')"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    kill_kernel_at_its_first_row(process, layout.runs("tester"))
    assert process.wait(60) == 0
    done = layout.state("tester") / point.study / point.name / "done"
    assert json.loads(done.read_text()) == {"statuses": ["crashed"]}
    rows = session.read_rows("tester")
    assert rows["status"].tolist() == ["ok", "crashed"]
    crash = rows.iloc[1]
    assert crash[["image_size", "batch_size", "message"]].tolist() == [224, 8, "the kernel died"]
    assert crash["settings"]["trainable"] is True
    assert session.summary([point], "tester")["status"].tolist() == ["crashed"]
    shown = mobilenetv2.settings(Evidence(rows)).iloc[0]
    assert shown[["image_size", "status"]].tolist() == [224, "crashed"]
    assert not list(tmp_path.rglob("*.running"))


def test_every_size_over_196_pixels_is_a_point_of_its_own():
    points = [point for point in profiles.read("paper", "mobilenetv2_energy") if point.parameters["image_size"] > 128]
    places = {(point.parameters["framework"], point.parameters["device"]) for point in points}
    sizes = sorted(point.parameters["image_size"] for point in points)
    assert sizes == sorted(size for size in (160, 196, 224, 256) for _ in places)
    assert len({point.name for point in points}) == len(points)
    assert all(point.parameters["trainable"] for point in points)
    assert {point.parameters["weights"] for point in points} == {"imagenet"}
    assert not any(point.parameters["allow_random"] or point.parameters["allow_embedded"] for point in points)


def test_the_articles_eight_settings_and_learning_rates_are_in_the_paper_profile():
    points = [point.parameters for point in profiles.read("paper", "mobilenetv2_energy", "cpu")]
    mine = [point for point in points if point["framework"] == devices.installed()[0]]
    settings = {
        (point["batch_size"], point["image_size"], point["trainable"])
        for point in mine
        if point["variant"] == "reference" and point["image_size"] <= 128 and point["learning_rate"] == 5e-4
    }
    assert settings == {(batch, size, trained) for batch in (32, 64) for size in (96, 128) for trained in (False, True)}
    rates = {point["learning_rate"] for point in mine if point["num_windows"] == 10 and not point["trainable"]}
    assert rates == {5e-4, 1e-4, 1e-3}
