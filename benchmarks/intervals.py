"""How often intervals cover the truth, how wide they are, and how often equal code is called faster, tuned or unstable.

`make bench STUDIES=intervals` prints it, in about a minute; nothing is timed. The kernels of the points of many machines
are drawn by chance, and judged as `benchbook.judging` judges rows. Points differ as those of the machines at hand did:
the standard deviations between their kernels were 0.7 to 27.7 %.
"""

import argparse
from collections.abc import Callable

import numpy

from benchbook.judging import intervals, verdicts

LEAST, MOST = 0.007, 0.277  # standard deviations between the kernels of one point that were seen
WINDOWS, NOISE = 6, 0.02  # of a kernel, and their standard deviation
KERNELS, POINTS = (1, 2, 3), (4, 10, 20)


def deviations(random: numpy.random.Generator, shape: tuple) -> numpy.ndarray:
    """Return standard deviations between kernels as points have them: log-uniform."""
    return numpy.exp(random.uniform(numpy.log(LEAST), numpy.log(MOST), shape))[..., None]


def alike(random: numpy.random.Generator, shape: tuple) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return log levels of kernels, shape (machines, points, kernels), and the deviation of each point."""
    deviation = numpy.full((*shape[:2], 1), 0.05)
    return deviation * random.normal(size=shape), deviation


def unlike(random: numpy.random.Generator, shape: tuple) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the same of points that differ in how much their kernels do."""
    deviation = deviations(random, shape[:2])
    return deviation * random.normal(size=shape), deviation


def bimodal(random: numpy.random.Generator, shape: tuple) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the same of kernels that fall into two modes, each as likely."""
    deviation = deviations(random, shape[:2])
    return deviation * random.choice([-1.0, 1.0], shape), deviation


def drifting(random: numpy.random.Generator, shape: tuple) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the same of a machine that slows down, by 5 % or so, while the kernels of its points take turns."""
    levels, deviation = unlike(random, shape)
    turns = numpy.arange(shape[1] * shape[2]).reshape(shape[2], shape[1]).T / (shape[1] * shape[2]) - 0.5
    return levels + 0.05 * random.normal(size=(shape[0], 1, 1)) * turns, deviation


CASES: dict[str, Callable] = {"alike": alike, "unlike": unlike, "bimodal": bimodal, "drifting": drifting}


def half_widths(levels: numpy.ndarray, errors: numpy.ndarray) -> numpy.ndarray:
    """Return half the width of each point's interval, on the log scale; NaN where a range is shown.

    Args:
        levels: log medians of kernels, shape (machines, points, kernels).
        errors: squared errors of these medians from their windows.
    """
    points, kernels = levels.shape[1:]
    squares = ((levels - levels.mean(axis=-1, keepdims=True)) ** 2).sum(axis=(1, 2))
    freedom = points * (kernels - 1)
    if freedom < intervals.FEWEST_FREEDOM:
        return numpy.full(levels.shape[:2], numpy.nan)
    variance, total = intervals.variance(squares[:, None], freedom, errors.mean(axis=-1))
    return intervals.reach(variance, total, kernels)


def measured(levels: numpy.ndarray, random: numpy.random.Generator) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the log medians of kernels' windows and their squared errors."""
    windows = levels[..., None] + NOISE * random.normal(size=(*levels.shape, WINDOWS))
    return numpy.median(windows, axis=-1), intervals.median_error(windows) ** 2


def coverage(case: Callable, points: int, kernels: int, repeats: int) -> list[float]:
    """Return shares of intervals that cover, of all points and of the tenth that varies most; half-width; false alarms.

    False are those pairs of equal points of one machine of which one is called faster.
    """
    random = numpy.random.default_rng([points, kernels])
    levels, deviation = case(random, (repeats, points, kernels))
    medians, errors = measured(levels, random)
    widths = half_widths(medians, errors)
    if numpy.isnan(widths).all():
        return [numpy.nan] * 4
    centers = medians.mean(axis=-1)
    covered = numpy.abs(centers) <= widths
    wild = deviation[..., 0] >= numpy.quantile(deviation, 0.9)
    apart, allowed = centers[:, ::2] - centers[:, 1::2], numpy.hypot(widths[:, ::2], widths[:, 1::2])
    return [covered.mean(), covered[wild].mean(), numpy.median(widths), (numpy.abs(apart) > allowed).mean()]


def bad_kernel(points: int, kernels: int, repeats: int) -> tuple[float, float]:
    """Return the half-width of points that vary by 3 %, without and with a kernel of another point 3 times as slow."""
    random = numpy.random.default_rng([points, kernels])
    medians, errors = measured(0.03 * random.normal(size=(repeats, points, kernels)), random)
    without = numpy.median(half_widths(medians, errors)[:, 1:])
    medians[:, 0, 0] -= numpy.log(3)
    return float(without), float(numpy.median(half_widths(medians, errors)[:, 1:]))


def false_alarms(kernels: int, windows: int, noise: float, correlation: float, repeats: int) -> float:
    """Return the share of steady points that are called unstable, with so much noise of windows and kernels."""
    random, runs = numpy.random.default_rng([kernels, windows]), numpy.repeat(numpy.arange(kernels), windows)
    drawn = random.normal(size=(repeats, kernels, windows))
    for place in range(1, windows):
        fresh = (1 - correlation**2) ** 0.5 * drawn[..., place]
        drawn[..., place] = correlation * drawn[..., place - 1] + fresh
    rates = numpy.exp(noise * drawn).reshape(repeats, -1)
    return float(numpy.mean([verdicts.stability(one, runs).kind == verdicts.UNSTABLE for one in rates]))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000, help="machines drawn for each line")
    repeats = parser.parse_args().repeats
    print(
        "Coverage of 95 % intervals (all points, the most variable tenth), median half-width, equal pairs called unlike"
    )
    print(f"{'points':16}" + "".join(f"{f'{kernels} kernels':>28}" for kernels in KERNELS))
    for name, case in CASES.items():
        for points in POINTS:
            cells = [coverage(case, points, kernels, repeats) for kernels in KERNELS]
            words = [f"{'range' if numpy.isnan(cell).all() else percents(cell):>28}" for cell in cells]
            print(f"{name:10}{points:6}" + "".join(words))
    for kernels in KERNELS[1:]:
        print(
            f"One kernel of 10 points 3 times as slow, {kernels} kernels: {percents(bad_kernel(10, kernels, repeats))}"
        )
    for noise, correlation in ((0.02, 0.0), (0.05, 0.0), (0.05, 0.8)):
        shares = [
            false_alarms(kernels, windows, noise, correlation, 500) for kernels, windows in ((1, 6), (3, 6), (3, 20))
        ]
        print(f"Steady points called unstable, noise {noise:.0%}, correlation {correlation}: {percents(shares)}")


def percents(shares) -> str:
    """Return shares as a line of the tables shows them."""
    return "  ".join(f"{share:5.1%}" for share in shares)


if __name__ == "__main__":
    main()
