"""A stretch of a loop of the user's own: a window that pauses may interrupt."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchbook.frameworks.devices import Device
from benchbook.measuring.sensors import NO_SENSOR, Sensor
from benchbook.measuring.window import Window, window

WARM_UP_SECONDS, WARM_UP_STEPS = 1.0, 3  # both, after the first step
STRETCH_SECONDS, STRETCH_STEPS = 30.0, 200  # whichever is later
FEWEST_CYCLES, CYCLES, WINDOWS = 2, 10, 40


class Mark(NamedTuple):
    """Steps, seconds and samples from the beginning of a stretch."""

    steps: int
    seconds: float
    samples: float

    @property
    def is_long(self) -> bool:
        """Return whether a stretch that ends here has 30 s and 200 steps."""
        return self.seconds >= STRETCH_SECONDS and self.steps >= STRETCH_STEPS


@dataclass(frozen=True)
class Steps:
    """The plan of a stretch of 30 s and 200 steps, whichever is later.

    Attributes:
        most: seconds.
        stride: steps between two marks, which end windows.
    """

    most: float
    stride: int

    def is_over(self, marks: list[Mark], now: Mark) -> bool:
        """End a window here; return whether the stretch is over."""
        marks.append(now)
        return now.is_long or now.seconds >= self.most

    def until_next(self, now: Mark) -> int:
        """Return how many steps from here the next mark is."""
        return self.stride


@dataclass(frozen=True)
class Cycles(Steps):
    """The plan of a stretch of whole cycles, each a window: ten, and 30 s and 200 steps, or as many
    as fit.

    Attributes:
        every: steps of a cycle; marks inside one tell early that two will not fit.
    """

    every: int

    def is_over(self, marks: list[Mark], now: Mark) -> bool:
        length = now.steps - marks[-1].steps
        if length > self.every:
            allowed = "a multiple of the steps in a call of tick"
            raise ValueError(f"every {self.every}; allowed: {allowed}")
        if is_whole := length == self.every:
            marks.append(now)
        cycles = len(marks) - 1
        if cycles < FEWEST_CYCLES and now.seconds * (FEWEST_CYCLES if is_whole else 1) > self.most:
            seconds = FEWEST_CYCLES * self.every * now.seconds / now.steps
            need = f"two cycles take about {seconds:,.0f} s"
            raise ValueError(f"every {self.every}: {need}; allowed: most_seconds above that")
        if not is_whole:
            return False
        is_known = now.is_long and cycles >= CYCLES
        return is_known or now.seconds * (1 + 1 / cycles) > self.most

    def until_next(self, now: Mark) -> int:
        return min(self.stride, self.every - now.steps % self.every)


class Stretch:
    """A window that pauses may interrupt, for the arguments of `window`.

    Attributes:
        window: the part of it that is measured now.
    """

    def __init__(
        self,
        device: Device | None = None,
        sensor: Sensor = NO_SENSOR,
        wait: Callable[[Any], None] = lambda last: None,
    ) -> None:
        self._given, self._parts, self._block = (device, sensor, wait), [], ExitStack()
        self._open()

    def _open(self) -> None:
        self.window = self._block.enter_context(window(*self._given))
        self._opened = self.window.clock()

    def _close(self, last: Any = None) -> None:
        if self._opened is not None:
            self.window.last = last
            self._block.close()
            self.window.last = self._opened = None
            self._parts.append(self.window)
            self.window = Window()

    def seconds(self) -> float:
        """Return the seconds so far, without pauses."""
        now = 0.0 if self._opened is None else self.window.clock() - self._opened
        return sum(part.seconds for part in self._parts) + now

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the body of a `with` block out; a pause inside another one changes nothing."""
        was_open = self._opened is not None
        self._close()
        try:
            yield
        finally:
            if was_open and self._given:
                self._open()

    def end(self, last: Any = None) -> list[Window]:
        """End the stretch, and return its parts."""
        self._close(last)
        self._given = None
        return self._parts
