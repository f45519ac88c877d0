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
    from benchbook.loop.meter import Meter, measure
    from benchbook.studies.results.points import results

__all__ = ["Meter", "callbacks", "measure", "results"]
HOMES = {"callbacks": "loop.callbacks", "results": "studies.results.points"}  # else loop.meter


def __getattr__(name: str) -> Any:
    """Return what a script uses; it is imported when the script first does."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"benchbook.{HOMES.get(name, 'loop.meter')}")
    return home if name == "callbacks" else getattr(home, name)
