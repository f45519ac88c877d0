"""A loop of one's own: what counts as a window, what is refused, and a script in fresh processes."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import benchbook
from benchbook import loop
from benchbook.commands.output import SOME_FAILED
from benchbook.machine import contention
from benchbook.measuring.sensors import Energy, Sensor

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"
SCRIPT = """\
import argparse, time
import benchbook
parser = argparse.ArgumentParser()
parser.add_argument("--milliseconds", type=float, default=1)
wait = parser.parse_args().milliseconds / 1000
{calls}
"""
CALL = "benchbook.measure(lambda batch: time.sleep(wait), [0], samples=4, window_seconds=0.02)"


@pytest.fixture(autouse=True)
def now(monkeypatch, clock):
    """Return a function that lets time pass; nothing else does."""
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop, "made", [])
    loop._opened.cache_clear()
    yield clock.advance
    loop._opened.cache_clear()


def measure(step, batches, samples=4, **options):
    return benchbook.measure(step, batches, samples, **{"device": "cpu"} | options)


def test_a_rate_counts_the_samples_of_windows_after_the_first_step_and_the_warm_up(now, capsys):
    seconds, steps = iter([30.0, 0.25, *[0.125] * 4]), []
    rate = measure(lambda batch: now(steps.append(next(seconds, 0.0625)) or steps[-1]), [0])
    assert rate.rates == (32.0, *[64.0] * 5)
    assert len(steps) == 1 + 1 + 4 + 8 + 4 * 16  # as many as last a second at the rate of the window before
    assert (rate.samples_per_second, rate.low, rate.high, rate.input_share) == (64.0, 32.0, 64.0, 0.0)
    said = capsys.readouterr().out
    assert said.startswith("64 samples/s (range 32 to 64 of 6 windows) on")
    assert said.endswith("Your loop: not compared with float64.\n")


def test_windows_go_on_until_the_last_ones_do_not_widen_the_range_or_the_limit_is_over(now):
    pauses = (1.1**n for n in range(99))  # always slower: each window widens the range
    rate = measure(lambda batch: now(next(pauses)), [0], most_seconds=20)
    assert len(rate.rates) == 11
    levels = iter([4.0, 4.0, 2.0, 8.0])  # the range is known from its second window on
    assert len(measure(lambda batch: now(next(levels, 4.0)), [0]).rates) == 6


def test_a_shorter_last_batch_counts_in_proportion():
    batches = [numpy.zeros((8, 3)), {"x": (numpy.zeros((2, 3)), numpy.zeros(9))}]
    meter = benchbook.Meter(80, "cpu", window_seconds=1e9)
    for batch in batches * 2:
        meter.tick(batch=batch)
    assert meter._count == 20 + 80 + 20  # the first step is a window of its own
    assert [loop._length(batch) for batch in (*batches, [], [3], "text", None)] == [8, 2, None, None, None, None]


def test_waiting_for_input_is_told_from_the_step(now):
    def slow():
        while True:
            now(0.375)
            yield 0

    assert measure(lambda batch: now(0.125), slow()).input_share == 0.75


def test_joules_are_of_the_windows_samples_and_missing_if_one_window_has_none(now, monkeypatch):
    class Counter(Sensor):
        def end(self):
            return next(read)

    monkeypatch.setattr(loop.sensors, "open_sensor", lambda device: Counter())
    read = iter([Energy(1e9), Energy(1e9), *[Energy(8.0)] * 100])
    assert measure(lambda batch: now(1.0), [0], samples=2).joules_per_sample == 4.0
    read = iter([Energy(8.0)] * 4 + [Energy()] * 100)
    assert measure(lambda batch: now(1.0), [0]).joules_per_sample is None


def test_a_disturbed_loop_says_so_first(now, monkeypatch):
    monkeypatch.setattr(contention, "shares", lambda *given: (0.3, 0.0))
    said = str(measure(lambda batch: now(1.0), [0]))
    assert said.startswith("Disturbed: other processes took 30% of the CPU.")


def test_a_window_holds_a_loop_that_stays_as_it_is(now):
    with benchbook.window("cpu") as timed:
        for _ in timed.inputs(range(3)):
            now(2.0)
    assert (timed.seconds, timed.input_seconds) == (6.0, 0.0)
    assert timed.peak_memory_bytes > 1e6
    assert timed.energy.joules is None or timed.energy.joules > 0


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "batches has no batch; allowed: one or more"),
        (iter([0, 0]), {}, "the loop ended before a window was measured; allowed: more batches"),
        ([0], {"samples": 0}, "samples 0; allowed: above 0"),
        ([0], {"window_seconds": math.nan}, "window_seconds nan; allowed: above 0"),
        ([0], {"device": "abacus"}, "'abacus'.*allowed"),
        ([0], {"framework": "abacus"}, "unknown framework 'abacus'; allowed: torch"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(batches, options, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        measure(lambda batch: None, batches, **options)


def test_a_generator_that_ends_and_a_step_that_raises_leave_what_was_measured(now, capsys):
    assert len(measure(lambda batch: now(1.0), iter(range(5))).rates) == 3
    seconds = iter([1.0] * 4)
    with pytest.raises(StopIteration):
        measure(lambda batch: now(next(seconds)), [0])
    assert "of 2 windows" in capsys.readouterr().out.splitlines()[-3]


def test_an_attribute_that_the_package_lacks_is_named():
    with pytest.raises(AttributeError, match="'benchbook' has no attribute 'abacus'"):
        getattr(benchbook, "aba" + "cus")


@pytest.fixture
def script(tmp_path, command):
    """Return a function that measures a script with these calls, and returns exit status and output."""

    def run(calls: str, *options: str):
        path = tmp_path / "train.py"
        path.write_text(SCRIPT.format(calls=calls))
        return command("measure", str(path), *options)

    return run


def test_a_script_is_measured_in_fresh_processes_with_its_arguments(script):
    status, said = script(CALL, "--processes", "2", "--", "--milliseconds", "5")
    assert status == 0, said
    assert "Process 1 of 2: " in said
    found = said.splitlines()[-1]
    assert found.endswith("; 2 processes)")
    assert "(95 % interval" in found
    assert 300 < float(found.split()[1].replace(",", "")) <= 4 / 0.005


@pytest.mark.parametrize(
    ("calls", "options", "message"),
    [
        ("", (), "measures 0 loops; allowed: one call of benchbook.measure, or train.py:NETWORK for a network in it"),
        (f"{CALL}\n{CALL}", (), "measures 2 loops"),
        (CALL, ("--", "--epochs", "1"), "unrecognized arguments: --epochs 1"),
        ("raise OSError('no data here')", (), "OSError: no data here"),
    ],
)
def test_a_script_that_cannot_be_measured_says_why_in_a_line(script, calls, options, message):
    status, said = script(calls, *options)
    assert status == SOME_FAILED
    [line] = said.strip().splitlines()
    assert line.startswith("Process 1 of 4: ")
    assert message in line


def test_only_a_script_has_arguments_and_it_must_be_there(command, tmp_path):
    assert "allowed: arguments of a script" in command("measure", "torchvision.models:resnet18", "--", "--x")[1]
    assert "is not a file; allowed: a Python file" in command("measure", str(tmp_path / "no.py"))[1]


def test_a_script_that_is_not_measured_by_a_command_prints_its_rate_all_the_same(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(calls=CALL))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert " samples/s (range " in done.stdout


def test_a_rate_says_what_it_knows():
    rate = loop.Rate(100.0, 90.0, 110.0, (100.0,), 0.25, 2**30, 1.5, 0.0, "a chip (cpu, PyTorch)")
    assert str(rate).splitlines() == [
        "100 samples/s (range 90 to 110 of 1 window) on a chip (cpu, PyTorch)",
        "  waits for input 25.0% of the time, peak memory 1 GiB, 1.5 J a sample",
        "  Your loop: not compared with float64.",
    ]
    assert "peak memory" not in str(dataclasses.replace(rate, peak_memory_bytes=None))
