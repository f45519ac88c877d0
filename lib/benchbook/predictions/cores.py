"""Guess a bigger chip from a smaller one: divide by GPU cores, as an article did, or by what other pairs measured.

Both are held against every pair of chips of one generation that trained the same work, published or measured.
"""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pandas

from benchbook import articles, intervals, statistics
from benchbook.intervals import Interval

# GPU cores that each chip was sold with, fewest and most. Source: https://support.apple.com/specs
CORES = {
    "Apple M1": (7, 8),
    "Apple M1 Pro": (14, 16),
    "Apple M1 Max": (24, 32),
    "Apple M1 Ultra": (48, 64),
    "Apple M2": (8, 10),
    "Apple M2 Pro": (16, 19),
    "Apple M2 Max": (30, 38),
    "Apple M2 Ultra": (60, 76),
    "Apple M3": (8, 10),
    "Apple M3 Pro": (14, 18),
    "Apple M3 Max": (30, 40),
    "Apple M4": (8, 10),
    "Apple M4 Pro": (16, 20),
    "Apple M4 Max": (32, 40),
}
GPUS = ("metal", "mps")
FEWEST_PAIRS = 3  # of other publications, to calibrate on
LEVEL = 0.95
COLUMNS = ["publication", "work", "source", "smaller", "larger", "chip", "larger_chip", "cores", "larger_cores"]
COLUMNS += ["measured", "measured_low", "measured_high", "rule", "rule_low", "rule_high", "rule_error"]
COLUMNS += ["calibrated", "calibrated_low", "calibrated_high", "calibrated_error"]


@dataclass(frozen=True)
class Scaling:
    """How speed grew with cores in some pairs: to the power of `exponent`; 1 would be the article's rule.

    Attributes:
        exponent: least squares through no growth at equal cores, in logarithms.
        spread: standard deviation of the logarithm of measured over predicted.
        num_pairs: how many it was fitted on.
    """

    exponent: float
    spread: float
    num_pairs: int

    def predict(self, core_ratio: float) -> tuple[float, float, float]:
        """Return the expected ratio of speeds with the bounds of a 95 % prediction interval."""
        from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes a second to import

        reach = float(stdtrit(self.num_pairs - 1, (1 + LEVEL) / 2)) * self.spread * math.sqrt(1 + 1 / self.num_pairs)
        value = core_ratio**self.exponent
        return value, value * math.exp(-reach), value * math.exp(reach)


def fit(core_ratios: Sequence[float], speed_ratios: Sequence[float]) -> Scaling:
    """Fit the exponent of cores that explains speeds.

    Raises:
        ValueError: too few pairs.
    """
    if len(core_ratios) < FEWEST_PAIRS:
        raise ValueError(f"{len(core_ratios)} pairs; allowed: {FEWEST_PAIRS} or more")
    cores, speeds = numpy.log(core_ratios), numpy.log(speed_ratios)
    exponent = float(cores @ speeds / (cores @ cores))
    left = speeds - exponent * cores
    return Scaling(exponent, float(math.sqrt(left @ left / (len(left) - 1))), len(left))


def core_counts(chip: str | None, device_name: str | None) -> tuple[int, int] | None:
    """Return the fewest and most GPU cores that a chip may have: the printed ones, or those it was sold with."""
    printed = re.search(r"\((\d+)-core GPU\)", device_name) if isinstance(device_name, str) else None
    if printed:
        return int(printed[1]), int(printed[1])
    return CORES.get(chip)


def pairs(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line for each two chips of one generation that trained the same work in the same publication.

    A publication's work is told by its point; where it printed several times of it, that of training alone counts. Of
    a chip whose cores were not printed the rule has a range, and its middle is judged.

    Args:
        rows: published and measured ones, of all studies; what was derived from a rule is left out.

    Returns:
        Columns: publication, work, source, smaller, larger (machines), chip, larger_chip, cores, larger_cores (as
        text), measured (ratio of speeds, larger over smaller, with the bounds of printed digits or of intervals), rule
        (ratio of cores, with bounds), rule_error (rule over measured, less 1), and the same for calibrated: a power of
        the ratio of cores, fitted on the other publications' pairs, with a 95 % prediction interval.
    """
    speeds = pandas.DataFrame([*_published(rows), *_measured(rows)])
    lines = []
    for key, group in speeds.groupby(["publication", "work"], sort=True) if len(speeds) else ():
        ordered = sorted(group.to_dict("records"), key=lambda line: (line["cores"], line["machine"]))
        for smaller, larger in itertools.combinations(ordered, 2):
            if _generation(smaller) == _generation(larger) and smaller["chip"] != larger["chip"]:
                lines.append(dict(zip(("publication", "work"), key, strict=True)) | _pair(smaller, larger))
    table = pandas.DataFrame(lines, columns=COLUMNS)
    calibrated = pandas.DataFrame([_calibrate(line, table) for line in lines], index=table.index)
    return table.assign(**{name: calibrated[name] for name in calibrated})


def calibrated(table: pandas.DataFrame) -> Scaling | None:
    """Return what all pairs together say of cores; None where they are too few."""
    return fit(table["rule"], table["measured"]) if len(table) >= FEWEST_PAIRS else None


def _published(rows: pandas.DataFrame) -> list[dict]:
    printed = rows[rows["source"].isin(["published", "digitised", "secondary"]) & rows["device"].isin(GPUS)]
    printed = printed[(printed["study"] == "related") & printed["phase"].isin(["train", "total"])]
    lines = []
    for row in printed.sort_values("phase", ascending=False, kind="stable").to_dict("records"):
        column = "samples_per_second" if pandas.notna(row["samples_per_second"]) else "seconds"
        cores = core_counts(row["chip"], row["device_name"])
        if cores is None or pandas.isna(row[column]):
            continue
        figures = [row[column], *articles.bounds(row, column)]
        low, value, high = sorted(figures if column == "samples_per_second" else (1 / figure for figure in figures))
        publication = row["reference"].partition(";")[0]
        head = {name: row[name] for name in ("machine", "chip", "source")}
        lines.append(
            head
            | {"publication": publication, "work": row["point"], "cores": cores, "speed": Interval(value, low, high)}
        )
    return list({(line["publication"], line["work"], line["machine"]): line for line in reversed(lines)}.values())


def _measured(rows: pandas.DataFrame) -> list[dict]:
    points = statistics.summarise(rows[rows["device"].isin(GPUS)], history=intervals.histories(rows))
    points = points[points["samples_per_second"].notna()]
    lines = []
    for point in points.to_dict("records"):
        cores = core_counts(point["chip"], point["device_name"])
        if cores is not None:
            head = {"machine": point["machine"], "chip": point["chip"], "source": "measured", "cores": cores}
            head |= {"publication": "measured here", "work": f"{point['study']} {point['point']}"}
            lines.append(head | {"speed": Interval.of(point, "samples_per_second")})
    return lines


def _generation(line: dict) -> str:
    return " ".join(line["chip"].split()[:2])


def _pair(smaller: dict, larger: dict) -> dict:
    low = larger["cores"][0] / smaller["cores"][1]
    high = larger["cores"][1] / smaller["cores"][0]
    rule, measured = math.sqrt(low * high), intervals.divide(larger["speed"], smaller["speed"])
    return {
        "source": larger["source"],
        "smaller": smaller["machine"],
        "larger": larger["machine"],
        "chip": smaller["chip"],
        "larger_chip": larger["chip"],
        "cores": _text(smaller["cores"]),
        "larger_cores": _text(larger["cores"]),
        "measured": measured.value,
        "measured_low": measured.low,
        "measured_high": measured.high,
        "rule": rule,
        "rule_low": low,
        "rule_high": high,
        "rule_error": rule / measured.value - 1,
    }


def _calibrate(line: dict, table: pandas.DataFrame) -> dict:
    """Return what the pairs of other publications predict of a pair: it must not judge itself."""
    others = table[table["publication"] != line["publication"]]
    scaling = calibrated(others)
    if scaling is None:
        return dict.fromkeys(COLUMNS[-4:], numpy.nan)
    value, low, high = scaling.predict(line["rule"])
    return dict(zip(COLUMNS[-4:], (value, low, high, value / line["measured"] - 1), strict=True))


def _text(cores: tuple[int, int]) -> str:
    return str(cores[0]) if cores[0] == cores[1] else f"{cores[0]} or {cores[1]}"
