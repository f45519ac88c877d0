"""Files of rows into one table: strictly, or with every bad file named and left out."""

import io
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas

from benchbook import layout, manifests
from benchbook.records.checking import LONGEST_QUOTED, listed, validate
from benchbook.records.migrations import migrate
from benchbook.records.schema import COLUMNS, KEY, SchemaError, unknown_columns

LARGEST_BYTES = 32 * 2**20  # of one file of rows; a run's are some kB
MOST_COLUMNS = 500
FILES_AT_ONCE = 250  # read as one; what is wrong with one of them costs the others no more than that
# How a line begins that `gather` says.
LEFT_OUT = "Left out:"
NOT_USED = "Manifest not used:"
KEPT = "Kept, though this version does not know them: columns"


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
    paths = sorted(paths)
    together = texts_together(paths)
    tables = {path: _present(path, together.get(path)) for path in paths}
    try:
        merged = _checked(tables)
    except SchemaError:
        _find_fault(tables)
        raise
    return _ordered(merged)


def gather(paths: Iterable[Path], say: Callable[[str], None] = print) -> pandas.DataFrame:
    """Return the rows of all files that obey the schema, as `merge` does; every other is named and left out.

    Args:
        paths: files of rows. A manifest beside one that breaks its own schema is named as well; its rows are kept.
        say: takes a line for each fault, and one for columns that this version does not have.
    """
    paths, tables, faults = sorted(paths), {}, []
    together = texts_together(paths)
    for path in paths:
        try:
            tables[path] = _present(path, together.get(path))
        except SchemaError as error:
            faults.append(str(error))
    rows, more = _sound(tables)
    messages = [f"{LEFT_OUT} {fault}" for fault in (*faults, *more)]
    messages += [f"{NOT_USED} {fault}" for fault in manifests.faults(paths)]
    if unknown := unknown_columns(rows):
        messages.append(f"{KEPT} {listed(unknown)}")
    for message in messages:
        say(message.replace(f"{layout.outputs()}/", ""))  # notebooks are published, and a full path is private
    return _ordered(rows)


def texts(file: Path | io.BytesIO, source: str) -> pandas.DataFrame:
    """Return a file's rows as they were written, every value as text.

    Raises:
        SchemaError: the file is no table, or cannot be read.
    """
    try:
        return _parse(_content(file, source))
    except UnicodeDecodeError as error:
        wrong = error.object[error.start : error.start + 1].hex()
        raise SchemaError(f"{source}: not a table of rows (byte 0x{wrong} is not UTF-8; save it as UTF-8)") from error
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise SchemaError(f"{source}: not a table of rows ({str(error).strip()[:LONGEST_QUOTED]})") from error
    except OSError as error:
        raise SchemaError(f"{source}: cannot be read ({error.strerror})") from error


def _content(file: Path | io.BytesIO, source: str) -> bytes:
    """Return a file's bytes, once it is neither larger nor of shorter lines than rows can be.

    Lines shorter than a row's commas would take many times the file's size: each is filled up with empty cells.
    """
    with file.open("rb") if isinstance(file, Path) else file as stream:
        content = stream.read(LARGEST_BYTES + 1)
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


def texts_together(paths: Iterable[Path]) -> dict[Path, pandas.DataFrame]:
    """Return what `texts` does of each file, in a fraction of the time: files of the same columns are read as one.

    A file that is not plainly one row a line, or that stands beside one that is none, is left out, to be read alone.
    """
    bodies: dict[bytes, list[tuple[Path, bytes]]] = {}
    for path in paths:
        try:
            content = _content(path, str(path))
        except (SchemaError, OSError):
            continue
        header, _, body = content.partition(b"\n")
        if body.endswith(b"\n") and b"\r" not in content and b"\n\n" not in content:
            bodies.setdefault(header, []).append((path, body))
    tables = {}
    for header, files in bodies.items():
        for start in range(0, len(files), FILES_AT_ONCE):
            tables |= _texts_of_columns(header, files[start : start + FILES_AT_ONCE])
    return tables


def _texts_of_columns(header: bytes, files: list[tuple[Path, bytes]]) -> dict[Path, pandas.DataFrame]:
    """Return the rows of each file of these columns; nothing where one of them is not one row a line."""
    try:
        table = _parse(b"\n".join([header, b"".join(body for _, body in files)]))
    except (UnicodeDecodeError, pandas.errors.ParserError, pandas.errors.EmptyDataError):
        return {}
    ends = list(itertools.accumulate(body.count(b"\n") for _, body in files))
    if len(table) != ends[-1] or not isinstance(table.index, pandas.RangeIndex):
        return {}
    starts = [0, *ends[:-1]]
    return {
        path: table.iloc[start:end].reset_index(drop=True)
        for (path, _), start, end in zip(files, starts, ends, strict=True)
    }


def _parse(content: bytes) -> pandas.DataFrame:
    return pandas.read_csv(io.BytesIO(content), dtype="string", keep_default_na=False, na_values=[""])


def _present(path: Path, rows: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return one file's rows as the present version writes them, every value as text; those read already, if any."""
    return migrate(texts(path, str(path)) if rows is None else rows, lambda: _manifest(path), str(path))


def _manifest(path: Path) -> dict:
    """Return the manifest beside a run's rows; empty where there is none that can be read."""
    try:
        return manifests.read(path.with_suffix(".json"))
    except manifests.ManifestError:
        return {}


def _ordered(rows: pandas.DataFrame) -> pandas.DataFrame:
    return rows.sort_values(["machine", "study", "point", "run_id"], kind="stable", ignore_index=True)


def _checked(tables: dict[Path, pandas.DataFrame]) -> pandas.DataFrame:
    """Return the rows of all files, checked at once: a hundred files take as long as one."""
    none = pandas.DataFrame(columns=COLUMNS, dtype="string")
    return validate(pandas.concat([none, *tables.values()], ignore_index=True))


def _sound(tables: dict[Path, pandas.DataFrame]) -> tuple[pandas.DataFrame, list[str]]:
    """Return the rows of the files that obey the schema together, and what is wrong with each other file.

    Files are halved until the bad ones stand alone: one among thousands is found with a dozen checks.
    """
    try:
        return _checked(tables), []
    except SchemaError:
        if len(tables) == 1:
            return _checked({}), [_fault(*next(iter(tables.items())))]
    tables, faults = _without_repetitions(tables)
    paths = list(tables)
    halves = [paths[: len(paths) // 2], paths[len(paths) // 2 :]]
    parts = [_sound({path: tables[path] for path in half}) for half in halves]
    rows = pandas.concat([rows for rows, _ in parts], ignore_index=True)
    return rows, faults + [fault for _, part_faults in parts for fault in part_faults]


def _fault(path: Path, table: pandas.DataFrame) -> str:
    try:
        validate(table, str(path))
    except SchemaError as error:
        return str(error)
    raise AssertionError(f"{path} obeys the schema alone and not as one of one")


def _without_repetitions(
    tables: dict[Path, pandas.DataFrame],
) -> tuple[dict[Path, pandas.DataFrame], list[str]]:
    """Return the files without those that hold a row of an earlier file, and a line on each of these."""
    keys = pandas.concat([table.reindex(columns=KEY) for table in tables.values()], keys=range(len(tables)))
    file = keys.index.get_level_values(0).to_series(index=keys.index)
    first = file.groupby([keys[name] for name in KEY], dropna=False, sort=False).transform("first")
    repeated, paths, faults = file != first, list(tables), []
    for number in sorted(set(file[repeated])):
        holder = first[repeated & (file == number)].iloc[0]
        run_id = keys.loc[repeated & (file == number), "run_id"].iloc[0]
        faults.append(f"{paths[number]}: run {run_id} stands in {paths[holder]} as well")
    return {path: tables[path] for number, path in enumerate(paths) if number not in set(file[repeated])}, faults


def _find_fault(tables: dict[Path, pandas.DataFrame]) -> None:
    """Raise what is wrong with one of the files, or with two of them."""
    frames = {path: validate(table, str(path)) for path, table in tables.items()}
    together = pandas.concat(frames.values(), ignore_index=True)
    repeated = together.duplicated(KEY)
    if repeated.any():
        run_id = together.loc[repeated, "run_id"].iloc[0]
        holders = [str(path) for path, frame in frames.items() if (frame["run_id"] == run_id).any()]
        raise SchemaError(f"run {run_id} stands in more than one file: {', '.join(holders)}")
