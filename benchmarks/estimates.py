"""Fit the bounds of published figures and of ratios of two chips, and test them on publications
that were hidden.

`python benchmarks/estimates.py` writes the factors to the record's bounds.csv and prints the
tables of docs/predictions.md: what the printed intervals hold of a publication that neither the
evidence nor the factors have seen, next to the rule before (several publications' pairs, else two
predictions) and to the plain ratio of bandwidths. Each publication weighs one. LATER publications
are hidden all at once: the rules were written before they were found. The last table counts the
pairs of the start page that are decided.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Collection

import numpy
import pandas
import threadpoolctl

from benchbook.judging import intervals
from benchbook.machine import layout
from benchbook.record import articles, estimates, observations, pairs, rules
from benchbook.record.estimates import (
    FIGURE,
    FIGURES,
    KINDS,
    OTHER_PAIRS,
    PAIRS,
    SPECIFICATIONS,
    WIDEST,
)
from benchbook.report import costs
from benchbook.studies.results.evidence import Evidence

BOUNDS = layout.published() / "record" / "bounds.csv"
LEVEL = 0.92  # of the fit, so that 0.9 hold of a publication that the fit has not seen
FEWEST = 5  # publications of a group with factors of its own
FAR = math.log(3)  # ratios that should be decided
GAP = 3  # years between two figures that show how much faster software became
OLDER, BANDWIDTHS, PRINTED = "the rule before", "plain ratio", "printed"
FASTEST = ["publication", "work", "merged", "product"]
SIDES = ["product", "product_over"]
LATER = frozenset((
    "MysterionRise tensorflow-metal-experiments", "NikolasEnt GPU benchmarks", "Raschka M1 GPU (May 2022) LeNet5 MNIST",
    "TensorFlow performance benchmarks (2017)", "XHMY torch_benchmark", "codewithgpu model benchmarks",
    "ggg17226 rtx2080-dl-benchmark", "kai271828 gpu_benchmark", "rasbt machine-learning-notes #12",
    "rasbt machine-learning-notes #3", "rasbt machine-learning-notes #32", "sandeepkumar-skb pytorch_experiments",
    "u39kun deep-learning-benchmark",
))  # fmt: skip


def quantile(values: pandas.Series, publications: pandas.Series, share: float) -> float:
    """Return a quantile of values; each publication weighs one."""
    weights = 1 / publications.groupby(publications).transform("size").to_numpy()
    order = numpy.argsort(values.to_numpy())
    reached = numpy.cumsum(weights[order]) / weights.sum()
    place = min(len(order) - 1, int(numpy.searchsorted(reached, share - 1e-9)))
    return float(values.to_numpy()[order][place])


def share(holds: pandas.Series, publications: pandas.Series) -> float:
    """Return which share holds; each publication weighs one."""
    return float(holds.astype(float).groupby(publications).mean().mean())


@functools.cache
def fastest() -> pandas.DataFrame:
    """Return each publication's fastest rate of a product, work and family of precisions."""
    lines = observations.images()
    lines = lines.assign(merged=lines["computed"].map(observations.family_of))
    best = lines.sort_values("speed").drop_duplicates(FASTEST, keep="last")
    return best.assign(year=best["article"].map(observations.year)).reset_index(drop=True)


@functools.cache
def figures() -> pandas.DataFrame:
    """Return how far each figure is from the median of the other publications' figures of its
    chip, work and family, in the group that those have by the newest of them.

    Returns:
        Columns: publication, group, error (logarithm of the hidden over the others' median),
        newer (years since the others' newest).
    """
    found = []
    for _, own in fastest().groupby(FASTEST[1:]):
        for place in own.index if len(own) > 1 else ():
            line, rest = own.loc[place], own.drop(place).sort_values("year")
            error = line["speed"] - rest["speed"].median()
            group = estimates.figure_group({**rest.iloc[-1], "family": line["merged"]})
            found.append((line["publication"], group, error, line["year"] - rest["year"].max()))
    return pandas.DataFrame(found, columns=["publication", "group", "error", "newer"])


Sides = dict[tuple, dict]  # rates by FASTEST


@functools.cache
@threadpoolctl.threadpool_limits.wrap(limits=1)
def sides(together: frozenset[str] = frozenset()) -> tuple[Sides, dict[tuple, dict[str, float]]]:
    """Return each publication's fastest rates with what is predicted without that publication, or
    without some; and the rates of each publication by work, family and product."""
    rule = rules.regression()
    publications = rule.lines["publication"].to_numpy(object)
    lines, known = {}, {}
    measured = fastest().set_index(FASTEST, drop=False)
    for publication, own in measured.groupby(level="publication"):
        hidden = numpy.flatnonzero(numpy.isin(publications, list(together or [publication])))
        told = zip(own.to_dict("records"), *rule.predict(own, hidden), strict=True)
        for side, (line, speed, deviation) in zip(own.index, told, strict=True):
            lines[side] = line | {"predicted": speed, "deviation": deviation}
            known.setdefault(side[1:], {})[publication] = line["speed"]
    return lines, known


@functools.cache
def hidden_pairs(together: frozenset[str] = frozenset()) -> pandas.DataFrame:
    """Return the pairs that one publication measured, with each kind's ratio without that
    publication; of some publications, without all of them.

    Returns:
        Columns: publication, task, family, product, product_over; group (ONE_VENDOR or
        TWO_VENDORS), is_apple; true; by kind the ratio, NaN without evidence; count (of the
        other publications with pairs of this work), OLDER (see `_before`); BANDWIDTHS. Ratios
        are logarithms.
    """
    lines, _ = sides(together)
    table = pairs.table()
    table = table[table["product"] < table["product_over"]].assign(logs=numpy.log(table["ratio"]))
    of_work = table.groupby([*SIDES, "family", "publication", "task"])["logs"].median()
    alike, found = {}, []
    for (*key, publication, task), true in of_work.items():
        alike.setdefault(tuple(key), {})[publication, task] = true
    for (*two, family, publication, task), true in of_work.items():
        both = [(publication, task, family, product) for product in two]
        is_asked = not together or publication in together
        if is_asked and all(side in lines for side in both):
            found.append(_pair(both, true, together, alike[*two, family]))
    return pandas.DataFrame(found)


def unlike_pairs() -> pandas.DataFrame:
    """Return the pairs of two products in unlike families of precisions that one publication
    measured; the columns of `hidden_pairs`. No published pair and no rule before answers them."""
    lines, found = sides()[0], []
    for _, own in itertools.groupby(sorted(lines), key=lambda side: side[:2]):
        for one, other in itertools.combinations(own, 2):
            if one[2] != other[2] and one[3] != other[3]:
                true = lines[other]["speed"] - lines[one]["speed"]
                found.append(_pair([one, other], true, frozenset(), {}))
    return pandas.DataFrame(found)


def _pair(both: list[tuple], true: float, together: frozenset[str], alike: dict) -> dict:
    """Return a line of `hidden_pairs`.

    Args:
        both: of its sides, their keys in `sides`.
        true: its ratio, logarithm.
        together: publications that are hidden at once.
        alike: the published ratios of its chips in its family, by publication and work.
    """
    lines, known = sides(together)
    (publication, task, family, product), (*_, over) = both
    a, b = (lines[side] for side in both)
    gone = together or {publication}
    same, others = [], {}
    for (other, work), ratio in alike.items():
        if other not in gone:
            others.setdefault(other, []).append(ratio)
            same += [ratio] if work == task else []
    levels = {name: statistics.median(own) for name, own in others.items()}
    alone = [[x for name, x in known[side[1:]].items() if name not in gone] for side in both]
    return {
        "publication": publication, "task": task, "family": family, **dict(zip(SIDES, (product, over), strict=True)),
        "group": estimates.group_of(a["vendor"], b["vendor"]),
        "is_apple": "Apple" in (a["vendor"], b["vendor"]), "true": true,
        PAIRS: _mean(same), OTHER_PAIRS: _mean(levels.values()),
        FIGURES: statistics.median(alone[1]) - statistics.median(alone[0]) if all(alone) else math.nan,
        SPECIFICATIONS: b["predicted"] - a["predicted"],
        BANDWIDTHS: b["bandwidth"] - a["bandwidth"], "count": max(1, len(same)),
        OLDER: _before(levels, alone, a, b),
    }  # fmt: skip


def _mean(values: Collection[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _before(levels: dict[str, float], alone: list, a: dict, b: dict) -> tuple[float, float]:
    """Return the value and width of the rule before: the interval of several publications' pairs;
    two predictions, each within a factor of 4, if no figure of either chip is published; else
    NaN, which decided nothing."""
    if len(levels) > 1:
        rates = numpy.exp([*levels.values()])
        number = intervals.interval(rates, [*levels], intervals.Deviations(0.25, 0))
        return math.log(number.value), math.log(number.high / number.value)
    widths = [rules.DEVIATIONS * each["deviation"] for each in (a, b)]
    if any(alone) or max(widths) > math.log(4) / 2:
        return math.nan, math.nan
    return b["predicted"] - a["predicted"], math.hypot(*widths)


def bounds(singles: pandas.DataFrame, timed: pandas.DataFrame) -> pandas.DataFrame:
    """Return the factors, see `estimates.bounds`, from the errors of figures and of pairs.

    A figure and the others' median are both off, so that one alone is off by less, by the square
    root of 2. An old figure is more often too low than too high, since software became faster.
    """
    lines = [
        _fitted(FIGURE, group, own["error"], own["publication"], 1 / math.sqrt(2))
        for group, own in singles.groupby("group")
    ]
    for kind in KINDS[1:]:
        for group, own in timed[timed[kind].notna()].groupby("group"):
            lines.append(_fitted(kind, group, own["true"] - own[kind], own["publication"]))
    table = pandas.DataFrame(lines)
    table = table[table["publications"] >= FEWEST]
    newer = singles[singles["newer"] >= GAP]
    faster = quantile(newer["error"], newer["publication"], 0.5)
    for kind in KINDS:
        own = table[table["kind"].eq(FIGURE) == (kind == FIGURE)]
        line = own.loc[own["below"].idxmax()].to_dict() | {"kind": kind, "group": WIDEST}
        line["above"] *= math.exp(max(0.0, faster)) if kind == FIGURE else 1
        lines.append(line)
    table = pandas.DataFrame(lines)
    table = table.drop_duplicates(["kind", "group"], keep="last")  # old figures are in the widest
    return table[table["publications"] >= FEWEST].reset_index(drop=True)


def _fitted(kind: str, group: str, errors, publications, part: float = 1.0) -> dict:
    levels = 0.5, LEVEL
    middle, most = (
        math.exp(part * quantile(errors.abs(), publications, level)) for level in levels
    )
    counts = {"comparisons": len(errors), "publications": publications.nunique()}
    return {"kind": kind, "group": group, **counts, "median": middle, "below": most, "above": most}


def figures_that_hold() -> float:
    """Return in which share a hidden figure over the others' median lies within the bounds of
    both, with factors that were fitted without its publication."""
    table, holds = figures(), []
    for publication, own in table.groupby("publication"):
        rest = bounds(table[table["publication"] != publication], hidden_pairs())
        factors = rest[rest["kind"].eq(FIGURE)].set_index("group")["below"]
        most = own["group"].map(factors).fillna(factors[WIDEST])
        holds.append((own["error"].abs() <= math.sqrt(2) * numpy.log(most) + 1e-9).mean())
    return float(numpy.mean(holds))


def fitted_without(publications: Collection[str]) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the factors, and the pairs that they were fitted on, without publications."""
    singles, pairs_left = (
        table[~table["publication"].isin(publications)] for table in (figures(), hidden_pairs())
    )
    return bounds(singles, pairs_left).set_index(["kind", "group"]), pairs_left


def answers(together: frozenset[str] = frozenset(), asked: pandas.DataFrame | None = None):
    """Return the answers to each hidden pair, with factors that were fitted without its
    publication; of some publications, without all of them.

    Args:
        together: publications that are hidden at once.
        asked: the pairs; without any, `hidden_pairs`.

    Returns:
        The columns of `hidden_pairs`, and: kind (of the printed answer), and by rule its value
        and width in a column each; NaN without an answer.
    """
    parts, asked = [], hidden_pairs(together) if asked is None else asked
    groups = [(together, asked)] if together else [
        ([publication], own) for publication, own in asked.groupby("publication")
    ]  # fmt: skip
    for gone, own in groups:
        factors, others = fitted_without(gone)
        table = factors["above"]
        errors = (others["true"] - others[BANDWIDTHS]).abs()
        plain = quantile(errors, others["publication"], LEVEL)
        for line in own.to_dict("records"):
            kind, value, width = _printed(line, table)
            answered = {PRINTED: (value, width), BANDWIDTHS: (line[BANDWIDTHS], plain)}
            parts.append(line | {"kind": kind} | answered)
    return pandas.DataFrame(parts)


def _printed(line: dict, table: pandas.Series) -> tuple[str, float, float]:
    """Return kind, value and width of the narrowest evidence, as `estimates.ratio` chooses."""
    found = []
    for kind in KINDS[1:]:
        if not math.isnan(line[kind]):
            group = line["group"] if (kind, line["group"]) in table.index else WIDEST
            narrower = estimates.narrower(line["count"] if kind == PAIRS else 1)
            found.append((narrower * math.log(table[kind, group]), line[kind], kind))
    width, value, kind = min(found)
    return kind, value, width


def measures(lines: pandas.DataFrame, rule: str) -> dict[str, str | int]:
    """Return what a rule is worth on hidden pairs, each publication once."""
    value, width = numpy.array(lines[rule].tolist()).T
    lines = lines.assign(error=(lines["true"] - value).abs(), width=width, value=value)
    own, far = lines[lines["width"].notna()], lines[lines["true"].abs() >= FAR]
    found = {"pairs": len(lines), "publications": lines["publication"].nunique()}
    answered, decided = (lines["width"].notna(), lines["publication"]), numpy.nan
    found["answered"] = f"{share(*answered):.0%}"
    if len(own):
        found["median error"] = (
            f"{math.exp(quantile(own['error'], own['publication'], 0.5)) - 1:.0%}"
        )
        found["90 % intervals that hold"] = (
            f"{share(own['error'] <= own['width'] + 1e-9, own['publication']):.0%}"
        )
    decided = far["value"].abs() > far["width"]
    found["over 3 times apart"] = len(far)
    found["of these decided"] = f"{share(decided, far['publication']):.0%}" if len(far) else ""
    return found


def told_of_pairs(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return what each rule is worth on `answers`: on all, on those with a chip of Apple, by
    vendors, and by the kind of the printed answer."""
    lines = []
    groups = {"all": table, "with an Apple chip": table[table["is_apple"]]}
    groups |= {"without one": table[~table["is_apple"]], **dict(list(table.groupby("group")))}
    for name, own in groups.items():
        lines += [
            {"pairs of": name, "rule": rule} | measures(own, rule)
            for rule in (PRINTED, OLDER, BANDWIDTHS)
        ]
    for kind, own in table.groupby("kind"):
        lines.append({"pairs of": f"answered by {kind}", "rule": PRINTED} | measures(own, PRINTED))
    return pandas.DataFrame(lines)


@threadpoolctl.threadpool_limits.wrap(limits=1)
def later_figures() -> pandas.DataFrame:
    """Return the LATER publications' rates of one chip, next to the answer without them; without
    those that are refused for their work.

    Returns:
        Columns: publication, chip, work, vendor, kind (of the answer), error, width (of its
        interval), plain (error of the median ratio of rate and bandwidth on other chips; NaN
        without any). Logarithms.
    """
    rule, factors = rules.regression(), fitted_without(LATER)[0]
    is_later = rule.lines["publication"].isin(LATER)
    products = rule.lines[~is_later].groupby("work")["product"].nunique()
    lines, known = (
        fastest()[fastest()["publication"].isin(LATER) == later] for later in (True, False)
    )
    single = dict(list(known.groupby(FASTEST[1:])))
    is_published = pandas.MultiIndex.from_frame(lines[FASTEST[1:]]).isin(single)
    lines = lines[is_published | lines["work"].map(products).ge(observations.FEWEST_PRODUCTS)]
    predicted = rule.predict(lines, numpy.flatnonzero(is_later))
    ratios = (known["speed"] - known["bandwidth"]).groupby(known["work"] + known["family"]).median()
    plain = (lines["work"] + lines["family"]).map(ratios) + lines["bandwidth"] - lines["speed"]
    lines, found = lines.assign(plain=plain.abs()), []
    for line, speed, deviation in zip(lines.to_dict("records"), *predicted, strict=True):
        seen = single.get(tuple(line[name] for name in FASTEST[1:]))
        kind, value, width = estimates.PREDICTED, speed, rules.DEVIATIONS * deviation
        if seen is not None:
            kind, value = estimates.PUBLISHED, seen["speed"].median()
            width = _width(seen, factors, "above" if line["speed"] > value else "below")
        told = {name: line[name] for name in ("publication", "chip", "work", "vendor", "plain")}
        found.append(told | {"kind": kind, "error": abs(line["speed"] - value), "width": width})
    return pandas.DataFrame(found)


def _width(seen: pandas.DataFrame, factors: pandas.DataFrame, side: str) -> float:
    """Return the width of published rates to one side, as `estimates.of_figures` chooses it."""
    groups = [
        estimates.figure_group(line)
        for line in seen.assign(family=seen["merged"]).to_dict("records")
    ]
    keys = [(FIGURE, group if (FIGURE, group) in factors.index else WIDEST) for group in groups]
    return math.log(factors.loc[keys, side].min())


def told_of_figures(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return what the answers are worth on `later_figures`, each publication once."""
    is_apple = table["vendor"] == "Apple"
    groups = {"all": table, "Apple": table[is_apple], "others": table[~is_apple]}
    lines = []
    for name, own in (groups | dict(list(table.groupby("kind")))).items():
        known = own[own["plain"].notna()]
        middle, plain = (
            math.exp(quantile(part[error], part["publication"], 0.5)) - 1
            for error, part in (("error", own), ("plain", known))
        )
        holds = share(own["error"] <= own["width"] + 1e-9, own["publication"])
        lines.append({
            "figures of": name, "figures": len(own), "publications": own["publication"].nunique(),
            "median error": f"{middle:.0%}", "90 % intervals that hold": f"{holds:.0%}",
            "median error of the plain ratio": f"{plain:.0%}",
        })  # fmt: skip
    return pandas.DataFrame(lines)


def on_the_page() -> pandas.DataFrame:
    """Return, by the kind of the answer, how many pairs of single chips on the start page are
    decided, in one family of precisions and without measured lines."""
    evidence, found = Evidence(articles.rows()), []
    for task in costs.tasks():
        lines = [
            line["estimate"] for line in costs.of_task(task, evidence, {}) if line["devices"] == 1
        ]
        for a, b in itertools.combinations(lines, 2):
            if a.family == b.family and a.chip != b.chip:
                ratio = estimates.ratio(a, b)
                is_far = abs(math.log(ratio.value)) >= FAR
                found.append((ratio.kind, not ratio.low <= 1 <= ratio.high, is_far))
    table = pandas.DataFrame(found, columns=["answered by", "decided", "is_far"])
    table = pandas.concat([table.assign(**{"answered by": "all"}), table])
    lines = []
    for kind, own in table.groupby("answered by"):
        far = own.loc[own["is_far"], "decided"]
        line = {"answered by": kind, "pairs": len(own), "decided": f"{own['decided'].mean():.0%}"}
        lines.append(
            line | {"over 3 times apart": len(far), "of these decided": f"{far.mean():.0%}"}
        )
    return pandas.DataFrame(lines)


def main() -> None:
    """Write the factors and print the tables."""
    bounds(figures(), hidden_pairs()).to_csv(BOUNDS, index=False, float_format="%.6g")
    print(told_of_pairs(answers()).to_markdown(index=False))
    unlike = told_of_pairs(answers(asked=unlike_pairs()))
    print(unlike[unlike["rule"] == PRINTED].to_markdown(index=False))
    print(f"{len(figures())} hidden figures: {figures_that_hold():.0%} within the bounds")
    print(told_of_pairs(answers(LATER)).to_markdown(index=False))
    print(told_of_figures(later_figures()).to_markdown(index=False))
    estimates.bounds.cache_clear()
    print(on_the_page().to_markdown(index=False))


if __name__ == "__main__":
    main()
