"""Paths of the project's folders and notebooks, and the rule for names that become part of a
path."""

import importlib.util
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from benchbook.machine import context

MAX_NAME_LENGTH = 128  # characters; a file system allows 255 with the ending
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")
NAME_RULE = (
    f"up to {MAX_NAME_LENGTH} letters, digits, '.', '_' and '-', the first a letter or a digit"
)


STUDIES = "BENCHBOOK_STUDIES"  # in the environment: a second `notebooks`, of the user's own


def is_name(value: object) -> bool:
    """Return whether a value may be the name of a folder, or of a file without its ending."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def check_name(value: str, what: str) -> str:
    """Return a name unchanged if it may become part of a path.

    Args:
        value: the name of a machine, study, point, run, group or file from a URL.
        what: the kind of name, for the error.

    Raises:
        ValueError: the name breaks NAME_RULE, so that a path with it could lead elsewhere.
    """
    if not is_name(value):
        raise ValueError(f"{what} {value[:80]!r}; allowed: {NAME_RULE}")
    return value


def root() -> Path:
    """Return the project's top folder: the checkout that holds this package, else the copy in
    the installation."""
    return checkout() or Path(__file__).resolve().parents[1] / "project"


def checkout() -> Path | None:
    """Return the checkout that holds this package, or None if pip installed the package
    elsewhere."""
    folder = Path(__file__).resolve().parents[3]
    return folder if (folder / "notebooks").is_dir() else None


def missing(*packages: str) -> list[str]:
    """Return which packages are not installed, without importing them."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def how_to_install(*packages: str) -> str:
    """Return the command that installs packages, for a checkout or what pip installed of it."""
    return "make setup" if checkout() else f"python -m pip install {' '.join(packages)}"


def folders() -> list[Path]:
    """Return the folders of pages, `profiles` and `studies`: `notebooks`, and BENCHBOOK_STUDIES.

    The latter becomes absolute in the environment, too: kernels and jobs start in other folders.

    Raises:
        ValueError: it is not there.
    """
    found = [root() / "notebooks"]
    if named := os.environ.get(STUDIES):
        found.append(Path(named).resolve())
        if not found[1].is_dir():
            raise ValueError(f"{STUDIES} {named!r}; allowed: a folder with pages and studies/")
        os.environ[STUDIES] = str(found[1])
    return found


def study(page: Path) -> str:
    """Return the name of a page's study: the file's, without a leading number and the ending."""
    return re.sub(r"^\d+_", "", page.stem)


def by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Return paths by their names, without a leading number and an ending.

    Raises:
        ValueError: two have the same name.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if (name := study(path)) in found:
            raise ValueError(f"{path} has the name of {found[name]}; allowed: a name of its own")
        found[name] = path
    return found


def outputs() -> Path:
    """Return the folder of runs, figures and report: BENCHBOOK_OUTPUTS, else `outputs` in the
    checkout or here."""
    named = context.current().outputs or os.environ.get("BENCHBOOK_OUTPUTS")
    return Path(named or (checkout() or Path.cwd()) / "outputs").resolve()


def runs(machine: str) -> Path:
    """Return the folder of one machine's rows.

    Raises:
        ValueError: see `check_name`.
    """
    return outputs() / "runs" / check_name(machine, "machine name")


def point(machine: str, study: str, name: str) -> Path:
    """Return the folder of one point's rows.

    Raises:
        ValueError: see `check_name`.
    """
    return runs(machine) / check_name(study, "study") / check_name(name, "point")


def sessions() -> Path:
    """Return the file that names the sessions which this checkout measured; see `sessions`."""
    return Path(context.current().sessions or outputs() / "state" / "sessions.csv")


def state(machine: str) -> Path:
    """Return the folder of a machine's session name, locks and finished points.

    A cluster's jobs on nodes of one kind share a folder of rows, but each has its own folder of
    state, the context's.
    """
    folder = Path(context.current().state or outputs() / "state")
    return folder / check_name(machine, "machine name")


def published() -> Path:
    """Return the folder of hand-checked published rows, claims and prices."""
    return root() / "outputs" / "published"


def published_rows() -> list[Path]:
    """Return the files of published rows, one per study; claims, prices and figures are no rows."""
    others = ("claims", "figures", "prices")
    return [path for path in published_files("*.csv") if path.stem not in others]


def published_files(pattern: str) -> list[Path]:
    """Return the published tables of a name, the project's and those of the user's own."""
    places = (published(), *(folder / "published" for folder in folders()))
    return [path for place in places for path in sorted(place.glob(pattern))]


def notebook(study: str) -> Path:
    """Return the notebook of a study.

    Raises:
        ValueError: no such study; the message lists those that exist.
    """
    paths = notebooks()
    if study not in paths:
        raise ValueError(f"unknown study {study!r}; allowed: {', '.join(paths)}")
    return paths[study]


def notebooks() -> dict[str, Path]:
    """Return every study's notebook by its name, without the leading number.

    Raises:
        ValueError: see `by_name`.
    """
    pages = [page for folder in folders() for page in folder.glob("[0-9]*.ipynb")]
    return by_name(sorted(pages, key=lambda page: page.name))


def cells(notebook: Path) -> list[dict]:
    """Return a notebook's cells, each with its `source` as one text.

    It reads plain JSON: nbformat's validator takes seconds to import, in every point's process.
    """
    content = json.loads(notebook.read_text(encoding="utf-8"))
    return [cell | {"source": "".join(cell["source"])} for cell in content["cells"]]


def question(study: str) -> str:
    """Return the question that a study's notebook asks in its title."""
    return cells(notebook(study))[0]["source"].partition("\n")[0].removeprefix("# ")


def profile(name: str) -> list[Path]:
    """Return the YAML files of a profile: the project's, the user's own, or both.

    Raises:
        ValueError: no such profile; the message lists those that exist.
    """
    paths = [path for folder in folders() for path in sorted(folder.glob("profiles/*.yaml"))]
    if not (found := [path for path in paths if path.stem == name]):
        allowed = ", ".join(dict.fromkeys(path.stem for path in paths))
        raise ValueError(f"unknown profile {name!r}; allowed: {allowed}")
    return found


def lock() -> Path | None:
    """Return the lock file of this environment, or None if `make` did not install it."""
    stamps = sorted((root() / ".venv").glob(".ready-*"))
    return (
        root() / "requirements" / f"{stamps[-1].name.removeprefix('.ready-')}.txt"
        if stamps
        else None
    )
