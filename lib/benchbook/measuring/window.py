"""One window: training steps, or any other work, timed between two synchronisations.

The device is synchronised once at each end of a window and nowhere inside; losses are read after
the clock stops.
"""

import itertools
import math
import resource
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.machine import condition
from benchbook.measuring.sensors import NO_SENSOR, Energy, Sensor
from benchbook.measuring.writer import now

_number = 0  # of the window that began last
PROBE_SECONDS = 0.5  # a window this long suffices to time a step


@dataclass
class Window:
    """The measures of a window, taken between two synchronisations.

    Attributes:
        clock: tells its seconds; kept here, because the user's code may replace that of `time`.
        seconds: wall time of the window.
        input_seconds: time in which the host waited for input (it may overlap device work).
        energy: joules with method and boundary.
        peak_memory_bytes, memory_method: see `devices.peak_memory`.
        page_faults: memory pages that this process got from the system without reading a disk;
        None: not counted.
        awake_seconds: the same time by the clock of the manifest's samples, see `condition.clocks`.
        last: the output of the work queued last, set in the `with` block; see `backend.Backend`.
        started_at: the time in UTC.
    """

    clock: Callable[[], float] = time.perf_counter
    seconds: float = 0.0
    input_seconds: float = 0.0
    energy: Energy = field(default_factory=Energy)
    peak_memory_bytes: int | None = None
    memory_method: str | None = None
    page_faults: int | None = None
    awake_seconds: float = 0.0
    last: Any = None
    started_at: str = field(default_factory=now)

    def columns(self) -> dict:
        """Return the window as columns of a row, with awake_seconds for the manifest."""
        others = ("clock", "energy", "last")
        own = {name: value for name, value in vars(self).items() if name not in others}
        return own | {f"energy_{name}": value for name, value in vars(self.energy).items()}


@dataclass
class Inputs:
    """Batches that add the time spent waiting for each to a window; they have the attributes of
    the given ones.

    Attributes:
        batches: such as a loader.
        window: returns the window that is measured now.
    """

    batches: Iterable
    window: Callable[[], Window]

    def __iter__(self) -> Iterator:
        iterator, clock = None, self.window().clock
        while True:
            started = clock()
            try:
                iterator = iter(self.batches) if iterator is None else iterator
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.window().input_seconds += clock() - started
            yield batch

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)


@contextmanager
def window(
    device: Device | None,
    sensor: Sensor = NO_SENSOR,
    wait: Callable[[Any], None] | None = None,
    clock: Callable[[], float] = Window.clock,
) -> Iterator[Window]:
    """Measure the body of a `with` block; the yielded Window is complete when the block ends.

    Args:
        device: whose peak memory is measured; None: memory is missing.
        sensor: from `sensors.open_sensor`.
        wait: waits for all work that was queued, given `Window.last`; None: for the device's.
        clock: see `Window`.
    """
    global _number
    measured = Window(clock)
    wait = wait or (lambda last: device.backend.synchronize(device, last))
    if device and not device.is_cpu:
        device.backend.reset_peak_memory(device)
    wait(None)
    _number += 1
    number = _number
    sensor.begin()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt  # 0: the system counts none
    awake, _ = condition.clocks()
    started = clock()
    yield measured
    wait(measured.last)
    measured.seconds = clock() - started
    measured.awake_seconds = condition.clocks()[0] - awake
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    measured.page_faults = counted - faults if faults else None
    if device and number == _number:  # else another window inside this one has reset both
        measured.energy = sensor.end()
        measured.peak_memory_bytes, measured.memory_method = devices.peak_memory(device)


def train_window(workload: Workload, sensor: Sensor, batches: Iterable) -> dict:
    """Train on the batches inside one window.

    Args:
        workload: what to train.
        sensor: from `sensors.open_sensor`.
        batches: the window's input; the wait for each is `input_seconds`.

    Returns:
        Measures of a row (samples, steps, seconds, input_seconds, samples_per_second, energy,
        memory, loss), and awake_seconds for the manifest.
    """
    losses, samples = [], 0
    workload.enter()
    steps = workload.steps_taken()
    with window(workload.device, sensor, clock=workload.clock) as timed:
        for batch in Inputs(batches, lambda: timed):
            losses.append(workload.step(batch))
            samples += workload.num_samples(batch)
        timed.last = losses[-1:]  # a step's loss is ready only when the whole step is done
    workload.last_batch = batch
    loss = workload.mean_loss(losses)
    return {
        "samples": samples,
        "steps": workload.steps_taken() - steps,
        "samples_per_second": samples / timed.seconds,
        "loss": loss,
        "status": status(loss),
        **timed.columns(),
    }


def status(loss: float) -> str:
    """Return the status of a window with this loss."""
    return "ok" if math.isfinite(loss) else "diverged"


def endless(workload: Workload) -> Generator:
    """Yield a workload's batches epoch after epoch; at the end of each, the schedule advances."""
    for batches in workload.epochs():
        yield from batches
        workload.end_epoch()


def trainer(workload: Workload, sensor: Sensor = NO_SENSOR) -> Callable[[int], dict]:
    """Return a function that trains a window of a given number of steps, each call on the
    batches that follow.

    The first batch is fetched here, so that a window shorter than an epoch does not include the
    loader's start.
    """
    batches = endless(workload)
    batches = itertools.chain([next(batches)], batches)
    return lambda num_steps: train_window(workload, sensor, itertools.islice(batches, num_steps))


def steps_lasting(seconds: float, train: Callable[[int], dict], num_steps: int = 1) -> int:
    """Return how many steps take a given time, from windows that grow until one is long enough
    to tell.

    Args:
        seconds: above 0.
        train: trains a window of a given number of steps, see `trainer`.
        num_steps: the least number of steps.
    """
    tried = num_steps
    while (took := train(tried)["seconds"]) < min(seconds / 2, PROBE_SECONDS):
        tried = min(
            4 * tried, math.ceil(tried * seconds / max(took, 1e-9))
        )  # a short window is a poor estimate
    return max(num_steps, math.ceil(tried * seconds / took))
