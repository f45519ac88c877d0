"""Folders of rows that `add` is copying: what an interrupted one left is finished or removed."""

from pathlib import Path

from benchbook.machine import layout, temporary

# Folders of files that are being added, and the mark of one that is checked.
STAGED, COMPLETE = ".adding-", "complete"


def tidy() -> None:
    """Finish or remove what an interrupted `add` has left in the outputs folder."""
    temporary.tidy(layout.outputs(), STAGED, settle)


def settle(place: Path) -> None:
    """Move the files in a folder of `add` to outputs/runs if they are complete; remove the folder."""
    for file in sorted(place.glob("runs/*/*/*/*")) if (place / COMPLETE).exists() else ():
        target = place.parent / file.relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            file.rename(target)
    temporary.remove(place)
