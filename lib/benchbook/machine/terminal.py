"""Text of others on a terminal."""

import unicodedata


def printable(text: str) -> str:
    """Return a text as one line that a terminal only shows: control characters, line breaks and
    other invisible characters are escaped, such as `\\x1b`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    is_shown = character.isprintable() or unicodedata.category(character) == "Zs"
    return character if is_shown else character.encode("unicode_escape").decode()
