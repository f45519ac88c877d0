"""Execute one notebook by papermill, in a kernel that is reached through files.

papermill's own command talks to its kernel over TCP: that needs a network device, if only the loopback one, and
leaves the conversation open to every user of the machine.

Executed notebooks that runs on this computer made are recorded by their SHA-256 in a file of the outputs folder. A
report publishes these alone: others among the rows may come from anywhere. Only runs write this file; `benchbook add`
writes below outputs/runs.
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
    """Record a notebook that a run on this computer wrote."""
    with _file().open("a", encoding="utf-8") as file:
        file.write(f"{_digest(notebook)}\n")


def recorded(notebooks: Iterable[Path]) -> list[Path]:
    """Return those notebooks that equal a recorded one byte by byte."""
    digests = set(_file().read_text(encoding="utf-8").split()) if _file().exists() else set()
    return [notebook for notebook in notebooks if _digest(notebook) in digests]


def _digest(notebook: Path) -> str:
    return hashlib.sha256(notebook.read_bytes()).hexdigest()


def _file() -> Path:
    return layout.outputs() / ".made_notebooks"


def execute(notebook: Path, executed: Path, parameters: dict, folder: Path) -> None:
    """Execute a notebook, in a kernel whose sockets lie in a folder.

    By default they lie, numbered, where this was started, and kernels take each other's.
    """
    import papermill
    from traitlets.config import Config

    settings = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})
    # What a run leaves is on disk after its last cell; to take a framework apart would last a second or two more.
    settings.NotebookClient.shutdown_kernel = "immediate"
    paths = (str(path).replace("{", "{{").replace("}", "}}") for path in (notebook, executed))  # no templates
    papermill.execute_notebook(*paths, parameters, progress_bar=False, config=settings)


def main() -> None:
    """Execute NOTEBOOK into EXECUTED with PARAMETERS, a JSON object; end when the supervisor does."""
    supervisor = int(os.environ["BENCHBOOK_SUPERVISOR"])
    processes.when_gone(supervisor, lambda: processes.kill(processes.tree(os.getpid())))
    notebook, executed, parameters = sys.argv[1:]
    execute(notebook, executed, json.loads(parameters), Path(tempfile.gettempdir()))  # of this run alone


if __name__ == "__main__":
    main()
