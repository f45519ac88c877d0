"""Frameworks on one chip: only the same work is compared, and Apple's GPU is one chip under two names."""

import pytest

from benchbook.report import headline
from benchbook.studies.study import Evidence
from rows import make_row, make_rows


def compared(*points):
    """Return the table of points (framework, device, rate), with columns of their rows changed."""
    rows = []
    for place, (framework, device, rate, columns) in enumerate(points):
        point = {"framework": framework, "device": device, "point": f"point-{place}", "run_id": f"run-{place}"}
        point |= {"variant": "controlled", "precision": "fp32", "settings": {"data_resident": True}} | columns
        rows += [make_row(index=index, samples_per_second=rate, **point) for index in range(3)]
    return headline.frameworks(Evidence(make_rows(rows)))


def test_three_frameworks_on_apples_gpu_are_held_against_the_fastest():
    table = compared(
        ("torch", "mps", 1000.0, {}), ("tensorflow", "metal", 500.0, {}), ("mlx", "metal", 2000.0, {}),
        ("torch", "cpu", 100.0, {}),
    )  # fmt: skip
    assert table["framework"].tolist() == ["mlx", "torch", "tensorflow"]
    assert table["ratio"].tolist() == pytest.approx([1.0, 0.5, 0.25])
    assert set(table["processor"]) == {"accelerator"}  # one framework alone on the CPU is compared with nothing


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 32},
        {"dataset": "digits-28px"},
        {"settings": {"data_resident": False}},
        {"precision": "amp_fp16"},
        {"machine": "attic"},
        {"status": "diverged"},
    ],
)
def test_other_work_is_not_compared(other):
    assert compared(("torch", "mps", 1000.0, {}), ("mlx", "metal", 2000.0, other)).empty


def test_tuned_points_are_the_best_of_each_in_whatever_precision():
    tuned = {"variant": "tuned"}
    table = compared(("torch", "mps", 3000.0, tuned), ("mlx", "metal", 2000.0, tuned | {"precision": "amp_fp16"}))
    assert table[["framework", "precision"]].values.tolist() == [["torch", "fp32"], ["mlx", "amp_fp16"]]
