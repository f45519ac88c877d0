"""How often intervals cover the truth, call equal points different, and see a difference.

Run it with `make bench STUDIES=statistics`. Kernels and their windows are drawn by chance; the intervals are those of
`benchbook.judging.intervals`. Where a history of the machine has at least 5 degrees of freedom, an interval covers the
truth in at least 90 % of cases; and two equal points of one machine are called different in at most 6 % of cases, 8 %
where kernels fall into two modes. A case that breaks this is named, and the exit status is 1.
"""

import argparse
import sys
from dataclasses import dataclass

import numpy

from benchbook.judging import intervals
from benchbook.measuring.protocol import Plan

KERNELS, HISTORIES, NOISES = (1, 2, 3, 5), (0, 5, 20), ("normal", "correlated", "heavy-tailed")
NOISE = 0.02  # standard deviation of a window, as a fraction
LEAST_COVERAGE, MOST_FALSE, MOST_FALSE_OF_MODES = 0.90, 0.06, 0.08
NUM_WINDOWS = 6


@dataclass(frozen=True)
class Machine:
    """How kernels and windows of a machine differ.

    Attributes:
        deviation: between kernels, on the log scale: a standard deviation, or how far apart two modes are.
        has_modes: whether kernels fall into two modes, each as likely.
        noise: normal, correlated (0.8 from one window to the next) or heavy-tailed (Student's t, 2.5 degrees).
        widest: ask for more windows of a kernel until they are this narrow, as `Plan.widest_interval`; 0: 6 windows.
    """

    deviation: float
    has_modes: bool
    noise: str
    widest: float = 0.0

    @property
    def name(self) -> str:
        """Return it as the tables call it."""
        modes = "modes apart" if self.has_modes else "deviation"
        return f"{modes} {self.deviation:4.0%}, {self.noise}" + (f", windows to {self.widest:.0%}" * bool(self.widest))

    def kernels(self, random: numpy.random.Generator, repeats: int, count: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return log medians of kernels and the squared errors of their windows, each of shape (repeats, count)."""
        shape = (repeats, count)
        drawn = random.integers(2, size=shape) - 0.5 if self.has_modes else random.normal(size=shape)
        most = NUM_WINDOWS * (Plan.MOST if self.widest else 1)
        windows = (self.deviation * drawn)[..., None] + _noise(random, self.noise, (*shape, most))
        lengths = numpy.full(shape, most)
        for length in range(NUM_WINDOWS, most):
            narrow = intervals.windows_width(numpy.exp(windows[..., :length])) <= self.widest
            lengths = numpy.where(narrow, numpy.minimum(lengths, length), lengths)
        levels, errors = numpy.empty(shape), numpy.empty(shape)
        for length in numpy.unique(lengths):
            some = windows[lengths == length][:, :length]
            levels[lengths == length] = numpy.median(some, axis=-1)
            errors[lengths == length] = intervals.median_error(some)
        return levels, errors**2


MACHINES = [
    Machine(deviation, has_modes, noise)
    for deviation, has_modes in (*((size, False) for size in (0.0, 0.01, 0.03, 0.05, 0.1)), (0.1, True), (0.2, True))
    for noise in NOISES
]
STOPPING = [Machine(deviation, False, noise, 0.01) for deviation in (0.0, 0.05) for noise in NOISES]


def simulate(machine: Machine, num_kernels: int, history: int, difference: float, repeats: int) -> dict:
    """Return the shares of cases in which an interval covers the truth, and in which two points are called different.

    Args:
        machine: whose kernels are drawn.
        num_kernels: of each point.
        history: its degrees of freedom.
        difference: by which the second point is faster, on the log scale, where power is asked.
        repeats: how many cases are drawn.

    Returns:
        covered (None where a range is shown), false and power (None where there is no verdict).
    """
    random = numpy.random.default_rng([num_kernels, history, (MACHINES + STOPPING).index(machine)])
    (a, a_errors), (b, b_errors) = (machine.kernels(random, repeats, num_kernels) for _ in range(2))
    past = _squares(machine.kernels(random, repeats, history + 1)[0]) if history else 0.0
    shares = {"covered": None, "false": None, "power": None}
    freedom = history + num_kernels - 1
    if freedom >= intervals.FEWEST_FREEDOM:
        width = _reach(past + _squares(a), freedom, a_errors, num_kernels)
        shares["covered"] = float(numpy.mean(numpy.abs(a.mean(axis=1)) <= width))
    freedom += num_kernels - 1
    if freedom >= intervals.FEWEST_FREEDOM:
        squares = past + _squares(a) + _squares(b)
        width = numpy.hypot(*(_reach(squares, freedom, errors, num_kernels) for errors in (a_errors, b_errors)))
        apart = b.mean(axis=1) - a.mean(axis=1)
        shares["false"] = float(numpy.mean(numpy.abs(apart) > width))
        shares["power"] = float(numpy.mean(apart + difference > width))
    return shares


def _reach(squares, freedom: int, errors: numpy.ndarray, num_kernels: int) -> numpy.ndarray:
    return intervals.reach(*intervals.variance(squares, freedom, errors.mean(axis=1)), num_kernels)


def _squares(levels: numpy.ndarray) -> numpy.ndarray:
    return numpy.sum(numpy.square(levels - levels.mean(axis=1, keepdims=True)), axis=1)


def _noise(random: numpy.random.Generator, kind: str, shape: tuple) -> numpy.ndarray:
    if kind == "heavy-tailed":
        return NOISE * random.standard_t(2.5, size=shape) / 5**0.5  # its variance is 5
    noise = random.normal(size=shape)
    for place in range(1, shape[-1] if kind == "correlated" else 0):
        noise[..., place] = 0.8 * noise[..., place - 1] + 0.6 * noise[..., place]
    return NOISE * noise


def main() -> None:
    """Print the tables; exit 1 if a case breaks a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=6000, help="cases drawn for each cell")
    parser.add_argument("--difference", type=float, default=0.2, help="between two points, as a fraction, for power")
    options = parser.parse_args()
    faster = float(numpy.log1p(options.difference))
    titles = {
        "covered": f"95 % intervals that cover the truth, % (with a history {100 * LEAST_COVERAGE:.0f} or more)",
        "false": f"Equal points called different, % (at most {100 * MOST_FALSE:.0f}, of modes "
        f"{100 * MOST_FALSE_OF_MODES:.0f})",
        "power": f"Points {options.difference:.0%} apart of which the faster one is named, %",
    }
    cells = {
        (machine, history, count): simulate(machine, count, history, faster, options.repeats)
        for machine in MACHINES + STOPPING
        for history in HISTORIES
        for count in KERNELS
    }
    for kind, title in titles.items():
        print(f"\n{title}\n{'history (degrees of freedom)':44}" + "".join(f"{history:<28}" for history in HISTORIES))
        print(f"{'kernels':44}" + "".join("".join(f"{count:<6}" for count in KERNELS) + "    " for _ in HISTORIES))
        for machine in MACHINES + STOPPING:
            shares = [[cells[machine, history, count][kind] for count in KERNELS] for history in HISTORIES]
            words = ["".join(f"{_percent(share):<6}" for share in part) + "    " for part in shares]
            print(f"{machine.name:44}" + "".join(words))
    print("\nrange: too few degrees of freedom for an interval, and so for a verdict.")
    broken = [
        f"{machine.name}: history {history}, {count} kernels"
        for (machine, history, count), cell in cells.items()
        if _breaks(machine, history, cell)
    ]
    print(f"Limits broken: {'; '.join(broken) or 'none'}")
    sys.exit(bool(broken))


def _breaks(machine: Machine, history: int, cell: dict) -> bool:
    most = MOST_FALSE_OF_MODES if machine.has_modes else MOST_FALSE
    return (history >= 5 and (cell["covered"] or 0) < LEAST_COVERAGE) or (cell["false"] or 0) > most


def _percent(share: float | None) -> str:
    return "range" if share is None else f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
