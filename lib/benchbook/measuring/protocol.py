"""Turn a workload into rows: compile, warm up and restore, windows, evaluation off the clock.

The first call and the warm-up are rows of their own, which no average includes; they change
nothing that follows. See `window` for how a window is timed.
"""

import functools
import itertools
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psutil

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.machine import contention
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import parity, sensors
from benchbook.measuring.sensors import Sensor
from benchbook.measuring.window import (
    PROBE_SECONDS,
    endless,
    status,
    steps_lasting,
    train_window,
    trainer,
    window,
)
from benchbook.measuring.writer import Run

IDLE_SECONDS = 3.0
SUSTAINED_SECONDS = 10.0  # length of a sustained run's window
LEAST_SUSTAINED = (
    6  # windows of a sustained run, so that a short one also has a first and a last part
)
PREFETCHED = 2  # batches ahead of each worker, torch's default
FILLING_SECONDS = (
    60.0  # a loader that is still filling its queue after this long is measured as it is
)
DROPOUT_STEPS = 4  # the loss of one alone may be equal by chance in bfloat16
POLL_SECONDS, IDLE_SHARE = (
    0.2,
    0.1,
)  # workers that use less than this share of a core wait for a free place


@dataclass(frozen=True)
class Amount:
    """How much to measure.

    Attributes:
        num_repeats: repeats, each from the same fresh weights.
        num_windows: timed windows in a repeat, one after the other.
        samples_per_window: images in a window, rounded to whole steps; 0: one epoch.
        cooldown_seconds: rest between repeats.
        evaluate_each_epoch: whether to evaluate after every window, which must be an epoch; else
        once, at the end of a
            repeat.
        window_seconds: if above 0, a window has as many steps as take this long on this device,
        or as long as its
            energy counter needs, but at least samples_per_window; how many is measured first, in
            rows of phase `warmup`.
        evaluates: whether there is an evaluation at all.

    Raises:
        ValueError: evaluate_each_epoch with windows that are not epochs.
    """

    num_repeats: int = 1
    num_windows: int = 1
    samples_per_window: int = 0
    cooldown_seconds: float = 0.0
    evaluate_each_epoch: bool = False
    window_seconds: float = 0.0
    evaluates: bool = True

    def __post_init__(self) -> None:
        if self.evaluate_each_epoch and not self.whole_epochs:
            raise ValueError(
                "evaluate_each_epoch True; allowed with samples_per_window 0 and window_seconds 0 only"
            )

    @property
    def whole_epochs(self) -> bool:
        """Return whether a window is an epoch."""
        return not (self.samples_per_window or self.window_seconds)


@contextmanager
def restoring(workload: Workload) -> Iterator[Iterator]:
    """Yield batches, epoch after epoch, to train on in a `with` block; restore the workload when
    it ends.

    Weights, optimiser, schedule, random state and data order are restored, and the loader ends.
    """
    fresh, batches = workload.snapshot(), endless(workload)
    workload.enter()
    try:
        yield batches
    finally:
        batches.close()
        workload.restore(fresh)


def first_step(workload: Workload, record: Run) -> None:
    """Make the first call, which builds kernels and graphs, as a row of phase `compile`, and
    undo it.

    If a sensor reads energy, the idle device's watts are measured first (phase `idle`), and all
    later rows have them.

    Args:
        workload: with fresh weights.
        record: the run that stores the rows.
    """
    record.describe(**workload.description())
    record.describe(idle_watts=measure_idle(workload.device, record, IDLE_SECONDS))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        _append_undone_steps(workload, record, "compile", 1)
    for each in heard:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    fallen = {workload.device.backend.fell_back(str(each.message)): 1 for each in heard}
    fallen.pop("", None)
    if fallen:
        record.manifest["misplaced_operations"] = fallen


def warm_up(workload: Workload, record: Run, num_steps: int = 10, has_begun: bool = False) -> float:
    """Take some steps, as a row of phase `warmup`, and undo them; `first_step` comes first, if
    it was not called yet.

    Args:
        workload: with fresh weights.
        record: the run that stores the rows.
        num_steps: steps after the first call.
        has_begun: whether `first_step` was called.

    Returns:
        Seconds of a step whose batch is ready; 0 if the steps were too few to tell.
    """
    if not has_begun:
        first_step(workload, record)
    row = (
        _append_undone_steps(workload, record, "warmup", num_steps)
        if num_steps
        else {"seconds": 0.0}
    )
    misplaced = getattr(workload, "misplaced_operations", dict)()
    misplaced = misplaced or record.manifest.get("misplaced_operations")
    if misplaced:
        record.manifest["misplaced_operations"] = misplaced
        most = ", ".join(f"{count} {name}" for name, count in Counter(misplaced).most_common(5))
        print(
            f"Not computed on {workload.device.kind}: {sum(misplaced.values())} operations of each step, for which "
            f"{workload.device.framework} has no kernel there. Their inputs and outputs are copied: {most}"
        )
    return row["seconds"] / num_steps if row["seconds"] >= PROBE_SECONDS else 0.0


def _append_undone_steps(workload: Workload, record: Run, phase: str, num_steps: int) -> dict:
    """Append a window of steps on batches loaded beforehand, undo the steps, and return the row.

    Raises:
        ValueError: the first batch is not as the rows say, or the steps changed no weight.
    """
    with record.during(phase), restoring(workload) as batches:
        taken = list(itertools.islice(batches, num_steps))
        workload.check_batch(taken[0])
        moved = _moves(workload, record)
        row = record.append(
            **train_window(workload, sensors.open_sensor(workload.device), taken), **moved()
        )
        # With float16, a loss scaler may skip the steps, or they are too small for the type.
        if (
            not row["settings"]["moved_tensors"]
            and row["loss"] != 0  # which has no gradient
            and not PRECISIONS[row.get("precision") or "fp32"].needs_scaling
        ):
            raise ValueError(
                f"no weight changed in {num_steps} training steps; check the learning rate"
            )
    return row


def _moves(workload: Workload, record: Run) -> Callable[[], dict]:
    """Return a function to a row's settings with `moved_tensors`, the number of weights that
    have changed since now."""
    before = [hash(part.tobytes()) for part in workload.trained_weights()]

    def settings() -> dict:
        moved = sum(hash(part.tobytes()) not in before for part in workload.trained_weights())
        return {"settings": record.settings_with(moved_tensors=moved)}

    return settings


def measure_idle(device: Device, record: Run, seconds: float) -> float | None:
    """Append the watts of an idle device as a row of phase `idle`; without a sensor, return at
    once.

    Returns:
        Watts; None if there is no sensor, or if its counter did not move.
    """
    sensor = sensors.open_sensor(device)
    if sensor.method is None:
        record.manifest |= {"no_energy": sensor.reason} if sensor.reason else {}
        return None
    with record.during("idle"):
        with window(device, sensor) as idle:
            time.sleep(max(seconds, sensor.least_seconds))
        watts = None if idle.energy.joules is None else idle.energy.joules / idle.seconds
        record.append(idle_watts=watts, **idle.columns())
    return watts


def measure_windows(
    workload: Workload, record: Run, amount: Amount, step_seconds: float = 0.0
) -> None:
    """Measure a workload as planned, appending each row when it is measured, the last one with
    `_moves`.

    A loss that is not finite ends its repeat early, with status `diverged`.

    Args:
        workload: with fresh weights, warmed up.
        record: the run that stores the rows.
        amount: how much to measure.
        step_seconds: from `warm_up`.
    """
    sensor, fresh = sensors.open_sensor(workload.device), workload.snapshot()
    if amount.window_seconds:
        amount = replace(amount, window_seconds=max(amount.window_seconds, sensor.least_seconds))
    moved = _moves(workload, record)
    left = itertools.count(amount.num_repeats * amount.num_windows, -1)
    num_steps = _steps_of_a_window(workload, record, sensor, amount, step_seconds)
    if amount.window_seconds:
        workload.restore(fresh)
    for repeat in range(amount.num_repeats):
        if repeat:
            time.sleep(amount.cooldown_seconds)
            workload.restore(fresh)
        if num_steps:
            train = trainer(workload, sensor)
            _reach_steady_state(workload, record, train, amount.window_seconds / num_steps)
            windows = iter(functools.partial(train, num_steps), None)
        else:
            windows = _epochs(workload, sensor, record.common["variant"])
        for count in (
            [1] * amount.num_windows if amount.evaluate_each_epoch else [amount.num_windows]
        ):
            with record.during("train"):
                for measures in itertools.islice(windows, count):
                    epoch = (
                        workload.epoch + 1
                    )  # after the window: one that begins at an epoch's end is in the next
                    if amount.whole_epochs:
                        workload.end_epoch()
                    measures |= moved() if next(left) == 1 else {}
                    row = record.append(repeat=repeat, epoch=epoch, **measures)
                    if row["status"] == "diverged":
                        break
            if amount.evaluates:
                with record.during("evaluate"):
                    _evaluate(workload, record, sensor, repeat, epoch)
            if row["status"] == "diverged":
                break


def measure_minutes(workload: Workload, record: Run, minutes: float) -> None:
    """Train for some minutes, in windows of about ten seconds or a sixth of the time, each
    appended as a row.

    A loss that is not finite ends the run early, with status `diverged`.

    Args:
        workload: warmed up.
        record: the run that stores the rows.
        minutes: of training; the last window is finished.
    """
    train = trainer(workload, sensors.open_sensor(workload.device))
    length = min(SUSTAINED_SECONDS, minutes * 60 / LEAST_SUSTAINED)
    seconds, num_steps, moved = 0.0, 1, _moves(workload, record)
    with record.during("train"):
        while seconds < minutes * 60:
            measures = train(num_steps)
            seconds += measures["seconds"]
            record.append(
                epoch=workload.epoch + 1, **measures, **(moved() if seconds >= minutes * 60 else {})
            )
            if measures["status"] == "diverged":
                break
            num_steps = max(1, round(num_steps * length / measures["seconds"]))


def _steps_of_a_window(
    workload: Workload, record: Run, sensor: Sensor, amount: Amount, step_seconds: float
) -> int:
    """Return the steps of a window, 0 for a whole epoch.

    If the amount says how long a window lasts, windows are trained to find out, unless
    `step_seconds` tells: where no loader works during the steps, or where the fewest steps last
    long enough without it.
    """
    if amount.whole_epochs:
        return 0
    least = max(1, round(amount.samples_per_window / workload.batch_size))
    if not amount.window_seconds:
        return least
    if step_seconds:
        needed = math.ceil(amount.window_seconds / step_seconds)
        if needed <= least or not workload.description().get("num_workers"):
            return max(least, needed)
    train = trainer(workload, sensor)
    with record.during("warmup"):
        return steps_lasting(
            amount.window_seconds, lambda count: record.append(**train(count)), least
        )


def _reach_steady_state(
    workload: Workload, record: Run, train: Callable, step_seconds: float
) -> None:
    """Wait until a loader's worker processes have filled their queue; if they are slower than
    the steps, empty it.

    Args:
        workload, record: as for `measure_windows`.
        train: from `trainer`, so that the workers run.
        step_seconds: of a step, or of a shorter one; 0: unknown, and the queue is not emptied.
    """
    workers = psutil.Process().children()
    queued = PREFETCHED * (workload.description().get("num_workers") or 0)
    if not (queued and workers):
        return
    with record.during("warmup"):
        started, used = time.monotonic(), sum(map(contention.consumed, workers))
        while (waited := time.monotonic() - started) < FILLING_SECONDS:
            time.sleep(POLL_SECONDS)
            before, used = used, sum(map(contention.consumed, workers))
            if used - before < IDLE_SHARE * POLL_SECONDS:
                break
        if waited > queued * step_seconds > 0:
            record.append(**train(queued))


def _epochs(workload: Workload, sensor: Sensor, variant: str | None) -> Iterator[dict]:
    """Yield windows of a whole epoch each.

    An epoch of the reference starts its loader's processes inside the window, as the article
    did. For other windows they run already: a start by spawn takes seconds.
    """

    def epoch() -> Iterator:
        yield from workload.batches(
            workload.epoch
        )  # the loader starts when the first batch is requested

    for batches in iter(epoch, None) if variant == "reference" else workload.epochs():
        yield train_window(workload, sensor, batches)


def _evaluate(workload: Workload, record: Run, sensor: Sensor, repeat: int, epoch: int) -> None:
    workload.enter()
    with window(workload.device, sensor, clock=workload.clock) as timed:
        evaluation = workload.evaluate()
        timed.last = evaluation.loss, evaluation.accuracy
    loss = None if evaluation.loss is None else float(evaluation.loss)
    drops = getattr(workload, "has_dropout", bool)()  # doubles have no layers
    checks = {"dropout_acts": _dropout_acts(workload)} if drops else {}
    if record.settings_with().get("num_parity_steps"):
        checks |= parity.last_losses(workload)
    record.append(
        settings=record.settings_with(**checks),
        repeat=repeat,
        epoch=epoch,
        status="ok" if loss is None else status(loss),
        samples=evaluation.samples,
        samples_per_second=evaluation.samples / timed.seconds,
        loss=loss,
        accuracy=float(evaluation.accuracy),
        accuracy_metric=evaluation.metric,
        flops_per_sample=None,  # the description counts a training step
        **timed.columns(),
    )


def _dropout_acts(workload: Workload) -> bool:
    """Return whether a step of the last window's batch, repeated from the same weights, has
    another loss; nothing changes."""
    fresh = workload.snapshot()
    workload.enter()
    try:
        first, *others = workload.repeated_losses(workload.last_batch, DROPOUT_STEPS)
    finally:
        workload.restore(fresh)
    return any(loss != first for loss in others)
