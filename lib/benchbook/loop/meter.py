"""Measure any training loop. Step, optimiser, batches and script stay the user's own, and no
rows are written.

    benchbook.measure(step, loader, samples=64)

A loop that another library runs is measured by one of `benchbook.callbacks`, or calls a `Meter`
after each step.
"""

import inspect
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from benchbook.frameworks import batches as loaders
from benchbook.frameworks import devices
from benchbook.loop import ranks, stretch
from benchbook.loop.rate import Rate
from benchbook.loop.stretch import Mark, Stretch
from benchbook.machine import contention
from benchbook.measuring import sensors
from benchbook.measuring.window import Inputs

IDLE_SHARE = 0.05  # of the time, between the last step and `rate`
Samples = float | Callable[[Any], float]
meters: list["Meter"] = []  # of this process


class Meter:
    """Measures a loop from the calls of `tick`, in one stretch. Its windows begin and end when the
    device has finished.

    The first step and a warm-up of a second and three steps do not count. The stretch lasts 30 s
    or 200 steps, whichever is later. With several ranks of torch, each has a Meter and takes as
    many steps.

    Args:
        samples: of each step in this process, or a function that returns it for a batch; ranks
            that share a batch give their part each.
        every: steps after which the work repeats, such as those between two checkpoints: the
            stretch then holds whole cycles, at least ten or as many as fit in `most_seconds`.
        device: whose name, memory and joules are shown, such as cuda:1; None: that of what the
        step returned.
        most_seconds: of the stretch; a slow energy counter may need more.
        total: returns all samples so far, in place of `samples`, if a library counts them.

    Raises:
        ValueError: a wrong argument.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        every: int | None = None,
        device: str | None = None,
        most_seconds: float = 60.0,
        total: Callable[[], float] | None = None,
    ) -> None:
        for name, value in {
            "samples": samples,
            "every": every or 1,
            "most_seconds": most_seconds,
        }.items():
            also = ", or a function of a batch" if name == "samples" else ""
            if not ((isinstance(value, numbers.Real) and value > 0) or (also and callable(value))):
                raise ValueError(f"{name} {value!r}; allowed: a number above 0{also}")
        self.samples, self.every, self.most_seconds = samples, every, most_seconds
        self._named = devices.parse(device) if device else None
        self._marks: list[Mark] = []  # the ends of windows
        self._stretch, self._first = (
            Stretch(),
            None,
        )  # the warm-up's; and the step before the stretch that counts
        self._steps, self._count, self._next, self._ticked = 0, 0.0, 1, 0.0
        self._total, self._begun = total, 0.0  # what it had counted when the stretch began
        # The rows of batches whose samples are a number, and that number.
        self._rows, self._stated = set[int](), 0.0
        self._empty = 0  # steps that returned nothing
        self._num_workers, self._has_inputs, self._result = None, False, None
        meters.append(self)
        self._ranks = ranks.Ranks(f"loop-{len(meters)}")

    def give_up(self) -> None:
        """Forget the loop, unless its rate is known: its library gave up that training."""
        if self._result is None and self in meters:
            meters.remove(self)

    def inputs(self, batches: Iterable) -> Inputs:
        """Return the batches, with their attributes; the time spent waiting for them is the
        `input_share`."""
        self._has_inputs, self._num_workers = True, getattr(batches, "num_workers", None)
        return Inputs(batches, lambda: self._stretch.window)

    def tick(self, last: Any = None, batch: Any = None, steps: int = 1) -> bool:
        """Count steps that were just queued; return whether enough is known.

        Args:
            last: what the step returned, such as the loss: its device is named, and MLX
            evaluates it.
            batch: what the step got: for `samples`, if it is a function; a number is doubted if
            batches have unequal lengths.
            steps: of this call.

        Raises:
            ValueError: two cycles do not fit, ranks took unequal steps, the named device is not
            in use, or the samples of a batch are no finite number above 0.
        """
        if self._result is None:
            self._steps += steps
            self._empty += last is None
            with self._refusing():
                self._count += self._samples_of(batch, steps)
            self._ticked = self._stretch.seconds()
            if self._steps >= self._next:
                with self._refusing():
                    (self._warm_up if self._first is None else self._check)(last)
        return self._result is not None

    def look(self, batch: Any, stated: float) -> None:
        """Remember how many rows a batch has: its stated samples are doubted if they vary."""
        self._stated = stated
        if (found := loaders.rows(batch)) is not None:
            self._rows.add(found)

    def _samples_of(self, batch: Any, steps: int) -> float:
        """Return the samples of some steps."""
        if not callable(self.samples):
            self.look(batch, self.samples)
            return self.samples * steps
        count = self.samples(batch)
        with suppress(TypeError, ValueError):  # an array of one number is a number
            if 0 < float(count) < math.inf:
                return float(count)
        raise ValueError(f"samples of a batch are {count!r}; allowed: a finite number above 0")

    def _so_far(self) -> float:
        """Return the samples since the stretch, or the warm-up, began."""
        return self._total() - self._begun if self._total else self._count

    def paused(self) -> AbstractContextManager[None]:
        """Leave the body of a `with` block, such as validation, out of what is measured."""
        return self._stretch.paused()

    def rate(self, last: Any = None) -> Rate:
        """Return the rate; call it right after a loop that ends by itself, with what the last
        step returned.

        Raises:
            ValueError: too little was measured, or see `tick`.
        """
        if self._result is None:
            with self._refusing():
                self._end_early(last)
        if isinstance(self._result, ValueError):
            raise self._result
        return self._result

    def report(self, last: Any = None) -> Rate:
        """Print the rate, in one of several ranks; return it as `rate` does."""
        rate = self.rate(last)
        if self._ranks.speaks:
            print(rate, flush=True)
        return rate

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            self._result = error
            raise

    def _mark(self, seconds: float = ranks.USUAL_SECONDS) -> Mark:
        """Return the end of a window for all ranks."""
        elapsed, counts = self._ranks.exchange(
            self._steps, self._stretch.seconds(), self._so_far(), seconds=seconds
        )
        return Mark(self._steps - (self._first or 0), max(elapsed), sum(counts))

    def _warm_up(self, last: Any) -> None:
        devices.wait(last)
        self._marks.append(
            now := self._mark(ranks.USUAL_SECONDS if self._marks else ranks.FIRST_SECONDS)
        )
        self._next = max(stretch.WARM_UP_STEPS, 2 * self._steps)
        if (
            now.steps < stretch.WARM_UP_STEPS
            or now.seconds - self._marks[0].seconds < stretch.WARM_UP_SECONDS
        ):
            return
        self._device = devices.used(self._named, last)
        sensor = sensors.open_sensor(self._device)
        self._before, self._measures_from = contention.cpu_seconds(), self._stretch.window.clock()
        # All are ready: none waits for another in the stretch, and all have one limit.
        (least,) = self._ranks.exchange(self._steps, sensor.least_seconds)
        self.most_seconds, before = max(self.most_seconds, *least), self._marks[-2]
        pace = max(now.seconds - before.seconds, 1e-9) / (now.steps - before.steps)
        planned = (
            min(max(stretch.STRETCH_STEPS * pace, stretch.STRETCH_SECONDS), self.most_seconds)
            / pace
        )
        stride = max(1, round(planned / stretch.WINDOWS))
        self._plan = (
            stretch.Cycles(self.most_seconds, stride, self.every)
            if self.every
            else stretch.Steps(self.most_seconds, stride)
        )
        self._first, self._count = self._steps, 0.0
        self._begun, self._rows, self._empty = self._total() if self._total else 0.0, set(), 0
        self._marks = [Mark(0, 0.0, 0.0)]
        self._next = self._steps + self._plan.until_next(self._marks[0])
        self._stretch = Stretch(self._device, sensor, devices.wait)

    def _check(self, last: Any) -> None:
        """End a window, and the stretch if it is long enough."""
        devices.wait(last)  # else a window is as long as the device's queue lets it be
        now = self._mark()
        if self._plan.is_over(self._marks, now):
            cut = f"cut by most_seconds={self.most_seconds:g}, before 30 s and 200 steps"
            self._finish(last, "" if self.every or now.is_long else cut)
        self._next += self._plan.until_next(now)

    def _end_early(self, last: Any) -> None:
        idle, now = self._stretch.seconds() - self._ticked, self._mark(ranks.END_SECONDS)
        if self._first is None or not now.steps:
            raise ValueError(
                f"the loop ended in its warm-up, after step {self._steps}; allowed: more batches"
            )
        if idle > IDLE_SHARE * now.seconds:
            raise ValueError(
                f"{idle:.3g} s between the last step and rate(); allowed: calling it right after the loop"
            )
        if self.every and len(self._marks) <= stretch.FEWEST_CYCLES:
            raise ValueError(
                f"the loop ended before two cycles of {self.every} steps did; allowed: more batches"
            )
        self._finish(last, "the loop ended by itself, before 30 s and 200 steps")

    def _finish(self, last: Any, note: str) -> None:
        parts = self._stretch.end(last)
        spent = [part.energy.joules for part in parts]
        can_add = (
            self._ranks.count == 1 or parts[-1].energy.boundary == "board"
        )  # two ranks may share a CPU's counter
        own = (
            sum(part.seconds for part in parts),
            sum(part.input_seconds for part in parts),
            self._so_far(),
        )
        peak = max(part.peak_memory_bytes or 0 for part in parts)
        joules = sum(spent) if None not in spent else None
        seconds, waited, counts, peaks, spent = self._ranks.exchange(
            self._steps, *own, peak, joules if can_add else None
        )
        end = Mark(self._steps - self._first, max(seconds), sum(counts))
        if (
            self.every and self._marks[-1].steps < end.steps
        ):  # a loop that ended by itself had begun one more cycle
            end = self._marks[-1]
        marks = self._marks if self._marks[1:] else [*self._marks, end]
        windows = tuple(
            (b.samples - a.samples, max(b.seconds - a.seconds, 1e-9))
            for a, b in itertools.pairwise(marks)
        )
        elapsed, count = parts[-1].clock() - self._measures_from, self._ranks.count
        self._result = Rate(
            *(end.samples, end.steps, end.seconds, windows),
            input_share=sum(waited) / sum(seconds) if self._has_inputs else None,
            peak_memory_bytes=max(peaks) or None,
            joules_per_sample=None if None in spent else sum(spent) / sum(counts),
            others_share=contention.shares(self._before, contention.cpu_seconds(), elapsed)[0],
            device=(f"{count} ranks, each on " if count > 1 else "") + devices.words(self._device),
            num_workers=self._num_workers,
            note=note,
            doubt=self._doubt(),
        )

    def _doubt(self) -> str:
        """Return why the samples may be miscounted; empty if they are not."""
        if len(self._rows) > 1 and (
            self._stated in self._rows or self._stated % max(self._rows) == 0
        ):  # else rows are something else, such as the time of a sequence
            found = f"batches had {min(self._rows)} to {max(self._rows)} rows"
            passed = "if rows are samples, pass a function, such as lambda batch: len(batch[0])"
            return f"{found}, and samples is {self._stated:g}; {passed}"
        if 0 < self._empty < self._steps - self._first:
            steps = f"{self._empty} of {self._steps - self._first} steps"
            return f"{steps} returned nothing: those that gave up a batch count as trained"
        return ""


def measure(
    step: Callable[[Any], Any], batches: Iterable, samples: Samples, **options: Any
) -> Rate:
    """Train with your own step until its rate is known; print the rate, and return it.

    Args:
        step: takes a batch, trains on it, and returns what depends on the whole step, such as
        the loss.
        batches: such as a loader, which is repeated; a generator should last for 30 s and 200
        steps. samples, options: of `Meter`.

    Raises:
        ValueError: no batch, a loop that ends before its warm-up does, or a wrong argument.
        Exception: whatever the step raises, or an interrupt; the rate so far is printed before.
    """
    if not callable(step) or inspect.isgeneratorfunction(step) or not hasattr(batches, "__iter__"):
        raise ValueError(
            f"measure({step!r}, {batches!r}); allowed: a function of a batch, and batches"
        )
    try:
        inspect.signature(step).bind(None)
    except TypeError:
        allowed = "measure(lambda batch: step(*batch), ...), and a step, not a whole training"
        raise ValueError(
            f"step takes {inspect.signature(step)}, not one batch; allowed: {allowed}"
        ) from None
    except ValueError:  # some functions in C have no signature
        pass
    meter, last, taken = Meter(samples, **options), None, None
    inputs = meter.inputs(batches)
    try:
        while taken != meter._steps:  # a generator yields no more
            taken = meter._steps
            for batch in inputs:
                last = None  # frees what the step before returned
                last = step(batch)
                if meter.tick(last, batch):
                    return meter.report()
    except BaseException:
        if meter._ranks.count == 1 and meter._first is not None:
            with suppress(ValueError):
                meter.report()
        raise
    if not meter._steps:
        raise ValueError("batches has no batch; allowed: one or more")
    return meter.report(last)
