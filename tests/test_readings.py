"""What a notebook says of its own run: every number is that of its rows."""

from benchbook import readings
from rows import make_row, make_rows

ENERGY = {"energy_joules": 320.0, "energy_method": "nvml", "energy_boundary": "board", "idle_watts": 12.0}


def windows(**columns):
    rates = {0: 250.0, 1: 320.0, 2: 400.0}
    return [make_row(index=index, samples_per_second=rate, **columns) for index, rate in rates.items()]


def test_a_run_says_its_rate_its_wait_its_accuracy_and_its_joules():
    tested = make_row(phase="evaluate", accuracy=0.6)
    text = readings.training(make_rows([*windows(precision="bf16", **ENERGY), tested]))
    numbers = ("reference, torch, cpu, bf16, mnist", "320 images a second", "3 windows", "25.0%", "60.0%", "0.5 J")
    assert [number for number in numbers if number not in text] == []


def test_what_was_not_measured_is_left_out_or_said_to_be_missing():
    text = readings.training(make_rows(windows(input_seconds=None)))
    assert "waited" not in text
    assert "accuracy" not in text
    assert "missing" in text


def test_a_run_without_windows_says_how_it_ended():
    failed = make_row(status="out_of_memory", samples=None, seconds=None, samples_per_second=None)
    assert "out of memory" in readings.training(make_rows([failed]))
