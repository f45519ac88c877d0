"""An installation by pip, outside the checkout: it measures, packs and reports like a checkout."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from benchbook.machine import layout
from benchbook.rows import records


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the wheel from the sources' archive, and unpack it into an empty folder; return that
    folder."""
    built, folder = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source")
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=layout.root(),
        capture_output=True,
        text=True,
        check=True,
    )
    for name in files.stdout.splitlines():
        if (layout.root() / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(layout.root() / name, source / name)
    for what in ("sdist", "wheel"):
        build = f"import setuptools.build_meta as backend, sys; print(backend.build_{what}(sys.argv[1]))"
        subprocess.run(
            [sys.executable, "-c", build, built], cwd=source, check=True, stdout=subprocess.DEVNULL
        )
        if what == "sdist":
            (archive,) = built.glob("*.tar.gz")
            shutil.unpack_archive(archive, built, filter="data")
            source = built / archive.name.removesuffix(".tar.gz")
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture
def mine(tmp_path):
    """Return a folder with a study of the user's own, the toy, next to an empty one."""
    shutil.copytree(layout.root() / "docs" / "toy", tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def run(installed, folder, *words):
    """Run a command of the installation in a folder; everything but the package comes from this
    environment."""
    names = ("BENCHBOOK_MACHINE", "BENCHBOOK_OUTPUTS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PYTHONPATH": str(installed), "BENCHBOOK_PATIENCE": "0"}
    environment |= {"BENCHBOOK_STUDIES": "../mine"} if (folder.parent / "mine").is_dir() else {}
    command = [sys.executable, *words]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_wheel_holds_what_a_checkout_has_beside_the_library(installed):
    project = installed / "benchbook" / "project"
    for pattern in (
        "notebooks/*.ipynb",
        "notebooks/**/*.yaml",
        "notebooks/studies/*/*.*",
        "outputs/examples/*.ipynb",
        "outputs/published/**/*.csv",
        "docs/*.md",
        "docs/examples/*.py",
    ):
        expected = sorted(path.relative_to(layout.root()) for path in layout.root().glob(pattern))
        assert sorted(path.relative_to(project) for path in project.glob(pattern)) == expected
    data = {
        path.relative_to(project.parent).as_posix()
        for path in project.parent.rglob("*")
        if path.is_file()
    }
    folder = "datasets"
    assert {
        "py.typed",
        f"{folder}/digits.csv.gz",
        f"{folder}/digits-licence.txt",
        f"{folder}/excerpt.txt",
    } <= data


@pytest.mark.slow
def test_an_installation_measures_packs_and_reports_in_an_empty_folder(installed, mine):
    """Its own study and one of the user's, in kernels and measuring processes."""
    names = "vae_stability softmax_digits"
    choice = ("--profile", "smoke", "--studies", names, "--machine", "pip-box")
    said = run(installed, mine, "-m", "benchbook", "study", *choice)
    assert "outputs/report/index.html" in said
    rows = records.merge(mine / "outputs" / "runs" / "pip-box")
    assert set(rows["status"]) == {"ok"}
    assert set(rows["study"]) == set(names.split())
    assert not list((mine / "outputs").rglob("outputs"))
    run(installed, mine, "-m", "benchbook", "pack", "--machine", "pip-box")
    assert (mine / "outputs" / "pip-box.zip").is_file()
    report = mine / "outputs" / "report"
    assert "pip-box" in (report / "points.html").read_text()
    assert "to train softmax regression on" in (report / "50_softmax_digits.html").read_text()
    assert not list(
        (installed / "benchbook" / "project").rglob("*.json")
    )  # nothing is written into the installation


# A class is sent by name: the process that gets it imports its study.
GUESTS = """
import importlib, multiprocessing, sys
from benchbook.machine import launch

if __name__ == "__main__":
    for study in ("mnist_speedup", "softmax_digits"):
        plan = importlib.import_module(f"benchbook.studies.{study}.plan").Plan
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(repr, (plan,)) == repr(plan)
        assert launch.call("builtins:repr", plan, num_ranks=2) == (repr(plan), None)
        print(sys.modules[plan.__module__].__file__)
"""


@pytest.mark.slow
def test_a_spawned_worker_and_two_ranks_import_studies_of_an_installation(installed, mine):
    (mine / "guests.py").write_text(GUESTS)
    places = run(installed, mine, "guests.py").split()
    folders = (installed / "benchbook" / "project" / "notebooks", mine.parent / "mine")
    names = ("mnist_speedup", "softmax_digits")
    assert places == [
        str(folder / "studies" / name / "plan.py")
        for folder, name in zip(folders, names, strict=True)
    ]
