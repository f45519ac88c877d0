"""The fastest settings of a workload on a device that still compute the right thing, confirmed against its reference.

Candidates are tried one after the other on top of the best so far, so that a search takes seconds and not the product
of all choices: in a step or two at first, then the two best in windows that alternate with the reference's. The winner
is taken if it is clearly faster (see `gain`) and passes parity. What the search measured is never published: fresh
windows of what it chose and of the study's reference, which alternate, decide which one is measured. The first kernel
of a point in a session searches and confirms; those that follow take its choice over, so that all windows of a point
are of one setting, and the time is spent once.

Where the C library can be told to keep what a step frees, it is, before the search and for all of such a kernel: it
cannot be told to go back. So the reference's windows that decide have it as well, and what is confirmed leaves out what
it brings; with two networks in one process, either alone might be the one whose memory is given back in each step.
"""

import functools
import itertools
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy
import pandas

from benchbook.frameworks import allocator
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import confirmation
from benchbook.judging.confirmation import REFERENCE, TUNED
from benchbook.judging.intervals import Interval
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import failures, parity, sensors
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.measuring.window import endless, steps_lasting, train_window, trainer
from benchbook.measuring.writer import Run
from benchbook.rows import manifests, records

LEAST_GAIN = 1.03  # a setting must be faster by this factor; less is noise on most machines
FINALISTS = 2  # that get longer trials
BLOCKS = 3  # of four windows: reference, trial, trial, reference
BLOCK_STEPS = 5  # in the shortest of them, with the step that says how long they are to be
SHORT_SECONDS, TRIAL_SECONDS = 0.1, 0.4  # of a window of a short trial, and of a longer one
RESERVE = 1 / 3  # of the limit, for longer trials and float64
LEAST_SECONDS = 10.0  # that a process of a trial has before it is ended
TRIAL_STEPS = 3  # that a trial is compared with float64: what is chosen is compared in all steps afterwards
WARM_UP_STEPS = 3  # fewer where one is as long as a window
HOPELESS = 0.5  # a setting this slow in single steps, as bfloat16 without instructions for it, is timed no further
TRIED = [*(field.name for field in fields(Settings)), "outcome", "ratio", "seconds", "reason"]  # of the table of trials
BRINGS = {"graphs": {"compiled": True}}  # a graph is made of compiled code, whether or not compiling alone was faster

ORDER = (REFERENCE, TUNED, TUNED, REFERENCE) * 3  # of the windows that decide
CONFIRM_SECONDS = 2.0  # of such a window, where the plan does not say
ONLY_TUNED = ("data_resident",)  # parameters that the reference does not have
STATED = {field.name for field in fields(Settings)} - {"precision", "compiled"}  # settings of rows: those are columns


@dataclass(frozen=True)
class Choice:
    """The choice of a search: what a tuned point measures.

    Attributes:
        chosen: TUNED, or REFERENCE where nothing faster was found.
        build: makes the workload to measure, from its settings.
        settings: those that the search chose, or the reference's.
        trials: see `fastest`.
        confirmed: tuned over reference in this kernel; None where it was not compared, or a window diverged.
    """

    chosen: str
    build: Callable[..., Workload]
    settings: Settings
    trials: pandas.DataFrame
    confirmed: Interval | None

    @property
    def is_tuned(self) -> bool:
        """Return whether the settings that the search chose are measured."""
        return self.chosen == TUNED

    def __str__(self) -> str:
        """Return the outcome of the search as a notebook prints it."""
        words = f"{self.settings}" if self.is_tuned else "nothing faster found: the reference's settings are measured"
        if self.confirmed is None:
            return words
        bounds = f"{self.confirmed.low:.3g} to {self.confirmed.high:.3g}"
        return f"tuned over reference: {self.confirmed.value:.3g} ({self.confirmed.kind} {bounds}); {words}"


def choose(
    run: Run,
    device: Device,
    tuned: Callable[..., Workload],
    reference: Callable[..., Workload],
    *,
    search_seconds: float,
    parity_steps: int,
    window_seconds: float = 0.0,
    trial: Callable[..., Workload] | None = None,
    plain: Settings = Settings(),  # noqa: B008 (it is immutable)
    changes: Sequence[dict] | None = None,
) -> Choice:
    """Return what a tuned point measures, and tell the run: what was tried, what it promised, and what was chosen.

    Args:
        run: of the point; it takes the rows of the windows that decide.
        device: where both compute.
        tuned: makes the point's workload with fresh weights, called with settings=...
        reference: the same for the study's reference, with as many images in a step.
        search_seconds, parity_steps: of the search, see `fastest`.
        window_seconds: how long a window that decides lasts, at least; 0: CONFIRM_SECONDS.
        trial: what the search tries in place of `tuned`: smaller batches, say.
        plain: the reference's settings.
        changes: what the search tries; None takes `candidates`.

    Raises:
        ValueError: no time for a search.
    """
    keeps_memory = allocator.keep_memory(device)
    changes = candidates(device) if changes is None else changes
    choice = _chosen_before(run, {REFERENCE: reference, TUNED: tuned})
    is_first = choice is None
    if choice is None:
        with run.during("setup"):
            make = trial or tuned
            settings, trials = fastest(lambda one: make(settings=one), device, search_seconds, parity_steps, changes)
        choice = Choice(TUNED, tuned, settings, trials, None)
    if choice.is_tuned:  # in each kernel: one alone shows a range, which confirms nothing
        with run.during(confirmation.PHASE):
            workloads = {REFERENCE: reference(settings=plain), TUNED: tuned(settings=choice.settings)}
            _alternate(run, workloads, window_seconds or CONFIRM_SECONDS, promised(choice.trials))
        choice = replace(choice, confirmed=confirmation.ratio(records.read(run.path)))
        if is_first and not (choice.confirmed and choice.confirmed.low > 1):
            choice = Choice(REFERENCE, reference, plain, choice.trials, choice.confirmed)
    names = STATED & {name for change in changes for name in change}  # where there was a choice
    stated = {name: getattr(choice.settings, name) for name in sorted(names)}
    if keeps_memory:
        stated |= {"keeps_memory": True}  # in either case
    if not choice.is_tuned:
        stated |= {name: False for name in ONLY_TUNED if name in run.settings_with()}
    run.manifest["trials"] = choice.trials.to_dict("records")
    run.manifest["tuning"] = {"chosen": choice.chosen, "settings": asdict(choice.settings)}
    run.tell(chosen=choice.chosen, **stated)
    return choice


def candidates(device: Device) -> list[dict]:
    """Return what each trial changes of the best settings so far, in the order in which they are tried.

    What a kind of device and a framework have stands in `benchbook.machine.kinds` and `benchbook.machine.libraries`.
    """
    framework = FRAMEWORKS[device.framework]
    lacking, imitated = framework.lacks.get(device.kind, ()), device.backend.emulated_units(device)
    precisions = [name for name in device.features.precisions if device.has_units(name) and name not in lacking]
    precisions = [name for name in precisions if PRECISIONS[name].units not in imitated]
    settings = [name for name in device.features.settings if name in framework.settings]
    return [{"precision": name} for name in precisions] + [{name: True} | BRINGS.get(name, {}) for name in settings]


def fastest(
    build: Callable[[Settings], Workload],
    device: Device,
    time_limit_seconds: float = 120.0,
    parity_steps: int = 3,
    changes: Sequence[dict] | None = None,
) -> tuple[Settings, pandas.DataFrame]:
    """Search for the fastest settings that pass parity.

    Each candidate gets a short trial on top of the fastest so far; the two fastest get longer ones, by turns with the
    reference; float64 is for the winner, and for the next one if it fails. The limit counts all of that. No short trial
    begins in its last third, and no comparison but the first after its end.

    Args:
        build: from settings to a workload with fresh weights; its batches should lie on the device.
        device: where it computes.
        time_limit_seconds: of the whole search.
        parity_steps: steps the winner is compared with float64, up to TRIAL_STEPS.
        changes: what to try; None takes `candidates`.

    Returns:
        The settings, the reference's where nothing was faster, and one line per setting tried: its fields, outcome
        (taken, not fastest, not faster, parity failed, unsupported, no time left), ratio (to the reference), seconds
        (that the trial took) and reason.

    Raises:
        ValueError: the limit leaves no time at all: what was not searched for is not tuned.
    """
    if not time_limit_seconds > 0:
        raise ValueError(f"search_seconds {time_limit_seconds!r}; allowed: above 0 (tuned is what a search chose)")
    end, lines, kept = time.monotonic() + time_limit_seconds, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        ask = functools.partial(_ask, Path(folder), kept, build)
        if device.features.aborts:
            ask = functools.partial(_ask_apart, end, Path(folder), build)
        answer = ask("short", Settings(), math.inf)
        if "seconds_per_step" not in answer:
            raise RuntimeError(f"no step with the reference's settings: {answer['reason']}")
        reference = answer["seconds_per_step"]
        for change in candidates(device) if changes is None else changes:
            best, *others = [*_faster(lines), Settings()]
            for forgotten in kept.keys() - {Settings(), best, *others[: FINALISTS - 1]}:
                del kept[forgotten]
            trial, begun = replace(best, **change), time.monotonic()
            if end - begun <= RESERVE * time_limit_seconds:
                lines[trial] = {"outcome": "no time left"}
                continue
            line = {"outcome": "not faster"} | ask("short", trial, reference / HOPELESS)
            if seconds := line.pop("seconds_per_step", None):
                line["ratio"] = reference / seconds
                if line["ratio"] > LEAST_GAIN * lines.get(best, {"ratio": 1.0})["ratio"]:
                    line["outcome"] = "faster"
            lines[trial] = line | {"seconds": time.monotonic() - begun}
        best = _winner(ask, lines, reference, end, min(parity_steps, TRIAL_STEPS))
    trials = [asdict(trial) | line for trial, line in lines.items()]
    return best, pandas.DataFrame(trials, columns=TRIED)


def _faster(lines: dict[Settings, dict]) -> list[Settings]:
    """Return the settings that were faster, the fastest first."""
    faster = [trial for trial, line in lines.items() if line["outcome"] == "faster"]
    return sorted(faster, key=lambda trial: -lines[trial]["ratio"])


def _winner(
    ask: Callable[..., dict], lines: dict[Settings, dict], reference: float, end: float, parity_steps: int
) -> Settings:
    """Return the fastest setting of those that were faster in short trials, and write into their lines why."""

    def update(trial: Settings, *question) -> None:
        begun = time.monotonic()
        lines[trial] |= ask(*question)
        lines[trial]["seconds"] += time.monotonic() - begun

    finalists = _faster(lines)[:FINALISTS]
    for number, trial in enumerate(finalists):
        share = (end - time.monotonic()) / (len(finalists) - number + 1)  # float64 has one as well
        if BLOCK_STEPS * reference < share:
            update(trial, "long", trial, share)
            if lines[trial]["outcome"] == "faster" and not lines[trial]["ratio"] > LEAST_GAIN:
                lines[trial]["outcome"] = "not faster"
    for number, trial in enumerate(_faster(lines)):
        if number and time.monotonic() >= end:
            break
        update(trial, "parity", trial, parity_steps)
        if lines[trial]["outcome"] == "faster":
            lines[trial]["outcome"] = "taken"
            break
    best = next((trial for trial in lines if lines[trial]["outcome"] == "taken"), Settings())
    for trial in _faster(lines):  # without a winner, what was not compared with float64
        lines[trial]["outcome"] = "no time left" if best == Settings() else "not fastest"
    return best


def promised(trials: pandas.DataFrame) -> float:
    """Return the speed-up that a search saw for its choice over the reference's settings."""
    return float(trials.loc[trials["outcome"] == "taken", "ratio"].astype(float).prod())


def gain(seconds: numpy.ndarray) -> float:
    """Return how many times as fast as the reference a trial is: by the blocks' median or the fastest windows.

    The lesser of both: who else works on a machine makes windows slower, never faster.

    Args:
        seconds: of windows of the same work, shape (blocks, 4): reference, trial, trial, reference.
    """
    reference, trial = seconds[:, [0, 3]], seconds[:, [1, 2]]
    return float(min(numpy.median(reference.sum(axis=1) / trial.sum(axis=1)), reference.min() / trial.min()))


def _ask(
    folder: Path, kept: dict[Settings, Workload], build: Callable[[Settings], Workload], question: str, *given
) -> dict:
    """Return the answer of a trial, as columns of its line; what the device or the framework lacks is one, too."""
    try:
        return {"short": _short, "long": _long, "parity": _parity}[question](folder, kept, build, *given)
    except Exception as error:  # a compiler or a kernel that is not there may raise anything
        if given[0] == Settings():
            raise
        return {"outcome": "unsupported", "reason": f"{type(error).__name__}: {error}"[:300], "ratio": math.nan}


def _short(folder: Path, kept: dict, build: Callable, trial: Settings, most: float) -> dict:
    """Return the seconds of a step after one of warm-up; of one that takes longer than `most`, no second is timed."""
    workload = kept[trial] = build(trial)
    batches = endless(workload)
    _seconds(workload, batches, 1)
    single = _seconds(workload, batches, 1)
    if single > most and not (trial.compiled or trial.fused):  # a network or optimiser may be compiled twice
        return {"seconds_per_step": single}
    count = max(1, round(SHORT_SECONDS / single))
    longer = (_seconds(workload, batches, count) / count for _ in range(2 if count > 1 else 1))
    return {"seconds_per_step": min(single, *longer)}


def _long(folder: Path, kept: dict, build: Callable, trial: Settings, time_limit_seconds: float) -> dict:
    """Return the gain over the reference, by up to BLOCKS of four windows; at least one."""
    until, blocks = time.monotonic() + time_limit_seconds, []
    for settings in (Settings(), trial):
        if settings not in kept:
            _short(folder, kept, build, settings, math.inf)
    reference, tried = ((kept[settings], endless(kept[settings])) for settings in (Settings(), trial))
    count = max(1, round(TRIAL_SECONDS / _seconds(*reference, 1)))
    while not blocks or (len(blocks) < BLOCKS and time.monotonic() < until):
        blocks.append([_seconds(*each, count) for each in (reference, tried, tried, reference)])
    return {"ratio": gain(numpy.array(blocks))}


def _seconds(workload: Workload, batches: Iterator, count: int) -> float:
    """Return the seconds of so many steps, on batches that are made before."""
    return train_window(workload, NO_SENSOR, list(itertools.islice(batches, count)))["seconds"]


def _parity(folder: Path, kept: dict, build: Callable, trial: Settings, num_steps: int) -> dict:
    """Return what a comparison of fresh weights with float64 has against a trial, or nothing."""
    workload = build(trial)
    names = dict.fromkeys(("session", "run_id", "study", "point", "machine"), "search")  # its rows are discarded
    record = Run(folder, "search", names | {"schema_version": records.SCHEMA_VERSION, "source": "measured"})
    verdict = parity.check(workload, record, num_steps, kept=folder)
    record.path.unlink(missing_ok=True)
    return {} if verdict.passed else {"outcome": "parity failed", "reason": verdict.reason}


def _ask_apart(end: float, folder: Path, build: Callable, question: str, *given) -> dict:
    """Return what `_ask` does, in a process of its own: what a device lacks may end the whole process."""
    import cloudpickle  # notebooks hold `build` in a cell, which pickle itself cannot send

    task, answer = folder / "task", folder / "answer"
    task.write_bytes(cloudpickle.dumps((folder, {}, build, question, *given)))
    command = [sys.executable, "-m", "benchbook.measuring.tuned", str(task), str(answer)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # a network may be in a user's file
    seconds = max(LEAST_SECONDS, end - time.monotonic())
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        return {"outcome": "no time left", "reason": f"did not end in {seconds:.0f} s", "ratio": math.nan}
    if done.returncode == 0:
        return json.loads(answer.read_text())
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    words = failures.anonymous("\n".join(done.stderr.strip().splitlines()[-2:]))
    return {"outcome": "unsupported", "reason": f"its process ended with {ended}: {words}"[:300], "ratio": math.nan}


def main() -> None:
    """Try what the file on the command line says, and write the answer to the other file: the process of a trial."""
    task, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps(_ask(*pickle.loads(task.read_bytes()))))


def _warm(workload: Workload) -> None:
    """Build and compile a workload by some steps, off the clock."""
    train = trainer(workload)
    for step in range(WARM_UP_STEPS):
        if train(1)["seconds"] > TRIAL_SECONDS and step:  # the first builds and compiles
            break


def _alternate(run: Run, workloads: dict[str, Workload], seconds: float, promised: float) -> None:
    """Append windows of both workloads in turn, each as long as the other's: what slows the machine slows both."""
    for workload in workloads.values():
        _warm(workload)
    num_steps = {side: steps_lasting(seconds, trainer(workload)) for side, workload in workloads.items()}
    for side, visit in itertools.groupby(ORDER):
        workload = workloads[side]
        train, columns = trainer(workload, sensors.open_sensor(workload.device)), workload.description()
        if columns.get("num_workers"):  # the loader is as many batches ahead as in the middle of an epoch
            train(num_steps[side])
        for _ in visit:
            settings = run.settings_with(side=side, promised=promised)
            run.append(**columns, **train(num_steps[side]), settings=settings)
        del train  # its loader's processes end before the other side's begin


def _chosen_before(run: Run, builds: dict[str, Callable[..., Workload]]) -> Choice | None:
    """Return what an earlier run of the same point and session chose and tried, if there was one."""
    session = run.common["session"]
    for run_id, manifest in manifests.read_all(run.folder).items():
        if "tuning" in manifest and set(records.read(run.folder / f"{run_id}.csv")["session"]) == {session}:
            chosen, settings = manifest["tuning"]["chosen"], Settings(**manifest["tuning"]["settings"])
            return Choice(chosen, builds[chosen], settings, pandas.DataFrame(manifest["trials"], columns=TRIED), None)
    return None


if __name__ == "__main__":
    main()
