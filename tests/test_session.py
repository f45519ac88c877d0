"""`make study` on the smoke profile: killed, started again, and looked at; test_smoke.py has the other studies."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import pandas
import psutil
import pytest
from typer.testing import CliRunner

from benchbook import cli, layout, machine, profiles, records, session
from benchbook.profiles import Point
from processes import study

STUDIES = "calibrate mnist_speedup"


def is_kernel(process: psutil.Process) -> bool:
    try:
        return "ipykernel" in " ".join(process.cmdline())
    except psutil.Error:  # ended meanwhile
        return False


def wait_for(what, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


@pytest.mark.notebook
def test_a_killed_study_goes_on_and_ends_with_every_point_measured_once(tmp_path):
    runs_folder = tmp_path / "runs"
    killed = study(tmp_path, "--profile", "smoke", "--studies", STUDIES)
    wait_for(lambda: list(runs_folder.rglob("done")) and list(runs_folder.rglob("*.running")))
    wait_for(lambda: len(list(runs_folder.rglob("*.csv"))) > 1)  # the second point has a row
    for process in [*psutil.Process(killed.pid).children(recursive=True), psutil.Process(killed.pid)]:
        if not is_kernel(process):  # it is left behind, as after a real kill -9
            process.kill()
    killed.communicate()

    again = study(tmp_path, "--profile", "smoke", "--studies", STUDIES)
    text = again.communicate(timeout=600)[0]
    assert again.returncode == 0, text
    points = profiles.read("smoke", STUDIES)
    rows = records.merge(records.find(runs_folder))
    assert rows["session"].nunique() == 1
    assert (rows["status"] == "interrupted").sum() == 1
    unfinished = set(rows.loc[rows["status"] == "interrupted", "run_id"])
    whole = rows[~rows["run_id"].isin(unfinished)]
    assert whole.groupby("point")["run_id"].nunique().to_dict() == {point.name: 1 for point in points}
    assert set(zip(whole["variant"].fillna(""), whole["device"], strict=True)) == {
        (point.parameters.get("variant", ""), point.parameters["device"]) for point in points
    }
    assert not list(runs_folder.rglob("*.running"))
    assert (tmp_path / "report" / "index.html").exists()
    assert "Report: " in text
    assert "Next: " in text
    assert f"{len(points)}/{len(points)}" in text

    done = study(tmp_path, "--profile", "smoke", "--studies", STUDIES)
    done.communicate(timeout=600)
    assert done.returncode == 0
    assert len(records.merge(records.find(runs_folder))) == len(rows)  # nothing was measured again


def test_a_wrong_choice_is_one_line_before_anything_runs(tmp_path):
    for options, expected in {
        ("--profile", "fast"): "unknown profile 'fast'; allowed: ",
        ("--studies", "mnist"): "has no study 'mnist'; allowed: calibrate, mnist_speedup",
        ("--device", "tpu"): "device 'tpu' is not available to torch here; allowed: best, ",
        ("--machine", "a/b"): "machine name 'a/b': allowed are ",
    }.items():
        wrong = study(tmp_path, *options)
        text = " ".join(wrong.communicate(timeout=60)[0].split())
        assert wrong.returncode == 2
        assert expected in text
        assert "Traceback" not in text
    assert not list(tmp_path.rglob("*.csv"))


def test_a_point_without_rows_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    point = Point("mnist_speedup", "reference-cpu-00000000", {}, 1, 60)
    with pytest.raises(session.Missing, match="mnist_speedup/reference-cpu-00000000"):
        session.summary([point], machine.identify().name)


def test_a_study_does_not_begin_where_it_cannot_write(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        session.check_room(tmp_path / "file" / "runs")
    monkeypatch.setattr(session, "NEEDED_BYTES", 2**60)
    with pytest.raises(ValueError, match="MiB are free on its disk; allowed: "):
        session.check_room(tmp_path)


def test_retry_makes_only_failed_points_undone(tmp_path):
    for name, statuses in {"good": ["ok"], "bad": ["ok", "crashed"]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "done").write_text(json.dumps({"statuses": statuses}))
        (tmp_path / name / "kernel_1_done").touch()
        session._forget_failure(tmp_path / name)
    assert len(list((tmp_path / "good").iterdir())) == 2
    assert not list((tmp_path / "bad").iterdir())


def test_a_session_that_was_cut_short_keeps_its_name(tmp_path):
    with pytest.raises(KeyboardInterrupt), session._session(tmp_path) as first:
        raise KeyboardInterrupt
    with session._session(tmp_path) as second:
        assert second == first
    with session._session(tmp_path) as third:
        assert third != first


def test_time_is_estimated_from_this_machines_own_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    name = machine.identify().name
    point = profiles.read("paper", "mnist_speedup")[0]
    assert session.estimate_seconds([point], name)["seconds"].isna().all()
    folder = layout.runs(name) / "mnist_speedup" / "p"
    row = {"schema_version": 1, "session": "s", "study": "mnist_speedup", "machine": name, "source": "measured"}
    row |= {"run_id": "Z-r", "point": "p", "variant": "reference", "device": point.parameters["device"]}
    row |= {"phase": "train", "repeat": 0, "index": 0, "status": "ok", "dataset_samples": 60_000, "batch_size": 64}
    folder.mkdir(parents=True)
    records.append(folder / "Z-r.csv", row | {"samples": 60_000, "seconds": 30.0, "samples_per_second": 2000.0})
    (folder / "Z-r.json").write_text(json.dumps({"process_seconds": 42.0}))
    images = 6 * 60_000  # repeats of an epoch, in each of three kernels that take 12 s beside
    expected = pytest.approx(3 * (images / 2000 + 12))
    assert session.estimate_seconds([point], name)["seconds"].iloc[0] == expected


def test_a_plan_takes_the_most_alike_rows_and_the_area_of_an_image(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    name = machine.identify().name
    point = replace(profiles.read("quick", "resnet50_cost", "cpu")[0], num_kernels=1)
    folder = layout.runs(name) / "resnet50_cost" / "p"
    folder.mkdir(parents=True)
    row = {"schema_version": 1, "session": "s", "study": "resnet50_cost", "machine": name, "source": "measured"}
    row |= {"device": "cpu", "phase": "train", "repeat": 0, "index": 0, "status": "ok", "samples": 80, "seconds": 1.0}
    row |= {"batch_size": 8}
    for framework, image_size, rate in (("torch", 64, 100.0), ("torch", 112, 40.0), ("jax", 224, 1.0)):
        ids = {"run_id": f"r-{framework}-{image_size}", "point": f"p-{framework}-{image_size}"}
        told = ids | {"framework": framework, "variant": "reference", "image_size": image_size}
        records.append(folder / f"{ids['run_id']}.csv", row | told | {"samples_per_second": rate})
    windows = {"num_repeats": 1, "num_windows": 1, "samples_per_window": 1000, "framework": "torch"}
    for image_size, rate in ((112, 40.0), (64, 100.0), (224, (100 * (64 / 224) ** 2 + 40 / 4) / 2)):
        planned = replace(point, parameters=point.parameters | windows | {"image_size": image_size})
        found = session.estimate_seconds([planned], name)["seconds"].iloc[0]
        assert found == pytest.approx(1000 / rate)
    rest = {"image_size": 112, "samples_per_window": 0, "num_images": 400, "num_repeats": 3, "cooldown_seconds": 5}
    for told, seconds in (({}, 3 * 400 / 40 + 2 * 5), ({"sustained_minutes": 10, "num_repeats": 1}, 600)):
        planned = replace(point, parameters=point.parameters | windows | rest | told)
        assert session.estimate_seconds([planned], name)["seconds"].iloc[0] == pytest.approx(seconds)


def test_a_plan_tells_dollars_and_an_epoch_of_imagenet_before_it_was_read(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    name = machine.identify().name
    point = replace(profiles.read("quick", "resnet50_cost", "cpu")[0], num_kernels=1)
    row = {"schema_version": 1, "session": "s", "study": "resnet50_cost", "machine": name, "source": "measured"}
    row |= {"run_id": "Z-r", "point": "p", "variant": "reference", "device": "cpu", "batch_size": 8}
    row |= {"phase": "train", "repeat": 0, "index": 0, "status": "ok", "samples": 80, "seconds": 8.0}
    folder = layout.runs(name) / "resnet50_cost" / "p"
    folder.mkdir(parents=True)
    records.append(folder / "Z-r.csv", row | {"samples_per_second": 10.0})
    whole = {"samples_per_window": 0, "num_windows": 90, "num_repeats": 1}
    for dataset, expected in (("imagenet", 90 * 1_281_167 / 10), ("image_folder", None)):
        planned = replace(point, parameters=point.parameters | whole | {"dataset": dataset})
        found = session.estimate_seconds([planned], name)["seconds"].iloc[0]
        assert found == expected or (expected is None and pandas.isna(found))
    told = CliRunner().invoke(cli.app, ["plan", "--studies", "resnet50_cost", "--device", "cpu", "--price", "600"])
    hours = 3 * point.parameters["num_windows"] * point.parameters["samples_per_window"] / 10 / 3600
    assert f"At $600 an hour: ${hours * 600:,.2f} for what is known, $300.00 at the very most." in told.output


def test_a_graph_that_does_not_heed_is_killed_with_what_it_started(tmp_path):
    child = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {parent}"
    graph = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    graph.stdout.readline()
    family = psutil.Process(graph.pid).children()
    session.stop(graph, 0.2)
    assert graph.poll() is not None
    assert not psutil.wait_procs(family, timeout=10)[1]
    graph.stdout.close()
