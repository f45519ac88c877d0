"""Rows to test with: a valid training window, with what a test needs changed, and the committed
machine."""

import json
import stat
import zipfile
from pathlib import Path

import pandas
import yaml

from benchbook.machine import layout
from benchbook.rows import records

# The committed machine. Other folders in outputs/runs may have been measured in this checkout.
COMMITTED = layout.root() / "outputs" / "runs" / "amd-epyc-2core-24gb"

ROW = yaml.safe_load("""
{session: session-1, run_id: run-1, study: mnist_speedup, variant: reference, point: reference-cpu, machine: desk,
 chip: Chip A, source: measured, device: cpu, framework: torch, model: mnist_cnn, dataset: mnist,
 dataset_samples: 60000, batch_size: 64, phase: train, repeat: 0, index: 0, samples: 640, seconds: 2.0,
 input_seconds: 0.5, samples_per_second: 320.0, status: ok}
""")


def make_row(**columns) -> dict:
    """Return one measured training window of 640 images in 2 seconds, with these columns
    changed."""
    return {"schema_version": records.SCHEMA_VERSION, **ROW, "settings": {}} | columns


def windows(rates, **columns) -> list[dict]:
    """Return a training window of 640 images for each rate, in images a second, with these
    columns changed."""
    lines = []
    for index, rate in enumerate(rates):
        row = make_row(**{"index": index, "samples_per_second": rate and float(rate)} | columns)
        lines.append(
            {"seconds": row["samples"] / row["samples_per_second"]}
            if rate and row["samples"]
            else {}
        )
        lines[-1] = row | lines[-1] | columns
    return lines


def write(*rows: dict) -> Path:
    """Append rows where measured ones lie, a file for each run; return the folder of all
    machines."""
    for row in rows:
        folder = layout.point(row["machine"], row["study"], row["point"])
        folder.mkdir(parents=True, exist_ok=True)
        records.append(folder / f"{row['run_id']}.csv", row)
    return layout.outputs() / "runs"


def write_machine(machine: str, files: dict[str, bytes]) -> Path:
    """Write a machine's files where measured rows lie; return the folder of all machines."""
    for name, content in files.items():
        path = layout.outputs() / "runs" / machine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return layout.outputs() / "runs"


def make_rows(rows: list[dict]) -> pandas.DataFrame:
    """Return rows as a frame with the schema's types, unchecked; no rows make an empty frame of
    the same types."""
    table = pandas.DataFrame(rows, columns=records.COLUMNS, dtype=object)
    settings = [json.loads(each) if isinstance(each, str) else each for each in table["settings"]]
    settings = [each if isinstance(each, dict) else {} for each in settings]
    return table.astype(records.DTYPES).assign(
        settings=pandas.Series(settings, table.index, dtype=object)
    )


def make_zip(
    path: Path, members: dict, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_STORED
) -> Path:
    """Write a zip of these contents by name, unchecked, all of one kind; return its path.

    A mapping stands for a file of one row with these columns changed.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if isinstance(content, dict):
                content = pandas.DataFrame([make_row(settings="{}") | content]).to_csv(index=False)
            member = zipfile.ZipInfo(name)
            member.external_attr, member.compress_type = mode << 16, method
            archive.writestr(member, content)
    return path


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return every path below a folder, with what each file holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def samples(num_windows=6, **last):
    """Return quiet samples at both ends of each window, ten seconds apart; the last one has
    these keys changed."""
    lines = [
        {
            "run_id": "run-1",
            "index": place - 1 if place else None,
            "swap_used_bytes": 2**30,
            "power_source": "mains",
        }
        | {
            "awake_seconds": 10.0 * place,
            "elapsed_seconds": 10.0 * place + 500,
            "cpu_throttle_count": 7,
        }
        for place in range(num_windows + 1)
    ]
    lines[-1] |= last
    return lines
