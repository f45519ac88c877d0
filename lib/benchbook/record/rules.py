"""The rules that predict a rate, and their errors on published rates that were hidden from them.

A ridge regression learns from all published rates of images. Rates of language models are scaled
by memory bandwidth: too few are published for more. An error is that of a published rate which
was hidden with all rates of its chip and of its publication, because a buyer's machine is in no
publication. `benchmarks/predictions.py` fits the constants, makes the errors and compares the
rules.
"""

import functools
import math
from statistics import NormalDist

import numpy
import pandas
from scipy.special import stdtrit

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import observations
from benchbook.record.observations import IMAGES, LANGUAGE_MODELS

REGRESSION, RATIO = "regression", "ratio of bandwidths"
ANSWER = "the answer"
LEVEL = 0.95  # of values below the upper bound of a 90 % range
DEVIATIONS = NormalDist().inv_cdf(LEVEL)  # from the middle of a range to a bound
# Standard deviations of the logarithm of a rate: of the effects of names alone and in pairs, of a
# unit of the numbers, and of what is left.
CONSTANTS = {"names": 1.0, "pairs": 0.25, "arithmetic": 0.1, "no_update": 1.0, "rest": 0.4}
NAMES, PAIRS = ("work", "vendor", "family"), (("framework", "family"), ("work", "vendor"))
NOTHING = numpy.array([], int)


class Ratio:
    """Speed is in proportion to memory bandwidth, by the median of known speeds of the same work
    and family."""

    name = RATIO

    def __init__(self, lines: pandas.DataFrame):
        self.lines = lines
        self.works = (lines["work"] + lines["family"]).to_numpy(object)
        self.ratios = (lines["speed"] - lines["bandwidth"]).to_numpy(float)

    def predict(
        self, targets: pandas.DataFrame, hidden: numpy.ndarray = NOTHING
    ) -> tuple[numpy.ndarray, ...]:
        """Return the logarithm of each target's speed, and the deviation of a published one from
        it; NaN if unknown.

        Args:
            targets: with the columns of the lines, apart from speed.
            hidden: places of lines that are not known.
        """
        works = (targets["work"] + targets["family"]).to_numpy(object)
        known = {
            work: numpy.setdiff1d(numpy.flatnonzero(self.works == work), hidden)
            for work in set(works)
        }
        middles = [
            numpy.median(self.ratios[known[work]]) if len(known[work]) else math.nan
            for work in works
        ]
        return middles + targets["bandwidth"].to_numpy(float), numpy.array(
            [self._deviation(known[own]) for own in works]
        )

    def _deviation(self, places: numpy.ndarray) -> float:
        """Return the deviation of a further ratio, such that DEVIATIONS of it are Student's 90 %
        interval."""
        if len(places) < 2:
            return math.nan
        widened = stdtrit(len(places) - 1, LEVEL) / DEVIATIONS * math.sqrt(1 + 1 / len(places))
        return widened * self.ratios[places].std(ddof=1)


class Regression:
    """A ridge regression of the logarithm of speed over memory bandwidth.

    Its terms are the effects of NAMES and of PAIRS, the chip's arithmetic over its bandwidth,
    and whether no optimizer ran. It knows no chip by its name: a chip with more arithmetic and
    more bandwidth is never slower.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.1.
    """

    name = REGRESSION

    def __init__(self, lines: pandas.DataFrame, constants: dict[str, float] = CONSTANTS):
        self.lines, self.constants = lines, constants
        self.levels = {
            name: numpy.unique(values.to_numpy(object)) for name, values in _named(lines).items()
        }
        self.known, _ = self._terms(lines)
        self.residuals = (lines["speed"] - lines["bandwidth"]).to_numpy(float)
        self.gram = self.known.T @ self.known + constants["rest"] ** 2 * numpy.eye(
            self.known.shape[1]
        )
        self.sums = self.known.T @ self.residuals

    def predict(
        self, targets: pandas.DataFrame, hidden: numpy.ndarray = NOTHING
    ) -> tuple[numpy.ndarray, ...]:
        """Return the logarithm of each target's speed, and the deviation of a published one from
        it; see `Ratio`."""
        asked, unknown = self._terms(targets)
        own = self.known[hidden]
        inverse = numpy.linalg.inv(self.gram - own.T @ own)
        weights = inverse @ (self.sums - own.T @ self.residuals[hidden])
        variances = unknown + self.constants["rest"] ** 2 * (
            1 + (asked @ inverse * asked).sum(axis=1)
        )
        return targets["bandwidth"].to_numpy(float) + asked @ weights, numpy.sqrt(variances)

    def _terms(self, lines: pandas.DataFrame) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the terms in their deviations, so that one penalty fits all, and the variance
        of unknown names."""
        terms, unknown = [], numpy.zeros(len(lines))
        for name, values in _named(lines).items():
            own = values.to_numpy(object)[:, None] == self.levels[name]
            deviation = self.constants["names" if name in NAMES else "pairs"]
            terms.append(deviation * own)
            unknown += deviation**2 * ~own.any(axis=1)
        arithmetic = self.constants["arithmetic"] * (lines["fp32"] - lines["bandwidth"])
        return numpy.column_stack(
            [*terms, arithmetic, self.constants["no_update"] * lines["no_update"]]
        ), unknown


def _named(lines: pandas.DataFrame) -> dict[str, pandas.Series]:
    return {name: lines[name] for name in NAMES} | {
        f"{a}, {b}": lines[a] + ", " + lines[b] for a, b in PAIRS
    }


@functools.cache
def by_kind() -> dict[str, Regression | Ratio]:
    """Return the rule that answers for each kind of work."""
    return {
        IMAGES: Regression(observations.images()),
        LANGUAGE_MODELS: Ratio(observations.language_models()),
    }


@functools.cache
def errors() -> pandas.DataFrame:
    """Return the errors of the answer and of the plain ratio on hidden rates, which
    `benchmarks/predictions.py` made.

    Returns:
        Columns: group (the rates of the record or of the articles, a vendor and a family of
        precisions, or LANGUAGE_MODELS), rule (ANSWER or RATIO), pairs, publications,
        median_error (of predicted over printed, less 1, without sign), within_2 (the share
        within a factor of 2), coverage (of the 90 % ranges).
    """
    return pandas.read_csv(layout.published() / "record" / "prediction_errors.csv")


@functools.cache
def basis(kind: str, vendor: str, family: str) -> str:
    """Return how sure a rule's answers are, in words, by the errors of the group, or of the
    record if it has few."""
    known = errors()[errors()["rule"].eq(ANSWER)].set_index("group")
    group = kind if kind == LANGUAGE_MODELS else f"{vendor}, {family}"
    group = group if group in known.index else observations.RECORD
    median, hold = map(wording.percent, known.loc[group, ["median_error", "coverage"]])
    return (
        f"half of such predictions are within {median}, and {hold} of their 90 % ranges hold ({by_kind()[kind].name};"
        f" {known.loc[group, 'pairs']} published rates of {group}, each hidden with its chip and publication)"
    )
