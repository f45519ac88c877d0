"""Turn a workload into rows: compile, warm up and restore, windows, evaluation off the clock.

The rules are the project's measuring rules: the device is synchronised once at each end of a window and nowhere inside
it, the first call is a row of its own, warm-up is kept but never averaged and changes nothing that follows, losses are
read after the clock has stopped.
"""

import itertools
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pandas
from tqdm import tqdm

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.judging import intervals
from benchbook.measuring import audit, runs, sensors
from benchbook.measuring.runs import Run
from benchbook.measuring.sensors import NO_SENSOR, Energy, Sensor
from benchbook.rows import records

time = SimpleNamespace(**vars(time))  # saved before the user's code runs, which may replace a clock
PROBE_SECONDS = 0.5  # a window this long shows how long a step is
IDLE_SECONDS = 3.0  # Apple's counters move every 2 s at the slowest
SUSTAINED_SECONDS = 10.0  # of a window in minutes without a pause
LEAST_SUSTAINED = 6  # windows, so that a short run has a first and a last part, too


@dataclass
class Window:
    """The measures of a window, taken between two synchronisations.

    Attributes:
        seconds: wall time of the window.
        input_seconds: the part of it in which the host waited for input (it may overlap device work).
        energy: joules with method and boundary.
        peak_memory_bytes, memory_method: see devices.peak_memory.
        page_faults: pages of memory that this process got from the system without reading a disk; None: not counted.
        last: set in the `with` block to the output of the work queued last; see `devices.Backend`.
    """

    seconds: float = 0.0
    input_seconds: float = 0.0
    energy: Energy = field(default_factory=Energy)
    peak_memory_bytes: int | None = None
    memory_method: str | None = None
    page_faults: int | None = None
    last: Any = None

    def inputs(self, batches: Iterable) -> Iterator:
        """Yield batches while adding the time spent waiting for each to `input_seconds`."""
        iterator, clock = iter(batches), time.perf_counter
        while True:
            asked = clock()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.input_seconds += clock() - asked
            yield batch

    def columns(self) -> dict:
        """Return the window as columns of a row."""
        return {
            "seconds": self.seconds,
            "input_seconds": self.input_seconds,
            "energy_joules": self.energy.joules,
            "energy_method": self.energy.method,
            "energy_boundary": self.energy.boundary,
            "peak_memory_bytes": self.peak_memory_bytes,
            "memory_method": self.memory_method,
            "page_faults": self.page_faults,
        }


@contextmanager
def window(device: Device, sensor: Sensor = NO_SENSOR) -> Iterator[Window]:
    """Measure the body of a `with` block; the yielded Window is filled in when the block ends.

    Args:
        device: the device that is synchronised at both ends.
        sensor: from `sensors.open_sensor`.
    """
    measured = Window()
    device.backend.reset_peak_memory(device)
    device.backend.synchronize(device)
    sensor.begin()
    faults = _page_faults()
    started = time.perf_counter()
    yield measured
    device.backend.synchronize(device, measured.last)
    measured.seconds = time.perf_counter() - started
    measured.page_faults = _page_faults() - faults if faults else None
    measured.energy = sensor.end()
    measured.peak_memory_bytes, measured.memory_method = devices.peak_memory(device)


def _page_faults() -> int:
    """Return the minor page faults of this process since it began: 0 only where the system does not count them."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        num_repeats: how often to begin again from the same fresh weights.
        num_windows: timed windows in a repeat, one after the other.
        samples_per_window: images in a window, rounded to whole steps; 0 is one epoch.
        cooldown_seconds: rest between repeats.
        widest_interval: where the 95 % interval of this kernel's windows alone is wider than this fraction, more
            windows follow (repeats, where more than one was planned), up to MOST times what was planned; 0: none do.
        evaluate_each_epoch: after every window, each being an epoch, and as many as planned; else once, at a repeat's
            end.
        evaluates: whether there is an evaluation at all.
        window_seconds: where above 0, a window has as many steps as last so long on this device, and samples_per_window
            is the least it has; how many steps that are is tried out before, in rows of phase `warmup`.

    Raises:
        ValueError: a number is out of range, or an evaluation of each epoch where windows are parts of one.
    """

    num_repeats: int = 1
    num_windows: int = 1
    samples_per_window: int = 0
    cooldown_seconds: float = 0.0
    widest_interval: float = 0.0
    evaluate_each_epoch: bool = False
    window_seconds: float = 0.0
    evaluates: bool = True

    MOST = 4  # no annotation: a constant, not a field

    def __post_init__(self) -> None:
        least = {"num_repeats": 1, "num_windows": 1}
        for name, value in vars(self).items():
            if value < least.get(name, 0):
                raise ValueError(f"{name} {value!r}; allowed: {least.get(name, 0)} or more")
        if self.evaluate_each_epoch and not self.whole_epochs:
            raise ValueError(
                "evaluate_each_epoch True; allowed with samples_per_window 0 and window_seconds 0 (whole epochs): True,"
                " else False"
            )

    @property
    def whole_epochs(self) -> bool:
        """Return whether a window is an epoch."""
        return not (self.samples_per_window or self.window_seconds)

    def parts(self) -> list["Plan"]:
        """Return the parts of a repeat after each of which there is an evaluation."""
        one = replace(self, num_windows=1, widest_interval=0.0) if self.evaluate_each_epoch else self
        return [one] * (self.num_windows // one.num_windows)

    def has_next(self, done: int, planned: int, rates: Sequence[float] | None) -> bool:
        """Return whether another window or repeat follows.

        Args:
            done, planned: how many there are, and should be at least.
            rates: of this run's windows so far, whose interval may ask for more; None: no more than planned.
        """
        if done < planned:
            return True
        if rates is None or not self.widest_interval or done >= self.MOST * planned:
            return False
        return intervals.windows_width(rates) > self.widest_interval


@contextmanager
def undone(workload: Workload) -> Iterator[Iterator]:
    """Yield batches, epoch after epoch, to train on in a `with` block; afterwards the workload is what it was before.

    Weights, optimiser, schedule, random state and data order come back, and the loader ends.
    """
    fresh, batches = workload.snapshot(), endless(workload)
    workload.enter()
    try:
        yield batches
    finally:
        batches.close()
        workload.restore(fresh)


def first_step(workload: Workload, record: Run) -> dict:
    """Make the first call, which builds kernels and graphs, as a row of phase `compile`, and undo it.

    Where a sensor reads energy, the idle device's watts come before it, phase `idle`, and are in all later rows.

    Args:
        workload: with fresh weights.
        record: the run that takes the rows.

    Returns:
        The row.
    """
    record.describe(**workload.description())
    record.describe(idle_watts=measure_idle(workload.device, record, IDLE_SECONDS))
    return _step_undone(workload, record, "compile", 1)


def warm_up(workload: Workload, record: Run, num_steps: int = 10, has_begun: bool = False) -> None:
    """Take some steps, as a row of phase `warmup`, and undo them; before them the first, if it was not taken yet.

    Args:
        workload: with fresh weights.
        record: the run that takes the rows.
        num_steps: steps after the first call.
        has_begun: whether `first_step` was called.

    Raises:
        ValueError: a negative number of steps.
    """
    if num_steps < 0:
        raise ValueError(f"num_warmup_steps {num_steps!r}; allowed: 0 or more")
    if not has_begun:
        first_step(workload, record)
    if num_steps:
        _step_undone(workload, record, "warmup", num_steps)
    misplaced = getattr(workload, "misplaced_operations", dict)()  # frameworks without it raise an error instead
    if misplaced:
        record.manifest["misplaced_operations"] = misplaced
        most = ", ".join(f"{count} {name}" for name, count in Counter(misplaced).most_common(5))
        print(
            f"Not computed on {workload.device.kind}: {sum(misplaced.values())} operations of each step, for which "
            f"{workload.device.framework} has no kernel there. Their inputs and outputs are copied: {most}"
        )


def _step_undone(workload: Workload, record: Run, phase: str, num_steps: int) -> dict:
    """Append a window of steps on batches that were made before, and undo them."""
    with record.during(phase), undone(workload) as batches:
        taken = list(itertools.islice(batches, num_steps))
        return record.append(**train_window(workload, sensors.open_sensor(workload.device), taken))


def measure_idle(device: Device, record: Run, seconds: float) -> float | None:
    """Append the watts of an idle device as a row of phase `idle`; where nothing measures neither wait nor append.

    Returns:
        Watts, or None where there is no sensor or its counter did not move.
    """
    sensor = sensors.open_sensor(device)
    if isinstance(sensor, sensors.NoSensor | sensors.EstimateSensor):
        return None  # a stated power is not the idle power
    with record.during("idle"):
        started_at = runs.now()
        with window(device, sensor) as idle:
            time.sleep(seconds)
        watts = None if idle.energy.joules is None else idle.energy.joules / idle.seconds
        record.append(started_at=started_at, idle_watts=watts, **idle.columns())
    return watts


def measure_windows(workload: Workload, record: Run, plan: Plan) -> pandas.DataFrame:
    """Measure a workload as planned, appending each row as it is measured; then count what its loop does, see `audit`.

    Args:
        workload: with fresh weights, warmed up.
        record: the run that takes the rows.
        plan: how much to measure.

    Returns:
        This run's rows. A loss that is not finite ends its repeat early, in a row of status `diverged`.
    """
    sensor, fresh = sensors.open_sensor(workload.device), workload.snapshot()
    num_steps = _steps_of_a_window(workload, record, sensor, plan)
    if plan.window_seconds:
        workload.restore(fresh)
    work = workload.description()
    samples = num_steps * workload.batch_size or work["dataset_samples"]
    total, rates = plan.num_repeats * plan.num_windows * samples, []
    unit = "sequence" if work.get("sequence_length") else "image"
    # One refresh a second: the bar must not slow what it shows.
    with tqdm(total=total, unit=unit, unit_scale=True, mininterval=1.0, desc="Measuring") as bar:
        for repeat in itertools.count():
            inputs = _inputs(workload, num_steps, record.common["variant"])
            for part in plan.parts():
                last = _train(workload, record, sensor, part, inputs, repeat, bar, rates)
                if plan.evaluates:
                    with record.during("evaluate"):
                        _evaluate(workload, record, sensor, repeat, last["epoch"])
                if last["status"] == "diverged":
                    break
            if not plan.has_next(repeat + 1, plan.num_repeats, rates if plan.num_repeats > 1 else None):
                break
            time.sleep(plan.cooldown_seconds)
            workload.restore(fresh)
    audit.check(workload, record, fresh)
    return records.read(record.path)


def measure_minutes(workload: Workload, record: Run, minutes: float) -> pandas.DataFrame:
    """Train for so long, in windows of about ten seconds, or a sixth of the time, each appended as a row.

    Args:
        workload: warmed up.
        record: the run that takes the rows.
        minutes: of training; the window under way at the end is finished.

    Returns:
        This run's rows; a loss that is not finite ends it early, in a row of status `diverged`.

    Raises:
        ValueError: the minutes are not above 0.
    """
    if minutes <= 0:
        raise ValueError(f"sustained_minutes {minutes!r}; allowed: above 0")
    sensor, batches = sensors.open_sensor(workload.device), endless(workload)
    stream = started(batches)
    length = min(SUSTAINED_SECONDS, minutes * 60 / LEAST_SUSTAINED)
    seconds, num_steps = 0.0, 1
    with record.during("train"):
        while seconds < minutes * 60:
            measures = train_window(workload, sensor, itertools.islice(stream, num_steps))
            record.append(epoch=workload.epoch + 1, **measures)
            if measures["status"] == "diverged":
                break
            seconds += measures["seconds"]
            num_steps = max(1, round(num_steps * length / measures["seconds"]))
    batches.close()
    return records.read(record.path)


def train_window(workload: Workload, sensor, batches: Iterable, bar: tqdm | None = None) -> dict:
    """Train on the batches inside one window.

    Args:
        workload: what to train.
        sensor: from `sensors.open_sensor`.
        batches: the window's input; the wait for each is `input_seconds`.
        bar: a progress bar of samples, or None.

    Returns:
        Measures of a row: samples, steps, seconds, input_seconds, samples_per_second, energy, memory, loss.
    """
    started_at, losses, samples = runs.now(), [], 0
    workload.enter()
    steps = workload.steps_taken()
    with window(workload.device, sensor) as timed:
        for batch in timed.inputs(batches):
            losses.append(workload.step(batch))
            count = workload.num_samples(batch)
            samples += count
            if bar is not None:
                bar.update(count)
        timed.last = losses[-1:]  # of one step's outputs none is ready before the step is done
    loss = workload.mean_loss(losses)
    return {
        "started_at": started_at,
        "samples": samples,
        "steps": workload.steps_taken() - steps,
        "samples_per_second": samples / timed.seconds,
        "loss": loss,
        "status": _status(loss),
        **timed.columns(),
    }


def endless(workload: Workload) -> Iterator:
    """Yield a workload's batches epoch after epoch; where one ends, its schedule advances."""
    for batches in workload.epochs():
        yield from batches
        workload.end_epoch()


def steps_lasting(seconds: float, train: Callable[[int], float], num_steps: int = 1) -> int:
    """Return how many steps last so many seconds, by windows that grow until one is long enough to say it.

    Args:
        seconds: above 0.
        train: takes so many steps and returns their seconds.
        num_steps: the least number of steps.
    """
    tried = num_steps
    while (took := train(tried)) < min(seconds / 2, PROBE_SECONDS):
        tried = min(4 * tried, math.ceil(tried * seconds / max(took, 1e-9)))  # a first window says little
    return max(num_steps, math.ceil(tried * seconds / took))


def windows_lasting(workload: Workload, seconds: float, sensor: Sensor = NO_SENSOR) -> Iterator[dict]:
    """Yield windows of training of about so many seconds, see `train_window`; their number of steps is tried first."""
    batches = endless(workload)

    def train(num_steps: int) -> dict:
        return train_window(workload, sensor, itertools.islice(batches, num_steps))

    train(1)  # builds kernels
    num_steps = steps_lasting(seconds, lambda count: train(count)["seconds"])
    while True:
        yield train(num_steps)


def _steps_of_a_window(workload: Workload, record: Run, sensor, plan: Plan) -> int:
    """Return the steps of a window, 0 for a whole epoch; to try out how many last long enough, train on."""
    if plan.whole_epochs:
        return 0
    least = max(1, round(plan.samples_per_window / workload.batch_size))
    if not plan.window_seconds:
        return least
    batches = endless(workload)
    stream = started(batches)
    with record.during("warmup"):
        num_steps = steps_lasting(
            plan.window_seconds,
            lambda count: record.append(**train_window(workload, sensor, itertools.islice(stream, count)))["seconds"],
            least,
        )
    batches.close()
    return num_steps


def _inputs(workload: Workload, num_steps: int, variant: str | None) -> Iterator[Iterable]:
    """Yield the batches of each window: so many steps, or 0 for a whole epoch.

    A whole epoch of the reference starts its loader's processes inside the window, as the article did. Other windows
    find them at work: where they begin by spawn, that takes seconds.
    """
    if num_steps:
        stream = started(endless(workload))
        while True:
            yield itertools.islice(stream, num_steps)
    elif variant == "reference":
        while True:
            yield itertools.chain.from_iterable(map(workload.batches, [workload.epoch]))
    else:
        yield from workload.epochs()


def _train(
    workload: Workload,
    record: Run,
    sensor,
    plan: Plan,
    inputs: Iterator[Iterable],
    repeat: int,
    bar: tqdm,
    rates: list[float],
) -> dict:
    """Measure the windows of one repeat, or of a part of it, and add their rates; return the last window's row."""
    with record.during("train"):
        for number in itertools.count(1):
            measures = train_window(workload, sensor, next(inputs), bar)
            epoch = workload.epoch  # asked here: a window that begins where an epoch ends is in the next one
            if plan.whole_epochs:
                workload.end_epoch()
            row = record.append(repeat=repeat, epoch=epoch + 1, **measures)
            rates.append(measures["samples_per_second"])
            follows = plan.has_next(number, plan.num_windows, rates if plan.num_repeats == 1 else None)
            if not follows or measures["status"] == "diverged":
                break
    return row


def _evaluate(workload: Workload, record: Run, sensor, repeat: int, epoch: int) -> None:
    started_at = runs.now()
    workload.enter()
    with window(workload.device, sensor) as timed:
        evaluation = workload.evaluate()
        timed.last = evaluation.loss, evaluation.accuracy
    loss = None if evaluation.loss is None else float(evaluation.loss)
    record.append(
        repeat=repeat,
        epoch=epoch,
        status="ok" if loss is None else _status(loss),
        started_at=started_at,
        samples=evaluation.samples,
        samples_per_second=evaluation.samples / timed.seconds,
        loss=loss,
        accuracy=float(evaluation.accuracy),
        accuracy_metric=evaluation.metric,
        flops_per_sample=None,  # the description counts a training step
        **timed.columns(),
    )


def _status(loss: float) -> str:
    return "ok" if math.isfinite(loss) else "diverged"


def started(batches: Iterator) -> Iterator:
    """Fetch the first batch now, so that a window shorter than an epoch does not include the loader's start."""
    return itertools.chain([next(batches)], batches)
