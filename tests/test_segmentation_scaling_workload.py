"""The segmentation workload on each framework; see cases_segmentation.py."""

import pytest

from processes import FRAMEWORKS, run_cases


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_case_holds(framework):
    assert " passed" in run_cases("cases_segmentation.py", framework)
