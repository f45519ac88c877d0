"""The rules that predict a rate, and their errors on published rates that were hidden from them.

A ridge regression learns from all published rates of images. An error is that of a published rate which
was hidden with all rates of its chip and of its publication, because a buyer's machine is in no
publication. `benchmarks/predictions.py` fits the constants, makes the errors and compares the
rules.
"""

import functools
from statistics import NormalDist

import numpy
import pandas

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import observations

LEVEL = 0.95  # of values below the upper bound of a 90 % range
DEVIATIONS = NormalDist().inv_cdf(LEVEL)  # from the middle of a range to a bound
# Standard deviations of the logarithm of a rate: of the effects of names alone and in pairs, of a
# unit of the numbers, and of what is left.
CONSTANTS = {"names": 1.0, "pairs": 0.25, "arithmetic": 0.1, "no_update": 1.0, "rest": 0.4}
NAMES, PAIRS = ("work", "vendor", "family"), (("framework", "family"), ("work", "vendor"))
NOTHING = numpy.array([], int)


class Regression:
    """A ridge regression of the logarithm of speed over memory bandwidth.

    Its terms are the effects of NAMES and of PAIRS, the chip's arithmetic over its bandwidth,
    and whether no optimizer ran. It knows no chip by its name: a chip with more arithmetic and
    more bandwidth is never slower.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.1.
    """

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
        it.

        Args:
            targets: with the columns of the lines, apart from speed.
            hidden: places of lines that are not known.
        """
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
def regression() -> Regression:
    """Return the rule that answers, from all rates on record."""
    return Regression(observations.images())


@functools.cache
def errors() -> pandas.DataFrame:
    """Return the errors of the rule on hidden rates, which `benchmarks/predictions.py` made.

    Returns:
        Columns: group (the rates of the record or of the articles, or a vendor and a family of
        precisions), pairs, publications, median_error (of predicted over printed, less 1,
        without sign), within_2 (the share within a factor of 2), coverage (of the 90 % ranges),
        ratio_error and ratio_within_2 (of a plain ratio of bandwidths).
    """
    return pandas.read_csv(layout.published() / "record" / "prediction_errors.csv")


@functools.cache
def basis(vendor: str, family: str) -> str:
    """Return how sure a rule's answers are, in words, by the errors of the group, or of the
    record if it has few."""
    known, group = errors().set_index("group"), f"{vendor}, {family}"
    group = group if group in known.index else observations.RECORD
    median, hold = map(wording.percent, known.loc[group, ["median_error", "coverage"]])
    return (
        f"half of such predictions are within {median}, and {hold} of their 90 % ranges hold (regression;"
        f" {known.loc[group, 'pairs']} published rates of {group}, each hidden with its chip and publication)"
    )
