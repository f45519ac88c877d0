"""Fit the constants of the rule that predicts, and compare it with others on rates that were
hidden from it.

`python benchmarks/predictions.py` prints the constants that make hidden rates most likely, each
from GRID, while the others stay; writes the errors of the rule and of the plain ratio of
bandwidths to ERRORS, which says how sure an answer is; and prints them as a table of
docs/predictions.md. It takes minutes.
"""

import functools
import math

import numpy
import pandas
import threadpoolctl

from benchbook.machine import layout
from benchbook.record import articles, chips, observations, predict, rules
from benchbook.rows import networks

# Chips that people compare, and the precision in which they are asked for.
COMPARED = dict.fromkeys(("Apple M1 Max", "Apple M4", "Apple M4 Max", "Apple M5 Max"), "fp32")
COMPARED |= dict.fromkeys(
    ("RTX 3060", "RTX 4090", "RTX 5090", "RX 7900 XTX", "A100 80GB", "H100 80GB SXM"), "amp_fp16"
)
COMPARED |= dict.fromkeys(("MI300X", "TPU v5e"), "bf16")
USUAL = "resnet50, 224 px"
HIDDEN = ["product", "publication"]  # all rates with one of its values are hidden with a rate
FEWEST = 10  # errors of the smallest group whose errors are stated
ERRORS = layout.published() / "record" / "prediction_errors.csv"
ONE_THREAD = threadpoolctl.threadpool_limits.wrap(
    limits=1
)  # threads wait longer for each other than they work
GRID = (0.1, 0.25, 0.4, 1.0)
COLUMNS = {"error": "deviation", "ratio_error": "ratio_deviation"}
NAMES = {"error": "the rule", "ratio_error": "ratio"}


@ONE_THREAD
def judged(rule: rules.Regression | rules.Ratio) -> pandas.DataFrame:
    """Return the rule's lines with the errors of hidden rates, in logarithms.

    Returns:
        Added columns: error, deviation (both NaN if the rule needs a rate that is hidden).
    """
    lines, printed = rule.lines, rule.lines["speed"].to_numpy(float)
    values, found = lines[HIDDEN].to_numpy(object), numpy.full((2, len(lines)), math.nan)
    for own in lines.groupby(HIDDEN).indices.values():
        unknown = numpy.flatnonzero((values == values[own[0]]).any(axis=1))
        found[:, own] = rule.predict(lines.iloc[own], unknown)
    return lines.assign(error=found[0] - printed, deviation=found[1])


@functools.cache
def hidden() -> pandas.DataFrame:
    """Return the errors of the answer and of the plain ratio for each published rate that was
    hidden.

    Returns:
        The columns of the kind's table, and: kind, group (a vendor and a family of precisions,
        or LANGUAGE_MODELS), error and deviation (of the answer), ratio_error and
        ratio_deviation. Rates of a work that no other publication timed in the family are left
        out, because the ratio cannot know them.
    """
    parts = []
    for kind, rule in rules.by_kind().items():
        table = judged(rule).join(
            judged(rules.Ratio(rule.lines))[["error", "deviation"]].add_prefix("ratio_")
        )
        named = kind if kind == rules.LANGUAGE_MODELS else table["vendor"] + ", " + table["family"]
        parts.append(table.assign(kind=kind, group=named))
    table = pandas.concat(parts, ignore_index=True)
    return table[table["ratio_error"].notna()]


def errors() -> pandas.DataFrame:
    """Return the errors of the answer and of the plain ratio on hidden rates, as `rules.errors`
    does from ERRORS."""
    table = hidden()
    origins = table["origin"].mask(table["kind"].eq(rules.LANGUAGE_MODELS), rules.LANGUAGE_MODELS)
    images = table[table["kind"].eq(rules.IMAGES)]
    grouped = pandas.concat([table.assign(group=origins), images]).groupby("group", sort=False)
    prefixes = {rules.ANSWER: "", rules.RATIO: "ratio_"}
    parts = [
        {"group": group, "rule": rule} | measures(own, prefix)
        for group, own in grouped
        for rule, prefix in prefixes.items()
        if len(own) >= FEWEST
    ]
    return pandas.DataFrame(parts)


def measures(lines: pandas.DataFrame, prefix: str = "") -> dict:
    """Return pairs, publications, median_error, within_2 and coverage, see `rules.errors`."""
    off, deviations = (lines[prefix + name].astype(float) for name in ("error", "deviation"))
    return {
        "pairs": len(lines),
        "publications": lines["publication"].nunique(),
        "median_error": float(numpy.expm1(off).abs().median()),
        "within_2": float((off.abs() < math.log(2)).mean()),
        "coverage": float((off.abs() <= rules.DEVIATIONS * deviations)[deviations.notna()].mean()),
    }


def likelihood(constants: dict[str, float]) -> float:
    """Return the mean logarithm of the density of the hidden rates of images whose errors count,
    without a constant."""
    lines = observations.images()
    table = judged(rules.Regression(lines, constants))[judged(rules.Ratio(lines))["error"].notna()]
    scaled = table["error"] / table["deviation"]
    return float(-(numpy.log(table["deviation"]) + scaled**2 / 2).mean())


def fitted(constants: dict[str, float], grid: tuple[float, ...] = GRID) -> dict[str, float]:
    """Return the likeliest constants, each in turn from the grid, until none changes."""
    best = likelihood(constants)
    while True:
        before = constants
        for name in before:
            tried = {value: likelihood(constants | {name: value}) for value in grid}
            value = max(tried, key=tried.get)
            if tried[value] > best:
                constants, best = constants | {name: value}, tried[value]
        if constants == before:
            return constants


def cells(table: pandas.DataFrame) -> dict[str, pandas.DataFrame]:
    """Return the lines of each group of rates that the table in the documentation shows."""
    is_image = table["kind"].eq(rules.IMAGES)
    images = table[is_image]
    named = {**dict(list(images.groupby("origin"))), rules.LANGUAGE_MODELS: table[~is_image]}
    named |= {
        f"{vendor}, {family}": own for (vendor, family), own in images.groupby(["vendor", "family"])
    }
    return {name: own for name, own in named.items() if len(own) >= FEWEST}


def compared() -> pandas.DataFrame:
    """Return COMPARED next to a published rate of each, predicted without the chip, if there is
    one.

    Returns:
        Columns: chip, work, published, predicted (a range, or why there is none), source.
        ResNet-50 comes first.
    """
    rule, shown = rules.by_kind()[rules.IMAGES], []
    known = (
        rule.lines.groupby("work")["product"].transform("nunique").ge(observations.FEWEST_PRODUCTS)
    )
    for name, precision in COMPARED.items():
        chip = chips.resolve(name)
        family, product = observations.chip_figures(chip, precision)["family"], chips.product(chip)
        lines = rule.lines.assign(
            exact=rule.lines["chip"].str.startswith(chip), usual=rule.lines["work"].eq(USUAL)
        )
        own = lines[known & lines["product"].eq(product) & lines["family"].eq(family)]
        if own.empty:
            try:
                answer = predict.rate(predict.Question(chip, "resnet50", precision))
                bounds = f"{answer.low:,.0f} to {answer.high:,.0f}"
            except predict.Unknown as reason:
                bounds = f"none: {reason}"
            shown.append((chip, f"ResNet-50, 224 px, {precision}", "none found", bounds, ""))
            continue
        own = own.sort_values(["usual", "exact", "rate"]).tail(1)
        middles, deviations = rule.predict(own, numpy.flatnonzero(lines["product"].eq(product)))
        low, high = numpy.exp(middles + rules.DEVIATIONS * deviations * numpy.array([-1, 1]))
        (line,) = own.to_dict("records")
        work = f"{line['work'].replace(line['network'], networks.title(line['network']))}, {line['computed']}"
        shown.append(
            (
                line["chip"],
                work,
                f"{line['rate']:,.0f}",
                f"{low:,.0f} to {high:,.0f}",
                articles.citation(line),
            )
        )
    return pandas.DataFrame(shown, columns=["chip", "work", "published", "predicted", "source"])


def main() -> None:
    """Print the constants and the table."""
    print(
        f"constants: {fitted(dict.fromkeys(rules.CONSTANTS, 0.4))}; in use: {rules.CONSTANTS}",
        flush=True,
    )
    errors().to_csv(ERRORS, index=False)
    tables = [(hidden(), column, COLUMNS[column], name) for column, name in NAMES.items()]
    print("| rates of | rule | n | median error | within a factor of 2 | 90 % ranges that hold |")
    print("|---|---|---|---|---|---|")
    for group in cells(tables[0][0]):
        for table, error, deviation, name in tables:
            own = (
                cells(table)[group]
                .rename(columns={error: "shown_error"})
                .assign(shown_deviation=table[deviation])
            )
            found = measures(own.assign(publication=""), "shown_")
            shares = " | ".join(
                f"{100 * found[each]:.1f} %" for each in ("median_error", "within_2", "coverage")
            )
            print(f"| {group} | {name} | {found['pairs']} | {shares} |", flush=True)
    print(compared().to_markdown(index=False))


if __name__ == "__main__":
    main()
