"""How far predictions are off where the rate was printed: its chip hidden, its publication, or both.

A chip is hidden with all its boards and memories: of a V100 nothing is known that any V100 did. The plain rules are
judged on the same lines: what other chips of the setting reached, times the ratio of cores, of peaks, of bandwidths.
"""

import math
from collections.abc import Mapping

import numpy
import pandas

from benchbook.record import chips
from benchbook.record.predictions.features import ARTICLES, RECORD
from benchbook.record.predictions.model import Model

CHIP, PUBLICATION, BOTH = "chip hidden", "publication hidden", "chip and publication hidden"
SITUATIONS = (CHIP, PUBLICATION, BOTH)
LEVEL = 0.90
FEWEST = 20  # lines of a maker of chips; one with fewer is listed singly, with wider intervals
BETTER = 0.9
WIDER = 0.98  # the level of its intervals among those of all makers
RULES = ("ratio of cores", "ratio of peaks", "ratio of bandwidths", "half peak, half bandwidth")
MODEL = "the model"
PUBLISHED = "as published"
PEAKS = RULES[1]
OPERATIONS = "known by its operations alone"
KEYS = ("situation", "family", "vendor", "product")
NUMBERS = ("printed", "mean", "deviation", *RULES)

Columns = Mapping[str, numpy.ndarray]  # lines of `residuals`, as `columns` has them


def residuals(model: Model) -> pandas.DataFrame:
    """Return what each observation's prediction would have been with its chip, publication or both hidden.

    Returns:
        One line for each situation and observation: situation, place (in the model's observations), product,
        publication, vendor, family, origin, printed (this and what follows in logarithms), mean and deviation of the
        model's prediction, and what each of `RULES` says. A work that is left without another line, and whose
        operations nobody counted, is refused, as it is where nothing is hidden.
    """
    lines = model.observations
    product, publication = (lines[name].to_numpy() for name in ("product", "publication"))
    works, counted = pandas.factorize(lines["work"])[0], lines["flops_per_sample"].notna().to_numpy()
    kept = lines[["product", "publication", "vendor", "family", "origin"]]
    parts, estimates = [], {}  # what hides the same lines, as all machines of one publication do, is predicted once
    for situation, keys in zip(SITUATIONS, ("product", "publication", ["product", "publication"]), strict=True):
        for _, group in sorted(lines.groupby(keys).indices.items()):
            same_chip, same_publication = product == product[group[0]], publication == publication[group[0]]
            is_hidden = {CHIP: same_chip, PUBLICATION: same_publication, BOTH: same_chip | same_publication}[situation]
            hidden = numpy.flatnonzero(is_hidden)
            stays = numpy.isin(works[hidden], works[~is_hidden]) | counted[hidden]
            judged = numpy.isin(hidden, group) & stays
            if judged.any() and len(hidden) < len(lines):
                if (lines_hidden := hidden.tobytes()) not in estimates:
                    estimates[lines_hidden] = model.without(hidden)
                estimate, places = estimates[lines_hidden], hidden[judged]
                values = {"mean": estimate.mean[judged], "deviation": estimate.deviation[judged]}
                parts.append(pandas.DataFrame({"situation": situation, "place": places} | values))
    table = pandas.concat(parts, ignore_index=True)
    table = pandas.concat([kept.iloc[table["place"]].reset_index(drop=True), table], axis=1)
    asked = {situation: rules(lines, situation) for situation in (CHIP, BOTH)}
    parts = [
        part.join(asked[CHIP if situation == CHIP else BOTH], on="place")
        for situation, part in table.groupby("situation")
    ]
    table = pandas.concat(parts).sort_index()
    return table.assign(printed=numpy.log(lines["rate"].to_numpy(float))[table["place"]])


def columns(table: pandas.DataFrame | Columns) -> Columns:
    """Return the columns of `residuals` that `choose` and `reach` ask for, as arrays: parts of these take no time."""
    return {name: numpy.asarray(table[name]) for name in (*KEYS, *NUMBERS) if name in table}


def choose(table: pandas.DataFrame | Columns, situation: str, family: str, vendor: str) -> str:
    """Return what to predict from: the model, or a rule that beat it on such lines.

    A rule is taken where it was judged beside the model on at least 20 lines of that maker and family of precisions,
    and its median error is smaller by a tenth: with so few lines, less is chance.

    Args:
        table: from `residuals` or `columns`, without what must not be known.
        situation, family, vendor: see `reach`.
    """
    table = columns(table)
    asked = {"situation": situation, "family": family, "vendor": vendor}
    alike = numpy.logical_and.reduce([table[name] == value for name, value in asked.items()])
    alike &= ~numpy.isnan(table[PEAKS])
    if alike.sum() < FEWEST:
        return MODEL
    off = {name: table[name][alike] - table["printed"][alike] for name in ("mean", *RULES)}
    errors_of = {MODEL: BETTER * _error(off["mean"])}
    errors_of |= {rule: _error(off[rule]) for rule in RULES if not numpy.isnan(off[rule]).any()}
    return min(errors_of, key=errors_of.get)


def reach(table: pandas.DataFrame | Columns, basis: str, situation: str, family: str, vendor: str) -> float:
    """Return how far a prediction's interval reaches: in the model's deviations, or of a rule in logarithms.

    It is a quantile of what such predictions were off by, whole chips left out of each.

    Args:
        table: from `residuals` or `columns`, without what must not be known.
        basis: from `choose`.
        situation: one of `SITUATIONS`.
        family: of precisions.
        vendor: the chip's maker. Of one with fewer than 20 lines those of all makers count, at a higher level.

    Source: split conformal prediction with normalised residuals, https://arxiv.org/abs/1604.04173, section 5.2; here
    they are those of the jackknife.
    """
    table = columns(table)
    predicted = table["mean" if basis == MODEL else basis]
    alike = (table["situation"] == situation) & ~numpy.isnan(predicted)
    own = alike & (table["vendor"] == vendor)
    level = LEVEL if own.sum() >= FEWEST else WIDER
    alike = own if own.sum() >= FEWEST else alike
    precise = alike & (table["family"] == family)
    alike = precise if precise.sum() >= FEWEST else alike
    off = numpy.abs(predicted[alike] - table["printed"][alike])
    scores = off / (table["deviation"][alike] if basis == MODEL else 1.0)
    count = len(scores)
    return float(numpy.quantile(scores, min(1.0, math.ceil(level * (count + 1)) / count), method="higher"))


def published(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return each line's prediction as it would have been published, basis and interval chosen without its own chip.

    Returns:
        Columns as `residuals` has them, and basis, predicted, low, high (logarithms), off (predicted minus printed) and
        hit (whether the interval holds the printed rate).
    """
    every = columns(table)
    bases = numpy.full(len(table), MODEL, dtype=object)
    predicted, far = every["mean"].copy(), numpy.empty(len(table))
    others_of = {
        product: {name: values[every["product"] != product] for name, values in every.items()}
        for product in table["product"].unique()
    }
    for (*asked, product), group in table.groupby(["situation", "family", "vendor", "product"]).indices.items():
        others = others_of[product]
        basis = choose(others, *asked)
        is_ruled = ~numpy.isnan(every[basis][group]) if basis != MODEL else numpy.zeros(len(group), bool)
        ruled, modelled = group[is_ruled], group[~is_ruled]
        if len(ruled):
            bases[ruled], predicted[ruled] = basis, every[basis][ruled]
            far[ruled] = reach(others, basis, *asked)
        if len(modelled):
            far[modelled] = reach(others, MODEL, *asked) * every["deviation"][modelled]
    judged = table.assign(basis=bases, predicted=predicted, low=predicted - far, high=predicted + far)
    hit = judged["printed"].between(judged["low"], judged["high"])
    return judged.assign(off=judged["predicted"] - judged["printed"], hit=hit)


def rarely(table: pandas.DataFrame) -> set[str]:
    """Return the makers of chips of which the record has fewer lines than a median needs."""
    counts = table[table["situation"] == CHIP]["vendor"].value_counts()
    return set(counts[counts < FEWEST].index)


def rules(observations: pandas.DataFrame, situation: str) -> pandas.DataFrame:
    """Return what the plain rules say of each observation, in logarithms: the median over the chips they start from.

    Args:
        observations: with a new index.
        situation: chip hidden: they start from the other chips of its setting; publication hidden as well: from other
            chips that did its work in its family of precisions in other publications.

    Returns:
        A column for each of `RULES`; missing where there is no other chip, or where a chip's cores are not printed.
    """
    logs = numpy.log(observations["rate"].to_numpy(float))
    cores = numpy.log(chips.table()["cores"].reindex(observations["chip"]).to_numpy(float))
    peaks, bandwidths = observations["peak"].to_numpy(float), observations["bandwidth"].to_numpy(float)
    scales = numpy.column_stack([cores, peaks, bandwidths, (peaks + bandwidths) / 2])
    products, publications = observations["product"].to_numpy(), observations["publication"].to_numpy()
    said = numpy.full((len(observations), len(RULES)), numpy.nan)
    for places in observations.groupby(["setting"] if situation == CHIP else ["work", "family"]).indices.values():
        for place in places:
            others = places[products[places] != products[place]]
            if situation != CHIP:
                others = others[publications[others] != publications[place]]
            if len(others):
                said[place] = _medians(logs[others, None] - scales[others] + scales[place])
    return pandas.DataFrame(said, index=observations.index, columns=list(RULES))


def _medians(guesses: numpy.ndarray) -> numpy.ndarray | list[float]:
    """Return the median of each column; what is missing in it, as the cores that nobody printed, does not count."""
    if not numpy.isnan(guesses).any():
        return numpy.median(guesses, axis=0)
    columns = [column[~numpy.isnan(column)] for column in guesses.T]
    return [float(numpy.median(column)) if len(column) else numpy.nan for column in columns]


def errors(judged: pandas.DataFrame) -> pandas.DataFrame:
    """Return how far what is published and the plain rules are off, on the same lines.

    Args:
        judged: from `published`.

    Returns:
        Columns: situation, group (the record's, the articles', those of a family of precisions, a maker's, or
        `OPERATIONS`: of a work that is known by its operations alone), rule, pairs, publications, median_error (of
        predicted over printed, less 1, either sign), within_2 (the share within a factor of 2), coverage (of the 90 %
        intervals). All rules are judged on the same pairs: those where they have a chip to start from.
    """
    lines = []
    for situation, some in judged.groupby("situation", sort=False):
        asked = some[some[PEAKS].notna()]
        groups = {RECORD: asked["origin"].eq(RECORD), ARTICLES: asked["origin"].eq(ARTICLES)}
        groups |= {name: groups[RECORD] & asked["family"].eq(name) for name in ("fp32", "tf32", "half")}
        groups |= {name: asked["vendor"].eq(name) for name in sorted(set(asked["vendor"]))}
        for name, chosen in groups.items():
            lines += _line(situation, name, asked[chosen]) if chosen.sum() >= FEWEST else []
        alone = some[some[PEAKS].isna()]
        lines += _line(situation, OPERATIONS, alone)[:1] if len(alone) >= FEWEST and situation != CHIP else []
    return pandas.DataFrame(lines)


def singles(model: Model, judged: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines of makers with too few for a median, one by one: chip, work, printed, predicted, low, high.

    Args:
        model: whose observations were judged.
        judged: from `published`.
    """
    judged = judged[judged["vendor"].isin(rarely(judged)) & judged["situation"].eq(CHIP)]
    lines = model.observations.iloc[judged["place"]].reset_index(drop=True)
    shown = lines[["vendor", "chip", "work", "precision", "publication"]].assign(printed=lines["rate"])
    return shown.assign(**{name: numpy.exp(judged[name].to_numpy()) for name in ("predicted", "low", "high")})


def _line(situation: str, group: str, lines: pandas.DataFrame) -> list[dict]:
    """Return the lines of a group: the model's and those of the rules, on the same pairs."""
    head = {"situation": situation, "group": group, "pairs": len(lines), "publications": lines["publication"].nunique()}
    made = [head | {"rule": PUBLISHED, "coverage": lines["hit"].mean()} | _off(lines["off"])]
    offs = {rule: (lines[rule] - lines["printed"]).dropna() for rule in RULES}
    return made + [head | {"rule": rule, "pairs": len(off)} | _off(off) for rule, off in offs.items()]


def _error(logs: pandas.Series | numpy.ndarray) -> float:
    return float(numpy.median(numpy.abs(numpy.expm1(logs)))) if len(logs) else numpy.nan


def _off(logs: pandas.Series) -> dict:
    logs = logs.dropna()
    return {
        "median_error": _error(logs),
        "within_2": float((logs.abs() < math.log(2)).mean()),
    }
