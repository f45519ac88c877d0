"""Fit the constants of the rule that predicts, and compare it with others on rates that were hidden from it.

`python benchmarks/predictions.py` prints the constants that make hidden rates most likely, each from GRID, while the
others stay; then the errors of the rule and of the plain ratio of bandwidths, as a table of docs/predictions.md. It
takes minutes.

`python benchmarks/predictions.py FOLDER` lists next to them the answer and the regression of another checkout, which
learn from this checkout's record. The folder holds commit 187a2a12, the last with the larger rule.
"""

import io
import subprocess
import sys

import numpy
import pandas

from benchbook.machine import layout
from benchbook.record import observations, rules

GRID = (0.1, 0.25, 0.4, 1.0)
COLUMNS = {"error": "deviation", "ratio_error": "ratio_deviation"}
NAMES = {"error": "the rule", "ratio_error": "ratio"}
OLDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/lib")
from benchbook.machine import layout
layout.published = lambda: Path(sys.argv[2])
from benchbook.record import rules
table = rules.hidden()
table = table[table["situation"].eq(rules.BOTH) & table["plain"].notna()]
plain = [rules.chosen(*group)[0] == "plain" for group in table[rules.GROUP].itertuples(index=False, name=None)]
table = table.assign(answer=table["learned"].mask(plain, table["plain"]), regression=table["learned"])
print(table[["kind", "origin", "vendor", "family", "answer", "regression", "deviation"]].to_csv(index=False))
"""


def likelihood(constants: dict[str, float]) -> float:
    """Return the mean logarithm of the density of the hidden rates of images whose errors count, without a constant."""
    lines = observations.images()
    table = rules.judged(rules.Regression(lines, constants))[rules.judged(rules.Ratio(lines))["error"].notna()]
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
    named |= {f"{vendor}, {family}": own for (vendor, family), own in images.groupby(["vendor", "family"])}
    return {name: own for name, own in named.items() if len(own) >= rules.FEWEST}


def main(words: list[str]) -> None:
    """Print the constants and the table."""
    print(f"constants: {fitted(dict.fromkeys(rules.CONSTANTS, 0.4))}; in use: {rules.CONSTANTS}", flush=True)
    tables = [(rules.hidden(), column, COLUMNS[column], name) for column, name in NAMES.items()]
    if words:
        command = [sys.executable, "-c", OLDER, words[0], str(layout.published())]
        older = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        table = pandas.read_csv(io.StringIO(older))
        tables += [(table, name, "deviation", f"older {name}") for name in ("answer", "regression")]
    print("| rates of | rule | n | median error | within a factor of 2 | 90 % ranges that hold |")
    print("|---|---|---|---|---|---|")
    for group in cells(tables[0][0]):
        for table, error, deviation, name in tables:
            own = cells(table)[group].rename(columns={error: "shown_error"}).assign(shown_deviation=table[deviation])
            found = rules._measures(own.assign(publication=""), "shown_")
            shares = " | ".join(f"{100 * found[each]:.1f} %" for each in ("median_error", "within_2", "coverage"))
            print(f"| {group} | {name} | {found['pairs']} | {shares} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
