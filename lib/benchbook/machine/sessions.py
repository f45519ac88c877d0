"""The sessions that this checkout measured, and on which kind of computer: the reader's own rows.

The file travels with a copied checkout, so a session is the reader's only on a computer of the
kind that measured it.
"""

from benchbook.machine import identity, layout


def remember(session: str) -> None:
    """Add a session that this checkout measures on this computer to the file of its sessions."""
    line, path = f"{session},{identity.fingerprint()}", layout.sessions()
    if path.exists() and not path.is_file():  # a damaged state ends no measurement
        return
    known = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    if line not in known:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:  # a torn last line is a line of its own
            file.write(f"\n{line}\n" if known else f"{line}\n")


def own() -> frozenset[str]:
    """Return the sessions that this checkout measured on computers of this one's kind."""
    path = layout.sessions()
    if not path.is_file():
        return frozenset()
    kind = identity.fingerprint()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    parts = (line.partition(",") for line in lines)
    return frozenset(session for session, _, of in parts if of == kind)
