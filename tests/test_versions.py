"""Two versions of a network by turns: the decision, on simulated rates and on a network in a repository."""

import itertools
import re
import subprocess
from pathlib import Path

import numpy
import pytest

from benchbook.judging import compare
from benchbook.running import versions

ROUNDS = 20  # that five minutes have on two cores


def decided(ratio: float, seed: int, deviation: float) -> versions.Trial:
    """Return the trial of versions whose rounds differ by a deviation, and windows by a third of it."""
    random, left = numpy.random.default_rng(seed), itertools.repeat(None, ROUNDS)

    def measure():
        if next(left, False) is False:
            return None
        level = numpy.log(ratio) + deviation * random.normal()
        return numpy.exp(level + deviation / 3 * random.normal(size=versions.PAIRS)).tolist()

    return versions.run(versions.Trial(5.0), measure, lambda line: None)


@pytest.mark.parametrize(
    ("ratio", "deviation", "right", "most_wrong"),
    [(1 / 1.1, 0.05, compare.SLOWER, 5), (1.0, 0.05, compare.NOT_SLOWER, 0), (1.0, 0.2, None, 5)],
)
def test_a_slow_down_of_ten_percent_is_found_and_none_is_invented(ratio, deviation, right, most_wrong):
    decisions = [decided(ratio, seed, deviation).decision for seed in range(100)]
    assert right is None or decisions.count(right) >= 90
    assert decisions.count(compare.SLOWER if ratio == 1 else compare.NOT_SLOWER) <= most_wrong


def test_few_rounds_or_a_ratio_at_the_bound_decide_nothing_and_the_trial_says_how_many_rounds_would():
    assert versions.Trial(5, [[0.5] * 8] * (versions.FEWEST_ROUNDS - 1)).decision == compare.UNDECIDED
    trial = decided(0.955, 0, deviation=0.1)
    assert (trial.decision, len(trial.rounds)) == (compare.UNDECIDED, ROUNDS)
    assert trial.needed > ROUNDS


SLOW = """
import time, torch

class Slow(torch.nn.Linear):
    def forward(self, x):
        time.sleep({})
        return super().forward(x)

def network():
    return torch.nn.Sequential(torch.nn.Flatten(), Slow(192, 10))
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Make a repository with a network whose second commit takes twice as long; return its folder."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    folder = tmp_path / "own"
    folder.mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a"]
    subprocess.run([*git, "init", "-q"], check=True)
    for seconds in (0.01, 0.02):
        (folder / "net.py").write_text(SLOW.format(seconds))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", str(seconds)], check=True)
    return folder


SMALL = ("--image-size", "8", "--num-classes", "10", "--batch-size", "4", "--machine", "desk", "--device", "cpu")
SMALL += ("--minutes", "5")


def test_a_commit_is_run_by_turns_with_the_files_here(repository, monkeypatch, command):
    measure_round, measured = versions.measure_round, []

    def once(*given) -> list[float]:
        measured[:] = measured or measure_round(*given)
        return measured

    monkeypatch.setattr(versions, "measure_round", once)  # a round starts two processes
    monkeypatch.setattr(versions, "PAIRS", 3)
    monkeypatch.setattr(versions, "FEWEST_ROUNDS", 2)
    monkeypatch.chdir(repository)
    status, said = command("measure", "net:network", "--against", "HEAD~1", *SMALL)
    assert status == 1, said
    assert "Speed here / at HEAD~1: 0." in said
    listed = subprocess.run(["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True)
    assert listed.stdout.count("\n") == 1
    assert not (repository.parent / "outputs" / "runs" / "desk" / "your_network").exists()


def test_files_of_the_repository_are_taken_from_its_copy():
    values = ["/own/nets/net.py:network", "/own", "/owner/net.py:network", "models:network", 64]
    moved = [versions._moved(value, Path("/own"), Path("/tree")) for value in values]
    assert moved == ["/tree/nets/net.py:network", "/tree", *values[2:]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("net.py:network", "--against", "ffff"), "no commit 'ffff' in .*allowed: a commit of the git repository"),
        (("net.py:network", "--against", "--exec"), "no commit '--exec'"),
        (("net.py:missing", "--against", "HEAD"), "missing is not in it"),
        (("torchvision.models:resnet18", "--against", "HEAD"), "at HEAD: .*allowed: a network of that repository"),
        (("net.py:network", "--against", "HEAD", "--tuned"), "allowed without --tuned"),
    ],
)
def test_what_cannot_be_compared_is_refused(repository, monkeypatch, command, words, message):
    monkeypatch.chdir(repository)
    status, said = command("measure", *words, *SMALL)
    assert status == 2
    assert re.search(message, said)
