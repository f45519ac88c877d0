"""Frameworks on one chip: only the same work is compared, and Apple's GPU is one chip under two names."""

import pytest

from benchbook.report import headline
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

MPS, METAL, TUNED = ("torch", "mps", 1000.0), ("mlx", "metal", 2000.0), {"variant": "tuned"}


@pytest.mark.parametrize(
    ("points", "ratios"),
    [
        # torch alone computes on the CPU: there it is compared with nothing.
        (
            [MPS, ("tensorflow", "metal", 500.0), METAL, ("torch", "cpu", 100.0)],
            {"mlx": 1.0, "torch": 0.5, "tensorflow": 0.25},
        ),
        ([(*MPS, TUNED), (*METAL, TUNED | {"precision": "amp_fp16"})], {"mlx": 1.0, "torch": 0.5}),
        ([MPS, (*METAL, {"batch_size": 32})], {}),
        ([MPS, (*METAL, {"dataset": "digits-28px"})], {}),
        ([MPS, (*METAL, {"settings": {"data_resident": False}})], {}),
        ([MPS, (*METAL, {"precision": "amp_fp16"})], {}),
        ([MPS, (*METAL, {"machine": "attic"})], {}),
        ([MPS, (*METAL, {"status": "diverged"})], {}),
    ],
)
def test_each_framework_is_compared_with_the_fastest_that_does_the_same_work(points, ratios):
    rows = []
    for place, (framework, device, rate, *columns) in enumerate(points):
        point = {"framework": framework, "device": device, "point": f"point-{place}", "run_id": f"run-{place}"}
        point |= {"variant": "controlled", "precision": "fp32", "settings": {"data_resident": True}, **dict(*columns)}
        rows += [make_row(index=index, samples_per_second=rate, **point) for index in range(3)]
    table = headline.frameworks(Evidence(make_rows(rows)))
    assert [*zip(table["framework"], table["ratio"], strict=True)] == [*ratios.items()]
    assert set(table["processor"]) <= {"accelerator"}
