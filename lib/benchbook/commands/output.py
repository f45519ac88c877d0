"""Print lines and tables; text of users and rows is never read as markup, nor by the terminal."""

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from benchbook.machine import layout
from benchbook.machine.terminal import printable

if TYPE_CHECKING:
    import pandas

# Exit statuses of a command that measures; docs/troubleshooting.md lists all of them.
SOME_FAILED, SOME_LEFT_OUT = 3, 4


def say(*lines: str) -> None:
    """Print lines without wrapping them; a line break within one is escaped."""
    typer.echo("\n".join(map(printable, lines)))


def say_json(document: dict) -> None:
    """Print an object as JSON on one line; a missing value is null."""
    import pandas

    say(pandas.Series(document, dtype=object).to_json())


def say_wrapped(text: str) -> None:
    """Print a sentence in lines of the terminal's width, indented as its first."""
    indent = text[: len(text) - len(text.lstrip())]
    width = shutil.get_terminal_size().columns
    say(*textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False))


def say_table(title: str, lines: "pandas.DataFrame") -> None:
    """Print a table; a missing value is an empty cell."""
    from pandas import isna
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), show_edge=False)
    cells = lines.map(
        lambda v: "" if isna(v) else f"{v:g}" if isinstance(v, float) else printable(str(v))
    )
    for name in lines.columns:
        is_number = cells[name].str.match(r"[\d$.,~<]|$").all()
        justify = "right" if is_number else "left"
        table.add_column(Text(printable(name)), justify=justify, overflow="fold")
    for values in cells.itertuples(index=False):
        table.add_row(*map(Text, values))
    Console().print(table)


def short(path: Path) -> str:
    """Return a path relative to the project's folder if it is inside, else the whole path."""
    return str(path.relative_to(layout.root()) if path.is_relative_to(layout.root()) else path)
