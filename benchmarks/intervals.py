"""Simulate points: how often intervals cover the truth, their width, and how often equal code is
called faster.

`make bench STUDIES=intervals` prints tables in some seconds; nothing is timed. It draws rates at
random, normal on the log scale: sessions of a machine differ by `between`, and processes of a
session by `within`, both standard deviations. Each point is measured as a profile's rule says,
and judged as `benchbook.judging` judges rows. The last table is no simulation: it fits the
deviation between sessions, `intervals.VIRTUAL.session`, from the rows in outputs/runs.
"""

import argparse
import itertools
from collections.abc import Iterator

import numpy

from benchbook.judging import compare, intervals, rules, verdicts
from benchbook.judging.intervals import Interval
from benchbook.judging.rules import Point
from benchbook.machine import condition, layout
from benchbook.running import profile_files
from benchbook.studies.checks import CHECKS
from benchbook.studies.experiments.parameters import budget

STUDY = "mnist_speedup"
RULES = {name: budget(STUDY) for name in ("quick", "paper")}
RULES["paper"] |= profile_files.read(layout.profile("paper"))[STUDY]["parameters"]["budget"]
CASES = ((0.02, 0.0), (0.02, 0.03), (0.02, 0.05), (0.05, 0.05), (0.1, 0.05), (0.2, 0.05))
SECOND = ((0.02, 0.04), (0.05, 0.04), (0.1, 0.04))
VIRTUAL = ((0.02, 0.1), (0.05, 0.1), (0.1, 0.1))  # on the CPUs of virtual machines
RATIOS = (0.01, 0.02, 0.03)  # deviations of ratios whose sides alternate in each process
PROCESSES = (2, 3, 4, 6)
STEADY = (0.02, 0.03, 0.05)  # standard deviations of windows
SIZES = ((2, 3), (4, 3), (6, 3), (5, 6))  # processes, and windows of each


def measured(
    rule: str,
    within: float,
    sessions: numpy.ndarray,
    random: numpy.random.Generator,
    is_virtual: bool,
) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return the mean log rate, half the interval and the processes of points, as a profile's
    rule ends them.

    Args:
        rule: a key of RULES.
        within: the deviation between processes of a session.
        sessions: the log rate of each point's session.
        random: the generator.
        is_virtual: whether the intervals are those of a virtual machine's CPU.
    """
    least, most = (RULES[rule][name] for name in ("fewest_processes", "num_processes"))
    deviations = intervals.VIRTUAL if is_virtual else intervals.UNPAIRED
    logs = sessions[:, None] + random.normal(0, within, (len(sessions), most))
    mean, half, used = (numpy.zeros(len(sessions)) for _ in range(3))
    for count in range(least, most + 1):
        part, width = intervals.half_widths(logs[:, :count].var(axis=1, ddof=1), count, deviations)
        ends = (used == 0) & ((part <= RULES[rule]["processes_part"]) | (count == most))
        mean[ends], half[ends], used[ends] = logs[ends, :count].mean(axis=1), width[ends], count
    return mean, half, used


def coverage(
    rule: str, within: float, between: float, number: int
) -> tuple[float, float, float, float, float]:
    """Return how often points cover the machine's mean, and a second session's centre; and more.

    Returns:
        The two shares; the processes of a point, their mean; half its interval, the median; and
        the share of two equal points of one session that are called unlike.
    """
    random = numpy.random.default_rng([int(1000 * within), int(1000 * between)])
    here, there = random.normal(0, between, (2, number))
    is_virtual = (within, between) in VIRTUAL
    (first, half, used), (again, *_), (other, width, _) = (
        measured(rule, within, each, random, is_virtual) for each in (here, there, here)
    )
    covers, holds = (numpy.abs(first) <= half).mean(), (numpy.abs(again - first) <= half).mean()
    unlike = (numpy.abs(first - other) > numpy.hypot(half, width)).mean()
    return covers, holds, used.mean(), numpy.median(half), unlike


def paired(deviation: float, processes: int, number: int) -> tuple[float, float]:
    """Return the coverage of ratios that differ by this deviation, and the share of equal
    settings called tuned."""
    ratios = numpy.random.default_rng(processes).normal(0, deviation, (number, processes))
    _, half = intervals.half_widths(ratios.var(axis=1, ddof=1), processes, intervals.PAIRED)
    return (numpy.abs(ratios.mean(axis=1)) <= half).mean(), (ratios.mean(axis=1) > half).mean()


def false_alarms(processes: int, windows: int, noise: float, number: int) -> float:
    """Return the share of steady points that are called unstable, at a given noise of windows."""
    random, runs = (
        numpy.random.default_rng([processes, windows]),
        numpy.repeat(numpy.arange(processes), windows),
    )
    rates = numpy.exp(noise * random.normal(size=(number, processes * windows)))
    points = [
        Point([{"run_id": run, "samples_per_second": rate, "samples": 0} for run, rate in each])
        for each in (zip(runs, one, strict=True) for one in rates)
    ]
    return float(numpy.mean([any(rules.reasons(point, rules.OF_SPEED)) for point in points]))


def pairs() -> Iterator[tuple[bool, Interval, Interval, float, bool]]:
    """Yield each point that two sessions of one machine measured alike: whether its steps kept
    their memory, both rates, the processes' part of the variance of their ratio, and whether
    `compare` calls one faster."""
    rows, described = CHECKS.read(layout.outputs() / "runs", print)
    conditions = condition.samples(described)
    measured = rows[(rows["source"] == "measured") & rows["session"].notna()]
    for _, own in measured.groupby("machine"):
        for both in itertools.combinations(sorted(own["session"].unique()), 2):
            first, second = (
                {
                    (line["study"], line["point"], keeps_memory(line)): line
                    for line in verdicts.summarise(side, conditions).to_dict("records")
                    if line["interval"] == intervals.INTERVAL
                }
                for side in (compare.rows_of(name, own, conditions) for name in both)
            )
            keys = sorted(first.keys() & second.keys())
            sides = [(first[key], second[key]) for key in keys]
            for (*_, kept), point, ratio in zip(keys, sides, compare.ratios(sides), strict=True):
                rates = [Interval.from_row(each, "samples_per_second") for each in point]
                variance = sum(map(intervals.processes_variance, point))
                yield kept, *rates, variance, not ratio.low <= 1 <= ratio.high


def keeps_memory(line: dict) -> bool:
    """Return whether the steps of a summary's point kept the memory that they free."""
    return bool((line["settings"] or {}).get("keeps_memory"))


def fit_sessions(number: int) -> None:
    """Print the deviation between sessions of a machine, from the rows in outputs/runs."""
    found, random = list(pairs()), numpy.random.default_rng(7)
    print(
        "\nsessions in outputs/runs; freed memory: pairs, deviation (90 %), second centres inside, called unlike"
    )
    for kept, memory in enumerate(("given back", "kept")):
        own = [each[1:] for each in found if each[0] == bool(kept)]
        if not own:
            print(f"{memory:28}no point of two sessions")
            continue
        logs = numpy.log([second.value / first.value for first, second, *_ in own])
        squares = logs**2 - [variance for *_, variance, _ in own]
        drawn = random.choice(squares, (min(number, 2000), len(squares))).mean(axis=1)
        fitted = numpy.sqrt(
            numpy.maximum(0, [squares.mean(), *numpy.quantile(drawn, [0.05, 0.95])]) / 2
        )
        inside = sum(first.low <= second.value <= first.high for first, second, *_ in own)
        deviation = "{:.1%} ({:.1%} to {:.1%})".format(*fitted)
        unlike = sum(each[-1] for each in own)
        print(f"{memory:28}{len(own):4}  {deviation}  {inside} of {len(own)}, {unlike}")
    stated, assumed = intervals.VIRTUAL.session, intervals.UNPAIRED.session
    print(f"stated: {stated:.0%}; elsewhere {assumed:.0%} is assumed")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20_000, help="points drawn for each line")
    number = parser.parse_args().repeats
    for rule in RULES:
        print(
            f"\n{rule}: covers the mean, a second centre; processes; half-width; equal points called unlike"
        )
        for within, between in (*CASES, *SECOND, *VIRTUAL):
            covers, holds, used, half, unlike = coverage(rule, within, between, number)
            head = f"processes {within:.0%}, sessions {between:.0%}"
            print(f"{head:28}{covers:8.0%}{holds:8.0%}{used:8.1f}{half:8.0%}{unlike:8.1%}")
    for place, head in enumerate(
        ["coverage of ratios that alternate", "equal settings called tuned"]
    ):
        print(f"\n{head}; {', '.join(map(str, PROCESSES))} processes")
        for deviation in RATIOS:
            print_line(
                f"{deviation:.0%}",
                [paired(deviation, processes, number)[place] for processes in PROCESSES],
            )
    print(f"\nsteady points called unstable, {', '.join(f'{k} x {w}' for k, w in SIZES)} windows")
    for noise in STEADY:
        print_line(
            f"windows {noise:.0%}",
            [false_alarms(*size, noise, max(1, number // 10)) for size in SIZES],
        )
    fit_sessions(number)


def print_line(head: str, shares) -> None:
    print(f"{head:28}" + "".join(f"{share:8.1%}" for share in shares))


if __name__ == "__main__":
    main()
