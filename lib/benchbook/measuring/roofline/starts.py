"""How much starts of a process differ on a device: one small training, measured in several processes of its own.

What a process is given when it starts (memory layout, clocks, placement of threads) decides how fast it is by more
than its windows show. Intervals of all studies learn from these rows how much that is here; see
`benchbook.judging.intervals`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import numpy
import pandas

from benchbook.frameworks import devices, operations
from benchbook.frameworks.devices import Device
from benchbook.judging import intervals
from benchbook.machine import processes
from benchbook.measuring import measure, runs
from benchbook.measuring.runs import Run

SECONDS_ALLOWED = 120  # for one start; the slowest import takes half a minute on a busy computer


def measure_starts(
    device: Device, record: Run, num_starts: int, num_windows: int = 6, seconds: float = 0.25
) -> pandas.DataFrame:
    """Append windows of the same small training from several processes, one after the other; `repeat` counts them.

    A start that fails, as where this process holds a device that belongs to one process alone, is a row of status
    `unsupported`, and the last.

    Args:
        device: where they train.
        record: the run that takes the rows.
        num_starts: processes; 0 measures nothing.
        num_windows: of each process.
        seconds: that a window should last.

    Returns:
        The rows.

    Raises:
        ValueError: a negative number of starts.
    """
    if num_starts < 0:
        raise ValueError(f"num_starts {num_starts!r}; allowed: 0 or more")
    rows = []
    with record.during("calibrate"):
        for repeat in range(num_starts):
            work = {
                "model": intervals.STARTS,
                "precision": "fp32",
                "batch_size": operations.BATCH_SIZE,
                "repeat": repeat,
            }
            try:
                windows = _start(device, num_windows, seconds)
            except (subprocess.SubprocessError, ValueError) as error:
                reason = runs.anonymous(str(getattr(error, "stderr", None) or error))[-2000:]
                rows.append(record.append(**work, status="unsupported", message=reason, started_at=runs.now()))
                break
            rows += [record.append(**work, **window) for window in windows]
    return pandas.DataFrame(rows)


def deviation(rows: pandas.DataFrame) -> float | None:
    """Return the standard deviation between the starts of one run, of log rates; None of fewer than two.

    Args:
        rows: from `measure_starts`.
    """
    measured = rows[rows["samples_per_second"].notna()] if len(rows) else rows
    if measured.empty or measured["repeat"].nunique() < 2:
        return None
    return float(numpy.log(measured.groupby("repeat")["samples_per_second"].median().astype(float)).std(ddof=1))


def train(device: Device, num_windows: int, seconds: float) -> list[dict]:
    """Return windows of a small convolutional network's training, in this process, as measures of rows."""
    device.backend.seed(0)
    step, sensor = device.backend.training_step(device), measure.open_sensor(device)
    operations.queue(step, 10)
    count = operations.calls_lasting(seconds, lambda number: _window(device, measure.NoSensor(), step, number).seconds)
    windows = []
    for _ in range(num_windows):
        started_at = runs.now()
        window = _window(device, sensor, step, count)
        samples = count * operations.BATCH_SIZE
        rate = {"samples": samples, "samples_per_second": samples / window.seconds, "started_at": started_at}
        windows.append(window.columns() | rate)
    return windows


def _window(device: Device, sensor, step: Callable, count: int):
    with measure.window(device, sensor) as window:
        window.last = operations.queue(step, count)
    return window


def _start(device: Device, num_windows: int, seconds: float) -> list[dict]:
    """Return the windows that a new process measured."""
    command = [sys.executable, "-m", "benchbook.measuring.roofline.starts", device.kind, device.framework]
    command += [str(num_windows), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_ALLOWED)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the windows of one start as JSON, on the last line."""
    parser = argparse.ArgumentParser(description="Train a small network in this process, and print its windows.")
    parser.add_argument("kind", help="device")
    parser.add_argument("framework", help="one of devices.FRAMEWORKS")
    parser.add_argument("num_windows", type=int, help="timed windows")
    parser.add_argument("seconds", type=float, help="how long each should last")
    options = parser.parse_args()
    device = devices.pick(options.kind, options.framework)
    print(json.dumps(train(device, options.num_windows, options.seconds)))
    processes.leave()


if __name__ == "__main__":
    main()
