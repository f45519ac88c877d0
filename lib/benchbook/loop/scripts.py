"""Run a script of the user's own in this process, and find the loops that it measured."""

import atexit
import runpy
import sys
import traceback
from pathlib import Path

from benchbook.loop import meter
from benchbook.loop.rate import Rate


def run(path: str, arguments: list[str], folder: str = "") -> tuple[list[Rate | str], str]:
    """Run a script as `python path arguments` does, or with a folder as `python -m path` there.

    Returns:
        The rate of each loop that it measured, or why it has none; and how the script ended,
        empty if well.
    """
    sys.argv, ended = [path, *arguments], ""
    sys.path.insert(0, folder or str(Path(path).parent))
    try:
        if folder:
            runpy.run_module(path, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        ended = (
            end.code if isinstance(end.code, str) else f"exit status {end.code}" if end.code else ""
        )
    except Exception as error:
        traceback.print_exc()
        ended = traceback.format_exception_only(error)[-1].strip()
    atexit._run_exitfuncs()
    found: list[Rate | str] = []
    for each in meter.meters:
        try:
            found.append(each.rate())
        except ValueError as error:
            found.append(str(error))
    return found, ended
