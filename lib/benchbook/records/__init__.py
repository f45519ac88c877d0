"""Rows: append one at a time, read, merge; what a row may hold is said in `schema`.

One CSV line is one window, or one failure. Units stand in the names; missing is empty.
"""

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy
import pandas

from benchbook.records.checking import cast, check_row, validate
from benchbook.records.migrations import STEPS, migrate
from benchbook.records.schema import (
    COLUMNS,
    DTYPES,
    KEY,
    PHASES,
    PRECISIONS,
    SCHEMA_VERSION,
    STATUSES,
    TRAINED,
    VARIANTS,
    SchemaError,
    unknown_columns,
)

__all__ = [
    "COLUMNS",
    "DTYPES",
    "KEY",
    "PHASES",
    "PRECISIONS",
    "SCHEMA_VERSION",
    "STATUSES",
    "TRAINED",
    "VARIANTS",
    "SchemaError",
    "append",
    "as_text",
    "cast",
    "check_row",
    "cut_torn_line",
    "find",
    "merge",
    "migrate",
    "read",
    "texts",
    "unknown_columns",
    "validate",
    "without_refusals",
]


def read(path: Path) -> pandas.DataFrame:
    """Return one file's rows; those of an older version as the present one has them.

    Raises:
        SchemaError: see `validate`; the message names file and line.
    """
    return validate(_present(path), str(path))


def merge(paths: Iterable[Path]) -> pandas.DataFrame:
    """Return all rows of all files, by point and run and then as written; the folder a file lies in does not matter.

    Raises:
        SchemaError: a file breaks the schema, or two files hold the same row.
    """
    tables = {path: _present(path) for path in sorted(paths)}
    try:
        # All at once: one check of a hundred files takes as long as that of one.
        none = pandas.DataFrame(columns=COLUMNS, dtype="string")
        merged = validate(pandas.concat([none, *tables.values()], ignore_index=True))
    except SchemaError:
        _find_fault(tables)
        raise
    return merged.sort_values(["machine", "study", "point", "run_id"], kind="stable", ignore_index=True)


def texts(file: Path | io.BytesIO, source: str) -> pandas.DataFrame:
    """Return a file's rows as they were written, every value as text.

    Raises:
        SchemaError: the file is no table.
    """
    try:
        return pandas.read_csv(file, dtype="string", keep_default_na=False, na_values=[""])
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise SchemaError(f"{source}: not a table of rows ({error})") from error


def _present(path: Path) -> pandas.DataFrame:
    """Return one file's rows as the present version writes them, every value as text."""
    return migrate(texts(path, str(path)), lambda: _manifest(path), str(path))


def _manifest(path: Path) -> dict:
    """Return the manifest beside a run's rows; empty where there is none that can be read."""
    try:
        manifest = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _find_fault(tables: dict[Path, pandas.DataFrame]) -> None:
    """Raise what is wrong with one of the files, or with two of them."""
    frames = {path: validate(table, str(path)) for path, table in tables.items()}
    together = pandas.concat(frames.values(), ignore_index=True)
    repeated = together.duplicated(KEY)
    if repeated.any():
        run_id = together.loc[repeated, "run_id"].iloc[0]
        holders = [str(path) for path, frame in frames.items() if (frame["run_id"] == run_id).any()]
        raise SchemaError(f"run {run_id} stands in more than one file: {', '.join(holders)}")


def without_refusals(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows without what a device refused, or did wrong, where it was only tried: an answer, no failure."""
    tried = (rows["phase"] == "calibrate") & rows["model"].notna()
    refused = tried & rows["status"].isin(["unsupported", "diverged"])
    return rows[~refused]


def as_text(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table as a file has it: settings as JSON with sorted keys, empty where there are none."""
    if "settings" not in table:
        return table
    written = [_json(value) if isinstance(value, dict) and value else None for value in table["settings"]]
    return table.assign(settings=pandas.Series(written, table.index, dtype="string"))


def find(folder: Path) -> list[Path]:
    """Return every CSV of rows below a folder, or the file itself."""
    return [folder] if folder.is_file() else sorted(folder.rglob("*.csv"))


def append(path: Path, row: dict) -> None:
    """Append one row to a file, on disk before this returns: a power cut loses at most the window under way.

    Args:
        path: the run's CSV; it is begun with a header.
        row: columns by name; what is left out is missing. Text is kept to one line.

    Raises:
        SchemaError: an unknown column, or a value that the schema does not allow.
    """
    row = {name: _plain(value) for name, value in row.items()}
    unknown = set(row) - set(COLUMNS)
    if unknown:
        raise SchemaError(f"{path.name}: unknown column {', '.join(sorted(unknown))}")
    version = row.get("schema_version")  # a run that began under an older version is ended as one
    check_row(row | {"schema_version": SCHEMA_VERSION} if version in STEPS else row, path.name)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if not path.exists() or path.stat().st_size == 0:
        writer.writerow(COLUMNS)
    values = [row.get(name) for name in COLUMNS]
    writer.writerow(["" if value is None else _json(value) if isinstance(value, dict) else value for value in values])
    with path.open("a", encoding="utf-8") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())


def cut_torn_line(path: Path) -> bool:
    """Cut what a kill left of a half-written last line; return whether there was one."""
    content = path.read_bytes() if path.exists() else b""
    if not content or content.endswith(b"\n"):
        return False
    os.truncate(path, content.rfind(b"\n") + 1)
    return True


def _json(settings: dict) -> str:
    return json.dumps(settings, sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, numpy.generic):
        value = value.item()
    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return None
    return " ".join(value.split()) if isinstance(value, str) else value
