"""Execute one notebook with papermill, in a kernel that is reached through Unix sockets.

papermill's own command talks to its kernel over TCP. That needs a network device, at least the loopback one, and every
user of the machine can connect to it.

A run records the SHA-256 of its executed notebook in a file of the outputs folder. A report publishes recorded
notebooks only, because others may come from anywhere. `benchbook add` cannot change this file: it writes below
outputs/runs.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchbook.machine import layout, processes


def command(notebook: Path, executed: Path, parameters: dict) -> list[str]:
    """Return the command that executes a notebook in a process of its own."""
    return [sys.executable, "-m", "benchbook.running.kernel", str(notebook), str(executed), json.dumps(parameters)]


def record(notebook: Path) -> None:
    """Record the executed notebook of a run on this computer."""
    with _file().open("a", encoding="utf-8") as file:
        file.write(f"{_digest(notebook)}\n")


def recorded(notebooks: Iterable[Path]) -> list[Path]:
    """Return the notebooks that equal a recorded one byte by byte."""
    digests = set(_file().read_text(encoding="utf-8").split()) if _file().exists() else set()
    return [notebook for notebook in notebooks if _digest(notebook) in digests]


def _digest(notebook: Path) -> str:
    return hashlib.sha256(notebook.read_bytes()).hexdigest()


def _file() -> Path:
    return layout.outputs() / ".made_notebooks"


def execute(notebook: Path, executed: Path, parameters: dict, folder: Path) -> None:
    """Execute a notebook, in a kernel whose sockets are in a folder of this run.

    By default, sockets are numbered files in the current folder, and two kernels may use the same ones.
    """
    import papermill
    from traitlets.config import Config

    settings = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})
    # All files of a run are written after its last cell; a framework's regular shutdown takes one or two seconds more.
    settings.NotebookClient.shutdown_kernel = "immediate"
    paths = (str(path).replace("{", "{{").replace("}", "}}") for path in (notebook, executed))  # no templates
    papermill.execute_notebook(*paths, parameters, progress_bar=False, config=settings)


def main() -> None:
    """Execute NOTEBOOK into EXECUTED with PARAMETERS, a JSON object; end when the supervisor ends."""
    supervisor = int(os.environ["BENCHBOOK_SUPERVISOR"])
    processes.when_gone(supervisor, lambda: processes.kill(processes.tree(os.getpid())))
    notebook, executed, parameters = sys.argv[1:]
    execute(notebook, executed, json.loads(parameters), Path(tempfile.gettempdir()))  # a folder of this run alone


if __name__ == "__main__":
    main()
