"""The command `chips`; it needs no framework."""

from typing import Annotated

import typer

from benchbook.commands.options import AsJson
from benchbook.commands.output import say, say_json
from benchbook.record import words

SPECIFICATIONS = {
    "chip": "chip",
    "released": "released",
    "fp32_tflops": "fp32",
    "matrix_tflops": "matrix",
    "memory_gb": "GB",
    "bandwidth_gb_s": "GB/s",
    "tdp_watts": "W",
    "launch_price_usd": "$ new",
}
DUAL_ISSUE = "dual issue: two products at a time on each core"  # the words of a peak's source


def chips(
    text: Annotated[str, typer.Argument(help="words of a name, such as 4090; empty: all")] = "",
    as_json: AsJson = False,
) -> None:
    """Print the specifications of the chips whose names have the words of a text."""
    chosen = words.chips(text)
    if not chosen:
        raise ValueError(
            f"no chip on record is called {text!r}; `benchbook chips` without words lists all"
        )
    if as_json:
        columns = [*SPECIFICATIONS, "source"]
        say_json({"chips": [{name: _number(line[name]) for name in columns} for line in chosen]})
        return
    table, doubled = [[*SPECIFICATIONS.values()]], [DUAL_ISSUE in line["source"] for line in chosen]
    for line, is_doubled in zip(chosen, doubled, strict=True):
        cells = [_short(line[name]) for name in SPECIFICATIONS]
        cells[table[0].index("fp32")] += "*" * is_doubled
        table.append(cells)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    say(f"{len(chosen)} chips; a cell is empty if no source has the figure")
    if any(doubled):
        say(f"* with {DUAL_ISSUE}")
    say(*(" ".join(map(str.rjust, cells, widths)) for cells in table))


def _number(cell: str) -> float | str | None:
    """Return a cell as a number if it is one; None if it is empty."""
    try:
        return float(cell)
    except ValueError:
        return cell or None


def _short(cell: str) -> str:
    """Return a number without what its column's type adds to it; another text as it is."""
    value = _number(cell)
    return f"{value:g}" if isinstance(value, float) else cell
