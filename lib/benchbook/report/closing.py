"""The end of a study's notebook: the result of the run, and its limits."""

import pandas
from IPython.display import Markdown

from benchbook.judging import statistics, wording
from benchbook.judging.parity import Agreement
from benchbook.machine import libraries
from benchbook.record import naming
from benchbook.studies import findings
from benchbook.studies.study import Evidence

ONE_DAY = "This is one machine on one day; the manifest next to the rows holds its condition."


def sentences(evidence: Evidence, rows: pandas.DataFrame) -> str:
    """Return sentences with the rate of a run's point, its interval and its energy, as in the report.

    Args:
        evidence: with all rows of the machine and study.
        rows: of the run.
    """
    summary, (machine, study, name) = evidence.summary, rows[["machine", "study", "point"]].iloc[0]
    is_its = summary["machine"].eq(machine) & summary["study"].eq(study) & summary["point"].eq(name)
    point = summary[is_its].iloc[0].to_dict()
    named = {"variant": str, "framework": libraries.WORDS.get, "device": naming.device_word, "precision": str}
    named["dataset"] = naming.dataset
    words = [word(point[column]) for column, word in named.items() if pandas.notna(point[column])]
    called = f"This point ({', '.join(words)})"
    if pandas.isna(point["samples_per_second"]):
        return f"{called} has no measured window: {point['status'].replace('_', ' ')}."
    rate, low, high, unit = statistics.in_units(point)
    ends = [wording.number(end) for end in (low, high)]
    bounds = f"{wording.bounds(low, high, point['interval'])}, n={point['num_windows']}"
    bounds = bounds if ends[0] != ends[1] else "one window"
    rate = f"{wording.number(rate)} {unit} a second"
    return f"{called} trains {rate}{findings.hedged(evidence, [point], bounds)}. {wording.energy(point)}."


def reading(evidence: Evidence, rows: pandas.DataFrame, agreement: Agreement, *more: str, limits: str = "") -> Markdown:
    """Return the result of a run with its interval, and the limits of that result.

    Args:
        evidence, rows: see `sentences`.
        agreement: with float64.
        more: sentences of the study about the result.
        limits: sentences of the study about the limits; ONE_DAY follows them.
    """
    if agreement.passed:
        compared = f"Training agrees with float64 ({agreement.reason})."
    elif agreement.num_steps:
        compared = f"Training does not agree with float64, so its speed is not valid: {agreement.reason}."
    else:
        compared = f"Comparison with float64: {agreement.reason}."
    found = [sentences(evidence, rows), *more, compared]
    return Markdown(f"**Result.** {' '.join(found)}\n\n**Limits.** {limits} {ONE_DAY}".strip())
