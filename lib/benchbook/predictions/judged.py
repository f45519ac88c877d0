"""How far off predictions are where the speed was measured, beside counting cores on the same pairs of chips."""

import numpy
import pandas

from benchbook.predictions import calibrated, speeds
from benchbook.predictions.pairs import OTHER, SAME

WISHED_ERROR = 0.15
WISHED_COVERAGE = (0.80, 0.98)
CORES, FITTED = "ratio of GPU cores", "power of GPU cores, fitted"
ALL = "all held out"
COLUMNS = ["rule", "judged_on", "num_pairs", "num_publications", "median_error", "median_factor", "coverage", "finding"]


def errors(predicted: pandas.DataFrame, chips: pandas.DataFrame) -> pandas.DataFrame:
    """Return how far off each rule is: on all that it predicts, and where cores can be counted beside those rules.

    Args:
        predicted: from `predictions.table`.
        chips: from `scaling.pairs`; the larger chip's speed is what is predicted.

    Returns:
        Columns: rule, judged_on, num_pairs, num_publications (that the pairs are from), median_error (of predicted over
        measured, less 1, either sign), median_factor (between the two, either way), coverage (of the rule's own
        intervals: 90 %, of the fitted power of cores 95 %; missing where it has none), and finding, a sentence.
    """
    held = predicted[predicted["measured"].notna()]
    points = held["point"].where(held["publication"] != speeds.HERE, held["study"] + " " + held["point"])
    held = held.assign(work=points, larger=held["machine"])  # as `scaling` names them
    held["hit"] = held["measured"].between(held["low"], held["high"])
    key, lines = ["publication", "work", "larger"], []
    for basis in (OTHER, SAME, calibrated.BASIS):
        some = held[held["basis"] == basis]
        lines.append(_line(basis, ALL, some, "error", some["hit"]))
        both = chips.merge(some[[*key, "error", "hit"]], on=key)
        if len(both):
            where = f"chips of one generation, {basis.rpartition(', ')[2]}"
            fitted = both[both["calibrated"].notna()]
            inside = fitted["measured"].between(fitted["calibrated_low"], fitted["calibrated_high"])
            lines.append(_line(basis, where, both, "error", both["hit"]))
            lines.append(_line(CORES, where, both, "rule_error", None))
            lines.append(_line(FITTED, where, fitted, "calibrated_error", inside))
    return pandas.DataFrame(lines, columns=COLUMNS)


def sentence(judged: pandas.DataFrame) -> str:
    """Return what `errors` found, in sentences."""
    return " ".join(judged["finding"])


def _line(rule: str, where: str, held: pandas.DataFrame, column: str, inside: pandas.Series | None) -> dict:
    """Return a rule's line; the column is predicted over measured, less 1, and inside whether its interval held it."""
    off = held[column].astype(float)
    line = {"rule": rule, "judged_on": where, "num_pairs": len(off)}
    line["num_publications"] = held["publication"].nunique()
    if off.empty:
        return line | {"finding": f"{rule.capitalize()}: nothing measured to judge it by."}
    line["median_error"] = float(abs(off).median())
    line["median_factor"] = float(numpy.exp(abs(numpy.log1p(off)).median()))
    line["coverage"] = float("nan") if inside is None else float(inside.mean())
    return line | {"finding": _finding(line)}


def _finding(line: dict) -> str:
    text = f"{line['rule'][:1].upper()}{line['rule'][1:]}, {line['judged_on']}: off by {line['median_error']:.0%}"
    articles = f"{line['num_publications']} publication{'' if line['num_publications'] == 1 else 's'}"
    text += f" (median of {line['num_pairs']}, from {articles}"
    low, high = WISHED_COVERAGE
    judged = line["judged_on"] == ALL
    text += f"; wished {WISHED_ERROR:.0%} or less, {_kept(line['median_error'] <= WISHED_ERROR)})" if judged else ")"
    if not pandas.isna(line["coverage"]):
        text += f", intervals hold {line['coverage']:.0%}"
    if judged:
        text += f" (wished {low:.0%} to {high:.0%}, {_kept(low <= line['coverage'] <= high)})"
    return f"{text}."


def _kept(wish: bool) -> str:
    return "kept" if wish else "missed"
