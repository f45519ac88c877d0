"""Judge a point by `rules`: did it train right, and were its windows stable? Verdicts are never
stored in rows.

A point is wrong if its computation disagrees with float64, if its loss never changes, if its
windows leave weights as they are, or if its accuracy is that of guessing; a wrong point is never
the best of anything. It is unproven if it was not compared with float64, or in fewer steps than
its profile asks for, if no condition was recorded with its windows, or if its clock or its joules
cannot be right; its figures count and carry a note. So do those of a changed point: other data
than its profile names, or environment variables that change speed or arithmetic. A point is
unstable if its speed varied or the machine was disturbed.
"""

import csv
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas

from benchbook.judging import agreement, confirmation, rules, statistics
from benchbook.judging.rules import Point, Reason
from benchbook.judging.statistics import POINT_KEY
from benchbook.machine import condition
from benchbook.rows import ceilings

WRONG, UNPROVEN, CHANGED, UNSTABLE = "wrong", "unproven", "changed", "unstable"
TOO_FEW, STABLE = "too few processes", "stable"
KINDS = (WRONG, UNPROVEN, CHANGED, UNSTABLE, TOO_FEW, STABLE)
# The reasons by code: the kind of verdict, the text in a table, and the words in a sentence.
with Path(__file__).with_name("reasons.csv").open(newline="", encoding="utf-8") as _file:
    REASONS = {code: tuple(texts) for code, *texts in [*csv.reader(_file)][1:]}
OF_THE_WORK = ("faults", "thermal", "swap")  # another session of the same work would have them too
_RUN = [*POINT_KEY, "run_id"]
NO_DEVICE = {"gpus": None, "device_busy": None}  # of a sample of a CPU's point

# what the rules read from a row
_READ = """machine study point run_id session phase repeat index status message device device_count
    precision dataset dataset_samples settings samples steps seconds samples_per_second
    flops_per_sample energy_joules energy_boundary page_faults loss accuracy accuracy_metric"""
READ = _READ.split()


@dataclass(frozen=True)
class Verdict:
    """The verdict on a point, or on a figure computed from two points.

    Attributes:
        reasons: each a code of REASONS and its values; empty if the point is stable.
    """

    reasons: tuple[Reason, ...] = ()

    @property
    def kind(self) -> str:
        """Return the worst kind among the reasons, by the order of KINDS: the first is the
        worst."""
        return min((REASONS[code][0] for code, *_ in self.reasons), key=KINDS.index, default=STABLE)

    @property
    def is_doubtful(self) -> bool:
        """Return whether the figure needs a note."""
        return self.kind in (WRONG, UNPROVEN, CHANGED, UNSTABLE)

    def text(self, kind: str) -> str:
        """Return the reasons of one kind as a table shows them."""
        return ", ".join(
            REASONS[code][1].format(*values)
            for code, *values in self.reasons
            if REASONS[code][0] == kind
        )

    def __str__(self) -> str:
        """Return the verdict as a table shows it, the worst kind first."""
        kinds = [kind for kind in KINDS if has(self, kind)]
        return (
            "; ".join(f"{kind}: {self.text(kind)}".removesuffix(": ") for kind in kinds) or STABLE
        )


def has(verdict: object, word: str) -> bool:
    """Return whether a verdict has a reason of this kind or code; False for a missing verdict."""
    return isinstance(verdict, Verdict) and any(
        word in (code, REASONS[code][0]) for code, *_ in verdict.reasons
    )


is_unstable = functools.partial(has, word=UNSTABLE)  # other reasons may be worse
is_unproven = functools.partial(has, word=UNPROVEN)


def worse(one: Verdict | None, other: Verdict | None) -> Verdict | None:
    """Return the worse of two verdicts; None if neither point has a window."""
    judged = [verdict for verdict in (one, other) if isinstance(verdict, Verdict)]
    return min(judged, key=lambda verdict: KINDS.index(verdict.kind), default=None)


def summarise(
    rows: pandas.DataFrame,
    conditions: pandas.DataFrame | None = None,
    judged: pandas.DataFrame | None = None,
) -> pandas.DataFrame:
    """Return the lines of `statistics.summarise`, each with a Verdict, or None for a point
    without windows.

    Only the session that speaks for a point counts, without the processes that do not count;
    num_disturbed is their number.

    A point that trained wrong has status `wrong` and the reason as its message. Its variant is
    tuned only if it was confirmed to be faster; see `confirmation.table`.

    Args:
        rows: any.
        conditions: from `condition.samples`, of any runs; None: unknown.
        judged: the runs of these rows, from `runs`; None: they are judged here.
    """
    judged = runs(rows, conditions) if judged is None else judged
    every = speaking(rows, judged)
    summary = statistics.summarise(counting(every, judged), condition.virtual(conditions))
    disturbed = judged[judged["speaks"] & judged["is_disturbed"] & ~judged["counts"]]
    left_out = disturbed.groupby(POINT_KEY).size().to_dict()
    named = confirmation.table(every).set_index(POINT_KEY)["outcome"].to_dict()
    points = _points(every, set(disturbed["run_id"]), conditions, _products(rows))
    verdicts = {key: judge(point) for key, point in points}
    lines = []
    for line in summary[[*POINT_KEY, "num_windows", "variant", "status", "message"]].to_dict(
        "records"
    ):
        key = tuple(line[name] for name in POINT_KEY)
        verdict = verdicts[key]
        line |= {
            "verdict": verdict if line["num_windows"] else None,
            "variant": named.get(key, line["variant"]),
            "num_disturbed": left_out.get(key, 0),
        }
        if verdict.kind == WRONG and line["status"] == "ok":
            line |= {"status": WRONG, "message": verdict.text(WRONG)}
        lines.append(line)
    columns = ["verdict", "variant", "status", "message", "num_disturbed"]
    judged = pandas.DataFrame(lines, summary.index, columns, dtype=object)
    return summary.assign(**judged)


def judge(point: Point) -> Verdict:
    """Return the verdict on a point by all rules; too few processes count if nothing else is said
    of its speed."""
    speed = [*rules.reasons(point, rules.OF_SPEED)]
    few = [("few_processes",)] if not speed and len(set(point.runs)) < 2 else []
    return Verdict((*speed, *few, *rules.reasons(point, rules.OF_WORK)))


def _points(
    every: pandas.DataFrame,
    left_out: set[str],
    conditions: pandas.DataFrame | None,
    products: dict[tuple, float],
) -> Iterator[tuple[tuple, Point]]:
    """Yield what each point is judged by, with its key.

    Args:
        every: measured rows of one session of each point.
        left_out: runs that do not count.
        conditions, products: see `summarise` and `Point`.
    """
    table, known = every[READ].astype(object), _samples(conditions)
    points: dict[tuple, list[dict]] = {}
    for row in table.where(every[READ].notna(), None).to_dict("records"):
        points.setdefault(tuple(row[name] for name in POINT_KEY), []).append(row)
    compared = every[(every["phase"] == "parity") & every["status"].isin(["ok", "diverged"])]
    agreed: dict[tuple, list[agreement.Agreement]] = {}
    judged = agreement.judge_each(agreement.steps(compared), [*_RUN, "precision"])
    for (*key, _, precision), each in judged:
        agreed.setdefault((*key, precision), []).append(each)
    for key, own in points.items():
        trained = [row for row in own if row["phase"] == "train" and row["seconds"]]
        windows = [
            row
            for row in trained
            if (row["samples_per_second"] or 0) > 0
            and (row["run_id"] not in left_out or row["status"] != "ok")
        ]
        runs = sorted({row["run_id"] for row in windows})
        samples = None if conditions is None else _of(known, runs, own[-1]["device"])
        precision = trained[0]["precision"] if trained else None
        yield key, Point(windows, samples, own, agreed.get((*key, precision), ()), products)


def _products(rows: pandas.DataFrame) -> dict[tuple, float]:
    """Return the best rate of matrix products by machine, session, device and precision."""
    best = ceilings.ceilings(rows[rows["source"] == "measured"])
    key = ["machine", "session", "device", "precision"]
    return best[best["model"] == "matmul"].groupby(key)["rate"].max().to_dict()


def can_be_repeated(verdict: Verdict | None) -> bool:
    """Return whether another session of a point may be stable where this one was not."""
    return is_unstable(verdict) and not any(has(verdict, code) for code in OF_THE_WORK)


def runs(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return a line for each measured run: whether it counts, and whether its session speaks.

    One session speaks for a point of a machine: one with an interval before one with a range, one
    with a range before one without windows, and then the newest. Stability does not matter.

    Args:
        rows: any.
        conditions: from `condition.samples`, of any runs; None: unknown.

    Returns:
        Columns: machine, study, point, session, run_id, started_at, is_disturbed (something
        outside of the work disturbed its windows), counts (it has windows, and is not disturbed
        or its session has less than two others), speaks (its session speaks for its point).
        Sessions without a start time are the oldest; for equal times the larger run id is later.
    """
    measured = rows[(rows["source"] == "measured") & rows["session"].notna()]
    order, session = ["started_at", "run_id"], [*POINT_KEY, "session"]
    table = measured[[*session, "run_id", "started_at", "device"]].sort_values(order)
    table = table.drop_duplicates([*session, "run_id"], ignore_index=True)
    timed = _index(statistics.timed_windows(measured), [*session, "run_id"])
    has_windows, samples = _index(table, [*session, "run_id"]).isin(timed), _samples(conditions)
    disturbed = [
        own and any(rules.reasons(Point(samples=_of(samples, [run], device)), rules.OUTSIDE))
        for run, device, own in zip(table["run_id"], table["device"], has_windows, strict=True)
    ]
    table["is_disturbed"] = pandas.Series(disturbed, table.index, dtype=bool)
    calm = pandas.Series(has_windows, table.index) & ~table["is_disturbed"]
    others = calm.groupby([table[name] for name in session]).transform("sum")
    table["counts"] = has_windows & ~(table["is_disturbed"] & (others > 1))
    counted = table["counts"].groupby([table[name] for name in session]).transform("sum")
    firsts = table.assign(rank=counted.clip(upper=2)).drop_duplicates(session)
    firsts = firsts.sort_values(["rank", *order], na_position="first")
    speaking = _index(firsts.drop_duplicates(POINT_KEY, keep="last"), session)
    return table.assign(speaks=_index(table, session).isin(speaking)).drop(columns="device")


def speaking(rows: pandas.DataFrame, judged: pandas.DataFrame) -> pandas.DataFrame:
    """Return the measured rows of the sessions that speak.

    Args:
        rows: any.
        judged: their runs, from `runs`.
    """
    session = [*POINT_KEY, "session"]
    spoken = _index(rows, session).isin(_index(judged[judged["speaks"]], session))
    return rows[spoken & (rows["source"] == "measured").array]


def counting(rows: pandas.DataFrame, judged: pandas.DataFrame) -> pandas.DataFrame:
    """Return rows without the training windows of runs that do not count; see `speaking`."""
    windows = rows["phase"].eq("train") & rows["status"].eq("ok")
    left_out = judged[judged["is_disturbed"] & ~judged["counts"]]
    return rows[~(windows & _index(rows, _RUN).isin(_index(left_out, _RUN)))]


def _index(table: pandas.DataFrame, columns: list[str]) -> pandas.MultiIndex:
    return pandas.MultiIndex.from_frame(table[columns])


def _samples(conditions: pandas.DataFrame | None) -> dict[str, list[dict]]:
    """Return the samples of each run, with None for a missing value."""
    if conditions is None:
        return {}
    lines = conditions.astype(object).where(conditions.notna(), None).to_dict("records")
    places = conditions.groupby("run_id").indices
    return {run: [*map(lines.__getitem__, own)] for run, own in places.items()}


def _of(samples: dict[str, list[dict]], runs: Iterable[str], device: str) -> list[dict]:
    """Return the samples of some runs; on the CPU the state of GPUs does not matter."""
    own = [sample for run in runs for sample in samples.get(run, ())]
    return [sample | NO_DEVICE for sample in own] if device == "cpu" else own
