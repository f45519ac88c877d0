"""Append, read and merge rows; `schema` declares what a row may hold.

One CSV line is one window, or one failure. Units stand in the names; missing is empty. Files become one table strictly,
or with every bad file named and left out.
"""

import csv
import io
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import numpy
import pandas

from benchbook.machine import layout
from benchbook.rows import manifests
from benchbook.rows.schema import (  # noqa: F401
    COLUMNS,
    DTYPES,
    KEY,
    LONGEST_QUOTED,
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

LARGEST_BYTES = 32 * 2**20  # of one file of rows; a run's file has a few kB
MOST_COLUMNS = 500
FILES_AT_ONCE = 250  # read as one table; a fault in one file makes the reader split them
# The beginning of a line that `gather` reports.
LEFT_OUT = "Left out:"
NOT_USED = "Manifest not used:"
KEPT = "Kept, though this version does not know them: columns"


def read(path: Path) -> pandas.DataFrame:
    """Return one file's rows.

    Raises:
        SchemaError: see `validate`; the message names file and line.
    """
    return validate(texts(path, str(path)), str(path))


def merge(paths: Iterable[Path]) -> pandas.DataFrame:
    """Return all rows of all files, ordered by point and run; a file's folder does not matter.

    Raises:
        SchemaError: a file breaks the schema, or two files hold the same row.
    """
    rows, faults = _sound(sorted(paths))
    if faults:
        raise SchemaError(faults[0])
    return rows


def gather(
    paths: Iterable[Path], say: Callable[[str], None] = print, described: Collection[str] = ()
) -> pandas.DataFrame:
    """Return the rows of all files that obey the schema, as `merge` does; every other is named and left out.

    Args:
        paths: files of rows. A manifest beside one that breaks its own schema is named as well; its rows are kept.
        say: takes a line for each fault, and one for columns that this version does not have.
        described: the runs whose manifests were read already and obey their schema, as `manifests.every` names them.
    """
    paths = sorted(paths)
    rows, faults = _sound(paths)
    messages = [f"{LEFT_OUT} {fault}" for fault in faults]
    messages += [
        f"{NOT_USED} {fault}" for fault in manifests.faults([path for path in paths if path.stem not in described])
    ]
    if unknown := unknown_columns(rows):
        messages.append(f"{KEPT} {listed(unknown)}")
    for message in messages:
        say(message.replace(f"{layout.outputs()}/", ""))  # notebooks are published, and a full path is private
    return rows


def texts(file: Path | io.BytesIO, source: str) -> pandas.DataFrame:
    """Return a file's rows as they were written, every value as text.

    Raises:
        SchemaError: the file is no table, or cannot be read.
    """
    return _parse(_content(file, source), source)


def _content(file: Path | io.BytesIO, source: str) -> bytes:
    """Return a file's bytes after checking its size and the length of its lines.

    Lines shorter than a row's commas would take many times the file's size: each is filled up with empty cells.
    """
    if isinstance(file, Path) and file.exists() and not file.is_file() and not file.is_dir():
        raise SchemaError(f"{source}: cannot be read (it is no plain file)")  # reading a pipe would block
    try:
        with file.open("rb") if isinstance(file, Path) else file as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise SchemaError(f"{source}: cannot be read ({error.strerror})") from error
    if len(content) > LARGEST_BYTES:
        raise SchemaError(f"{source}: more than {LARGEST_BYTES} bytes; allowed: {LARGEST_BYTES}")
    header, _, rows = content.partition(b"\n")
    commas, lines = header.count(b","), rows.count(b"\n")
    if commas >= MOST_COLUMNS:
        raise SchemaError(f"{source}: {commas + 1} columns; allowed: {MOST_COLUMNS}")
    if lines * commas > len(rows):
        raise SchemaError(
            f"{source}: {lines} lines of {len(rows)} bytes; allowed: {commas} commas a line, as the header"
        )
    return content


def _parse(content: bytes, source: str) -> pandas.DataFrame:
    try:
        return pandas.read_csv(io.BytesIO(content), dtype="string", keep_default_na=False, na_values=[""])
    except UnicodeDecodeError as error:
        wrong = error.object[error.start : error.start + 1].hex()
        raise SchemaError(f"{source}: not a table of rows (byte 0x{wrong} is not UTF-8; save it as UTF-8)") from error
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise SchemaError(f"{source}: not a table of rows ({str(error).strip()[:LONGEST_QUOTED]})") from error


def _sound(paths: list[Path]) -> tuple[pandas.DataFrame, list[str]]:
    """Return the rows of the files that obey the schema, in the order of `merge`, and what is wrong with each other.

    Files of the same columns are read as one; one that is not plainly a row a line is read alone.

    Args:
        paths: in order; of two files that hold the same row, the later one is wrong.
    """
    faults: dict[int, str] = {}
    alike: dict[tuple, list[tuple[int, bytes]]] = {}
    for number, path in enumerate(paths):
        try:
            content = _content(path, str(path))
        except SchemaError as error:
            faults[number] = str(error)
            continue
        header, _, body = content.partition(b"\n")
        is_plain = body.endswith(b"\n") and b"\r" not in content and b"\n\n" not in content
        alike.setdefault((header, None if is_plain else number), []).append((number, body))
    parts = [validate(pandas.DataFrame(columns=COLUMNS, dtype="string"))]
    for (header, _), files in alike.items():
        for start in range(0, len(files), FILES_AT_ONCE):
            parts += _checked(header, files[start : start + FILES_AT_ONCE], paths, faults)
    rows = _without_repetitions(pandas.concat(parts[1:] or parts).sort_index(kind="stable"), paths, faults)
    rows = rows.sort_values(["machine", "study", "point", "run_id"], kind="stable", ignore_index=True)
    return rows, [faults[number] for number in sorted(faults)]


def _checked(
    header: bytes, files: list[tuple[int, bytes]], paths: list[Path], faults: dict[int, str]
) -> list[pandas.DataFrame]:
    """Return the typed rows of files with equal columns, numbered by their files; note the faults.

    Hundreds of files are one table, which takes as long as a few. Where that one is wrong they are halved until the bad
    ones stand alone: one among hundreds is found with a dozen checks.

    Args:
        header: their first line.
        files: of each its place in `paths`, and the lines below its header.
        paths: of all files.
        faults: gets a line for a file that is left out, by its place.
    """
    numbers, bodies = zip(*files, strict=True)
    source = str(paths[numbers[0]]) if len(files) == 1 else "rows"
    try:
        table = _parse(b"\n".join([header, b"".join(bodies)]), source)
        counts = [len(table)] if len(files) == 1 else [body.count(b"\n") for body in bodies]
        if sum(counts) != len(table) or not isinstance(table.index, pandas.RangeIndex):
            raise SchemaError(f"{source}: lines with more cells than the header, or a quote that is never closed")
        table = validate(table, source)
        if table.empty:
            raise SchemaError(f"{source}: a header without rows")
        return [table.set_axis(numpy.repeat(numbers, counts))]
    except SchemaError as error:
        if len(files) == 1:
            faults[numbers[0]] = str(error)
            return []
    halves = files[: len(files) // 2], files[len(files) // 2 :]
    return [part for half in halves for part in _checked(header, half, paths, faults)]


def _without_repetitions(rows: pandas.DataFrame, paths: list[Path], faults: dict[int, str]) -> pandas.DataFrame:
    """Return the rows without those files that repeat a row of an earlier file; note these files.

    The machine's name does not count: a run that stands under two names is one of them's. Arguments as of `_checked`.
    """
    key = [name for name in KEY if name != "machine"]
    if not rows.duplicated(key).any():
        return rows
    order = sorted(set(rows.index), key=lambda number: manifests.age(paths[number]))
    place = rows.index.to_series().map({number: place for place, number in enumerate(order)})
    first = place.groupby([rows[name] for name in key], dropna=False, sort=False).transform("min")
    repeated = pandas.DataFrame({"run_id": rows["run_id"], "place": place, "first": first})[place > first]
    for run_id, own, earlier in repeated.drop_duplicates("place").itertuples(index=False):
        faults[order[own]] = f"{paths[order[own]]}: run {run_id} stands in {paths[order[earlier]]} as well"
    return rows[~place.isin(repeated["place"])]


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
    distinct = {id(value): value for value in table["settings"]}  # rows with equal settings may share one dictionary
    texts_of = {key: cell(value) for key, value in distinct.items() if isinstance(value, dict) and value}
    written = [texts_of.get(id(value)) for value in table["settings"]]
    return table.assign(settings=pandas.Series(written, table.index, dtype="string"))


def find(folder: Path) -> list[Path]:
    """Return every CSV of rows below a folder, none if it does not exist; or the file itself."""
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
    writer.writerow(["" if value is None else cell(value) for value in values])
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


def _plain(value: object) -> object:
    if isinstance(value, numpy.generic):
        value = value.item()
    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return None
    return " ".join(value.split()) if isinstance(value, str) else value
