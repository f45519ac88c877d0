"""Judge a point: did it train right, and were its windows stable? Verdicts are never stored in
rows.

A point is wrong if its computation disagrees with float64, if its loss never changes, if its
windows leave weights as they are, or if its accuracy is that of guessing; a wrong point is never
the best of anything. It is unproven if it was not compared with float64, or in fewer steps than
its profile asks for, or if no condition was recorded with its windows; its figures count and
carry a note. So do those of a changed point: other data than its profile names, or environment
variables that change speed or arithmetic. A point is unstable if its speed varied or the machine
was disturbed.

A steady run must not be flagged: every rule requires a difference that matters (5 %) and that
chance rarely makes. `make bench STUDIES=intervals` counts how often the rules are wrong.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy
import pandas

from benchbook.judging import agreement, confirmation, intervals, statistics
from benchbook.judging.statistics import POINT_KEY
from benchbook.machine import condition, contention, nvidia

WRONG, UNPROVEN, CHANGED, UNSTABLE, TOO_FEW = (
    "wrong",
    "unproven",
    "changed",
    "unstable",
    "too few processes",
)
STABLE = "stable"
KINDS = (WRONG, UNPROVEN, CHANGED, UNSTABLE, TOO_FEW, STABLE)
# The reasons by code: the kind of verdict, the text in a table, and the words in a sentence.
VARIED, BUSY, UNCHECKED = (
    "its speed varied",
    "the machine was busy",
    "not fully checked against float64",
)
REASONS = {
    "parity": (WRONG, "parity failed ({})", ""),
    "constant": (WRONG, "the loss is {:.6g} in every window", ""),
    "frozen": (WRONG, "{:.0f} of {:.0f} trained tensors stayed as they were in the windows", ""),
    "undropped": (WRONG, "its dropout drops nothing", ""),
    "strayed": (WRONG, "the loss of the last batch is {:.4g}, the reference's {:.4g}", ""),
    "guessing": (WRONG, "accuracy {:.1%} after {:,} images; guessing gives {:.1%}", ""),
    "not_compared": (UNPROVEN, "not compared with float64", UNCHECKED),
    "refused": (UNPROVEN, "not compared with float64: {}", UNCHECKED),
    "part": (UNPROVEN, "no memory to compare a whole batch", UNCHECKED),
    "unrecorded": (
        UNPROVEN,
        "the machine's condition was not recorded",
        "the machine's condition is unknown",
    ),
    "few_steps": (UNPROVEN, "{} of {} steps compared with float64", UNCHECKED),
    "replaced": (CHANGED, "{} in place of {}", "{} in place of {}"),
    "variables": (CHANGED, "with {}", "with {}"),
    "spread": (UNSTABLE, "spread {:.0%}", VARIED),
    "drift": (UNSTABLE, "drift {:+.0%}", VARIED),
    "processes": (UNSTABLE, "processes {:.0%} apart", "its processes differ by {:.0%}"),
    "faults": (
        UNSTABLE,
        "processes {:.0%} apart by their page faults",
        "its processes differ by {:.0%}, as their page faults do",
    ),
    "thermal": (UNSTABLE, "thermal pressure", "it was too hot for full speed"),
    "swap": (UNSTABLE, "swap growth", "it was short of memory"),
    "battery": (UNSTABLE, "on battery", "it ran on battery"),
    "low_power": (UNSTABLE, "low-power mode", "it was in low-power mode"),
    "sleep": (UNSTABLE, "sleep", "it slept during the run"),
    "gpu_shared": (UNSTABLE, "others used the GPU for {:.0%} of the time", BUSY),
    "translated": (UNSTABLE, "under Rosetta", "it ran under Rosetta"),
    "cores_taken": (UNSTABLE, "cores were taken away", BUSY),
    "cpu_shared": (UNSTABLE, "other processes took {:.0%} of the CPU", BUSY),
    "cpu_stolen": (
        UNSTABLE,
        "the hypervisor took {:.0%} of the CPU",
        "the machine's host was busy",
    ),
    "few_processes": (TOO_FEW, "", ""),
}
OUTSIDE = (
    "sleep",
    "gpu_shared",
    "cores_taken",
    "cpu_shared",
    "cpu_stolen",
)  # reasons that are not of the measured work's making
OF_THE_WORK = ("faults", "thermal", "swap")  # another session of the same work would have them too
# Standard deviations of steady windows and of steady processes; the first is also the largest drift
# of a steady point.
STEADY, STEADY_PROCESSES = 0.05, 0.04
FALSE_ALARMS = 0.005  # the share of steady points that exceed one of these by chance
SWAPPED_BYTES = 64 * 2**20  # an idle computer swaps less
ASLEEP_SECONDS = 1.0
THROTTLED_SHARE = 0.01  # of the windows' time
CHANCE = {
    "imagenet": 1 / 1000
}  # accuracy of guessing; other data sets with labels have ten classes
TEN_CLASSES = 1 / 10
UNLEARNABLE = ("synthetic",)  # labels drawn at random
DIGITS_OF_FLOAT32 = 2**13 - 1  # the bits of a float32 that no 16-bit type has
STANDARD_ERRORS = 3  # above chance, for an accuracy to be more than guessing
_RUN = [*POINT_KEY, "run_id"]
NO_DEVICE = {"gpus": None, "device_busy": None}  # of a sample of a CPU's point

Key = tuple[str, str, str]  # machine, study and point
Reason = tuple  # a code of REASONS and the values that its text takes


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
    measured = counting(every, judged)
    summary = statistics.summarise(measured)
    disturbed = judged[judged["speaks"] & judged["is_disturbed"] & ~judged["counts"]]
    left_out = disturbed.groupby(POINT_KEY).size().to_dict()
    named = confirmation.table(every).set_index(POINT_KEY)["outcome"].to_dict()
    reasons, stabilities = training(every), dict(_stabilities(measured, conditions))
    windows = statistics.timed_windows(every)
    recorded = windows["run_id"] if conditions is None else conditions["run_id"]
    unrecorded = windows.loc[~windows["run_id"].isin(recorded), POINT_KEY]
    for key in set(unrecorded.itertuples(index=False, name=None)):
        reasons[key] = (*reasons.get(key, ()), ("unrecorded",))
    lines = []
    for line in summary[[*POINT_KEY, "num_windows", "variant", "status", "message"]].to_dict(
        "records"
    ):
        key = tuple(line[name] for name in POINT_KEY)
        verdict = Verdict((*stabilities.get(key, Verdict()).reasons, *reasons.get(key, ())))
        line |= {
            "verdict": verdict if line["num_windows"] else None,
            "variant": named.get(key, line["variant"]),
        }
        is_wrong = verdict.kind == WRONG and line["status"] == "ok"
        line["num_disturbed"] = left_out.get(key, 0)
        lines.append(line | ({"status": WRONG, "message": verdict.text(WRONG)} if is_wrong else {}))
    columns = ["verdict", "variant", "status", "message", "num_disturbed"]
    judged = pandas.DataFrame(lines, summary.index, columns, dtype=object)
    return summary.assign(**judged)


def training(measured: pandas.DataFrame) -> dict[Key, tuple[Reason, ...]]:
    """Return the reasons against the training of points, at most one of each kind per point, and
    what was replaced.

    A point is wrong if one of its runs failed parity in the precision that it trained in, if
    different batches of all its runs have the same loss, if its dropout drops nothing, if the
    loss of its last batch is not the reference's, if its
    windows changed fewer tensors than a first step did, or if its accuracy is that of guessing
    after a whole epoch of labels that can be learnt. An operation that a device lacks in float64
    proves nothing either way. A point whose settings have no number of parity steps needs no
    comparison: it trains a user's own network.

    Args:
        measured: measured rows of one session of each point.
    """
    trained = measured[(measured["phase"] == "train") & measured["samples"].notna()]
    compared = measured[
        (measured["phase"] == "parity") & measured["status"].isin(["ok", "diverged"])
    ]
    precisions = pandas.concat([trained, compared]).groupby(POINT_KEY)["precision"].first()
    own = precisions.reindex(pandas.MultiIndex.from_frame(compared[POINT_KEY])).array
    compared = compared[(compared["precision"] == own).fillna(False).array]
    tests = measured[measured["phase"] == "evaluate"]
    wrong = _guesses(trained, tests)
    for (*key, _), judged in agreement.judge_each(agreement.steps(compared), _RUN):
        if not judged.passed:
            wrong[tuple(key)] = ("parity", judged.reason)
    varied = trained[
        trained["loss"].notna() & ~trained["dataset"].isin(UNLEARNABLE)
    ]  # a synthetic batch is repeated
    for key, own in varied.groupby(POINT_KEY):
        losses = own["loss"].to_numpy("float32")
        # A loss of few digits, such as 0 or one in bfloat16, may repeat by itself.
        digits = losses.view("uint32") & DIGITS_OF_FLOAT32
        begun = own[["run_id", "repeat"]].drop_duplicates()  # each from the same weights
        if len(own) > len(begun) and digits.all() and (losses == losses[0]).all():
            wrong.setdefault(key, ("constant", float(losses[0])))
    moved = [agreement.number(settings, "moved_tensors") for settings in measured["settings"]]
    moved = pandas.Series(moved, measured.index, dtype=float)
    keys = [measured[name] for name in POINT_KEY]
    windows = (
        measured["phase"] == "train"
    )  # more steps move more tensors: steps that no window has prove nothing
    shortest = measured["steps"].where(windows).groupby(keys).transform("min")
    most = moved.where(~windows & (measured["steps"] <= shortest)).groupby(keys).max()
    still = most - moved.where(windows).groupby(keys).min()
    for key, count in still[still > 0].items():
        wrong.setdefault(key, ("frozen", count, most[key]))
    first = trained.groupby(POINT_KEY)["loss"].first()
    for *key, settings in tests[[*POINT_KEY, "settings"]].itertuples(index=False, name=None):
        # Features of frozen random weights may vanish, with them or without dropout.
        if settings.get("dropout_acts") is False and settings.get("trainable") is not False:
            wrong.setdefault(tuple(key), ("undropped",))
        if agreement.strays(settings, precisions.get(tuple(key)), first.get(tuple(key))):
            losses = settings["last_loss"], settings["last_reference_loss"]
            wrong.setdefault(tuple(key), ("strayed", *losses))
    partial = {
        tuple(key)
        for *key, settings in compared[[*POINT_KEY, "settings"]].itertuples(index=False, name=None)
        if "whole_samples" in settings and "whole_loss" not in settings
    }
    counts = compared.groupby(_RUN).size().groupby(POINT_KEY).max().to_dict()
    refused = measured[(measured["phase"] == "parity") & (measured["status"] == "unsupported")]
    messages = refused.groupby(POINT_KEY)["message"].first().to_dict()
    reasons = {key: (reason,) for key, reason in wrong.items()}
    points = trained.drop_duplicates(POINT_KEY)[[*POINT_KEY, "settings"]]
    for *key, settings in points.itertuples(index=False, name=None):
        own = [("replaced", used, named) for named, used in settings.get("replaced", {}).items()]
        asked, count = settings.get("num_parity_steps"), counts.get(tuple(key), 0)
        if asked is not None and count < max(1, asked):
            message = messages.get(tuple(key))
            none = ("refused", message) if isinstance(message, str) else ("not_compared",)
            own.insert(0, ("few_steps", count, asked) if count else none)
        elif tuple(key) in partial:
            own.insert(0, ("part",))
        reasons[tuple(key)] = (*reasons.get(tuple(key), ()), *own)
    return reasons


def _guesses(trained: pandas.DataFrame, tests: pandas.DataFrame) -> dict[Key, Reason]:
    """Return a reason for each point whose accuracy at the end of training is that of guessing.

    Args:
        trained: training windows.
        tests: evaluations; the last one of each point counts, if its run has training windows.
    """
    seen = trained.groupby([*_RUN, "repeat"])["samples"].sum().groupby(_RUN).max().rename("seen")
    last = tests[tests["accuracy"].notna()].join(seen, on=_RUN, how="inner")
    last = last.drop_duplicates(POINT_KEY, keep="last")
    last = last[last["accuracy_metric"].eq("top1") & (last["seen"] >= last["dataset_samples"])]
    # On frozen features the head may never do better than guessing: whether it does is a question
    # of its study.
    learnt = statistics.with_settings(last, ["trainable"])["trainable"].ne(False)
    last = last[last["dataset"].notna() & ~last["dataset"].isin(UNLEARNABLE) & learnt]
    reasons = {}
    for line in last.to_dict("records"):
        chance = CHANCE.get(line["dataset"], TEN_CLASSES)
        least = chance + STANDARD_ERRORS * (chance * (1 - chance) / float(line["samples"])) ** 0.5
        if line["accuracy"] <= least:
            reasons[tuple(line[name] for name in POINT_KEY)] = (
                "guessing",
                line["accuracy"],
                line["seen"],
                chance,
            )
    return reasons


def can_be_repeated(verdict: Verdict | None) -> bool:
    """Return whether another session of a point may be stable where this one was not."""
    return is_unstable(verdict) and not any(has(verdict, code) for code in OF_THE_WORK)


def stability(
    rates: Sequence[float],
    runs: Sequence,
    samples: Sequence[dict] = (),
    faults: numpy.ndarray | None = None,
) -> Verdict:
    """Judge the windows of one point.

    Args:
        rates: images a second, one per window, in the order measured.
        runs: the run of each window.
        samples: lines of `condition.samples` of these runs, with None for a missing value.
        faults: page faults a sample, one per window; None: unknown.
    """
    few = len(set(runs)) < 2
    reasons = [*(_variations(rates, runs, faults) if len(rates) else ()), *_disturbances(samples)]
    return Verdict(tuple(reasons or ([("few_processes",)] if few else [])))


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
        own and any(code in OUTSIDE for code, *_ in _disturbances(_of(samples, [run], device)))
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
    return {run: [lines[place] for place in own] for run, own in places.items()}


def _of(samples: dict[str, list[dict]], runs: Iterable[str], device: str) -> list[dict]:
    """Return the samples of some runs; on the CPU the state of GPUs does not matter."""
    own = [sample for run in runs for sample in samples.get(run, ())]
    return [sample | NO_DEVICE for sample in own] if device == "cpu" else own


def _stabilities(
    measured: pandas.DataFrame, conditions: pandas.DataFrame | None
) -> Iterator[tuple[Key, Verdict]]:
    """Judge the training windows of each point."""
    windows, known = statistics.timed_windows(measured), _samples(conditions)
    columns = ["samples_per_second", "page_faults", "samples"], ["run_id", "device"]
    for key, own in statistics.group_arrays(windows, POINT_KEY, *columns):
        runs, faults = own["run_id"].astype(str), own["page_faults"] / own["samples"]
        samples = _of(known, sorted(set(runs)), own["device"][0])
        yield key, stability(own["samples_per_second"], runs, samples, faults)


def _variations(
    rates: Sequence[float], runs: Sequence, faults: numpy.ndarray | None
) -> Iterator[Reason]:
    """Yield how the speed varied: the spread of windows, their drift within processes, and the
    processes' distance, with its cause where their page faults explain it.

    Each counts only if it is larger than steady points have by chance. The drift is that of a
    line through the windows of all processes.
    """
    from scipy.special import stdtrit

    series = [numpy.log(each) for each in statistics.warmed_up(rates, runs)]
    away = numpy.concatenate([each - each.mean() for each in series])
    freedom = len(away) - len(series)
    if _is_beyond(squares := float(away @ away), freedom, STEADY):
        yield "spread", statistics.spread([numpy.exp(each) for each in series])
    places = numpy.concatenate(
        [numpy.linspace(-0.5, 0.5, len(each)) * (len(each) > 1) for each in series]
    )
    if freedom > 1 and squares:
        slope = float(away @ places) / float(places @ places)
        error = math.sqrt(max(0.0, squares / float(places @ places) - slope**2) / (freedom - 1))
        if (
            abs(math.expm1(slope)) > STEADY
            and abs(slope) > stdtrit(freedom - 1, 1 - FALSE_ALARMS) * error
        ):
            yield "drift", math.expm1(slope)
    levels = numpy.log(intervals.medians(rates, runs))
    if _is_beyond(len(levels) * float(levels.var()), len(levels) - 1, STEADY_PROCESSES):
        names, own = numpy.asarray(runs), faults if faults is not None else numpy.zeros(len(runs))
        medians = [numpy.median(own[names == run]) for run in dict.fromkeys(names.tolist())]
        code = "faults" if _follow(levels, numpy.array(medians)) else "processes"
        yield code, math.expm1(float(levels.max() - levels.min()))


def _follow(levels: numpy.ndarray, faults: numpy.ndarray) -> bool:
    """Return whether processes' log rates fall with their page faults, and are steady besides."""
    if len(levels) < 3 or not numpy.ptp(faults) > 0:
        return False
    slope, offset = numpy.polyfit(faults, levels, 1)
    left = levels - slope * faults - offset
    return slope < 0 and not _is_beyond(float(left @ left), len(left) - 2, STEADY_PROCESSES)


def _is_beyond(squares: float, freedom: int, deviation: float) -> bool:
    """Return whether a sum of squares is larger than a standard deviation makes it by chance."""
    from scipy.special import chdtri

    return freedom > 0 and squares > deviation**2 * chdtri(freedom, FALSE_ALARMS)


def _disturbances(samples: Sequence[dict]) -> Iterator[Reason]:
    """Yield the disturbances of runs, from samples at both ends of their windows."""
    pairs = [
        (before, after)
        for before, after in itertools.pairwise(samples)
        if before["run_id"] == after["run_id"] and after.get("index") is not None
    ]
    lengths = [after["elapsed_seconds"] - before["elapsed_seconds"] for before, after in pairs]
    disturbances = {
        "thermal": any(map(_is_hot, samples)) or _was_throttled(pairs, sum(lengths)),
        "swap": _growth(pairs, "swap_used_bytes", "swapped_in_bytes", "swapped_out_bytes")
        > SWAPPED_BYTES,
        "battery": any(sample.get("power_source") == "battery" for sample in samples),
        "low_power": any(sample.get("low_power_mode") for sample in samples),
        "sleep": sum(condition.seconds_asleep(*pair) for pair in pairs) > ASLEEP_SECONDS,
        "cores_taken": any(sample.get("missing_cores") for sample in samples),
        "translated": any(sample.get("translated") for sample in samples),
    }
    yield from ((code,) for code, is_so in disturbances.items() if is_so)
    if (busy := _others_on_device(samples)) > contention.DEVICE_SHARE:
        yield "gpu_shared", busy
    yield from (
        ("variables", text)
        for text in dict.fromkeys(sample.get("variables") for sample in samples)
        if text
    )
    if sum(lengths) < contention.SAMPLE_SECONDS:  # the system's counters are too coarse
        return
    taken = [
        contention.shares(*pair, seconds) for pair, seconds in zip(pairs, lengths, strict=True)
    ]
    limits = {"cpu_shared": contention.OTHERS_SHARE, "cpu_stolen": contention.STOLEN_SHARE}
    for code, share in zip(
        limits, numpy.average(taken, axis=0, weights=lengths).tolist(), strict=True
    ):
        if share > limits[code]:
            yield code, share


def _others_on_device(samples: Sequence[dict]) -> float:
    """Return the share of the device's time that others took: in the windows if the driver tells
    processes apart, else before the run; 0 if unknown."""
    known = [
        [share for share in shares if share is not None]
        for shares in (
            [_gpu(sample).get("others_share") for sample in samples],
            [sample.get("device_busy") for sample in samples],
            [0.0],
        )
    ]
    return float(numpy.mean(next(filter(None, known))))


def _is_hot(sample: dict) -> bool:
    """Return whether heat lowered the clocks; a long steady load alone causes `moderate`
    pressure."""
    heavy = (
        sample.get("thermal_pressure") in condition.PRESSURES[condition.PRESSURES.index("heavy") :]
    )
    return heavy or bool(nvidia.THERMAL_REASONS & set(_gpu(sample).get("clock_reasons") or ()))


def _was_throttled(pairs: list[tuple[dict, dict]], seconds: float) -> bool:
    """Return whether counters of throttled time grew by more than 1 % of the windows' time.

    The count of throttlings matters only if their time is not recorded.
    """
    slow = [
        [_gpu(sample).get("thermal_slowdown_seconds") or 0 for sample in pair] for pair in pairs
    ]
    gpu = sum(after - before for before, after in slow)
    timed = any(after.get("cpu_throttle_seconds") is not None for _, after in pairs)
    counted = not timed and _growth(pairs, "cpu_throttle_count") > 0
    return counted or max(_growth(pairs, "cpu_throttle_seconds"), gpu) > THROTTLED_SHARE * seconds


def _growth(pairs: list[tuple[dict, dict]], *counters: str) -> float:
    """Return the growth within windows of the counter that grew most."""
    return max(
        sum((after.get(name) or 0) - (before.get(name) or 0) for before, after in pairs)
        for name in counters
    )


def _gpu(sample: dict) -> dict:
    """Return the sample's first visible GPU, which its run uses; empty if there is none."""
    return next(iter(sample.get("gpus") or ()), {})
