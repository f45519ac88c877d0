"""The fastest settings of a workload on a device that still compute the right thing.

One dimension after the other is tried on top of the best so far, so that a search takes seconds and not the product
of all choices. A setting is taken if it passes parity and its windows, alternating with those of the best so far, are
clearly faster; see `gain`. What the search measured is never published: it chooses, and fresh windows follow.
"""

import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy
import pandas

from benchbook import devices, manifests, measure, parity, protocol, records, runs
from benchbook.devices import Device
from benchbook.devices.frameworks import FRAMEWORKS
from benchbook.runs import Run
from benchbook.workload import Settings, Workload

LEAST_GAIN = 1.03  # a setting must be this much faster: less is noise on most machines
BLOCKS = 3  # of four windows: best, trial, trial, best
WINDOW_SECONDS = 0.4
TRIAL_SECONDS = 600.0  # for a trial in a process of its own, which builds and warms up both networks
WARM_UP_STEPS = 3  # fewer where one is as long as a window
HOPELESS = 0.5  # a setting this slow in single steps, as bfloat16 without instructions for it, is timed no further
COLUMNS = [*(field.name for field in fields(Settings)), "outcome", "ratio", "reason"]  # of the table of trials


@dataclass(frozen=True)
class Found:
    """What a search ended with.

    Attributes:
        settings: the fastest that pass parity.
        trials: one line per setting tried: its fields, outcome (taken, not faster, parity failed, unsupported, no
            time left), ratio (see `gain`) and reason.
    """

    settings: Settings
    trials: pandas.DataFrame


def candidates(device: Device) -> dict[str, tuple]:
    """Return what is tried in each dimension on a device, in the order it is tried."""
    framework = FRAMEWORKS[device.framework]
    lacking = framework.lacks.get(device.kind, ())
    reduced = [name for name in device.features.precisions if device.has_units(name) and name not in lacking]
    if not devices.multiplies_bfloat16(device):
        reduced = [name for name in reduced if name != "amp_bf16"]
    settings = [name for name in device.features.settings if name in framework.settings]
    choices = {"precision": tuple(reduced)} | dict.fromkeys(settings, (True,))
    return {name: values for name, values in choices.items() if values}


def for_point(
    run: Run, build: Callable[[Settings], Workload], device: Device, time_limit_seconds: float, parity_steps: int
) -> Found:
    """Return the fastest settings of a run's point, and tell the run: what was chosen, and all that was tried.

    The first kernel of a point searches; those of the same session that follow take its settings over, so that all
    windows of a point are of one setting, and the time is spent once.

    Args:
        run: the run that will be measured with them.
        build, device, time_limit_seconds, parity_steps: see `fastest`.
    """
    found = _found_before(run) or fastest(build, device, time_limit_seconds, parity_steps)
    # Precision and compiler are columns of the rows; the rest is told here, where there was a choice.
    told = {"channels_last", "fused", "autotuned", "graphs"} & candidates(device).keys()
    run.tell(found.trials.to_dict("records"), **{name: getattr(found.settings, name) for name in sorted(told)})
    return found


def fastest(
    build: Callable[[Settings], Workload],
    device: Device,
    time_limit_seconds: float = 120.0,
    parity_steps: int = 3,
    choices: dict[str, tuple] | None = None,
) -> Found:
    """Search for the fastest settings that pass parity.

    Args:
        build: from settings to a workload with fresh weights; its batches should lie on the device.
        device: where it computes.
        time_limit_seconds: no new trial begins after this; one that has begun is finished. 0: none is begun.
        parity_steps: steps each trial is compared with float64.
        choices: what to try; None takes `candidates`.

    Returns:
        The reference settings themselves where nothing was faster.
    """
    deadline = time.monotonic() + time_limit_seconds
    best, trials, apart = Settings(), [], device.features.aborts
    best_workload = _warm(build(best)) if time_limit_seconds and not apart else None
    for name, values in (choices or candidates(device)).items():
        for value in values:
            # A graph is made of compiled code, whether or not compiling alone was faster.
            trial = replace(best, **{name: value} | ({"compiled": True} if name == "graphs" else {}))
            if not time_limit_seconds or time.monotonic() > deadline:
                line, workload = {"outcome": "no time left"}, None
            elif apart:
                line, workload = _try_apart(build, best, trial, parity_steps), None
            else:
                line, workload = _try(build, trial, best_workload, parity_steps)
            trials.append(asdict(trial) | line)
            if line["outcome"] == "taken":
                best, best_workload = trial, workload
    return Found(best, pandas.DataFrame(trials, columns=COLUMNS))


def gain(seconds: numpy.ndarray) -> float:
    """Return how many times as fast as the best a trial is: by the blocks' median or the fastest windows, the lesser.

    Who else works on a machine makes windows slower, never faster: the fastest window is least theirs.

    Args:
        seconds: of windows of the same work, shape (blocks, 4): best, trial, trial, best.
    """
    best, trial = seconds[:, [0, 3]], seconds[:, [1, 2]]
    return float(min(numpy.median(best.sum(axis=1) / trial.sum(axis=1)), best.min() / trial.min()))


def _found_before(run: Run) -> Found | None:
    """Return what an earlier run of the same point and session found, if there was one."""
    session = run.common["session"]
    for run_id, manifest in manifests.every(run.folder).items():
        if "trials" in manifest and set(records.read(run.folder / f"{run_id}.csv")["session"]) == {session}:
            taken = [trial for trial in manifest["trials"] if trial["outcome"] == "taken"]
            last = {field.name: taken[-1][field.name] for field in fields(Settings)} if taken else {}
            return Found(Settings(**last), pandas.DataFrame(manifest["trials"], columns=COLUMNS))
    return None


def _try_apart(build: Callable[[Settings], Workload], best: Settings, trial: Settings, parity_steps: int) -> dict:
    """Return a trial's outcome, tried in a process of its own: what a device lacks may end the whole process."""
    import cloudpickle  # notebooks hold `build` in a cell, which pickle itself cannot send

    with tempfile.TemporaryDirectory() as folder:
        task, answer = Path(folder) / "task", Path(folder) / "answer"
        task.write_bytes(cloudpickle.dumps((build, best, trial, parity_steps)))
        command = [sys.executable, "-m", "benchbook.search", str(task), str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            return {"outcome": "unsupported", "reason": f"did not end in {TRIAL_SECONDS:g} s"}
        if done.returncode == 0:
            return json.loads(answer.read_text())
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    words = runs.anonymous("\n".join(done.stderr.strip().splitlines()[-2:]))
    return {"outcome": "unsupported", "reason": f"its process ended with {ended}: {words}"[:300]}


def main() -> None:
    """Try what the file on the command line says, and write the outcome to the other file: the process of a trial."""
    task, answer = map(Path, sys.argv[1:])
    build, best, trial, parity_steps = pickle.loads(task.read_bytes())
    outcome, _ = _try(build, trial, _warm(build(best)), parity_steps)
    answer.write_text(json.dumps(outcome))


def _try(
    build: Callable[[Settings], Workload], trial: Settings, best: Workload, parity_steps: int
) -> tuple[dict, Workload | None]:
    """Return a trial's outcome, and its workload if it was measured."""
    try:
        workload = build(trial)
        verdict = _check(workload, parity_steps)
        if not verdict.passed:
            return {"outcome": "parity failed", "reason": verdict.reason}, None
        ratio = gain(_times(best, _warm(workload)))
    except Exception as error:  # a compiler or a kernel that is not there may raise anything
        return {"outcome": "unsupported", "reason": f"{type(error).__name__}: {error}"[:300]}, None
    return {"outcome": "taken" if ratio > LEAST_GAIN else "not faster", "ratio": ratio}, workload


def _check(workload: Workload, num_steps: int) -> parity.Verdict:
    """Check parity in rows that are thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        names = dict.fromkeys(("session", "run_id", "study", "point", "machine"), "search")
        scratch = Run(Path(folder), "search", names | {"schema_version": records.SCHEMA_VERSION, "source": "measured"})
        return parity.check(workload, scratch, num_steps)


def _warm(workload: Workload) -> Workload:
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
