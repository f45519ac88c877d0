"""The rate of a loop of the user's own, and what is said of it."""

import re
from dataclasses import dataclass

from benchbook.judging import wording
from benchbook.machine import contention, identity

HINT_SHARE = 0.05  # of the time, spent waiting for input
RARE = 3  # times the time of as many windows
SLOWEST = 1 / 20  # of the windows: the time in them shows work that comes rarely


def accelerator(device: str) -> str:
    """Return the name of the accelerator in words for a device; empty for a CPU or an unknown one."""
    found = re.match(r"(?:.*each on )?(?:\d+ x )?((?!an unknown).+) \((?!cpu)", device)
    return found[1] if found else ""


@dataclass(frozen=True)
class Rate:
    """The rate of a loop in one process, or in all ranks of a job: samples over seconds of one
    stretch.

    Attributes:
        samples, steps, seconds: of the stretch; each rank took so many steps.
        windows: samples and seconds of each part of it, for the spread.
        input_share: the share of the time in which the loop waited for input; None if that was
        not measured.
        peak_memory_bytes: see `devices.peak_memory`; None if it is not counted or the device is
        unknown.
        joules_per_sample: None without a sensor or a known device.
        others_share: the share of the CPU that other processes took meanwhile.
        device: its name, kind and framework.
        num_workers: of the loader; None: it has no such number.
        note: how the stretch ended; empty if as planned.
        doubt: why the samples may be miscounted.
    """

    samples: float
    steps: int
    seconds: float
    windows: tuple[tuple[float, float], ...]
    input_share: float | None
    peak_memory_bytes: int | None
    joules_per_sample: float | None
    others_share: float
    device: str
    num_workers: int | None = None
    note: str = ""
    doubt: str = ""

    @property
    def samples_per_second(self) -> float:
        """Return all samples of the stretch over all of its seconds."""
        return self.samples / self.seconds

    @property
    def rates(self) -> tuple[float, ...]:
        """Return the samples per second of each window."""
        return tuple(samples / seconds for samples, seconds in self.windows)

    @property
    def chip(self) -> str:
        """Return the name of the accelerator; empty for a CPU or an unknown device."""
        return accelerator(self.device)

    def __str__(self) -> str:
        number, share, cores = len(self.windows), self.input_share, identity.usable_cores()
        memory, joules = self.peak_memory_bytes, self.joules_per_sample
        times = sorted((seconds for _, seconds in self.windows), reverse=True)
        num_slow = max(1, round(number * SLOWEST))
        slow, windows = sum(times[:num_slow]) / sum(times), wording.count(number, "window")
        is_disturbed = self.others_share > contention.OTHERS_SHARE
        doubt = f"Miscounted? {wording.sentence(self.doubt)} " if self.doubt else ""
        if is_disturbed:
            doubt += f"Disturbed: other processes took {self.others_share:.0%} of the CPU. "
        spread = f"range {wording.four_digits(min(self.rates))} to {wording.four_digits(max(self.rates))} of {windows}"
        rare = (
            "; for work that comes every n steps, pass every=n"
            if slow > RARE * num_slow / number
            else ""
        )
        parts = [] if share is None else [f"waits for input {share:.1%} of the time"]
        without = wording.number(self.samples_per_second / max(1 - (share or 0), 0.01))
        more = (
            f"; try num_workers={cores}"
            if self.num_workers is not None and self.num_workers < cores
            else ""
        )
        hint = f"{share or 0:.0%} of the time is input: without it about {without} samples/s{more}"
        parts += [
            f"peak memory {wording.number(memory / 2**30)} GiB"
            if memory
            else "peak memory not counted"
        ]
        parts += [f"{wording.number(joules)} J a sample" if joules else "no energy counter"]
        lines = [
            f"{doubt}{wording.four_digits(self.samples_per_second)} samples/s ({spread}) on {self.device}",
            f"{wording.count(self.steps, 'step')} in {wording.duration(self.seconds)}, {slow:.0%} of the time in the"
            f" slowest {num_slow} of {windows}{rare}",
            ", ".join(parts),
        ]
        lines += filter(None, (self.note, hint if (share or 0) > HINT_SHARE else ""))
        if self.chip:
            lines.append(
                f'On another chip, as published: benchbook compare "{self.chip}" "RTX 4090"'
            )
        return "\n  ".join([*lines, "Your loop: not compared with float64."])
