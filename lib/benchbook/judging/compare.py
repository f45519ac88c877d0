"""Compare two machines, or two sessions of one: which is faster, point by point, and is that
more than chance?"""

import functools
import math
from collections.abc import Mapping, Sequence

import numpy
import pandas

from benchbook.judging import confirmation, intervals, statistics, verdicts
from benchbook.judging.intervals import Interval
from benchbook.rows.points import point_work

# The columns that pair two points: the work that their names describe, and what was loaded, since a
# substitute may replace a data set or weights.
_PAIRED_BY = """study work framework model dataset dataset_samples weights same_precision batch_size
    image_size device_count is_cpu"""
PAIRED_BY = _PAIRED_BY.split()


def rows_of(
    name: str, rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None
) -> pandas.DataFrame:
    """Return the measured rows of a machine, from the session that speaks for each point, or
    those of a session.

    Raises:
        ValueError: no machine or session has this name, or the session measured several machines.
    """
    measured = rows[rows["source"] == "measured"]
    found = measured[((measured["machine"] == name) | (measured["session"] == name)).fillna(False)]
    if found["machine"].nunique() == 1:
        return verdicts.speaking(found, verdicts.runs(found, conditions))
    fault = "names several machines" if len(found) else "has no rows"
    machines = ", ".join(sorted(measured["machine"].unique())) or "none yet"
    sessions = ", ".join(sorted(measured["session"].dropna().unique())[-5:]) or "none yet"
    raise ValueError(
        f"{name!r} {fault}; allowed: a machine ({machines}) or a session (the last: {sessions})"
    )


def cores(rows: pandas.DataFrame, described: Mapping[str, dict]) -> str:
    """Return the logical cores that a side's processes could use, and their threads, in words.

    Args:
        rows: of one side.
        described: manifests by run id.
    """
    machines = [
        described.get(run_id, {}).get("machine") or {} for run_id in rows["run_id"].unique()
    ]
    usable = sorted(
        {machine["usable_cores"] for machine in machines if machine.get("usable_cores")}
    )
    threads = sorted(rows["num_threads"].dropna().unique())
    counts = (" or ".join(map(str, each)) or "an unknown number of" for each in (usable, threads))
    return "{} usable cores with {} threads".format(*counts)


def table(
    a: pandas.DataFrame,
    b: pandas.DataFrame,
    conditions: pandas.DataFrame | None = None,
    names: tuple[str, str] = ("A", "B"),
) -> tuple[pandas.DataFrame, dict[str, list[str]]]:
    """Compare two sets of rows, point by point.

    Points pair by their work and by whether they ran on the CPU (PAIRED_BY). The settings of
    tuned points may differ: each is the best that its device can do.

    Args:
        a, b: rows of one machine, as `rows_of` returns them.
        conditions: from `condition.samples`, for the stability of each side.
        names: of the sides, in words.

    Returns:
        A line per pair: study; point; one_session (whether one session measured both); a, b
        (rates); ratio (b / a) with its bounds and their kind, between two sessions of a machine
        with `intervals.sessions_parts`; verdict (the faster side, or a side that trained
        wrong); stability_a, stability_b (Verdicts); variant_a, variant_b; energy_ratio (B's
        joules a sample over A's), with its bounds, if both have the same method and boundary;
        energy_note. And the points of each side, "a" and "b", that pair with none of the other.

    Raises:
        ValueError: no two points pair.
    """
    points_a, points_b = (_points(verdicts.summarise(side, conditions)) for side in (a, b))
    pairs = [(point, points_b[key]) for key, point in points_a.items() if key in points_b]
    lines = [_line(*pair, ratio, names) for pair, ratio in zip(pairs, ratios(pairs), strict=True)]
    if not lines:
        counts = f"none of {len(points_a)} measured points of {names[0]} is like one of {len(points_b)} of {names[1]}"
        raise ValueError(f"{counts}; allowed: points with the same {', '.join(PAIRED_BY)}")
    sides = ("a", points_a, points_b), ("b", points_b, points_a)
    alone = {}
    for side, own, other in sides:
        alone[side] = sorted(point["point"] for key, point in own.items() if key not in other)
    return pandas.DataFrame(lines).sort_values(["study", "point"], ignore_index=True), alone


def _points(summary: pandas.DataFrame) -> dict[tuple[str, ...], dict]:
    """Return the measured points by their columns PAIRED_BY; see `statistics.ranked`."""
    points = {}
    for line in statistics.ranked(summary[summary["num_windows"] > 0]).to_dict("records"):
        is_tuned = (
            line["variant"] in confirmation.TUNED_NAMES
        )  # its device may choose the precision
        line |= {
            "same_precision": None if is_tuned else line["precision"],
            "is_cpu": line["device"] == "cpu",
        }
        line |= {
            "work": point_work(line["point"], line["device"]),
            "weights": (line["settings"] or {}).get("weights"),
        }
        found = [None if pandas.isna(line[name]) else line[name] for name in PAIRED_BY]
        points[tuple(found)] = line
    return points


def ratios(pairs: Sequence[tuple[Mapping, Mapping]]) -> list[Interval]:
    """Return the ratio of each pair of points, B over A.

    Args:
        pairs: lines of a summary.
    """
    rate = functools.partial(Interval.from_row, value="samples_per_second")
    found = [intervals.divide(rate(b), rate(a)) for a, b in pairs]
    known = [
        place
        for place, (ratio, (a, b)) in enumerate(zip(found, pairs, strict=True))
        if ratio.kind == intervals.INTERVAL
        and a["machine"] == b["machine"]
        and a["session"] != b["session"]
    ]
    own = [pairs[place] for place in known]
    halves = numpy.array([math.hypot(*map(intervals.processes_half, pair)) for pair in own])
    variances = numpy.array([sum(map(intervals.processes_variance, pair)) for pair in own])
    stated = numpy.array([a["between_sessions"] ** 2 + b["between_sessions"] ** 2 for a, b in own])
    logs = numpy.log([found[place].value for place in known])
    parts = intervals.sessions_parts(logs, variances, stated)
    widths = numpy.exp(numpy.hypot(halves, parts)).tolist()
    for place, width in zip(known, widths, strict=True):
        value = found[place].value
        found[place] = Interval(value, value / width, value * width, intervals.INTERVAL)
    return found


def faster(ratio: Interval, names: tuple[str, str]) -> str:
    """Return which of two sides is the faster one, if their ratio shows it."""
    if ratio.kind == intervals.RANGE:
        return verdicts.TOO_FEW
    name = names[1] if ratio.low > 1 else names[0] if ratio.high < 1 else ""
    return f"{name} faster" if name else "no difference shown"


def means(tables: Sequence[pandas.DataFrame]) -> tuple[int, list[Interval]]:
    """Return the number of points that several tables share and that trained right, and the
    geometric mean of each table's ratios over them.

    Its bounds are the means of the points' bounds, as if they all erred in one direction: the
    session's part of the error is in all of them.
    """
    sound = []
    for each in tables:
        sides = each[["stability_a", "stability_b"]]
        is_wrong = sides.map(lambda verdict: verdicts.has(verdict, verdicts.WRONG)).any(axis=1)
        sound.append(each[~is_wrong].set_index(["study", "point"]))
    shared = functools.reduce(lambda one, other: one.intersection(other), [t.index for t in sound])
    found = []
    for own in (each.loc[shared] for each in sound):
        value, low, high = numpy.exp(numpy.log(own[["ratio", "low", "high"]].astype(float)).mean())
        is_range = own["interval"].eq(intervals.RANGE).any()
        kind = intervals.RANGE if is_range else intervals.INTERVAL
        found.append(Interval(value, low, high, kind))
    return len(shared), found


def _line(a: Mapping, b: Mapping, ratio: Interval, names: tuple[str, str]) -> dict:
    one_session = a["machine"] == b["machine"] and a["session"] == b["session"]
    line = {"study": a["study"], "point": a["point"], "one_session": one_session}
    line |= ratio.columns("ratio")
    if wrong := [
        name
        for name, side in zip(names, (a, b), strict=True)
        if verdicts.has(side["verdict"], verdicts.WRONG)
    ]:
        line["verdict"] = f"{' and '.join(wrong)} trained wrong"
    else:
        line["verdict"] = faster(ratio, names)
    for name, side in (("a", a), ("b", b)):
        line |= {
            name: side["samples_per_second"],
            f"stability_{name}": side["verdict"],
            f"variant_{name}": side["variant"],
        }
    energy, *bounds = statistics.ENERGY_COLUMNS
    line |= dict.fromkeys(("energy_ratio", *bounds)) | {"energy_note": ""}
    if all(a[name] == b[name] for name in ("energy_method", "energy_boundary")) and pandas.notna(
        a[energy]
    ):
        ratio = intervals.divide(*(Interval.from_row(side, energy, *bounds) for side in (b, a)))
        line |= ratio.columns("energy_ratio", *bounds)
        line["energy_note"] = "; ".join(
            dict.fromkeys(filter(None, (a["energy_note"], b["energy_note"])))
        )
    return line
