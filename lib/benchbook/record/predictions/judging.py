"""A ledger of one's own, predicted as if its chips were unknown to the record: how far off the record is."""

import math
from pathlib import Path

import numpy
import pandas

from benchbook import record
from benchbook.record.predictions import features, judged, observed
from benchbook.record.predictions.answer import of_the_record
from benchbook.record.predictions.model import Model

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
    parts = []
    for product, group in targets.groupby("product"):
        model, residuals = _without(product)
        comparable = group["work"].isin(model.observations["work"]) | group["flops_per_sample"].notna()
        reasons = pandas.concat([reasons, pandas.Series(UNLIKE, index=group.index[~comparable])])
        if comparable.any():
            parts.append(_predict(group[comparable], model, residuals))
    lines = pandas.concat(parts) if parts else pandas.DataFrame(columns=[*COLUMNS, "off", "hit"])
    return lines.sort_index(), reasons.sort_index()


def judge_measured(point: pandas.DataFrame, ceilings: pandas.DataFrame) -> dict:
    """Predict one rate that was measured here, its chip hidden from the record, and nothing else of ours known.

    Args:
        point: one line of a summary.
        ceilings: of its machine, from `rows.ceilings`.

    Returns:
        What a line of `judge` has.

    Raises:
        Unknown: of the machine or of the network too little is known; the message says what.
    """
    target = observed.asked(point, ceilings)
    of_the_record().check_operations(target["network"].iloc[0], target["flops_per_sample"].astype(float).iloc[0])
    return _predict(target, *_without(target["product"].iloc[0])).iloc[0].to_dict()


def _without(product: str) -> tuple[Model, judged.Columns]:
    """Return what the record says without a product, and how far its predictions are off, without the product's."""
    forecaster = of_the_record()
    observations, residuals = forecaster.model.observations, forecaster.residuals
    others = observations[observations["product"] != product].reset_index(drop=True)
    model = forecaster.model if len(others) == len(observations) else Model(others)
    return model, judged.columns(residuals[residuals["product"] != product])


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


def _predict(targets: pandas.DataFrame, model: Model, residuals: judged.Columns) -> pandas.DataFrame:
    """Return the predictions of one product's rates from the other products'."""
    guess, others = model.predict(targets), model.observations
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
