"""Simulate intervals: how often they cover the truth, their width, and how often equal code is called faster.

`make bench STUDIES=intervals` prints tables in some seconds; nothing is timed. It draws processes of points
at random and judges them as `benchbook.judging` judges rows. Standard deviations of 0.7 to 28 % between a point's
processes were measured.
"""

import argparse

import numpy

from benchbook.judging import intervals, verdicts

PROCESSES = (2, 3, 4, 5, 6)
WINDOWS, NOISE = 3, 0.02  # of a process, and their standard deviation
LEAST, MOST = 0.007, 0.28
SLOW_SHARE, SLOW_LEVEL = 0.35, numpy.log(0.7)  # of the processes of a bimodal point
CASES = ("5 %", "10 %", "0.7 to 28 %", "20 %", "bimodal")
RATIOS = ("1 %", "2 %", "3 %")  # deviations of ratios whose sides alternate in each process


def draw(case: str, random: numpy.random.Generator, points: int, processes: int, noise: float = NOISE) -> numpy.ndarray:
    """Return the log medians of processes' windows, around 0, shape (points, processes).

    Args:
        case: the deviation between processes; or a range, in which each point's deviation is log-uniform; or `bimodal`.
        random: the generator.
        points, processes: the shape.
        noise: the standard deviation of windows.
    """
    if case == "bimodal":
        levels = SLOW_LEVEL * ((random.random((points, processes)) < SLOW_SHARE) - SLOW_SHARE)
    else:
        least, *most = (float(part) / 100 for part in case.removesuffix(" %").split(" to "))
        deviation = numpy.exp(random.uniform(numpy.log(least), numpy.log([*most, least][0]), (points, 1)))
        levels = deviation * random.normal(size=(points, processes))
    return numpy.median(levels[..., None] + noise * random.normal(size=(points, processes, WINDOWS)), axis=-1)


def half_widths(medians: numpy.ndarray, assumed: float = intervals.PROCESS_DEVIATION) -> numpy.ndarray:
    """Return half the width of each point's interval, on the log scale."""
    return intervals.half_width_of_processes(medians.var(axis=-1, ddof=1), medians.shape[-1], assumed)


def coverage(case: str, processes: int, points: int) -> tuple[float, float, float, float]:
    """Return the coverage, the median half-width, and how often one of two equal points is called faster.

    The latter is given for points of one session, and for points of two sessions that differ by the stated deviation.
    """
    random = numpy.random.default_rng(processes)
    a, b = (draw(case, random, points, processes) for _ in range(2))
    own = half_widths(a)
    width, apart = numpy.hypot(own, half_widths(b)), a.mean(axis=-1) - b.mean(axis=-1)
    between = 2**0.5 * intervals.SESSION_DEVIATION  # of the difference of two sessions
    across = numpy.abs(apart + between * random.normal(size=points))
    allowed = numpy.hypot(width, intervals.half_width(between**2, numpy.inf, 1))
    covered = numpy.abs(a.mean(axis=-1)) <= own
    return covered.mean(), numpy.median(own), (numpy.abs(apart) > width).mean(), (across > allowed).mean()


def paired(case: str, processes: int, points: int) -> tuple[float, float]:
    """Return the coverage of ratios that differ by this deviation, and the share of equal settings called tuned."""
    ratios = draw(case, numpy.random.default_rng(processes), points, processes, 2**0.5 * NOISE)
    own = half_widths(ratios, intervals.PAIRED_DEVIATION)
    return (numpy.abs(ratios.mean(axis=-1)) <= own).mean(), (ratios.mean(axis=-1) > own).mean()


def false_alarms(processes: int, windows: int, noise: float, correlation: float, points: int) -> float:
    """Return the share of steady points that are called unstable, at a given noise and correlation of windows."""
    random, runs = numpy.random.default_rng([processes, windows]), numpy.repeat(numpy.arange(processes), windows)
    drawn = random.normal(size=(points, processes, windows))
    for place in range(1, windows):
        fresh = (1 - correlation**2) ** 0.5 * drawn[..., place]
        drawn[..., place] = correlation * drawn[..., place - 1] + fresh
    rates = numpy.exp(noise * drawn).reshape(points, -1)
    return float(numpy.mean([verdicts.stability(one, runs).kind == verdicts.UNSTABLE for one in rates]))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50_000, help="points drawn for each cell")
    points = parser.parse_args().repeats
    heads = ["coverage", "half-width", "equal points called unlike in one session", "and across sessions"]
    cells = {case: numpy.transpose([coverage(case, processes, points) for processes in PROCESSES]) for case in CASES}
    for place, head in enumerate(heads):
        print_table(head, {case: rows[place] for case, rows in cells.items()})
    cells = {case: numpy.transpose([paired(case, processes, points) for processes in PROCESSES]) for case in RATIOS}
    for place, head in enumerate(["coverage of ratios that alternate", "equal settings called tuned"]):
        print_table(head, {case: rows[place] for case, rows in cells.items()})
    sizes = ((1, 6), (2, 6), (4, 3), (5, 6))
    print(f"\nsteady points called unstable, {', '.join(f'{k} x {w}' for k, w in sizes)} windows")
    for noise, correlation in ((0.02, 0.0), (0.03, 0.0), (0.03, 0.8)):
        shares = [false_alarms(*size, noise, correlation, 500) for size in sizes]
        print_line(f"noise {noise:.0%}, correlation {correlation}", shares)


def print_table(head: str, lines: dict) -> None:
    """Print a table with a column for each number of processes."""
    print(f"\n{head}; deviation between processes, {', '.join(map(str, PROCESSES))} processes")
    for case, shares in lines.items():
        print_line(case, shares)


def print_line(head: str, shares) -> None:
    print(f"{head:28}" + "".join(f"{share:8.1%}" for share in shares))


if __name__ == "__main__":
    main()
