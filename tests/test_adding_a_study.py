"""CONTRIBUTING's lines that add a study, in a copy of the project; its `make` lines run here without set-up."""

import shutil
import subprocess
import sys

from benchbook.machine import layout
from processes import environment_of_tests

PARTS = ("lib", "notebooks", "docs", "tests", "outputs/published", "pyproject.toml", "CITATION.cff")
CONTRACT = "tests/test_plans.py tests/test_points.py tests/test_studies.py tests/test_notebooks.py tests/frameworks"


def test_the_toy_study_is_added_passes_the_contract_and_is_measured(tmp_path):
    for part in PARTS:
        (tmp_path / part).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (layout.root() / part).is_dir() else shutil.copyfile
        copy(layout.root() / part, tmp_path / part)
    section = (layout.root() / "CONTRIBUTING.md").read_text().partition("## Add a study")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    python, outputs = f"{sys.executable} -m", str(tmp_path / "measured")
    tested = f'{python} pytest -q -p no:cacheprovider -k "${{2#STUDY=}} and not an_example" -m "not slow" {CONTRACT}'
    study = f'{python} benchbook study --profile "${{2#PROFILE=}}" --studies "${{3#STUDIES=}}" --machine other'
    made = f'make() {{ if [ "$1" = test ]; then {tested}; else {study}; fi; }}\n'
    environment = environment_of_tests() | {"PYTHONPATH": str(tmp_path / "lib"), "BENCHBOOK_OUTPUTS": outputs}
    command = ["sh", "-e", "-c", made + script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Softmax regression reads 60,000 images in" in done.stdout
