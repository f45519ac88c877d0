"""Start the command line, and end every failure in one line, from the first import on."""

import errno
import os
import shlex
import signal
import subprocess
import sys
import traceback

from benchbook.machine.terminal import printable

MOST_CHARACTERS, MOST_BEFORE = 2000, 1000  # of a message, and of its part before the cut
STOPPED = " Finished windows are kept; the same command continues from there."  # of a study


def main() -> None:
    """Run the command line; docs/troubleshooting.md lists the statuses it exits with."""
    try:
        from benchbook.machine import stopping

        stopping.stop_on_signals()
        from benchbook.commands import cli

        sys.exit(cli.app(sys.argv[1:] or ["--help"], prog_name="benchbook", standalone_mode=False))
    except SystemExit:
        raise
    except BaseException as error:
        signal.setitimer(signal.ITIMER_REAL, 0)  # of `stopping`
        if os.environ.get("BENCHBOOK_DEBUG"):
            traceback.print_exception(error)
        text, status = describe(error)
        if len(text) > MOST_CHARACTERS:  # the end says what is allowed
            text = f"{text[:MOST_BEFORE]}... (cut) ...{text[MOST_BEFORE - MOST_CHARACTERS :]}"
        print(printable(text), file=sys.stderr)
        sys.exit(status)


def describe(error: BaseException) -> tuple[str, int]:
    """Return one line about what ended a command, and its exit status.

    Statuses: 1 an unexpected failure, 2 bad input or a bad file, 128 plus the signal's number
    after a stop.
    """
    name, text = type(error).__name__, " ".join(str(error).split())
    kept = STOPPED if (is_study := sys.argv[1:2] == ["study"]) else ""
    if isinstance(error, KeyboardInterrupt):  # before `stop_on_signals`
        return f"Stopped.{kept}", 130
    if hasattr(error, "status"):  # stopping.Stopped, whose import may have failed
        return f"Stopped ({text}).{kept}", error.status
    if hasattr(error, "format_message"):  # words that typer does not understand
        command = getattr(getattr(error, "ctx", None), "command_path", "benchbook")
        problem = " ".join(error.format_message().split()).rstrip(".")
        typed = shlex.join(["benchbook", *sys.argv[1:]])
        return f"error: {problem} (in `{typed}`); `{command} --help` lists what is allowed", 2
    if name == "Abort":  # the end of the input, where typer asks a question
        return "Stopped: the question was not answered.", 1
    if isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
    ):
        kept = "; the rows written before are kept" if is_study else ""
        return f"error: {error.filename or 'a file'}: {error.strerror}{kept}", 2
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return f"error: {text}", 2
    if isinstance(error, subprocess.CalledProcessError):
        return f"error: {text}; its output is above", 1
    return f"error: {name}: {text}; BENCHBOOK_DEBUG=1 shows where", 1


if __name__ == "__main__":
    main()
