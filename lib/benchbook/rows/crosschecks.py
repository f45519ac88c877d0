"""Find rows that obey the schema but contradict themselves, each other or their run's manifest.

A mistake makes such rows, and no figure uses them: `validate`, `pack` and `add` refuse them, and a
report names their runs and leaves them out. Honest rows may be odd: `tests/test_crosschecks.py`
has examples, such as a laptop that slept or a clock that was set. What is doubtful is judged by
`judging.rules`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy
import pandas

from benchbook.machine import sessions
from benchbook.machine.identity import KIND_DIGITS
from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import files, networks, records
from benchbook.rows import manifests as described_runs
from benchbook.rows.schema import DTYPES

SAME_RATE = 1e-3  # relative tolerance between a rate and samples / seconds
MAX_SKIPPED_STEPS = (
    16  # a loss scaler may skip this many steps, and a tenth, until it finds its factor
)
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
RUN = ["machine", "study", "point", "run_id"]
RUNS = 200  # that are compared at a time


def _source(row: Mapping, known: Mapping) -> str:
    is_wrong = row["source"] != "measured"
    return f"source is {row['source']}; allowed in measured rows: measured" if is_wrong else ""


def _rate(row: Mapping, known: Mapping) -> str:
    rate, samples, seconds = row["samples_per_second"], row["samples"], row["seconds"]
    if abs(rate * seconds - samples) > SAME_RATE * samples:
        took = f"{samples:,.0f} samples took {seconds:.4g} s"
        return f"samples_per_second is {rate:,.4g}, but {took}"
    return ""


def _steps(row: Mapping, known: Mapping) -> str:
    samples, steps, size = row["samples"], row["steps"], row["batch_size"]
    precision = PRECISIONS.get(row["precision"])
    skipped = MAX_SKIPPED_STEPS + 0.1 * steps if precision and precision.needs_scaling else 0.0
    if row["phase"] == "train" and samples > (steps + skipped) * size:
        return f"samples is {samples:,.0f}, but the optimiser took {steps:,.0f} steps of {size:.0f}"
    return ""


def _mismatch(row: Mapping, known: Mapping) -> str:
    """The manifest contradicts a value."""
    is_window = row["phase"] == "train" and row["samples"] == row["samples"]
    for name in (*OF_ALL_ROWS, *OF_WINDOWS) if is_window else OF_ALL_ROWS:
        value, expected = row[name], known.get(name)
        is_given = value is not None and value == value
        is_given &= name != "dataset" or value in NAMED_DATA
        is_given &= (name, value) != ("model", records.YOURS)
        if expected and is_given and value != expected:
            texts = [
                f"{each:g}" if isinstance(each, float) else repr(each) for each in (value, expected)
            ]
            return f"{name} is {texts[0]}, but {texts[1]} in the manifest"
    return ""


# Each takes a row and the values that its manifest determines, and returns a contradiction or "".
RULES: tuple[Callable[[Mapping, Mapping], str], ...] = (_source, _rate, _steps, _mismatch)


def _by_run(rows: pandas.DataFrame) -> Iterator[tuple[str, list[dict]]]:
    """Yield each run with its rows as dictionaries, which take fifty times the memory of a row in
    a table: those of RUNS at a time."""
    places = [*rows.groupby("run_id", sort=False).indices.items()]
    for first in range(0, len(places), RUNS):
        some = places[first : first + RUNS]
        part = rows.iloc[numpy.concatenate([own for _, own in some])]
        texts = part[[name for name in DTYPES if name not in NUMBERS]].astype(object)
        table = part[NUMBERS].astype(float).join(texts.where(texts.notna(), None))
        lines = iter(table.to_dict("records"))
        for run_id, own in some:
            yield run_id, [*islice(lines, len(own))]


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
        found = own[["run_id", *columns]].dropna(subset=columns, how="all")
        found = found.sort_values("run_id", kind="stable").itertuples(index=False, name=None)
        for run_id, lines in groupby(found, itemgetter(0)):  # by its time
            values = tuple(line[1:] for line in lines)
            first = earliest.setdefault(values, run_id)
            if first != run_id and len(set(values)) > 1:
                copies[run_id] = (what, first)
    return copies


@dataclass(frozen=True)
class Checker:
    """Compares rows with each other and with manifests.

    Attributes:
        name_of: returns a point's name from its study and parameters; a name refers to the
            defaults of the study's Plan.
    """

    name_of: Callable[[str, dict], str]

    def complaints(self, rows: pandas.DataFrame, manifests: Mapping[str, dict]) -> dict[str, str]:
        """Return the first contradiction of each run that has one, as a line with its file.

        Args:
            rows: from `records.merge`, each run's in the order of its file.
            manifests: by run id; without one, a run's rows are only compared with each other.
        """
        copies, wrong = copied_runs(rows), {}
        for run_id, lines in _by_run(rows):
            try:
                known = self._known(manifests.get(run_id) or {}, lines[0]["study"])
                told = (
                    (line, rule(row, known)) for line, row in enumerate(lines, 2) for rule in RULES
                )
                fault = next((f"line {line}: {reason}" for line, reason in told if reason), "")
            except files.unexpected() as error:  # it must not end a report of other runs
                fault = f"line 2: it cannot be checked ({type(error).__name__}: {error})"
            if run_id in copies and not fault:
                fault = "line 2: its {} are those of run {}".format(*copies[run_id])
            if fault:
                wrong[run_id] = f"{'/'.join(lines[0][name] for name in RUN)}.csv, {fault}"
        return wrong

    def read(self, folder: Path, say: files.Say) -> tuple[pandas.DataFrame, dict[str, dict]]:
        """Return the rows below a folder that no check refuses, and the manifests there by run id;
        see `by_owner`.

        Args:
            folder: of runs, or a file of rows.
            say: called with a line for what is left out.
        """
        manifests = described_runs.read_all(folder, say)
        rows = self.consistent(records.gather(folder, say), manifests, say)
        return by_owner(rows, manifests, sessions.own()), manifests

    def consistent(
        self, rows: pandas.DataFrame, manifests: Mapping[str, dict], say: files.Say
    ) -> pandas.DataFrame:
        """Return the rows of runs without contradictions.

        Args:
            rows, manifests: see `complaints`.
            say: called with a line for each run that is left out.
        """
        found = self.complaints(rows, manifests)
        for line in found.values():
            say(f"left out: {line}")
        return rows[~rows["run_id"].isin(found)]

    def _known(self, manifest: Mapping, study: str) -> dict[str, object]:
        """Return the values of a run's rows that its manifest determines, by column; 0, "" or None:
        any."""
        parameters, machine = manifest.get("parameters") or {}, manifest.get("machine") or {}
        stated = {
            name: parameters.get(name) for name in ("variant", "device", "framework", *OF_WINDOWS)
        }
        known = {
            name: None if value in ("best", "image_folder") else value
            for name, value in stated.items()
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
                known["point"] = self.name_of(study, parameters) if "device" in parameters else None
            except (KeyError, TypeError, ValueError):  # an unknown study, or values that it refuses
                known["point"] = None
        return known
