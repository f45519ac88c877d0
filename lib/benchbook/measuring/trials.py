"""Try and time a workload in each precision, with and without the compiler.

The rows have phase `calibrate`. Input is on the device already, so that only arithmetic is
timed. A refused setting is a row of status `unsupported` with the error, and a setting with
another loss than fp32 a row of status `diverged`: both are results, not failures of the run.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging.agreement import TOLERANCES
from benchbook.machine import contention
from benchbook.measuring import failures, sensors
from benchbook.measuring.window import endless, steps_lasting, train_window, trainer
from benchbook.measuring.writer import Run

if TYPE_CHECKING:
    import pandas

# The baseline comes first. bf16 and fp16 also store the weights in 16 bits, without autocast.
PRECISIONS = tuple(TOLERANCES)
NUM_WINDOWS, NUM_STEPS = 2, 2
LONG_SECONDS = 3.0  # a window longer than this is not repeated
# Values of the setting `tried`, a row's purpose.
RESIDENT, MATRIX, BUSY = "resident", "matrix", "busy"
BUSY_SECONDS, BUSY_READINGS = 5.0, 5  # of training, and the fewest readings in it


def precisions(device: Device) -> tuple[str, ...]:
    """Return the precisions that a device does not refuse, fp32 first."""
    return tuple(name for name in PRECISIONS if not device.refuses(name))


def measure_resident(workload: Workload, record: Run, num_steps: int) -> None:
    """Time steps on batches that are on the device already, as rows; other steps show the share
    of input.

    Args:
        workload: trained or fresh; it continues to train, with batches of its current epoch.
        record: the run that stores the rows.
        num_steps: steps in a window, each on another batch; 0 measures nothing.
    """
    if num_steps:
        batches = _next_batches(workload, num_steps)
        with record.during("calibrate"):
            _append_windows(workload, record, batches, RESIDENT, {})


def measure_busy(workload: Workload, record: Run) -> None:
    """Train for BUSY_SECONDS with the loader, while a tool is read twice a second, and append a
    row whose setting `busy` is the share of the time in which the device works.

    Nothing where no tool tells. No window is read so: a tool takes part of a core.
    """
    kind, shares, ended = workload.device.kind, [], threading.Event()
    if workload.device.is_cpu or not contention.device_shares(kind):
        return

    def watch() -> None:
        while not ended.wait(contention.SAMPLE_SECONDS):
            shares.extend(contention.device_shares(kind)[:1])

    with record.during("calibrate"):
        train = trainer(workload)
        num_steps = steps_lasting(BUSY_SECONDS, train)
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            row = train(num_steps)
        finally:
            ended.set()
            watching.join()
        if len(shares) >= BUSY_READINGS:
            busy = sum(shares) / len(shares)
            record.append(settings=record.settings_with(tried=BUSY, busy=busy), **row)


def measure_matrix(
    make: Callable[..., Workload],
    record: Run,
    device: Device,
    time_limit_seconds: float,
    compilers: Sequence[bool],
) -> None:
    """Try every precision, without and with the compiler, and append the rows.

    Every trial has the same weights and batches. A window has NUM_STEPS steps, or one if the
    first step took over LONG_SECONDS without the compiler. The status is `diverged` if the first
    loss is farther from that of fp32 than `judging.agreement.TOLERANCES` allow, or if a later
    loss is not finite.

    Args:
        make: makes a workload with fresh weights; takes `settings`.
        record: the run that stores the rows; it knows the model already.
        device: the device to try.
        time_limit_seconds: no trial begins after this; a trial under way is finished.
        compilers: whether to compile; each value is tried in this order with all precisions.
    """
    deadline, expected = time.monotonic() + time_limit_seconds, None
    with record.during("calibrate"):
        for compiled, precision in itertools.product(compilers, precisions(device)):
            if time.monotonic() >= deadline:
                return
            first_loss = _try(make, Settings(precision, compiled=compiled), record, expected)
            if expected is None and precision == PRECISIONS[0]:
                expected = first_loss


def rows_tried(rows: pandas.DataFrame, what: str) -> pandas.DataFrame:
    """Return the rows that this module measured.

    Args:
        rows: measured rows, of one session of each point.
        what: RESIDENT, MATRIX or BUSY.
    """
    import pandas

    rows = rows[rows["phase"] == "calibrate"]
    wanted = [settings.get("tried") == what for settings in rows["settings"]]
    return rows[pandas.Series(wanted, rows.index, dtype=bool)]


def _try(
    make: Callable[..., Workload], settings: Settings, record: Run, expected: float | None
) -> float | None:
    """Append the rows of one trial; return the loss of its first step, or None if the step
    failed."""
    columns = {"precision": settings.precision, "compiled": settings.compiled}
    stated = record.settings_with(tried=MATRIX)
    try:
        import torch

        # After eight networks from the same function torch would silently stop compiling.
        # Source: https://docs.pytorch.org/docs/stable/generated/torch.compiler.reset.html
        torch.compiler.reset()
        workload = make(settings=settings)
        columns |= {
            "batch_size": workload.batch_size,
            "num_workers": workload.description()["num_workers"],
        }
        batches = _next_batches(workload, NUM_STEPS)
        first = train_window(workload, sensors.NO_SENSOR, batches[:1])  # also builds kernels
        loss, long = first["loss"], first["seconds"] > LONG_SECONDS and not settings.compiled
        if not math.isfinite(loss):
            fault = "the first loss is not finite"
        elif expected is not None and not abs(loss - expected) <= TOLERANCES[
            settings.precision
        ].loss * abs(expected):
            fault = f"the first loss is {loss:.4g}, and {expected:.4g} in fp32"
        else:
            _append_windows(workload, record, batches[:1] if long else batches, MATRIX, columns)
            return loss
        record.append(status="diverged", message=fault, settings=stated, **columns)
        return loss
    except Exception as error:  # a missing compiler or kernel may raise any error
        record.append(settings=stated, **columns, **failures.refusal(error))
        return None


def _append_windows(
    workload: Workload, record: Run, batches: list, tried: str, columns: dict
) -> None:
    sensor, settings = sensors.open_sensor(workload.device), record.settings_with(tried=tried)
    for _ in range(NUM_WINDOWS):
        row = record.append(settings=settings, **columns, **train_window(workload, sensor, batches))
        if row["seconds"] > LONG_SECONDS:
            break


def _next_batches(workload: Workload, num_steps: int) -> list:
    """Return the next batches, on the device; at the end of an epoch the next epoch begins."""
    batches = itertools.islice(endless(workload), num_steps)
    return [workload.to_device(batch) for batch in batches]
