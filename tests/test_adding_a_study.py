"""CONTRIBUTING's lines that add a study, in a copy of the project; its `make` lines run here
without set-up."""

import subprocess
import sys

from benchbook.machine import layout
from made.processes import environment_of_tests
from made.toy import copy_parts

CONTRACT = "tests/test_plans.py tests/test_points.py tests/test_studies.py tests/test_notebooks.py tests/frameworks"
TESTED = f'-m pytest -q -p no:cacheprovider -k "${{2#STUDY=}} and not an_example" -m "not slow" {CONTRACT}'
# Its notebook's cells, in one process: test_session.py has a study that is added, in kernels and
# with a report.
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


def test_the_toy_study_is_added_passes_the_contract_and_is_measured(tmp_path):
    copy_parts(tmp_path, "docs", "tests")
    section = (layout.root() / "CONTRIBUTING.md").read_text().partition("## Add a study")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    (tmp_path / "study.py").write_text(STUDY)
    study = 'study.py "${2#PROFILE=}" "${3#STUDIES=}"'
    made = f'make() {{ if [ "$1" = test ]; then {sys.executable} {TESTED}; else {sys.executable} {study}; fi; }}\n'
    folders = {
        "PYTHONPATH": f"{tmp_path}/lib:{tmp_path}/tests",
        "BENCHBOOK_OUTPUTS": str(tmp_path / "measured"),
    }
    command = ["sh", "-e", "-c", made + script]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment_of_tests() | folders,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "to train softmax regression on 60,000 images on" in done.stdout
