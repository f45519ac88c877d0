"""The zip in which rows travel: which files it may hold, and how it is read without trust in what it declares."""

import collections
import stat
import zipfile
import zlib
from pathlib import Path

from benchbook.machine import layout
from benchbook.rows import manifests, records
from benchbook.rows.checking import listed, quoted

LARGEST_BYTES = 256 * 2**20  # unpacked; a full profile's rows take a few MB
LARGEST_FILE_BYTES = records.LARGEST_BYTES  # one run's rows or manifest
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those whose output can be taken piece by piece
PIECE_BYTES = 2**20


class PackError(ValueError):
    """A pack cannot be made or taken; the message names the file within it."""


def read(path: Path) -> dict[str, bytes]:
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


def write(path: Path, contents: dict[str, bytes]) -> None:
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
