"""An accelerator that one process may hold: nobody but a kernel holds it when a kernel needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import toy
from benchbook.machine import layout
from benchbook.rows import records
from processes import needs, study

pytestmark = needs("jax")

HERE = Path(__file__).parent
PICK = "from benchbook.frameworks import devices; print(devices.pick('best', 'jax').kind)"
# A process that runs PLAN, and while it lives a kernel of its own that picks the best device.
PLAN_AND_PICK = f"""
import subprocess, sys
{{plan}}
assert kinds == ("tpu", "cpu")
print(subprocess.run([sys.executable, "-c", {PICK!r}], capture_output=True, text=True, check=True).stdout)
"""


def exclusive(lock: Path, project: Path) -> dict[str, str]:
    """Return the variables of a process of a project that shares the accelerator."""
    path = os.pathsep.join([str(HERE / "exclusive"), str(project / "lib")])
    return {"BENCHBOOK_EXCLUSIVE_LOCK": str(lock), "PYTHONPATH": path, "BENCHBOOK_MACHINE": ""}


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        ("from benchbook.frameworks import survey; kinds = survey.kinds('jax')", "tpu"),
        # As libtpu does; without this double, the case above would pass whatever the survey did.
        ("from benchbook.frameworks import devices; kinds = devices.backend('jax').kinds()", "cpu"),
    ],
)
def test_a_kernel_gets_the_accelerator_unless_the_planning_process_asked_for_it_itself(tmp_path, plan, kind):
    command = [sys.executable, "-c", PLAN_AND_PICK.format(plan=plan)]
    environment = os.environ | exclusive(tmp_path / "lock", layout.root())
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, kind), done.stderr


@pytest.mark.slow
@pytest.mark.notebook
def test_a_whole_study_leaves_the_accelerator_to_its_kernels(tmp_path):
    project = tmp_path / "project"
    toy.copy_project(project)
    budget = {"num_windows": 1, "window_seconds": 0.05, "matrix_sizes": "128", "copy_mebibytes": 1}
    chosen = {"time_limit_minutes": 3, "parameters": {"budget": budget}, "points": [{"framework": ["jax"]}]}
    (project / "notebooks" / "profiles" / "smoke.yaml").write_text(yaml.safe_dump({"calibrate": chosen}))
    outputs = tmp_path / "outputs"
    variables = exclusive(tmp_path / "lock", project)
    done = study(outputs, "--profile", "smoke", "--machine", "a-tpu", **variables)
    text = done.communicate()[0]
    assert done.returncode == 0, text
    rows = records.merge(outputs / "runs")
    assert rows.groupby("device")["run_id"].nunique().to_dict() == {"cpu": 1, "tpu": 1}
    assert set(rows["status"]) <= {"ok", "unsupported"}  # a precision that the device lacks
    assert (outputs / "report" / "index.html").exists()
