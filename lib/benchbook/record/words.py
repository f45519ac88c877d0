"""Which chips have the words that a user typed; without pandas, for a quick answer."""

import csv
import functools
import re
from collections.abc import Callable

from benchbook.machine import layout


def chips(text: str) -> list[dict[str, str]]:
    """Return the lines of chips.csv whose name or aliases have all words of a text, as they are
    written there; an empty text finds all chips."""
    has_words = finder(text)
    return [line for line in _lines() if has_words(f"{line['chip']}|{line['aliases']}")]


@functools.cache
def _lines() -> list[dict[str, str]]:
    path = layout.published() / "record" / "chips.csv"
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def finder(text: str) -> Callable[[str], bool]:
    """Return whether a name, or one of several separated by "|", has all words of a text.

    A word begins where a name's word begins, and its number ends where that number ends: "6000"
    is in "RTX 6000" and not in "RTX A6000", "M4" is not in "SXM4".
    """
    patterns = []
    for word in re.findall(r"[a-z0-9]+", text.lower()):
        parts = re.findall(r"[a-z]+|\d+", word)
        end = r"\d" if parts[-1].isdigit() else "[a-z]"
        patterns.append(re.compile(f"(?<![a-z0-9]){'[^a-z0-9|]*'.join(parts)}(?!{end})"))
    return lambda name: all(each.search(name.lower()) for each in patterns)
