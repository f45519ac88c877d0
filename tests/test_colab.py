"""The notebook for Colab and Kaggle, with stand-ins for the commands of a borrowed computer, and the links to it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import nbformat
import pytest
from nbclient import NotebookClient

from benchbook.machine import layout
from benchbook.rows import records

NOTEBOOK = layout.root() / "notebooks" / "colab.ipynb"
LINKING = ("pyproject.toml", "README.md", "notebooks/colab.ipynb")
LINK = re.compile(r"github(?:\.com)?/([\w.-]+/[\w.-]+?)(?=[/\"\\]|$)", re.MULTILINE)
BADGE = "[![Open in "
IMPORTED = "import sys; print({'torch', 'tensorflow', 'jax', 'keras', 'benchbook'} & set(sys.modules))"
MOST_BYTES = 200 * 2**20


def address() -> str:
    """Return owner and name of the repository, from the one setting of it."""
    project = tomllib.loads((layout.root() / "pyproject.toml").read_text())["project"]
    return project["urls"]["Repository"].removeprefix("https://github.com/")


def run_notebook(folder, monkeypatch, real: str = "", **parameters: str) -> tuple[list[str], str]:
    """Execute the notebook in a folder whose environment is as odd as Colab's.

    Args:
        folder: empty.
        monkeypatch: pytest's.
        real: which commands of benchbook are carried out and not only noted, as a pattern of the shell.
        parameters: to be changed.

    Returns:
        The commands that it gave, each with PYTHONPATH and BENCHBOOK_PATIENCE, and what the last cell printed.
    """
    for name in ("bin", "site", "home", "tmp", "here"):
        (folder / name).mkdir()
    for name in ("torch", "numpy"):
        (folder / "site" / f"{name}.py").write_text("raise ImportError('of the notebook, not of the runs')")
    note = f'echo "$(basename "$0") $*|$PYTHONPATH|$BENCHBOOK_PATIENCE" >> {folder}/log\n'
    run = f'PYTHONPATH="${{PYTHONPATH:-{layout.root() / "lib"}}}" {sys.executable} -m benchbook "$@" >> study.log 2>&1'
    for name in ("nvidia-smi", "pip", "benchbook"):
        rest = f'case "$1" in {real}) {run} ;; esac\n' if real and name == "benchbook" else ""
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{note}{rest}")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    for name, value in {"PYTHONPATH": "site", "HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "home"}.items():
        monkeypatch.setenv(name, str(folder / value))
    for name in ("BENCHBOOK_OUTPUTS", "BENCHBOOK_PATIENCE"):
        monkeypatch.delenv(name, raising=False)
    if real:  # a checkout would write into itself
        monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(folder / "here" / "outputs"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    values = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    notebook.cells.insert(2, nbformat.v4.new_code_cell(values))
    notebook.cells.append(nbformat.v4.new_code_cell(IMPORTED))
    NotebookClient(notebook, resources={"metadata": {"path": str(folder / "here")}}, timeout=600).execute()
    return (folder / "log").read_text().splitlines(), notebook.cells[-1].outputs[0]["text"].strip()


@pytest.mark.notebook
def test_it_checks_installs_measures_and_packs_and_imports_no_framework(tmp_path, monkeypatch):
    commands, imported = run_notebook(tmp_path, monkeypatch, machine="kaggle-p100")
    assert commands == [
        f"nvidia-smi |{tmp_path / 'site'}|",
        f"pip install --quiet benchbook[measure] @ git+https://github.com/{address()}||0",
        "benchbook machine||0",
        "benchbook study --machine kaggle-p100 --profile quick --studies all||0",
        "benchbook pack --machine kaggle-p100||0",
    ]
    assert imported == "set()"


@pytest.mark.slow
@pytest.mark.notebook
def test_next_to_a_busy_process_it_measures_without_waiting_and_leaves_little_on_the_disk(tmp_path, monkeypatch):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        run_notebook(tmp_path, monkeypatch, "study|pack", profile="smoke", studies="calibrate")
    finally:
        busy.kill()
        busy.wait()
    outputs = tmp_path / "here" / "outputs"
    assert "waiting" not in (tmp_path / "here" / "study.log").read_text()
    assert set(records.merge(outputs / "runs" / "colab-t4")["status"]) == {"ok"}
    assert (outputs / "colab-t4.zip").is_file()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MOST_BYTES
    assert not list((tmp_path / "tmp").glob("benchbook-*"))


@pytest.mark.parametrize("name", LINKING)
def test_links_have_the_address_of_the_setting_and_none_that_shows_names_the_account_that_does_not_exist(name):
    text = (layout.root() / name).read_text()
    assert set(LINK.findall(text)) == {address()}
    assert not re.search(r"\]\([^)]*_owner_", re.sub(r"<!--.*?-->", "", text))


def test_make_address_changes_the_setting_and_every_link_and_shows_the_badges(tmp_path):
    for name in ("Makefile", *LINKING):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(layout.root() / name, tmp_path / name)
    for repository in ("some-one/bench.book", "another/one"):  # a repository may move
        subprocess.run(["make", "address", f"REPOSITORY={repository}"], cwd=tmp_path, check=True)
        for name in LINKING:
            text = (tmp_path / name).read_text()
            assert set(LINK.findall(text)) == {repository}
            assert text.count(BADGE) == (0 if name == "pyproject.toml" else 2)
            assert "<!-- address" not in text
    nbformat.read(tmp_path / "notebooks" / "colab.ipynb", as_version=4)
