"""Every torch workload rehearsed on a CUDA device and on an MPS device that are not there (cases_impostor.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("kind", "loaders"),
    [
        ("mps", "small"),
        pytest.param("mps", "all", marks=pytest.mark.slow),
        pytest.param("cuda", "all", marks=pytest.mark.slow),
    ],
)
def test_every_torch_workload_runs_where_devices_do_not_mix(kind, loaders):
    # MPS is the stricter of the two: what breaks on CUDA alone is its loaders and its TF32.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / "cases_impostor.py")]
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"BENCHBOOK_TEST_KIND": kind, "BENCHBOOK_TEST_LOADERS": loaders, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
