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


@ONE_THREAD
def judged(rule: rules.Regression) -> pandas.DataFrame:
    """Return the rule's lines with the errors of hidden rates, in logarithms.

    Returns:
        Added columns: error and deviation (of the rule); ratio_error (of the median ratio of
        speed and bandwidth, of known rates of the same work and family; NaN without one).
    """
    lines, printed = rule.lines, rule.lines["speed"].to_numpy(float)
    ratios, works = lines["speed"] - lines["bandwidth"], lines["work"] + lines["family"]
    values, found = lines[HIDDEN].to_numpy(object), numpy.full((2, len(lines)), math.nan)
    plain = numpy.full(len(lines), math.nan)
    for own in lines.groupby(HIDDEN).indices.values():
        unknown = numpy.flatnonzero((values == values[own[0]]).any(axis=1))
        found[:, own] = rule.predict(lines.iloc[own], unknown)
        middles = ratios.drop(index=unknown).groupby(works).median()
        plain[own] = works.iloc[own].map(middles) - ratios.iloc[own]
    return lines.assign(error=found[0] - printed, deviation=found[1], ratio_error=plain)


@functools.cache
def hidden() -> pandas.DataFrame:
    """Return `judged` rates, with their group: a vendor and a family of precisions. Rates of a
    work that no other publication timed in the family are left out, because the ratio cannot
    know them."""
    table = judged(rules.regression())
    table = table[table["ratio_error"].notna()]
    return table.assign(group=table["vendor"] + ", " + table["family"])


def errors() -> pandas.DataFrame:
    """Return the errors of the rule and of the plain ratio on hidden rates, as `rules.errors`
    does from ERRORS."""
    table = hidden()
    grouped = pandas.concat([table.assign(group=table["origin"]), table]).groupby(
        "group", sort=False
    )
    return pandas.DataFrame(
        [{"group": group} | measures(own) for group, own in grouped if len(own) >= FEWEST]
    )


def measures(lines: pandas.DataFrame) -> dict:
    """Return the columns of `rules.errors` but the group."""
    off, plain = lines["error"], lines["ratio_error"]
    return {
        "pairs": len(lines),
        "publications": lines["publication"].nunique(),
        "median_error": float(numpy.expm1(off).abs().median()),
        "within_2": float((off.abs() < math.log(2)).mean()),
        "coverage": float((off.abs() <= rules.DEVIATIONS * lines["deviation"]).mean()),
        "ratio_error": float(numpy.expm1(plain).abs().median()),
        "ratio_within_2": float((plain.abs() < math.log(2)).mean()),
    }


def likelihood(constants: dict[str, float]) -> float:
    """Return the mean logarithm of the density of the hidden rates of images whose errors count,
    without a constant."""
    table = judged(rules.Regression(observations.images(), constants))
    table = table[table["ratio_error"].notna()]
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


def compared() -> pandas.DataFrame:
    """Return COMPARED next to a published rate of each, predicted without the chip, if there is
    one.

    Returns:
        Columns: chip, work, published, predicted (a range, or why there is none), source.
        ResNet-50 comes first.
    """
    rule, shown = rules.regression(), []
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
    table = errors()
    table.to_csv(ERRORS, index=False)
    print(table.to_markdown(index=False))
    print(compared().to_markdown(index=False))


if __name__ == "__main__":
    main()
