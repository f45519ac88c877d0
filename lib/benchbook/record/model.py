"""A rate from a chip's printed figures, a work's operations and what publications measured: a ridge regression.

The logarithm of a rate is half the chip's peak and half its bandwidth, in logarithms, plus weights that are drawn to
zero: of publications, settings, families of precisions, frameworks, works, vendors and products, of the numbers of a
line, and of how families and publications respond to a chip's figures.
"""

from dataclasses import dataclass

import numpy
import pandas
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

from benchbook.record.observations import ARTICLES, HERE, RECORD

# How far the weights of each kind of columns, and measurements, spread: `python benchmarks/fit_spreads.py` makes them.
SPREADS = {"wide": 0.601, "narrow": 0.246, "slope": 0.121}
NOISE = {RECORD: 0.135, ARTICLES: 0.381, HERE: 0.135}
SPREADS["free"] = 7.0  # of what nothing is known: the level, and a work whose operations nobody counted
KINDS = {"publication": "narrow", "setting": "narrow", "family": "narrow", "framework": "narrow"}
KINDS |= {"work": "wide", "vendor": "wide", "product": "slope"}
RESPONDS = ("family", "publication")  # they have slopes of their own over the first four of `CHIP`
CENTRES = {"peak": numpy.log(15.0), "bandwidth": numpy.log(600.0), "fp32": numpy.log(15.0), "released": 2020.0 / 3}
CENTRES |= {"memory": numpy.log(16.0), "operations": numpy.log(24.5e9), "batch": numpy.log(64.0), "date": 2021.0 / 3}
CENTRES |= {"loader": 0.0, "no_update": 0.0}


@dataclass(frozen=True)
class Estimate:
    """Predictions in logarithms: their middle, and how uncertain the model takes them to be."""

    mean: numpy.ndarray
    deviation: numpy.ndarray


class Model:
    """What a set of observations says of rates that are not among them."""

    def __init__(self, observations: pandas.DataFrame):
        """Learn from observations, as `observations.of_record` lays them out."""
        self.observations = observations.reset_index(drop=True)
        self.encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        self.encoder.fit(self.observations[list(KINDS)])
        self.design, noise = self._columns(self.observations), _noise(self.observations)
        self.logs = numpy.log(self.observations["rate"].to_numpy(float)) - offset(self.observations)
        self.ridge = Ridge(alpha=1.0, fit_intercept=False).fit(self.design, self.logs, sample_weight=noise**-2)
        self.precision = numpy.linalg.inv(self.design @ self.design.T + numpy.diag(noise**2))

    def predict(self, targets: pandas.DataFrame) -> Estimate:
        """Return the logarithms of the targets' rates."""
        columns = self._columns(targets)
        shared = columns @ self.design.T
        known = ((shared @ self.precision) * shared).sum(axis=1)
        variance = (columns**2).sum(axis=1) - known + _noise(targets) ** 2
        return Estimate(self.ridge.predict(columns) + offset(targets), numpy.sqrt(variance))

    def without(self, hidden: numpy.ndarray) -> Estimate:
        """Return what the other observations say of the hidden ones: the same as learning without them.

        Args:
            hidden: the places of observations.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.2, of blocks.
        """
        covariance = numpy.linalg.inv(self.precision[numpy.ix_(hidden, hidden)])
        mean = self.logs[hidden] - covariance @ (self.precision[hidden] @ self.logs)
        return Estimate(mean + offset(self.observations.iloc[hidden]), numpy.sqrt(numpy.diag(covariance)))

    def _columns(self, lines: pandas.DataFrame) -> numpy.ndarray:
        return numpy.hstack([SPREADS[kind] * columns for kind, columns in blocks(self.encoder, lines)])


def blocks(encoder: OneHotEncoder, lines: pandas.DataFrame) -> list[tuple[str, numpy.ndarray]]:
    """Return the regression's columns, each with its kind, see SPREADS.

    Args:
        encoder: fitted to the columns KINDS of what is learnt from. What it does not know has a last column of its
            group, whose weight stays 0 and whose spread counts.
        lines: as `observations.of_record` lays them out.
    """
    ends = numpy.cumsum([len(names) for names in encoder.categories_])[:-1]
    known = numpy.split(encoder.transform(lines[list(KINDS)]), ends, axis=1)
    shared = {
        name: numpy.column_stack([columns, 1.0 - columns.sum(axis=1)])
        for name, columns in zip(KINDS, known, strict=True)
    }
    numbers = _numbers(lines)
    uncounted = lines["flops_per_sample"].isna().to_numpy(float)[:, None]
    parts = [("free", numpy.ones((len(lines), 1))), ("free", shared["work"] * uncounted), ("narrow", numbers)]
    parts += [(kind, shared[name]) for name, kind in KINDS.items()]
    parts += [("slope", shared[name] * numbers[:, [place]]) for name in RESPONDS for place in range(4)]
    return parts


def offset(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return half the peak and half the bandwidth of each line's chip, in logarithms."""
    return (lines["peak"].to_numpy(float) + lines["bandwidth"].to_numpy(float)) / 2


def _numbers(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return the numbers of each line, those of its chip first, as distances from a line in the middle."""
    operations = numpy.log(lines["flops_per_sample"].astype(float)).fillna(CENTRES["operations"])
    derived = {"operations": operations, "batch": numpy.log(lines["batch_size"].astype(float))}
    table = lines.assign(**derived, date=lines["date"].astype(float) / 3)[list(CENTRES)]
    return table.to_numpy(float) - numpy.array(list(CENTRES.values()))


def _noise(lines: pandas.DataFrame) -> numpy.ndarray:
    return lines["origin"].map(NOISE).fillna(NOISE[RECORD]).to_numpy(float)
