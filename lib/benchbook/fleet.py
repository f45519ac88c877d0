"""Rows of many machines at once: a folder of archives, and a proposed folder of runs, each machine judged alone."""

import stat
import tempfile
from pathlib import Path

import pandas

from benchbook import archives, articles, condition, headline, layout, manifests, packing, records
from benchbook.records.checking import quoted
from benchbook.report import tables
from benchbook.studies import every
from benchbook.study import Evidence

ADDED = ["archive", "machine", "runs", "new", "rows", "problem"]
PROPOSED = ["machine", "runs", "rows", "removed", "problem"]
SHOWN = [
    "study",
    "variant",
    "device",
    "dataset",
    "images_per_second",
    "low",
    "high",
    "num_windows",
    "verdict",
    "status",
]


def add(folder: Path) -> pandas.DataFrame:
    """Add every archive of a folder that is good; one that is not is named, and stops no other.

    Args:
        folder: of zips made by `packing.pack`, taken in the order of their names.

    Returns:
        A line for each archive. Columns: ADDED; new are the runs that were not here; problem is missing where the
        archive was taken.

    Raises:
        ValueError: the folder has no archive.
    """
    lines = []
    for path in sorted(folder.glob("*.zip")):
        line = {"archive": path.name}
        try:
            before = len(_tables())
            place, rows = packing.add(path)
            line |= {"machine": place.name, "runs": rows["run_id"].nunique(), "rows": len(rows)}
            line |= {"new": len(_tables()) - before}
        except ValueError as error:
            line |= {"problem": str(error)}
        lines.append(line)
    if not lines:
        raise ValueError(f"{folder} has no archive; allowed: a folder of .zip files made by `benchbook pack`")
    return pandas.DataFrame(lines, columns=ADDED)


def _tables() -> list[Path]:
    folder = layout.outputs() / "runs"
    return records.find(folder) if folder.is_dir() else []


def review(proposed: Path) -> tuple[pandas.DataFrame, dict[str, pandas.DataFrame]]:
    """Judge what a proposed folder of runs adds to the one here, as data: nothing of it is run, and nothing is written.

    Args:
        proposed: a folder such as outputs/runs, of another checkout.

    Returns:
        A line for each machine of which something differs, with columns PROPOSED; removed are runs that are here and
        not there. And by machine, where there is no problem, its headline with the new rows.

    Raises:
        PackError: the folder is a link.
    """
    lines, headlines = [], {}
    if proposed.is_symlink() or proposed.parent.is_symlink():
        raise packing.PackError(f"{proposed} is a link, or its folder is one; allowed: a plain folder")
    for folder in sorted(proposed.iterdir()):
        line = {"machine": folder.name}
        try:
            changed, removed = _differences(folder)
            if not changed and not removed:
                continue
            line |= {"removed": removed, "runs": 0, "rows": 0}
            if changed:
                contents, rows = packing.judge(folder.name, changed)
                _check_same_name(folder.name, rows)
                line |= {"runs": rows["run_id"].nunique(), "rows": len(rows)}
                headlines[folder.name] = _headline(rows["machine"].iloc[0], contents)
        except ValueError as error:
            line |= {"problem": str(error)}
        lines.append(line)
    return pandas.DataFrame(lines, columns=PROPOSED), headlines


def _check_same_name(name: str, rows: pandas.DataFrame) -> None:
    """Refuse rows of another kind of computer than those here: an archive is renamed, and a folder cannot be."""
    if (own := rows["machine"].iloc[0]) != name:
        raise packing.PackError(f"{name}: another kind of computer has this name here; allowed: such as {own}")


def _differences(folder: Path) -> tuple[dict[str, bytes], int]:
    """Return the files of a machine that are not here, or not so, by name; and how many runs of it are only here.

    Raises:
        PackError: a link or a special file, a name that is no place of rows, or files that are too large.
    """
    here = layout.runs(folder.name)
    changed, size, names = {}, 0, set()
    for path in sorted([folder] if folder.is_symlink() or not folder.is_dir() else folder.rglob("*")):
        name = path.relative_to(folder.parent).as_posix()
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise packing.PackError(f"{quoted(name)} is a link or a special file; allowed: plain files")
        archives.check_place(name, status.st_size)
        size += status.st_size
        if size > archives.LARGEST_BYTES:
            raise packing.PackError(f"{folder.name}: more than {archives.LARGEST_BYTES} bytes; allowed: no more")
        names.add(name)
        content, own = path.read_bytes(), here.parent / name
        if not own.exists() or own.read_bytes() != content:
            changed[name] = content
    for name in [name for name in changed if name.endswith(".json")]:  # judged beside its rows, changed or not
        rows = Path(name).with_suffix(".csv").as_posix()
        if rows not in names:
            raise packing.PackError(f"{name} has no rows beside it")
        changed[rows] = (folder.parent / rows).read_bytes()
    present = {path.relative_to(here.parent).as_posix() for path in records.find(here)} if here.is_dir() else set()
    return changed, len(present - names)


def _headline(machine: str, contents: dict[str, bytes]) -> pandas.DataFrame:
    """Return a machine's own lines of the headline, as they would be with more of its runs."""
    here = layout.runs(machine)
    own = [path for path in here.rglob("*") if path.suffix in (".csv", ".json")] if here.is_dir() else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "runs"
        kept = {path.relative_to(here.parent).as_posix(): path.read_bytes() for path in own}
        for name, content in (kept | contents).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        measured = records.gather(records.find(folder), lambda line: None)
        rows = pandas.concat([measured, articles.rows()], ignore_index=True)
        lines = headline.table(Evidence(rows, condition.samples(manifests.every(folder)), folder), every())
    return lines.loc[lines["source"] == "measured", SHOWN].reset_index(drop=True)


def as_markdown(lines: pandas.DataFrame, headlines: dict[str, pandas.DataFrame]) -> str:
    """Return a review as Markdown; what others wrote stands in code, and cannot become a link or a picture."""
    if lines.empty:
        return "# Rows\n\nNothing in outputs/runs differs.\n"
    parts = ["# Rows"]
    for line in lines.itertuples():
        problem = isinstance(line.problem, str)
        parts.append(f"## {_code(line.machine)}: {'refused' if problem else 'can be merged'}")
        if problem:
            parts.append(_code(line.problem))
            continue
        parts.append(f"{line.rows:.0f} rows of {line.runs:.0f} runs that are new; {line.removed:.0f} runs are removed.")
        shown = headlines.get(line.machine, pandas.DataFrame())
        if len(shown):
            texts = shown.map(lambda value: _code(tables.text(value)) if tables.text(value) else "")
            parts.append(texts.to_markdown(index=False, disable_numparse=True))
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    plain = " ".join(str(text).split()).replace("`", "'").replace("|", "/")
    return f"`{plain}`"
