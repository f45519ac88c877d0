"""A rate from a chip's printed figures, a work's operations and what publications measured; and how far it is off.

A ridge regression: the logarithm of a rate is half the chip's peak and half its bandwidth, in logarithms, plus weights
that are drawn to zero: of publications, settings, families of precisions, frameworks, works, vendors and products, of
the numbers of a line, and of how families and publications respond to a chip's figures.

It is judged where the rate was printed, with its chip hidden, its publication, or both. A chip is hidden with all its
boards and memories: of a V100 nothing is known that any V100 did. The plain rules are judged on the same lines: what
other chips of the setting reached, times the ratio of cores, of peaks, of bandwidths.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import pandas
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

from benchbook import record
from benchbook.record import chips, observations
from benchbook.record.observations import ARTICLES, FAMILIES, HERE, RECORD

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

CHIP, PUBLICATION, BOTH = "chip hidden", "publication hidden", "chip and publication hidden"
ONE_KNOWN = "publication known by one rate of the chip"
SITUATIONS = (CHIP, PUBLICATION, BOTH, ONE_KNOWN)
LEVEL = 0.90
FEWEST = 20  # lines of a group that has a line of its own
MODEL = "as published"
RULES = ("ratio of cores", "ratio of peaks", "ratio of bandwidths", "half peak, half bandwidth")
KEPT = ["product", "publication", "vendor", "family", "origin"]
UNLIKE = "a work unlike all others on record, whose operations nobody counted"


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


def residuals(model: Model) -> pandas.DataFrame:
    """Return what each observation's prediction would have been in each situation.

    Returns:
        One line for each situation and observation: situation, place (in the model's observations), product,
        publication, vendor, family, origin, printed (this and what follows in logarithms), mean and deviation of the
        prediction. A work that is left without another line, and whose operations nobody counted, is refused, as it is
        where nothing is hidden.
    """
    lines, parts, estimates = model.observations, [], {}
    works, counted = pandas.factorize(lines["work"])[0], lines["flops_per_sample"].notna().to_numpy()
    for situation, hidden, asked in _hidden(lines):
        stays = numpy.isin(works[hidden], numpy.delete(works, hidden)) | counted[hidden]
        judged = numpy.isin(hidden, asked) & stays
        if judged.any() and len(hidden) < len(lines):
            key = hidden.tobytes()  # all chips of one publication hide the same lines
            estimates[key] = estimate = estimates.get(key) or model.without(hidden)
            values = {"mean": estimate.mean[judged], "deviation": estimate.deviation[judged]}
            parts.append(pandas.DataFrame({"situation": situation, "place": hidden[judged]} | values))
    table = pandas.concat(parts, ignore_index=True)
    kept = lines[KEPT].assign(printed=numpy.log(lines["rate"].to_numpy(float)))
    return table.join(kept, on="place")


def _hidden(lines: pandas.DataFrame) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray]]:
    """Yield each situation, the places that it hides, and those among them that are asked for."""
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


def quantile(scores: numpy.ndarray, publications: numpy.ndarray) -> float:
    """Return what LEVEL of the scores stay below, each publication counting as much as any other.

    The lines of one publication share an error: ninety of one say no more of the next publication than three do.

    Source: Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer hierarchical models, 2022,
    https://arxiv.org/abs/1809.07441, pooling of distribution functions.
    """
    codes, counts = numpy.unique(publications, return_inverse=True, return_counts=True)[1:]
    order = numpy.argsort(scores)
    shares = numpy.cumsum(1.0 / counts[codes[order]]) / len(counts)
    return float(scores[order][min(numpy.searchsorted(shares, LEVEL - 1e-9), len(scores) - 1)])


def reach(table: pandas.DataFrame, situation: str) -> float:
    """Return how many of the model's deviations an interval reaches in a situation; `table` is from `residuals`.

    Source: split conformal prediction with normalised residuals, https://arxiv.org/abs/1604.04173, section 5.2; here
    they are those of hidden lines.
    """
    alike = table[table["situation"] == situation]
    scores = (alike["mean"] - alike["printed"]).abs() / alike["deviation"]
    return quantile(scores.to_numpy(), alike["publication"].to_numpy())


def published(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return each line's prediction as it would have been published, its interval chosen without what is hidden.

    Args:
        table: from `residuals`.

    Returns:
        Its columns, and low, high (logarithms), off (predicted minus printed) and hit (whether the interval holds the
        printed rate).
    """
    far = pandas.Series(numpy.nan, index=table.index)
    for situation, own in table.groupby("situation"):
        for _, group in own.groupby("product" if situation == CHIP else "publication"):
            far[group.index] = reach(own.drop(group.index), situation) * group["deviation"]
    off = table["mean"] - table["printed"]
    return table.assign(low=table["mean"] - far, high=table["mean"] + far, off=off, hit=off.abs() <= far)


def errors(lines: pandas.DataFrame, judged: pandas.DataFrame) -> pandas.DataFrame:
    """Return how far what is published and the plain rules are off, on the same lines.

    Args:
        lines: the model's observations.
        judged: from `published`.

    Returns:
        Columns: situation, group (the record's, the articles', those of a family of precisions, or a maker's), rule,
        pairs, publications, median_error (of predicted over printed, less 1, either sign), within_2 (the share within a
        factor of 2), coverage (of the 90 % intervals), half_width (the median factor from middle to bound; of a rule
        that which holds 90 % of its own lines).
    """
    parts = []
    for situation, some in judged.groupby("situation", sort=False):
        said = rules(lines, same_setting=situation in (CHIP, ONE_KNOWN)).loc[some["place"]].set_index(some.index)
        some = some.assign(**said.sub(some["printed"], axis=0))[said[RULES[1]].notna()]
        groups = {RECORD: some["origin"].eq(RECORD), ARTICLES: some["origin"].eq(ARTICLES)}
        groups |= {name: some["family"].eq(name) for name in FAMILIES}
        groups |= {name: some["vendor"].eq(name) for name in sorted(set(some["vendor"]))}
        for group, chosen in groups.items():
            own, head = some[chosen], {"situation": situation, "group": group}
            if len(own) < FEWEST:
                continue
            parts.append(head | {"rule": MODEL} | measures(own))
            for rule in RULES:
                off = own[[rule, "publication"]].dropna().rename(columns={rule: "off"})
                half = math.exp(quantile(off["off"].abs().to_numpy(), off["publication"].to_numpy()))
                parts.append(head | {"rule": rule} | measures(off) | {"half_width": half})
    return pandas.DataFrame(parts)


def measures(lines: pandas.DataFrame) -> dict:
    """Return pairs, publications, median_error, within_2, and coverage and half_width where there are intervals."""
    off = lines["off"].astype(float)
    said = {"pairs": len(lines), "publications": lines["publication"].nunique()}
    said["median_error"] = float(numpy.expm1(off).abs().median())
    said["within_2"] = float((off.abs() < math.log(2)).mean())
    if "hit" not in lines:
        return said
    half = math.exp(((lines["high"] - lines["low"]) / 2).median())
    return said | {"coverage": float(lines["hit"].mean()), "half_width": half}


def rules(lines: pandas.DataFrame, same_setting: bool) -> pandas.DataFrame:
    """Return what the plain rules say of each observation, in logarithms: the median over the chips they start from.

    Args:
        lines: observations with a new index.
        same_setting: they start from the other chips of its setting; else from other chips that did its work in its
            family of precisions in other publications.

    Returns:
        A column for each of RULES; missing where there is no other chip, or where a chip's cores are not printed.
    """
    logs, publications = numpy.log(lines["rate"].to_numpy(float)), lines["publication"].to_numpy()
    cores = numpy.log(chips.table()["cores"].reindex(lines["chip"]).to_numpy(float))
    peaks, bandwidths = lines["peak"].to_numpy(float), lines["bandwidth"].to_numpy(float)
    scales = numpy.column_stack([cores, peaks, bandwidths, (peaks + bandwidths) / 2])
    products, said = lines["product"].to_numpy(), numpy.full((len(lines), len(RULES)), numpy.nan)
    for places in lines.groupby(["setting"] if same_setting else ["work", "family"]).indices.values():
        for place in places:
            others = places[products[places] != products[place]]
            others = others if same_setting else others[publications[others] != publications[place]]
            guesses = pandas.DataFrame(logs[others, None] - scales[others] + scales[place])
            said[place] = guesses.median().to_numpy()
    return pandas.DataFrame(said, index=lines.index, columns=list(RULES))


def judge(path: Path, model: Model, table: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.Series]:
    """Predict each single-device training rate of a ledger with its chip, in all its boards, hidden from the record.

    A publication that the record has stays known, all but that chip's rates; any other is new. Intervals are chosen
    without the chip.

    Args:
        path: a table with the record's columns.
        model: of the record.
        table: from `residuals` of it.

    Returns:
        A line for each rate that is predicted: publication, chip, vendor, work, precision, family, situation, printed,
        predicted, low, high (images a second), off (predicted over printed, in logarithms), hit; and why the others are
        not, by the ledger's line.
    """
    figures = record.read(path)
    targets, reasons = observations.of_record(figures), observations.refusals(figures)
    parts = []
    for product, group in targets.groupby("product"):
        known = model.observations[model.observations["product"] != product]
        comparable = group["work"].isin(known["work"]) | group["flops_per_sample"].notna()
        reasons = pandas.concat([reasons, pandas.Series(UNLIKE, index=group.index[~comparable])])
        if comparable.any():
            parts.append(predict_hidden(group[comparable], model, table))
    lines = pandas.concat(parts) if parts else pandas.DataFrame(columns=["off", "hit", "publication", "vendor"])
    return lines.sort_index(), reasons.sort_index()


def predict_hidden(targets: pandas.DataFrame, model: Model, table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the predictions of one product's rates from the other products', as `judge` does."""
    product = targets["product"].iloc[0]
    lines, table = model.observations, table[table["product"] != product]
    others = lines[lines["product"] != product]
    model = Model(others) if len(others) < len(lines) else model
    guess = model.predict(targets)
    situations = targets["publication"].isin(others["publication"]).map({True: CHIP, False: BOTH})
    far = situations.map({name: reach(table, name) for name in set(situations)}) * guess.deviation
    printed = numpy.log(targets["rate"].astype(float))
    names = ["publication", "chip", "vendor", "work", "precision", "family"]
    bounds = {"predicted": guess.mean, "low": guess.mean - far, "high": guess.mean + far}
    off = guess.mean - printed
    judged = targets[names].assign(situation=situations, printed=targets["rate"], off=off, hit=off.abs() <= far)
    return judged.assign(**{name: numpy.exp(bound) for name, bound in bounds.items()})


def summarise(lines: pandas.DataFrame) -> pandas.DataFrame:
    """Return how far off the lines of `judge` are: of all, by family of precisions, by situation, and by maker.

    A group with fewer than 20 rates has no line of its own.

    Returns:
        Columns: of, pairs, publications, median_error, within_2, coverage, half_width.
    """
    logs = lines.assign(**{name: numpy.log(lines[name].astype(float)) for name in ("low", "high")})
    groups = {"all": logs} | {
        name: group
        for column in ("family", "situation", "vendor")
        for name, group in logs.groupby(column)
        if len(group) >= FEWEST
    }
    return pandas.DataFrame([{"of": name} | measures(group) for name, group in groups.items()])
