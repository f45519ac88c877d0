"""Execute one notebook by papermill, in a kernel that is reached through files.

papermill's own command talks to its kernel over TCP: that needs a network device, if only the loopback one, and
leaves the conversation open to every user of the machine.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from benchbook.machine import processes


def command(notebook: Path, executed: Path, parameters: dict | None = None) -> list[str]:
    """Return the command that executes a notebook in a process of its own."""
    return [
        sys.executable,
        "-m",
        "benchbook.running.kernel",
        str(notebook),
        str(executed),
        json.dumps(parameters or {}),
    ]


def main() -> None:
    """Execute NOTEBOOK into EXECUTED with PARAMETERS, a JSON object; end when the supervisor does."""
    import papermill
    from traitlets.config import Config

    notebook, executed, parameters = sys.argv[1:]
    supervisor = int(os.environ.get("BENCHBOOK_SUPERVISOR", 0))
    if supervisor:
        processes.when_gone(supervisor, lambda: processes.kill(processes.family(os.getpid())))
    # A folder of its own: by default the files lie, numbered, where this was started, and kernels take each other's.
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        settings = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})
        # What a run leaves is on disk after its last cell; to take a framework apart would last a second or two more.
        settings.NotebookClient.shutdown_kernel = "immediate"
        papermill.execute_notebook(notebook, executed, json.loads(parameters), progress_bar=False, config=settings)


if __name__ == "__main__":
    main()
