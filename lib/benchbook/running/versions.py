"""Compare two versions of a network: are the current files slower than those of a commit?

Each version trains in its own process, and their windows alternate, so a slower computer slows both. Processes differ
more than the windows of one process, so each round starts new ones. Rounds follow until the ratio's interval decides.
No rows are written.

Where the C library allows it, both processes keep the memory that a step frees. Otherwise, chance decides which of them
returns memory to the system in each step, and that one is slower by up to a half.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from benchbook.judging import compare, intervals
from benchbook.machine import processes, temporary
from benchbook.studies.your_network import loading

PAIRS = 8  # of windows in a round
WINDOW_SECONDS = 0.4
FEWEST_ROUNDS = 4  # before a decision; fewer rounds agree too often by chance
LIBRARY = str(Path(__file__).resolve().parents[2])


@dataclass
class Trial:
    """The results of the rounds so far; A is the commit, B the current files.

    Attributes:
        percent: B counts as slower if its rate is lower than A's by more than this.
        rounds: for each round, the ratio of B's rate over A's in each pair of windows.
    """

    percent: float
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def windows(self) -> tuple[list[float], list[int]]:
        """Return the ratios of all rounds, and the round's number for each ratio."""
        pairs = [(ratio, number) for number, ratios in enumerate(self.rounds) for ratio in ratios]
        return [ratio for ratio, _ in pairs], [number for _, number in pairs]

    ratio = property(lambda self: intervals.interval(*self.windows), doc="B's rate over A's, an `Interval`.")

    @property
    def decision(self) -> str:
        """Return `compare.SLOWER`, NOT_SLOWER or UNDECIDED."""
        return compare.decide(self.ratio, self.percent) if len(self.rounds) >= FEWEST_ROUNDS else compare.UNDECIDED

    @property
    def needed(self) -> int:
        """Return how many rounds would decide, if the ratio and its deviations stayed the same."""
        return intervals.kernels_needed(*self.windows, 1 - self.percent / 100)


def run(trial: Trial, measure: Callable[[], list[float] | None], say: Callable[[str], object]) -> Trial:
    """Measure rounds until the trial is decided, or `measure` returns none because time is short.

    Args:
        trial: receives the ratios.
        measure: runs a round and returns its ratios.
        say: called with a line after each round.
    """
    while trial.decision == compare.UNDECIDED and (ratios := measure()):
        trial.rounds.append(ratios)
        say(f"round {len(trial.rounds)}: {statistics.median(ratios):.3f}; in all {trial.ratio.value:.3f}")
    return trial


def measure_round(choices: dict, commit: str, deadline: float) -> list[float] | None:
    """Return the ratios of a round: the network's rate here over its rate at a commit; None if time is short.

    Args:
        choices: arguments of `your_network.plan.Plan` by name, with device, framework and precision.
        commit: of the repository that holds the network.
        deadline: on the monotonic clock; both processes are then stopped.

    Raises:
        ValueError: there is no such commit, or one of the two versions cannot be measured.
    """
    with ExitStack() as stack:
        place, _ = loading.find(choices["network"], "network")
        folder = place.parent if isinstance(place, Path) else Path.cwd()  # modules are imported from here
        top, tree = stack.enter_context(checked_out(folder, commit))
        moved = {name: _moved(value, top, tree) for name, value in choices.items()}
        here = Path.cwd()
        there = tree / here.relative_to(top) if here.is_relative_to(top) else here
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # both versions use this same library
        old_paths = os.pathsep.join(path if path == LIBRARY else _moved(path, top, tree) for path in paths)
        workers = [
            stack.enter_context(closing(Worker(moved, there, {"PYTHONPATH": old_paths}, f"at {commit}", tree))),
            stack.enter_context(closing(Worker(choices, here, {}, "here", top))),
        ]
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), lambda: [each.kill() for each in workers])
        stack.callback(timer.cancel)
        timer.start()
        try:
            num_steps = max(worker.ask()["num_steps"] for worker in workers)
            rates = [[], []]
            for pair in range(-1, PAIRS):  # the first pair is dropped: its caches are cold
                for which in (0, 1) if pair % 2 else (1, 0):
                    rate = workers[which].ask(num_steps)["samples_per_second"]
                    rates[which] += [rate] if pair >= 0 else []
        except ValueError:
            if time.monotonic() > deadline:
                return None
            raise
        return [new / old for old, new in zip(*rates, strict=True)]


class Worker:
    """A process that trains a network, one window per request.

    Args:
        choices: see `measure_round`.
        folder: its working directory.
        variables: added to its environment.
        name: for an error.
        top: folder that must contain the file of at least one of the callables.
    """

    def __init__(self, choices: dict, folder: Path, variables: dict, name: str, top: Path) -> None:
        self.name, self.log = name, tempfile.TemporaryFile("w+")  # noqa: SIM115 (`close` closes it)
        variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"} | variables
        command = [sys.executable, "-m", __name__, json.dumps(choices), str(top)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log, "text": True}
        self.process = subprocess.Popen(command, cwd=folder, env=os.environ | variables, **pipes)

    def close(self) -> None:
        """End the process, and close its pipes and log."""
        self.kill()
        self.process.communicate()
        self.log.close()

    def kill(self) -> None:
        """End the process and its children."""
        processes.kill(processes.tree(self.process.pid))

    def ask(self, num_steps: int = 0) -> dict:
        """Return the columns of a window of `num_steps` steps; for 0 steps, the `num_steps` that a window should have.

        Raises:
            ValueError: the process has ended; the message is the last line that it printed.
        """
        with suppress(BrokenPipeError):  # the process has ended, as the missing line below shows
            if num_steps:
                self.process.stdin.write(f"{num_steps}\n")
                self.process.stdin.flush()
        if line := self.process.stdout.readline():
            return json.loads(line)
        self.log.seek(0)
        printed = self.log.read().strip().splitlines() or ["it ended without output"]
        raise ValueError(f"the network {self.name}: {printed[-1]}")


@contextmanager
def checked_out(folder: Path, commit: str) -> Iterator[tuple[Path, Path]]:
    """Check a commit out into a temporary folder for a `with` block; no branch or file of the user changes.

    Yields:
        The top folder of the repository that `folder` belongs to, and the top folder of the copy.

    Raises:
        ValueError: the folder is in no repository, or the repository has no such commit.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel"))
    known = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}", allowed=commit)
    _git(top, "worktree", "prune")  # forgets copies of killed processes, whose folders are gone
    with temporary.folder() as place:
        tree = place / "tree"
        _git(top, "worktree", "add", "--detach", "--quiet", str(tree), known)
        try:
            yield top, tree
        finally:
            _git(top, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *words: str, allowed: str = "") -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git printed nothing"])[-1]
        what = f"no commit {allowed!r} in {folder}" if allowed else f"git {words[0]} in {folder}"
        raise ValueError(f"{what} ({reason}); allowed: a commit of the git repository that holds the network")
    return done.stdout.strip()


def _moved(value, top: Path, tree: Path):
    """Return a path, or `path:callable`, with the folder `top` replaced by `tree`."""
    return f"{tree}{value[len(str(top)) :]}" if str(value).startswith(f"{top}{os.sep}") or value == str(top) else value


def main() -> None:
    """Build the network of CHOICES, a JSON object; then train a window for each number of steps read from stdin."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of the user's code
    processes.when_gone(os.getppid(), lambda: os._exit(1))

    from benchbook.frameworks import allocator, devices
    from benchbook.frameworks.workload import Settings
    from benchbook.measuring.window import steps_lasting, trainer
    from benchbook.studies.your_network.plan import Plan, build

    choices, top = json.loads(sys.argv[1]), Path(sys.argv[2]).resolve()
    device = devices.pick(choices["device"], devices.choose_framework(choices["framework"]))
    allocator.keep_memory(device)
    names = {each.name for each in fields(Plan)} & choices.keys() - {"device"}
    workload = build(Plan(device, **{name: choices[name] for name in names}), Settings(choices["precision"]))
    named = [loading.find(choices[name], name)[0] for name in loading.NAMED if choices.get(name)]
    files = [place if isinstance(place, Path) else Path(sys.modules[place].__file__).resolve() for place in named]
    if not any(file.is_relative_to(top) for file in files):
        raise ValueError(f"{', '.join(map(str, files))}: not below {top}; allowed: a network of that repository")
    train = trainer(workload)
    print(json.dumps({"num_steps": steps_lasting(WINDOW_SECONDS, train)}), file=answers, flush=True)
    for line in sys.stdin:
        rate = train(int(line))["samples_per_second"]
        print(json.dumps({"samples_per_second": rate}), file=answers, flush=True)


if __name__ == "__main__":
    main()
