"""An accelerator that one process may hold: nobody but a kernel holds it when a kernel needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchbook.machine import layout
from made.processes import needs

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


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        ("from benchbook.frameworks import survey; kinds = survey.kinds('jax')", "tpu"),
        # As libtpu does; without this double, the case above would pass whatever the survey did.
        ("from benchbook.frameworks import devices; kinds = devices.backend('jax').kinds()", "cpu"),
    ],
)
def test_a_kernel_gets_the_accelerator_unless_the_planning_process_asked_for_it_itself(
    tmp_path, plan, kind
):
    command = [sys.executable, "-c", PLAN_AND_PICK.format(plan=plan)]
    environment = os.environ | {
        "BENCHBOOK_EXCLUSIVE_LOCK": str(tmp_path / "lock"),
        "BENCHBOOK_MACHINE": "",
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(HERE / "exclusive"), str(layout.root() / "lib")]
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, kind), done.stderr
