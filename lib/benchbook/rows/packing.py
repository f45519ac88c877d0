"""Pack one machine's rows into a zip, and add the rows of such a zip, or of its unpacked folder,
to outputs/runs.

A pack holds only `<machine>/<study>/<point>/<run_id>.csv` and `.json`. A pack from others is
checked completely before any file is written.
"""

import hashlib
import io
import json
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

import pandas

from benchbook.machine import identity, layout, sessions, temporary
from benchbook.rows import crosschecks, files, manifests, records, staging
from benchbook.rows.crosschecks import RUN
from benchbook.rows.files import Say, read_plain
from benchbook.rows.schema import listed, quoted

MAX_BYTES, MAX_FILES = (
    256 * 2**20,
    10_000,
)  # unpacked; a full profile's rows take a few MB in hundreds of files
ALLOWED = f"allowed: <machine>/<study>/<point>/<run_id>.csv and .json, each of {layout.NAME_RULE}"


class PackError(ValueError):
    """A pack cannot be made or added; the message names the file in it."""


def _own_machine(own: Collection[str]) -> str:
    """Return the machine with this checkout's sessions, this computer's if it has some.

    Raises:
        PackError: there is none, or several.
        ValueError: see `identity.identify`.
    """
    rows, name = records.gather(layout.outputs() / "runs", str), identity.identify().name
    names = sorted(rows.loc[rows["session"].isin(own), "machine"].unique())
    if name in names or len(names) == 1:
        return name if name in names else names[0]
    found = f"sessions of {listed(names)}" if names else "no session"
    raise PackError(
        f"{found} of this checkout and computer; allowed: --machine NAME; {_machines()}"
    )


def _machines() -> str:
    folders = (layout.outputs() / "runs").glob("*/")
    return (
        f"machines with a folder: {', '.join(sorted(each.name for each in folders)) or 'none yet'}"
    )


def _readable(text: str) -> str:
    """Return a text with JSON's escapes of letters as letters, each in its composed form."""
    written = re.sub(
        r"(?:\\+u[0-9a-fA-F]{4})+",
        lambda escapes: json.loads('"' + re.sub(r"\\+", r"\\", escapes[0]) + '"'),
        text,
    )
    return unicodedata.normalize("NFC", written)


def _publishable(path: Path, content: bytes) -> bytes:
    """Return a file's content without messages of failures.

    Raises:
        PackError: it names a private folder.
    """
    if path.suffix == ".csv":
        written = records.texts(path, path.name)
        if "message" in written and written["message"].notna().any():
            written = written.assign(message=None)
            content = written.to_csv(index=False, lineterminator="\n").encode()
    text = _readable(content.decode(errors="replace"))
    for private in (Path.home(), layout.root()):
        pattern = rf"(?<![\w.-]){re.escape(_readable(str(private)))}(?![\w.-])"
        if len(private.parts) > 1 and re.search(pattern, text):
            allowed = "no private folders in published files"
            name = path.relative_to(layout.outputs() / "runs")
            raise PackError(f"{name} names the folder {private}; allowed: {allowed}")
    return content


def _name_here(folder: Path, rows: pandas.DataFrame, here: pandas.DataFrame) -> str:
    """Return the name of a pack's machine here: its own, unless rows of another computer have it.

    Then digits of the fingerprint and of the first session follow it, so that a newer pack of
    the same computer gets the same name.
    """
    there = here[here["machine"] == folder.name]
    is_known = rows["run_id"].isin(there["run_id"]) | rows["session"].isin(sessions.own())
    if there.empty or is_known.any():
        return folder.name
    first = rows.sort_values("session").iloc[0]
    path = folder / first["study"] / first["point"] / f"{first['run_id']}.json"
    about = manifests.read(path).get("machine") or {} if path.exists() else {}
    digits = [about.get("fingerprint") or "", hashlib.sha256(first["session"].encode()).hexdigest()]
    return identity.with_kind(folder.name, *filter(None, digits))


def _rename(folder: Path, name: str) -> Path:
    """Give the rows and manifests in a machine's folder another machine's name."""
    for file in folder.glob("*/*/*"):
        if file.suffix == ".csv":
            written = records.texts(file, file.name).assign(machine=name)
            file.write_bytes(written.to_csv(index=False, lineterminator="\n").encode())
        elif (manifest := json.loads(file.read_bytes())).get("machine"):
            manifest["machine"]["name"] = name
            file.write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")
    return folder.rename(folder.with_name(name))


def read(path: Path) -> dict[str, bytes]:
    """Return the rows and manifests in a zip, or in a folder, by name; Finder's files are left out.

    Raises:
        PackError: the zip is not readable, or has a file that is not allowed.
    """
    if path.is_dir():
        path = path.resolve()
        own = [file for ending in ("csv", "json") for file in files.find(path, ending)[0]]
        paths = {file.relative_to(path.parent).as_posix(): file for file in sorted(own)}
        return {
            name: read_plain(paths[own], records.MAX_BYTES)
            for own, name in _checked_names(paths).items()
        }
    try:
        with zipfile.ZipFile(io.BytesIO(read_plain(path, MAX_BYTES))) as archive:
            members = archive.infolist()
            names = _checked_names(member.filename for member in members)
            members = [member for member in members if member.filename in names]
            if (size := sum(member.file_size for member in members)) > MAX_BYTES:
                raise PackError(f"{size} bytes unpacked; allowed: {MAX_BYTES}")
            contents = {}
            for member in members:
                with archive.open(
                    member
                ) as file:  # unpacks no more than the size that the zip declares
                    contents[names[member.filename]] = file.read(member.file_size + 1)
            return contents
    except PackError:
        raise
    except Exception as error:  # each method of compression has errors of its own
        reason = getattr(error, "strerror", None) or str(error)
        raise PackError(f"not a readable zip ({reason[:200]})") from error


def _checked_names(found: Iterable[str]) -> dict[str, str]:
    """Return the files to add, by their names in the pack, without a folder around the machine's.

    Raises:
        PackError: names a file that is none of rows and manifests of one machine.
    """
    found = [name for name in found if not files.FOREIGN.search(name)]
    if len(found) > MAX_FILES:
        raise PackError(f"{len(found)} files; allowed: {MAX_FILES}")
    around = (
        found[0].partition("/")[0] if found and all(name.count("/") > 3 for name in found) else ""
    )
    names = [name.removeprefix(f"{around}/" if around.strip(".") else "") for name in found]
    there = set(names)
    for name in names:
        *folders, file = name.split("/")
        run_id, _, ending = file.rpartition(".")
        if (
            len(folders) != 3
            or ending not in ("csv", "json")
            or not all(map(layout.is_name, (*folders, run_id)))
        ):
            raise PackError(f"{quoted(name)}; {ALLOWED}")
        if ending == "json" and f"{name[:-5]}.csv" not in there:
            raise PackError(f"{name} has no rows next to it")
    counts = Counter(name.lower() for name in names)  # on macOS A.csv and a.csv are the same file
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise PackError(f"{twice[0]} occurs twice; allowed: once, in upper or lower case")
    machines = {name.partition("/")[0] for name in names}
    if len(machines) != 1:
        raise PackError(
            f"holds rows of {listed(machines) or 'no machine'}; allowed: of one machine"
        )
    return dict(zip(found, names, strict=True))


def _refuse_copies(added: pandas.DataFrame, here: pandas.DataFrame) -> None:
    """Refuse new runs that are among the rows here under another machine, or as a copy.

    Raises:
        PackError: names the run.
    """
    for line in here[here["run_id"].isin(added["run_id"])].head(1).itertuples():
        raise PackError(
            f"run {line.run_id} is here already under machine {line.machine}; nothing was added"
        )
    both = pandas.concat([here, added], ignore_index=True)
    for run_id, (what, first) in crosschecks.copied_runs(both).items():
        if {run_id, first} & {*added["run_id"]}:
            raise PackError(f"run {run_id}: its {what} are those of run {first}; nothing was added")


class Packer(crosschecks.Checker):
    """Packs the rows of a machine, and adds those of others."""

    def pack(
        self, machine_name: str = "", path: Path | None = None, say: Say = print
    ) -> tuple[Path, pandas.DataFrame]:
        """Write a zip of one machine's rows and manifests.

        Messages of failures are not packed: an error's text may hold folders, hosts and keys.

        Args:
            machine_name: the machine of the rows, other people's too; empty: the sessions that
            this checkout measured on this computer.
            path: the zip to write; default: `<machine>.zip` in the outputs folder.
            say: called with what `checked` has to say.

        Returns:
            The zip, and its rows.

        Raises:
            PackError: there are no rows, a run has not ended, a file is in a wrong folder, or a file
            names this computer's
                home or project folder.
            SchemaError, ManifestError: a row or a manifest breaks its schema.
        """
        own = sessions.own()
        machine = machine_name or _own_machine(own)
        folder = layout.runs(machine)
        for unfinished in sorted(folder.rglob("*.running")):
            again = "run the same `make study` again"
            raise PackError(f"run {unfinished.stem} of {machine} has not ended; {again}")
        if not folder.is_dir():
            raise PackError(f"machine {machine!r} has no rows; {_machines()}")
        contents, rows = read(folder), self._of_machine(folder, say)
        others, every = rows.loc[~rows["session"].isin(own), "run_id"].nunique(), rows["run_id"]
        if not machine_name:
            rows = rows[rows["session"].isin(own)]
        elif others:
            told = f"{others} of {every.nunique()} runs of {machine}"
            say(f"{told} were not measured by this checkout here")
        kept = set(rows["run_id"])
        contents = {
            name: _publishable(folder.parent / name, content)
            for name, content in contents.items()
            if Path(name).stem in kept
        }
        path = path or layout.outputs() / f"{machine}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        with temporary.naming(path), zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        new.replace(path)
        return path, rows

    def add(self, path: Path, say: Say = print, name: str = "") -> tuple[Path, pandas.DataFrame]:
        """Copy a pack's files to outputs/runs; nothing is written there unless all of it is right
        and fits the disk.

        Runs that are here already, with the same bytes, are left alone, so that a newer pack can
        follow an older one. Rows of another computer than those that have the machine's name here get
        a name of their own, which is said.

        Args:
            path: the zip, or the folder unpacked from it.
            say: called with what `checked` has to say.
            name: of the machine here; empty: the pack's.

        Returns:
            The machine's folder, and the rows in the pack.

        Raises:
            PackError: it is no pack; it holds other files than rows and manifests of one machine in
            their places; rows
                contradict themselves, each other or their manifest; or a run is here already with
                other content, under another machine or as a copy.
            SchemaError, ManifestError: a row or a manifest breaks its schema.
            ValueError: a folder cannot have the name.
        """
        staging.tidy()
        runs = layout.outputs() / "runs"
        runs.parent.mkdir(parents=True, exist_ok=True)
        with temporary.folder(runs.parent, staging.STAGED, staging.settle) as place:
            staged = place / runs.name
            try:
                for member, content in read(path).items():
                    file = staged / member
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
                (folder,) = staged.iterdir()
                rows, here, new = self._of_machine(folder, say), records.gather(runs, str), set()
                sent, name = folder.name, name or _name_here(folder, rows, here)
                if name != sent:
                    folder = _rename(folder, layout.check_name(name, "machine name"))
                    rows = rows.assign(machine=name)
                for file in folder.glob("*/*/*"):
                    target = runs / file.relative_to(staged)
                    if not target.exists():
                        new.add(file.stem)
                    elif target.read_bytes() != file.read_bytes():
                        raise PackError(
                            f"{file} is here already with other content; nothing was added"
                        )
                _refuse_copies(rows[rows["run_id"].isin(new)], here)
            except ValueError as error:
                raise type(error)(f"{path.name}: {error}".replace(f"{staged}/", "")) from error
            (place / staging.COMPLETE).touch()
        if name != sent:
            say(
                f"{path.name}: the rows of {sent} are kept as {name}; `--as NAME` chooses another name"
            )
        return runs / folder.name, rows

    def checked(self, path: Path, say: Say, published: bool = False) -> pandas.DataFrame:
        """Return the rows of a file, or of all files below a folder, after all checks of rows and
        manifests.

        Args:
            path: the file or folder.
            say: called with a line that names unknown columns.
            published: whether rows may be published; only the measured ones are compared with
            manifests.

        Raises:
            PackError: rows contradict themselves, each other or their manifest.
            SchemaError, ManifestError: a row or a manifest breaks its schema.
        """
        rows, wrong = records.merge(path), []
        files.name_foreign(path, say)
        described = manifests.read_all(path, wrong.append)
        if wrong:
            raise manifests.ManifestError(wrong[0])
        measured = rows[rows["source"] == "measured"] if published else rows
        for run in measured.loc[measured["model"].eq(records.YOURS), "run_id"]:
            raise PackError(
                f"run {run} trained a user's network in a notebook; allowed: the study's"
            )
        for complaint in self.complaints(measured, described).values():
            raise PackError(complaint)
        for line in records.unused(rows):
            say(line)
        return rows

    def _of_machine(self, folder: Path, say: Say) -> pandas.DataFrame:
        """Return the rows in a machine's folder, after all checks; each run is in the file of its name.

        Raises:
            PackError, SchemaError, ManifestError: see `add`.
        """
        rows = self.checked(folder, say)
        places = {
            path.relative_to(folder.parent).with_suffix("").parts for path in records.find(folder)
        }
        for run in sorted(places ^ set(rows[RUN].itertuples(index=False, name=None))):
            raise PackError(
                f"{'/'.join(run)}.csv has no rows of this run, or they are in another file"
            )
        return rows
