"""Measure the time and memory of reading and of a report, for growing numbers of files of rows.

Run it with `make bench STUDIES=scale`. The files are copies of the committed rows with other
machines, sessions, runs, times and counters, with rates a few percent apart and matching
manifests; each machine has one file of each committed point. A report that leaves any of them
out is a failure. Limits: for 5,000 files, 250 MiB to read them, 600 MB in the largest process of
the report and 1 MB of points.html; from 5,000 files on, 12 times the CPU seconds of reading them
for the report; for twice as many files, 2.5 times the CPU seconds; for a page, 3 MB. Broken limits
are printed, and the exit status is then 1.
"""

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy

from benchbook.machine import layout

ORIGINALS = layout.root() / "outputs" / "runs"
FILES_OF_MACHINE = 50
READING = """
from benchbook.machine import layout
from benchbook.studies.checks import CHECKS
CHECKS.read(layout.outputs() / "runs", print)
"""
# copies are up to this share faster than their original, so that their windows never overlap
FASTEST = 0.1
MOST_TIMES, MOST_BYTES, MOST_PAGE_BYTES, JUDGED_FILES = 12.0, 600e6, 3e6, 5_000
MOST_READING, MOST_POINTS_BYTES = 250 * 2**20, 1e6
MOST_GROWTH = 1.25  # of the CPU seconds per file, from one number of files to the next
TIMES = ("seconds", "input_seconds")
COUNTERS = ("page_faults", "peak_memory_bytes")  # two runs never have the same


def write(originals: list[Path], folder: Path, count: int) -> None:
    """Write copies of runs, with their manifests, as `outputs/runs` holds them.

    Args:
        originals: CSV files of runs, with their manifests in the same folders.
        folder: gets a folder for each machine.
        count: number of files of rows.
    """
    read = [(path, *_read(path)) for path in originals]
    random, computer = numpy.random.default_rng(0), read[0][2]["machine"]  # one kind for all
    for number in range(count):
        path, rows, manifest = read[number % FILES_OF_MACHINE % len(read)]
        machine, again = number // FILES_OF_MACHINE, number % FILES_OF_MACHINE // len(read)
        name, earlier = f"machine-{machine:03d}", timedelta(days=machine * 2 + again)
        session, run_id = (
            f"{_earlier_name(text, earlier)}-{number:08x}"
            for text in (rows[0]["session"], path.stem)
        )
        for row in (copies := [dict(row) for row in rows]):
            row |= {"machine": name, "session": session, "run_id": run_id}
            row["chip"] = computer["chip"]
            row |= {key: str(int(row[key]) + number) for key in COUNTERS if row.get(key)}
            row |= _faster(row, 1 - FASTEST * random.random())
            if row["started_at"]:
                row["started_at"] = _earlier(row["started_at"], earlier)
        target = folder / name / path.parent.parent.name / path.parent.name / f"{run_id}.csv"
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(copies)
        described = manifest | {"run_id": run_id, "machine": computer | {"name": name}}
        target.with_suffix(".json").write_text(json.dumps(described), encoding="utf-8")


def _read(path: Path) -> tuple[list[dict], dict]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file)), json.loads(
            path.with_suffix(".json").read_text(encoding="utf-8")
        )


def _earlier_name(text: str, by: timedelta) -> str:
    return f"{datetime.strptime(text.partition('Z')[0], '%Y%m%dT%H%M%S') - by:%Y%m%dT%H%M%S}Z"


def _earlier(text: str, by: timedelta) -> str:
    moment = datetime.fromisoformat(text) - by
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _faster(row: dict, factor: float) -> dict:
    times = {name: float(row[name]) * factor for name in TIMES if row[name]}
    rate = row["samples_per_second"]
    return times | ({"samples_per_second": float(rate) / factor} if rate else {})


def run(outputs: Path, *arguments: str) -> tuple[float, float, int]:
    """Run Python over a folder; return its wall seconds, its CPU seconds, and the bytes of its
    largest process.

    Raises:
        RuntimeError: it failed.
    """
    environment = os.environ | {"BENCHBOOK_OUTPUTS": str(outputs)}
    log = outputs / "log"
    with log.open("w") as file:
        command = [sys.executable, *arguments]
        actions = [(os.POSIX_SPAWN_DUP2, file.fileno(), descriptor) for descriptor in (1, 2)]
        started = time.monotonic()
        process = os.posix_spawn(sys.executable, command, environment, file_actions=actions)
        _, status, used = os.wait4(process, 0)  # includes the report's child processes
    clock = time.monotonic() - started
    if status:
        raise RuntimeError(f"{arguments} failed in {outputs}: {log.read_text()[-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    return clock, used.ru_utime + used.ru_stime, used.ru_maxrss * unit


def main() -> None:
    """Print a line for each number of files; exit 1 if a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--files",
        type=int,
        nargs="+",
        default=[250, 1_000, 5_000, 10_000],
        help="how many, ascending",
    )
    options = parser.parse_args()
    files = sorted(ORIGINALS.rglob("*Z-*.csv"))
    originals = list({path.parts[-3:-1]: path for path in files}.values())  # one of each point
    broken, before = [], None
    print(
        f"{'files':>6} {'MiB to read':>12} {'CPU s to read':>14} {'seconds':>8} {'CPU seconds':>12}"
        f" {'CPU ms a file':>14} {'MB':>6} {'largest page, MB':>17} {'points.html, MB':>16}"
    )
    for count in options.files:
        with tempfile.TemporaryDirectory() as folder:
            outputs = Path(folder)
            write(originals, outputs / "runs", count)
            _, read_seconds, reading = run(outputs, "-c", READING)
            clock, seconds, size = run(outputs, "-m", "benchbook", "report")
            pages = {path.name: path.stat().st_size for path in (outputs / "report").glob("*.html")}
            page, points = max(pages.values()), pages["points.html"]
            left_out = json.loads((outputs / "figures" / "left-out.json").read_text())
        line = f"{count:6} {reading / 2**20:12.0f} {read_seconds:14.1f} {clock:8.1f}"
        line += f" {seconds:12.1f} {1000 * seconds / count:14.1f}"
        line += f" {size / 1e6:6.0f} {page / 1e6:17.2f} {points / 1e6:16.2f}"
        print(line, flush=True)
        faults = {
            f"{len(left_out)} left out: {left_out[:1]}": bool(left_out),
            f"over {MOST_READING / 2**20:.0f} MiB to read": count <= JUDGED_FILES
            and reading > MOST_READING,
            f"over {MOST_TIMES:g} times as long as reading": count >= JUDGED_FILES
            and seconds > MOST_TIMES * read_seconds,
            f"over {MOST_BYTES / 1e6:.0f} MB": count <= JUDGED_FILES and size > MOST_BYTES,
            f"a page over {MOST_PAGE_BYTES / 1e6:g} MB": page > MOST_PAGE_BYTES,
            f"points.html over {MOST_POINTS_BYTES / 1e6:g} MB": count <= JUDGED_FILES
            and points > MOST_POINTS_BYTES,
            "CPU seconds per file grew too much": before is not None
            and seconds / count > MOST_GROWTH * before,
        }
        broken += [f"{count} files: {fault}" for fault, is_so in faults.items() if is_so]
        before = seconds / count
    print(f"Limits broken: {'; '.join(broken) or 'none'}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
