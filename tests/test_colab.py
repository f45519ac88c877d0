"""The notebook for Colab and Kaggle, with stand-ins for the commands of a borrowed computer, and
the links to it."""

import os
import re
import shutil
import subprocess
import tomllib

import nbformat
import pytest
import typer
from nbclient import NotebookClient

from benchbook.commands import cli
from benchbook.machine import layout

NOTEBOOK = layout.root() / "notebooks" / "colab.ipynb"
LINKING = ("pyproject.toml", "README.md", "notebooks/colab.ipynb")
LINK = re.compile(r"github(?:\.com)?/([\w.-]+/[\w.-]+?)(?=[/\"\\]|$)", re.MULTILINE)
BADGE = "[![Open in "
IMPORTED = (
    "import sys; print({'torch', 'tensorflow', 'jax', 'keras', 'benchbook'} & set(sys.modules))"
)


def address() -> str:
    """Return owner and name of the repository, from the one setting of it."""
    project = tomllib.loads((layout.root() / "pyproject.toml").read_text())["project"]
    return project["urls"]["Repository"].removeprefix("https://github.com/")


@pytest.mark.notebook
def test_it_checks_installs_measures_and_packs_and_imports_no_framework(tmp_path, monkeypatch):
    """Its environment is as odd as Colab's; commands are noted with PYTHONPATH and
    BENCHBOOK_PATIENCE, and not run."""
    for name in ("bin", "site", "here"):
        (tmp_path / name).mkdir()
    for name in ("torch", "numpy"):
        (tmp_path / "site" / f"{name}.py").write_text(
            "raise ImportError('of the notebook, not of the runs')"
        )
    note = (
        f'#!/bin/sh\necho "$(basename "$0") $*|$PYTHONPATH|$BENCHBOOK_PATIENCE" >> {tmp_path}/log\n'
    )
    for name in ("nvidia-smi", "pip", "benchbook"):
        (tmp_path / "bin" / name).write_text(note)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.delenv("BENCHBOOK_PATIENCE", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (tmp_path / "here" / "outputs").mkdir()
    (tmp_path / "here" / "outputs" / "intel-xeon-tesla-t4.zip").write_bytes(b"")
    notebook.cells.append(nbformat.v4.new_code_cell(IMPORTED))
    NotebookClient(
        notebook, resources={"metadata": {"path": str(tmp_path / "here")}}, timeout=600
    ).execute()
    commands = (tmp_path / "log").read_text().splitlines()
    assert commands == [
        f"nvidia-smi |{tmp_path / 'site'}|",
        f"pip install --quiet benchbook[measure] @ git+https://github.com/{address()}||0",
        "benchbook machine||0",
        "benchbook study --profile quick --studies all||0",
        "benchbook pack||0",
    ]
    assert notebook.cells[-1].outputs[0]["text"].strip() == "set()"
    for line in commands[2:]:
        _, name, *options = line.partition("|")[0].split()
        typer.main.get_command(cli.app).commands[name].make_context(name, options)  # or an error


@pytest.mark.parametrize("name", LINKING)
def test_links_have_the_address_of_the_setting_and_none_that_shows_names_the_account_that_does_not_exist(
    name,
):
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
