"""Whether points trained what they should have: fast but wrong is wrong, and never the best of anything."""

import pandas

from benchbook import statistics
from benchbook.parity import judging

WRONG = "wrong"  # in place of a point's status
CHANCE = {"imagenet": 1 / 1000}  # accuracy of guessing; of every other data set with labels, that of ten classes
TEN_CLASSES = 1 / 10
UNLEARNABLE = ("synthetic",)  # labels drawn at random
# What the reasons are made of: a table of few columns is divided much faster.
COLUMNS = [*statistics.POINT_KEY, "run_id", "repeat", "phase", "precision", "status", "settings", "loss"]
COLUMNS += ["samples", "accuracy", "accuracy_metric", "dataset", "dataset_samples"]
STANDARD_ERRORS = 3  # over chance, for an accuracy to be more than guessing


def complaints(rows: pandas.DataFrame) -> dict[tuple[str, str, str], str]:
    """Return what is wrong with the training of each point's last session; right points are left out.

    A point is wrong where one of its runs failed parity in the precision that it trained in, or where its accuracy is
    that of guessing after a whole epoch of labels that can be learnt. An operation that a device lacks in float64, or a
    parity that was not asked for, proves nothing either way.

    Args:
        rows: any; measured ones count.

    Returns:
        By machine, study and point, a reason.
    """
    measured = statistics.newest(rows[rows["source"] == "measured"])[COLUMNS]
    trained = measured[(measured["phase"] == "train") & measured["samples"].notna()]
    reasons = _guesses(trained, measured[measured["phase"] == "evaluate"])
    precisions = trained.groupby(statistics.POINT_KEY)["precision"].first()
    compared = measured[(measured["phase"] == "parity") & measured["status"].isin(["ok", "diverged"])]
    points = pandas.MultiIndex.from_frame(compared[statistics.POINT_KEY])
    compared = compared[(compared["precision"] == precisions.reindex(points).array).fillna(False).array]
    for (*key, _), verdict in judging.judge_each(judging.steps(compared), [*statistics.POINT_KEY, "run_id"]):
        if not verdict.passed:
            reasons[tuple(key)] = f"parity failed ({verdict.reason})"
    return reasons


def mark(summary: pandas.DataFrame, rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return a summary in which the status of wrong points is WRONG, with the reason as their message.

    Args:
        summary: from `statistics.summarise`.
        rows: those that it was made from.
    """
    reasons = complaints(rows)
    if not reasons:
        return summary
    keys = summary[statistics.POINT_KEY].itertuples(index=False, name=None)
    reason = pandas.Series(map(reasons.get, keys), summary.index, dtype="object")
    wrong = reason.notna() & (summary["status"] == "ok")
    return summary.assign(status=summary["status"].mask(wrong, WRONG), message=summary["message"].mask(wrong, reason))


def _guesses(trained: pandas.DataFrame, tests: pandas.DataFrame) -> dict[tuple[str, str, str], str]:
    """Return what is wrong with the accuracy of points at the end of training, where it is that of guessing.

    Args:
        trained: training windows.
        tests: evaluations; of each point the last one of a run that trained counts.
    """
    run = [*statistics.POINT_KEY, "run_id"]
    seen = trained.groupby([*run, "repeat"])["samples"].sum().groupby(run).max().rename("seen")
    last = tests[tests["accuracy"].notna()].join(seen, on=run, how="inner")
    last = last.drop_duplicates(statistics.POINT_KEY, keep="last")
    last = last[last["accuracy_metric"].eq("top1") & (last["seen"] >= last["dataset_samples"])]
    last = last[last["dataset"].notna() & ~last["dataset"].isin(UNLEARNABLE)]
    reasons = {}
    for line in last.to_dict("records"):
        chance = CHANCE.get(line["dataset"], TEN_CLASSES)
        least = chance + STANDARD_ERRORS * (chance * (1 - chance) / float(line["samples"])) ** 0.5
        if line["accuracy"] <= least:
            key = tuple(line[name] for name in statistics.POINT_KEY)
            reasons[key] = (
                f"accuracy {line['accuracy']:.1%} after {line['seen']:,} images, where guessing gives {chance:.1%}"
            )
    return reasons
