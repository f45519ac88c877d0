"""Predictions for the report: their errors, and the rule of cores."""

import pandas

from benchbook.judging import wording
from benchbook.record import chips, pairs, rules
from benchbook.record.naming import Names
from benchbook.record.observations import RECORD
from benchbook.record.rules import ANSWER, RATIO
from benchbook.studies.charts.plots import Bars
from benchbook.studies.results.evidence import Evidence, cached


@cached
def errors(evidence: Evidence) -> pandas.DataFrame:
    """Return the errors of the rules that predict, see `rules.errors`."""
    return rules.errors()


def error_title(table: pandas.DataFrame, names: Names | None = None) -> str:
    """Return the median errors of predictions of the record's rates, in a sentence; `table` is from `errors`."""
    own = table[table["group"].eq(RECORD)].set_index("rule")["median_error"].map(wording.percent)
    return f"Half of the predictions are within {own[ANSWER]} of a hidden rate; by the {RATIO} within {own[RATIO]}"


@cached
def core_pairs(evidence: Evidence) -> pandas.DataFrame:
    """Return the published pairs of chips of one architecture.

    Returns:
        Columns: publication, work, family, chip, chip_over (which has more cores), core_ratio and ratio (of the
        speeds). A chip sold in several sizes counts as the largest, unless the publication names the size.
    """
    known = chips.table()[["architecture", "cores"]].dropna()
    lines = pairs.table().join(known, on="chip").join(known.add_suffix("_over"), on="chip_over")
    lines = lines[lines["architecture"].eq(lines["architecture_over"]) & lines["cores"].lt(lines["cores_over"])]
    lines = lines.assign(core_ratio=lines["cores_over"] / lines["cores"])
    columns = ["publication", "work", "family", "chip", "chip_over", "core_ratio", "ratio"]
    return lines[columns].reset_index(drop=True)


def core_sentence(lines: pandas.DataFrame) -> str:
    """Return how well the number of cores predicts the speed of a larger chip, in a sentence; see `core_pairs`."""
    error = (lines["core_ratio"] / lines["ratio"] - 1).abs()
    return (
        f"In proportion to its cores, the speed of a larger chip is missed by {wording.percent(error.median())} (median"
        f" of {len(lines)} pairs of chips of one architecture that trained the same work in one publication); it is"
        f" within 10 % in {wording.percent(error.lt(0.1).mean())} of the pairs."
    )


CHARTS = (
    Bars(
        "prediction-errors",
        table=errors,
        lines=lambda table, evidence: table.sort_values("rule", kind="stable"),
        title=error_title,
        column="median_error",
        label=("group", "rule"),
        text="{median_error:.0%} of {pairs:.0f}",
        least_first=True,
        ticks="{x:.0%}",
        xlabel="median error; a published rate is hidden with its chip and its publication",
        tables={"scaling": core_pairs},
    ),
)
