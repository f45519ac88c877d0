"""Execute one notebook with papermill, in a kernel that is reached through Unix sockets.

papermill's own command talks to its kernel over TCP. That needs a network device, at least the loopback one, and every
user of the machine can connect to it.

The newest executed notebook of each study is kept in outputs/executed. A report shows only these and the examples in
outputs/examples: others may come from anywhere, since `benchbook add` writes below outputs/runs.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchbook.machine import layout, processes, variables


def command(notebook: Path, executed: Path, parameters: dict) -> list[str]:
    """Return the command that executes a notebook in a process of its own."""
    return [sys.executable, "-m", "benchbook.running.kernel", str(notebook), str(executed), json.dumps(parameters)]


def executed() -> Path:
    """Return the folder of the newest executed notebook of each study, made on this computer."""
    return layout.outputs() / "executed"


def keep(notebook: Path, study: str) -> None:
    """Copy the executed notebook of a run on this computer to where the report finds it."""
    executed().mkdir(parents=True, exist_ok=True)
    shutil.copyfile(notebook, executed() / layout.notebook(study).name)


def execute(notebook: Path, executed: Path, parameters: dict, folder: Path) -> None:
    """Execute a notebook, in a kernel whose sockets are in a folder of this run, without the user's IPython settings.

    By default, sockets are numbered files in the current folder, and two kernels may use the same ones.
    """
    import papermill
    from traitlets.config import Config

    settings = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})
    # All files of a run are written after its last cell; a framework's regular shutdown takes one or two seconds more.
    settings.NotebookClient.shutdown_kernel = "immediate"
    paths = (str(path).replace("{", "{{").replace("}", "}}") for path in (notebook, executed))  # no templates
    # Streams are merged, so that the last state of a progress bar is kept.
    options = {"progress_bar": False, "config": settings, "coalesce_streams": True}
    with variables.setting(IPYTHONDIR=f"{folder}/ipython", JUPYTER_PREFER_ENV_PATH="1"):  # this environment's kernel
        papermill.execute_notebook(*paths, parameters, **options)


def main() -> None:
    """Execute NOTEBOOK into EXECUTED with PARAMETERS, a JSON object; end when the supervisor ends."""
    supervisor = int(os.environ["BENCHBOOK_SUPERVISOR"])
    processes.when_gone(supervisor, lambda: processes.kill(processes.tree(os.getpid())))
    notebook, executed, parameters = sys.argv[1:]
    execute(notebook, executed, json.loads(parameters), Path(tempfile.gettempdir()))  # a folder of this run alone


if __name__ == "__main__":
    main()
