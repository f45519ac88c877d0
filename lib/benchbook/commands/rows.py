"""The commands that check rows and exchange them as zips."""

from pathlib import Path
from typing import Annotated

import typer

from benchbook.commands.options import PackedName
from benchbook.commands.output import say, short
from benchbook.machine import layout
from benchbook.rows import records
from benchbook.studies.checks import CHECKS


def validate(
    path: Annotated[Path, typer.Argument(help="a CSV of rows, or a folder of them")],
) -> None:
    """Check rows; raise an error with the first fault."""
    paths = records.find(path)
    if not paths:
        raise ValueError(f"{path}: no rows there; allowed: a CSV of rows, or a folder of them")
    in_runs = (layout.outputs() / "runs") in (path.resolve(), *path.resolve().parents)
    rows = CHECKS.checked(path, say, published=not in_runs)
    say(f"{len(rows)} rows in {len(paths)} files are valid.")


def pack(
    machine: PackedName = "",
    to: Annotated[
        Path | None, typer.Option(help="the zip to write; default: outputs/<machine>.zip")
    ] = None,
) -> None:
    """Write the zip of a machine's rows."""
    path, rows = CHECKS.pack(machine, to, say)
    say(f"{len(rows)} rows of {rows['run_id'].nunique()} runs: {short(path)}")


def add(
    paths: Annotated[
        list[Path],
        typer.Argument(help="zips made by `benchbook pack`, or folders unpacked from them"),
    ],
    name: Annotated[
        str, typer.Option("--as", help="name of the machine here, of one zip; empty: the zip's")
    ] = "",
) -> None:
    """Copy the rows of zips to outputs/runs."""
    if name and len(paths) > 1:
        raise ValueError(f"--as {name} with {len(paths)} zips; allowed: one zip")
    faults = []
    for path in paths:
        try:
            folder, rows = CHECKS.add(path, say, name)
            say(
                f"{path.name}: {len(rows)} rows of {rows['run_id'].nunique()} runs: {short(folder)}"
            )
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("; ".join(faults))
