"""The rules that predict a rate, and their errors on published rates that were hidden from them.

Two tables teach: rates of images, and of language models, see `observations`. In each a plain ratio scales the speeds
of the same work on other chips by their memory bandwidth. Next to it a regression learns from all rates of images, and
a share of the peak from all language models. Of the two rules of a table the one with the smaller error answers,
separately for each vendor, family of precisions and network.

A rule's error is that of published rates that were hidden from it with all rates of their chip, or of their chip and
their publication. A range widens where a chip or a work is unlike those on record; `errors` says how many ranges hold.
"""

import functools
import math
from statistics import NormalDist

import numpy
import pandas
import threadpoolctl  # of scikit-learn
from scipy.special import stdtrit

from benchbook.record import observations
from benchbook.record.observations import IMAGES, LANGUAGE_MODELS
from benchbook.rows import networks

REGRESSION, RATIO, SHARE = "regression", "ratio of bandwidths", "share of peak"
ANSWER = "the answer"
LEARNED, PLAIN = "learned", "plain"  # the two rules of a kind of work
CHIP, BOTH = "chip hidden", "chip and publication hidden"
HIDDEN = {CHIP: ["product"], BOTH: ["product", "publication"]}  # all rates with one of its values are hidden with it
LEVEL = 0.95  # of values below the upper bound of a 90 % range
DEVIATIONS = NormalDist().inv_cdf(LEVEL)  # from the middle of a range to a bound
GROUP = ["kind", "vendor", "family", "network"]
FEWEST, FEWEST_PUBLICATIONS = 10, 3  # errors and publications of the smallest group whose errors count
# Standard deviations of the logarithm of a rate: of names; of a unit of each number, the chip's first; of the effect of
# a chip's number by name; of its product with another of the chip's numbers; and of what is left. They make the record
# most likely; those of SLOPES are smaller, because hidden publications are then predicted better.
NAMES = {"publication": 0.28, "network": 0.6, "setting": 0.24, "family": 0.18, "work": 0.13, "vendor": 0.62}
NAMES |= {"uncounted": 2.0, "product": 0.12, "library": 0.09}
NUMBERS = {"peak": 0.19, "bandwidth": 0.07, "fp32": 0.21, "released": 0.06, "operations": 0.56, "batch": 0.10}
NUMBERS |= {"no_update": 0.36}  # 1 if no optimizer ran
SLOPES, PRODUCTS, REST = numpy.array([0.10, 0.05]), 0.05, 0.18  # SLOPES of the first two names
CONSTANT = 3.0  # so large that the constant is free, and so small that variances keep their digits
# Threads wait longer for each other than these small systems take.
ONE_THREAD = threadpoolctl.threadpool_limits.wrap(limits=1)
NOTHING = numpy.array([], int)
OPERATIONS = 24.5e9  # in place of those that were not counted


class Scaled:
    """Speed is in proportion to one figure of the chip, by the median of known speeds of the same work and family.

    Known speeds in the same setting are preferred, because the regression knows the setting as well.
    """

    def __init__(self, name: str, lines: pandas.DataFrame, figure: str):
        self.name, self.lines, self.figure = name, lines, figure
        self.works = pandas.Index(lines["work"] + lines["family"])
        self.ratios = (lines["speed"] - lines[figure]).to_numpy(float)
        self.known = self.encode(lines)

    def encode(self, targets: pandas.DataFrame) -> numpy.ndarray:
        """Return the work with its family and the setting of each target, -1 if not on record, and the figure."""
        works = self.works.unique().get_indexer(targets["work"] + targets["family"])
        settings = pandas.Index(self.lines["setting"].unique()).get_indexer(targets["setting"])
        return numpy.column_stack([works, settings, targets[self.figure]])

    def predict(self, targets: numpy.ndarray, hidden: numpy.ndarray = NOTHING) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the logarithm of each target's speed, and the deviation of a published one from it; NaN if unknown.

        Args:
            targets: from `encode`.
            hidden: places of lines that are not known.
        """
        is_known = ~numpy.isin(numpy.arange(len(self.lines)), hidden)
        speeds = numpy.full((2, len(targets)), numpy.nan)
        for place, (work, setting, figure) in enumerate(targets):
            alike = is_known & (self.known[:, 0] == work)
            own = alike & (self.known[:, 1] == setting)
            ratios = self.ratios[own if own.any() else alike]
            if len(ratios):
                speeds[:, place] = numpy.median(ratios) + figure, _deviation(ratios)
        return tuple(speeds)


def _deviation(values: numpy.ndarray) -> float:
    """Return the deviation of a further value, such that DEVIATIONS of it are Student's 90 % interval; NaN for one."""
    if len(values) < 2:
        return math.nan
    return stdtrit(len(values) - 1, LEVEL) / DEVIATIONS * values.std(ddof=1) * math.sqrt(1 + 1 / len(values))


class Regression:
    """A regression of speed, less the mean of the logarithms of peak and bandwidth, as a Gaussian process.

    A name that is not on record is like no other, which widens the deviation.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.2.
    """

    name = REGRESSION

    def __init__(self, lines: pandas.DataFrame):
        self.lines, columns = lines, _columns(lines)
        self.levels = {name: pandas.Index(columns[name].unique()) for name in NAMES}
        self.means = columns[list(NUMBERS)].mean()
        self.known = self.encode(lines)
        alike = _covariance(self.known[:, None], self.known)
        self.inverse = numpy.linalg.inv(alike + REST**2 * numpy.eye(len(lines)))
        self.residuals = lines["speed"].to_numpy(float) - self.known[:, -1]

    def encode(self, targets: pandas.DataFrame) -> numpy.ndarray:
        """Return the codes of the names, -1 if not on record, the numbers, and the mean of peak and bandwidth."""
        columns = _columns(targets)
        codes = [levels.get_indexer(columns[name]) for name, levels in self.levels.items()]
        return numpy.column_stack(
            [*codes, columns[list(NUMBERS)] - self.means, columns[["peak", "bandwidth"]].mean(axis=1)]
        )

    def predict(self, targets: numpy.ndarray, hidden: numpy.ndarray = NOTHING) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the logarithm of each target's speed, and the deviation of a published one from it; see `Scaled`."""
        alike = _covariance(targets[:, None], self.known)
        alike[:, hidden] = 0.0
        weights = alike @ self.inverse
        among = numpy.linalg.solve(self.inverse[numpy.ix_(hidden, hidden)], weights[:, hidden].T)
        weights -= among.T @ self.inverse[hidden]
        variances = _covariance(targets, targets) + REST**2 - (weights * alike).sum(axis=-1)
        return targets[:, -1] + weights @ self.residuals, numpy.sqrt(variances)


def _columns(lines: pandas.DataFrame) -> pandas.DataFrame:
    known = lines["flops_per_sample"].notna()
    operations = numpy.log(lines["flops_per_sample"].astype(float).fillna(OPERATIONS))
    names = {"network": lines["network"].where(known, ""), "uncounted": lines["network"].where(~known, "")}
    names["library"] = lines["framework"] + ", " + lines["family"]
    return lines.assign(operations=operations, batch=numpy.log(lines["batch_size"]), **names)


def _covariance(one: numpy.ndarray, other: numpy.ndarray) -> numpy.ndarray:
    """Return the covariance of encoded targets, broadcast over all but their last axis."""
    names, numbers, slopes = len(NAMES), len(NUMBERS), len(SLOPES)
    same = one[..., :names] == other[..., :names]
    products = one[..., names : names + numbers] * other[..., names : names + numbers]
    chip = products[..., :4].sum(axis=-1)
    constant = CONSTANT**2 + same @ numpy.square(list(NAMES.values())) + products @ numpy.square(list(NUMBERS.values()))
    return constant + same[..., :slopes] @ SLOPES**2 * chip + (PRODUCTS * chip) ** 2


@functools.cache
@ONE_THREAD
def by_kind() -> dict[str, dict]:
    """Return the rules of each kind of work: one that learns from the whole table, and the plain ratio."""
    images, models = observations.images(), observations.language_models()
    return {
        IMAGES: {LEARNED: Regression(images), PLAIN: Scaled(RATIO, images, "bandwidth")},
        LANGUAGE_MODELS: {LEARNED: Scaled(SHARE, models, "peak"), PLAIN: Scaled(RATIO, models, "bandwidth")},
    }


@functools.cache
@ONE_THREAD
def hidden() -> pandas.DataFrame:
    """Return the errors of both rules of a kind for each published rate, hidden in each situation, in logarithms.

    Returns:
        The columns of the kind's table, and: kind, situation, LEARNED and PLAIN (the errors; PLAIN is missing without
        another rate of the same work and family), deviation (of LEARNED). A work whose operations were not counted
        needs another rate.
    """
    parts = []
    for kind, rules in by_kind().items():
        lines, places, errors = rules[LEARNED].lines, [], []
        printed = lines["speed"].to_numpy(float)
        for situation, names in HIDDEN.items():
            values = lines[names].to_numpy(object)
            for own in lines.groupby(names).indices.values():
                unknown = numpy.flatnonzero((values == values[own[0]]).any(axis=1))
                (learned, deviations), (plain, _) = (rule.predict(rule.known[own], unknown) for rule in rules.values())
                off = learned - printed[own], plain - printed[own]
                places += own.tolist()
                errors += zip([situation] * len(own), *off, deviations, strict=True)
        table = pandas.DataFrame(errors, places, ["situation", LEARNED, PLAIN, "deviation"])
        parts.append(lines.join(table, how="inner").assign(kind=kind))
    table = pandas.concat(parts, ignore_index=True)
    return table[table[PLAIN].notna() | table["flops_per_sample"].notna()]


@functools.cache
def chosen(*group: str) -> tuple[str, numpy.ndarray, tuple[str, ...]]:
    """Return LEARNED or PLAIN, which answers for a group, a mask of the group in `hidden`, and its names.

    The rule answers whose errors of hidden chips have the smaller root mean square, since few large errors are worse
    than many small ones.

    Args:
        group: a kind, vendor, family and network; with too few errors all networks count, then all families, and so on.
    """
    table = hidden()
    names, publications, errors = (table[name].to_numpy() for name in (GROUP, "publication", [LEARNED, PLAIN]))
    usable = table[PLAIN].notna().to_numpy() & table["situation"].eq(CHIP).to_numpy()
    for length in range(len(group), 0, -1):
        alike = (names[:, :length] == group[:length]).all(axis=1)
        places = numpy.flatnonzero(alike & usable)
        if len(places) >= FEWEST and len(set(publications[places])) >= FEWEST_PUBLICATIONS:
            break
    learned, plain = numpy.square(errors[places]).mean(axis=0)
    return PLAIN if plain <= learned else LEARNED, alike, group[:length]


@functools.cache
def basis(rule: str, *group: str) -> str:
    """Return the name of LEARNED or PLAIN and its error, for a group or the smallest larger one with enough errors."""
    _, alike, names = chosen(*group)
    own = hidden()[alike & hidden()[PLAIN].notna()]
    situation = BOTH if own["situation"].eq(BOTH).any() else CHIP
    measures = _measures(own[own["situation"].eq(situation)], rule)
    return (
        f"{by_kind()[group[0]][rule].name}; its median error is {measures['median_error']:.0%} on {measures['pairs']}"
        f" published rates of {', '.join(map(networks.title, names[1:])) or names[0]} ({situation}), and"
        f" {measures['coverage']:.0%} of its 90 % ranges hold"
    )


@functools.cache
def errors() -> pandas.DataFrame:
    """Return the errors of the rules on published rates, all with the same knowledge.

    Returns:
        Columns: situation (CHIP or BOTH), group (the rates of the record or of the articles, a vendor and a family of
        precisions, or LANGUAGE_MODELS), rule (ANSWER is the one that answers), pairs, publications, median_error (of
        predicted over printed, less 1, without sign), within_2 (the share within a factor of 2), coverage (of the 90 %
        ranges), half_width (the median factor from the middle to a bound).
    """
    table = hidden()[hidden()[PLAIN].notna()]
    is_plain = [chosen(*group)[0] == PLAIN for group in table[GROUP].itertuples(index=False, name=None)]
    table = table.assign(answer=table[LEARNED].mask(is_plain, table[PLAIN]))
    models, families = table["kind"].eq(LANGUAGE_MODELS), table["vendor"] + ", " + table["family"]
    groups = table["origin"].mask(models, LANGUAGE_MODELS), families[~models]
    grouped = pandas.concat([table.assign(group=names) for names in groups]).groupby(["situation", "group"], sort=False)
    parts = []
    for (situation, group), own in grouped:
        if len(own) >= FEWEST:
            columns = {ANSWER: "answer"} | {rule.name: name for name, rule in by_kind()[own["kind"].iloc[0]].items()}
            head = {"situation": situation, "group": group}
            parts += [head | {"rule": rule} | _measures(own, column) for rule, column in columns.items()]
    return pandas.DataFrame(parts)


def _measures(lines: pandas.DataFrame, column: str) -> dict:
    """Return pairs, publications, median_error, within_2, coverage and half_width, see `errors`."""
    off = lines[column].astype(float)
    return {
        "pairs": len(lines),
        "publications": lines["publication"].nunique(),
        "median_error": float(numpy.expm1(off).abs().median()),
        "within_2": float((off.abs() < math.log(2)).mean()),
        "coverage": float((off.abs() <= DEVIATIONS * lines["deviation"]).mean()),
        "half_width": math.exp(DEVIATIONS * lines["deviation"].median()),
    }
