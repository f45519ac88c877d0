"""TensorFlow on accelerators that are not here; see cases_tensorflow.py."""

import pytest

from processes import needs, run_cases

pytestmark = needs("tensorflow")


@pytest.mark.slow
def test_what_a_gpu_would_compute():
    assert " passed" in run_cases("rehearsal/cases_tensorflow.py", "tensorflow", "-m", "not slow")


@pytest.mark.slow
def test_what_a_gpu_would_compute_of_every_workload_in_every_precision():
    assert " passed" in run_cases("rehearsal/cases_tensorflow.py", "tensorflow", "-m", "slow")
