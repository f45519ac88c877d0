"""Find rows that obey the schema but contradict themselves, each other or their run's manifest.

A contradiction does not prove a lie, but no figure uses such rows: `validate`, `pack` and `add`
refuse them, and a report names their runs and leaves them out. What is missing is said, and
contradicts nothing. Honest rows may be odd: `tests/test_crosschecks.py` has examples, such as a
laptop that slept or a clock that was set.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

import pandas

from benchbook.machine import sessions
from benchbook.machine.identity import KIND_DIGITS
from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import ceilings, files, networks, points, records
from benchbook.rows import manifests as described_runs
from benchbook.rows.schema import DTYPES, listed

SAME_RATE = 1e-3  # relative tolerance between a rate and samples / seconds
CEILING_FACTOR = (
    2.5  # times the rate of a matrix product: fast convolutions (Winograd) save at most that much
)
MAX_WATTS = {
    "board": 2_000.0,
    "soc": 500.0,
    "package": 5_000.0,
}  # per device, by boundary; eight sockets are one CPU
MAX_SKIPPED_STEPS = (
    16  # a loss scaler may skip this many steps, and a tenth, until it finds its factor
)
# By how much the manifest's clock may differ from windows' seconds: down in a window, up in the
# median of a run, whose process may lose the CPU between two clocks; and what a window and the
# writing of its row may take.
CLOCK_ROUNDING, CLOCK_SECONDS, CLOCK_SHARE, WRITING_SECONDS = 0.002, 0.02, 0.02, 0.08
NAMED_DATA = (
    "mnist",
    "cifar10",
    "imagenet",
    "synthetic",
)  # data sets whose name proves what was loaded
# The columns that a manifest may determine, of all rows and of training windows.
OF_ALL_ROWS = ("machine", "chip", "run_id", "point", "variant", "device", "framework")
OF_WINDOWS = (
    "device_count",
    "precision",
    "model",
    "dataset",
    "batch_size",
    "image_size",
    "sequence_length",
)
NUMBERS = [name for name, dtype in DTYPES.items() if dtype in ("Int64", "Float64")]
CEILING = [
    "machine",
    "session",
    "device",
    "precision",
]  # what a device's rate of matrix products depends on
RUN = ["machine", "study", "point", "run_id"]
COLUMNS = [*RUN, "line", "rule", "reason"]
# A name, the reason as a template, and whether a row is wrong for it; `_complete` sets the names
# that are no columns.
RULES: list[tuple[str, str, Callable[[SimpleNamespace], bool]]] = [
    (
        "source",
        "source is {source}; allowed in measured rows: measured",
        lambda r: r.source != "measured",
    ),
    (
        "rate",
        "samples_per_second is {samples_per_second:,.4g}, but {samples:,.0f} samples took {seconds:.4g} s",
        lambda r: abs(r.samples_per_second * r.seconds - r.samples) > SAME_RATE * r.samples,
    ),
    (
        "steps",
        "samples is {samples:,.0f}, but the optimiser took {steps:,.0f} steps of {batch_size:.0f}",
        lambda r: r.trained and r.samples > (r.steps + r.skipped_steps) * r.batch_size,
    ),
    (
        "ceiling",
        f"{{flops:.3g}} FLOP/s is over {CEILING_FACTOR:g} times the measured ceiling of {{ceiling:.3g}}",
        lambda r: r.trained and r.flops > CEILING_FACTOR * r.ceiling,
    ),
    (
        "watts",
        "{energy_joules:,.0f} J in {seconds:.3g} s is more than a {energy_boundary} draws",
        lambda r: (
            r.energy_joules > MAX_WATTS.get(r.energy_boundary, math.inf) * r.count * r.seconds
        ),
    ),
    ("manifest", "{mismatch}", lambda r: r.mismatch),
    (
        "clock",
        "by the manifest's clock, windows took {clock_error:+.3g} s more",
        lambda r: r.trained and r.clock_error,
    ),
    ("copy", "its {copied} are those of run {original}", lambda r: r.original),
]


def complaints(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> pandas.DataFrame:
    """Return the contradictions in rows, one line for each run and rule.

    Args:
        rows: from `records.merge`, each run's in the order of its file.
        manifests: by run id; without one, a run's rows are only compared with each other.

    Returns:
        Columns: machine, study, point, run_id, line (in the run's file; the header is line 1),
        rule, reason.
    """
    texts = rows[[name for name in DTYPES if name not in NUMBERS]].astype(object)
    table = rows[NUMBERS].astype(float).join(texts.where(texts.notna(), None))
    runs: dict[str, list[SimpleNamespace]] = {}
    for values in table.to_dict("records"):
        runs.setdefault(values["run_id"], []).append(SimpleNamespace(**values))
    products = ceilings.ceilings(rows).query("model == 'matmul'").groupby(CEILING)["rate"]
    best, copies = products.max().to_dict(), copied_runs(rows)
    found = []
    for run_id, lines in runs.items():
        try:
            _complete(lines, manifests.get(run_id) or {}, best, copies.get(run_id, ("", "")))
            for name, sentence, is_wrong in RULES:
                number = next(
                    (number for number, line in enumerate(lines, 2) if is_wrong(line)), None
                )
                if number is not None:
                    found.append(
                        (lines[0], number, name, sentence.format_map(vars(lines[number - 2])))
                    )
        except files.unexpected as error:  # it must not end a report of other runs
            found.append(
                (lines[0], 2, "checked", f"it cannot be checked ({type(error).__name__}: {error})")
            )
    result = [[*(getattr(line, name) for name in RUN), *complaint] for line, *complaint in found]
    table = pandas.DataFrame(result, columns=COLUMNS)
    return table.sort_values(["run_id", "line"], kind="stable", ignore_index=True)


def lacks(rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> list[str]:
    """Return what is missing: a line with the runs without packages in a manifest, and one for
    each gap in processes.

    Processes of a point are numbered in each session; a gap shows that a file was lost or removed.
    """
    environments = {
        run_id: manifest.get("environment") or {} for run_id, manifest in manifests.items()
    }
    ids = [
        run_id
        for run_id in rows["run_id"].unique()
        if not environments.get(run_id, {}).get("packages")
    ]
    lines = [f"unproven: {len(ids)} without packages in a manifest ({listed(ids)})"] * bool(ids)
    numbers = rows["run_id"].map(
        {run_id: manifest.get("process") for run_id, manifest in manifests.items()}
    )
    for (*point, _), own in (
        numbers.dropna().astype(int).groupby([rows[name] for name in [*RUN[:3], "session"]])
    ):
        if missing := set(range(1, own.max())) - {*own}:
            lines.append(
                f"{'/'.join(point)}: no rows of process {listed(missing)}, though of process {own.max()}"
            )
    return lines


def read(folder: Path, say: files.Say) -> tuple[pandas.DataFrame, dict[str, dict]]:
    """Return the rows below a folder that no check refuses, and the manifests there by run id;
    see `by_owner`.

    Args:
        folder: of runs, or a file of rows.
        say: called with a line for what is left out, and for what is missing.
    """
    manifests = described_runs.read_all(folder, say)
    rows = consistent(records.gather(folder, say), manifests, say)
    return by_owner(rows, manifests, sessions.own()), manifests


def by_owner(
    rows: pandas.DataFrame, manifests: Mapping[str, dict], own: Collection[str]
) -> pandas.DataFrame:
    """Return rows in which different computers with the same machine name have different names.

    The reader's own sessions keep the name. If there are others, or several fingerprints, the
    first four digits of a run's fingerprint, or `unknown` if its manifest has none, follow the
    name of the others in brackets.

    Args:
        rows: measured rows.
        manifests: of their runs by run id, which have the fingerprints.
        own: the reader's sessions, see `sessions.own`.
    """
    kinds = {
        run_id: ((manifest.get("machine") or {}).get("fingerprint") or "")[:KIND_DIGITS]
        or "unknown"
        for run_id, manifest in manifests.items()
    }
    is_own, kind = rows["session"].isin(own), rows["run_id"].map(kinds).astype("string")
    has_own = is_own.groupby(rows["machine"]).transform("any")
    kind = kind.fillna("unknown").where(has_own, kind)  # missing if a run has no manifest
    several = kind.mask(is_own, "own").groupby(rows["machine"]).transform("nunique") > 1
    named = rows["machine"] + " (" + kind + ")"
    return rows.assign(machine=rows["machine"].mask(several & kind.notna() & ~is_own, named))


def consistent(
    rows: pandas.DataFrame, manifests: Mapping[str, dict], say: files.Say
) -> pandas.DataFrame:
    """Return the rows of runs without contradictions.

    Args:
        rows, manifests: see `complaints`.
        say: called with a line for each run that is left out, and those of `lacks`.
    """
    table = complaints(rows, manifests)
    for line in table.drop_duplicates("run_id").itertuples():
        say(f"left out: {describe(line)}")
    kept = rows[~rows["run_id"].isin(table["run_id"])]
    for line in lacks(kept, manifests):
        say(line)
    return kept


def describe(complaint) -> str:
    """Return a line of `complaints` as text: file, line and reason."""
    return (
        f"{complaint.machine}/{complaint.study}/{complaint.point}/{complaint.run_id}.csv, line {complaint.line}:"
        f" {complaint.reason}"
    )


def _complete(
    lines: list[SimpleNamespace], manifest: Mapping, best: Mapping, copy: tuple[str, str]
) -> None:
    """Set the further names of `RULES` in a run's rows, from its manifest and from other rows."""
    known, clock_error = _known(manifest, lines[0].study), _clock_error(lines, manifest)
    for r in lines:
        r.count = 1.0 if math.isnan(r.device_count) else r.device_count
        r.trained = r.phase == "train" and not math.isnan(r.samples)
        is_scaled = r.precision in PRECISIONS and PRECISIONS[r.precision].needs_scaling
        r.skipped_steps = MAX_SKIPPED_STEPS + 0.1 * r.steps if is_scaled else 0.0
        r.flops = r.samples_per_second * r.flops_per_sample
        products = ceilings.ARITHMETIC.get(r.precision, r.precision)
        r.ceiling = best.get((r.machine, r.session, r.device, products), math.inf)
        r.ceiling *= 1.0 if r.device == "cpu" else r.count
        r.mismatch, r.clock_error, (r.copied, r.original) = _mismatch(r, known), clock_error, copy


def _known(manifest: Mapping, study: str) -> dict[str, object]:
    """Return the values of a run's rows that its manifest determines, by column; 0, "" or None:
    any."""
    parameters, machine = manifest.get("parameters") or {}, manifest.get("machine") or {}
    stated = {
        name: parameters.get(name) for name in ("variant", "device", "framework", *OF_WINDOWS)
    }
    known = {
        name: None if value in ("best", "image_folder") else value for name, value in stated.items()
    }
    known |= {
        "machine": machine.get("name"),
        "chip": machine.get("chip"),
        "run_id": manifest.get("run_id"),
    }
    if parameters:
        known["device_count"] = parameters.get("device_count") or 1
        is_plain = (
            parameters.get("variant") == "reference"
        )  # others may compute in another precision
        known["precision"] = (parameters.get("precision") or "fp32") if is_plain else None
        context = networks.describe(str(parameters.get("model"))).sequence_length
        known["sequence_length"] = parameters.get("sequence_length") or context
        try:
            known["point"] = (
                points.name_of(study, parameters)
                if points.name_of and "device" in parameters
                else None
            )
        except (KeyError, TypeError, ValueError):  # an unknown study, or values that it refuses
            known["point"] = None
    return known


def _mismatch(line: SimpleNamespace, known: Mapping[str, object]) -> str:
    """Return the first value of a row that its manifest contradicts, as text; empty if there is
    none."""
    for name in (*OF_ALL_ROWS, *OF_WINDOWS) if line.trained else OF_ALL_ROWS:
        value, expected = getattr(line, name), known.get(name)
        is_given = (
            value is not None and value == value and (name != "dataset" or value in NAMED_DATA)
        )
        is_given &= (name, value) != ("model", records.YOURS)
        if expected and is_given and value != expected:
            texts = [
                f"{each:g}" if isinstance(each, float) else repr(each) for each in (value, expected)
            ]
            return f"{name} is {texts[0]}, but {texts[1]} in the manifest"
    return ""


def _clock_error(lines: list[SimpleNamespace], manifest: Mapping) -> float:
    """Return by how many seconds the manifest's clock contradicts the lengths of a run's
    windows; 0: it does not.

    The clock stops while the computer sleeps, and nothing sets it. A window's own reading covers
    the window alone; without one, the time since the sample before includes writing the row.
    """
    clock, slack = {}, CLOCK_SECONDS
    for before, after in itertools.pairwise(manifest.get("conditions") or ()):
        own = after.get("window_awake_seconds")
        since = after["awake_seconds"] - before["awake_seconds"]
        clock[after.get("repeat"), after.get("index")] = own or since
        slack = slack if own else CLOCK_SECONDS + WRITING_SECONDS
    windows = [
        r for r in lines if r.phase == "train" and r.seconds >= 0 and (r.repeat, r.index) in clock
    ]
    errors = [clock[r.repeat, r.index] - r.seconds for r in windows]
    if min(errors, default=0.0) < -CLOCK_ROUNDING:
        return min(errors)
    error = statistics.median(errors or [0.0])
    most = slack + CLOCK_SHARE * statistics.median([r.seconds for r in windows] or [0.0])
    return error if error > most else 0.0


def copied_runs(rows: pandas.DataFrame) -> dict[str, tuple[str, str]]:
    """Return by run what it shares with an earlier run, and that run: times, or page faults and
    memory.

    They are random, so that two runs never have the same.
    """
    copies, resident = {}, rows[rows["memory_method"].eq("process_peak_resident").fillna(False)]
    parts = {"windows": (rows[rows["phase"] == "train"], ["seconds"])}
    parts["page faults and memory"] = (resident, ["page_faults", "peak_memory_bytes"])
    for what, (own, columns) in parts.items():
        earliest: dict[tuple, str] = {}
        for run_id, lines in own.dropna(subset=columns, how="all").groupby("run_id")[
            columns
        ]:  # by its time
            values = tuple(lines.itertuples(index=False, name=None))
            first = earliest.setdefault(values, run_id)
            if first != run_id and len(set(values)) > 1:
                copies[run_id] = (what, first)
    return copies
