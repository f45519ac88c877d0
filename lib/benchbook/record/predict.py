"""Predict the training rate of a chip for a work from the public record, as a range, or refuse.

Three rules answer. A ridge regression learns from all published rates of single devices. The plain ratio scales rates
of the same work on other chips by memory bandwidth. It answers for a maker, precision and network where the regression
is no better. For language models, the share of the peak that published trainings reach answers, if at least
FEWEST_PRODUCTS products of the maker are on record.

Each rule's error is that of published rates that were hidden from it with all rates of their chip, or of their chip and
their publication. A range is the regression's, which widens where a chip or a work is unlike those on record; `errors`
says how many ranges hold. An answer whose range would be wider than a factor of WIDEST to each side is refused.
"""

import difflib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy
import pandas
import threadpoolctl  # of scikit-learn

from benchbook.judging import wording
from benchbook.record import articles, chips, observations
from benchbook.record.observations import HALF, Unknown
from benchbook.rows import networks, records

PRECISIONS = tuple(name for name in records.PRECISIONS if name != "fp64")  # the record has no rates of fp64
# Standard deviations: of the effects of names, of a unit of each number, of its products with names and with other
# numbers, and of what is left. They make the record most likely; those of PRODUCTS are smaller, because hidden
# publications are then predicted better.
NAMES = {"publication": 0.28, "setting": 0.24, "family": 0.18, "network": 0.6, "work": 0.13, "vendor": 0.62}
NAMES |= {"uncounted": 2.0, "product": 0.12, "framework": 0.09}
NUMBERS = {"peak": 0.19, "bandwidth": 0.07, "fp32": 0.21, "released": 0.06, "operations": 0.56, "batch": 0.10}
NUMBERS |= {"date": 0.06, "loader": 0.12, "no_update": 0.36}
CHIP_NUMBERS, PRODUCTS, SQUARES = (
    ["peak", "bandwidth", "fp32", "released"],
    {"publication": 0.10, "network": 0.05},
    0.05,
)
REST = 0.18
CONSTANT = 3.0  # so large that the constant is free, and so small that variances keep their digits
OPERATIONS = 24.5e9  # of works whose operations were not counted, in the column of operations
CHIP, BOTH = "chip hidden", "chip and publication hidden"
REGRESSION, RATIO, SHARE = "regression", "ratio of bandwidths", "share of peak"
ANSWER = "the answer"
LEVEL, WIDEST = 0.90, 5.0
DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)  # from the middle of a range to a bound
FEWEST, FEWEST_PUBLICATIONS = 20, 3  # errors and publications of the smallest group whose errors count
FEWEST_PRODUCTS = 5
GROUP = ["vendor", "family", "network"]
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
    asked = []
    for question in questions:
        try:
            target = _target(question)
            asked.append([target, *map(_target, _faster(question, target))])
        except Unknown as reason:
            asked.append(reason)
    images = [target for targets in asked if isinstance(targets, list) for target in targets if "peak" in target]
    if images:
        for target, *known in zip(images, *_regression().predict(pandas.DataFrame(images)), strict=True):
            target["mean"], target["deviation"] = known
    return [
        _answer(question, targets) if isinstance(targets, list) else targets
        for question, targets in zip(questions, asked, strict=True)
    ]


def nearest(question: Question) -> pandas.DataFrame:
    """Return the published rates nearest to a question: same network, product and family, then similar chips.

    Returns:
        Columns: chip, work, precision, rate (of one device; images or sequences a second), sequence_length (tokens; NaN
        for images), source.
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
    return order[["chip", "work", "precision", "rate", "sequence_length", "source"]].reset_index(drop=True)


@functools.cache
def errors() -> pandas.DataFrame:
    """Return the errors of the rules on published rates, all with the same knowledge.

    Returns:
        Columns: situation (CHIP or BOTH), group (the rates of the record or of the articles, a maker and a family of
        precisions, or `language models`), rule (ANSWER is the one that answers), pairs, publications, median_error (of
        predicted over printed, less 1, without sign), within_2 (the share within a factor of 2), coverage (of the 90 %
        ranges), half_width (the median factor from the middle to a bound).
    """
    both, language = _answered()[_answered()[RATIO].notna()], _hidden_shares().assign(group="language models")
    grouped = [both.assign(group=both["origin"]), both.assign(group=both["vendor"] + ", " + both["family"]), language]
    parts = []
    for (situation, group), own in pandas.concat(grouped).groupby(["situation", "group"], sort=False):
        if len(own) < FEWEST / 2:
            continue
        rules = {ANSWER: own["off"]} | {rule: own[rule] for rule in (REGRESSION, RATIO) if own[rule].notna().all()}
        head = {"situation": situation, "group": group}
        parts += [head | {"rule": rule} | _measures(own.assign(off=off)) for rule, off in rules.items()]
    return pandas.DataFrame(parts)


@functools.cache
@threadpoolctl.threadpool_limits.wrap(limits=1)  # threads wait longer for each other than these small systems take
def hidden() -> pandas.DataFrame:
    """Return the error of each rule for each published rate of images, hidden in each situation, in logarithms.

    Returns:
        Columns: situation, place (in the regression's lines), deviation (the regression's), REGRESSION, RATIO (missing
        without another rate of the same work and family), vendor, family, network, product, publication, origin.
    """
    lines, parts = _regression().lines, []
    works, counted = pandas.factorize(lines["work"])[0], lines["flops_per_sample"].notna().to_numpy()
    targets = list(lines[["work", "family", "setting", "bandwidth"]].itertuples(index=False))
    printed = numpy.log(lines["rate"].to_numpy(float))
    for situation, places, own in _situations(lines):
        others = numpy.ones(len(lines), bool)
        others[places] = False
        taught = numpy.bincount(works, others) > 0
        own = own[counted[own] | taught[works[own]]]  # a work without operations needs another rate
        if len(own) and others.any():
            ratios = [_ratio(*targets[place], others) for place in own] - printed[own]
            parts += zip([situation] * len(own), own, *_regression().residuals(places, own), ratios, strict=True)
    table = pandas.DataFrame(parts, columns=["situation", "place", REGRESSION, "deviation", RATIO])
    return table.join(lines[["vendor", "family", "network", "product", "publication", "origin"]], on="place")


@functools.cache
def _answered() -> pandas.DataFrame:
    """Return the lines of `hidden` with the columns rule, which answers, and off, its error."""
    table = hidden()
    rules = [_rule(*each)[0] for each in table[GROUP].itertuples(index=False)]
    rules = pandas.Series(rules, table.index).where(table[RATIO].notna(), REGRESSION)
    off = table[REGRESSION].where(rules.eq(REGRESSION), table[RATIO])
    return table.assign(rule=rules, off=off)


class _Regression:
    """A ridge regression of the logarithm of a rate, less the mean of the logarithms of peak and bandwidth.

    It is the mean of a Gaussian process, whose standard deviation is that of a prediction. A name that is not on record
    has a column of its own, which widens the deviation.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.1 and 5.4.2 (for blocks).
    """

    def __init__(self, lines: pandas.DataFrame):
        self.lines = lines.reset_index(drop=True)
        self.levels = {name: sorted(set(texts)) for name, texts in _columns(lines)[list(NAMES)].items()}
        self.means = _columns(lines)[list(NUMBERS)].astype(float).mean()
        self.targets = numpy.log(self.lines["rate"].to_numpy(float)) - _offset(self.lines)
        self.design = self.columns(self.lines)
        self.inverse = numpy.linalg.inv(self.design @ self.design.T + REST**2 * numpy.eye(len(self.lines)))
        self.coefficients = self.design.T @ (self.inverse @ self.targets)

    def columns(self, lines: pandas.DataFrame) -> numpy.ndarray:
        """Return the columns of the regression, each times its standard deviation."""
        table = _columns(lines)
        numbers = table[list(NUMBERS)].astype(float) - self.means
        switches = {
            name: numpy.eye(len(levels) + 1)[pandas.Index(levels).get_indexer(table[name])]  # the last one: not known
            for name, levels in self.levels.items()
        }
        chip = numbers[CHIP_NUMBERS].to_numpy()
        pairs = numpy.triu_indices(len(CHIP_NUMBERS))
        parts = [NAMES[name] * switches[name] for name in NAMES]
        parts += [switches[name] * each[:, None] * PRODUCTS[name] for name in PRODUCTS for each in chip.T]
        parts += [numbers * list(NUMBERS.values()), SQUARES * chip[:, pairs[0]] * chip[:, pairs[1]]]
        return numpy.hstack([*parts, numpy.full((len(lines), 1), CONSTANT)])

    def predict(self, lines: pandas.DataFrame) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the logarithm of each line's rate, and the standard deviation of a published rate from it."""
        design = self.columns(lines)
        alike = design @ self.design.T
        variances = (design**2).sum(1) + REST**2 - ((alike @ self.inverse) * alike).sum(1)
        return design @ self.coefficients + _offset(lines), numpy.sqrt(variances)

    def residuals(self, places: numpy.ndarray, own: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return predicted less printed for own lines as if all lines at places were unknown, and its deviations.

        Args:
            places: of lines, sorted.
            own: those of them that are predicted.
        """
        among = numpy.searchsorted(places, own)
        covariance = numpy.linalg.solve(self.inverse[numpy.ix_(places, places)], numpy.eye(len(places))[:, among])
        deviations = numpy.sqrt(covariance[among, numpy.arange(len(own))])
        return -covariance.T @ (self.inverse[places] @ self.targets), deviations


@functools.cache
def _regression() -> _Regression:
    lines = observations.published()
    return _Regression(lines[lines["sequence_length"].isna()])


def _columns(lines: pandas.DataFrame) -> pandas.DataFrame:
    operations, batch = (lines[name].astype(float) for name in ("flops_per_sample", "batch_size"))
    logs = {"operations": numpy.log(operations.fillna(OPERATIONS)), "batch": numpy.log(batch)}
    known, network = lines["flops_per_sample"].notna(), lines["network"].astype(str)
    names = {"network": network.where(known, ""), "uncounted": network.where(~known, "")}  # without operations
    names["framework"] = lines["framework"] + ", " + lines["family"]
    return lines.assign(**logs, **names, date=lines["date"].astype(float) / 3)


def _offset(lines: pandas.DataFrame) -> numpy.ndarray:
    return (lines["peak"].to_numpy(float) + lines["bandwidth"].to_numpy(float)) / 2


def _situations(lines: pandas.DataFrame) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray]]:
    """Yield each situation, the places that it hides, and those among them that are predicted."""
    products, publications = (lines[name].to_numpy() for name in ("product", "publication"))
    for places in lines.groupby("product").indices.values():
        yield CHIP, places, places
    for (product, publication), own in lines.groupby(["product", "publication"]).indices.items():
        yield BOTH, numpy.flatnonzero((products == product) | (publications == publication)), own


def _ratio(work: str, family: str, setting: str, bandwidth: float, known: numpy.ndarray | None = None) -> float:
    """Return the logarithm of a rate by the plain ratio; NaN without a rate of the same work and family.

    Rates in the same setting are preferred, because the regression knows the setting as well.

    Args:
        work, family, setting, bandwidth: of an observation.
        known: a mask of the rates that are not hidden; None: all.
    """
    alike, settings, starts = _starts()
    used = alike.get((work, family), numpy.array([], int))
    used = used if known is None else used[known[used]]
    own = used[settings[used] == setting]
    used = own if len(own) else used
    return float(numpy.median(starts[used])) + bandwidth if len(used) else math.nan


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
        return known | {"family": observations.family(question.precision), "language_model": work}
    figures = observations.chip_figures(chip, question.precision)
    sizes, least, most = _works()
    operations = question.flops_per_sample or work.flops_per_sample
    if not question.work and not operations:
        raise Unknown("no work was given; allowed: a study, a network, or the operations of an image")
    if operations is None and work.name not in sizes:
        raise _unknown_work(question.work)
    if operations and not least / BEYOND <= operations <= most * BEYOND:
        raise Unknown(
            f"{networks.title(work.name) or 'the network'} takes {wording.number(operations)} operations an image;"
            f" works on record take {wording.number(least)} to {wording.number(most)}, too different for a prediction"
        )
    return observations.observation(
        figures, observations.work_of(work.name, work.image_size or sizes.get(work.name)),
        publication="", setting="", framework="pytorch",
        batch_size=question.batch_size, flops_per_sample=operations,
    )  # fmt: skip


@functools.cache
def _works() -> tuple[dict[str, float | None], float, float]:
    """Return the usual image size of each network on record, and the fewest and most operations of an image."""
    lines = _regression().lines
    sizes = lines.groupby("network")["image_size"].agg(lambda own: next(iter(own.mode()), None)).to_dict()
    return sizes, *lines.loc[lines["origin"].eq(observations.RECORD), "flops_per_sample"].agg(["min", "max"])


def _unknown_work(name: str) -> Unknown:
    """Return the refusal of a work that the record does not hold, with the nearest names."""
    known = set(networks.table().index) | set(_works()[0])
    known |= {alias for aliases in networks.table()["aliases"] for alias in aliases.split("|") if alias}
    near = difflib.get_close_matches(name.lower(), {each.lower(): each for each in known}, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"allowed: {', '.join(sorted(networks.table().index))}"
    return Unknown(f"work {name!r} is not on record; {hint}")


def _answer(question: Question, targets: list[dict]) -> Range | Unknown:
    """Return the answer from the question's target, which is the first, and those of faster precisions."""
    try:
        middle, width, rule, basis = _by_rule(targets[0])
        growth, spread = _scaling(question.count)
        faster = [_by_rule(target)[:2] for target in targets[1:]]
    except Unknown as reason:
        return reason
    value, low, high = numpy.min([[mid, mid - half, mid + half] for mid, half in [(middle, width), *faster]], axis=0)
    if question.batch_size:
        value, low, high = numpy.minimum([value, low, high], math.log(question.batch_size / _shortest_step()))
    below, above = math.hypot(value - low, spread), math.hypot(high - value, spread)
    value += growth
    return Range(math.exp(value), math.exp(value - below), math.exp(value + above), rule, basis)


def _by_rule(target: dict) -> tuple[float, float, str, str]:
    """Return the logarithm of a rate, the half-width of its interval, the rule, and its basis in words.

    Raises:
        Unknown: the interval is too wide, or too few products have published trainings of language models.
    """
    if "mean" not in target:
        return _by_share(target)
    ratio = _ratio(*(target[name] for name in ("work", "family", "setting", "bandwidth")))
    rule, basis = _group(target["vendor"], target["family"], target["network"], math.isfinite(ratio))
    width = DEVIATIONS * target["deviation"]
    if width > math.log(WIDEST):
        raise Unknown(
            f"{target['chip']} in {target['precision']} is too unlike the chips on record: the range would be a factor"
            f" of {math.exp(width):.1f} to each side; allowed: {WIDEST:g}"
        )
    return ratio if rule == RATIO else target["mean"], width, rule, basis


@functools.cache
def _group(vendor: str, family: str, network: str, has_ratio: bool) -> tuple[str, str]:
    """Return the rule for a maker, family and network, and its errors in the nearest large group in words."""
    rule, places, names = _rule(vendor, family, network)
    rule = rule if has_ratio else REGRESSION  # without another rate, the regression has nothing to beat
    own = hidden().iloc[places]
    return rule, _basis(rule, own.assign(off=own[rule]), ", ".join(map(networks.title, names)) or "all makers")


@functools.cache
def _rule(*asked: str) -> tuple[str, numpy.ndarray, tuple[str, ...]]:
    """Return the rule with the smaller median error in the nearest large group, the group's places, and its names."""
    errors = numpy.abs(numpy.expm1(hidden()[[REGRESSION, RATIO]].to_numpy()))
    names, publications = hidden()[GROUP].to_numpy(object), hidden()["publication"].to_numpy()
    for length in (3, 2, 1, 0):
        alike = (names[:, :length] == asked[:length]).all(axis=1)
        places = numpy.flatnonzero(alike & numpy.isfinite(errors[:, 1]))
        if len(places) >= FEWEST and len(set(publications[places])) >= FEWEST_PUBLICATIONS:
            break
    regression, ratio = numpy.median(errors[places], axis=0)
    return REGRESSION if regression < ratio else RATIO, places, asked[:length]


def _basis(rule: str, lines: pandas.DataFrame, words: str) -> str:
    situation = BOTH if lines["situation"].eq(BOTH).any() else CHIP
    measures = _measures(lines[lines["situation"].eq(situation)])
    return (
        f"{rule}; its median error is {measures['median_error']:.0%} on {measures['pairs']} published rates of {words}"
        f" ({situation}), and {measures['coverage']:.0%} of its 90 % ranges hold"
    )


def _by_share(target: dict) -> tuple[float, float, str, str]:
    work = target["language_model"]
    share, products, basis = _share(target["vendor"], target["family"])
    if products < FEWEST_PRODUCTS:
        raise Unknown(
            f"language models on chips of {target['vendor']} in {target['family']}: {products} products on record,"
            f" fewer than {FEWEST_PRODUCTS}"
        )
    if work.flops_per_sample is None:
        raise _unknown_work(work.name)
    peak = observations.chip_figures(target["chip"], target["precision"])["peak"]
    middle = share + peak + math.log(1e12 / work.flops_per_sample)
    return middle, DEVIATIONS * _hidden_shares()["deviation"].iloc[0], SHARE, basis


@functools.cache
def _share(vendor: str, family: str) -> tuple[float, int, str]:
    """Return the logarithm of the usual share of peak, the number of products on record, and the basis in words."""
    table = _shares()
    table = table[table["vendor"].eq(vendor) & table["family"].eq(family)]
    basis = _basis(SHARE, _hidden_shares(), f"{vendor}, {family}")
    return float(table["share"].median()), table["product"].nunique(), basis


@functools.cache
def _shares() -> pandas.DataFrame:
    """Return the logarithm of the best share of peak for each maker, family, product and publication."""
    table = observations.shares_of_peak(articles.read())
    table["per_byte"] = table["share"] + table["peak"] - table["bandwidth"]
    keys = ["vendor", "family", "product", "publication"]
    return table.groupby(keys)[["share", "per_byte"]].max().reset_index()


@functools.cache
def _hidden_shares() -> pandas.DataFrame:
    """Return the errors of SHARE and RATIO for language models, where enough other products can be learnt from."""
    table, lines = _shares(), []
    for line in table.to_dict("records"):
        alike = table[table["vendor"].eq(line["vendor"]) & table["family"].eq(line["family"])]
        others = alike[alike["product"].ne(line["product"])]
        for situation in (CHIP, BOTH):
            used = others if situation == CHIP else others[others["publication"].ne(line["publication"])]
            off = {"off": used["share"].median() - line["share"], RATIO: used["per_byte"].median() - line["per_byte"]}
            if len(used) and alike["product"].nunique() >= FEWEST_PRODUCTS:
                lines.append(line | off | {"situation": situation, "rule": SHARE})
    hidden_shares = pandas.DataFrame(lines)
    return hidden_shares.assign(deviation=float((hidden_shares["off"] ** 2).mean() ** 0.5))


def _measures(lines: pandas.DataFrame) -> dict:
    """Return pairs, publications, median_error, within_2, coverage and half_width, see `errors`."""
    off = lines["off"].astype(float)
    return {
        "pairs": len(lines),
        "publications": lines["publication"].nunique(),
        "median_error": float(numpy.expm1(off).abs().median()),
        "within_2": float((off.abs() < math.log(2)).mean()),
        "coverage": float((off.abs() <= DEVIATIONS * lines["deviation"]).mean()),
        "half_width": math.exp(DEVIATIONS * lines["deviation"].median()),
    }


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
