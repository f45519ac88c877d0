"""Predict a rate from a chip's published specifications, a work's operations and measurements; and judge the error.

A ridge regression learns from the table of `rates`. The logarithm of a rate is the mean of the logarithms of the chip's
peak and bandwidth, plus terms with regularised weights: for publications, settings, families of precisions, frameworks,
works, vendors and products, for the numbers of a line, and for how families and publications respond to a chip's
figures.

Its error is measured by cross-validation on published rates: the chip is hidden, its publication, or both. A chip is
hidden with all its boards and memory sizes: for a V100, the rates of every V100 are hidden.
"""

import math
from collections.abc import Iterator

import numpy
import pandas

from benchbook.record.rates import ARTICLES, HERE, RECORD

# Standard deviations of the weights of each kind of column, and of measurements; `benchmarks/fit_spreads.py` fits them.
SPREADS = {"wide": 0.601, "narrow": 0.246, "slope": 0.121}
NOISE = {RECORD: 0.135, ARTICLES: 0.381, HERE: 0.135}
SPREADS["free"] = 7.0  # weights without prior knowledge: the level, and works whose operations were not counted
KINDS = {"publication": "narrow", "setting": "narrow", "family": "narrow", "framework": "narrow"}
KINDS |= {"work": "wide", "vendor": "wide", "product": "slope"}
RESPONDS = ("family", "publication")  # each of their values has slopes over the first four of CENTRES
CENTRES = {"peak": numpy.log(15.0), "bandwidth": numpy.log(600.0), "fp32": numpy.log(15.0), "released": 2020.0 / 3}
CENTRES |= {"memory": numpy.log(16.0), "operations": numpy.log(24.5e9), "batch": numpy.log(64.0), "date": 2021.0 / 3}
CENTRES |= {"loader": 0.0, "no_update": 0.0}

CHIP, PUBLICATION, BOTH = "chip hidden", "publication hidden", "chip and publication hidden"
ONE_KNOWN = "publication known by one rate of the chip"
LEVEL = 0.90
FEWEST = 20  # rates in the smallest group that is shown
KEPT = ["product", "publication", "vendor", "family", "origin"]
JUDGED = ["publication", "chip", "vendor", "work", "precision", "family"]


class Model:
    """A model of rates, fitted to a set of observations."""

    def __init__(self, observations: pandas.DataFrame):
        """Learn from observations with the columns of `rates.of_record`."""
        from sklearn.linear_model import Ridge  # the import takes a second, which a study's first kernel must not spend
        from sklearn.preprocessing import OneHotEncoder

        self.observations = observations.reset_index(drop=True)
        self.encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        self.encoder.fit(self.observations[list(KINDS)])
        self.design, noise = self._columns(self.observations), self.observations["origin"].map(NOISE).to_numpy(float)
        self.logs = numpy.log(self.observations["rate"].to_numpy(float)) - offset(self.observations)
        self.ridge = Ridge(alpha=1.0, fit_intercept=False).fit(self.design, self.logs, sample_weight=noise**-2)
        self.precision = numpy.linalg.inv(self.design @ self.design.T + numpy.diag(noise**2))

    def predict(self, targets: pandas.DataFrame) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the logarithms of the targets' rates, and the model's standard deviation of each."""
        columns = self._columns(targets)
        shared = columns @ self.design.T
        known = ((shared @ self.precision) * shared).sum(axis=1)
        variance = (columns**2).sum(axis=1) - known + targets["origin"].map(NOISE).to_numpy(float) ** 2
        return self.ridge.predict(columns) + offset(targets), numpy.sqrt(variance)

    def predict_hidden(self, hidden: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return what `predict` would for the hidden observations if the model had not learnt from them.

        Args:
            hidden: the indices of observations.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.2, for blocks.
        """
        covariance = numpy.linalg.inv(self.precision[numpy.ix_(hidden, hidden)])
        mean = self.logs[hidden] - covariance @ (self.precision[hidden] @ self.logs)
        return mean + offset(self.observations.iloc[hidden]), numpy.sqrt(numpy.diag(covariance))

    def blocks(self, lines: pandas.DataFrame) -> list[tuple[str, numpy.ndarray]]:
        """Return the regression's columns in groups, each with its kind, see SPREADS.

        A category that no observation has is the last column of its group: its weight is 0, and its spread adds to the
        uncertainty.
        """
        ends = numpy.cumsum([len(names) for names in self.encoder.categories_])[:-1]
        known = numpy.split(self.encoder.transform(lines[list(KINDS)]), ends, axis=1)
        shared = {
            name: numpy.column_stack([columns, 1.0 - columns.sum(axis=1)])
            for name, columns in zip(KINDS, known, strict=True)
        }
        derived = {"operations": _operations(lines, of_sequences=False), "date": lines["date"].astype(float) / 3}
        table = lines.assign(**derived, batch=numpy.log(lines["batch_size"].astype(float)))[list(CENTRES)]
        numbers = table.to_numpy(float) - numpy.array(list(CENTRES.values()))
        uncounted = lines["flops_per_sample"].isna().to_numpy(float)[:, None]
        parts = [("free", numpy.ones((len(lines), 1))), ("free", shared["work"] * uncounted), ("narrow", numbers)]
        parts += [(kind, shared[name]) for name, kind in KINDS.items()]
        parts += [("slope", shared[name] * numbers[:, [place]]) for name in RESPONDS for place in range(4)]
        return parts

    def _columns(self, lines: pandas.DataFrame) -> numpy.ndarray:
        return numpy.hstack([SPREADS[kind] * columns for kind, columns in self.blocks(lines)])


def offset(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return the mean of the logarithms of peak and bandwidth of each line's chip; for sequences, per operation.

    Networks for images differ in how well they use a chip; transformers are all mostly matrix products.
    """
    operations = (_operations(lines, of_sequences=True) - CENTRES["operations"]).to_numpy()
    return (lines["peak"].to_numpy(float) + lines["bandwidth"].to_numpy(float)) / 2 - operations


def _operations(lines: pandas.DataFrame, of_sequences: bool) -> pandas.Series:
    """Return the logarithm of the operations of lines with sequences, or of the others; elsewhere the centre."""
    operations = numpy.log(lines["flops_per_sample"].astype(float))
    return operations.where(lines["sequence_length"].notna() == of_sequences).fillna(CENTRES["operations"])


def cross_validated(model: Model, targets: pandas.Index) -> pandas.DataFrame:
    """Return the prediction of each target in each situation, without the rates that the situation hides.

    Its interval is chosen without them as well.

    Args:
        model: of published rates.
        targets: the observations to predict.

    Returns:
        One line for each situation and observation: situation, place (in the model's observations), product,
        publication, vendor, family, origin, printed, mean and deviation of the prediction (these three in logarithms),
        and the columns that `with_interval` adds. A work whose operations were not counted has no line if no other rate
        of it is left, because such a work is never predicted.
    """
    lines, parts = model.observations, []
    works, counted = pandas.factorize(lines["work"])[0], lines["flops_per_sample"].notna().to_numpy()
    for situation, hidden, own in _hidden(lines):
        stays = numpy.isin(works[hidden], numpy.delete(works, hidden)) | counted[hidden]
        kept = numpy.isin(hidden, own) & stays & numpy.isin(hidden, targets)
        if kept.any() and len(hidden) < len(lines):
            mean, deviation = model.predict_hidden(hidden)
            values = {"place": hidden[kept], "mean": mean[kept], "deviation": deviation[kept]}
            parts.append(pandas.DataFrame({"situation": situation} | values))
    known = lines[KEPT].assign(printed=numpy.log(lines["rate"].to_numpy(float)))
    table = pandas.concat(parts, ignore_index=True).join(known, on="place")
    widths = pandas.Series(numpy.nan, index=table.index)
    for situation, alike in table.groupby("situation"):
        for _, own in alike.groupby("product" if situation == CHIP else "publication"):
            widths[own.index] = interval_factor(alike.drop(own.index)) * own["deviation"]
    return with_interval(table, widths)


def _hidden(lines: pandas.DataFrame) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray]]:
    """Yield each situation, the places that it hides, and those among them that are predicted."""
    product, publication = lines["product"].to_numpy(), lines["publication"].to_numpy()
    for situation, keys in ((CHIP, "product"), (PUBLICATION, "publication")):
        for places in lines.groupby(keys).indices.values():
            yield situation, places, places
    for (chip, printer), places in lines.groupby(["product", "publication"]).indices.items():
        yield BOTH, numpy.flatnonzero((product == chip) | (publication == printer)), places
        if len(places) > 1:
            others = publication == printer
            others[places[0]] = False
            yield ONE_KNOWN, numpy.flatnonzero(others), places[1:]


def interval_factor(lines: pandas.DataFrame) -> float:
    """Return the half-width of a 90 % interval in standard deviations of the model.

    Args:
        lines: of one situation, from `cross_validated`.

    Source: split conformal prediction with normalised residuals, https://arxiv.org/abs/1604.04173, section 5.2; the
    residuals are those of hidden lines.
    """
    return quantile((lines["mean"] - lines["printed"]).abs() / lines["deviation"], lines["publication"])


def quantile(scores: pandas.Series, publications: pandas.Series) -> float:
    """Return the LEVEL quantile of the scores, with equal weight for each publication.

    Lines of one publication share an error: ninety of them predict the error in a new publication no better than three.

    Source: Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer hierarchical models, 2022,
    https://arxiv.org/abs/1809.07441, pooling of distribution functions.
    """
    scores, codes = scores.to_numpy(), pandas.factorize(publications)[0]
    counts, order = numpy.bincount(codes), numpy.argsort(scores)
    shares = numpy.cumsum(1.0 / counts[codes[order]]) / len(counts)
    return float(scores[order][min(numpy.searchsorted(shares, LEVEL - 1e-9), len(scores) - 1)])


def with_interval(lines: pandas.DataFrame, width: pandas.Series) -> pandas.DataFrame:
    """Return lines with low and high (mean -/+ width), off (mean minus printed), hit (printed is in the interval)."""
    off = lines["mean"] - lines["printed"]
    return lines.assign(low=lines["mean"] - width, high=lines["mean"] + width, off=off, hit=off.abs() <= width)


def error_measures(lines: pandas.DataFrame) -> dict:
    """Return pairs, publications, median_error, within_2, and coverage and half_width if lines have intervals."""
    off = lines["off"].astype(float)
    measures = {"pairs": len(lines), "publications": lines["publication"].nunique()}
    measures["median_error"] = float(numpy.expm1(off).abs().median())
    measures["within_2"] = float((off.abs() < math.log(2)).mean())
    if "hit" not in lines:
        return measures
    half = math.exp(((lines["high"] - lines["low"]) / 2).median())
    return measures | {"coverage": float(lines["hit"].mean()), "half_width": half}


def predict_product(targets: pandas.DataFrame, model: Model, known: pandas.DataFrame) -> pandas.DataFrame:
    """Return the predictions of one product's rates from the rates of other products.

    Args:
        targets: rates of one product, with the columns of `rates.of_record`.
        model: of the record.
        known: from `cross_validated` for this model.

    Returns:
        Columns: publication, chip, vendor, work, precision, family, situation, printed, mean (both in logarithms), and
        the columns that `with_interval` adds.
    """
    product = targets["product"].iloc[0]
    lines, known = model.observations, known[known["product"] != product]
    others = lines[lines["product"] != product]
    model = Model(others) if len(others) < len(lines) else model
    mean, deviation = model.predict(targets)
    situations = targets["publication"].isin(others["publication"]).map({True: CHIP, False: BOTH})
    factors = {name: interval_factor(known[known["situation"].eq(name)]) for name in set(situations)}
    printed = numpy.log(targets["rate"].astype(float))
    lines = targets[JUDGED].assign(situation=situations, printed=printed, mean=mean)
    return with_interval(lines, situations.map(factors) * deviation)


def groups(lines: pandas.DataFrame, columns: tuple[str, ...]) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Yield the lines of each value in these columns, if there are at least FEWEST."""
    for column in columns:
        yield from ((name, own) for name, own in lines.groupby(column) if len(own) >= FEWEST)
