"""The rates of a loop or a network over fresh processes: when they are known, kept, compared."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchbook.judging import intervals, wording
from benchbook.judging.intervals import Interval
from benchbook.loop.rate import Rate
from benchbook.machine import contention

FEWEST, PART = 2, 0.09  # processes, and the processes' part of half the interval that is enough


def is_known(loops: Sequence[Sequence[Rate]]) -> bool:
    """Return whether further processes would narrow no loop's interval much.

    Args:
        loops: of each loop, its rate in each process.
    """
    for loop in loops:
        rates = [each.samples_per_second for each in loop]
        if len(rates) < FEWEST or intervals.processes_part(rates, range(len(rates))) > PART:
            return False
    return True


@dataclass(frozen=True)
class Result:
    """The rate of one loop or network.

    Attributes:
        name: what was measured, with its settings.
        samples_per_second, low, high, kind: the interval over processes, or the range of one.
        rates: of each process.
        device: its name, kind and framework.
        day: of the measurement, as 2026-11-28.
        num_disturbed: processes in which other programs took much of the CPU.
        losses: of the first steps of the first process; empty for a script.
    """

    name: str
    samples_per_second: float
    low: float
    high: float
    kind: str
    rates: list[float]
    device: str
    day: str
    num_disturbed: int = 0
    losses: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        rates: Sequence[Rate],
        losses: Sequence[float] = (),
        is_virtual: bool = False,
    ) -> "Result":
        """Return the result of a loop's rates in each process.

        Args:
            name, losses: see the class.
            rates: of each process.
            is_virtual: whether a virtual machine measured it; see `contention.is_virtual`.
        """
        if len(rates) > 1:
            values = [each.samples_per_second for each in rates]
            on_virtual_cpu = is_virtual and not rates[0].chip
            deviations = intervals.VIRTUAL if on_virtual_cpu else intervals.UNPAIRED
            whole = intervals.interval(values, range(len(values)), deviations)
        else:
            [one] = rates
            values = [one.samples_per_second]
            whole = Interval(values[0], min(one.rates), max(one.rates), intervals.RANGE)
        disturbed = sum(each.others_share > contention.OTHERS_SHARE for each in rates)
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        about = whole.value, whole.low, whole.high, whole.kind, values, rates[0].device, day
        return cls(name, *about, disturbed, tuple(losses))

    @property
    def interval(self) -> Interval:
        """Return the rate with its bounds."""
        return Interval(self.samples_per_second, self.low, self.high, self.kind)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return wording.bounds(self.low, self.high, self.kind, wording.four_digits)

    def __str__(self) -> str:
        rate, count = wording.four_digits(self.samples_per_second), len(self.rates)
        parts = [self.bounds(), wording.count(count, "process")]
        if self.num_disturbed:
            parts.append(f"other programs disturbed {self.num_disturbed}")
        return f"{self.name}: {rate} samples/s ({'; '.join(parts)})"


def write(results: Sequence[Result], path: Path) -> None:
    """Keep results as JSON."""
    path.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")


def read(path: Path) -> list[Result]:
    """Return the results that `write` kept.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        found = [Result(**line) for line in json.loads(path.read_text(encoding="utf-8"))]
        if not found:
            raise ValueError("it holds no result")
        return found
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"{str(path)!r} ({error}); allowed: a file of `benchbook measure --json`"
        ) from None


def ratios(a: Sequence[Result], b: Sequence[Result]) -> list[tuple[str, Interval]]:
    """Return how many times as fast B is: of results with one name, or of one result each.

    Raises:
        ValueError: no two results have one name.
    """
    others = {each.name: each for each in b}
    pairs = [(own.name, own, others[own.name]) for own in a if own.name in others]
    if not pairs and len(a) == len(b) == 1:
        pairs = [(f"{a[0].name}, then {b[0].name}", a[0], b[0])]
    if not pairs:
        names = ", ".join(each.name for each in a), ", ".join(each.name for each in b)
        raise ValueError(f"A has {names[0]}, B has {names[1]}; allowed: one of the same name")
    return [(name, intervals.divide(two.interval, one.interval)) for name, one, two in pairs]
