"""Try and time a workload in each precision, with and without the compiler.

Rows of phase `calibrate`, of the network itself. Their input lies on the device already, so that arithmetic alone is
timed. What is refused is a row of status `unsupported` with the error, and what computes something else than fp32 one
of status `diverged`: both are answers, and no failures of the run.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence

import pandas

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import statistics
from benchbook.judging.parity import TOLERANCES
from benchbook.measuring import failures, sensors
from benchbook.measuring.window import endless, train_window
from benchbook.measuring.writer import Run

# The first is what the others are compared with. bf16 and fp16 keep the weights so as well, without autocast.
PRECISIONS = tuple(TOLERANCES)
NUM_WINDOWS = 2
LONG_SECONDS = 3.0  # a window longer than this is not repeated
RESIDENT, MATRIX = "resident", "matrix"  # values of the setting `tried`: the purpose of a row


def precisions(device: Device) -> tuple[str, ...]:
    """Return the precisions that are tried on a device; tf32 where there are units for it, since it needs them."""
    return tuple(name for name in PRECISIONS if not device.refuses(name))


def measure_resident(workload: Workload, record: Run, num_steps: int) -> None:
    """Time steps on batches that lie on the device already, as rows; the same steps with input are longer by its share.

    Args:
        workload: trained or fresh; it trains on, with batches of the epoch it is in.
        record: the run that takes the rows.
        num_steps: steps in a window, all on different batches; 0 measures nothing.
    """
    if num_steps:
        batches = _taken(workload, num_steps)
        with record.during("calibrate"):
            _append_windows(workload, record, batches, RESIDENT, {})


def measure_matrix(
    build: Callable[[Settings], Workload],
    record: Run,
    device: Device,
    time_limit_seconds: float,
    compilers: Sequence[bool] = (False, True),
    num_steps: int = 2,
) -> None:
    """Try every precision, without and with the compiler, and append the rows.

    Every trial begins with the same weights and takes the same batches. It is wrong, and its status `diverged`, if its
    first loss is farther from that of fp32 than `judging.parity.TOLERANCES` allow, or a later one is not finite.

    Args:
        build: from settings to a workload with fresh weights.
        record: the run that takes the rows; it knows the model already.
        device: where to try.
        time_limit_seconds: no trial begins after this; one that has begun is finished.
        compilers: whether to compile: in this order, each with all precisions; empty tries nothing.
        num_steps: steps in a window; one where without the compiler the first took over LONG_SECONDS.
    """
    deadline, expected = time.monotonic() + time_limit_seconds, None
    with record.during("calibrate"):
        for compiled, precision in itertools.product(compilers, precisions(device)):
            if time.monotonic() >= deadline:
                return
            first_loss = _try(build, Settings(precision, compiled=compiled), record, num_steps, expected)
            expected = first_loss if expected is None else expected


def rows_tried(rows: pandas.DataFrame, what: str) -> pandas.DataFrame:
    """Return the rows that this module measured, of each point's last session.

    Args:
        rows: any rows.
        what: RESIDENT or MATRIX.
    """
    newest = statistics.newest(rows[(rows["source"] == "measured") & (rows["phase"] == "calibrate")])
    wanted = [settings.get("tried") == what for settings in newest["settings"]]
    return newest[pandas.Series(wanted, newest.index, dtype=bool)]


def _try(
    build: Callable[[Settings], Workload], settings: Settings, record: Run, num_steps: int, expected: float | None
) -> float | None:
    """Append the rows of one trial; return the loss of its first step, or None where there was none."""
    columns = {"precision": settings.precision, "compiled": settings.compiled}
    stated = record.settings_with(tried=MATRIX)
    try:
        import torch

        # After eight networks of one function torch would silently stop compiling.
        # Source: https://docs.pytorch.org/docs/stable/generated/torch.compiler.reset.html
        torch.compiler.reset()
        workload = build(settings)
        columns |= {"batch_size": workload.batch_size, "num_workers": workload.description()["num_workers"]}
        batches = _taken(workload, num_steps)
        first = train_window(workload, sensors.NO_SENSOR, batches[:1])  # builds kernels as well
        loss, long = first["loss"], first["seconds"] > LONG_SECONDS and not settings.compiled
        if not math.isfinite(loss):
            complaint = "the first loss is not finite"
        elif expected is not None and not abs(loss - expected) <= TOLERANCES[settings.precision].loss * abs(expected):
            complaint = f"the first loss is {loss:.4g}, where fp32 has {expected:.4g}"
        else:
            _append_windows(workload, record, batches[:1] if long else batches, MATRIX, columns)
            return loss
        record.append(status="diverged", message=complaint, settings=stated, **columns)
        return loss
    except Exception as error:  # a missing compiler or kernel may raise any error
        record.append(settings=stated, **columns, **failures.refusal(error))
        return None


def _append_windows(workload: Workload, record: Run, batches: list, tried: str, columns: dict) -> None:
    sensor, settings = sensors.open_sensor(workload.device), record.settings_with(tried=tried)
    for _ in range(NUM_WINDOWS):
        row = record.append(settings=settings, **columns, **train_window(workload, sensor, batches))
        if row["seconds"] > LONG_SECONDS:
            break


def _taken(workload: Workload, num_steps: int) -> list:
    """Return the next batches on the device; an epoch with fewer begins again."""
    batches = itertools.islice(endless(workload), num_steps)
    return [workload.to_device(batch) for batch in batches]
