"""Rows that contradict themselves, one another or their run's manifest: well-formed, and still not to be believed.

A complaint is no proof of a lie, but such rows are in no figure: `validate` and `add` refuse them, and a report leaves
their runs out by name.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import numpy
import pandas

from benchbook.machine.kinds import KINDS
from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import ceilings
from benchbook.rows.schema import RUN_TIME

SAME_RATE = 1e-3  # relative distance of a rate from samples over seconds
CEILINGS = 2.5  # times a plain matrix product's rate: fast convolutions (Winograd) save that much at most
CLOCK_SECONDS = 2.0  # that a clock is corrected by, and windows may seem to overlap
SLACK_SECONDS = 60.0  # between a run's start and end, and its windows
FUTURE_SECONDS = 24 * 3600.0  # a clock may be set to another zone
IDLE_SHARE = 0.5  # of the idle watts, under which training cannot be
MOST_WATTS = {"board": 2_000.0, "soc": 500.0, "package": 1_500.0, "wall": 20_000.0}  # a device; wall: the computer
# By method: what it may be of, and the kinds of device that it covers; None: all.
COVERS: dict[str, tuple[set, set | None]] = {
    kind.energy_counter: (
        {kind.energy_boundary},
        {name for name in KINDS if KINDS[name].energy_counter == kind.energy_counter},
    )
    for kind in KINDS.values()
    if kind.energy_counter
}
COVERS["apple_ioreport"][1].add("cpu")  # it is of the whole chip
COVERS |= {"meter": ({"wall"}, None), "estimate_tdp": ({kind.energy_boundary for kind in KINDS.values()}, None)}
COMMIT = re.compile(r"[0-9a-f]{7,40}(\+changed)?")
MEASURES = ("seconds", "input_seconds", "samples_per_second", "flops_per_sample", "bytes_per_sample", "energy_joules")
COLUMNS = ["machine", "study", "point", "run_id", "line", "reason"]

Complaint = tuple[int, str]  # a row's place, and what is wrong with it


def complaints(rows: pandas.DataFrame, manifests: Mapping[str, dict], now: datetime | None = None) -> pandas.DataFrame:
    """Return what contradicts something else, the first row of each run and reason.

    Args:
        rows: as `records.merge` returns them: those of a run in the order of its file.
        manifests: by run id; of a run without one, only its rows are held against each other.
        now: when nothing can have been measured yet; None: the present.

    Returns:
        Columns: machine, study, point, run_id, line (in the run's file; the header is line 1), reason.
    """
    rows = rows.reset_index(drop=True)
    places = rows.groupby("run_id", sort=False).cumcount() + 2
    doubts = [(place, reason) for check in CHECKS for place, reason in check(rows, manifests)]
    doubts += list(_times(rows, manifests, (now or datetime.now(UTC)).timestamp()))
    table = rows.loc[[place for place, _ in doubts], ["machine", "study", "point", "run_id"]].reset_index(drop=True)
    table = table.assign(line=[places[place] for place, _ in doubts], reason=[reason for _, reason in doubts])
    table = table.sort_values(["run_id", "line"], kind="stable").drop_duplicates(["run_id", "reason"])
    return table.reindex(columns=COLUMNS).reset_index(drop=True)


def without(rows: pandas.DataFrame, manifests: Mapping[str, dict], say: Callable[[str], object]) -> pandas.DataFrame:
    """Return the rows of runs without a complaint; say which are left out, and why.

    Args:
        rows, manifests: see `complaints`.
        say: called with a line for each run.
    """
    table = complaints(rows, manifests)
    for line in table.drop_duplicates("run_id").itertuples():
        say(f"left out: {describe(line)}")
    return rows[~rows["run_id"].isin(table["run_id"])]


def describe(complaint) -> str:
    """Return a line of `complaints` as a sentence: file, line and reason."""
    return (
        f"{complaint.machine}/{complaint.study}/{complaint.point}/{complaint.run_id}.csv, line {complaint.line}:"
        f" {complaint.reason}"
    )


def _numbers(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> Iterator[Complaint]:
    """Complain of numbers that are not finite, and of a rate that is not samples over seconds."""
    for name in MEASURES:
        infinite = numpy.isinf(rows[name].astype(float))
        yield from ((place, f"{name} is not finite") for place in rows.index[infinite])
    rate, seconds = rows["samples_per_second"].astype(float), rows["seconds"].astype(float)
    implied = rows["samples"].astype(float) / seconds.where(seconds > 0)
    off = (rate / implied - 1).abs() > SAME_RATE
    yield from (
        (place, f"samples_per_second is {rate[place]:,.4g}, samples over seconds {implied[place]:,.4g}")
        for place in rows.index[off]
    )
    waited = rows["input_seconds"].astype(float) > seconds * (1 + SAME_RATE) + 0.01
    yield from ((place, "input_seconds is longer than the window") for place in rows.index[waited])


def _ceilings(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> Iterator[Complaint]:
    """Complain of training that computes faster than the machine's own matrix products."""
    products = ceilings.ceilings(rows)
    best = products[products["model"] == "matmul"].groupby(["machine", "device"])["rate"].max()
    trained = rows[(rows["phase"] == "train") & rows["flops_per_sample"].notna() & rows["samples_per_second"].notna()]
    devices = pandas.MultiIndex.from_frame(trained[["machine", "device"]])
    ceiling = pandas.Series(best.astype(float).reindex(devices).to_numpy(), trained.index)
    count = trained["device_count"].where(trained["device"] != "cpu").fillna(1).astype(float)
    rate = trained["flops_per_sample"].astype(float) * trained["samples_per_second"].astype(float)
    for place in trained.index[rate > CEILINGS * ceiling * count]:
        most = f"{CEILINGS:g} times the {ceiling[place]:.3g}"
        yield place, f"{rate[place]:.3g} FLOP/s, over {most} that this device was measured at"


def _energy(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> Iterator[Complaint]:
    """Complain of joules that their method cannot read there, or that are more or less than can be."""
    names = ["energy_joules", "energy_method", "energy_boundary", "device", "device_count", "seconds", "idle_watts"]
    read = rows.loc[rows["energy_joules"].notna(), [*names, "phase"]]
    for place, row in zip(read.index, read.to_dict("records"), strict=True):
        boundaries, kinds = COVERS[row["energy_method"]]
        if row["energy_boundary"] not in boundaries or (kinds and row["device"] not in kinds):
            yield place, f"{row['energy_method']} reads no {row['energy_boundary']} of a {row['device']}"
        if pandas.isna(row["seconds"]) or not row["seconds"] > 0:
            continue
        watts = float(row["energy_joules"] / row["seconds"])
        devices = 1 if pandas.isna(row["device_count"]) or row["energy_boundary"] == "wall" else row["device_count"]
        most = MOST_WATTS[row["energy_boundary"]] * devices
        if watts > most:
            yield place, f"{watts:,.0f} W; allowed for {row['energy_boundary']}: up to {most:,.0f}"
        if row["phase"] == "train" and pandas.notna(row["idle_watts"]) and watts < IDLE_SHARE * row["idle_watts"]:
            yield place, f"{watts:,.3g} W in training, where the idle device draws {row['idle_watts']:,.3g}"


def _order(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> Iterator[Complaint]:
    """Complain of an index with gaps, and of runs that are copies of one another."""
    number = rows.groupby(["run_id", "phase", "repeat"], sort=False).cumcount()
    gaps = (number != rows["index"]).fillna(False)
    yield from ((place, f"index is {rows['index'][place]}, the next one {number[place]}") for place in rows.index[gaps])
    windows = rows[(rows["phase"] == "train") & rows["seconds"].notna()]
    digests = windows.groupby("run_id", sort=False)["seconds"].agg(tuple)
    digests = digests[digests.map(len) > 1]  # one alone may take as long as another by chance
    firsts = {seconds: run_id for run_id, seconds in reversed(list(digests.items()))}
    places = dict(zip(reversed(windows["run_id"].tolist()), reversed(windows.index.tolist()), strict=True))
    for run_id, seconds in digests[digests.duplicated()].items():
        yield places[run_id], f"its windows are those of run {firsts[seconds]}"


def _manifests(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> Iterator[Complaint]:
    """Complain of what a run's manifest says otherwise, and of what no run of a machine can hold."""
    for place, source in rows.loc[rows["source"] != "measured", "source"].items():
        yield place, f"source is {source}; allowed among measured rows: measured"
    commits = rows["commit"].dropna()
    unclear = commits[~commits.isin([commit for commit in commits.unique() if COMMIT.fullmatch(commit)])]
    yield from ((place, f"commit {commit[:50]!r} is none") for place, commit in unclear.items())
    stated = {run_id: _stated(manifests.get(run_id) or {}) for run_id in rows["run_id"].dropna().unique()}
    for name in ("machine", "chip", "commit", "variant", "device"):
        wanted = rows["run_id"].map({run_id: values[name] for run_id, values in stated.items()})
        other = wanted.notna() & ~wanted.isin(["", "best"]) & rows[name].notna() & (rows[name] != wanted).fillna(False)
        yield from (
            (place, f"{name} is {rows[name][place]!r}, the manifest says {wanted[place]!r}")
            for place in _firsts(rows, other)
        )
    memory = rows["run_id"].map({run_id: values["memory_bytes"] or numpy.inf for run_id, values in stated.items()})
    over = (rows["peak_memory_bytes"] > memory.astype(float)).fillna(False) & (rows["device"] == "cpu").fillna(False)
    yield from ((place, "peak_memory_bytes is more than the machine has") for place in _firsts(rows, over))


def _work(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> Iterator[Complaint]:
    """Complain of training windows whose work is not what the run's parameters asked for, or its parity's."""
    trained = rows[rows["phase"].eq("train").fillna(False) & rows["samples"].notna() & rows["run_id"].notna()]
    asked = {run_id: (manifests.get(run_id) or {}).get("parameters") or {} for run_id in trained["run_id"].unique()}
    wanted = [asked[run_id].get("batch_size") or None for run_id in trained["run_id"]]
    wanted = pandas.Series(wanted, trained.index, dtype=object)
    other = wanted.notna() & (trained["batch_size"] != wanted).fillna(False)
    for place in _firsts(trained, other):
        yield place, f"batch_size is {trained['batch_size'][place]}, asked for {wanted[place]}"
    plain = [
        run_id
        for run_id, parameters in asked.items()
        if parameters.get("variant") == "reference" and parameters.get("precision") in (None, "fp32")
    ]
    published = [name for name, precision in PRECISIONS.items() if name == "fp32" or precision.autocast]
    other = ~trained["precision"].isin(published) & trained["precision"].notna()
    for place in _firsts(trained, other & trained["run_id"].isin(plain)):
        yield place, f"precision is {trained['precision'][place]} in the reference"
    first = trained.drop_duplicates("run_id")
    for place, run_id, given in zip(first.index, first["run_id"], first["dataset"], strict=True):
        dataset, stand_in = asked[run_id].get("dataset"), asked[run_id].get("allow_embedded", True)
        if dataset in EXACT and pandas.notna(given) and given != dataset and (given in EXACT or not stand_in):
            yield place, f"dataset is {given}, asked for {dataset}"
    compared = rows[rows["phase"].eq("parity").fillna(False)]
    precisions = {run_id: set(group) for run_id, group in compared.groupby("run_id")["precision"]}
    precision = dict(zip(first["run_id"], first["precision"], strict=True))
    first = compared[compared["run_id"].isin(first["run_id"])].drop_duplicates("run_id")
    for place, run_id, given in zip(first.index, first["run_id"], first["precision"], strict=True):
        if precision[run_id] not in precisions[run_id]:
            yield place, f"parity is of {given}, training of {precision[run_id]}"


def _stated(manifest: Mapping) -> dict:
    """Return what a manifest says of columns of its run's rows, and the machine's memory; None is nothing."""
    machine, parameters = manifest.get("machine") or {}, manifest.get("parameters") or {}
    of_machine = {
        "machine": machine.get("name"),
        "chip": machine.get("chip"),
        "memory_bytes": machine.get("memory_bytes"),
    }
    return (
        of_machine | {"commit": manifest.get("commit")} | {name: parameters.get(name) for name in ("variant", "device")}
    )


def _firsts(rows: pandas.DataFrame, wrong: pandas.Series) -> pandas.Index:
    """Return the first wrong row of each run."""
    return rows.loc[wrong, "run_id"].drop_duplicates().index


def _times(rows: pandas.DataFrame, manifests: Mapping[str, dict], now: float) -> Iterator[Complaint]:
    """Complain of windows that overlap, lie in the future, or outside of their run."""
    timed = rows[rows["started_at"].notna()]
    starts = pandas.to_datetime(timed["started_at"], format="ISO8601", utc=True)
    begun = (starts - pandas.Timestamp(0, tz="UTC")).dt.total_seconds()
    ends = begun + timed["seconds"].astype(float).fillna(0.0)
    yield from ((place, "it lies in the future") for place in timed.index[ends > now + FUTURE_SECONDS])
    run = timed["run_id"]
    before = ends.groupby(run, sort=False).shift().groupby(run, sort=False).cummax()
    overlap = (before - begun).clip(lower=0).groupby(run, sort=False).cumsum()
    overlapping = _firsts(timed, overlap > CLOCK_SECONDS)
    yield from ((place, "it begins before the window before has ended") for place in overlapping)
    names = run.dropna().unique()
    run_starts = run.map({name: _start(name) for name in names}).astype(float)
    lengths = run.map({name: (manifests.get(name) or {}).get("process_seconds", numpy.inf) for name in names})
    outside = (begun < run_starts - SLACK_SECONDS) | (ends > run_starts + lengths.astype(float) + SLACK_SECONDS)
    yield from ((place, "it lies outside of its run") for place in _firsts(timed, outside))


def _start(run_id: str) -> float:
    """Return the time that a run is named by, in seconds since 1970; of another name none."""
    named = RUN_TIME.match(run_id)
    return datetime.strptime(named[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp() if named else numpy.nan


EXACT = ("mnist", "cifar10", "imagenet", "synthetic")  # data sets whose names are what was loaded
CHECKS = (_numbers, _ceilings, _energy, _order, _manifests, _work)
