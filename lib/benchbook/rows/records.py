"""Rows: append one at a time, read, merge; what a row may hold is said in `schema`.

One CSV line is one window, or one failure. Units stand in the names; missing is empty.
"""

import csv
import io
import json
import os
from pathlib import Path

import numpy
import pandas

from benchbook.rows.checking import check_row, unknown_columns, validate
from benchbook.rows.reading import LARGEST_BYTES, gather, merge, read, texts
from benchbook.rows.schema import (
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
)

__all__ = [
    "COLUMNS",
    "DTYPES",
    "KEY",
    "LARGEST_BYTES",
    "PHASES",
    "PRECISIONS",
    "SCHEMA_VERSION",
    "STATUSES",
    "TRAINED",
    "VARIANTS",
    "SchemaError",
    "append",
    "as_text",
    "check_row",
    "cut_torn_line",
    "find",
    "gather",
    "merge",
    "read",
    "texts",
    "unknown_columns",
    "validate",
    "without_refusals",
]


def without_refusals(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows without what a device refused, or did wrong, where it was only tried: an answer, no failure.

    Nor is it one that float64 lacks an operation of a network: its training is unproven.
    """
    tried = (rows["phase"] == "calibrate") & rows["model"].notna()
    refused = tried & rows["status"].isin(["unsupported", "diverged"])
    refused |= rows["phase"].eq("parity") & rows["status"].eq("unsupported")
    short = tried & rows["status"].eq("out_of_memory")  # a failure, unless a batch size was tried
    if short.any():
        refused |= short & rows["settings"].map(lambda settings: settings.get("tried") == "batch_size").astype(bool)
    return rows[~refused]


def as_text(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table as a file has it: settings as JSON with sorted keys, empty where there are none."""
    if "settings" not in table:
        return table
    distinct = {id(value): value for value in table["settings"]}  # rows of equal settings may share one
    texts_of = {key: _json(value) for key, value in distinct.items() if isinstance(value, dict) and value}
    written = [texts_of.get(id(value)) for value in table["settings"]]
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
    check_row(row, path.name)
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
