"""The registry of studies: each is a folder next to the notebooks, with `study.py` and, where it
trains, `plan.py`. It is imported as if it were here."""

import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from benchbook.machine import layout

if TYPE_CHECKING:
    from benchbook.studies.study import (
        Study,
    )  # which imports matplotlib; a measuring process does not need it

__path__.extend(str(folder / "studies") for folder in layout.folders())


def names() -> list[str]:
    """Return the names of all studies, in the order of their notebooks."""
    return [name for name in layout.notebooks() if name in folders()]


@functools.cache
def folders() -> frozenset[str]:
    """Return the names of the studies' folders, read once: each run's name of a point asks.

    Raises:
        ValueError: a study of the user's own, or a page, has the name of another, or of a module
        here.
    """
    layout.notebooks()
    paths = [path for folder in __path__ for path in sorted(Path(folder).glob("[!_.]*"))]
    # An older version's folder may be left with compiled modules alone.
    paths = [path for path in paths if path.is_file() or any(path.glob("*.py"))]
    found = layout.by_name(paths).items()
    return frozenset(name for name, path in found if (path / "study.py").exists())


def every() -> dict[str, "Study"]:
    """Return all studies by name, in the order of their notebooks; studies that repeat an
    article come first."""
    studies = [importlib.import_module(f"{__name__}.{name}.study").STUDY for name in names()]
    return {study.name: study for study in sorted(studies, key=lambda study: not study.article)}


def title(name: str) -> str:
    """Return the title of a study; a name that is not a study's is returned unchanged."""
    study = every().get(name)
    return study.title if study else name
