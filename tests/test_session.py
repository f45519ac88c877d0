"""`make study`: killed, started again, and looked at; what a plan estimates; test_smoke.py has
the studies."""

import errno
import fcntl
import functools
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import psutil
import pytest

from benchbook.commands import output
from benchbook.frameworks import survey
from benchbook.frameworks.devices import Device
from benchbook.judging import wording
from benchbook.machine import context, identity, layout
from benchbook.machine import sessions as sessions_of_reader
from benchbook.rows import records
from benchbook.running import execute, profiles, session
from benchbook.running.profiles import Point
from benchbook.running.progress import Line, result
from benchbook.studies.experiments import parameters
from made import toy
from made.processes import environment_of_tests, wait_for
from made.rows import make_row, windows, write


@pytest.fixture
def project(tmp_path):
    """Return a copy of the project with the study `toy`, in which there is all that `make` would
    set up."""
    toy.copy_project(tmp_path / "project", has_frameworks=False)
    for name in ("ready", "requirements/here.txt"):
        (tmp_path / "project" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "project" / name).touch()
    return tmp_path / "project"


def make_study(project: Path, outputs: Path, *words: str, **settings: str) -> subprocess.Popen:
    """Start `make study` in a copy of the project."""
    settings |= {
        "BENCHBOOK_OUTPUTS": str(outputs),
        "PYTHONPATH": str(project / "lib"),
        "PYTHONUNBUFFERED": "1",
    }
    given = ("PLATFORM=here", "READY=ready", "UV=ready", f"BIN={Path(sys.executable).parent}")
    given += ("PROFILE=smoke", "STUDIES=toy", *words)
    return subprocess.Popen(
        ["make", "--old-file=ready", "study", *given],
        env=environment_of_tests() | settings,
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.notebook
def test_a_killed_study_goes_on_and_every_point_is_measured_once(project, tmp_path):
    """The way of `make study` but for its report, on a study that nothing but its own folder,
    notebook and profile names."""
    outputs, hang = tmp_path / "outputs", {"TOY_HANGS": "controlled"}
    folder = outputs / "runs" / "007" / "toy"

    make = make_study(project, outputs, "MACHINE=007", "DEADLINE=3600", **hang)
    wait_for(lambda: list(folder.glob("controlled-*/*.csv")), make)
    family = psutil.Process(make.pid).children(recursive=True)
    before = {path: path.read_bytes() for path in folder.glob("reference-*/*.csv")}
    assert (
        len(psutil.Process(make.pid).children()) == len(before) == 1
    )  # the study itself, no shell around it
    make.kill()
    assert "Stopped (SIGTERM)" in make.communicate(timeout=60)[0]  # the study ends with its make
    assert not psutil.wait_procs(family, timeout=20)[1]

    again = make_study(
        project, outputs, "MACHINE=007", "DEADLINE=10", **hang
    )  # which the end takes
    text = again.communicate(timeout=120)[0]
    assert f"Error {output.SOME_LEFT_OUT}" in text
    assert re.search(
        r"Left out: A toy: equal loader, CPU \(needs about \d+ s, 0 s were left\)", text
    )
    assert "run the same command again" in text
    rows = records.merge(folder)
    assert rows["run_id"].nunique() == 2
    assert (outputs / "state" / "007" / ".session").read_text() == rows["session"].unique().item()
    assert not (outputs / "report").exists()

    last = make_study(
        project, outputs, "MACHINE=007"
    )  # test_wheel.py writes a report of such a study
    wait_for(lambda: len([*outputs.glob("state/**/done")]) == 2, last)
    last.kill()
    assert "2/2" in last.communicate(timeout=60)[0]
    assert {path: path.read_bytes() for path in folder.glob("reference-*/*.csv")} == before
    rows = records.merge(folder)
    assert rows["session"].nunique() == 1
    assert rows.groupby("variant")["run_id"].nunique().to_dict() == {
        "controlled": 2,
        "reference": 1,
    }
    interrupted = rows[rows["status"] == "interrupted"]
    assert interrupted["variant"].tolist() == ["controlled"]
    whole = rows[~rows["run_id"].isin(interrupted["run_id"])]
    assert set(whole["status"]) == {"ok"}
    phases = ["compile", "warmup", "train", "train", "evaluate"]
    assert whole.groupby("variant")["phase"].apply(list).to_dict() == {
        "controlled": phases,
        "reference": phases,
    }
    assert not list(folder.rglob("*.running"))


def test_a_point_without_rows_is_an_error_that_names_it(outputs):
    point = Point("mnist_speedup", "reference-cpu-00000000", {}, 60)
    with pytest.raises(session.Missing, match="mnist_speedup/reference-cpu-00000000"):
        session.summary([point], identity.identify().name)


def test_a_session_ends_with_the_readers_lines_though_another_computer_has_the_machines_name(
    outputs,
):
    point, name = Point("mnist_speedup", "reference-cpu", {}, 60), "desk"
    for session_name, rate, run_id in (("mine", 100, "a"), ("theirs", 900, "b")):
        own = {"machine": name, "session": session_name, "point": point.name, "run_id": run_id}
        write(*windows([rate] * 3, **own))
        path = outputs / "runs" / name / point.study / point.name / f"{run_id}.json"
        path.write_text(json.dumps({"run_id": run_id, "machine": {"fingerprint": "eddb"}}))
    sessions_of_reader.remember("mine")
    [line] = session.summary([point], name).to_dict("records")
    assert (line["machine"], line["samples_per_second"]) == (name, pytest.approx(100))


def test_a_study_does_not_begin_where_it_cannot_write(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        session.check_room(tmp_path / "file" / "runs")
    monkeypatch.setattr(session, "NEEDED_BYTES", 2**60)
    with pytest.raises(ValueError, match="MiB are free on its disk; allowed: "):
        session.check_room(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_disk_that_fills_ends_a_study_and_the_file_is_named(outputs, monkeypatch, command):
    (full := outputs / "rows.csv").symlink_to("/dev/full")
    monkeypatch.setattr(survey, "ask", lambda name: survey.Answer((Device("cpu", "a chip"),)))
    monkeypatch.setattr(execute, "execute", lambda *_: records.append(full, make_row()))
    status, said = command("study", "--profile", "smoke", "--studies", "mnist_speedup")
    assert (status, said.splitlines()[-1]) == (
        2,
        f"error: {full}: No space left on device; the rows written before are kept",
    )


@pytest.mark.parametrize("content", ["", "[]", '{"statuses": ["o', '{"statuses": 5}', None])
def test_a_point_whose_end_is_torn_or_absent_is_not_done(tmp_path, content):
    if content is not None:
        (tmp_path / "done").write_text(content)
    assert not session.is_done(tmp_path)


@pytest.fixture
def sessions(outputs, monkeypatch):
    """Measure one point with a loop that answers as told; return the names of its sessions so
    far."""
    names, point = [], Point("toy", "p", {}, 60)

    def measure(
        left_out: bool = False, error: type[BaseException] | None = None, **options
    ) -> list[str]:
        def measure_points():
            names.append(context.current().session)
            if error:
                raise error
            return [(point, "planted")] if left_out else []

        monkeypatch.setattr(session, "Session", lambda *choice: mock.Mock(run=measure_points))
        session.measure([point], "desk", **options)
        return names

    return measure


def test_a_session_keeps_its_name_until_all_of_its_points_are_done(sessions):
    with pytest.raises(KeyboardInterrupt):
        sessions(error=KeyboardInterrupt)
    sessions(left_out=True)
    first, second, third = sessions()
    assert first == second == third
    assert sessions()[-1] != first


@pytest.mark.parametrize("torn", [b"", b"\xff\x00", b"../x"])
def test_a_torn_name_of_a_session_is_given_anew(sessions, tmp_path, torn):
    sessions(left_out=True)
    (tmp_path / "state" / "desk" / ".session").write_bytes(torn)
    first, second = sessions(left_out=True)
    assert layout.is_name(second)
    assert first != second


def test_a_second_study_on_the_machine_measures_nothing(sessions, monkeypatch):
    monkeypatch.setattr(
        session.execute, "only_one", functools.partial(execute.only_one, seconds=0.1)
    )
    with (
        execute.only_one(layout.state("desk") / ".study.lock"),
        pytest.raises(RuntimeError, match="another study measures on this machine"),
    ):
        sessions()
    assert len(sessions()) == 1


def test_a_folder_that_cannot_lock_is_named_with_what_to_do(outputs, monkeypatch, command):
    profiles.read("smoke", "mnist_speedup", "cpu")  # torch is asked, in a process that takes a lock
    number = errno.ENOLCK
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    choice = "study --profile smoke --studies mnist_speedup --device cpu --machine desk"
    for words, lock in (choice, "state/desk/.study.lock"), ("report", ".report.lock"):
        status, said = command(*words.split())
        last = f"error: {outputs / lock} cannot be locked ({os.strerror(number)}); allowed: a folder with file locks, "
        assert (status, said.splitlines()[-1].startswith(last)) == (2, True), said


@pytest.mark.parametrize(
    ("statuses", "other_rate", "same"),
    [(["ok"], 1000, True), (["ok", "crashed"], 1000, False), (["ok"], 1500, False)],
)
def test_what_failed_or_is_unstable_is_run_again_in_a_session_of_its_own(
    sessions, statuses, other_rate, same
):
    sessions(left_out=True)
    for number, rate in enumerate((1000, other_rate)):
        write(*windows([rate], study="toy", point="p", run_id=f"r-{number}"))
    session._write_done(layout.state("desk") / "toy" / "p", statuses)
    first, second = sessions(retry=True)
    assert (first == second) is same
    assert session.is_done(layout.state("desk") / "toy" / "p") is same


@pytest.fixture
def desk(outputs):
    """Return what writes a run's only window on this machine, and how long its process took
    where that is told."""
    name = identity.identify().name

    def measured(study: str, run_id: str, process_seconds: float | None = None, **columns) -> None:
        told = {"machine": name, "dataset_samples": None, "samples": 80} | columns
        told = {"seconds": (told["samples"] or 80) / (told.get("samples_per_second") or 320)} | told
        row = make_row(study=study, run_id=run_id, **told)
        folder = write(row) / row["machine"] / study / row["point"]
        if process_seconds:
            (folder / f"{run_id}.json").write_text(json.dumps({"process_seconds": process_seconds}))

    return measured


def test_a_point_is_printed_with_rate_and_bounds_or_how_it_failed_and_a_ceiling_has_no_rate(desk):
    none = dict.fromkeys(("samples", "seconds", "samples_per_second"))
    desk("mnist_speedup", "r-1", point="good", samples_per_second=80.0)
    desk("mnist_speedup", "r-2", point="bad", status="crashed", message="planted", **none)
    desk("calibrate", "r-3", point="ceiling", phase="calibrate", model="matmul")
    places = ("mnist_speedup/good", "mnist_speedup/bad", "calibrate/ceiling")
    good, *others = (result(layout.runs(identity.identify().name) / place) for place in places)
    assert good.endswith("; 80 images/s (range 80)")  # after what is not known of it
    assert others == ["crashed: planted", ""]


def test_a_running_point_shows_its_processes_and_the_width_so_far(desk, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    line = Line(Point("mnist_speedup", "good", {}, 60), identity.identify().name)
    line.watch(line.folder)
    for number, rate in enumerate((80.0, 84.0)):
        desk("mnist_speedup", f"r-{number}", 5.0, point="good", samples_per_second=rate)
    line.watch(line.folder)
    said = capsys.readouterr().out
    assert said.index("no process yet") < said.index("2 processes, 82 images/s ±13% so far")


def estimate(point: Point) -> float:
    return (
        session.estimate_seconds([point], identity.identify().name)["seconds"].astype(float).iloc[0]
    )


def test_time_is_estimated_from_this_machines_own_rows(desk):
    point = profiles.read("paper", "mnist_speedup", "cpu")[0]
    assert math.isnan(estimate(point))
    epoch = {"dataset_samples": 60_000, "batch_size": 64, "samples_per_second": 2000.0}
    for number, seconds in enumerate((500.0, 100.0, 110.0, 120.0, 110.0, 105.0, 115.0)):
        own = epoch | {"session": "long ago" if number == 0 else "last"}
        desk("mnist_speedup", f"Z-{number}", seconds, point=point.name, samples=2000, **own)
    assert estimate(point) == pytest.approx(
        5 * 110 + session.START_SECONDS
    )  # alike processes: the fewest


def test_time_is_estimated_from_another_machines_rows_and_the_products_of_both(desk):
    [point] = profiles.read("quick", "resnet50_cost", "cpu")
    for number, seconds in enumerate((30.0, 40.0, 60.0)):
        own = {"machine": "other", "samples_per_second": 5.0 + number / 5}
        desk("resnet50_cost", f"r-{number}", seconds, point=point.name, **own)
    count = 3  # at a deviation of 4 %
    assert estimate(point) == pytest.approx(count * 130 / 3 + session.START_SECONDS)
    product = {
        "phase": "calibrate",
        "model": "matmul",
        "precision": "fp32",
        "flops_per_sample": 1e9,
    }
    for machine, rate in (("other", 300.0), (identity.identify().name, 200.0)):
        desk(
            "calibrate",
            f"c-{machine}",
            point="c",
            machine=machine,
            samples_per_second=rate,
            **product,
        )
    assert estimate(point) == pytest.approx(1.5 * count * 130 / 3 + session.START_SECONDS)


@pytest.mark.parametrize(
    ("batch_size", "factor"), [(64, 1.0), (256, session.UNLIKE)], ids=["alike", "another batch"]
)
def test_time_is_estimated_from_the_rate_of_the_nearest_point_with_bounds(
    desk, batch_size, factor, command
):
    point = profiles.read("paper", "mnist_speedup", "cpu")[0]
    quick = profiles.read("quick", "mnist_speedup", "cpu")[0]
    assert (quick.study, quick.parameters["variant"]) == ("mnist_speedup", "reference")
    assert point.parameters["variant"] == "reference"
    own = {"dataset_samples": 60_000, "samples": 2000, "samples_per_second": 2000.0}
    given = quick.parameters | {"batch_size": batch_size}
    name = parameters.point_name("mnist_speedup", given)
    desk("mnist_speedup", "Z-1", 9.0, point=name, batch_size=batch_size, **own)
    folder = layout.point(identity.identify().name, "mnist_speedup", name)
    manifest = {"process_seconds": 9.0, "parameters": given}
    (folder / "Z-1.json").write_text(json.dumps(manifest))
    [line] = session.estimate_seconds([point], identity.identify().name).to_dict("records")
    each = 6 * 60_000 / 2000 + 8.0  # six epochs, and what a process takes outside its window
    once = session.START_SECONDS + 8.0
    assert line["low"] == pytest.approx(once + 5 * each / factor)
    assert line["seconds"] == pytest.approx(once + line["num_processes"] * each)
    assert line["high"] == pytest.approx(once + 10 * each * factor)
    _, said = command("plan", "--profile", "paper", "--studies", "mnist_speedup", "--device", "cpu")
    assert re.search(r"Estimate for 7 of 7 points: .* \(.* to .*\)\. Limit", said)
    assert re.search(r"Slurm cluster: .* node-hours in 1 job\.", said)


def test_a_plan_tells_dollars_of_windows_of_a_given_time(desk, command):
    [point] = profiles.read("quick", "resnet50_cost", "cpu")
    desk("resnet50_cost", "Z-r", batch_size=8, seconds=8.0, samples_per_second=10.0)
    outside = 3 * session.PROCESS_SECONDS + session.START_SECONDS
    for told, seconds in (
        ({"window_seconds": 0.0}, math.nan),
        ({"sustained_minutes": 10}, 600),
        ({"num_repeats": 3, "cooldown_seconds": 5, "num_windows": 2}, 2 * 3 * 2.0 + 2 * 5),
    ):
        again = replace(
            point, parameters=point.parameters | told | {"fewest_processes": 2, "num_processes": 2}
        )
        assert estimate(again) == pytest.approx(2 * seconds + outside, nan_ok=True)
    _, said = command("plan", "--studies", "resnet50_cost", "--device", "cpu", "--price", "600")
    seconds = 3 * point.parameters["num_windows"] * point.parameters["window_seconds"]
    seconds += session.START_SECONDS + 4 * session.PROCESS_SECONDS
    assert (
        f"At $600 an hour: {wording.price(seconds / 6, 3)} for the estimate, $750 for the limit."
        in said
    )
