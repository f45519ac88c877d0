"""A ledger of one's own, predicted as if its chips were unknown to the record: how far off the record is."""

import math
from pathlib import Path

import numpy
import pandas

from benchbook import record
from benchbook.predictions import features, judged
from benchbook.predictions.answer import of_the_record
from benchbook.predictions.model import Model

UNLIKE = "a work unlike all others on record, whose operations nobody counted"
COLUMNS = ["publication", "chip", "vendor", "work", "precision", "family", "situation", "basis", "printed", "predicted"]
COLUMNS += ["low", "high"]


def judge(path: Path) -> tuple[pandas.DataFrame, pandas.Series]:
    """Predict each single-device training rate of a ledger with its chip, in all its boards, hidden from the record.

    A publication that the record has stays known, all but that chip's rates; any other is new. Basis and intervals are
    chosen without the chip.

    Args:
        path: a table with the record's columns.

    Returns:
        A line for each rate that is predicted: article, chip, vendor, work, precision, family, situation, basis,
        printed, predicted, low, high (images a second), off (predicted over printed, in logarithms), hit; and why the
        others are not, by the ledger's line.
    """
    figures = record.read(path)
    targets, reasons = features.observations(figures), features.refusals(figures)
    forecaster = of_the_record()
    observations, residuals = forecaster.model.observations, forecaster.residuals
    parts = []
    for product, group in targets.groupby("product"):
        others = observations[observations["product"] != product].reset_index(drop=True)
        comparable = group["work"].isin(others["work"]) | group["flops_per_sample"].notna()
        reasons = pandas.concat([reasons, pandas.Series(UNLIKE, index=group.index[~comparable])])
        if comparable.any():
            residuals_of_others = judged.columns(residuals[residuals["product"] != product])
            parts.append(_predict(group[comparable], others, residuals_of_others))
    lines = pandas.concat(parts) if parts else pandas.DataFrame(columns=[*COLUMNS, "off", "hit"])
    return lines.sort_index(), reasons.sort_index()


def summarise(lines: pandas.DataFrame) -> pandas.DataFrame:
    """Return how far off the lines of `judge` are: of all, by family of precisions, by maker, and by situation.

    A maker with fewer than 20 rates has no line of its own.

    Returns:
        Columns: of, pairs, publications, median_error, within_2, coverage.
    """
    parts = [(column, lines.groupby(column)) for column in ("family", "situation", "vendor")]
    groups = {"all": lines} | {
        name: group
        for column, grouped in parts
        for name, group in grouped
        if column != "vendor" or len(group) >= judged.FEWEST
    }
    return pandas.DataFrame(
        [
            {
                "of": name,
                "pairs": len(group),
                "publications": group["publication"].nunique(),
                "median_error": float(numpy.expm1(group["off"].astype(float)).abs().median()),
                "within_2": float((group["off"].abs() < math.log(2)).mean()),
                "coverage": float(group["hit"].mean()),
            }
            for name, group in groups.items()
        ]
    )


def singles(lines: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines of `judge` that belong to makers with fewer than 20 rates: they have no median."""
    return lines[lines.groupby("vendor")["vendor"].transform("size") < judged.FEWEST]


def _predict(targets: pandas.DataFrame, others: pandas.DataFrame, residuals: judged.Columns) -> pandas.DataFrame:
    """Return the predictions of one product's rates from the other products'."""
    guess = Model(others).predict(targets)
    both = pandas.concat([others, targets.assign(product="asked")], ignore_index=True)
    asked = {name: judged.rules(both, name).tail(len(targets)) for name in (judged.CHIP, judged.BOTH)}
    lines = []
    for place, line in enumerate(targets.to_dict("records")):
        situation = judged.CHIP if line["publication"] in set(others["publication"]) else judged.BOTH
        key = situation, line["family"], line["vendor"]
        basis = judged.choose(residuals, *key)
        ruled = asked[situation].iloc[place][basis] if basis != judged.MODEL else math.nan
        basis = judged.MODEL if math.isnan(ruled) else basis
        far = judged.reach(residuals, basis, *key)
        middle, far = (guess.mean[place], far * guess.deviation[place]) if basis == judged.MODEL else (ruled, far)
        off = middle - math.log(line["rate"])
        values = {"situation": situation, "basis": basis, "printed": line["rate"], "predicted": math.exp(middle)}
        values |= {"low": math.exp(middle - far), "high": math.exp(middle + far), "off": off, "hit": abs(off) <= far}
        lines.append({name: line[name] for name in COLUMNS if name in line} | values)
    return pandas.DataFrame(lines, index=targets.index)
