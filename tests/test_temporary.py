"""Temporary folders: none is left for long by a killed process, and none is taken from a living
one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchbook.machine import temporary

HOLD = """
import os, time
from benchbook.machine import libraries
def hold(name):
    print(os.environ["KERAS_HOME"], flush=True)
    time.sleep(600)
libraries.importlib.import_module = hold
libraries.import_alone("keras")
"""


@pytest.fixture
def place(monkeypatch) -> Iterator[Path]:
    """Let temporary files go to a folder of this test, whose path is short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def test_the_next_folder_removes_those_of_killed_processes_and_no_others(place):
    """One of them is the empty KERAS_HOME of a process that imports Keras."""
    theirs = [place / f"{temporary.PREFIX}{name}" for name in ("results", "copy", "link", "pipe")]
    results, copy, link, pipe = theirs
    results.mkdir()
    (results / "rows.csv").write_text("mine")
    link.symlink_to(results)
    os.mkfifo(pipe)
    with temporary.folder() as own:
        with subprocess.Popen(
            [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True
        ) as holder:
            held = Path(holder.stdout.readline().strip())
            with temporary.folder() as other:
                found = {*place.iterdir()}
            holder.kill()
        assert found == {results, link, pipe, own, other, held}
        shutil.copytree(held, copy)
        with temporary.folder() as last:
            assert {*place.iterdir()} == {*theirs, own, last}
    assert {*place.iterdir()} == {*theirs}
    assert (results / "rows.csv").read_text() == "mine"


def test_a_folder_is_removed_though_its_body_fails(place):
    with pytest.raises(FileNotFoundError, match="of the body"), temporary.folder() as folder:
        raise FileNotFoundError("of the body")
    assert not folder.exists()


@pytest.mark.parametrize("place", ["/tmp", f"/{'t' * 96}"])
def test_the_paths_of_sockets_fit_into_a_folder(monkeypatch, place):
    monkeypatch.setattr("tempfile.tempdir", place)
    with temporary.folder() as folder, temporary.folder():
        assert folder.parent == Path("/tmp")
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        with temporary.folder() as inner:
            assert inner.parent == folder
        assert len(f"{inner}/pymp-12345678/listener-12345678") <= 103
