"""Pack one machine's rows into a zip, and add the rows of a zip to outputs/runs.

A pack holds only `<machine>/<study>/<point>/<run_id>.csv` and `.json`. A pack from others is checked completely before
any file is written.
"""

import collections
import contextlib
import functools
import io
import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas

from benchbook.machine import identity, layout
from benchbook.rows import crosschecks, manifests, records
from benchbook.rows.crosschecks import RUN
from benchbook.rows.schema import listed, quoted

MAX_BYTES = 256 * 2**20  # unpacked; a full profile's rows take a few MB
METHODS = {zipfile.ZIP_STORED: "store", zipfile.ZIP_DEFLATED: "deflate"}  # can be unpacked in pieces
PIECE_BYTES = 2**20
# The part of a failure row's message that is sent: benchbook's own words, or an error's name. The text of an error may
# hold folders, hosts and keys.
PUBLIC_MESSAGE = re.compile(
    r"the process that measured was gone|the kernel died(, because the disk is full)?"
    r"|stopped by (SIG[A-Z]+|the deadline)|took longer than its limit of \d+ s"
    r"|the kernel was killed, because it took more memory than there is"
    r"|[A-Z][A-Za-z]{2,60}(?=: )"
)


class PackError(ValueError):
    """A pack cannot be made or added; the message names the file in it."""


def pack(
    machine_name: str, path: Path | None = None, say: Callable[[str], object] = print
) -> tuple[Path, pandas.DataFrame]:
    """Write a zip of one machine's rows and manifests; the same rows give the same bytes.

    Args:
        machine_name: the machine of the rows.
        path: the zip to write; default: `<machine>.zip` in the outputs folder.
        say: called with a line for each failure's message that is cut, and for each reason why runs are unproven.

    Returns:
        The zip, and its rows.

    Raises:
        PackError: there are no rows, a run has not ended, a file is in a wrong folder, or a file names this computer's
            home or project folder.
        SchemaError, ManifestError: a row or a manifest breaks its schema.
    """
    folder = layout.runs(machine_name)
    if unfinished := sorted(folder.rglob("*.running")):
        raise PackError(f"run {unfinished[0].stem} of {machine_name} has not ended; run the same `make study` again")
    tables = records.find(folder) if folder.is_dir() else []
    if not tables:
        machines = ", ".join(sorted(p.name for p in folder.parent.glob("*") if p.is_dir())) or "none yet"
        raise PackError(f"machine {machine_name!r} has no rows; machines with a folder: {machines}")
    files = [file for path in tables for file in (path, path.with_suffix(".json")) if file.exists()]
    contents = {file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in files}
    rows, _ = read_contents(contents, say)
    contents = {name: _without_private_messages(name, content, say) for name, content in contents.items()}
    path = path or layout.outputs() / f"{machine_name}.zip"
    write_zip(path, contents)
    return path, rows


def add(path: Path, say: Callable[[str], object] = print) -> tuple[Path, pandas.DataFrame]:
    """Unpack a zip made by `pack` into outputs/runs; nothing is written unless all of it is right and fits the disk.

    Runs that are here already, with the same bytes, are left alone, so that a newer pack can follow an older one. If
    the machine's name is here for another kind of computer, the new rows get digits of their fingerprint in the name.

    Args:
        path: the zip.
        say: called with a line for each reason why runs are unproven.

    Returns:
        The machine's folder, and the rows in the zip.

    Raises:
        PackError: the file is not such a zip; it holds other files than rows and manifests of one machine in their
            places; rows contradict themselves, each other, their manifest or the rows here; a run is here already with
            other content or under another machine; or rows of another chip have the machine's name.
        SchemaError, ManifestError: a row or a manifest breaks its schema.
    """
    contents = read_zip(path)
    try:
        rows, by_run = read_contents(contents, say)
        machine_name = rows["machine"].iloc[0]
        kinds, kinds_here = (
            {(manifest.get("machine") or {}).get("fingerprint") for manifest in some.values()} - {None}
            for some in (by_run, manifests.read_all(layout.runs(machine_name)))
        )
        if len(kinds) == 1 and kinds_here and not kinds & kinds_here:
            machine_name = identity.with_kind(machine_name, min(kinds))
            contents, rows = _renamed(contents, machine_name), rows.assign(machine=machine_name)
        new = _new(contents, rows)
    except ValueError as error:
        raise type(error)(f"{path.name}: {error}") from error
    runs = layout.outputs() / "runs"
    if new:
        _write(new, runs)
    return runs / machine_name, rows


@contextlib.contextmanager
def _unpacked(contents: dict[str, bytes], place: Path | None = None) -> Iterator[Path]:
    """Write files into a temporary folder for a `with` block; error messages leave out the folder's name."""
    with tempfile.TemporaryDirectory(dir=place, prefix=".adding-") as temporary:
        for name, content in contents.items():
            (Path(temporary) / name).parent.mkdir(parents=True, exist_ok=True)
            with (Path(temporary) / name).open("wb") as file:
                file.write(content)
                os.fsync(file.fileno())
        try:
            yield Path(temporary)
        except ValueError as error:
            raise type(error)(str(error).replace(f"{temporary}/", "")) from error


def _write(contents: dict[str, bytes], runs: Path) -> None:
    """Write files below a folder: all into a temporary folder first, where a full disk shows, then to their places."""
    existed = runs.parent.exists()
    runs.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _unpacked(contents, runs.parent) as folder:
            for name in sorted(contents):
                (runs / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).replace(runs / name)
    except OSError:
        if not existed:
            shutil.rmtree(runs.parent, ignore_errors=True)
        raise


def read_contents(contents: dict[str, bytes], say: Callable[[str], object]) -> tuple[pandas.DataFrame, dict[str, dict]]:
    """Return one machine's rows, and its manifests by run, after all checks of paths, sources, values and privacy.

    Raises:
        PackError, SchemaError, ManifestError: see `add`.
    """
    by_run = {}
    for name, content in contents.items():
        check_name(name)
        check_private(name, content)
        if name.endswith(".json"):
            by_run[Path(name).stem] = manifests.check(content, name)
    with _unpacked(contents) as folder:
        tables = records.find(folder)
        rows = records.merge(tables)
        for path in tables:
            written = records.texts(path, str(path))
            place = path.relative_to(folder).with_suffix("").parts
            for column, wanted in zip([*RUN, "source"], [*place, "measured"], strict=True):
                wrong = written.loc[written[column] != wanted, column] if column in written else ()
                if len(wrong):
                    found = f"{column} is {quoted(wrong.iloc[0])}; allowed: {wanted}"
                    raise PackError(f"{path}, line {wrong.index[0] + 2}: {found}")
    for complaint in crosschecks.complaints(rows, by_run).itertuples():
        raise PackError(crosschecks.describe(complaint))
    for line in crosschecks.unproven(rows, by_run):
        say(line)
    return rows, by_run


def _without_private_messages(name: str, content: bytes, say: Callable[[str], object]) -> bytes:
    """Return a file's content with only the public part of its messages; report each message that is cut."""
    if not name.endswith(".csv"):
        return content
    rows = records.texts(io.BytesIO(content), name)
    messages = rows.get("message", pandas.Series(dtype="string")).dropna()
    parts = messages.map(lambda text: match[0] if (match := PUBLIC_MESSAGE.match(text)) else "")
    is_cut = parts != messages
    for message, part in zip(messages[is_cut], parts[is_cut], strict=True):
        say(f"{name}: only {quoted(part)} of the message {quoted(message)} is sent")
    return _as_csv(rows.assign(message=parts)) if is_cut.any() else content


def _as_csv(rows: pandas.DataFrame) -> bytes:
    return rows.to_csv(index=False, lineterminator="\n").encode()


def _renamed(contents: dict[str, bytes], machine_name: str) -> dict[str, bytes]:
    """Return a pack's files with another machine name in paths, rows and manifests."""
    renamed = {}
    for name, content in contents.items():
        if name.endswith(".csv"):
            rows = records.texts(io.BytesIO(content), name).assign(machine=machine_name)
            content = _as_csv(rows)
        else:
            manifest = json.loads(content)
            if "name" in (manifest.get("machine") or {}):
                manifest["machine"]["name"] = machine_name
            content = json.dumps(manifest, indent=1, sort_keys=True).encode()
        renamed[f"{machine_name}/{name.partition('/')[2]}"] = content
    return renamed


def _new(contents: dict[str, bytes], rows: pandas.DataFrame) -> dict[str, bytes]:
    """Return the files that are not here yet.

    Raises:
        PackError: a run is here already with other content or under another machine, or rows of another computer have
            the machine's name.
    """
    runs, machine_name = layout.outputs() / "runs", rows["machine"].iloc[0]
    for name, content in contents.items():
        if (runs / name).exists() and (runs / name).read_bytes() != content:
            raise PackError(f"{name} is here already with other content; nothing was added")
    new = {name: content for name, content in contents.items() if not (runs / name).exists()}
    here = records.gather(records.find(runs), lambda line: None) if runs.is_dir() else rows[:0]
    chips = set(here.loc[here["machine"] == machine_name, "chip"].dropna())
    new_chips = set(rows["chip"].dropna())
    if chips and new_chips and not chips & new_chips:
        raise PackError(
            f"machine {machine_name!r} is here already as {listed(chips)}, but these rows are from"
            f" {listed(new_chips)}; ask for a pack with another machine name (MACHINE=...)"
        )
    added = rows[rows["run_id"].isin({name.rpartition("/")[2][:-4] for name in new if name.endswith(".csv")})]
    again = here.merge(added.drop_duplicates("run_id"), on=["study", "point", "run_id"], suffixes=("", "_new"))
    for line in again.head(1).itertuples():
        raise PackError(f"run {line.run_id} is here already under machine {line.machine}; nothing was added")
    both = pandas.concat([here, added], ignore_index=True)
    for run_id, (what, first) in crosschecks.copied_runs(both).items():
        if {run_id, first} & {*added["run_id"]}:
            raise PackError(f"run {run_id}: its {what} are those of run {first}; nothing was added")
    return new


def check_private(name: str, content: bytes) -> None:
    """Refuse a file that names this computer's home or project folder, because rows are published.

    Raises:
        PackError: names the file and the folder.
    """
    for folder in (Path.home(), layout.root()):
        if len(folder.parts) > 1 and f"{folder}/".encode() in content:
            raise PackError(f"{name} names the folder {folder}; allowed: no private folders in published files")


def read_zip(path: Path) -> dict[str, bytes]:
    """Return a pack's files by name, after checks of every name, kind and size.

    Raises:
        PackError: the zip is not readable, or a file in it is not allowed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_members(members)
            contents = {}
            for member in members:
                with archive.open(member) as file:  # in pieces, so that no more is unpacked than the header declares
                    contents[member.filename] = b"".join(iter(functools.partial(file.read, PIECE_BYTES), b""))
            return contents
    except PackError as error:
        raise PackError(f"{path.name}: {error}") from error
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise PackError(f"{path} is not a readable zip ({str(error)[:200]})") from error


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    for member in members:
        name, method = quoted(member.filename), member.compress_type
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise PackError(f"{name} is a link or a special file; allowed: plain files")
        if method not in METHODS:
            method = zipfile.compressor_names.get(method, f"number {method}")
            raise PackError(f"{name} has compression method {method}; allowed: {', '.join(METHODS.values())}")
        if (size := member.file_size) > records.MAX_BYTES:
            raise PackError(f"{name} has {size} bytes unpacked; allowed: {records.MAX_BYTES}")
        check_name(member.filename)
    names = [member.filename for member in members]
    counts = collections.Counter(name.lower() for name in names)  # on macOS A.csv and a.csv are the same file
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise PackError(f"{quoted(twice[0])} occurs twice; allowed: once, in upper or lower case")
    if (size := sum(member.file_size for member in members)) > MAX_BYTES:
        raise PackError(f"{size} bytes unpacked; allowed: {MAX_BYTES}")
    machines = {name.partition("/")[0] for name in names}
    if len(machines) != 1:
        raise PackError(f"holds {len(machines)} machines ({listed(machines)}); allowed: one")
    if alone := sorted(name for name in names if name.endswith(".json") and f"{name[:-5]}.csv" not in names):
        raise PackError(f"{alone[0]} has no rows next to it")


def check_name(name: str) -> None:
    """Refuse a file's name that is not a path of rows below outputs/runs.

    Raises:
        PackError: names the file.
    """
    *folders, file = name.split("/")
    run_id, _, ending = file.rpartition(".")
    if len(folders) != 3 or ending not in ("csv", "json") or not all(map(layout.is_name, (*folders, run_id))):
        allowed = f"<machine>/<study>/<point>/<run_id>.csv and .json, each of {layout.NAME_RULE}"
        raise PackError(f"{quoted(name)}; allowed: {allowed}")


def write_zip(path: Path, contents: dict[str, bytes]) -> None:
    """Write files for publication as a zip, completely or not at all; the same files give the same bytes.

    Raises:
        PackError: see `check_private`.
    """
    for name, content in contents.items():
        check_private(name, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            member = zipfile.ZipInfo(name)  # dated 1980, so that the bytes do not depend on the time
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, contents[name])
    temporary.replace(path)
