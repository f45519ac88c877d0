"""benchbook: what training a network costs, in time, energy and money.

Importing this package imports no framework: a machine needs only the one its study runs on.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return `measure`, `window` or `Meter`; they are imported when a script first uses them."""
    if name not in ("measure", "window", "Meter"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from benchbook import loop

    return getattr(loop, name)
