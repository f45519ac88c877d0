"""The commands that check rows and exchange them as zips."""

from pathlib import Path

from benchbook.commands.output import say, short
from benchbook.machine import layout
from benchbook.rows import packing, records
from benchbook.studies.experiments import parameters


def validate(path: Path) -> None:
    """Check rows; raise an error with the first fault."""
    paths = records.find(path)
    if not paths:
        raise ValueError(f"{path}: no rows there; allowed: a CSV of rows, or a folder of them")
    in_runs = (layout.outputs() / "runs") in (path.resolve(), *path.resolve().parents)
    rows = packing.checked(path, parameters.point_name, say, published=not in_runs)
    say(f"{len(rows)} rows in {len(paths)} files are valid.")


def pack(machine: str, to: Path | None) -> None:
    """Write the zip of a machine's rows."""
    path, rows = packing.pack(parameters.point_name, machine, to, say)
    say(f"{len(rows)} rows of {rows['run_id'].nunique()} runs: {short(path)}")


def add(paths: list[Path], name: str) -> None:
    """Copy the rows of zips to outputs/runs."""
    if name and len(paths) > 1:
        raise ValueError(f"--as {name} with {len(paths)} zips; allowed: one zip")
    faults = []
    for path in paths:
        try:
            folder, rows = packing.add(path, parameters.point_name, say, name)
            say(
                f"{path.name}: {len(rows)} rows of {rows['run_id'].nunique()} runs: {short(folder)}"
            )
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("; ".join(faults))
