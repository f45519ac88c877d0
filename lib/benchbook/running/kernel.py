"""Execute one notebook with papermill, in a kernel that is reached through Unix sockets.

papermill's own command talks to its kernel over TCP. That needs a network device, at least the
loopback one, and every user of the machine can connect to it.

The newest executed notebook of each point is kept in outputs/executed; the first reference of a
session is its study's page. A report shows only these and the examples in outputs/examples:
others may come from anywhere, since `benchbook add` writes below outputs/runs.
"""

import logging
import shutil
import sys
from pathlib import Path

from benchbook.machine import context, launch, layout, temporary

NEEDED = ("papermill", "ipykernel")


def check() -> None:
    """Raise ValueError, which says how they are installed, if packages that run notebooks are
    missing."""
    if missing := layout.missing(*NEEDED):
        how = layout.how_to_install(*missing)
        raise ValueError(f"notebooks run in {', '.join(missing)}, missing here; allowed: `{how}`")


def executed() -> Path:
    """Return the folder of the studies' pages as executed on this computer; those of all points
    are in `points`."""
    return layout.outputs() / "executed"


def kept_page(study: str, point: str) -> Path:
    """Return where a point's notebook is kept as executed on this computer."""
    return executed() / "points" / study / f"{point}.ipynb"


def keep(notebook: Path, study: str, point: str, is_reference: bool) -> None:
    """Copy the executed notebook of a point to where the report finds it; the first reference
    becomes the page.

    The file `.owner` next to a page has the session and the point that it shows.
    """
    page = executed() / layout.notebook(study).name
    kept = kept_page(study, point)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(notebook, kept)
    session = context.current().session
    of_session, of_point = shown(page)
    if not page.exists() or (is_reference and (of_session != session or of_point == point)):
        shutil.copyfile(notebook, page)
        temporary.write(page.with_suffix(".owner"), f"{session} {point}\n")


def shown(page: Path) -> tuple[str, str]:
    """Return the session and the point that a page shows; empty if they are not known."""
    try:
        session, point = page.with_suffix(".owner").read_text(encoding="utf-8").split()
    except (OSError, ValueError):  # there is none, or a power cut damaged it
        return "", ""
    return session, point


def execute(notebook: Path, executed: Path, parameters: dict) -> None:
    """Execute a notebook in this environment's kernel, whichever it was saved with, without a
    user's IPython settings.

    By default, sockets are numbered files in the current folder, and two kernels may use the
    same ones.

    Raises:
        PapermillExecutionError: of papermill, with name and text of the exception that ended a
        cell.
        Died: the kernel died.
    """
    import papermill
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec
    from traitlets.config import Config

    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    class Kernel(AsyncKernelManager):
        """This environment's; one called `python3` elsewhere on Jupyter's path is not asked."""

        kernel_spec = KernelSpec(argv=command, language="python")

    paths = (
        str(path).replace("{", "{{").replace("}", "}}") for path in (notebook, executed)
    )  # no templates
    with temporary.folder() as folder:
        settings = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})
        # All files of a run are written after its last cell; a framework's regular shutdown takes a
        # second or two more.
        settings.NotebookClient.shutdown_kernel = "immediate"
        settings.NotebookClient.kernel_manager_class = Kernel
        # Streams are merged, so that the last state of a progress bar is kept.
        options = {"progress_bar": False, "config": settings, "coalesce_streams": True}
        options |= {"kernel_name": "python3", "language": "python"}
        with temporary.variables(IPYTHONDIR=f"{folder}/ipython"):
            try:
                papermill.execute_notebook(*paths, parameters, **options)
            except RuntimeError as error:  # nbclient's and jupyter_client's, such as "Kernel died"
                raise launch.Died(str(error)) from error


def attempt(notebook: Path, executed: Path, parameters: dict) -> tuple[str, str] | None:
    """Execute a notebook; return name and text of the exception that ended a cell, or None.
    `launch.call` calls this.

    Raises:
        Died: the kernel died.
    """
    import papermill

    logging.disable(
        logging.ERROR
    )  # nbclient's report of a kernel's death would follow the kernel's own last line
    try:
        execute(notebook, executed, parameters)
    except papermill.PapermillExecutionError as error:
        return error.ename, error.evalue
    return None
