"""Which names have the words that a user typed."""

import re
from collections.abc import Callable


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
