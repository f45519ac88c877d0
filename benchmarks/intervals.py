"""Simulate intervals: how often they cover the truth, their width, and how often equal code is called faster.

`make bench STUDIES=intervals` prints tables in some seconds; nothing is timed. It draws the kernels of points of many
machines at random and judges them as `benchbook.judging` judges rows. The standard deviations between a point's kernels
are drawn from 0.7 to 27.7 %, the range that was measured.
"""

import argparse

import numpy

from benchbook.judging import confirmation, intervals, verdicts

LEAST, MOST = intervals.SEEN_DEVIATIONS  # between the kernels of a point
WINDOWS, NOISE = 6, 0.02  # of a kernel, and their standard deviation
KERNELS, POINTS, CASES = (1, 2, 3), (4, 10, 20), ("alike", "unlike", "bimodal", "drifting")


def draw(case: str, random: numpy.random.Generator, shape: tuple) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return log levels of kernels, shape (machines, points, kernels), and each point's deviation between kernels.

    Cases: with `alike`, all points have the same deviation; with the others, deviations are log-uniform, like measured
    ones. Kernels of a `bimodal` machine have one of two equally likely levels. A `drifting` machine changes its speed
    by about 5 % while its points alternate.
    """
    deviation = numpy.exp(random.uniform(numpy.log(LEAST), numpy.log(MOST), (*shape[:2], 1)))
    if case == "alike":
        deviation[:] = 0.05
    levels = deviation * (random.choice([-1.0, 1.0], shape) if case == "bimodal" else random.normal(size=shape))
    if case == "drifting":
        turns = numpy.arange(shape[1] * shape[2]).reshape(shape[2], shape[1]).T / (shape[1] * shape[2]) - 0.5
        levels += 0.05 * random.normal(size=(shape[0], 1, 1)) * turns
    return levels, deviation


def half_widths(levels: numpy.ndarray) -> numpy.ndarray:
    """Return half the width of each point's interval, on the log scale; NaN where a range is shown.

    Args:
        levels: log medians of kernels, shape (machines, points, kernels).
    """
    kernels = levels.shape[-1]
    if kernels < 2:
        return numpy.full(levels.shape[:2], numpy.nan)
    own = levels.var(axis=-1, ddof=1)
    prior = (part[:, None] for part in intervals.fit(own, numpy.full(own.shape, kernels - 1)))
    return intervals.half_width(*intervals.moderate(own, kernels, *prior), kernels)


def measured(levels: numpy.ndarray, random: numpy.random.Generator) -> numpy.ndarray:
    """Return the log medians of kernels' windows."""
    return numpy.median(levels[..., None] + NOISE * random.normal(size=(*levels.shape, WINDOWS)), axis=-1)


def coverage(case: str, points: int, kernels: int, repeats: int) -> list[float]:
    """Return four numbers: coverage of all points, coverage of the tenth that varies most, half-width, false alarms.

    A false alarm is a pair of equal points of one machine of which one is called faster.
    """
    random = numpy.random.default_rng([points, kernels])
    levels, deviation = draw(case, random, (repeats, points, kernels))
    medians = measured(levels, random)
    widths = half_widths(medians)
    if numpy.isnan(widths).all():
        return [numpy.nan] * 4
    centers = medians.mean(axis=-1)
    covered = numpy.abs(centers) <= widths
    wild = deviation[..., 0] >= numpy.quantile(deviation, 0.9)
    apart, allowed = centers[:, ::2] - centers[:, 1::2], numpy.hypot(widths[:, ::2], widths[:, 1::2])
    return [covered.mean(), covered[wild].mean(), numpy.median(widths), (numpy.abs(apart) > allowed).mean()]


def bad_kernel(points: int, kernels: int, repeats: int) -> tuple[float, float]:
    """Return the half-width of points that vary by 3 %, without and with another point's kernel 3 times as slow."""
    random = numpy.random.default_rng([points, kernels])
    medians = measured(0.03 * random.normal(size=(repeats, points, kernels)), random)
    without = numpy.median(half_widths(medians)[:, 1:])
    medians[:, 0, 0] -= numpy.log(3)
    return float(without), float(numpy.median(half_widths(medians)[:, 1:]))


def across_sessions(deviation: float, earlier: int, shared: bool, points: int, repeats: int) -> float:
    """Return the share of points of equal code that are called faster in a new session of two kernels.

    Args:
        deviation: between sessions.
        earlier: number of earlier sessions of the same code, which tell the deviation between sessions.
        shared: whether a session slows all points alike, or each point differently.
        points: of the machine.
        repeats: machines drawn.
    """
    random, known, kernels = numpy.random.default_rng([earlier, points]), earlier + 1, 2
    levels, _ = draw("unlike", random, (repeats, points, (known + 1) * kernels))
    moved = deviation * random.normal(size=(repeats, 1 if shared else points, known + 1, 1))
    levels = levels.reshape(repeats, points, known + 1, kernels) + moved
    widths = numpy.stack([half_widths(levels[:, :, each]) for each in (-2, -1)])
    centers, own = levels.mean(axis=-1), levels.var(axis=-1, ddof=1)
    variance, freedom = intervals.fit(own[:, :, :known].reshape(repeats, -1), numpy.ones(points * known))
    errors = (
        intervals.moderate(own[:, :, :known], kernels, variance[:, None, None], freedom[:, None, None])[0] / kernels
    )
    spreads = centers[:, :, :known].var(axis=-1, ddof=1) if earlier else errors[..., 0]
    added = intervals.session_width(spreads, errors.mean(axis=-1), known)
    total = numpy.hypot(*numpy.hypot(widths, numpy.reshape(added, (-1, 1))))
    return float((numpy.abs(centers[:, :, -1] - centers[:, :, -2]) > total).mean())


def false_tuned(kernels: int, repeats: int) -> float:
    """Return the share of settings that are called tuned although they are only as fast as the reference."""
    random = numpy.random.default_rng(kernels)
    levels, _ = draw("unlike", random, (repeats, 1, kernels))
    ratios = numpy.exp(levels[:, 0, :, None] + NOISE * random.normal(size=(repeats, kernels, WINDOWS)))
    runs = numpy.repeat(numpy.arange(kernels), 6)
    called = [confirmation.is_faster(intervals.interval(one.ravel(), runs)) for one in ratios]
    return float(numpy.mean(called))


def false_alarms(kernels: int, windows: int, noise: float, correlation: float, repeats: int) -> float:
    """Return the share of steady points that are called unstable, at a given noise and correlation of windows."""
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
    for case in CASES:
        for points in POINTS:
            cells = [coverage(case, points, kernels, repeats) for kernels in KERNELS]
            words = [f"{'range' if numpy.isnan(cell).all() else percents(cell):>28}" for cell in cells]
            print(f"{case:10}{points:6}" + "".join(words))
    for kernels in KERNELS[1:]:
        print(
            f"One kernel of 10 points 3 times as slow, {kernels} kernels: {percents(bad_kernel(10, kernels, repeats))}"
        )
    print("Points of equal code called faster in another session, with 0, 1 and 4 earlier ones; deviation of sessions:")
    for deviation in (0.02, 0.03, 0.05):
        for shared in (True, False):
            shares = [across_sessions(deviation, earlier, shared, 10, repeats) for earlier in (0, 1, 4)]
            print(f"{'all points alike' if shared else 'each point':18}{deviation:.0%}: {percents(shares)}")
    shares = [false_tuned(kernels, 500) for kernels in KERNELS]
    print(f"Settings as fast as the reference called tuned, 1, 2 and 3 kernels: {percents(shares)}")
    for noise, correlation in ((0.02, 0.0), (0.05, 0.0), (0.05, 0.8)):
        shares = [false_alarms(*sizes, noise, correlation, 500) for sizes in ((1, 6), (2, 6), (3, 6), (3, 20))]
        print(f"Steady points called unstable, noise {noise:.0%}, correlation {correlation}: {percents(shares)}")


def percents(shares) -> str:
    """Return shares as a line of the tables shows them."""
    return "  ".join(f"{share:5.1%}" for share in shares)


if __name__ == "__main__":
    main()
