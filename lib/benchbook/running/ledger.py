"""The executed notebooks that runs on this computer made, by their SHA-256, in a file of the outputs folder.

A report publishes these alone: other notebooks among the rows may come from anywhere. Only runs write this file;
`benchbook add` writes below outputs/runs.
"""

import hashlib
from pathlib import Path

from benchbook.machine import layout


def record(notebook: Path) -> None:
    """Remember a notebook that a run on this computer has made."""
    with _file().open("a", encoding="utf-8") as file:
        file.write(f"{_digest(notebook)}\n")


def recorded() -> set[str]:
    """Return the SHA-256 of every notebook that was recorded."""
    return set(_file().read_text(encoding="utf-8").split()) if _file().exists() else set()


def has(notebook: Path, digests: set[str]) -> bool:
    """Return whether a notebook is one of those recorded, to the last byte."""
    return _digest(notebook) in digests


def _digest(notebook: Path) -> str:
    return hashlib.sha256(notebook.read_bytes()).hexdigest()


def _file() -> Path:
    return layout.outputs() / ".made_notebooks"
