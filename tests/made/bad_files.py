"""Folders of rows with a fault each, made from committed runs by explicit changes. Nothing of
benchbook.

Each holds two runs of one point (FIRST and SECOND) and a calibration, with their manifests. A
few are accepted: what was changed in them is no fault. test_records.py has more wrong values,
and test_crosschecks.py more contradictions.
"""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

FIRST, SECOND, CEILINGS = (
    "20261122T041032Z-c2bed654",
    "20261122T042629Z-8d79fb95",
    "20261122T040919Z-41454362",
)

Files = dict[str, bytes]  # by path below the machine's folder
Change = Callable[[Files], None]


def base(machine: Path) -> Files:
    """Return the three runs that faults are made in.

    Args:
        machine: the folder of the committed machine's rows.
    """
    paths = [path for run in (FIRST, SECOND, CEILINGS) for path in machine.glob(f"*/*/{run}.*")]
    return {
        str(path.relative_to(machine)): path.read_bytes()
        for path in paths
        if path.suffix in (".csv", ".json")
    }


def place(files: Files, run: str = FIRST, suffix: str = ".csv") -> str:
    return next(path for path in files if path.endswith(f"{run}{suffix}"))


def cell(column: str, value: object, row: int | None = 8, run: str = FIRST) -> Change:
    """Write a value into a cell; the header is row 1, the first training window row 8. Row None:
    into every row."""

    def change(rows: list[dict]) -> list[dict]:
        for number, line in enumerate(rows, 2):
            if row in (None, number):
                line[column] = value(line[column]) if callable(value) else str(value)
        return rows

    return table(change, run)


def table(change: Callable[[list[dict]], list[dict]], run: str = FIRST) -> Change:
    """Change a run's rows."""

    def apply(files: Files) -> None:
        path = place(files, run)
        files[path] = as_csv(change(read_csv(files[path])))

    return apply


def read_csv(content: bytes) -> list[dict]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def as_csv(rows: list[dict]) -> bytes:
    """Return rows as a CSV of all columns that any of them has."""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n"
    )
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


def renamed(was: str, now: str) -> Change:
    """Replace a text in the first run's files and in their names."""

    def apply(files: Files) -> None:
        for path in (place(files), place(files, suffix=".json")):
            files[path.replace(was, now)] = files.pop(path).replace(was.encode(), now.encode())

    return apply


def copy_elsewhere(files: Files) -> None:
    """Put a run's rows into the folder of another point as well."""
    path = place(files)
    files[f"{path.split('/')[0]}/elsewhere/{FIRST}.csv"] = files[path]


def another(name: str, content: bytes = b"\x00\x05\x16\x07") -> Change:
    """Put a file that another program left next to the first run's rows; {} is the run's name."""

    def apply(files: Files) -> None:
        path = place(files)
        files[path.replace(f"{FIRST}.csv", name.format(FIRST))] = content

    return apply


def copy_next_to_it(name: str) -> Change:
    """Put a copy of the first run's rows next to them; {} is the run's name."""
    return lambda files: another(name, files[place(files)])(files)


def without_manifests(files: Files) -> None:
    for path in [path for path in files if path.endswith(".json")]:
        del files[path]


# The names of helper columns, of today and of earlier versions.
HELPERS = [
    "system",
    "clock",
    "versions",
    "num_samples",
    "process_seconds",
    "is_mac",
    "allow_embedded",
    "manifest_x",
]
HELPERS += [
    "rate",
    "ceiling",
    "verdict",
    "low",
    "high",
    "interval",
    "num_windows",
    "title",
    "line",
    "rule",
    "reason",
]
CASES: dict[str, Change] = {
    "nothing changed": lambda files: None,
    # a value that is not allowed
    "status of no list": cell("status", "fine"),
    "time of no month": cell("started_at", "2026-13-45T00:00:00Z"),
    "too many digits of a second": cell("started_at", f"2026-11-22T04:10:42.{'1' * 20}Z"),
    "minutes in words": cell("settings", '{"sustained_minutes": "x"}'),
    "a price in words": cell("settings", '{"price_per_hour": "abc"}'),
    "a choice of none": cell("settings", '{"chosen": []}'),
    "a side in a list": cell("settings", '{"side": ["x"]}', run=SECOND),
    "settings too deep": cell("settings", "[" * 3000),
    "no machine": cell("machine", ""),
    "a run of no time": renamed(FIRST, "99999999T999999Z-c2bed654"),
    # rows that contradict themselves, one another or their manifest
    "endless operations": cell("flops_per_sample", "inf", row=None),
    "another machine": cell("machine", "other", row=None),
    "another device": cell("device", "mps", row=None),
    "another variant": cell("variant", "controlled", row=None),
    "in a future that pandas lacks": cell("started_at", "2999-01-01T00:00:00Z", row=14),
    "a run in two points": copy_elsewhere,
    "a manifest that names another run": manifest(run_id=SECOND),
    # files that are no table, or not all of one
    "UTF-16": content(lambda text: text.decode().encode("utf-16")),
    "a NUL": content(lambda text: text.replace(b"AMD", b"A\x00D", 1)),
    "a byte-order mark": content(lambda text: b"\xef\xbb\xbf" + text),
    "lines of Windows": content(lambda text: text.replace(b"\n", b"\r\n")),
    "tabs for commas": content(lambda text: text.replace(b",", b"\t")),
    "semicolons for commas": content(lambda text: text.replace(b",", b";")),
    # files of other programs
    "Finder's file": another("._{}.csv"),
    "Finder's file of a manifest": another("._{}.json"),
    "a lock": another(".~lock.{}.csv#"),
    "an editor's lock": another("~${}.csv"),
    "a hidden folder": copy_next_to_it(".ipynb_checkpoints/{}.csv"),
    "a second download": copy_next_to_it("{} (1).csv"),
    "a copy of Windows": copy_next_to_it("{} - Copy.csv"),
    "a conflict of Dropbox": copy_next_to_it("{} (desk's conflicted copy 2026-11-22).csv"),
    "a conflict of Syncthing": copy_next_to_it("{}.sync-conflict-20261122-041032-ABCDEFG.csv"),
    "a copy of a manifest": another("{} (1).json", b"{"),
    "header alone": content(lambda text: text.partition(b"\n")[0] + b"\n"),
    "last line torn": content(lambda text: text[:-200]),
    "torn in a quote": content(lambda text: text[: text.rindex(b'"')]),
    "a cell too many": content(lambda text: text.rstrip(b"\n") + b",1,2\n"),
    "an empty line": content(lambda text: text.replace(b"\n", b"\n\n", 3)),
    "columns of our own helpers": table(
        lambda rows: [row | dict.fromkeys(HELPERS, "x") for row in rows]
    ),
    "a column twice": content(lambda text: text.replace(b",idle_watts,", b",seconds,", 1)),
    # manifests
    "manifests missing": without_manifests,
    "manifest with a byte-order mark": content(lambda text: b"\xef\xbb\xbf" + text, ".json"),
    "manifest in UTF-16": content(lambda text: text.decode().encode("utf-16"), ".json"),
    "manifest too deep": content(lambda text: b"[" * 100_000, ".json"),
}
MANIFESTS = """
memory that is no number: {"machine": {"memory_bytes": NaN}}
memory without end: {"machine": {"memory_bytes": Infinity}}
a device of no text: {"parameters": {"device": 5}}
data in a list: {"parameters": {"dataset": ["mnist"]}}
a chip in a list: {"machine": {"chip": ["AMD EPYC"]}}
a search without settings: {"tuning": {"chosen": "tuned"}}
conditions no list: {"conditions": {}}
a number that no float holds: {"conditions": [{"awake_seconds": 1%s, "elapsed_seconds": 1, "index": 0}]}
seconds of a process true: {"process_seconds": true}
parameters that lead elsewhere: {"parameters": {"variant": "reference", "device": "../../x"}}
""" % ("0" * 400)
for _line in MANIFESTS.strip().splitlines():
    _name, _, _values = _line.partition(": ")
    CASES[_name] = manifest(**json.loads(_values))
