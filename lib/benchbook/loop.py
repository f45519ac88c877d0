"""Measure any training loop. Step, optimiser, batches and script stay the user's own, and no rows are written.

    benchbook.measure(step, loader, samples=64)

A loop that another library runs calls a `Meter` after each step; see docs/examples.
"""

import functools
import itertools
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchbook.frameworks import devices
from benchbook.judging import wording
from benchbook.machine import contention
from benchbook.machine.libraries import FRAMEWORKS, WORDS
from benchbook.measuring import sensors
from benchbook.measuring import window as measuring
from benchbook.measuring.window import Window

WARM_UP = 2  # windows that do not count: the first step, and one more
LAST = 3  # the range is stable if so many windows have not widened it, after as many
made: list["Meter"] = []  # of this process, for `run_script`


@dataclass(frozen=True)
class Rate:
    """The rate of a loop in one process.

    Attributes:
        samples_per_second: the median of the windows.
        low, high: the least and most of them.
        rates: of each window, in samples a second.
        input_share: the share of the time in which the loop waited for input.
        peak_memory_bytes: see `devices.peak_memory`; None if it is not counted.
        joules_per_sample: None without a sensor.
        others_share: the share of the CPU that other processes took meanwhile.
        device: its name, kind and framework.
    """

    samples_per_second: float
    low: float
    high: float
    rates: tuple[float, ...]
    input_share: float
    peak_memory_bytes: int | None
    joules_per_sample: float | None
    others_share: float
    device: str

    def __str__(self) -> str:
        value, low, high = (f"{each:,.4g}" for each in (self.samples_per_second, self.low, self.high))
        memory, joules = self.peak_memory_bytes, self.joules_per_sample
        parts = [f"waits for input {self.input_share:.1%} of the time"]
        parts += [f"peak memory {memory / 2**30:,.3g} GiB"] if memory else []
        parts += [f"{joules:.3g} J a sample"] if joules else []
        windows = wording.count(len(self.rates), "window")
        head = f"{value} samples/s (range {low} to {high} of {windows}) on {self.device}"
        doubt = f"Disturbed: other processes took {self.others_share:.0%} of the CPU. "
        doubt = doubt if self.others_share > contention.OTHERS_SHARE else ""
        return f"{doubt}{head}\n  {', '.join(parts)}\n  Your loop: not compared with float64."


class Meter:
    """Measures a loop from the calls of `tick`, in windows between two synchronisations of the device.

    The first step, which may compile, and a window for warming up do not count.

    Args:
        samples: of a batch; a shorter batch, as at the end of an epoch, counts in proportion.
        device: a key of `KINDS`, or best.
        framework: that trains; empty: the first of `FRAMEWORKS` that the script has imported.
        window_seconds: about the length of a window. It has as many steps as that takes at the rate of the one before:
            a step returns before its device has computed it, so that the host's clock tells nothing.
        most_seconds: of all windows; they end earlier if the last ones do not widen the range.

    Raises:
        ValueError: a number that is not above 0, or an unknown framework.
        DeviceUnavailable: this machine has no such device; the message lists those it has.
    """

    def __init__(
        self,
        samples: float,
        device: str = "best",
        framework: str = "",
        window_seconds: float = 1.0,
        most_seconds: float = 60.0,
    ) -> None:
        numbers = {"samples": samples, "window_seconds": window_seconds, "most_seconds": most_seconds}
        for name, value in numbers.items():
            if not value > 0:
                raise ValueError(f"{name} {value!r}; allowed: above 0")
        self.samples, self.window_seconds, self.most_seconds = samples, window_seconds, most_seconds
        self.windows: list[tuple[float, Window]] = []  # samples and measures
        self._device, self._sensor = _opened(device, framework or _imported())
        self._length: int | None = None  # of the first batch
        self._wanted = 1  # steps of a window
        self._begin()
        made.append(self)

    def _begin(self) -> None:
        self._count, self._steps = 0.0, 0
        self._block = measuring.window(self._device, self._sensor)
        self._window = self._block.__enter__()

    def inputs(self, batches: Iterable) -> Iterator:
        """Yield batches; the time spent waiting for them is the `input_share`."""
        iterator, end = iter(batches), object()
        while (batch := next(self._window.inputs(iterator), end)) is not end:
            yield batch

    def tick(self, last: Any = None, batch: Any = None) -> bool:
        """Count a step that was just queued; return whether enough is known.

        Args:
            last: what the step returned, such as the loss. JAX and MLX wait for it at the end of a window.
            batch: what the step got, if a batch may be shorter than the first.
        """
        length = _length(batch)
        self._length = self._length or length
        self._count += self.samples * length / self._length if length else self.samples
        self._steps += 1
        if self._steps < self._wanted:
            return False
        self._window.last = last
        self._block.__exit__(None, None, None)
        self.windows.append((self._count, self._window))
        self._wanted = max(1, round(self._steps * self.window_seconds / max(self._window.seconds, 1e-6)))
        if len(self.windows) == WARM_UP:
            self._before, self._measures_from = contention.cpu_seconds(), time.monotonic()
        self._begin()
        rates = self._rates()
        is_stable = len(rates) >= 2 * LAST and (
            min(rates[:-LAST]) <= min(rates[-LAST:]) and max(rates[-LAST:]) <= max(rates[:-LAST])
        )
        return is_stable or sum(window.seconds for _, window in self.counted) >= self.most_seconds

    @property
    def counted(self) -> list[tuple[float, Window]]:
        """Return the windows after the warm-up."""
        return self.windows[WARM_UP:]

    def _rates(self) -> list[float]:
        return [samples / window.seconds for samples, window in self.counted]

    def rate(self) -> Rate:
        """Return the rate of the windows so far.

        Raises:
            ValueError: the loop ended before a window did.
        """
        rates = self._rates()
        if not rates:
            allowed = f"allowed: more batches, or window_seconds under {self.window_seconds:g}"
            raise ValueError(f"the loop ended before a window was measured; {allowed}")
        elapsed = time.monotonic() - self._measures_from
        counts, windows = zip(*self.counted, strict=True)
        seconds, joules = sum(each.seconds for each in windows), [each.energy.joules for each in windows]
        return Rate(
            statistics.median(rates), min(rates), max(rates), tuple(rates),
            input_share=sum(each.input_seconds for each in windows) / seconds,
            peak_memory_bytes=max(each.peak_memory_bytes or 0 for each in windows) or None,
            joules_per_sample=None if None in joules else sum(joules) / sum(counts),
            others_share=contention.shares(self._before, contention.cpu_seconds(), elapsed)[0],
            device=f"{self._device.name} ({self._device.kind}, {WORDS[self._device.framework]})",
        )  # fmt: skip


def measure(step: Callable[[Any], Any], batches: Iterable, samples: float, **options: Any) -> Rate:
    """Train with your own step until the rate's range is stable; print the rate, and return it.

    Args:
        step: takes a batch, trains on it, and returns what depends on the whole step, such as the loss.
        batches: such as a loader, which is repeated; a generator must last for some windows.
        samples: of a batch.
        options: of `Meter`.

    Raises:
        ValueError: no batch, a loop that ends before a window does, or a wrong option.
        Exception: whatever the step raises; the rate so far is printed before.
    """
    meter = Meter(samples, **options)
    try:
        for batch in meter.inputs(_again(batches)):
            if meter.tick(step(batch), batch):
                break
    except Exception:
        if meter.counted:
            print(meter.rate(), flush=True)
        raise
    rate = meter.rate()
    print(rate, flush=True)
    return rate


def window(device: str = "best", framework: str = "") -> AbstractContextManager[Window]:
    """Measure the body of a `with` block: seconds, waiting for input, peak memory, joules.

        with benchbook.window() as timed:
            for batch in timed.inputs(loader): ...
        print(timed.seconds, timed.input_seconds, timed.peak_memory_bytes, timed.energy.joules)

    Args:
        device, framework: as for `Meter`.
    """
    return measuring.window(*_opened(device, framework or _imported()))


def run_script(path: str, arguments: list[str]) -> Rate:
    """Run a script as `python path arguments` does; return the rate that it measured.

    Raises:
        ValueError: the script measures nothing, or several loops.
        BaseException: whatever ended the script, such as SystemExit.
    """
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")
    if len(made) != 1:
        name, allowed = Path(path).name, "one call of benchbook.measure"
        raise ValueError(
            f"{name} measures {len(made)} loops; allowed: {allowed}, or {name}:NETWORK for a network in it"
        )
    return made[0].rate()


@functools.cache
def _opened(device: str, framework: str) -> tuple[devices.Device, sensors.Sensor]:
    picked = devices.pick(device, framework)
    return picked, sensors.open_sensor(picked)


def _imported() -> str:
    return next((name for name in FRAMEWORKS if name in sys.modules), "torch")


def _again(batches: Iterable) -> Iterator:
    """Yield batches epoch after epoch; those of a generator once."""
    for epoch in itertools.count():
        number = -1
        for number, batch in enumerate(batches):  # noqa: B007 (the number is used below)
            yield batch
        if number < 0 and not epoch:
            raise ValueError("batches has no batch; allowed: one or more")
        if isinstance(batches, Iterator):
            return


def _length(batch: Any) -> int | None:
    """Return the length of the first array in a batch; None if there is none."""
    while isinstance(batch, Mapping | list | tuple) and batch:
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    shape = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else None
