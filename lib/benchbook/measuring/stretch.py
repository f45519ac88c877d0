"""A stretch of a loop of the user's own: a window that pauses may interrupt, its warm-up, and when it is over."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from benchbook.frameworks.devices import Device
from benchbook.measuring import window as measuring
from benchbook.measuring.sensors import NO_SENSOR, Energy, Sensor
from benchbook.measuring.window import Window

WARM_UP_SECONDS, WARM_UP_STEPS = 1.0, 3  # both, after the first step
STRETCH_SECONDS, STRETCH_STEPS = 30.0, 200  # whichever is later
FEWEST_CYCLES, CYCLES, WINDOWS = 2, 10, 40


class Mark(NamedTuple):
    """Steps, seconds and samples from the beginning of a stretch."""

    steps: int
    seconds: float
    samples: float


class Stretch:
    """A window that pauses may interrupt, for the arguments of `window`.

    Attributes:
        window: the part of it that is measured now.
    """

    def __init__(
        self, device: Device | None = None, sensor: Sensor = NO_SENSOR, wait: Callable[[Any], None] = lambda last: None
    ) -> None:
        self._given, self._parts, self._block, self._is_over = (device, sensor, wait), [], ExitStack(), False
        self._open()

    def _open(self) -> None:
        self.window = self._block.enter_context(measuring.window(*self._given))
        self._opened = measuring.time.perf_counter()

    def _close(self, last: Any = None) -> None:
        if self._opened is not None:
            self.window.last = last
            self._block.close()
            self.window.last = self._opened = None
            self._parts.append(self.window)
            self.window = Window()

    def seconds(self) -> float:
        """Return the seconds so far, without pauses."""
        now = 0.0 if self._opened is None else measuring.time.perf_counter() - self._opened
        return sum(part.seconds for part in self._parts) + now

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the body of a `with` block out; a pause inside another one changes nothing."""
        was_open = self._opened is not None
        self._close()
        try:
            yield
        finally:
            if was_open and not self._is_over:
                self._open()

    def end(self, last: Any = None) -> Window:
        """Return the whole: its time, its peak memory, and its joules if all parts have them."""
        self._close(last)
        self._is_over, whole, joules = True, Window(), [part.energy.joules for part in self._parts]
        whole.seconds = sum(part.seconds for part in self._parts)
        whole.input_seconds = sum(part.input_seconds for part in self._parts)
        whole.peak_memory_bytes = max(part.peak_memory_bytes or 0 for part in self._parts) or None
        whole.energy = Energy() if None in joules else replace(self._parts[-1].energy, joules=sum(joules))
        return whole


def is_warm(marks: list[Mark]) -> bool:
    """Return whether the warm-up is over; the first mark is the end of the first step."""
    return marks[-1].steps >= WARM_UP_STEPS and marks[-1].seconds - marks[0].seconds >= WARM_UP_SECONDS


def window_steps(marks: list[Mark], every: int | None, most_seconds: float) -> int:
    """Return the steps of a window, or of a part of a cycle, from two marks of the warm-up."""
    before, now = marks[-2:]
    pace = max(now.seconds - before.seconds, 1e-9) / (now.steps - before.steps)
    planned = min(max(STRETCH_STEPS * pace, STRETCH_SECONDS), most_seconds) / pace
    return min(max(1, round(planned / WINDOWS)), every or sys.maxsize)


def is_long(mark: Mark) -> bool:
    """Return whether a stretch without a limit would be over."""
    return mark.seconds >= STRETCH_SECONDS and mark.steps >= STRETCH_STEPS


def is_over(marks: list[Mark], now: Mark, every: int | None, most_seconds: float) -> bool:
    """Add the end of a window or cycle to the marks; return whether the stretch is over.

    Raises:
        ValueError: two cycles do not fit in `most_seconds`, or a cycle ended between two calls.
    """
    length = now.steps - marks[-1].steps
    if is_whole := length == (every or length):
        marks.append(now)
    if not every:
        return is_long(now) or now.seconds >= most_seconds
    if length > every:
        raise ValueError(f"every {every}; allowed: a multiple of the steps in a call of tick")
    cycles = len(marks) - 1
    if cycles < FEWEST_CYCLES and now.seconds * (FEWEST_CYCLES if is_whole else 1) > most_seconds:
        need = f"two cycles take about {FEWEST_CYCLES * every * now.seconds / now.steps:,.0f} s"
        raise ValueError(f"every {every}: {need}; allowed: most_seconds above that")
    return is_whole and ((is_long(now) and cycles >= CYCLES) or now.seconds * (1 + 1 / cycles) > most_seconds)
