"""CONTRIBUTING's lines that add a study outside the project; their `make` lines run here without
set-up."""

import os
import re
import subprocess
import sys

import pytest

from benchbook import studies
from benchbook.machine import layout
from benchbook.record import articles, claims
from made.processes import environment_of_tests
from made.toy import copy_parts

CONTRACT = "tests/test_plans.py tests/test_points.py tests/test_studies.py tests/test_notebooks.py tests/frameworks"
TESTED = f'-m pytest -q -p no:cacheprovider -k "${{2#STUDY=}} and not an_example" -m "not slow" {CONTRACT}'
# Its notebook's cells, in one process: test_wheel.py measures it in kernels, with a
# report.
STUDY = """
import pathlib, sys
from made import cells
from benchbook import studies
from benchbook.machine import identity
from benchbook.running import profiles
from benchbook.studies.results import answers, evidence
path, (_, profile, study) = pathlib.Path("points.json"), sys.argv
cells.write_points(path, profiles.read(profile, study))
sys.argv[1:] = path, "torch"
cells.main()
print(answers.of_study(studies.every()[study], evidence.Evidence.of_machine(identity.identify().name)))
"""


def test_the_toy_study_passes_the_contract_and_is_measured_outside_the_project(tmp_path):
    project = tmp_path / "project"
    copy_parts(project, "docs", "tests")
    section = (layout.root() / "CONTRIBUTING.md").read_text().partition("## Add a study")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    (project / "study.py").write_text(STUDY)
    study = 'study.py "${2#PROFILE=}" "${3#STUDIES=}"'
    made = f'make() {{ if [ "$1" = test ]; then {sys.executable} {TESTED}; else {sys.executable} {study}; fi; }}\n'
    folders = {
        "PYTHONPATH": f"{project}/lib:{project}/tests",
        "BENCHBOOK_OUTPUTS": str(tmp_path / "measured"),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", made + script],
        cwd=project,
        env=environment_of_tests() | folders,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert (tmp_path / "mine" / "studies" / "softmax_digits" / "plan.py").is_file()
    assert "to train softmax regression on 60,000 images on" in done.stdout


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("10_mnist_speedup.ipynb", "10_mnist_speedup.ipynb has the name of .*01_mnist_speedup"),
        ("profiles/smoke.yaml", "smoke.yaml: calibrate is in .*smoke.yaml; allowed: a st"),
        ("studies/charts/study.py", "studies/charts has the name of .*studies/charts; allowed"),
        ("studies/calibrate/study.py", "studies/calibrate has the name of .*; allowed: a name"),
    ],
)
def test_a_name_that_exists_is_refused(tmp_path, monkeypatch, command, path, message):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(layout.profile("smoke")[0].read_text() if "smoke" in path else "")
    monkeypatch.setenv(layout.STUDIES, str(tmp_path))
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path / "studies")])
    studies.folders.cache_clear()
    status, said = command("plan", "--profile", "smoke", "--studies", "mnist_speedup")
    studies.folders.cache_clear()
    assert status == 2
    assert re.search(message, said)


def test_what_an_older_version_left_compiled_is_no_study(tmp_path, monkeypatch):
    (tmp_path / "mnist_speedup" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    assert "mnist_speedup" in studies.folders.__wrapped__()


def test_a_folder_that_is_not_there_is_refused_and_one_that_is_becomes_absolute(
    tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(layout.STUDIES, "mine")
    status, said = command("plan", "--profile", "smoke", "--studies", "mnist_speedup")
    assert status == 2
    assert "BENCHBOOK_STUDIES 'mine'; allowed: a folder with pages and studies/" in said
    (tmp_path / "mine" / "published").mkdir(parents=True)
    (tmp_path / "mine" / "published" / "own.csv").touch()
    assert layout.published_rows()[-1] == tmp_path / "mine" / "published" / "own.csv"
    assert os.environ[layout.STUDIES] == str(tmp_path / "mine")


def test_claims_and_figures_of_the_users_own_are_read_with_the_projects(tmp_path, monkeypatch):
    names = ("claims.csv", "record/figures.csv", "record/quantities.csv")
    for name in names:
        own = tmp_path / "published" / name
        own.parent.mkdir(exist_ok=True, parents=True)
        with (layout.published() / name).open() as lines:
            own.write_text(lines.readline() + lines.readline())
    before = [len(articles.table(name)) for name in names]
    monkeypatch.setenv(layout.STUDIES, str(tmp_path))
    assert [len(articles.table(name)) for name in names] == [count + 1 for count in before]
    assert claims.read()["id"].iloc[-1] == claims.read()["id"].iloc[0]
