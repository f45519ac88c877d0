"""Compare two sets of runs: which is faster, point by point, and is that more than chance?

A side is named as KIND:NAME, see `resolve`.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas

from benchbook.judging import confirmation, intervals, statistics, verdicts
from benchbook.judging.intervals import Interval
from benchbook.machine import condition
from benchbook.rows import manifests, records
from benchbook.rows.points import point_work

# The columns that pair points of two machines: the work that their names describe, and what was loaded, since a
# substitute may replace a data set or weights.
PAIRED_BY = ["study", "work", "framework", "model", "dataset", "dataset_samples", "weights", "same_precision"]
PAIRED_BY += ["batch_size", "image_size", "device_count", "is_cpu"]
COLUMNS = [
    *("study", "point", "machine_a", "machine_b", "device_a", "device_b", "a", "b"),
    *("ratio", "low", "high", "interval", "verdict", "note", "variant_a", "variant_b", "stability_a", "stability_b"),
    *("energy_a", "energy_b", "energy_ratio", "energy_low", "energy_high", "energy_interval", "energy_note"),
]
TOO_FEW = "too few windows or kernels"
SLOWER, NOT_SLOWER, UNDECIDED = "slower", "not slower", "undecided"


def resolve(side: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows of a side, from each point's last session.

    Args:
        side: machine:NAME, session:NAME, commit:START (4 or more characters of a commit of this library, or of the
            commit or SHA-256 of your network's file), library:NAME==VERSION (torch==2.10.0), or file:PATH (a folder or
            CSV of rows).
        rows: all rows.
        folder: where the rows and their manifests are; a manifest names its run's libraries.

    Raises:
        ValueError: the side is none of these, or has no rows; the message names what exists.
        SchemaError: a folder or CSV holds something other than rows.
    """
    kind, _, name = side.partition(":")
    measured = rows[rows["source"] == "measured"]
    if kind in _FINDERS and name:
        found = _FINDERS[kind](name, measured, folder)
        if len(found := found[found["source"] == "measured"]):
            return statistics.newest(found)
    libraries = (measured["framework"] + "==" + measured["framework_version"]).dropna().unique()
    parts = {
        "machine": sorted(measured["machine"].unique()),
        "session": sorted(measured["session"].unique()[-5:]),
        "commit": sorted(measured["commit"].dropna().unique()[-5:]),
        "library": sorted(libraries),
    }
    named = [f"{kind}:{value}" for kind, values in parts.items() for value in values]
    allowed = ", ".join(f"{kind}:NAME" for kind in _FINDERS)
    raise ValueError(f"no rows for {side!r}; allowed: {allowed}; there are {', '.join(named) or 'none yet'}")


def _of_commit(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows of one commit, or the runs of a user's file with this commit or digest.

    The name of a commit with changes that were not committed ends in `+changed`.
    """
    if len(name) < 4:
        return rows[:0]
    fitting = [each for each in rows["commit"].dropna().unique() if each.startswith(name)]
    commits = [name] if name in fitting else fitting
    if len(commits) > 1:
        raise ValueError(f"commit:{name} may be any of {', '.join(sorted(commits))}; give more characters")
    if commits:
        return rows[rows["commit"].isin(commits)]
    runs = [
        run_id
        for run_id, manifest in manifests.read_all(folder).items()
        for file in (manifest.get("own_files") or {}).values()
        if any(str(file.get(key)).startswith(name) for key in ("commit", "sha256"))
    ]
    return rows[rows["run_id"].isin(runs)]


def _of_library(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows of a framework's version, or of runs whose manifest names a package's version."""
    library, _, version = name.partition("==")
    if (rows["framework"] == library).any():
        plain = rows["framework_version"].str.partition("+")[0]  # 2.10.0+cpu is a build of 2.10.0
        same = (plain == version) | (rows["framework_version"] == version)
        return rows[(rows["framework"] == library).fillna(False) & same.fillna(False)]
    environments = {run: manifest.get("environment") or {} for run, manifest in manifests.read_all(folder).items()}
    packages = {run: environment.get("packages") or {} for run, environment in environments.items()}
    return rows[rows["run_id"].isin([run for run, own in packages.items() if own.get(library.lower()) == version])]


_FINDERS: dict[str, Callable[[str, pandas.DataFrame, Path], pandas.DataFrame]] = {
    "machine": lambda name, rows, folder: rows[(rows["machine"] == name).fillna(False)],
    "session": lambda name, rows, folder: rows[(rows["session"] == name).fillna(False)],
    "commit": _of_commit,
    "library": _of_library,
    "file": lambda name, rows, folder: records.merge(records.find(Path(name))) if Path(name).exists() else rows[:0],
}


def conditions(sides: tuple[str, str], folder: Path) -> pandas.DataFrame:
    """Return the conditions of the runs in this folder and in the folders that a side names."""
    named = [Path(side.removeprefix("file:")) for side in sides if side.startswith("file:")]
    folders = [path for path in dict.fromkeys([folder, *named]) if path.is_dir()]
    return pandas.concat([condition.samples(manifests.read_all(path)) for path in folders], ignore_index=True)


def table(
    a: pandas.DataFrame,
    b: pandas.DataFrame,
    conditions: pandas.DataFrame | None = None,
    rows: pandas.DataFrame | None = None,
) -> pandas.DataFrame:
    """Compare two sets of rows, point by point.

    On the same machine, a point pairs with the point of the same name. On different machines, points pair by their work
    and by whether they ran on the CPU (PAIRED_BY); if several are alike, the one with the most images counts. The
    settings of tuned points may differ: each is the best that its device can do, and variant_a and variant_b say
    whether that was faster than the reference.

    Args:
        a, b: rows of one session a point, as `resolve` returns them.
        conditions: from `condition.samples`, for the stability of each side.
        rows: further rows, to estimate how much kernels and sessions differ. Sessions of B are left out of the latter,
            since their difference from others is the question.

    Returns:
        Columns COLUMNS: a and b are rates; ratio is b / a with its bounds and their kind; verdict is from `outcome`, or
        names the side that trained wrong; note warns if nothing is known about how sessions differ; stability_a and
        stability_b are Verdicts; energy_a and energy_b are joules an image; energy_ratio is b / a with its bounds,
        missing if the boundaries differ; energy_note names differences in how energy was measured.

    Raises:
        ValueError: a side has no windows, or several machines that the other side lacks, or no two points pair.
    """
    known = pandas.concat([part for part in (rows, a, b) if part is not None])  # a row that occurs twice counts once
    priors = intervals.priors(known, excluded_sessions={*b["session"]})
    sides = [_points(verdicts.summarise(side, conditions, priors)) for side in (a, b)]
    if empty := [name for name, side in zip("AB", sides, strict=True) if side.empty]:
        raise ValueError(f"no windows were measured in {' and '.join(empty)}; nothing to compare")
    most_measured = (side.drop_duplicates("key", keep="last") for side in _keyed(*sides))
    pairs = pandas.merge(*most_measured, on="key", suffixes=("_a", "_b"))
    if pairs.empty:
        counts = "no point of A ({}) is like one of B ({})".format(*map(len, sides))
        raise ValueError(f"{counts}; the nearest differ in {_differences(*sides)}")
    lines = [_line(pair) for pair in pairs.to_dict("records")]
    return pandas.DataFrame(lines, columns=COLUMNS).sort_values(["study", "point"], ignore_index=True)


def unpaired(a: pandas.DataFrame, b: pandas.DataFrame) -> dict[str, list[str]]:
    """Return the points of each side, "a" and "b", that pair with no point of the other; see `table`."""
    a, b = _keyed(*(_points(statistics.summarise(side)) for side in (a, b)))
    left_over = {"a": a.loc[~a["key"].isin(b["key"]), "point"], "b": b.loc[~b["key"].isin(a["key"]), "point"]}
    return {name: sorted(set(points)) for name, points in left_over.items()}


def outcome(ratio: Interval) -> str:
    """Return which side is faster, from B's rate over A's: one side is, if the whole interval lies on one side of 1."""
    if ratio.kind == intervals.RANGE:
        return TOO_FEW
    return "B faster" if ratio.low > 1 else "A faster" if ratio.high < 1 else "no difference shown"


def decide(ratio: Interval, percent: float) -> str:
    """Return whether B is more than `percent` slower than A: SLOWER, NOT_SLOWER, or UNDECIDED.

    UNDECIDED: there is no interval, or the bound lies within it.
    """
    if not 0 <= percent < 100:
        raise ValueError(f"percent {percent!r}; allowed: 0 to less than 100")
    bound = 1 - percent / 100
    if ratio.kind != intervals.INTERVAL or ratio.low < bound <= ratio.high:
        return UNDECIDED
    return SLOWER if ratio.high < bound else NOT_SLOWER


def _points(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return the points of a summary that have windows, with the columns of PAIRED_BY."""
    points = summary[summary["num_windows"] > 0].reset_index(drop=True)
    return points.assign(
        work=[point_work(point, device) for point, device in zip(points["point"], points["device"], strict=True)],
        weights=[(settings or {}).get("weights") for settings in points["settings"]],
        is_cpu=points["device"] == "cpu",
        same_precision=points["precision"].mask(points["variant"].isin(confirmation.TUNED_NAMES)),  # tuned may choose
    )


def _keyed(a: pandas.DataFrame, b: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the points of both sides, fewest images first, with a `key` that the two points of a pair share."""
    shared = {*a["machine"]} & {*b["machine"]}
    on = ["machine", "study", "point", "dataset"] if shared else PAIRED_BY
    for name, side in (("A", a), ("B", b)):
        machines = sorted(side["machine"].unique())
        if len(machines) > 1 and not shared:
            raise ValueError(f"{name} has rows of {', '.join(machines)}, which the other side lacks; name one machine")
    ordered = (side.sort_values("num_samples", kind="stable") for side in (a, b))
    # As text, two missing values are equal.
    return tuple(side.assign(key=[*zip(*(side[name].map(str) for name in on), strict=True)]) for side in ordered)


def _differences(a: pandas.DataFrame, b: pandas.DataFrame) -> str:
    """Return the differences between the two most similar points."""
    sides = (side[PAIRED_BY].map(str).to_dict("records") for side in (a, b))
    pairs = (([name for name in one if one[name] != two[name]], one, two) for one, two in itertools.product(*sides))
    names, one, two = min(pairs, key=lambda pair: len(pair[0]))
    return ", ".join(f"{name} ({one[name]}, {two[name]})" for name in names) or "other parameters"


def _line(pair: Mapping) -> dict:
    """Return the line of a pair of points, whose columns end in `_a` and `_b`."""
    a, b = ({name[:-2]: value for name, value in pair.items() if name.endswith(end)} for end in ("_a", "_b"))
    ratio = intervals.divide(*(Interval.from_row(side, "samples_per_second") for side in (b, a)))
    wrong = [name for name, side in (("A", a), ("B", b)) if verdicts.has(side["verdict"], verdicts.WRONG)]
    line = {"study": a["study"], "point": a["point"]} | ratio.columns("ratio")
    line["verdict"] = f"{' and '.join(wrong)} trained wrong" if wrong else outcome(ratio)
    width = intervals.weak_prior().session_width  # a machine has it if no point was measured in two sessions
    is_default = a["session"] != b["session"] and {a["session_width"], b["session_width"]} == {width}
    margin = math.expm1(2**0.5 * width)
    line["note"] = f"one session each: differences under {margin:.0%} are undecided" if is_default else ""
    shown = {"samples_per_second": "", "machine": "machine_", "device": "device_", "variant": "variant_"}
    shown |= {"verdict": "stability_", "energy_per_sample": "energy_"}
    for name, prefix in shown.items():
        line |= {f"{prefix}a": a[name], f"{prefix}b": b[name]}
    return line | _energy(a, b)


def _energy(a: Mapping, b: Mapping) -> dict:
    """Return B's joules per image over A's with bounds, and a note if methods or boundaries differ.

    Energies of different boundaries have no ratio, nor have an estimate and a measurement.
    """
    if any(pandas.isna(side["energy_per_sample"]) for side in (a, b)):
        return {"energy_note": ""}
    notes = [
        f"different {words}: {a[name]}, {b[name]}"
        for name, words in (("energy_boundary", "boundaries"), ("energy_method", "methods"))
        if a[name] != b[name]
    ]
    is_comparable = a["energy_boundary"] == b["energy_boundary"] and (
        (a["energy_method"] == statistics.ESTIMATE) == (b["energy_method"] == statistics.ESTIMATE)
    )
    notes += [f"{name}: {note}" for name, side in (("A", a), ("B", b)) if (note := side["energy_note"])]
    line = {"energy_note": "; ".join(notes)}
    if is_comparable:
        energy, *bounds = statistics.ENERGY_COLUMNS
        ratio = intervals.divide(*(Interval.from_row(side, energy, *bounds) for side in (b, a)))
        line |= ratio.columns("energy_ratio", *bounds)
    return line
