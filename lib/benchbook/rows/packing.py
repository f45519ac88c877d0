"""One machine's rows as a file to send, and such a file back into the tree.

A pack is a zip of `<machine>/<study>/<point>/<run_id>.csv` and `.json`, and of nothing else. What comes from others is
checked whole before anything of it is written.
"""

import collections
import io
import json
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import pandas

from benchbook.machine import identity, layout
from benchbook.rows import crosschecks, manifests, marker, records
from benchbook.rows.checking import listed, quoted

IDENTITY = ("machine", "study", "point", "run_id")
LARGEST_BYTES = 256 * 2**20  # unpacked; a full profile's rows take a few MB
LARGEST_FILE_BYTES = records.LARGEST_BYTES  # one run's rows or manifest
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those whose output can be taken piece by piece
PIECE_BYTES = 2**20


class PackError(ValueError):
    """A pack cannot be made or taken; the message names the file within it."""


def pack(machine_name: str, path: Path | None = None) -> tuple[Path, pandas.DataFrame]:
    """Write a zip of one machine's rows and manifests; the same rows give the same bytes.

    Args:
        machine_name: whose rows.
        path: where to write; default: `<machine>.zip` in the outputs folder.

    Returns:
        The zip, and the rows in it.

    Raises:
        PackError: there are no rows, a run has not ended, a file lies where it does not belong, or a file names this
            computer's home or project folder.
        SchemaError: a row breaks the schema.
    """
    folder = layout.runs(machine_name)
    unfinished = sorted(folder.rglob("*.running"))
    if unfinished:
        raise PackError(f"run {unfinished[0].stem} of {machine_name} has not ended; the same `make study` ends it")
    tables = records.find(folder) if folder.is_dir() else []
    if not tables:
        machines = ", ".join(sorted(p.name for p in folder.parent.glob("*") if p.is_dir())) or "none yet"
        raise PackError(f"machine {machine_name!r} has no rows; machines with a folder: {machines}")
    rows = _check_tables(tables, folder.parent)
    _check_believable(rows, folder)
    beside = [path.with_suffix(".json") for path in tables if path.with_suffix(".json").exists()]
    contents = {file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in [*tables, *beside]}
    for name, content in contents.items():
        check_name(name)
        _check_private(name, content)
        check_manifest(name, content)
    path = path or layout.outputs() / f"{machine_name}.zip"
    write_zip(path, contents)
    return path, rows


def add(path: Path) -> tuple[Path, pandas.DataFrame]:
    """Unpack a zip made by `pack` into outputs/runs; nothing is written unless all of it is good.

    A run that is here already, byte by byte, is left alone, so that a newer pack of a machine can be added to an older.

    Returns:
        The machine's folder, and the rows that were in the zip.

    Raises:
        PackError: the file is no such zip; it holds anything but rows and manifests of one machine at their places;
            or see `judge`.
        SchemaError: a row breaks the schema.
    """
    contents, rows = judge(path.name, read_zip(path))
    folder = layout.runs(rows["machine"].iloc[0])
    for name, content in contents.items():
        if not (folder.parent / name).exists():
            _write_file(folder.parent / name, content)
    return folder, rows


def judge(source: str, contents: dict[str, bytes]) -> tuple[dict[str, bytes], pandas.DataFrame]:
    """Return files of one machine as they would be written here, and their rows; nothing is written.

    Where their manifests are of another kind of computer than those that are here under the same name, the name goes on
    with four digits of their own kind.

    Args:
        source: what messages call the files.
        contents: files by their names below outputs/runs.

    Raises:
        PackError: a run is here already with other content; rows contradict each other or their manifest; or the
            machine's name is taken by another chip.
        SchemaError: a row breaks the schema.
    """
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in contents.items():
            check_name(name, f"{source}: ")
            (Path(temporary) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(temporary) / name).write_bytes(content)
        try:
            rows = _check_tables(records.find(Path(temporary)), Path(temporary))
            _check_believable(rows, Path(temporary))
        except ValueError as error:
            raise type(error)(f"{source}: {str(error).replace(f'{temporary}/', '')}") from error
    machine_name = rows["machine"].iloc[0]
    own_name = _own_name(machine_name, contents)
    if own_name != machine_name:
        contents, rows = _renamed(contents, own_name), rows.assign(machine=own_name)
    _check_against_present(source, own_name, contents, rows)
    return contents, rows


def _own_name(machine_name: str, contents: dict[str, bytes]) -> str:
    """Return the name of a pack's machine, which is another where a computer of another kind has it here."""
    packed = [manifests.check(content, name) for name, content in contents.items() if name.endswith(".json")]
    kinds, here = _kinds(packed), _kinds(manifests.every(layout.runs(machine_name)).values())
    if len(kinds) != 1 or not here or kinds & here:
        return machine_name
    return identity.with_kind(machine_name, min(kinds))


def _kinds(described: Iterable[dict]) -> set[str]:
    """Return the fingerprints that manifests hold."""
    return {(manifest.get("machine") or {}).get("fingerprint") for manifest in described} - {None}


def _renamed(contents: dict[str, bytes], machine_name: str) -> dict[str, bytes]:
    """Return a pack's files as those of a machine of another name, which rows and manifests both hold."""
    renamed = {}
    for name, content in contents.items():
        if name.endswith(".csv"):
            rows = records.texts(io.BytesIO(content), name).assign(machine=machine_name)
            content = rows.to_csv(index=False, lineterminator="\n").encode()
        else:
            manifest = json.loads(content)
            if "name" in (manifest.get("machine") or {}):
                manifest["machine"]["name"] = machine_name
            content = json.dumps(manifest, indent=1, sort_keys=True).encode()
        renamed[f"{machine_name}/{name.partition('/')[2]}"] = content
    return renamed


def _check_believable(rows: pandas.DataFrame, folder: Path) -> None:
    """Refuse rows that contradict themselves, one another or the manifests that lie with them."""
    for complaint in crosschecks.complaints(rows, manifests.every(folder)).itertuples():
        raise PackError(crosschecks.describe(complaint))


def _check_tables(tables: Iterable[Path], runs: Path) -> pandas.DataFrame:
    """Return the rows of all files; each must be measured, and lie where its own columns say."""
    frames = []
    for path in tables:
        frame, written = records.read(path), records.texts(path, str(path))
        place = path.relative_to(runs).with_suffix("").parts
        for column, wanted in zip(IDENTITY, place, strict=True):
            wrong = written.loc[written[column] != wanted, column]
            if len(wrong):
                raise PackError(
                    f"{path}, line {wrong.index[0] + 2}: {column} is {quoted(wrong.iloc[0])}; allowed: {wanted}"
                )
        foreign = frame.loc[frame["source"] != "measured", "source"]
        if len(foreign):
            raise PackError(
                f"{path}, line {foreign.index[0] + 2}: source is {quoted(foreign.iloc[0])}; allowed: measured"
            )
        frames.append(frame)
    if not sum(len(frame) for frame in frames):
        raise PackError(f"{runs}: no rows")
    return pandas.concat([frame for frame in frames if len(frame)], ignore_index=True)


def _check_against_present(
    pack_name: str, machine_name: str, contents: dict[str, bytes], rows: pandas.DataFrame
) -> None:
    """Refuse a run that is here with other content, and a name that another computer has."""
    runs = layout.runs(machine_name).parent
    for name, content in contents.items():
        if (runs / name).exists() and (runs / name).read_bytes() != content:
            raise PackError(f"{pack_name}: {name} is here already with other content; nothing was added")
    here = records.gather(records.find(runs / machine_name), lambda line: None)
    here = here if len(here) else rows
    chips, new_chips = set(here["chip"].dropna()), set(rows["chip"].dropna())
    if chips and new_chips and not chips & new_chips:
        raise PackError(
            f"{pack_name}: machine {machine_name!r} is here already as {listed(chips)}, and these rows are "
            f"of {listed(new_chips)}; ask for a pack made under another name (MACHINE=...)"
        )


def _check_private(name: str, content: bytes) -> None:
    """Refuse a file that tells where this computer keeps things: rows are published."""
    for folder in (Path.home(), layout.root()):
        if len(folder.parts) > 1 and f"{folder}/".encode() in content:
            raise PackError(f"{name} names the folder {folder}; rows and manifests may not")


def write_checked(contents: dict[str, bytes], path: Path) -> None:
    """Write a zip that may be published.

    Raises:
        PackError: a file names this computer's home or project folder.
    """
    for name, content in contents.items():
        _check_private(name, content)
    write_zip(path, contents)


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    marker.replace(path, content.decode())


def read_zip(path: Path) -> dict[str, bytes]:
    """Return a pack's files by name, once every name, kind and size is allowed.

    Raises:
        PackError: no readable zip, or a file in it that is not allowed; the message names it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                _check_member(path.name, member)
            _check_whole(path.name, members)
            contents = {member.filename: _read_member(archive, member) for member in members}
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise PackError(f"{path} is not a readable zip ({str(error)[:200]})") from error
    for name, content in contents.items():
        check_manifest(name, content)
    return contents


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a file of a zip, taken in pieces: no more is unpacked than its header declares, which was allowed."""
    pieces = []
    with archive.open(member) as file:
        while piece := file.read(PIECE_BYTES):
            pieces.append(piece)
    return b"".join(pieces)


def _check_member(pack_name: str, member: zipfile.ZipInfo) -> None:
    mode = member.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise PackError(f"{pack_name}: {quoted(member.filename)} is a link or a special file; allowed: plain files")
    if member.compress_type not in METHODS:
        method = zipfile.compressor_names.get(member.compress_type, f"number {member.compress_type}")
        raise PackError(f"{pack_name}: {quoted(member.filename)} is packed by {method}; allowed: store, deflate")
    if member.flag_bits & 1:
        raise PackError(f"{pack_name}: {quoted(member.filename)} is encrypted; allowed: plain files")
    if member.file_size > LARGEST_FILE_BYTES:
        unpacked = f"{quoted(member.filename)} has {member.file_size} bytes unpacked"
        raise PackError(f"{pack_name}: {unpacked}; allowed: {LARGEST_FILE_BYTES}")
    check_name(member.filename, f"{pack_name}: ")


def _check_whole(pack_name: str, members: list[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    counts = collections.Counter(name.lower() for name in names)  # macOS takes A.csv and a.csv for one file
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise PackError(f"{pack_name}: {quoted(twice[0])} occurs twice; a file may occur once, in upper or lower case")
    if (size := sum(member.file_size for member in members)) > LARGEST_BYTES:
        raise PackError(f"{pack_name}: {size} bytes unpacked; allowed: {LARGEST_BYTES}")
    machines = {name.partition("/")[0] for name in names}
    if len(machines) != 1:
        raise PackError(f"{pack_name}: holds {len(machines)} machines ({listed(machines)}); allowed: one")
    alone = sorted(name for name in names if name.endswith(".json") and f"{name[:-5]}.csv" not in names)
    if alone:
        raise PackError(f"{pack_name}: {alone[0]} has no rows beside it")


def check_name(name: str, prefix: str = "") -> None:
    """Refuse a name that is no place of rows below outputs/runs; prefix begins the message."""
    *folders, file = name.split("/")
    run_id, _, ending = file.rpartition(".")
    if len(folders) != 3 or ending not in ("csv", "json") or not all(map(layout.is_name, (*folders, run_id))):
        raise PackError(
            f"{prefix}{quoted(name)}; allowed: <machine>/<study>/<point>/<run_id>.csv and .json, each of"
            f" {layout.NAME_RULE}"
        )


def check_manifest(name: str, content: bytes) -> None:
    """Refuse a manifest that does not obey its schema; another file is none.

    Raises:
        PackError: names the file, the value and what is allowed.
    """
    if not name.endswith(".json"):
        return
    try:
        manifests.check(content, name)
    except manifests.ManifestError as error:
        raise PackError(str(error)) from error


def write_zip(path: Path, contents: dict[str, bytes]) -> None:
    """Write files as a zip, whole or not at all; the same files give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            member = zipfile.ZipInfo(name)  # dated 1980, whenever it is made
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, contents[name])
    temporary.replace(path)
