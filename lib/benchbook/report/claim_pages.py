"""A page for each published claim, at an address that stays: what was claimed, and what speaks for and against it."""

from itertools import groupby
from pathlib import Path

import jinja2

from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import claims
from benchbook.report import tables

NOBODY = (claims.NOT_MEASURED, claims.NOT_RECOMPUTED, claims.NOT_COMPARABLE)


def write(judged: Path, folder: Path, environment: jinja2.Environment) -> None:
    """Write the pages into a folder; pages of before, whose claim is gone, are deleted.

    Args:
        judged: the CSV of `claims.table`; without the file there are no pages.
        folder: of the pages.
        environment: of the templates.
    """
    template = environment.get_template("claim.html")
    folder.mkdir(parents=True, exist_ok=True)
    pages = set()
    articles = claims.read(layout.published() / "claims.csv").set_index("id")["article"].to_dict()
    lines = sorted(tables.lines(judged), key=lambda line: line["id"])
    for name, own in groupby(lines, key=lambda line: line["id"]):
        shown = [_shown(line) | {"article": articles.get(name, "")} for line in own]
        path = folder / f"{layout.check_name(name, 'claim')}.html"
        path.write_text(template.render(claim=shown[0], lines=shown), encoding="utf-8")
        pages.add(path)
    for path in set(folder.glob("*.html")) - pages:
        path.unlink()


def _shown(line: dict) -> dict:
    """Return a line of the table with its numbers in words."""
    low, high, value = (tables.text(line.get(name)) for name in ("low", "high", "value"))
    bounds = f" ({low} to {high})" if low != high else ""
    reason = wording.sentence(line.get("reason") or "")
    return line | {
        "reason": reason,
        "shown": f"{value}{bounds}" if value else "",
        "decides": line["verdict"] not in NOBODY,
    }
