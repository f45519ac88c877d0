"""A stretch of a loop of the user's own: a window that pauses may interrupt."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from benchbook.frameworks.devices import Device
from benchbook.measuring import window as measuring
from benchbook.measuring.sensors import NO_SENSOR, Sensor
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
        self,
        device: Device | None = None,
        sensor: Sensor = NO_SENSOR,
        wait: Callable[[Any], None] = lambda last: None,
    ) -> None:
        self._given, self._parts, self._block = (device, sensor, wait), [], ExitStack()
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
            if was_open and self._given:
                self._open()

    def end(self, last: Any = None) -> list[Window]:
        """End the stretch, and return its parts."""
        self._close(last)
        self._given = None
        return self._parts
