"""Append, read and merge rows; `schema` declares the columns.

One CSV line is one window, or one failure. Column names contain units; a missing value is empty.
`merge` refuses bad files, and `gather` leaves them out with a message.
"""

from __future__ import annotations

import csv
import io
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from benchbook.machine import layout, temporary
from benchbook.rows import files, manifests
from benchbook.rows.files import Say, read_plain
from benchbook.rows.schema import (  # noqa: F401
    COLUMNS,
    DTYPES,
    KEY,
    PRECISIONS,
    SCHEMA_VERSION,
    TRAINED,
    VARIANTS,
    SchemaError,
    cell,
    check_row,
    listed,
    unknown_columns,
    validate,
)

if TYPE_CHECKING:
    import pandas

MAX_BYTES = 32 * 2**20  # of one file of rows; a run's file has a few kB
MAX_COLUMNS = 500
BATCH = 2_000  # lines that are checked together; as texts they take ten times the memory
ONCE = [name for name in KEY if name != "machine"]  # columns of a row that no other file has
# the model in rows of a network that a reader edited in a notebook; they are not published
YOURS = "yours"


def read(path: Path) -> pandas.DataFrame:
    """Return one file's rows.

    Raises:
        SchemaError: see `texts` and `validate`; the message names file and line.
    """
    return validate(texts(path, str(path)), str(path))


def merge(paths: Path | Iterable[Path]) -> pandas.DataFrame:
    """Return all rows of all files, sorted by point and run; the files' folders do not matter.

    Args:
        paths: files of rows, or the folder that holds them.

    Raises:
        SchemaError: a file breaks the schema, or two files have the same row.
    """
    rows, faults = _read_good(paths)
    if faults:
        raise SchemaError(faults[0])
    return rows


def gather(paths: Path | Iterable[Path], say: Say = print) -> pandas.DataFrame:
    """Return the rows of all files that obey the schema, without unknown columns; other files
    are named and left out.

    Args:
        paths: see `merge`.
        say: called with a line for each fault, and one for unknown columns.
    """
    rows, faults = _read_good(paths)
    if isinstance(paths, Path):
        files.name_foreign(paths, say)
    for message in [*(f"Left out: {fault}" for fault in faults), *unused(rows)]:
        say(
            message.replace(f"{layout.outputs()}/", "")
        )  # notebooks are published, and a full path is private
    return rows[COLUMNS]  # a table of a report may have a column of an unknown name


def unused(rows: pandas.DataFrame) -> list[str]:
    """Return a line that names the columns that this version does not know, with their runs;
    empty without any."""
    if not (unknown := unknown_columns(rows)):
        return []
    having = rows.loc[rows[unknown].notna().any(axis=1), "run_id"].unique()
    runs = f" (in runs {listed(having)})" if len(having) else ""
    return [f"Not used, because this version does not know them: columns {listed(unknown)}{runs}"]


def texts(path: Path, source: str) -> pandas.DataFrame:
    """Return a file's rows as written, every value as text.

    Raises:
        SchemaError: the file is too large, not a table, or cannot be read.
    """
    return _table(_lines(path, source))


def _lines(path: Path, source: str) -> list[list[str]]:
    """Return the cells of a file's lines, the header first; empty lines are left out.

    Raises:
        SchemaError: see `texts`.
    """
    lines = []
    try:
        text = read_plain(path, MAX_BYTES).decode("utf-8-sig")
        if text.startswith("version https://git-lfs"):
            raise SchemaError(f"{source}: a pointer of Git LFS; `git lfs pull` fetches the rows")
        for cells in filter(None, csv.reader(io.StringIO(text, newline=""), strict=True)):
            if lines and len(cells) != len(lines[0]):
                found = f"{len(cells)} cells; allowed: {len(lines[0])}, as in line 1"
                raise SchemaError(f"{source}, line {len(lines) + 1}: {found}")
            for mark, name in {";": "semicolons", "\t": "tabs"}.items():
                if not lines and len(cells) == 1 and mark in cells[0]:
                    raise SchemaError(
                        f"{source}, line 1: {name} between cells; allowed: commas, and decimal points"
                    )
            if not lines and (len(cells) > MAX_COLUMNS or len({*cells}) < len(cells)):
                raise SchemaError(
                    f"{source}, line 1: {len(cells)} columns; allowed: {MAX_COLUMNS}, each once"
                )
            lines.append(cells)
    except OSError as error:
        raise SchemaError(f"{source}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        wrong = error.object[error.start : error.start + 1].hex()
        raise SchemaError(
            f"{source}: not a table of rows (byte 0x{wrong} is not UTF-8; save it as UTF-8)"
        ) from error
    except csv.Error as error:
        raise SchemaError(f"{source}: not a table of rows ({error})") from error
    if not lines:
        raise SchemaError(f"{source}: not a table of rows (it is empty)")
    return lines


def _table(lines: list[list[str]]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(
        [[cell or None for cell in cells] for cells in lines[1:]], columns=lines[0], dtype="string"
    )


def _read_good(paths: Path | Iterable[Path]) -> tuple[pandas.DataFrame, list[str]]:
    """Return the rows of the files that obey the schema, in the order of `merge`, and a fault
    for each other file."""
    import pandas

    paths = sorted(find(paths) if isinstance(paths, Path) else paths)
    faults: dict[int, str] = {}
    typed = [validate(pandas.DataFrame(columns=COLUMNS, dtype="string"))]
    # The lines of files with equal headers that are not checked yet, and their files' numbers.
    waiting: dict[tuple[str, ...], tuple[list[int], list[list[str]]]] = {}

    def check(header: tuple[str, ...]) -> None:
        numbers, lines = waiting.pop(header)
        typed.extend(_validated(_table([header, *lines]).set_axis(numbers), paths, faults))

    for number, path in enumerate(paths):
        try:
            header, *own = _lines(path, str(path))
            if not own:
                raise SchemaError(f"{path}: a header without rows")
        except SchemaError as error:
            faults[number] = str(error)
            continue
        numbers, lines = waiting.setdefault(tuple(header), ([], []))
        numbers += [number] * len(own)
        lines += own
        if len(lines) >= BATCH:
            check(tuple(header))
    for header in [*waiting]:
        check(header)
    rows = pandas.concat([part for part in typed if len(part)] or typed)
    typed.clear()
    rows = rows.rename_axis("file")
    if rows.duplicated(ONCE).any():
        rows = _without_duplicates(rows, paths, faults)
    order = ["machine", "study", "point", "run_id", "file"]
    rows = rows.sort_values(order, kind="stable", ignore_index=True)
    return rows, [faults[number] for number in sorted(faults)]


def _validated(
    table: pandas.DataFrame, paths: list[Path], faults: dict[int, str]
) -> list[pandas.DataFrame]:
    """Return the typed rows of the files that obey the schema; add the others' faults.

    Hundreds of files take as long as a few. After a fault they are split in halves until each
    bad file is alone.

    Args:
        table: texts, indexed by the files' positions in `paths`.
        paths: all files.
        faults: gets a line for each bad file, by its position.
    """
    numbers = table.index.unique()
    source = str(paths[numbers[0]]) if len(numbers) == 1 else "rows"
    try:
        return [validate(table.reset_index(drop=True), source).set_axis(table.index)]
    except (SchemaError, *files.unexpected()) as error:  # it must not end a report of other files
        if len(numbers) == 1:
            is_ours = isinstance(error, SchemaError)
            reason = (
                str(error)
                if is_ours
                else f"{source}: cannot be read ({type(error).__name__}: {error})"
            )
            faults[numbers[0]] = reason
            return []
    first = table.index < numbers[len(numbers) // 2]
    return _validated(table[first], paths, faults) + _validated(table[~first], paths, faults)


def _without_duplicates(
    rows: pandas.DataFrame, paths: list[Path], faults: dict[int, str]
) -> pandas.DataFrame:
    """Return the rows without files that repeat a row of a file written earlier; add these
    files' faults.

    A copy under another machine's name is a duplicate too. Arguments: see `_validated`.
    """
    import pandas

    order = sorted(set(rows.index), key=lambda number: manifests.written_at(paths[number]))
    rank = rows.index.to_series().map({number: rank for rank, number in enumerate(order)})
    first = rank.groupby([rows[name] for name in ONCE], dropna=False, sort=False).transform("min")
    repeated = pandas.DataFrame({"run_id": rows["run_id"], "rank": rank, "first": first})[
        rank > first
    ]
    for run_id, own, earlier in repeated.drop_duplicates("rank").itertuples(index=False):
        faults[order[own]] = (
            f"{paths[order[own]]}: run {run_id} is in {paths[order[earlier]]} as well"
        )
    return rows[~rank.isin(repeated["rank"])]


def having(rows: pandas.DataFrame, **values: object) -> pandas.DataFrame:
    """Return the rows with these values in the columns of these names; of a list one is enough."""
    for name, value in values.items():
        rows = rows[rows[name].isin(value if isinstance(value, list) else [value])]
    return rows


def without_refusals(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows without answers that look like failures.

    These are operations and settings that a device refused or computed wrongly in calibration or
    in a trial, batch sizes that a trial found too large, and parity that float64 cannot compute
    (the training is then unproven).
    """
    tried = (rows["phase"] == "calibrate") & rows["model"].notna()
    refused = tried & rows["status"].isin(["unsupported", "diverged"])
    refused |= rows["phase"].eq("parity") & rows["status"].eq("unsupported")
    too_large = tried & rows["status"].eq(
        "out_of_memory"
    )  # a failure, unless a batch size was tried
    if too_large.any():
        refused |= too_large & rows["settings"].map(
            lambda settings: settings.get("tried") == "batch_size"
        ).astype(bool)
    return rows[~refused]


def as_text(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table as a file has it: settings as JSON with sorted keys, or missing if there
    are none; a table that is so already stays as it is."""
    import pandas

    if "settings" not in table or table["settings"].dtype == "string":
        return table
    texts = [
        cell(value) if isinstance(value, dict) and value else None for value in table["settings"]
    ]
    return table.assign(settings=pandas.Series(texts, table.index, dtype="string"))


def find(folder: Path) -> list[Path]:
    """Return every CSV of rows below a folder, or the file itself; empty if the path does not
    exist."""
    return [folder] if folder.is_file() else files.find(folder, "csv")[0]


def append(path: Path, row: dict) -> None:
    """Append one row to a file. It is on disk when this returns: a power cut loses at most the
    current window.

    Args:
        path: the run's CSV; a new file gets a header.
        row: values by column; other columns are empty. Line breaks and repeated blanks in text
        become one blank.

    Raises:
        SchemaError: a column is unknown, or the schema does not allow a value.
    """
    row = {name: _plain(value) for name, value in row.items()}
    check_row(row, path.name)
    values = [row.get(name) for name in COLUMNS]
    with temporary.naming(path), path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not file.tell():
            writer.writerow(COLUMNS)
        writer.writerow(["" if value is None else cell(value) for value in values])
        file.flush()
        os.fsync(file.fileno())


def cut_torn_line(path: Path) -> bool:
    """Remove an incomplete last line, which a kill leaves; return whether there was one."""
    content = path.read_bytes() if path.exists() else b""
    if not content or content.endswith(b"\n"):
        return False
    os.truncate(path, content.rfind(b"\n") + 1)
    return True


def _plain(value: object) -> object:
    if isinstance(value, numpy.generic):
        value = value.item()
    is_missing = value is getattr(sys.modules.get("pandas"), "NA", None)
    if is_missing or (isinstance(value, float) and math.isnan(value)):
        return None
    return " ".join(value.split()) if isinstance(value, str) else value
