"""Find rows that obey the schema but contradict themselves, each other or their run's manifest.

A contradiction does not prove a lie, but no figure uses such rows: `validate`, `pack` and `add` refuse them, and a
report names their runs and leaves them out. A run is shown as unproven if its manifest is missing or incomplete.
"""

import functools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy
import pandas

from benchbook.machine import layout
from benchbook.machine.kinds import KINDS
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import ceilings, networks, points
from benchbook.rows.schema import DTYPES, RUN_TIME, listed

SAME_RATE = 1e-3  # relative tolerance between a rate and samples / seconds
SAME_WORK = 0.05  # relative tolerance of a network's operations: all frameworks count them alike
CEILING_FACTOR = 2.5  # times the rate of a matrix product: fast convolutions (Winograd) save at most that much
CLOCK_ERROR_SECONDS = 2.0  # a corrected clock may make windows overlap by this much
RUN_MARGIN_SECONDS = 60.0  # windows may lie this far outside their run's start and end
CLOCK_AHEAD_SECONDS = 3600.0  # a computer's clock may be this far ahead
# The longest pause between two windows, while a run reads the machine's condition: a time plus a share of the window,
# and more for an accelerator's driver and for waiting on Apple's energy counters.
PAUSE_SECONDS, PAUSE_SHARE, DRIVER_SECONDS, COUNTER_SECONDS = 0.6, 0.5, 1.0, 6.0
IDLE_SHARE = 0.5  # training draws at least this share of the idle watts
MAX_WATTS = {"board": 2_000.0, "soc": 500.0, "package": 1_500.0}  # per device
# By energy method: its boundaries, and the kinds of device that it covers.
COVERS: dict[str, tuple[set, set]] = {
    kind.energy_counter: (
        {kind.energy_boundary},
        {name for name in KINDS if KINDS[name].energy_counter == kind.energy_counter},
    )
    for kind in KINDS.values()
    if kind.energy_counter
}
COVERS["apple_ioreport"][1].add("cpu")  # it covers the whole chip
# The names under which a framework's builds are installed.
PACKAGES = {name: (name, f"{name}-macos", f"{name}-cpu", f"{name}-intel") for name in FRAMEWORKS}
COMMIT_PATTERN = r"[0-9a-f]{7,40}(\+changed)?"
MEASURES = ("seconds", "input_seconds", "samples_per_second", "flops_per_sample", "bytes_per_sample", "energy_joules")
SIZES = {"mnist": 60_000, "cifar10": 50_000, "imagenet": 1_281_167}  # training images of each data set
MAX_SKIPPED_STEPS = 16  # a loss scaler may skip this many steps, and a tenth, until it finds its factor
ONE_FILE = ("mnist", "cifar10")  # data sets that are read from one file
EXACT_NAMES = (*SIZES, "synthetic")  # data sets whose name proves what was loaded
REFERENCE_PRECISIONS = ["fp32", *(name for name, precision in PRECISIONS.items() if precision.autocast)]
CONFUSABLE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "_": "-", ".": "-"})  # letters that look alike
MANIFEST_NUMBERS = ["manifest_batch", "manifest_device_count", "manifest_parity", "manifest_windows", "memory_bytes"]
MANIFEST_NUMBERS += ["process_seconds", "num_samples"]
RUN = ["machine", "study", "point", "run_id"]
COLUMNS = [*RUN, "line", "reason"]


def complaints(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> pandas.DataFrame:
    """Return the contradictions in rows, one line for each run and reason.

    Args:
        rows: from `records.merge`, each run's in the order of its file.
        manifests: by run id; without one, a run's rows are only compared with each other.

    Returns:
        Columns: machine, study, point, run_id, line (in the run's file; the header is line 1), reason.
    """
    rows = rows.reset_index(drop=True)
    if rows.empty:
        return pandas.DataFrame(columns=COLUMNS)
    table = _with_manifests(rows, manifests)
    found = []
    for reason, is_wrong in RULES.items():
        wrong = table.index[is_wrong(table).fillna(False).astype(bool)]
        firsts = table.loc[wrong, "run_id"].drop_duplicates().index
        found += [(place, reason.format_map(table.loc[place])) for place in firsts]
    found += [*copied_runs(rows), *similar_names(rows)]
    lines = rows[RUN].assign(line=rows.groupby("run_id", sort=False).cumcount() + 2)
    result = pandas.DataFrame(found, columns=["place", "reason"]).join(lines, on="place")
    result = result.sort_values(["run_id", "line"], kind="stable")[COLUMNS]
    return result.drop_duplicates(["run_id", "reason"], ignore_index=True)


def unproven(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> list[str]:
    """Return a line for each reason why manifests do not prove runs, with the number of these runs."""
    lines: dict[str, list[str]] = {}
    runs = rows.drop_duplicates("run_id").astype({"device": object})
    for run_id, device in runs[["run_id", "device"]].fillna({"device": ""}).itertuples(index=False):
        manifest = manifests.get(run_id)
        if manifest is None:
            lines.setdefault("no manifest", []).append(run_id)
        elif not (manifest.get("environment") or {}).get("packages"):
            lines.setdefault("no packages in the manifest", []).append(run_id)
        elif device in COVERS["nvml"][1] and not (manifest.get("machine") or {}).get("accelerators"):
            lines.setdefault("no GPU in the manifest", []).append(run_id)
    return [f"unproven: {len(ids)} with {reason} ({listed(ids)})" for reason, ids in lines.items()]


def consistent(rows: pandas.DataFrame, manifests: Mapping[str, dict], say: Callable[[str], object]) -> pandas.DataFrame:
    """Return the rows of runs without contradictions.

    Args:
        rows, manifests: see `complaints`.
        say: called with a line for each run that is left out, and for each reason why other runs are unproven.
    """
    table = complaints(rows, manifests)
    for line in table.drop_duplicates("run_id").itertuples():
        say(f"left out: {describe(line)}")
    kept = rows[~rows["run_id"].isin(table["run_id"])]
    for line in unproven(kept, manifests):
        say(line)
    return kept


def describe(complaint) -> str:
    """Return a line of `complaints` as text: file, line and reason."""
    return (
        f"{complaint.machine}/{complaint.study}/{complaint.point}/{complaint.run_id}.csv, line {complaint.line}:"
        f" {complaint.reason}"
    )


def _with_manifests(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> pandas.DataFrame:
    """Return the rows with the further columns of `RULES`, from manifests and from the other rows of the run."""
    studies = rows.drop_duplicates("run_id").set_index("run_id")["study"].to_dict()
    values = [_from_manifest(manifests.get(run_id) or {}, study) for run_id, study in studies.items()]
    numbers = [name for name, dtype in DTYPES.items() if dtype in ("Int64", "Float64")]
    table = rows.astype(dict.fromkeys(numbers, float)).astype({"device": object, "framework": object})
    table = table.join(pandas.DataFrame(values, list(studies), dtype=object), on="run_id")
    table = table.astype(dict.fromkeys(MANIFEST_NUMBERS, float))
    table["installed"] = [own.get(name) for own, name in zip(table["versions"], table["framework"], strict=True)]
    table["version"] = table["framework_version"].str.replace(r"\+.*", "", regex=True)  # without the build
    seconds, run = table["seconds"], table["run_id"]
    table["rate"] = table["samples"] / seconds.where(seconds > 0)
    table["watts"] = table["energy_joules"] / seconds.where(seconds > 0)
    table["flops"] = table["flops_per_sample"] * table["samples_per_second"]
    table["ceiling"] = _ceilings(rows, table)
    table["max_watts"] = table["energy_boundary"].map(MAX_WATTS).astype(float) * table["device_count"].fillna(1.0)
    table["trained"] = table["phase"].eq("train") & table["samples"].notna()
    scaled = table["precision"].map({name: precision.needs_scaling for name, precision in PRECISIONS.items()}).eq(True)
    table["skipped_steps"] = scaled * (MAX_SKIPPED_STEPS + 0.1 * table["steps"])
    table["next_index"] = table.groupby(["run_id", "phase", "repeat"], sort=False, dropna=False).cumcount()
    table["failed"] = (table["status"] != "ok").groupby(run, dropna=False).transform("any")
    table["windows"] = table["trained"].groupby(run, dropna=False).transform("sum")
    table["windows_in_repeat"] = table["trained"].groupby([run, table["repeat"]], dropna=False).transform("sum")
    table["counted_flops"] = _operations(table)
    _add_times(table)
    _add_parity(table)
    _add_tuning(table)
    return table


def _from_manifest(manifest: Mapping, study: str) -> dict:
    """Return the values of a manifest that rows are compared with; missing values are None."""
    machine, parameters, environment = (manifest.get(name) or {} for name in ("machine", "parameters", "environment"))
    packages = environment.get("packages") or {}
    sampled = [line for line in manifest.get("conditions") or () if line.get("index") is not None]
    slept = [line["elapsed_seconds"] - line["awake_seconds"] for line in sampled]
    named = {name: parameters.get(name) for name in ("variant", "device", "framework", "device_count", "dataset")}
    return {f"manifest_{name}": None if value in ("", "best") else value for name, value in named.items()} | {
        "manifest_machine": machine.get("name"),
        "manifest_chip": machine.get("chip"),
        "manifest_commit": manifest.get("commit") or None,
        "manifest_run": manifest.get("run_id"),
        "manifest_point": _point(study, json.dumps(parameters, sort_keys=True)),
        "manifest_batch": parameters.get("batch_size") or None,
        "manifest_precision": parameters.get("precision"),
        "manifest_parity": parameters.get("num_parity_steps"),
        "manifest_windows": None if parameters.get("sustained_minutes") else parameters.get("num_windows"),
        "allow_embedded": parameters.get("allow_embedded", True),
        "memory_bytes": machine.get("memory_bytes"),
        "process_seconds": manifest.get("process_seconds"),
        "system": machine.get("system"),
        "is_mac": machine["system"].startswith("macOS") if machine.get("system") else None,
        "versions": {
            name: next(filter(None, map(packages.get, builds)), "").partition("+")[0]
            for name, builds in PACKAGES.items()
        }
        if packages
        else {},
        "num_samples": len(sampled),
        "clock": {(line.get("repeat"), line["index"]): line["elapsed_seconds"] for line in sampled}
        if sampled and max(slept) - min(slept) < 1
        else {},
    }


@functools.cache  # a point has many runs
def _point(study: str, parameters: str) -> str | None:
    """Return the name of a point from its parameters as JSON; None if they are not the parameters of a run."""
    parameters = json.loads(parameters)
    if study not in layout.notebooks() or not {"device", "seed"} <= parameters.keys():
        return None
    try:
        return points.point_name(study, parameters)
    except (TypeError, ValueError):  # values that the notebook refuses
        return None


def _ceilings(rows: pandas.DataFrame, table: pandas.DataFrame) -> pandas.Series:
    """Return the best rate of matrix products on each row's device, times the number of devices."""
    products = ceilings.ceilings(rows)
    best = products[products["model"] == "matmul"].groupby(["machine", "device"])["rate"].max().astype(float)
    keys = pandas.MultiIndex.from_frame(rows[["machine", "device"]])
    count = table["device_count"].where(table["device"] != "cpu").fillna(1.0)
    return pandas.Series(best.reindex(keys).to_numpy(), table.index) * count


def _operations(table: pandas.DataFrame) -> pandas.Series:
    """Return the operations per sample of matrix products and of the studies' counted networks; else missing."""
    sizes, frozen, own = (
        table["settings"].map(lambda settings, name=name: settings.get(name))
        for name in ("matrix_size", "trainable", "network")
    )
    names = table["model"].astype(object) + frozen.eq(False).map({True: "_frozen", False: ""})
    works = table[["parameters", "image_size", "sequence_length"]].astype(object).assign(name=names.where(own.isna()))
    counts = [_counted(*work) for work in works.where(works.notna(), None).itertuples(index=False, name=None)]
    counted = pandas.Series(counts, table.index, dtype=float)
    return counted.where(table["model"].ne("matmul").fillna(True), 2 * sizes.astype(float) ** 3)


@functools.cache  # a network has many rows
def _counted(
    parameters: float | None, image_size: float | None, sequence_length: float | None, name: str | None
) -> float | None:
    """Return a network's operations per sample; None if unknown, also for images that a layer cannot halve evenly."""
    if name not in networks.table().index or networks.table()["parameters"][name] != parameters:
        return None
    counted = networks.describe(name)
    if counted.sequence_length:
        is_known = sequence_length is not None
    else:
        is_known = image_size is not None and (image_size == counted.image_size or image_size % 32 == 0)
    return networks.describe(name, image_size, sequence_length).flops_per_sample if is_known else None


def _add_times(table: pandas.DataFrame) -> None:
    """Add when windows began and ended, their overlaps and pauses, and their difference from the manifest's clock."""
    run = table["run_id"]
    starts = pandas.to_datetime(table["started_at"], format="ISO8601", utc=True)
    named = pandas.to_datetime(run.str.extract(f"^{RUN_TIME.pattern}")[0], format="%Y%m%dT%H%M%S", utc=True)
    for name, times in (("begun", starts), ("run_begun", named)):
        table[name] = (times - pandas.Timestamp(0, tz="UTC")).dt.total_seconds().astype(float)
    table["ended"] = table["begun"] + table["seconds"].fillna(0.0)
    timed = table[table["begun"].notna()]
    own = timed["run_id"]
    before = timed["ended"].groupby(own, sort=False).shift().groupby(own, sort=False).cummax()
    table["overlap"] = (before - timed["begun"]).clip(lower=0).groupby(own, sort=False).cumsum()
    windows = timed["phase"].eq("train") & timed["seconds"].notna()
    same = own.eq(own.shift()) & timed["repeat"].eq(timed["repeat"].shift())
    follows = windows & windows.shift(fill_value=False) & same
    pauses = (timed["begun"] - before)[follows].groupby(own[follows])
    table["pause_seconds"] = run.map(pauses.median().where(pauses.size() > 1))
    table["window_seconds"] = run.map(timed.loc[windows, "seconds"].groupby(own[windows]).median())
    table["max_pause"] = PAUSE_SECONDS + PAUSE_SHARE * table["window_seconds"]
    table["max_pause"] += DRIVER_SECONDS * table["device"].ne("cpu")
    waited = table["energy_method"].eq("apple_ioreport").groupby(run).transform("any")
    table["max_pause"] += COUNTER_SECONDS * waited
    table["run_ended"] = table["run_begun"] + table["process_seconds"].fillna(math.inf)
    inside = table["trained"] & table["begun"].notna() & table["clock"].map(bool)
    keys = zip(table.loc[inside, "clock"], table.loc[inside, "repeat"], table.loc[inside, "index"], strict=True)
    read = [clock.get((repeat, index), math.nan) for clock, repeat, index in keys]
    offset = table.loc[inside, "ended"] - pandas.Series(read, table.index[inside], dtype=float)
    spread = offset.groupby(run[inside])
    table["clock_error"] = run.map(spread.max() - spread.min())


def _add_parity(table: pandas.DataFrame) -> None:
    """Add whether parity steps are wrong, and whether a run has parity at all and in the precision of its training."""
    parity = table[table["phase"].eq("parity") & ~table["failed"]]
    steps: dict[tuple, Counter] = {}
    for *key, settings in parity[["run_id", "precision", "settings"]].itertuples(index=False):
        if settings.get("step") is not None and "audited_samples" not in settings:  # the audit repeats the first step
            steps.setdefault(tuple(key), Counter()).update([settings["step"]])
    requested = parity.drop_duplicates("run_id").set_index("run_id")["manifest_parity"].dropna().to_dict()
    wrong = {
        key
        for key, counts in steps.items()
        if sorted(counts) != list(range(1, 1 + len(counts)))
        or len(set(counts.values())) > 1
        or requested.get(key[0], 0) not in (0, len(counts))
    }
    run, trained = table["run_id"], table[table["trained"]].drop_duplicates("run_id").set_index("run_id")
    is_wrong = [key in wrong for key in zip(run, table["precision"], strict=True)]
    table["has_wrong_steps"] = table["phase"].eq("parity") & numpy.array(is_wrong)
    table["trained_precision"] = run.map(trained["precision"])
    precisions = {run_id: set(own) for run_id, own in parity.groupby("run_id")["precision"]}
    pairs = zip(run, table["trained_precision"], strict=True)
    table["has_own_parity"] = [pandas.isna(own) or own in precisions.get(run_id, {own}) for run_id, own in pairs]
    table["no_parity"] = (table["manifest_parity"] > 0) & ~run.isin(precisions)


def _add_tuning(table: pandas.DataFrame) -> None:
    """Add the choice of tuned runs, and the speed-up and precision in their windows of tuned and reference."""
    tuned, runs = table[table["variant"].eq("tuned").fillna(False).astype(bool)], table["run_id"]
    trained = tuned[tuned["trained"]].drop_duplicates("run_id", keep="last").set_index("run_id")
    chosen = trained["settings"].map(lambda settings: settings.get("chosen")).to_dict()
    table["chosen"] = runs.map(chosen)
    windows = tuned[tuned["phase"].eq("confirm")]
    speedups = {run_id: pair_speedups(own) for run_id, own in windows.groupby("run_id", sort=False)}
    table["min_speedup"] = runs.map({run_id: min(own) for run_id, own in speedups.items() if own}).astype(float)
    sides = windows["settings"].map(lambda settings: settings.get("side"))
    same = windows[sides.eq(windows["run_id"].map(chosen))].drop_duplicates("run_id").set_index("run_id")
    table["confirmed_precision"] = runs.map(same["precision"])
    # A point's first kernel in a session decides for the later ones.
    sessions = tuned.groupby(["machine", "study", "point", "session"], dropna=False)["run_id"]
    table["decides"] = runs.isin(sessions.min())


def pair_speedups(windows: pandas.DataFrame) -> list[float]:
    """Return the speed-up of tuned over the reference in each pair of consecutive windows.

    Args:
        windows: one run's, of phase `confirm`.
    """
    windows = windows.sort_values("index")
    sides = [settings.get("side") for settings in windows["settings"]]
    rates = windows["samples_per_second"].astype(float).tolist()
    pairs = [dict(zip(sides[i : i + 2], rates[i : i + 2], strict=True)) for i in range(0, len(rates) - 1, 2)]
    known = [pair for pair in pairs if pair.keys() == {"reference", "tuned"} and pair["reference"] > 0]
    return [pair["tuned"] / pair["reference"] for pair in known]


def _differs(name: str, expected: str = "") -> Callable[[pandas.DataFrame], pandas.Series]:
    """Return the rule that a column differs from another one, by default the manifest's, where both are known."""

    def rule(table: pandas.DataFrame) -> pandas.Series:
        values, others = table[name].astype(object), table[expected or f"manifest_{name}"]
        return values.notna() & others.notna() & (values != others)

    return rule


def _is_not_covered(table: pandas.DataFrame) -> pandas.Series:
    keys = zip(table["energy_method"], table["energy_boundary"], table["device"], strict=True)
    covered = [
        method not in COVERS or (boundary in COVERS[method][0] and device in COVERS[method][1])
        for method, boundary, device in keys
    ]
    return table["energy_joules"].notna() & ~pandas.Series(covered, table.index)


# By reason, a template of the row's values: which rows of `_with_manifests` are wrong for that reason.
RULES: dict[str, Callable[[pandas.DataFrame], pandas.Series]] = {
    **{f"{name} is not finite": lambda t, name=name: numpy.isinf(t[name]) for name in MEASURES},
    "samples_per_second is {samples_per_second:,.4g}, but samples / seconds is {rate:,.4g}": lambda t: (
        (t.samples_per_second / t.rate - 1).abs() > SAME_RATE
    ),
    "input_seconds is longer than the window": lambda t: t.input_seconds > t.seconds * (1 + SAME_RATE) + 0.01,
    "loss is infinite, but status is {status}": lambda t: numpy.isinf(t.loss) & ~t.failed,
    "accuracy is {accuracy:.4g}, but loss {loss:.4g} is under 0.69 times the share of wrong answers": lambda t: (
        t.accuracy_metric.eq("top1") & (t.loss < (1 - t.accuracy) * math.log(2) * (1 - SAME_RATE))
    ),
    f"{{flops:.3g}} FLOP/s is over {CEILING_FACTOR:g} times the measured ceiling of {{ceiling:.3g}}": lambda t: (
        t.phase.eq("train") & (t.flops > CEILING_FACTOR * t.ceiling)
    ),
    "{energy_method} cannot measure the {energy_boundary} energy of device {device}": _is_not_covered,
    "{watts:,.0f} W; allowed for {energy_boundary}: up to {max_watts:,.0f}": lambda t: t.watts > t.max_watts,
    "{watts:,.3g} W in training, but {idle_watts:,.3g} W when idle": lambda t: (
        t.phase.eq("train") & (t.watts < IDLE_SHARE * t.idle_watts)
    ),
    "flops_per_sample is {flops_per_sample:.6g}; {model} has {counted_flops:.6g}": lambda t: (
        (t.flops_per_sample / t.counted_flops - 1).abs() > SAME_WORK
    ),
    "chosen is tuned, but no windows compare tuned with the reference": lambda t: (
        t.trained & ~t.failed & t.chosen.eq("tuned") & t.min_speedup.isna()
    ),
    "chosen is {chosen}, but tuned is {min_speedup:.3g} times as fast as the reference, or more": lambda t: (
        t.trained
        & ~t.failed
        & ((t.chosen.eq("tuned") & t.decides & (t.min_speedup <= 1)) | (t.chosen.eq("reference") & (t.min_speedup > 1)))
    ),
    "precision is {precision}, but {confirmed_precision} in the windows that compare tuned and reference": lambda t: (
        t.trained & t.chosen.notna() & t.confirmed_precision.notna() & (t.precision != t.confirmed_precision)
    ),
    "index is {index:.0f}; expected {next_index}": lambda t: t.next_index != t["index"],
    "samples is {samples:,.0f}, but the optimiser took {steps:,.0f} steps of {batch_size:.0f}": lambda t: (
        t.trained & (t.samples > (t.steps + t.skipped_steps) * t.batch_size)
    ),
    "source is {source}; allowed in measured rows: measured": lambda t: t.source != "measured",
    "commit {commit!r:.50}; allowed: 7 to 40 hexadecimal digits": lambda t: (
        t.commit.notna() & ~t.commit.str.fullmatch(COMMIT_PATTERN)
    ),
    **{
        f"{name} is {{{name}!r}}, but {{manifest_{name}!r}} in the manifest": _differs(name)
        for name in ("machine", "chip", "commit", "variant", "device", "point", "framework", "device_count")
    },
    "the manifest belongs to run {manifest_run}": _differs("run_id", "manifest_run"),
    "framework is {framework} {framework_version}, which is not among the manifest's packages": lambda t: (
        t.installed.eq("") | _differs("version", "installed")(t)
    ),
    "device is {device}, but the manifest's system is {system}": lambda t: (
        (t.device.isin(["mps", "metal"]) & t.is_mac.eq(False)) | (t.device.isin(["cuda", "tpu"]) & t.is_mac.eq(True))
    ),
    "device is {device}, but memory_method is {memory_method}, which measures the CPU's": lambda t: (
        (t.device != "cpu") & t.device.notna() & t.memory_method.eq("process_peak_resident")
    ),
    "peak_memory_bytes is {peak_memory_bytes:,.0f}, but the machine has {memory_bytes:,.0f}": lambda t: (
        t.device.eq("cpu") & (t.peak_memory_bytes > t.memory_bytes)
    ),
    "batch_size is {batch_size:.0f}; the parameters say {manifest_batch:g}": lambda t: (
        t.trained & t.manifest_batch.notna() & (t.batch_size != t.manifest_batch)
    ),
    f"precision is {{precision}}; allowed in variant reference: {', '.join(REFERENCE_PRECISIONS)}": lambda t: (
        t.trained
        & t.manifest_variant.eq("reference")
        & (t.manifest_precision.isna() | t.manifest_precision.eq("fp32"))
        & t.precision.notna()
        & ~t.precision.isin(REFERENCE_PRECISIONS)
    ),
    "dataset is {dataset}; the parameters say {manifest_dataset}": lambda t: (
        t.trained
        & t.manifest_dataset.isin(EXACT_NAMES)
        & _differs("dataset")(t)
        & (t.dataset.isin(EXACT_NAMES) | ~t.allow_embedded.astype(bool))
    ),
    "dataset_samples is {dataset_samples:,.0f}, which is not the size of {dataset}": lambda t: (
        (t.dataset.isin(ONE_FILE) & (t.dataset_samples < t.dataset.map(SIZES)))
        | (t.dataset_samples > t.dataset.map(SIZES))
    ),
    "parity steps are missing, repeated or not requested": lambda t: t.has_wrong_steps,
    "no parity rows; {manifest_parity:g} steps were requested": lambda t: t.trained & ~t.failed & t.no_parity,
    "parity is in {precision}, but training in {trained_precision}": lambda t: t.phase.eq("parity") & ~t.has_own_parity,
    "{windows_in_repeat} training windows; {manifest_windows:g} were requested": lambda t: (
        t.trained & ~t.failed & (t.windows_in_repeat < t.manifest_windows)
    ),
    "{windows} training windows; manifest: {num_samples:.0f}": lambda t: t.trained & (t.windows < t.num_samples),
    "its time is in the future": lambda t: t[["ended", "run_begun"]].max(axis=1) > time.time() + CLOCK_AHEAD_SECONDS,
    "it begins before the previous window ends": lambda t: t.overlap > CLOCK_ERROR_SECONDS,
    "it is before the run's start or after its end": lambda t: (
        (t.begun < t.run_begun - RUN_MARGIN_SECONDS) | (t.ended > t.run_ended + RUN_MARGIN_SECONDS)
    ),
    "a pause of {pause_seconds:.3g} s between windows of {window_seconds:.3g} s": lambda t: (
        t.trained & (t.pause_seconds > t.max_pause)
    ),
    "the times of its windows and of the manifest's samples differ by {clock_error:.3g} s": lambda t: (
        t.trained & (t.clock_error > CLOCK_ERROR_SECONDS + t.max_pause)
    ),
}


def copied_runs(rows: pandas.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield a row and a reason for each run with the times, or the page faults and memory, of an earlier run.

    They are random, so that two runs never have the same.
    """
    resident = rows["memory_method"].eq("process_peak_resident").fillna(False)
    memory = rows["peak_memory_bytes"].where(resident).fillna(0).astype(int)
    faults = rows["page_faults"].fillna(0).astype(int)
    noise = pandas.Series([*zip(memory, faults, strict=True)], rows.index)[(memory > 0) | (faults > 0)]
    windows, runs = rows.loc[rows["phase"] == "train", "seconds"].dropna(), rows["run_id"]
    seconds, counted = (values.groupby(runs, sort=False).agg(tuple) for values in (windows, noise))
    seconds, counted = seconds[seconds.map(len) > 1], counted[counted.map(lambda own: len(set(own))) > 1]
    firsts = {run_id: place for place, run_id in reversed([*runs.items()])}
    for what, digests in (("windows", seconds), ("page faults and memory", counted)):
        earliest: dict[tuple, str] = {}
        for run_id in sorted(digests.index, key=lambda run_id: run_id[:16]):  # by its time
            first = earliest.setdefault(digests[run_id], run_id)
            if first != run_id:
                yield firsts[run_id], f"its {what} are those of run {first}"


def similar_names(rows: pandas.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield a row and a reason for each run of a machine whose name looks like that of one that measured earlier."""
    first = rows.groupby("machine", sort=True)["run_id"].min().sort_values(kind="stable")
    seen: dict[str, str] = {}
    for machine in first.index:
        look = machine.lower().replace("rn", "m").replace("vv", "w").translate(CONFUSABLE)
        if (other := seen.setdefault(look, machine)) != machine:
            places = rows[rows["machine"] == machine].drop_duplicates("run_id").index
            yield from ((place, f"machine name {machine} is easily confused with {other}") for place in places)
