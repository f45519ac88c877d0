"""Calibration: each rate of a device in several windows, appended as rows of phase `calibrate`."""

import math
import time
from dataclasses import dataclass

import pandas

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation
from benchbook.measuring import measure, runs
from benchbook.measuring.runs import Run


@dataclass(frozen=True)
class Budget:
    """How much to measure.

    Attributes:
        num_windows: timed windows of each kind.
        window_seconds: how long each should last.
        matrix_sizes: rows and columns of square matrices, ascending; those of which one product would take longer
            than two windows are left out.
        copy_bytes: bytes read by one copy or transfer; many times the caches.
        seed: of the matrices.

    Raises:
        ValueError: a number is out of range.
    """

    num_windows: int = 3
    window_seconds: float = 0.25
    matrix_sizes: tuple[int, ...] = (512, 1024, 2048)
    copy_bytes: int = 2**28
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_windows < 1:
            raise ValueError(f"num_windows {self.num_windows!r}; allowed: 1 or more")
        if self.window_seconds <= 0:
            raise ValueError(f"window_seconds {self.window_seconds!r}; allowed: more than 0")
        if not self.matrix_sizes or min(self.matrix_sizes) < 1:
            raise ValueError(f"matrix_sizes {self.matrix_sizes!r}; allowed: one or more sizes of 1 or more")
        if self.copy_bytes < 4:
            raise ValueError(f"copy_bytes {self.copy_bytes!r}; allowed: 4 or more")


def measure_arithmetic(device: Device, record: Run, budget: Budget) -> pandas.DataFrame:
    """Append the rate of matrix products, by precision and size, as rows.

    A precision that the device refuses is a row of status `unsupported` with the reason; fp32 must work.

    Returns:
        The rows.
    """
    rows = []
    with record.during("calibrate"):
        for precision in precisions(device):
            try:
                rows += _arithmetic(device, record, budget, precision)
            except Exception as error:
                if precision == "fp32":
                    raise
                rows.append(_refused(record, precision, error))
    return pandas.DataFrame(rows)


def measure_memory(device: Device, record: Run, budget: Budget) -> pandas.DataFrame:
    """Append the rate of a large copy (bytes read and written) and of both transfers; a CPU has no transfers.

    A transfer reads or writes each byte in the device's memory, so that none is faster than the fastest copy there. One
    that seems to be has moved nothing; it is a row of status `unsupported` that says so, and no ceiling.

    Returns:
        The rows.
    """
    size, rows = budget.copy_bytes, []
    with record.during("calibrate"):
        work = {"model": "copy", "bytes_per_sample": 2 * size}
        rows += _windows(device, record, budget, operations.copy(device, size), work, {"copy_bytes": size})
        most = max(row["samples_per_second"] for row in rows) * 2 * size
        for direction in () if device.is_cpu else ("host_to_device", "device_to_host"):
            work = {"model": direction, "bytes_per_sample": size}
            operation = operations.transfer(device, size, direction)
            rows += _windows(device, record, budget, operation, work, {"copy_bytes": size}, most)
    return pandas.DataFrame(rows)


def measure_launches(device: Device, record: Run, budget: Budget) -> pandas.DataFrame:
    """Append how many operations a second can be started, one after the other, as rows.

    Returns:
        The rows.
    """
    with record.during("calibrate"):
        work = {"model": "launch", "precision": "fp32"}
        return pandas.DataFrame(_windows(device, record, budget, device.backend.launch(device), work, {}))


def measure_idle(device: Device, record: Run, seconds: float) -> float | None:
    """Append the watts of an idle device as a row of phase `idle`; where nothing measures neither wait nor append.

    Returns:
        Watts, or None where there is no sensor or its counter did not move.
    """
    sensor = measure.open_sensor(device)
    if isinstance(sensor, measure.NoSensor | measure.EstimateSensor):
        return None  # a stated power is not what an idle device draws
    with record.during("idle"):
        started_at = runs.now()
        with measure.window(device, sensor) as window:
            time.sleep(seconds)
        watts = None if window.energy.joules is None else window.energy.joules / window.seconds
        record.append(started_at=started_at, idle_watts=watts, **window.columns())
    return watts


def precisions(device: Device) -> tuple[str, ...]:
    """Return what to try on a device: all that it has units for."""
    return tuple(name for name in operations.DTYPES if device.has_units(name))


def matrix_sizes(text: str) -> tuple[int, ...]:
    """Return matrix sizes from a notebook's parameter, such as "512 1024", ascending."""
    return tuple(sorted(int(word) for word in text.split()))


def _arithmetic(device: Device, record: Run, budget: Budget, precision: str) -> list[dict]:
    """Return rows of one precision; sizes grow until a single product would take longer than two windows."""
    rows, seconds, last = [], 0.0, 1
    for size in budget.matrix_sizes:
        if seconds * (size / last) ** 3 > 2 * budget.window_seconds:
            break
        work = {"model": "matmul", "precision": precision, "flops_per_sample": 2 * size**3}
        operation = operations.multiplication(device, size, precision, budget.seed)
        rows += _windows(device, record, budget, operation, work, {"matrix_size": size})
        seconds, last = 1 / rows[-1]["samples_per_second"], size
    return rows


def _refused(record: Run, precision: str, error: Exception) -> dict:
    name = type(error).__name__
    status = runs.status_of(name, str(error))
    return record.append(
        model="matmul",
        precision=precision,
        started_at=runs.now(),
        status=status if status == "out_of_memory" else "unsupported",
        message=runs.anonymous(f"{name}: {error}")[:2000],
    )


def _windows(
    device: Device,
    record: Run,
    budget: Budget,
    operation: Operation,
    work: dict,
    settings: dict,
    most_bytes_per_second: float = math.inf,
) -> list[dict]:
    """Append one row per window of an operation, repeated as often as fills the window; return the rows.

    Above the most bytes a second there can be, the row carries no measures, and no window follows.
    """
    sensor = measure.open_sensor(device)
    count = operations.calls_lasting(budget.window_seconds, lambda number: _timed(device, operation, number))
    stated = record.settings_with(**settings)
    rows = []
    for _ in range(budget.num_windows):
        started_at = runs.now()
        with measure.window(device, sensor) as window:
            window.last = operations.queue(operation, count)
        rate = count / window.seconds
        bytes_per_second = rate * work.get("bytes_per_sample", 0)
        if bytes_per_second > most_bytes_per_second:
            message = (
                f"{work['model']} at {bytes_per_second / 1e9:,.1f} GB/s moved nothing; allowed: up to "
                f"{most_bytes_per_second / 1e9:,.1f} GB/s, the rate of a copy in this device's memory"
            )
            refused = {"model": work["model"], "settings": stated, "message": message}
            return [*rows, record.append(started_at=started_at, status="unsupported", **refused)]
        measures = work | window.columns() | {"samples": count, "samples_per_second": rate, "settings": stated}
        rows.append(record.append(started_at=started_at, **measures))
    return rows


def _timed(device: Device, operation: Operation, count: int) -> float:
    with measure.window(device, measure.NoSensor()) as window:
        window.last = operations.queue(operation, count)
    return window.seconds
