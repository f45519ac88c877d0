"""JAX on an accelerator that is not its default device; see cases_jax.py."""

import pytest

from processes import needs, run_cases

pytestmark = needs("jax")


@pytest.fixture
def _two_devices(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")


@pytest.mark.usefixtures("_two_devices")
def test_nothing_is_left_to_another_device():
    assert " passed" in run_cases("rehearsal/cases_jax.py", "jax", "-m", "not slow")


@pytest.mark.slow
@pytest.mark.usefixtures("_two_devices")
def test_nothing_of_any_workload_is_left_to_another_device():
    assert " passed" in run_cases("rehearsal/cases_jax.py", "jax", "-m", "slow")
