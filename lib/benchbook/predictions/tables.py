"""Every prediction as a line: of what was measured, to judge them by, and of studies where a machine was not."""

import pandas

from benchbook.predictions import calibrated, speeds
from benchbook.predictions.pairs import OTHER, SAME, Pairs
from benchbook.predictions.prediction import PREDICTED, Prediction, TooLittle

COLUMNS = ["machine", "chip", "processor", "device", "study", "work", "unit", "predicted", "low", "high", "measured"]
COLUMNS += ["error", "basis", "num_guesses", "source", "publication", "point", "reason"]


def table(rows: pandas.DataFrame, summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return a line for every prediction, and for every reason to refuse one.

    What was measured is predicted twice from pairs: with what its processor did of the same network in the same
    publication, and with all it did of that network hidden. Of the studies, what a processor did not do is predicted,
    in the variant `reference` where the work was measured here.

    Args:
        rows: published and measured ones, of all studies.
        summary: measured points, from `statistics.summarise`.

    Returns:
        Columns: machine (missing where it is any with that chip), chip, processor, device, study, work, unit,
        predicted, low, high (90 %), measured (missing where it was not), error (predicted over measured, less 1),
        basis, num_guesses, source (of the measured speed; else `predicted`), publication, point, and the reason where
        there is no prediction: one line for a work and a reason, with the names of all processors it holds for.
    """
    known = speeds.table(rows, summary)
    pairs, ceilings = Pairs(known), calibrated.lines(summary, rows)
    lines = _held_out(pairs) + [line for line in ceilings if line["measured"] and "prediction" in line]
    lines += _unmeasured(pairs, [line for line in ceilings if not line["measured"]])
    return pandas.DataFrame([_flat(line) for line in lines], columns=COLUMNS)


def _held_out(pairs: Pairs) -> list[dict]:
    lines = []
    for line in pairs.lines.to_dict("records"):
        for basis, blind in ((OTHER, True), (SAME, False)):
            try:
                found = pairs.predict(line["processor"], line["work"], blind)
            except TooLittle:
                continue
            if found.basis == basis:
                lines.append(line | {"measured": line["speed"], "prediction": found})
    return lines


def _unmeasured(pairs: Pairs, ceilings: list[dict]) -> list[dict]:
    """Return what calibration predicts and, of other processors, what pairs do; refusals, one a reason, come last."""
    known = pairs.lines
    asked = known[(known["study"] != "related") & known["setting"].fillna("reference").str.startswith("reference")]
    lines = [line for line in ceilings if "prediction" in line and line["work"] in set(asked["work"])]
    done = set(zip(known["work"], known["processor"], strict=True))
    done |= {(line["work"], line["processor"]) for line in lines}
    reasons = {(line["work"], line["processor"]): [line["reason"]] for line in ceilings if "reason" in line}
    told = known.sort_values("machine").drop_duplicates("processor").set_index("processor")[["chip", "device"]]
    refused = {}
    for work in asked.drop_duplicates("work").sort_values("work").to_dict("records"):
        for name in (name for name in pairs.processors if (work["work"], name) not in done):
            line = {key: work[key] for key in ("study", "work", "unit", "publication")} | {"source": PREDICTED}
            try:
                found = pairs.predict(name, work["work"])
                lines.append(line | told.loc[name].to_dict() | {"processor": name, "prediction": found})
            except TooLittle as reason:
                both = "; ".join([str(reason), *reasons.get((work["work"], name), [])])
                refused.setdefault((work["work"], both), line | {"reason": both, "processors": []})
                refused[work["work"], both]["processors"].append(name)
    return lines + [line | {"processor": ", ".join(line["processors"])} for line in refused.values()]


def _flat(line: dict) -> dict:
    found: Prediction | None = line.get("prediction")
    flat = {name: line[name] for name in COLUMNS if name in line}
    if found is None:
        return flat
    flat |= {"predicted": found.value, "low": found.low, "high": found.high}
    flat |= {"basis": found.basis, "num_guesses": found.num_guesses}
    return flat | ({"error": found.value / line["measured"] - 1} if line.get("measured") else {})
