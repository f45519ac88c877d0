"""Options that several commands have, and numbers with bounds."""

import math
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
PackedName = Annotated[
    str, typer.Option(help="name of a machine; empty: what this checkout measured here")
]


def number(text: str, low: float, high: float = math.inf) -> typer.models.OptionInfo:
    """Return an option for a number, with its help and its bounds; a value outside them raises a
    ValueError."""

    def check(option: typer.CallbackParam, value: float | None) -> float | None:
        if value is not None and not low <= value <= high:
            raise ValueError(f"{option.name} {value:g}; allowed: {low:g} to {high:g}")
        return value

    return typer.Option(help=text, callback=check)
