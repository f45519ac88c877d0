"""Starts of a process: rows of each, failures, and what they say of a machine."""

import json
import subprocess

import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.judging import intervals
from benchbook.measuring import roofline
from benchbook.measuring.roofline import starts
from benchbook.rows import records
from fakes import run

CPU = Device("cpu", "a CPU")


def test_each_start_is_a_process_of_its_own_whose_windows_are_rows(tmp_path):
    record = run(tmp_path)
    rows = roofline.measure_starts(devices.pick("cpu", "torch"), record, num_starts=1, num_windows=2, seconds=0.02)
    kept = records.read(record.path)
    assert kept["model"].tolist() == [intervals.STARTS] * 2
    assert (kept["phase"].tolist(), kept["repeat"].tolist()) == (["calibrate"] * 2, [0, 0])
    assert (kept["samples_per_second"] == kept["samples"] / kept["seconds"]).all()
    assert roofline.deviation(rows) is None
    assert roofline.ceilings(kept).empty


@pytest.mark.parametrize("framework", ["torch", "jax", "mlx", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_the_small_training_changes_with_every_step(framework):
    pytest.importorskip(framework)
    device = devices.pick("cpu", framework)
    step = device.backend.training_step(device)
    first = step(None)
    later = step(first)
    values = [part[-1] if isinstance(part, list) else part for part in (first, later)]
    assert (values[0] != values[1]).any() if isinstance(first, list) else float(values[1]) < float(values[0])


def answered(monkeypatch, *rates):
    """Let starts print windows of these rates, None being a start that fails as the real one does."""
    waiting = iter(rates)

    def start(command, **options):
        rate = next(waiting)
        if rate is None:
            raise subprocess.CalledProcessError(1, command, stderr="RuntimeError: the device is in use")
        window = {"samples": 64, "seconds": 64 / rate, "samples_per_second": rate}
        return subprocess.CompletedProcess(command, 0, stdout="a warning\n" + json.dumps([window] * 6))

    monkeypatch.setattr(starts.subprocess, "run", start)


def test_starts_are_kernels_of_a_history(tmp_path, monkeypatch):
    answered(monkeypatch, 100.0, 110.0, 121.0)
    record = run(tmp_path)
    rows = roofline.measure_starts(CPU, record, num_starts=3)
    assert roofline.deviation(rows) == pytest.approx(0.0953, abs=1e-4)  # log 1.1
    (found,) = (
        history
        for (measure, *_), history in intervals.histories(records.read(record.path)).items()
        if measure == intervals.RATE
    )
    assert (found.freedom, found.squares) == (2, pytest.approx(2 * 0.0953**2, rel=1e-3))


def test_a_start_that_fails_is_a_row_with_its_reason_and_the_last(tmp_path, monkeypatch):
    answered(monkeypatch, 100.0, None, 100.0)
    record = run(tmp_path)
    roofline.measure_starts(CPU, record, num_starts=3)
    kept = records.read(record.path)
    assert kept["repeat"].tolist() == [0] * 6 + [1]
    assert kept["status"].iloc[-1] == "unsupported"
    assert "the device is in use" in kept["message"].iloc[-1]
    assert len(records.without_refusals(kept)) == 6  # no failure of the point


def test_no_starts_measure_nothing_and_fewer_are_refused(tmp_path):
    assert roofline.deviation(roofline.measure_starts(CPU, run(tmp_path), num_starts=0)) is None
    with pytest.raises(ValueError, match=r"num_starts -1; allowed: 0 or more"):
        roofline.measure_starts(CPU, run(tmp_path), num_starts=-1)
