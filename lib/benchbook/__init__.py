"""benchbook: what training a network costs, in time, energy and money.

Importing this package imports no framework: a machine needs only the one its study runs on.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    sys.exit(
        "error: benchbook runs on Linux and macOS; on Windows it needs WSL: https://learn.microsoft.com/windows/wsl"
    )

if TYPE_CHECKING:
    from benchbook.loop import callbacks
    from benchbook.loop.meter import Meter, measure, window

__all__ = ["Meter", "callbacks", "measure", "window"]


def __getattr__(name: str) -> Any:
    """Return what measures a loop of one's own; it is imported when a script first uses it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "callbacks":
        return importlib.import_module("benchbook.loop.callbacks")
    return getattr(importlib.import_module("benchbook.loop.meter"), name)
