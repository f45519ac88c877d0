"""Whether points trained what they should have: fast but wrong is wrong, and never the best of anything.

A wrong point has that as its status. An unproven one was not compared with float64, or in fewer steps than its profile
asks for: its figures count, and what is said of them begins with that word.
"""

from dataclasses import dataclass

import pandas

from benchbook.judging import parity, statistics

WRONG = "wrong"  # in place of a point's status
UNPROVEN = "unproven"  # before what else is said of a point
ASKED = "num_parity_steps"  # in settings: how many steps the profile asks for
CHANCE = {"imagenet": 1 / 1000}  # accuracy of guessing; of every other data set with labels, that of ten classes
TEN_CLASSES = 1 / 10
NOT_COMPARED = "not compared with float64"
UNLEARNABLE = ("synthetic",)  # labels drawn at random
# What the reasons are made of: a table of few columns is divided much faster.
COLUMNS = [*statistics.POINT_KEY, "run_id", "repeat", "phase", "precision", "status", "settings", "loss"]
COLUMNS += ["message", "samples", "accuracy", "accuracy_metric", "dataset", "dataset_samples"]
STANDARD_ERRORS = 3  # over chance, for an accuracy to be more than guessing


@dataclass(frozen=True)
class Judgement:
    """What is to be said of the training of points, by machine, study and point.

    Attributes:
        complaints: why a point is wrong: one of its runs failed parity in the precision that it trained in, or its
            accuracy is that of guessing after a whole epoch of labels that can be learnt. An operation that a device
            lacks in float64, or a parity that was not asked for, proves nothing either way.
        unproven: what is missing to show that a point trained the right thing. A run that names no number of steps has
            nothing to be compared with: it is one's own network.
    """

    complaints: dict[tuple[str, str, str], str]
    unproven: dict[tuple[str, str, str], str]


def judge(rows: pandas.DataFrame) -> Judgement:
    """Judge the training of each point's last session.

    Args:
        rows: any; measured ones count.
    """
    measured, trained = _newest(rows)
    compared = _compared(measured, trained)
    reasons = _guesses(trained, measured[measured["phase"] == "evaluate"])
    for (*key, _), verdict in parity.judge_each(parity.steps(compared), [*statistics.POINT_KEY, "run_id"]):
        if not verdict.passed:
            reasons[tuple(key)] = f"parity failed ({verdict.reason})"
    return Judgement(reasons, _unproven(measured, trained, compared))


def _unproven(
    measured: pandas.DataFrame, trained: pandas.DataFrame, compared: pandas.DataFrame
) -> dict[tuple[str, str, str], str]:
    """Return why points are unproven, from measured rows, windows of training and rows of parity."""
    run = [*statistics.POINT_KEY, "run_id"]
    counts = compared.groupby(run).size().to_dict()
    refused = measured[(measured["phase"] == "parity") & (measured["status"] == "unsupported")]
    messages = refused.groupby(run)["message"].first().to_dict()
    reasons = {}
    for each in trained.drop_duplicates(run)[[*run, "settings"]].itertuples(index=False, name=None):
        *key, run_id, settings = each
        asked, count = settings.get(ASKED), counts.get((*key, run_id), 0)
        if asked is not None and count < max(1, asked):
            message = messages.get((*key, run_id))
            none = f"{NOT_COMPARED}: {message}" if isinstance(message, str) else NOT_COMPARED
            reasons[tuple(key)] = f"{count} of {asked} steps compared with float64" if count else none
    return reasons


def _newest(rows: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the measured rows of each point's last session, and those of them that are windows of training."""
    measured = statistics.newest(rows[rows["source"] == "measured"])[COLUMNS]
    return measured, measured[(measured["phase"] == "train") & measured["samples"].notna()]


def _compared(measured: pandas.DataFrame, trained: pandas.DataFrame) -> pandas.DataFrame:
    """Return the parity rows of each point in the precision that it trained in, without what a device lacks."""
    precisions = trained.groupby(statistics.POINT_KEY)["precision"].first()
    compared = measured[(measured["phase"] == "parity") & measured["status"].isin(["ok", "diverged"])]
    points = pandas.MultiIndex.from_frame(compared[statistics.POINT_KEY])
    return compared[(compared["precision"] == precisions.reindex(points).array).fillna(False).array]


def mark(summary: pandas.DataFrame, reasons: dict[tuple[str, str, str], str]) -> pandas.DataFrame:
    """Return a summary in which the status of wrong points is WRONG, with the reason as their message.

    Args:
        summary: from `statistics.summarise`.
        reasons: the complaints of `judge`, from the rows that the summary was made from.
    """
    if not reasons:
        return summary
    keys = summary[statistics.POINT_KEY].itertuples(index=False, name=None)
    reason = pandas.Series(map(reasons.get, keys), summary.index, dtype="object")
    wrong = reason.notna() & (summary["status"] == "ok")
    return summary.assign(status=summary["status"].mask(wrong, WRONG), message=summary["message"].mask(wrong, reason))


def _is_frozen_at_random(settings: dict) -> bool:
    """Return whether a network's features are random and are not trained: its head may guess for ever."""
    return settings.get("trainable") is False and settings.get("weights") == "random"


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
    learnt = pandas.Series([not _is_frozen_at_random(each) for each in last["settings"]], last.index, dtype=bool)
    last = last[last["dataset"].notna() & ~last["dataset"].isin(UNLEARNABLE) & learnt]
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
