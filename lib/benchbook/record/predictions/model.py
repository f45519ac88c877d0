"""A rate from a chip's printed figures, a work's operations, and what publications measured: a Gaussian process.

The logarithm of a rate is half the chip's peak and half its bandwidth, in logarithms, plus effects: of publications,
works, settings and chips, each drawn to zero as far as its spread says (partial pooling), and of how chips respond to
their figures: in all, by precision, publication and work. The spreads were chosen by hiding every chip in turn; chosen
anew with a quarter of the chips left out, and judged on that quarter, the median error grows from 9.4 to 10.1 %.
"""

from dataclasses import dataclass

import numpy
import pandas
from scipy.linalg import cho_factor, cho_solve

from benchbook.record.predictions.features import CHIP

# Which lines share an effect (the columns in which they agree), how it acts, and its variance, of logarithms squared.
CONSTANT, LINEAR, SMOOTH = "constant", "linear in the chip's figures", "smooth in the chip's figures"
TERMS = (
    (("publication",), CONSTANT, 0.53),
    (("work",), CONSTANT, 0.44),
    (("publication", "work"), CONSTANT, 0.12),
    (("publication", "precision"), CONSTANT, 0.037),
    (("setting",), CONSTANT, 0.061),
    (("precision",), CONSTANT, 0.49),
    (("framework",), CONSTANT, 0.047),
    (("vendor",), CONSTANT, 0.22),
    (("product",), CONSTANT, 0.0045),
    (("product", "precision"), CONSTANT, 0.011),
    (("product", "publication"), CONSTANT, 0.0029),
    ((), LINEAR, 0.031),
    (("family",), LINEAR, 0.033),
    (("publication",), LINEAR, 0.01),
    (("work",), LINEAR, 0.0039),
    (("setting",), LINEAR, 0.0037),
    ((), SMOOTH, 0.052),
    (("family",), SMOOTH, 0.017),
    (("publication",), SMOOTH, 0.03),
)
SLOPES = {"operations": 0.98, "batch_size": 0.39, "date": 0.39, "loader": 0.39, "no_update": 0.45}
NOISE = 0.0085
LENGTHS = (4.2, 1.3, 1.1, 1.4, 1.9)  # of `CHIP`, over which the smooth response changes
LINEAR_IN = 4  # of `CHIP`: memory has no slope
ANYTHING = 50.0  # the variance of what nothing is known of: the level, and of a work whose operations nobody counted
CENTRES = {"operations": numpy.log(24.5e9), "batch_size": numpy.log(64.0), "date": 2021.0 / 3}
ZERO = numpy.log(15.0), numpy.log(600.0), numpy.log(15.0), 2020.0 / 3, numpy.log(16.0)  # a chip in the middle


@dataclass(frozen=True)
class Estimate:
    """A prediction in logarithms: its middle, and how uncertain the model takes it to be."""

    mean: numpy.ndarray
    deviation: numpy.ndarray


class Model:
    """What a set of observations says of rates that are not among them."""

    def __init__(self, observations: pandas.DataFrame):
        """Learn from observations, as `features.observations` lays them out."""
        self.observations = observations.reset_index(drop=True)
        self.logs = numpy.log(self.observations["rate"].to_numpy(float)) - offset(self.observations)
        covariance = kernel(self.observations, self.observations) + NOISE * numpy.eye(len(self.logs))
        self.precision = cho_solve(cho_factor(covariance), numpy.eye(len(self.logs)))
        self.weights = self.precision @ self.logs

    def predict(self, targets: pandas.DataFrame) -> Estimate:
        """Return the logarithms of the targets' rates."""
        shared = kernel(targets, self.observations)
        variance = variances(targets) + NOISE - numpy.einsum("ij,jk,ik->i", shared, self.precision, shared)
        return Estimate(shared @ self.weights + offset(targets), numpy.sqrt(numpy.maximum(variance, NOISE)))

    def without(self, hidden: numpy.ndarray) -> Estimate:
        """Return what the other observations say of the hidden ones: the same as learning anew without them.

        Args:
            hidden: the places of observations.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.2, of blocks.
        """
        covariance = numpy.linalg.inv(self.precision[numpy.ix_(hidden, hidden)])
        mean = self.logs[hidden] - covariance @ self.weights[hidden]
        return Estimate(mean + offset(self.observations.iloc[hidden]), numpy.sqrt(numpy.diag(covariance)))


def offset(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return half the peak and half the bandwidth of each line's chip, in logarithms."""
    return (lines["peak"].to_numpy(float) + lines["bandwidth"].to_numpy(float)) / 2


def kernel(some: pandas.DataFrame, others: pandas.DataFrame) -> numpy.ndarray:
    """Return the covariance of the logarithms of rates, one row for each of some, one column for each of the others."""
    figures = [lines[CHIP].to_numpy(float) - numpy.array(ZERO) for lines in (some, others)]
    responses = {
        CONSTANT: 1.0,
        LINEAR: figures[0][:, :LINEAR_IN] @ figures[1][:, :LINEAR_IN].T,
        SMOOTH: _smooth(*(part / numpy.array(LENGTHS) for part in figures)),
    }
    names = {name for columns, _, _ in TERMS for name in columns}
    agree = {name: _agree(some[name], others[name]) for name in names}
    total = numpy.full((len(some), len(others)), ANYTHING)
    for columns, response, variance in TERMS:
        shared = numpy.logical_and.reduce([agree[name] for name in columns]) if columns else 1.0
        total += variance * shared * responses[response]
    for name, variance in SLOPES.items():
        left, right = (_slope(lines, name) for lines in (some, others))
        total += variance * numpy.outer(left, right)
    uncounted = numpy.outer(some["flops_per_sample"].isna(), others["flops_per_sample"].isna())
    return total + ANYTHING * uncounted * agree["work"]


def _agree(some: pandas.Series, others: pandas.Series) -> numpy.ndarray:
    """Return where two columns have the same value; numbers are compared in place of words, which takes longer."""
    codes = pandas.factorize(numpy.concatenate([some.to_numpy(object), others.to_numpy(object)]))[0]
    return codes[: len(some), None] == codes[None, len(some) :]


def variances(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return the diagonal of the covariance of some lines with themselves."""
    return numpy.array([kernel(lines.iloc[[place]], lines.iloc[[place]])[0, 0] for place in range(len(lines))])


def _slope(lines: pandas.DataFrame, name: str) -> numpy.ndarray:
    if name == "operations":
        return numpy.log(lines["flops_per_sample"].astype(float)).fillna(CENTRES[name]).to_numpy() - CENTRES[name]
    values = lines[name].to_numpy(float)
    if name == "batch_size":
        return numpy.log(values) - CENTRES[name]
    return values / 3 - CENTRES[name] if name == "date" else values


def _smooth(some: numpy.ndarray, others: numpy.ndarray) -> numpy.ndarray:
    """Return the squared exponential of distances."""
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1)[None, :] - 2 * some @ others.T
    return numpy.exp(-numpy.maximum(squares, 0) / 2)
