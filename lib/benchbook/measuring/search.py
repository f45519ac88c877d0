"""The fastest settings of a workload on a device that still compute the right thing.

One dimension after the other is tried on top of the best so far, so that a search takes seconds and not the product
of all choices. A setting is taken if its windows, alternating with those of the best so far, are clearly faster (see
`gain`) and it passes parity; what is not faster is not worth that comparison. What the search measured is never
published: it chooses, `tuning` confirms, and fresh windows follow.
"""

import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy
import pandas

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import ParityWorkload, Settings, Workload
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import measure, parity, protocol, runs
from benchbook.measuring.runs import Run
from benchbook.rows import records

LEAST_GAIN = 1.03  # a setting must be this much faster: less is noise on most machines
BLOCKS = 3  # of four windows: best, trial, trial, best
WINDOW_SECONDS = 0.4
TRIAL_STEPS = 3  # that a trial is compared with float64: what is chosen is compared in all steps afterwards
WARM_UP_STEPS = 3  # fewer where one is as long as a window
HOPELESS = 0.5  # a setting this slow in single steps, as bfloat16 without instructions for it, is timed no further
COLUMNS = [*(field.name for field in fields(Settings)), "outcome", "ratio", "reason"]  # of the table of trials


@dataclass(frozen=True)
class Outcome:
    """What a search ended with.

    Attributes:
        settings: the fastest that pass parity.
        trials: one line per setting tried: its fields, outcome (taken, not faster, parity failed, unsupported, no
            time left), ratio (see `gain`) and reason.
    """

    settings: Settings
    trials: pandas.DataFrame

    @property
    def promised(self) -> float:
        """Return how many times as fast as at the reference's settings the search saw the chosen ones."""
        return float(self.trials.loc[self.trials["outcome"] == "taken", "ratio"].astype(float).prod())


def candidates(device: Device) -> dict[str, tuple]:
    """Return what is tried in each dimension on a device, in the order it is tried."""
    framework = FRAMEWORKS[device.framework]
    lacking = framework.lacks.get(device.kind, ())
    imitated = device.backend.imitated_units(device)
    reduced = [name for name in device.features.precisions if device.has_units(name) and name not in lacking]
    reduced = [name for name in reduced if PRECISIONS[name].units not in imitated]
    settings = [name for name in device.features.settings if name in framework.settings]
    choices = {"precision": tuple(reduced)} | dict.fromkeys(settings, (True,))
    return {name: values for name, values in choices.items() if values}


def fastest(
    build: Callable[[Settings], Workload],
    device: Device,
    time_limit_seconds: float = 120.0,
    parity_steps: int = 3,
    choices: dict[str, tuple] | None = None,
) -> Outcome:
    """Search for the fastest settings that pass parity.

    The limit counts all that a search does: building, compiling, windows, and parity with its reference, which is
    computed once. No trial begins where less time is left than the longest one so far took.

    Args:
        build: from settings to a workload with fresh weights; its batches should lie on the device.
        device: where it computes.
        time_limit_seconds: of the whole search.
        parity_steps: steps each faster setting is compared with float64, up to TRIAL_STEPS.
        choices: what to try; None takes `candidates`.

    Returns:
        The reference settings themselves where nothing was faster.

    Raises:
        ValueError: the limit leaves no time at all: what was not searched for is not tuned.
    """
    if not time_limit_seconds > 0:
        raise ValueError(f"search_seconds {time_limit_seconds!r}; allowed: above 0 (tuned is what a search chose)")
    started, longest = time.monotonic(), 0.0
    best, trials, apart = Settings(), [], device.features.aborts
    best_workload = None if apart else warm(build(best))
    with tempfile.TemporaryDirectory() as folder:
        for change in _changes(choices or candidates(device)):
            trial, begun = replace(best, **change), time.monotonic()
            left = started + time_limit_seconds - begun
            if left <= longest:
                line, workload = {"outcome": "no time left"}, None
            elif apart:
                line, workload = _try_apart(build, best, trial, parity_steps, Path(folder), left), None
            else:
                line, workload = _try(build, trial, best_workload, parity_steps, Path(folder))
            longest = max(longest, time.monotonic() - begun)
            trials.append(asdict(trial) | line)
            if line["outcome"] == "taken":
                best, best_workload = trial, workload
    return Outcome(best, pandas.DataFrame(trials, columns=COLUMNS))


def _changes(choices: dict[str, tuple]) -> Iterator[dict]:
    """Yield what each trial changes of the best settings so far."""
    for name, values in choices.items():
        for value in values:
            # A graph is made of compiled code, whether or not compiling alone was faster.
            yield {name: value} | ({"compiled": True} if name == "graphs" else {})


def gain(seconds: numpy.ndarray) -> float:
    """Return how many times as fast as the best a trial is: by the blocks' median or the fastest windows, the lesser.

    Who else works on a machine makes windows slower, never faster: the fastest window is least theirs.

    Args:
        seconds: of windows of the same work, shape (blocks, 4): best, trial, trial, best.
    """
    best, trial = seconds[:, [0, 3]], seconds[:, [1, 2]]
    return float(min(numpy.median(best.sum(axis=1) / trial.sum(axis=1)), best.min() / trial.min()))


def _try_apart(
    build: Callable[[Settings], Workload],
    best: Settings,
    trial: Settings,
    parity_steps: int,
    folder: Path,
    time_limit_seconds: float,
) -> dict:
    """Return a trial's outcome, tried in a process of its own: what a device lacks may end the whole process."""
    import cloudpickle  # notebooks hold `build` in a cell, which pickle itself cannot send

    task, answer = folder / "task", folder / "answer"
    task.write_bytes(cloudpickle.dumps((build, best, trial, parity_steps, folder)))
    command = [sys.executable, "-m", "benchbook.measuring.search", str(task), str(answer)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=time_limit_seconds)
    except subprocess.TimeoutExpired:
        return {"outcome": "no time left", "reason": f"did not end in {time_limit_seconds:.0f} s"}
    if done.returncode == 0:
        return json.loads(answer.read_text())
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    words = runs.anonymous("\n".join(done.stderr.strip().splitlines()[-2:]))
    return {"outcome": "unsupported", "reason": f"its process ended with {ended}: {words}"[:300]}


def main() -> None:
    """Try what the file on the command line says, and write the outcome to the other file: the process of a trial."""
    task, answer = map(Path, sys.argv[1:])
    build, best, trial, parity_steps, folder = pickle.loads(task.read_bytes())
    outcome, _ = _try(build, trial, warm(build(best)), parity_steps, folder)
    answer.write_text(json.dumps(outcome))


def _try(
    build: Callable[[Settings], Workload], trial: Settings, best: Workload, parity_steps: int, folder: Path
) -> tuple[dict, Workload | None]:
    """Return a trial's outcome, and its workload if it is faster and right; a folder keeps the reference's answers."""
    try:
        workload = build(trial)
        fresh = workload.snapshot()
        ratio = gain(_times(best, warm(workload)))
        if ratio <= LEAST_GAIN:
            return {"outcome": "not faster", "ratio": ratio}, None
        workload.restore(fresh)
        verdict = _check(workload, parity_steps, folder)
    except Exception as error:  # a compiler or a kernel that is not there may raise anything
        return {"outcome": "unsupported", "reason": f"{type(error).__name__}: {error}"[:300]}, None
    if not verdict.passed:
        return {"outcome": "parity failed", "ratio": ratio, "reason": verdict.reason}, None
    return {"outcome": "taken", "ratio": ratio}, workload


def _check(workload: ParityWorkload, num_steps: int, kept: Path) -> parity.Verdict:
    """Check parity in rows that are thrown away; a folder keeps the reference's path for other trials."""
    with tempfile.TemporaryDirectory() as folder:
        names = dict.fromkeys(("session", "run_id", "study", "point", "machine"), "search")
        scratch = Run(Path(folder), "search", names | {"schema_version": records.SCHEMA_VERSION, "source": "measured"})
        return parity.check(workload, scratch, min(num_steps, TRIAL_STEPS), kept=kept)


def warm(workload: Workload) -> Workload:
    """Build and compile a workload by some steps, off the clock, and return it."""
    stream = protocol.endless(workload)
    for step in range(WARM_UP_STEPS):
        window = protocol.train_window(workload, measure.NoSensor(), [next(stream)])
        if step and window["seconds"] > WINDOW_SECONDS:  # the first builds and compiles
            break
    return workload


def _times(best: Workload, trial: Workload) -> numpy.ndarray:
    """Return the seconds of windows of the best, the trial, the trial and the best again: shape (blocks, 4)."""
    streams = {id(workload): protocol.endless(workload) for workload in (best, trial)}

    def seconds(workload: Workload, num_steps: int = 1) -> float:
        batches = list(itertools.islice(streams[id(workload)], num_steps))
        return protocol.train_window(workload, measure.NoSensor(), batches)["seconds"]

    def single(workload: Workload) -> float:
        first = seconds(workload)
        return first if first > WINDOW_SECONDS else min(first, seconds(workload), seconds(workload))

    step, trial_step = single(best), single(trial)
    if step / trial_step < HOPELESS:
        return numpy.array([[step, trial_step, trial_step, step]])
    num_steps = max(1, round(WINDOW_SECONDS / step))
    return numpy.array(
        [[seconds(workload, num_steps) for workload in (best, trial, trial, best)] for _ in range(BLOCKS)]
    )


if __name__ == "__main__":
    main()
