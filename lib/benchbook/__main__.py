"""Start the command line, and end it in one line whatever happens, from the first import on."""

import errno
import os
import subprocess
import sys
import traceback

STOPPED = "Finished windows are kept; the same command continues from there."


def main() -> None:
    """Run the command line; docs/exit-statuses.md lists the statuses it exits with."""
    try:
        from benchbook.machine import processes

        processes.stop_on_signals()
        from benchbook.commands import cli

        cli.app()
    except SystemExit:
        raise
    except BaseException as error:
        if os.environ.get("BENCHBOOK_DEBUG"):
            traceback.print_exception(error)
        text, status = describe(error)
        print(text, file=sys.stderr)
        sys.exit(status)


def describe(error: BaseException) -> tuple[str, int]:
    """Return one line about what ended a command, and its exit status.

    Statuses: 2 something is wrong with what was asked for, or with a file; 1 something failed that should not have;
    128 and the signal's number after a stop.
    """
    name, text = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):  # before signals were handled
        return f"Stopped. {STOPPED}", 130
    if hasattr(error, "status"):  # processes.Stopped, which may not be imported yet
        return f"Stopped ({text}). {STOPPED}", error.status
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        return f"error: {error.filename or 'a file'}: {error.strerror}; the rows written before are kept", 2
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return f"error: {text}", 2
    if isinstance(error, subprocess.CalledProcessError):
        return f"error: {text}; its output is above", 1
    return f"error: {name}: {text}; benchbook --debug shows where (BENCHBOOK_DEBUG=1 for make)", 1


if __name__ == "__main__":
    main()
