"""Pack one machine's rows into a zip, and add the rows of such a zip, or of its unpacked folder, to outputs/runs.

A pack holds only `<machine>/<study>/<point>/<run_id>.csv` and `.json`. A pack from others is checked completely before
any file is written.
"""

import contextlib
import io
import json
import re
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas

from benchbook.machine import identity, layout
from benchbook.rows import crosschecks, manifests, records
from benchbook.rows.crosschecks import RUN
from benchbook.rows.files import read_plain
from benchbook.rows.schema import listed, quoted

MAX_BYTES = 256 * 2**20  # unpacked; a full profile's rows take a few MB
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # can be unpacked in pieces
EXTRAS = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|\._[^/]*$)|/$")  # Finder's files, and folders
# The part of a failure's message that is sent: benchbook's own words, or an error's name. The text of an error may hold
# folders, hosts and keys.
PUBLIC_MESSAGE = re.compile(
    r"the process that measured was gone|the kernel died(, because the disk is full)?"
    r"|stopped by (SIG[A-Z]+|the deadline)|took longer than its limit of \d+ s"
    r"|the kernel was killed, because it took more memory than there is"
    r"|[A-Z][A-Za-z]{2,60}(?=: )|"
)
FAULTS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)


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
    files = [file for table in tables for file in (table, table.with_suffix(".json")) if file.exists()]
    names = sorted(file.relative_to(folder.parent).as_posix() for file in files)
    _check_names(names)
    rows, _ = _checked(folder.parent, names, say)
    path = path or layout.outputs() / f"{machine_name}.zip"
    contents = {name: _public(folder.parent / name, say) for name in names}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    with zipfile.ZipFile(temporary, "w") as archive:
        for name, content in contents.items():
            member = zipfile.ZipInfo(name)  # dated 1980, so that the bytes do not depend on the time
            member.external_attr = 0o644 << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    temporary.replace(path)
    return path, rows


def _public(path: Path, say: Callable[[str], object]) -> bytes:
    """Return a file's content with only the public part of messages; report each message that is cut.

    Raises:
        PackError: the file names this computer's home or project folder.
    """
    content = path.read_bytes()
    rows = records.texts(path, path.name) if path.suffix == ".csv" else {}
    if "message" in rows and rows["message"].notna().any():
        parts = rows["message"].map(lambda text: PUBLIC_MESSAGE.match(text)[0], na_action="ignore")
        for message, part in zip(rows["message"], parts, strict=True):
            if pandas.notna(message) and message != part:
                say(f"{path.name}: only {quoted(part)} of the message {quoted(message)} is sent")
        content = rows.assign(message=parts).to_csv(index=False, lineterminator="\n").encode()
    for folder in (Path.home(), layout.root()):
        if len(folder.parts) > 1 and f"{folder}/".encode() in content:
            raise PackError(f"{path.name} names the folder {folder}; allowed: no private folders in published files")
    return content


def add(path: Path, say: Callable[[str], object] = print) -> tuple[Path, pandas.DataFrame]:
    """Copy a pack's files to outputs/runs; nothing is written there unless all of it is right and fits the disk.

    Runs that are here already, with the same bytes, are left alone, so that a newer pack can follow an older one. If
    the machine's name is here for another kind of computer, the new rows get digits of their fingerprint in the name.

    Args:
        path: the zip, or the folder unpacked from it.
        say: called with a line for each reason why runs are unproven.

    Returns:
        The machine's folder, and the rows in the pack.

    Raises:
        PackError: it is no pack; it holds other files than rows and manifests of one machine in their places; rows
            contradict themselves, each other or their manifest; or a run is here already with other content, under
            another machine or as a copy.
        SchemaError, ManifestError: a row or a manifest breaks its schema.
    """
    outputs = layout.outputs()
    try:
        contents = read(path)
        outputs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=outputs, prefix=".adding-") as temporary:
            folder, runs = Path(temporary), outputs / "runs"
            for name, content in contents.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            rows, by_run = _checked(folder, list(contents), say)
            machine = rows["machine"].iloc[0]
            kinds, kinds_here = (
                {(manifest.get("machine") or {}).get("fingerprint") for manifest in some.values()} - {None}
                for some in (by_run, manifests.read_all(runs / machine))
            )
            if len(kinds) == 1 and kinds_here and not kinds & kinds_here:
                machine = _rename(folder / machine, identity.with_kind(machine, min(kinds)))
                rows = rows.assign(machine=machine)
            for file in _new_files(folder, runs, rows):
                target = runs / file.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
            return runs / machine, rows
    except ValueError as error:
        raise type(error)(f"{path.name}: {error}") from error
    finally:
        with contextlib.suppress(OSError):  # it has other files
            outputs.rmdir()


def read(path: Path) -> dict[str, bytes]:
    """Return the files of a pack, or of a machine's folder, by name; logs, notebooks and Finder's files are left out.

    Raises:
        PackError: the zip is not readable, or a file in it is not allowed.
    """
    if path.is_dir():
        top = path.resolve().parent if any(path.glob("*/*/*.csv")) else path.resolve()
        files = {file.relative_to(top).as_posix(): file for file in path.resolve().rglob("*") if not file.is_dir()}
        names = [name for name in sorted(files) if not (EXTRAS.search(name) or name.endswith((".log", ".ipynb")))]
        _check_names(names)
        return {name: read_plain(files[name], records.MAX_BYTES) for name in names}
    try:
        with zipfile.ZipFile(io.BytesIO(read_plain(path, MAX_BYTES))) as archive:
            members = [member for member in archive.infolist() if not EXTRAS.search(member.filename)]
            _check_names([member.filename for member in members])
            for member in members:
                if member.compress_type not in METHODS:
                    raise PackError(f"{member.filename} is compressed by another method; allowed: store, deflate")
            if (size := sum(member.file_size for member in members)) > MAX_BYTES:
                raise PackError(f"{size} bytes unpacked; allowed: {MAX_BYTES}")
            contents = {}
            for member in members:
                with archive.open(member) as file:  # unpacks no more than the size that the zip declares
                    contents[member.filename] = file.read(member.file_size + 1)
            return contents
    except PackError:
        raise
    except FAULTS as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PackError(f"not a readable zip ({reason[:200]})") from error


def _check_names(names: list[str]) -> None:
    """Refuse files that are not rows and manifests of one machine.

    Raises:
        PackError: names the file.
    """
    for name in names:
        *folders, file = name.split("/")
        run_id, _, ending = file.rpartition(".")
        if len(folders) != 3 or ending not in ("csv", "json") or not all(map(layout.is_name, (*folders, run_id))):
            allowed = f"<machine>/<study>/<point>/<run_id>.csv and .json, each of {layout.NAME_RULE}"
            raise PackError(f"{quoted(name)}; allowed: {allowed}")
        if ending == "json" and f"{name[:-5]}.csv" not in names:
            raise PackError(f"{name} has no rows next to it")
    counts = Counter(name.lower() for name in names)  # on macOS A.csv and a.csv are the same file
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise PackError(f"{twice[0]} occurs twice; allowed: once, in upper or lower case")
    machines = {name.partition("/")[0] for name in names}
    if len(machines) != 1:
        raise PackError(f"holds rows of {listed(machines) or 'no machine'}; allowed: of one machine")


def _checked(folder: Path, names: list[str], say: Callable[[str], object]) -> tuple[pandas.DataFrame, dict[str, dict]]:
    """Return the rows of one machine's files below a folder, and its manifests by run, after all checks.

    Raises:
        PackError, SchemaError, ManifestError: see `add`.
    """
    paths = [folder / name for name in names]
    tables = [path for path in paths if path.suffix == ".csv"]
    try:
        by_run = {path.stem: manifests.read(path) for path in paths if path.suffix == ".json"}
        rows = records.merge(tables)
        for path in tables:
            written = records.texts(path, str(path))
            place = path.relative_to(folder).with_suffix("").parts
            for column, allowed in zip([*RUN, "source"], [*place, "measured"], strict=True):
                if len(wrong := written.loc[written[column] != allowed, column]):
                    found = f"{column} is {quoted(wrong.iloc[0])}; allowed: {allowed}"
                    raise PackError(f"{path}, line {wrong.index[0] + 2}: {found}")
    except ValueError as error:
        raise type(error)(str(error).replace(f"{folder}/", "")) from error
    for complaint in crosschecks.complaints(rows, by_run).itertuples():
        raise PackError(crosschecks.describe(complaint))
    for line in crosschecks.unproven(rows, by_run):
        say(line)
    return rows, by_run


def _rename(folder: Path, machine_name: str) -> str:
    """Write another machine name into a machine's folder, rows and manifests; return it."""
    for file in folder.rename(folder.with_name(machine_name)).glob("*/*/*"):
        if file.suffix == ".csv":
            rows = records.texts(file, file.name).assign(machine=machine_name)
            rows.to_csv(file, index=False, lineterminator="\n")
        else:
            manifest = json.loads(file.read_bytes())
            if "name" in (manifest.get("machine") or {}):
                manifest["machine"]["name"] = machine_name
            file.write_text(json.dumps(manifest, indent=1, sort_keys=True))
    return machine_name


def _new_files(folder: Path, runs: Path, rows: pandas.DataFrame) -> list[Path]:
    """Return the files below a folder that are not in the folder of all machines yet.

    Raises:
        PackError: a run is there already with other content, under another machine, or as a copy.
    """
    new = []
    for file in sorted(folder.glob("*/*/*/*")):
        there = runs / file.relative_to(folder)
        if not there.exists():
            new.append(file)
        elif there.read_bytes() != file.read_bytes():
            raise PackError(f"{file.relative_to(folder)} is here already with other content; nothing was added")
    here = records.gather(records.find(runs), lambda line: None) if runs.is_dir() else rows[:0]
    added = rows[rows["run_id"].isin([file.stem for file in new if file.suffix == ".csv"])]
    for line in here[here["run_id"].isin(added["run_id"])].head(1).itertuples():
        raise PackError(f"run {line.run_id} is here already under machine {line.machine}; nothing was added")
    both = pandas.concat([here, added], ignore_index=True)
    for run_id, (what, first) in crosschecks.copied_runs(both).items():
        if {run_id, first} & {*added["run_id"]}:
            raise PackError(f"run {run_id}: its {what} are those of run {first}; nothing was added")
    return new
