"""The golden set: what is made of the committed rows is what it was, number by number; see
tests/golden.py."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from benchbook.judging import agreement
from made.golden_files import FOLDER, differences, read, write

VALUES = sorted(path.name for path in FOLDER.glob("*.json") if not path.name.startswith("losses-"))
MOST_SHOWN = 40  # lines


def make(folder: Path, *words: str) -> None:
    """Make the golden set once more, in a process of its own: nothing that another test set can
    matter."""
    command = [sys.executable, str(FOLDER.with_suffix(".py")), *words, "--into", str(folder)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("BENCHBOOK_")
    }
    ended = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ended.returncode == 0, ended.stdout[-6000:]


def check(name: str, folder: Path) -> None:
    lines = differences(FOLDER / name, folder / name)
    more = [f"and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
    if lines:
        pytest.fail(
            "\n".join([f"{len(lines)} values differ", *lines[:MOST_SHOWN], *more]), pytrace=False
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    make(folder)
    return folder


def test_no_file_is_left_out_and_none_is_new(made):
    assert sorted(path.name for path in made.iterdir()) == VALUES


@pytest.mark.parametrize("name", VALUES)
def test_the_committed_rows_give_the_same_values(name, made):
    check(name, made)


def test_a_change_is_named_with_its_file_and_key_and_rounding_is_none(tmp_path):
    was, now = tmp_path / "was.json", tmp_path / "now.json"
    write(
        {
            "a | cpu": {"rate": 100.0, "verdict": "stable", "bounds": [1, 2], "misfit": 0.0},
            "b": {"rows": 3},
        },
        was,
    )
    write(
        {
            "a | cpu": {
                "rate": 100.0 + 1e-9,
                "verdict": "stable",
                "bounds": [1, 2.0],
                "misfit": 2.2e-16,
            },
            "b": {"rows": 3},
        },
        now,
    )
    assert differences(was, now) == []
    changed = {"rate": 101.0, "verdict": "unstable", "bounds": [1], "misfit": 1e-9}
    write({"a | cpu": changed, "c": {"rows": 3}}, now)
    assert differences(was, now) == [
        "was.json: a | cpu: bounds: 1: 2 -> nothing",
        "was.json: a | cpu: misfit: 0 -> 1e-09",
        "was.json: a | cpu: rate: 100 -> 101",
        'was.json: a | cpu: verdict: "stable" -> "unstable"',
        "was.json: b: rows: 3 -> nothing",
        "was.json: c: rows: nothing -> 3",
    ]


def apart(was: dict, now: dict) -> list[str]:
    """Return a line for each network whose losses on another CPU are beyond the tolerance of a
    comparison with float64; networks of frameworks that are not installed are left out."""
    lines = []
    for key in was.keys() & now.keys():
        pinned, own = (numpy.array(each[key]["losses"], float) for each in (was, now))
        errors = abs(own / pinned - 1)
        far = errors[:2] > agreement.TOLERANCES["fp32"].loss  # later ones may be chaotic
        if far.any() or not abs(own.mean() / pinned.mean() - 1) <= agreement.MEAN_LOSS_ERROR:
            lines.append(f"{key}: off by {errors[0]:.2g}, {errors[1]:.2g}, ... {errors.max():.2g}")
    return sorted(lines)


@pytest.mark.slow
def test_every_network_has_the_same_first_losses(tmp_path):
    make(tmp_path, "losses")
    [own] = tmp_path.iterdir()
    if (FOLDER / own.name).exists():
        check(own.name, tmp_path)
        return
    for pinned in FOLDER.glob("losses-*.json"):  # of other CPUs
        assert apart(read(pinned), read(own)) == []
