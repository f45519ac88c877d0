"""Measure the ceilings of a device: arithmetic, memory, transfers, launches.

Rates are rows of phase `calibrate`, with several windows each. Training is compared with the
best rates of its machine's device; see `benchbook.rows.ceilings`. A self-test proves that
synchronising waits; it is the first row.
"""

import itertools
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device
from benchbook.frameworks.operations import Operation
from benchbook.machine import kinds
from benchbook.measuring import failures, protocol, sensors
from benchbook.measuring.sensors import NO_SENSOR, Sensor
from benchbook.measuring.window import Window, window
from benchbook.measuring.writer import Run, now

MOST_REMAINING = (
    0.1  # share of the time that may pass after synchronising, since reading one number takes time
)
ROUNDS = 3  # of the self-test
PAIRS = 6  # of processes with freed memory kept and given back, one after the other
STEPS = """
import time, numpy
def step():
    for part in [numpy.ones(size, "float32") for size in sizes]:
        part + part
sizes = [2**power for power in range(12, 22)] * 4
step()
started, count = time.perf_counter(), 0
while time.perf_counter() - started < 0.1:
    step()
    count += 1
print((time.perf_counter() - started) / count)
"""  # elementwise work on new arrays of 16 KiB to 8 MiB, as between the layers of a network
LARGEST = 8192  # rows and columns of the self-test's matrices


class NotSynchronized(RuntimeError):
    """Synchronising returned before the work was done, so no time measured with it is valid."""


def measure(device: Device, record: Run, parameters: Mapping) -> None:
    """Check waiting and arithmetic, read idle power, and append the rates of products, copies
    and launches.

    The first row has model `synchronize` and the setting remaining_share, the result of
    `check_synchronize`; the next are those of `check_exactness`.

    Args:
        device: to calibrate.
        record: the run that stores the rows.
        parameters: the keys of the notebook's budget.

    Raises:
        NotSynchronized: see `check_synchronize`.
    """
    with record.during("calibrate"):
        stated = record.settings_with(remaining_share=check_synchronize(device))
        record.append(model="synchronize", started_at=now(), settings=stated)
    check_exactness(device, record)
    protocol.measure_idle(device, record, parameters["idle_seconds"])
    for part in (measure_arithmetic, measure_memory, measure_launches):
        part(device, record, parameters)
    if device.is_cpu and kinds.keeps_memory():
        measure_freed_memory(record)


def check_exactness(device: Device, record: Run) -> None:
    """Append a row for each operation of `operations.EXACT`, with the bits that it keeps in fp32.

    Settings: mantissa_bits, and for products wrong_outputs, see `frameworks.operations`. If the
    framework lacks the operation, its row of status `unsupported` has the reason.
    """
    with record.during("calibrate"):
        for name in operations.EXACT:
            row = {"model": name, "precision": "fp32", "started_at": now()}
            try:
                found = {"mantissa_bits": operations.mantissa_bits(device, name)}
                if name in ("mm", "bmm"):
                    found["wrong_outputs"] = operations.wrong_outputs(device, name)
                record.append(**row, settings=record.settings_with(**found))
            except Exception as error:
                record.append(**row, **failures.refusal(error, 2000))


def precisions(device: Device) -> tuple[str, ...]:
    """Return the precisions to try on a device: those for which it has units."""
    return tuple(name for name in operations.DTYPES if device.has_units(name))


def measure_arithmetic(device: Device, record: Run, parameters: Mapping) -> None:
    """Append the rate of matrix products, by precision and size, as rows.

    Sizes grow until a single product would take longer than two windows. If the device refuses a
    precision, a row of status `unsupported` has the reason; fp32 must work.
    """
    with record.during("calibrate"):
        for precision in precisions(device):
            seconds, last = 0.0, 1
            try:
                for size in sorted(map(int, parameters["matrix_sizes"].split())):
                    if seconds * (size / last) ** 3 > 2 * parameters["window_seconds"]:
                        break
                    work = {
                        "model": "matmul",
                        "precision": precision,
                        "flops_per_sample": 2 * size**3,
                    }
                    operation = operations.multiplication(
                        device, size, precision, parameters["seed"]
                    )
                    rows = _append_windows(
                        device, record, parameters, operation, work, {"matrix_size": size}
                    )
                    seconds, last = 1 / rows[-1]["samples_per_second"], size
            except Exception as error:
                if precision == "fp32":
                    raise
                refusal = failures.refusal(error, 2000)
                record.append(model="matmul", precision=precision, started_at=now(), **refusal)


def measure_memory(device: Device, record: Run, parameters: Mapping) -> None:
    """Append the rate of a large copy (bytes read and written) and of both transfers; a CPU has
    no transfers.

    A transfer reads or writes each byte in the device's memory, so it cannot be faster than the
    fastest copy there. If it seems to be, it moved nothing: then its row has status
    `unsupported` with this reason, and is no ceiling. So has one that the framework lacks.
    """
    size = int(parameters["copy_mebibytes"] * 2**20)
    with record.during("calibrate"):
        work = {"model": "copy", "bytes_per_sample": 2 * size}
        rows = _append_windows(
            device, record, parameters, operations.copy(device, size), work, {"copy_bytes": size}
        )
        most = max(row["samples_per_second"] for row in rows) * 2 * size
        for direction in () if device.is_cpu else ("host_to_device", "device_to_host"):
            work = {"model": direction, "bytes_per_sample": size}
            try:
                operation, stated = operations.copy(device, size, direction), {"copy_bytes": size}
                _append_windows(device, record, parameters, operation, work, stated, most)
            except Exception as error:
                record.append(model=direction, started_at=now(), **failures.refusal(error))


def measure_launches(device: Device, record: Run, parameters: Mapping) -> None:
    """Append the rate at which operations can be launched, one after the other, as rows."""
    with record.during("calibrate"):
        work = {"model": "launch", "precision": "fp32"}
        _append_windows(device, record, parameters, device.backend.launch(device), work, {})


def measure_freed_memory(record: Run) -> None:
    """Append a row whose setting `given_back` has, for each of some pairs of processes, the time
    of elementwise work on new arrays where freed memory goes back to the system, over its time
    where the process keeps it."""
    kept = kinds.KINDS["cpu"].environment
    plain = {name: value for name, value in os.environ.items() if name not in kept}
    ratios = []
    with record.during("calibrate"):
        for _ in range(PAIRS):
            given_back, keeping = (
                float(subprocess.check_output([sys.executable, "-c", STEPS], env=variables))
                for variables in (plain, plain | kept)
            )
            ratios.append(given_back / keeping)
        stated = record.settings_with(given_back=ratios)
        record.append(model="freed_memory", started_at=now(), settings=stated)


def _append_windows(
    device: Device,
    record: Run,
    parameters: Mapping,
    operation: Operation,
    work: dict,
    settings: dict,
    most_bytes_per_second: float = math.inf,
) -> list[dict]:
    """Append one row per window of an operation, repeated to fill the window; return the rows.

    A window above `most_bytes_per_second` is a row without measures, and ends the series.
    """
    sensor = sensors.open_sensor(device)
    count = operations.calls_lasting(
        parameters["window_seconds"], lambda number: timed(device, operation, number).seconds
    )
    stated = record.settings_with(**settings)
    rows = []
    for _ in range(parameters["num_windows"]):
        measured = timed(device, operation, count, sensor)
        rate = count / measured.seconds
        bytes_per_second = rate * work.get("bytes_per_sample", 0)
        if bytes_per_second > most_bytes_per_second:
            message = (
                f"{work['model']} at {bytes_per_second / 1e9:,.1f} GB/s moved nothing; allowed: up to "
                f"{most_bytes_per_second / 1e9:,.1f} GB/s, the rate of a copy in this device's memory"
            )
            refused = {"model": work["model"], "settings": stated, "message": message}
            return [
                *rows,
                record.append(started_at=measured.started_at, status="unsupported", **refused),
            ]
        measures = (
            work
            | measured.columns()
            | {"samples": count, "samples_per_second": rate, "settings": stated}
        )
        rows.append(record.append(**measures))
    return rows


def timed(device: Device, operation: Operation, count: int, sensor: Sensor = NO_SENSOR) -> Window:
    """Return the window of `count` calls of an operation."""
    with window(device, sensor) as measured:
        measured.last = operations.queue(operation, count)
    return measured


def check_synchronize(
    device: Device,
    operation: Operation | None = None,
    read: Callable[[Device, Any], float] | None = None,
    synchronize: Callable[[Device, Any], None] | None = None,
    work_seconds: float = 0.3,
) -> float:
    """Prove that synchronising waits: queue long work, synchronise, and time the wait that remains.

    A backend that runs work immediately passes: there is nothing to wait for. The wait is judged
    relative to the work's own time, so a slow machine gets the same verdict. The best of three
    rounds decides, since anything may interrupt one.

    Args:
        device: the device whose backend is tested.
        operation: the work to queue; None: a matrix product.
        read: reads a number from an output, and so waits for it; None: the backend's.
        synchronize: the function to test; None: the backend's.
        work_seconds: about how much work to queue.

    Returns:
        The fraction of the time that passed after synchronising.

    Raises:
        NotSynchronized: in every round, more than a tenth of the time passed after synchronising.
    """
    read = read or (lambda device, output: device.backend.read(output))
    synchronize = synchronize or device.backend.synchronize

    def seconds(operation: Operation, count: int) -> float:
        started = time.perf_counter()
        read(device, operations.queue(operation, count))
        return time.perf_counter() - started

    if (
        operation is None
    ):  # a long product, so that few fill the work: a full queue would make queueing wait
        for size in (2**power for power in itertools.count(10)):
            operation = operations.multiplication(device, size, "fp32")
            seconds(operation, 1)
            if size == LARGEST or seconds(operation, 1) > work_seconds / 10:
                break
    count = operations.calls_lasting(work_seconds, lambda number: seconds(operation, number))
    remaining = []
    for _ in range(ROUNDS):
        outputs = [None]  # in JAX 0.7 on a CPU, dropping a donated array waits for its computation
        started = time.perf_counter()
        for _ in range(count):
            outputs.append(operation(outputs[-1]))
        synchronize(device, outputs[-1])
        synchronized = time.perf_counter()
        read(device, outputs[-1])
        ended = time.perf_counter()
        remaining.append((ended - synchronized) / (ended - started))
    if min(remaining) > MOST_REMAINING:
        raise NotSynchronized(
            f"synchronising {device.framework} on {device.kind} left {min(remaining):.0%} of the work undone; "
            f"allowed: {MOST_REMAINING:.0%}"
        )
    return min(remaining)
