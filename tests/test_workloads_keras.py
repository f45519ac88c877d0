"""Keras workloads on each framework; see cases_keras.py, and what needs no framework at all."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchbook.workloads.keras import evaluation_batch_size

FRAMEWORKS = [name for name in ("tensorflow", "jax") if importlib.util.find_spec(name)]


def run_cases(file: str, framework: str) -> str:
    """Run a file of cases in a process of its own; return what pytest printed."""
    environment = os.environ | {"BENCHBOOK_TEST_FRAMEWORK": framework}
    environment.pop("KERAS_BACKEND", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__).parent / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_case_holds(framework):
    assert " passed" in run_cases("cases_keras.py", framework)


@pytest.mark.parametrize(
    ("num_images", "most", "expected"), [(10_000, 128, 125), (1000, 128, 125), (5000, 128, 125), (128, 128, 128)]
)
def test_test_batches_are_all_alike_where_they_can_be(num_images, most, expected):
    assert evaluation_batch_size(num_images, most) == expected


def test_a_prime_number_of_images_leaves_a_smaller_last_batch():
    assert evaluation_batch_size(1009, 128) == 128
    assert evaluation_batch_size(7, 128) == 7
