"""Hold two sets of runs against each other: which is faster, point by point, and is that more than chance?"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas

from benchbook.judging import confirmation, correctness, energy, intervals, statistics, verdicts
from benchbook.judging.intervals import History
from benchbook.machine import condition
from benchbook.rows import manifests, records
from benchbook.rows.points import point_work

KINDS = ("path", "machine", "session", "commit", "library", "network")
# What two points must have in common to be compared across machines: the work that their names stand for, and what was
# loaded, for where a data set or weights could not be had others stand in.
ALIKE = ["study", "work", "framework", "model", "dataset", "dataset_samples", "weights"]
COLUMNS = [
    *("study", "point", "machine_a", "machine_b", "device_a", "device_b", "a", "b"),
    *("ratio", "low", "high", "interval", "verdict", "variant_a", "variant_b", "stability_a", "stability_b"),
    *("energy_a", "energy_b", "energy_ratio", "energy_low", "energy_high", "energy_interval", "energy_note"),
]


def resolve(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows that a name stands for, of each point's last session.

    A name is tried as each of KINDS, in their order: a folder or CSV of rows; a machine; a session; the first 4
    or more characters of a commit; a library with its version, such as torch==2.10.0; the first 4 or more
    characters of the commit, or of the SHA-256, of a file with a network of one's own. A prefix says which is meant:
    `machine:desk`.

    Args:
        name: what the user typed.
        rows: all rows there are.
        folder: where they lie, with the manifests that name each run's libraries.

    Raises:
        ValueError: it is none of these, or more than one; the message names what exists.
        SchemaError: a folder or CSV holds something else than rows.
    """
    kind, _, rest = name.partition(":")
    kinds, wanted = ((kind,), rest) if kind in KINDS and rest else (KINDS, name)
    measured = rows[rows["source"] == "measured"]
    meanings = {kind: _FINDERS[kind](wanted, measured, folder) for kind in kinds}
    meanings = {kind: part for kind, part in meanings.items() if len(part)}
    if len(meanings) > 1:
        choices = " or ".join(f"{kind}:{wanted}" for kind in meanings)
        raise ValueError(f"{name!r} is a {' and a '.join(meanings)}; write {choices}")
    if not meanings:
        raise ValueError(f"no rows for {name!r}; {existing(measured)}")
    return statistics.newest(next(iter(meanings.values())))


def existing(rows: pandas.DataFrame) -> str:
    """Return a line that names what rows can be asked for."""
    libraries = (rows["framework"] + "==" + rows["framework_version"]).dropna().unique()
    parts = {
        "machines": rows["machine"].unique(),
        "sessions": rows["session"].unique()[-5:],
        "commits": rows["commit"].dropna().unique()[-5:],
        "libraries": libraries,
    }
    named = [f"{kind}: {', '.join(sorted(values))}" for kind, values in parts.items() if len(values)]
    return f"there are {'; '.join(named)}; or a folder or CSV of rows" if named else "nothing was measured yet"


def table(
    a: pandas.DataFrame,
    b: pandas.DataFrame,
    conditions: pandas.DataFrame | None = None,
    rows: pandas.DataFrame | None = None,
) -> pandas.DataFrame:
    """Compare two sets of rows, point by point.

    The same point on the same machine is one pair. Sets of two different machines are paired by what a point
    does (ALIKE) and by whether it ran on the CPU or on an accelerator. What a tuned point chose may differ: both are
    the best that their device can do, and variant_a and variant_b say whether that was faster than the reference.

    Args:
        a, b: rows of one session a point, as `resolve` returns them.
        conditions: from `condition.samples`, for the stability of each side.
        rows: all rows there are, from which the deviation between kernels is learnt; None: those of A and B. What
            differs between the sessions of A and B is the question, and is not counted as such a deviation.

    Returns:
        Columns COLUMNS; a and b are rates, ratio is b / a, see `statistics.ratio`; where a side trained wrong, the
        verdict says that instead. energy_a and energy_b are joules an image, energy_ratio is b / a with its bounds, and
        energy_note what the two do not have in common: see `energy.ratio`.

    Raises:
        ValueError: several machines on a side that the other side does not have, or nothing to pair.
    """
    pairs = _pairs(a, b)
    every = pandas.concat([a, b]) if rows is None else rows
    history = intervals.histories(every, apart={*a["session"], *b["session"]})
    judged = {"A": correctness.judge(a), "B": correctness.judge(b)}
    lines = []
    for pair in pairs.to_dict("records"):
        windows = {"A": a[a.index.isin(pair["index_a"])], "B": b[b.index.isin(pair["index_b"])]}
        line = _line(*windows.values(), conditions, history)
        for side, part in windows.items():
            key, stability = tuple(part[statistics.POINT_KEY].iloc[0]), f"stability_{side.lower()}"
            line[stability] = verdicts.with_proof(line[stability], judged[side].unproven.get(key))
            reason = judged[side].complaints.get(key)
            line |= {"verdict": f"{side} is wrong: {reason}"} if reason else {}
        lines.append(line)
    return pandas.DataFrame(lines, columns=COLUMNS).sort_values(["study", "point"], ignore_index=True)


def unpaired(a: pandas.DataFrame, b: pandas.DataFrame) -> dict[str, list[str]]:
    """Return the points of each side, "a" and "b", that the other has nothing to pair with; see `table`."""
    pairs, alone = _pairs(a, b), {}
    for side, rows in (("a", a), ("b", b)):
        windows, paired = _windows(rows), set().union(*pairs[f"index_{side}"])
        alone[side] = sorted(set(windows.loc[~windows.index.isin(paired), "point"]))
    return alone


def slower(lines: pandas.DataFrame, percent: float) -> pandas.DataFrame:
    """Return the lines whose B is slower than A by more than so many percent, the whole interval beyond."""
    if not 0 <= percent < 100:
        raise ValueError(f"percent {percent!r}; allowed: 0 to less than 100")
    return lines[(lines["interval"] == "interval") & (lines["high"] < 1 - percent / 100)]


def undecided(lines: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines of which nothing says whether B is slower: they have a range and no interval."""
    return lines[lines["interval"] != "interval"]


def _of_path(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    if not Path(name).exists():
        return rows[:0]
    there = records.merge(records.find(Path(name)))
    return there[there["source"] == "measured"]


def _of_column(column: str) -> Callable:
    return lambda name, rows, folder: rows[(rows[column] == name).fillna(False)]


def _of_commit(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows of one commit; `+changed` is part of the name of a commit that was not clean."""
    if not re.fullmatch(r"[0-9a-f]{4,40}(\+changed)?", name):
        return rows[:0]
    every = rows["commit"].dropna().unique()
    commits = [name] if name in every else [commit for commit in every if commit.startswith(name)]
    if len(commits) > 1:
        raise ValueError(f"commit {name!r} may be any of {', '.join(sorted(commits))}; write more of it")
    return rows[rows["commit"].isin(commits)]


def _of_library(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows of a framework's version, or of the runs whose manifest names that version of a package."""
    library, equals, version = name.partition("==")
    if not equals:
        return rows[:0]
    if (rows["framework"] == library).any():
        plain = rows["framework_version"].str.partition("+")[0]  # 2.10.0+cpu is a build of 2.10.0
        same = (plain == version) | (rows["framework_version"] == version)
        return rows[(rows["framework"] == library).fillna(False) & same.fillna(False)]
    environments = {run_id: manifest.get("environment") or {} for run_id, manifest in manifests.every(folder).items()}
    packages = {run_id: environment.get("packages") or {} for run_id, environment in environments.items()}
    runs = [run_id for run_id, versions in packages.items() if versions.get(library.lower()) == version]
    return rows[rows["run_id"].isin(runs)]


def _of_network(name: str, rows: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """Return the rows of the runs that trained a user's own file of one commit, or of one digest."""
    if not re.fullmatch(r"[0-9a-f]{4,64}(\+changed)?", name):
        return rows[:0]
    files = {run_id: (manifest.get("own_files") or {}).values() for run_id, manifest in manifests.every(folder).items()}
    marks = {
        run_id: [str(each.get(key)) for each in own for key in ("commit", "sha256")] for run_id, own in files.items()
    }
    return rows[rows["run_id"].isin([run_id for run_id, own in marks.items() if any(m.startswith(name) for m in own)])]


_FINDERS = {
    "path": _of_path,
    "machine": _of_column("machine"),
    "session": _of_column("session"),
    "commit": _of_commit,
    "library": _of_library,
    "network": _of_network,
}


def _pairs(a: pandas.DataFrame, b: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per pair of points, with what both have in common and the index of each one's windows."""
    points_a, points_b = _points(a), _points(b)
    shared = set(points_a["machine"]) & set(points_b["machine"])
    if not shared:
        _require_one_machine(points_a, points_b)
    on = ["machine", "study", "point", "dataset"] if shared else [*ALIKE, "is_cpu"]
    pairs = _text(points_a, on).merge(_text(points_b, on), on=on, suffixes=("_a", "_b"))
    if pairs.empty:
        raise ValueError(
            f"no point of A ({len(points_a)} points) is alike one of B ({len(points_b)} points) in {', '.join(on)}"
        )
    return pairs


def _windows(rows: pandas.DataFrame) -> pandas.DataFrame:
    return rows[(rows["phase"] == "train") & rows["samples_per_second"].notna()]


def _points(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per point: its key, what it is, and the index of its training windows."""
    columns = list(dict.fromkeys([*statistics.POINT_KEY, *ALIKE, "is_cpu", "index"]))
    lines = []
    for (_, _, point), group in _windows(rows).groupby(["machine", "study", "point"]):
        last = group.iloc[-1]
        derived = {"work": point_work(point), "weights": last["settings"].get("weights")}
        derived |= {"is_cpu": last["device"] == "cpu", "index": group.index}
        lines.append({name: last[name] for name in columns if name not in derived} | derived)
    return pandas.DataFrame(lines, columns=columns)


def _text(points: pandas.DataFrame, names: list[str]) -> pandas.DataFrame:
    """Return the points with these columns as text: a missing value equals a missing one."""
    return points.assign(**{name: points[name].map(str) for name in names})


def _require_one_machine(a: pandas.DataFrame, b: pandas.DataFrame) -> None:
    for name, points in (("A", a), ("B", b)):
        machines = sorted(points["machine"].unique())
        if len(machines) > 1:
            raise ValueError(f"{name} has rows of {', '.join(machines)}, which the other has not; name one machine")


def _line(
    a: pandas.DataFrame, b: pandas.DataFrame, conditions: pandas.DataFrame | None, history: Mapping[tuple, History]
) -> dict:
    rates = {side: intervals.of_windows(windows, intervals.RATE, history) for side, windows in (("a", a), ("b", b))}
    ratio = statistics.ratio(rates["a"], rates["b"])
    line = {"study": a["study"].iloc[0], "point": a["point"].iloc[0]}
    for side, windows in (("a", a), ("b", b)):
        line |= {
            side: rates[side].value,
            f"machine_{side}": windows["machine"].iloc[0],
            f"device_{side}": windows["device"].iloc[0],
            f"variant_{side}": confirmation.name(windows.iloc[-1]),
            f"stability_{side}": str(verdicts.judge(windows, conditions)),
        }
    bounds = {"low": ratio.low, "high": ratio.high, "interval": ratio.kind}
    return line | {"ratio": ratio.value, **bounds, "verdict": ratio.verdict} | _energies(a, b, history)


def _energies(a: pandas.DataFrame, b: pandas.DataFrame, history: Mapping[tuple, History]) -> dict:
    points = _energy(a, history), _energy(b, history)
    ratio, note = energy.ratio(*points)
    line = {f"energy_{side}": point["energy_per_sample"] for side, point in zip("ab", points, strict=True)}
    if ratio is not None:
        line |= {"energy_ratio": ratio.value, "energy_low": ratio.low, "energy_high": ratio.high}
        line["energy_interval"] = ratio.kind
    return line | {"energy_note": note}


def _energy(windows: pandas.DataFrame, history: Mapping[tuple, History]) -> dict:
    """Return a point's energy with its bounds, as `energy.ratio` takes it."""
    point, read = energy.summarise(windows), energy.read_windows(windows)
    if read.empty:
        return point
    joules = intervals.of_windows(read, intervals.ENERGY, history)
    bounds = {"energy_low": joules.low, "energy_high": joules.high, "energy_interval": joules.kind}
    return point | {"energy_per_sample": joules.value} | bounds


def samples(name_a: str, name_b: str, folder: Path) -> pandas.DataFrame:
    """Return the conditions under which runs were measured: of all runs here, and of folders that were named."""
    folders = [folder, *(Path(name) for name in (name_a, name_b) if Path(name).is_dir())]
    parts = [condition.samples(manifests.every(path)) for path in dict.fromkeys(folders) if path.exists()]
    return pandas.concat(parts, ignore_index=True)
