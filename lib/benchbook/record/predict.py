"""Predict the training rate of a chip for a work from the public record, as a range, or refuse.

Three rules answer. A ridge regression learns from all published rates of single devices. The plain ratio scales rates
of the same work on other chips by memory bandwidth. It answers for a maker, precision and network where the regression
is no better. For language models, the share of the peak that published trainings reach answers, if at least
FEWEST_PRODUCTS products of the maker are on record.

Each rule's error is that of published rates whose chip and publication were hidden from it, in the nearest group that
is large enough. The half-width of a range is the LEVEL quantile of these errors.
"""

import difflib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy
import pandas

from benchbook.judging import wording
from benchbook.record import articles, chips, observations
from benchbook.record.observations import HALF, Unknown
from benchbook.rows import networks, records

PRECISIONS = tuple(name for name in records.PRECISIONS if name != "fp64")  # the record has no rates of fp64
# The regression's columns: names as switches with their weights, then numbers, then products of names and numbers.
NAMES = {"publication": 1, "setting": 1, "family": 1, "framework": 1, "network": 1, "work": 2.5, "vendor": 2.5}
NUMBERS = ["peak", "bandwidth", "fp32", "released", "memory", "operations", "batch", "date", "loader", "no_update"]
PRODUCTS = (("publication", "family"), ["peak", "bandwidth", "fp32", "released"])
PRODUCT_WEIGHT, CONSTANT, ALPHA = 0.5, 30.0, 0.3
OPERATIONS = 24.5e9  # of works whose operations were not counted, in the column of operations
CHIP, BOTH, MAKER = "chip hidden", "chip and publication hidden", "maker and publication hidden"
REGRESSION, RATIO, SHARE = "regression", "ratio of bandwidths", "share of peak"
LEVEL = 0.90
FEWEST, FEWEST_PUBLICATIONS = 10, 3  # rates and publications of the smallest group whose errors count
FEWEST_PRODUCTS = 5
GROUPS = (["vendor", "family", "network"], ["vendor", "family"], ["family"], [])
BEYOND = 2.0  # allowed factor below the fewest and above the most operations on record
NEAREST = 3
SAME = ["article", "product", "network", "image_size", "computed", "framework", "data"]
LORA = "LoRA is not predicted: published trainings state neither the lengths of their samples nor their operations"


@dataclass(frozen=True)
class Question:
    """A question: which chip, which work, in which precision.

    Attributes:
        chip: any of its names.
        work: a study or a network; empty if the operations are given.
        precision: one of PRECISIONS.
        flops_per_sample: operations of a training step for one image; None: those of the work.
        image_size: pixels of a side; None: the size at which the work's operations were counted.
        batch_size: of one device; None: one that keeps the chip busy.
        count: number of devices.
        sequence_length: tokens; None: the length at which the work's operations were counted.
    """

    chip: str
    work: str = ""
    precision: str = "fp32"
    flops_per_sample: float | None = None
    image_size: float | None = None
    batch_size: float | None = None
    count: int = 1
    sequence_length: float | None = None


@dataclass(frozen=True)
class Range:
    """A predicted rate: images or sequences a second on all devices together, with its 90 % interval.

    Attributes:
        value: the middle.
        low: the lower bound.
        high: the upper bound.
        rule: REGRESSION, RATIO or SHARE.
        basis: the rule and its error in words.
    """

    value: float
    low: float
    high: float
    rule: str
    basis: str


def rate(question: Question) -> Range:
    """Return the predicted rate.

    Raises:
        Unknown: there is no prediction; the message says why. This includes an unknown work, and UnknownChip is raised
            for an unknown chip, both with the nearest names.
        ValueError: the precision or the number of operations is not possible.
    """
    (answer,) = rates([question])
    if isinstance(answer, Unknown):
        raise answer
    return answer


def rates(questions: Sequence[Question]) -> list[Range | Unknown]:
    """Return the answer to each question, see `rate`, or the reason why there is none.

    Where a chip has matrix units, fp32 is no faster than TF32, and TF32 no faster than 16 bits: an answer is limited by
    those of faster precisions, because rates in fp32 of chips with TF32 are hardly published.
    """
    answers, wanted = [], []
    for question in questions:
        try:
            target = _target(question)
            answers.append([target, *map(_target, _faster(question, target))])
            wanted += answers[-1]
        except Unknown as reason:
            answers.append(reason)
    images = [target for target in wanted if "peak" in target]
    means = iter(_regression().predict(images)) if images else iter(())
    for place, targets in enumerate(answers):
        if not isinstance(targets, Unknown):
            answers[place] = _answer(
                questions[place], targets, [next(means) if "peak" in target else None for target in targets]
            )
    return answers


def nearest(question: Question) -> pandas.DataFrame:
    """Return the published rates nearest to a question: same network, product and family, then similar chips.

    Returns:
        Columns: chip, work, precision, rate (of one device; images or sequences a second), source.
    """
    name = networks.canonical(question.work)
    chip, length = chips.specification(question.chip), networks.describe(question.work).sequence_length
    if length or "lora" in question.work.lower():
        lines = articles.read()
        lines = lines[lines["rate"].gt(0) & lines["refused"].eq("") & lines["sequence_length"].gt(0)]
        lora = lines["network"].str.contains("lora", case=False)
        lines = lines[lora if "lora" in question.work.lower() else ~lora]
        tokens = lines["sequence_length"].astype(int).map(" {:,} tokens".format)
        sources = [articles.citation(line) for line in lines.to_dict("records")]
        lines = lines.assign(work=lines["network"] + "," + tokens, rate=lines["rate"] / lines["device_count"])
        lines = lines.assign(source=sources, product=lines["chip"].map(chips.product))
        lines = lines.assign(vendor=lines["chip"].map(chips.table()["vendor"]))
    else:
        lines = observations.published()
    known, own = chips.table()["bandwidth_gb_s"].reindex(lines["chip"]).to_numpy(), chip.get("bandwidth_gb_s", math.nan)
    distance = numpy.nan_to_num(numpy.abs(numpy.log(known / own)), nan=2.0)
    distance = distance + 3.0 * lines["network"].ne(name) + 2.0 * lines["product"].ne(chip["product"])
    distance += 1.0 * lines["vendor"].ne(chip["vendor"])
    distance += 1.0 * lines["precision"].map(observations.family).ne(observations.family(question.precision))
    order = lines.assign(distance=distance).sort_values("distance", kind="stable").head(NEAREST)
    return order[["chip", "work", "precision", "rate", "source"]].reset_index(drop=True)


@functools.cache
def errors() -> pandas.DataFrame:
    """Return the errors of the rules on published rates, all with the same knowledge.

    Returns:
        Columns: situation (CHIP, BOTH, or MAKER for makers with few rates), group (the rates of the record or of the
        articles, a maker and a family of precisions, or `language models`), rule, pairs, publications, median_error (of
        predicted over printed, less 1, without sign), within_2 (the share within a factor of 2), coverage (of the 90 %
        intervals), half_width (the median factor from the middle to a bound).
    """
    parts, table = [], hidden()
    shares = _hidden_shares().assign(group="language models")
    both = table[table[RATIO].notna()]
    grouped = [both.assign(group=both["origin"]), both.assign(group=both["vendor"] + ", " + both["family"]), shares]
    for (situation, group), own in pandas.concat(grouped).groupby(["situation", "group"], sort=False):
        rules = [rule for rule in (REGRESSION, RATIO, SHARE) if len(own) >= FEWEST and own[rule].notna().any()]
        head = {"situation": situation, "group": group}
        parts += [head | {"rule": rule} | _measures(own, own[rule]) for rule in rules]
    return pandas.DataFrame(parts)


@functools.cache
def hidden() -> pandas.DataFrame:
    """Return the error of each rule for each published rate of images, hidden in each situation, in logarithms.

    Returns:
        Columns: situation, place (in `observations.published`), vendor, family, network, product, publication, origin,
        REGRESSION and RATIO (missing without another rate of the same work and family).
    """
    lines, parts = _regression().lines, []
    works, counted = pandas.factorize(lines["work"])[0], lines["flops_per_sample"].notna().to_numpy()
    targets, printed = lines.to_dict("records"), numpy.log(lines["rate"].to_numpy(float))
    for situation, places, own in _situations(lines):
        others = numpy.ones(len(lines), bool)
        others[places] = False
        own = own[counted[own] | numpy.isin(works[own], works[others])]  # a work without operations needs another rate
        if len(own) and others.any():
            off = _regression().residuals(places)[numpy.searchsorted(places, own)]
            ratios = [_ratio(targets[place], others) - printed[place] for place in own]
            parts += zip([situation] * len(own), own, off, ratios, strict=True)
    known = lines[["vendor", "family", "network", "product", "publication", "origin"]]
    table = pandas.DataFrame(parts, columns=["situation", "place", REGRESSION, RATIO])
    return table.join(known, on="place").assign(**{SHARE: numpy.nan})


class _Regression:
    """A ridge regression of the logarithm of a rate, less the mean of the logarithms of peak and bandwidth."""

    def __init__(self, lines: pandas.DataFrame):
        from sklearn.compose import ColumnTransformer  # importing takes a second, which a study must not spend
        from sklearn.linear_model import Ridge
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

        def switches() -> OneHotEncoder:
            return OneHotEncoder(handle_unknown="ignore", sparse_output=False)

        centred = StandardScaler(with_std=False)
        names, numbers = PRODUCTS
        factors = ColumnTransformer([("names", switches(), list(names)), ("numbers", centred, numbers)])
        products = make_pipeline(factors, PolynomialFeatures((2, 2), interaction_only=True, include_bias=False))
        parts = [(name, switches(), [name]) for name in NAMES]
        parts += [("numbers", centred, NUMBERS), ("products", products, [*names, *numbers])]
        self.columns = ColumnTransformer(parts, transformer_weights=NAMES | {"products": PRODUCT_WEIGHT})
        self.lines = lines.reset_index(drop=True)
        design = self._design(self.columns.fit(_numbered(self.lines)), self.lines)
        self.targets = numpy.log(self.lines["rate"].to_numpy(float)) - _offset(self.lines)
        self.ridge = Ridge(ALPHA, fit_intercept=False).fit(design, self.targets)
        self.inverse = numpy.linalg.inv(design @ design.T + ALPHA * numpy.eye(len(design)))

    def predict(self, targets: list[dict]) -> numpy.ndarray:
        """Return the logarithm of the rate of each target."""
        table = pandas.DataFrame(targets)
        return self.ridge.predict(self._design(self.columns, table)) + _offset(table)

    def residuals(self, places: numpy.ndarray) -> numpy.ndarray:
        """Return predicted less printed for these lines, in logarithms, as if none of them had been learnt from.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.2, for blocks; a ridge
        regression is the mean of such a process.
        """
        block = self.inverse[numpy.ix_(places, places)]
        return -numpy.linalg.solve(block, self.inverse[places] @ self.targets)

    @staticmethod
    def _design(columns, lines: pandas.DataFrame) -> numpy.ndarray:
        known = columns.transform(_numbered(lines))
        return numpy.hstack([known, numpy.full((len(lines), 1), CONSTANT)])


@functools.cache
def _regression() -> _Regression:
    lines = observations.published()
    return _Regression(lines[lines["sequence_length"].isna()])


def _numbered(lines: pandas.DataFrame) -> pandas.DataFrame:
    operations, batch = (lines[name].astype(float) for name in ("flops_per_sample", "batch_size"))
    logs = {"operations": numpy.log(operations.fillna(OPERATIONS)), "batch": numpy.log(batch)}
    return lines.assign(**logs, date=lines["date"].astype(float) / 3)


def _offset(lines: pandas.DataFrame) -> numpy.ndarray:
    return (lines["peak"].to_numpy(float) + lines["bandwidth"].to_numpy(float)) / 2


def _situations(lines: pandas.DataFrame) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray]]:
    """Yield each situation, the places that it hides, and those among them that are predicted."""
    for places in lines.groupby("product").indices.values():
        yield CHIP, places, places
    publications = lines["publication"].to_numpy()
    shares = lines["vendor"].value_counts(normalize=True)
    for key, situation in (("product", BOTH), ("vendor", MAKER)):
        for (one, publication), own in lines.groupby([key, "publication"]).indices.items():
            if situation == MAKER and shares[one] > 0.5:  # nothing can be learnt without most of the rates
                continue
            yield situation, numpy.flatnonzero((lines[key].to_numpy() == one) | (publications == publication)), own


def _ratio(target: dict, places: numpy.ndarray | None = None) -> float:
    """Return the logarithm of the rate by the plain ratio; NaN without a rate of the same work and family.

    Rates in the target's own setting are preferred, because the regression knows the setting as well.

    Args:
        target: an observation.
        places: those of the rates that are not hidden, as a mask; None: all.
    """
    alike, settings, starts = _starts()
    used = alike.get((target["work"], target["family"]), numpy.array([], int))
    used = used if places is None else used[places[used]]
    own = used[settings[used] == target["setting"]]
    used = own if len(own) else used
    return float(numpy.median(starts[used])) + target["bandwidth"] if len(used) else math.nan


@functools.cache
def _starts() -> tuple[dict, numpy.ndarray, numpy.ndarray]:
    """Return the places of each work and family, and each line's setting and logarithm of rate over bandwidth."""
    lines = _regression().lines
    starts = numpy.log(lines["rate"].to_numpy(float)) - lines["bandwidth"].to_numpy(float)
    return lines.groupby(["work", "family"]).indices, lines["setting"].to_numpy(), starts


def _faster(question: Question, target: dict) -> list[Question]:
    """Return the same question in the precisions that are no slower on the chip's matrix units; none without them."""
    if "matrix_tflops" not in chips.specification(target["chip"]):
        return []
    faster = {"fp32": ("tf32", "bf16"), "tf32": ("bf16",), HALF: ()}[target["family"]]
    return [replace(question, precision=name) for name in faster if name != "tf32" or chips.has_tf32(target["chip"])]


def _target(question: Question) -> dict:
    """Return the question as an observation without a rate.

    Raises:
        Unknown, UnknownChip, ValueError: see `rate`.
    """
    if question.precision not in PRECISIONS:
        raise ValueError(f"precision {question.precision!r}; allowed: {', '.join(PRECISIONS)}")
    if question.flops_per_sample is not None and not question.flops_per_sample > 0:
        raise ValueError(f"operations {question.flops_per_sample:g}; allowed: more than 0")
    chip = chips.resolve(question.chip)
    if question.precision == "tf32" and not chips.has_tf32(chip):
        raise Unknown(f"{chip} has no units for TF32; ask for fp32")
    if "lora" in question.work.lower():
        raise Unknown(LORA)
    work = networks.describe(question.work, question.image_size, question.sequence_length)
    if work.sequence_length:  # its answer needs the peak and the operations alone
        printed = chips.table().loc[chip]
        known = {"chip": chip, "product": printed["product"], "vendor": printed["vendor"]}
        known |= {"precision": question.precision}
        return known | {"family": observations.family(question.precision), "work": work}
    figures = observations.chip_figures(chip, question.precision)
    lines, operations = _regression().lines, question.flops_per_sample or work.flops_per_sample
    if not question.work and not operations:
        raise Unknown("no work was given; allowed: a study, a network, or the operations of an image")
    if operations is None and work.name not in set(lines["network"]):
        raise _unknown_work(question.work)
    least, most = lines.loc[lines["origin"].eq(observations.RECORD), "flops_per_sample"].agg(["min", "max"])
    if operations and not least / BEYOND <= operations <= most * BEYOND:
        raise Unknown(
            f"{networks.title(work.name) or 'the network'} takes {wording.number(operations)} operations an image;"
            f" works on record take {wording.number(least)} to {wording.number(most)}, too different for a prediction"
        )
    known = lines.loc[lines["network"].eq(work.name), "image_size"].mode()
    size = work.image_size or (known.iloc[0] if len(known) else None)
    return observations.observation(
        figures, observations.work_of(work.name, size), publication="", setting="", framework="pytorch",
        batch_size=question.batch_size, flops_per_sample=operations,
    )  # fmt: skip


def _unknown_work(name: str) -> Unknown:
    """Return the refusal of a work that the record does not hold, with the nearest names."""
    known = set(networks.table().index) | set(_regression().lines["network"])
    known |= {alias for aliases in networks.table()["aliases"] for alias in aliases.split("|") if alias}
    near = difflib.get_close_matches(name.lower(), {each.lower(): each for each in known}, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(sorted(networks.table().index))}"
    return Unknown(f"work {name!r} is not on record; {hint}")


def _answer(question: Question, targets: list[dict], means: list[float | None]) -> Range | Unknown:
    """Return the answer from the question's target, which is the first, and those of faster precisions."""
    try:
        middle, width, rule, basis = _by_rule(targets[0], means[0])
        growth, spread = _scaling(question.count)
    except Unknown as reason:
        return reason
    bounds = numpy.array([middle, middle - width, middle + width])
    for target, mean in zip(targets[1:], means[1:], strict=True):
        faster, its_width, *_ = _by_rule(target, mean)
        bounds = numpy.minimum(bounds, [faster, faster - its_width, faster + its_width])
    most = math.log(question.batch_size / _shortest_step()) if question.batch_size else math.inf
    value, low, high = numpy.minimum(bounds, most)
    below, above = math.hypot(value - low, spread), math.hypot(high - value, spread)
    value += growth
    return Range(math.exp(value), math.exp(value - below), math.exp(value + above), rule, basis)


def _by_rule(target: dict, mean: float | None) -> tuple[float, float, str, str]:
    """Return the logarithm of a rate, the half-width of its interval, the rule, and its basis in words.

    Raises:
        Unknown: too few products have published trainings of language models.
    """
    if mean is None:
        return _by_share(target)
    asked = (target["vendor"], target["family"], target["network"])
    rule = _group(*asked)[0]
    middle = mean if rule == REGRESSION else _ratio(target)
    if not math.isfinite(middle):  # no other rate of this work: the regression has nothing to beat
        rule, middle = REGRESSION, mean
    return middle, *_error(rule, *asked)


@functools.cache
def _error(rule: str, vendor: str, family: str, network: str) -> tuple[float, str, str]:
    """Return the half-width of a rule's interval in logarithms, the rule, and its basis in words."""
    _, own, words = _group(vendor, family, network)
    own = own[own[rule].notna()]
    return _quantile(own[rule].abs(), own["publication"]), rule, _basis(rule, own, words)


@functools.cache
def _group(vendor: str, family: str, network: str) -> tuple[str, pandas.DataFrame, str]:
    """Return the rule for a maker, family and network, with the errors of the nearest large group and its name."""
    table, asked = hidden(), {"vendor": vendor, "family": family, "network": network}
    few = _regression().lines["vendor"].eq(vendor).sum() < FEWEST
    situation = MAKER if few else BOTH
    for names in GROUPS:
        alike = table[(table[names] == [asked[name] for name in names]).all(axis=1)]
        own = alike[alike["situation"].eq(situation)]
        both = alike[alike["situation"].isin([MAKER] if few else [CHIP, BOTH]) & alike[RATIO].notna()]
        if len(own) >= FEWEST and own["publication"].nunique() >= FEWEST_PUBLICATIONS and len(both) >= FEWEST:
            break
    medians = numpy.expm1(both[[REGRESSION, RATIO]]).abs().groupby(both["situation"]).median()
    rule = REGRESSION if (medians[REGRESSION] < medians[RATIO]).all() else RATIO
    words = ", ".join(networks.title(asked[name]) for name in names) or "all makers"
    return rule, own, f"{words} ({situation})"


def _by_share(target: dict) -> tuple[float, float, str, str]:
    table = _shares()
    table = table[table["vendor"].eq(target["vendor"]) & table["family"].eq(target["family"])]
    products, work = table["product"].nunique(), target["work"]
    if products < FEWEST_PRODUCTS:
        raise Unknown(
            f"language models on chips of {target['vendor']} in {target['family']}: {products} products on record,"
            f" fewer than {FEWEST_PRODUCTS}"
        )
    if work.flops_per_sample is None:
        raise _unknown_work(work.name)
    peak = observations.chip_figures(target["chip"], target["precision"])["peak"]
    own = _hidden_shares()
    own = own[own["situation"].eq(BOTH) & own["vendor"].eq(target["vendor"]) & own["family"].eq(target["family"])]
    middle = float(table["share"].median()) + peak + math.log(1e12 / work.flops_per_sample)
    words = f"{target['vendor']}, {target['family']} ({BOTH})"
    return middle, _quantile(own[SHARE].abs(), own["publication"]), SHARE, _basis(SHARE, own, words)


@functools.cache
def _shares() -> pandas.DataFrame:
    """Return the logarithm of the best share of peak for each maker, family, product and publication."""
    table = observations.shares_of_peak(articles.read())
    table["per_byte"] = table["share"] + table["peak"] - table["bandwidth"]
    keys = ["vendor", "family", "product", "publication"]
    return table.groupby(keys)[["share", "per_byte"]].max().reset_index()


@functools.cache
def _hidden_shares() -> pandas.DataFrame:
    """Return the errors of SHARE and RATIO with the columns of `hidden`, where other products can be learnt from."""
    table, lines = _shares(), []
    for line in table.to_dict("records"):
        alike = table[table["vendor"].eq(line["vendor"]) & table["family"].eq(line["family"])]
        others = alike[alike["product"].ne(line["product"])]
        for situation in (CHIP, BOTH):
            used = others if situation == CHIP else others[others["publication"].ne(line["publication"])]
            off = {SHARE: used["share"].median() - line["share"], RATIO: used["per_byte"].median() - line["per_byte"]}
            if len(used) and alike["product"].nunique() >= FEWEST_PRODUCTS:
                lines.append(line | off | {"situation": situation})
    return pandas.DataFrame(lines).assign(**{REGRESSION: numpy.nan})


def _basis(rule: str, own: pandas.DataFrame, words: str) -> str:
    measures = _measures(own, own[rule])
    return (
        f"{rule}; its median error is {measures['median_error']:.0%} on {measures['pairs']} published rates of {words},"
        f" and {measures['coverage']:.0%} of its 90 % intervals hold"
    )


def _measures(lines: pandas.DataFrame, off: pandas.Series) -> dict:
    """Return pairs, publications, median_error, within_2, coverage and half_width, see `errors`.

    The interval that a rate is tested with is chosen without the errors of its own publication.
    """
    kept = off.notna()
    publications, off = lines["publication"][kept], off[kept].astype(float)
    widths = {
        name: _quantile(off[publications.ne(name)].abs(), publications[publications.ne(name)])
        for name in publications.unique()
        if publications.ne(name).any()
    }
    return {
        "pairs": len(off),
        "publications": publications.nunique(),
        "median_error": float(numpy.expm1(off).abs().median()),
        "within_2": float((off.abs() < math.log(2)).mean()),
        "coverage": float((off.abs() <= publications.map(widths)).mean()),
        "half_width": math.exp(_quantile(off.abs(), publications)),
    }


def _quantile(scores: pandas.Series, publications: pandas.Series) -> float:
    """Return the LEVEL quantile of the scores, with equal weight for each publication.

    Lines of one publication share an error: ninety of them predict the error in a new publication no better than three.

    Source: Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer hierarchical models, 2022,
    https://arxiv.org/abs/1809.07441, pooling of distribution functions.
    """
    scores, codes = scores.to_numpy(float), pandas.factorize(publications)[0]
    counts, order = numpy.bincount(codes), numpy.argsort(scores)
    shares = numpy.cumsum(1.0 / counts[codes[order]]) / len(counts)
    return float(scores[order][min(numpy.searchsorted(shares, LEVEL - 1e-9), len(scores) - 1)])


@functools.cache
def _shortest_step() -> float:
    """Return the seconds of the shortest step on record, on one device and with a stated batch size."""
    figures = articles.read()
    kept = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].eq(1)]
    kept = kept[~kept["network"].isin(observations.TINY)]
    return float((kept["batch_size"] / kept["rate"]).min())


@functools.cache
def _scaling(count: int) -> tuple[float, float]:
    """Return the logarithm of the speed-up of several devices over one, and the half-width of its 90 % interval.

    Each doubling of devices has the same efficiency: the median in publications that print rates of one device and of
    several. The interval covers 90 % of these cases, each predicted without its chip.

    Raises:
        Unknown: no publication on record compares so many devices with one.
    """
    if count == 1:
        return 0.0, 0.0
    if not 1 < count <= observations.MOST:
        raise Unknown(
            f"{count} devices; allowed: 1 to {observations.MOST}, as many as publications on record compare with one"
        )
    figures = articles.read()
    figures = figures.assign(product=figures["chip"].map(chips.product))
    known = figures[figures["rate"].gt(0) & figures["refused"].eq("") & figures["device_count"].le(observations.MOST)]
    best = known.groupby([*SAME, "device_count"], dropna=False)["rate"].max().reset_index()
    one = best[best["device_count"] == 1].drop(columns="device_count").rename(columns={"rate": "one"})
    more = best[best["device_count"].ge(2)].merge(one, on=SAME)
    kept = numpy.log((more["rate"] / (more["one"] * more["device_count"])).astype(float))
    kept /= numpy.log2(more["device_count"].astype(int))
    off = [(own - kept.drop(own.index).median()).abs() for _, own in kept.groupby(more["product"])]
    doublings = math.log2(count)
    return math.log(count) + float(kept.median()) * doublings, float(pandas.concat(off).quantile(LEVEL)) * doublings
