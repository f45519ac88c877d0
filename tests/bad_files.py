"""Folders of rows with a fault each, made from committed runs by explicit changes. Nothing of benchbook.

Each holds two runs of one point (FIRST and SECOND) and a calibration, with their manifests. A few are accepted: what
was changed in them is no fault.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

POINT, OTHER = "reference-cpu-73e5d841", "20261122T041032Z-00000000"
FIRST, SECOND, CEILINGS = "20261122T041032Z-c2bed654", "20261122T042629Z-8d79fb95", "20261122T040919Z-41454362"

Files = dict[str, bytes]  # by path below the machine's folder
Change = Callable[[Files], None]


def base(machine: Path) -> Files:
    """Return the three runs that faults are made in.

    Args:
        machine: the folder of the committed machine's rows.
    """
    paths = [path for run in (FIRST, SECOND, CEILINGS) for path in machine.glob(f"*/*/{run}.*")]
    return {str(path.relative_to(machine)): path.read_bytes() for path in paths if path.suffix in (".csv", ".json")}


def place(files: Files, run: str = FIRST, suffix: str = ".csv") -> str:
    return next(path for path in files if path.endswith(f"{run}{suffix}"))


def cell(column: str, value: object, row: int | None = 8, run: str = FIRST) -> Change:
    """Write a value into a cell; the header is row 1, the first training window row 8. Row None: into every row."""

    def change(rows: list[dict]) -> list[dict]:
        for number, line in enumerate(rows, 2):
            if row in (None, number):
                line[column] = value(line[column]) if callable(value) else str(value)
        return rows

    return table(change, run)


def cells(**values: object) -> Change:
    """Write values into several columns of the first training window."""
    return together(*(cell(column, value) for column, value in values.items()))


def table(change: Callable[[list[dict]], list[dict]], run: str = FIRST) -> Change:
    """Change a run's rows."""

    def apply(files: Files) -> None:
        path = place(files, run)
        files[path] = as_csv(change(read_csv(files[path])))

    return apply


def of_both(change: Callable[[list[dict]], list[dict]]) -> Change:
    """Change the rows of both runs: a comparison with float64 counts for the point's session."""
    return together(table(change, FIRST), table(change, SECOND))


def read_csv(content: bytes) -> list[dict]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def as_csv(rows: list[dict]) -> bytes:
    """Return rows as a CSV of all columns that any of them has."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def content(change: Callable[[bytes], bytes], suffix: str = ".csv") -> Change:
    """Change the bytes of the first run's rows, or of its manifest."""

    def apply(files: Files) -> None:
        path = place(files, FIRST, suffix)
        files[path] = change(files[path])

    return apply


def manifest(**values: object) -> Change:
    """Replace values of the first run's manifest."""
    return content(lambda text: json.dumps(json.loads(text) | values).encode(), ".json")


def renamed(was: str, now: str, keep: bool = False) -> Change:
    """Replace a text in the first run's files and in their names; or hand these in as well."""

    def apply(files: Files) -> None:
        for path in (place(files), place(files, suffix=".json")):
            text = files[path] if keep else files.pop(path)
            files[path.replace(was, now)] = text.replace(was.encode(), now.encode())

    return apply


def copy_elsewhere(files: Files) -> None:
    """Put a run's rows into the folder of another point as well."""
    path = place(files)
    files[f"{path.split('/')[0]}/elsewhere/{FIRST}.csv"] = files[path]


def without_manifests(files: Files) -> None:
    for path in [path for path in files if path.endswith(".json")]:
        del files[path]


def together(*changes: Change) -> Change:
    return lambda files: [change(files) for change in changes] and None


def parameter(**values: object) -> Change:
    """Replace parameters in the first run's manifest."""

    def change(text: bytes) -> bytes:
        whole = json.loads(text)
        return json.dumps(whole | {"parameters": whole["parameters"] | values}).encode()

    return content(change, ".json")


def scale(line: dict, factor: float) -> dict:
    """Return a row whose window took so many times as long."""
    measured = line["seconds"] and line["phase"] == "train"
    changed = {"seconds": repr(float(line["seconds"]) * factor)} if measured else {}
    changed |= {"samples_per_second": repr(float(line["samples_per_second"]) / factor)} if measured else {}
    return line | changed


def tripled(rows: list[dict]) -> list[dict]:
    """Return rows whose windows took a third of their time, and began as much earlier."""
    first, changed = None, []
    for line in rows:
        if line["phase"] == "train":
            begun = datetime.fromisoformat(line["started_at"])
            first = first or begun
            line = scale(line, 1 / 3)
            line["started_at"] = (first + (begun - first) / 3).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        changed.append(line)
    return changed


def renumbered(rows: list[dict]) -> list[dict]:
    """Return rows whose indices have no gap."""
    counts, changed = Counter(), []
    for line in rows:
        changed.append(line | {"index": str(counts[line["phase"]])})
        counts[line["phase"]] += 1
    return changed


def swapped(files: Files) -> None:
    """Hand in the manifest of the second run as that of the first."""
    files[place(files, FIRST, ".json")] = files[place(files, SECOND, ".json")]


def rename(was: str, now: str) -> Change:
    """Rename a column in the header."""
    return content(lambda text: text.replace(f",{was},".encode(), f",{now},".encode(), 1))


def without(column: str) -> Change:
    return table(lambda rows: [{name: line[name] for name in line if name != column} for line in rows])


def scaled(factor: float) -> Callable[[str], str]:
    return lambda text: repr(float(text) * factor) if text else text


CASES: dict[str, Change] = {
    "nothing changed": lambda files: None,
    # a value that is not allowed
    "status of no list": cell("status", "fine"),
    "phase of no list": cell("phase", "training"),
    "variant of no list": cell("variant", "fastest", row=3),
    "source of no list": cell("source", "guessed"),
    "device of no list": cell("device", "gpu", row=14),
    "framework of no list": cell("framework", "theano"),
    "precision of no list": cell("precision", "fp8"),
    "truth in words": cell("compiled", "yes"),
    "batch of none": cell("batch_size", 0),
    "batch of a half": cell("batch_size", 64.5),
    "batch in words": cell("batch_size", "many", run=SECOND),
    "seconds below 0": cell("seconds", -1),
    "seconds with a comma": cell("seconds", "1,5"),
    "seconds without end": cell("seconds", "inf"),
    "seconds nan": cell("seconds", "nan"),
    "accuracy over 1": cell("accuracy", 1.5, row=14),
    "time in words": cell("started_at", "yesterday"),
    "time of no month": cell("started_at", "2026-13-45T00:00:00Z"),
    "settings torn": cell("settings", '{"seed": '),
    "settings a list": cell("settings", "[1]", row=2),
    "minutes in words": cell("settings", '{"sustained_minutes": "x"}'),
    "a price in words": cell("settings", '{"price_per_hour": "abc"}'),
    "a choice of none": cell("settings", '{"chosen": []}'),
    "a side in a list": cell("settings", '{"side": ["x"]}', run=SECOND),
    "settings too deep": cell("settings", "[" * 3000),
    "newer version": cell("schema_version", 99, row=None),
    "newer version in one row": cell("schema_version", 99, row=9),
    "version in words": cell("schema_version", "two"),
    "no run": cell("run_id", ""),
    "no machine": cell("machine", ""),
    "no study": cell("study", ""),
    "a run of no time": renamed(FIRST, "99999999T999999Z-c2bed654"),
    "energy without method": cell("energy_joules", 20),
    # rows that contradict themselves, one another or their manifest
    "rate 1 % off": cell("samples_per_second", scaled(1.01), row=13),
    "half the seconds": cell("seconds", scaled(0.5)),
    "an endless rate": cell("samples_per_second", "inf"),
    "endless operations": cell("flops_per_sample", "inf", row=None),
    "another precision than parity's": table(
        lambda rows: [line | ({"precision": "amp_bf16"} if line["phase"] == "train" else {}) for line in rows]
    ),
    "faster than its ceiling": together(  # three times as fast, as a network that nobody counted
        cell("parameters", 1, None), cell("flops_per_sample", scaled(10), row=None)
    ),
    "more watts than a package has": cells(energy_joules=1e6, energy_method="rapl", energy_boundary="package"),
    "other batch than asked": cell("batch_size", 128, row=None),
    "reference in half": cell("precision", "bf16", row=None),
    "other data than asked": cell("dataset", "cifar10", row=None),
    "another machine": cell("machine", "other", row=None),
    "another chip": cell("chip", "Apple M1", row=None),
    "another device": cell("device", "mps", row=None),
    "another variant": cell("variant", "controlled", row=None),
    "published among measured": cell("source", "published", row=None),
    "in the future": cell("started_at", "2199-01-01T00:00:00Z", row=14),
    "in a future that pandas lacks": cell("started_at", "2999-01-01T00:00:00Z", row=14),
    "a run copied": renamed(FIRST, OTHER, keep=True),
    "a run in two points": copy_elsewhere,
    "a row twice": table(lambda rows: [*rows, rows[-1]]),
    # rows that lie
    "times jittered": together(
        renamed(FIRST, OTHER, keep=True), table(lambda rows: [scale(line, 1.0123) for line in rows], OTHER)
    ),
    "a tenth slower": table(lambda rows: [scale(line, 1.1) for line in rows]),
    "a tenth faster": table(lambda rows: [scale(line, 0.9) for line in rows]),
    "an accuracy of no count": cell("accuracy", 0.94215, row=14),
    "operations doubled": cell("flops_per_sample", scaled(2.0), row=None),
    "samples doubled": table(lambda rows: [line | {"steps": int(line["samples"] or 0) // 128 or ""} for line in rows]),
    "rates tripled": table(lambda rows: [scale(line, 1 / 3) for line in rows]),
    "rates and starts tripled": table(lambda rows: tripled(rows)),
    "a CPU sold as a GPU": together(cell("device", "cuda", None), parameter(device="cuda")),
    "a CPU sold as a Mac": together(
        cell("device", "mps", None), cell("memory_method", "mps_driver_pool", None), parameter(device="mps")
    ),
    "a Mac's CPU": manifest(machine={"system": "macOS 15.1"}),
    "a GPU of no system": together(
        cell("device", "cuda", None),
        cell("device_name", "NVIDIA H200", None),
        cell("memory_method", "", None),
        parameter(device="cuda"),
    ),
    "a framework not asked for": together(cell("framework", "jax", None), parameter(framework="torch")),
    "two devices where one was asked for": cell("device_count", 2, None),
    "the manifest of another run": swapped,
    "a manifest that names another run": manifest(run_id=SECOND),
    "a manifest without packages": manifest(environment={"python": "3.11.7"}),
    "under another point's name": renamed(POINT, "tuned-cpu-3ee074f5"),
    "parameters of another point": parameter(batch_size=128, seed=2),
    "parity left out": of_both(lambda rows: [line for line in rows if line["phase"] != "parity"]),
    "a step of parity left out": of_both(lambda rows: renumbered([*rows[:2], *rows[3:]])),
    "more steps of parity asked for": parameter(num_parity_steps=20),
    "fewer windows than asked for": parameter(num_windows=7),
    "an hour ahead": renamed(FIRST, "21261122T041032Z-c2bed654"),
    # files that are no table, or not all of one
    "UTF-16": content(lambda text: text.decode().encode("utf-16")),
    "Latin-1": content(lambda text: text.replace(b"AMD EPYC", b"AMD \xc9PYC", 1)),
    "a NUL": content(lambda text: text.replace(b"AMD", b"A\x00D", 1)),
    "a byte-order mark": content(lambda text: b"\xef\xbb\xbf" + text),
    "lines of Windows": content(lambda text: text.replace(b"\n", b"\r\n")),
    "empty": content(lambda text: b""),
    "header alone": content(lambda text: text.partition(b"\n")[0] + b"\n"),
    "last line torn": content(lambda text: text[:-200]),
    "torn in a quote": content(lambda text: text[: text.rindex(b'"')]),
    "a cell too many": content(lambda text: text.rstrip(b"\n") + b",1,2\n"),
    "semicolons": content(lambda text: text.replace(b",", b";")),
    "an empty line": content(lambda text: text.replace(b"\n", b"\n\n", 3)),
    "a picture": content(lambda text: b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    "a column misspelt": rename("seconds", "secconds"),
    "a column unknown": rename("idle_watts", "room_temperature"),
    "a needed column missing": without("phase"),
    "a column twice": rename("idle_watts", "seconds"),
    # manifests
    "manifests missing": without_manifests,
    "manifest torn": content(lambda text: text[: len(text) // 2], ".json"),
    "manifest a list": content(lambda text: b"[]", ".json"),
    "manifest in UTF-16": content(lambda text: text.decode().encode("utf-16"), ".json"),
    "manifest too deep": content(lambda text: b"[" * 100_000, ".json"),
    "memory in words": manifest(machine={"name": "amd-epyc-2core-24gb", "memory_bytes": "24 GB"}),
    "memory that is no number": manifest(machine={"memory_bytes": float("nan")}),
    "memory without end": manifest(machine={"memory_bytes": float("inf")}),
    "a device of no text": manifest(parameters={"device": 5}),
    "data in a list": manifest(parameters={"dataset": ["mnist"]}),
    "a chip in a list": manifest(machine={"chip": ["AMD EPYC"]}),
    "a commit of no text": manifest(commit=5),
    "a search without settings": manifest(tuning={"chosen": "tuned"}),
    "masks without a start": manifest(masks={"end": []}),
    "a machine of no object": manifest(machine="amd-epyc-2core-24gb"),
    "conditions no list": manifest(conditions={}),
    "a condition without time": manifest(conditions=[{"repeat": 0, "index": 0}]),
    "seconds of a process true": manifest(process_seconds=True),
    "parameters that lead elsewhere": manifest(parameters={"variant": "reference", "device": "../../x"}),
}
