"""benchbook: what training a network costs, in time, energy and money.

Importing this package imports no framework: a machine needs only the one its study runs on.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchbook.loop import Meter, measure, window

__all__ = ["Meter", "measure", "window"]


def __getattr__(name: str) -> Any:
    """Return what measures a loop of one's own; it is imported when a script first uses it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from benchbook import loop

    return getattr(loop, name)
