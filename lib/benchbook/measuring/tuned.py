"""Search for the fastest settings of a workload that still pass parity, and confirm them against
its reference.

Candidates are tried one after the other on top of the best so far, so that a search takes
seconds and does not try all combinations. One that is clearly faster is the best from then on;
the last of them is taken if it passes parity. The search's measurements are never published:
fresh windows of its choice and of the study's reference alternate, and decide which of the two
the point measures. The first process of a point in a session searches and confirms. Later
processes take over its choice, so that the search runs once and all windows of a point have the
same settings.

If the C library can keep the memory that a step frees, it does so from before the search until
the end of such a process, because this cannot be switched off again. The reference's windows
have it as well, so the confirmed speed-up excludes its gain. Otherwise, with two networks in one
process, chance would decide whose memory is returned in each step.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import confirmation
from benchbook.judging.confirmation import REFERENCE, TUNED
from benchbook.machine import launch, temporary
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import failures, parity, sensors
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.measuring.window import endless, steps_lasting, train_window, trainer
from benchbook.measuring.writer import Run
from benchbook.rows import manifests, records

LEAST_GAIN = 1.03  # a setting must be faster by this factor; less is noise on most machines
NUM_PAIRS = 2  # of windows: one of the best settings so far, one of the trial
TRIAL_SECONDS = 0.4  # length of such a window; of one step if that takes longer
RESERVE = 1 / 3  # of the time limit, for float64
LEAST_SECONDS = 10.0  # a trial's process gets at least this long before it is killed
TRIAL_STEPS = (
    3  # that a trial is compared with float64; the choice is compared in all steps afterwards
)
WARM_UP_STEPS = 3  # fewer if one is as long as a window
# a setting this slow in single steps, such as bfloat16 without instructions, is not timed further
HOPELESS = 0.5
COLUMNS = [
    *(field.name for field in fields(Settings)),
    "outcome",
    "ratio",
    "seconds",
    "reason",
]  # of the trials
IMPLIED = {
    "graphs": {"compiled": True}
}  # a graph needs compiled code, even if compiling alone was not faster

ORDER = (REFERENCE, TUNED, TUNED, REFERENCE) * 2  # of the windows that confirm
CONFIRM_SECONDS = 2.0  # length of such a window, if the plan has none
ONLY_TUNED = ("data_resident",)  # parameters that the reference does not have
Make = Callable[..., Workload]  # makes a workload with fresh weights, called with settings=...
STATED = {field.name for field in fields(Settings)} - {
    "precision",
    "compiled",
}  # these two are columns of rows


def choose(
    run: Run,
    device: Device,
    tuned: Make,
    reference: Make,
    *,
    trial: Make,
    plain: Settings,
    changes: Sequence[dict] | None,
    given: Mapping,
) -> tuple[Make, Settings]:
    """Return what makes the workload that a tuned point measures, and its settings.

    It is `tuned` with the search's choice, or `reference` if nothing faster was found. The run's
    rows and manifest get the trials and the choice.

    Args:
        run: of the point; it stores the rows of the windows that confirm.
        device: where both workloads compute.
        tuned: makes the point's workload with fresh weights, called with settings=...
        reference: makes the study's reference in the same way, with as many images in a step.
        trial: makes the workload that the search tries, for example with smaller batches than
        `tuned`.
        plain: the reference's settings.
        changes: what the search tries; None: `candidates`.
        given: the point's parameters: search_seconds and num_parity_steps, see `fastest`, and
        window_seconds, the least length of a window that confirms.
    """
    changes = candidates(device) if changes is None else changes
    before = _before(run)
    if before is None:
        with run.during("setup"):
            limits = given["search_seconds"], given["num_parity_steps"]
            settings, trials = fastest(trial, device, *limits, changes)
        chosen = TUNED
    else:
        chosen, settings, trials = before
    if chosen == TUNED:  # in every process: one alone has a range, which confirms nothing
        with run.during(confirmation.PHASE):
            workloads = {REFERENCE: reference(settings=plain), TUNED: tuned(settings=settings)}
            alternate(run, workloads, given["window_seconds"], promised=promised(trials))
        confirmed = confirmation.ratio(run.rows())
        if before is None and not (confirmed and confirmed.low > 1):
            chosen, settings = REFERENCE, plain
    names = STATED & {name for change in changes for name in change}  # where there was a choice
    stated = {name: getattr(settings, name) for name in sorted(names)}
    if chosen == REFERENCE:
        stated |= {name: False for name in ONLY_TUNED if name in run.settings_with()}
    for line in trials:
        if (
            line["outcome"] == "unsupported"
        ):  # an error's text may hold folders and keys: its name stays
            line["reason"] = line["reason"].partition(":")[0]
    run.manifest["trials"] = trials
    run.manifest["tuning"] = {"chosen": chosen, "settings": asdict(settings)}
    run.add_settings(chosen=chosen, **stated)
    return {REFERENCE: reference, TUNED: tuned}[chosen], settings


def candidates(device: Device) -> list[dict]:
    """Return the changes to try on top of the best settings so far, in order.

    They depend on the device's kind and the framework; see `benchbook.machine.kinds` and
    `benchbook.machine.libraries`.
    """
    imitated, known = device.backend.emulated_units(device), FRAMEWORKS[device.framework].settings
    precisions = [name for name in device.features.precisions if device.has_units(name)]
    precisions = [name for name in precisions if PRECISIONS[name].units not in imitated]
    settings = [name for name in device.features.settings if name in known]
    return [{"precision": name} for name in precisions] + [
        {name: True} | IMPLIED.get(name, {}) for name in settings
    ]


def fastest(
    build: Make,
    device: Device,
    time_limit_seconds: float,
    parity_steps: int,
    changes: Sequence[dict],
) -> tuple[Settings, list[dict]]:
    """Search for the fastest settings that pass parity, in one pass over the changes.

    Windows of each candidate alternate with those of the best settings so far, to which the
    candidate adds one change. The last candidate that was faster is compared with float64; if it
    fails, the one before it, and so on. The limit includes all of this: no trial begins in its
    last third, and no comparison except the first after its end.

    Args:
        build: makes a workload with fresh weights, called with settings=...; its batches should
        be on the device.
        device: where the workload computes.
        time_limit_seconds: of the whole search, above 0.
        parity_steps: steps in which the winner is compared with float64, up to TRIAL_STEPS.
        changes: what to try, see `candidates`.

    Returns:
        The settings (the reference's if nothing was faster), and one line per trial: its
        settings, outcome (taken, not fastest, not faster, parity failed, unsupported, no time
        left), ratio (speed relative to the reference), seconds (of the trial) and reason.
    """
    end, best, ratio, lines = time.monotonic() + time_limit_seconds, Settings(), 1.0, {}
    if device.features.aborts:
        attempt = functools.partial(_attempt_in_process, end, build)
    else:
        ready = {
            best: _ready(build, best)
        }  # outside of a trial: an error of the reference's own is raised
        attempt = functools.partial(_attempt, build, ready)
    for change in changes:
        trial, begun = replace(best, **change), time.monotonic()
        if end - begun <= RESERVE * time_limit_seconds:
            lines[trial] = {"outcome": "no time left"}
            continue
        line = lines[trial] = {"outcome": "not faster"} | attempt(_gain, trial, best)
        line["seconds"] = time.monotonic() - begun
        if gain := line.get("ratio"):
            line["ratio"] = ratio * gain
            if gain > LEAST_GAIN:
                line["outcome"], best, ratio = "faster", trial, line["ratio"]
    best = _right(attempt, lines, end, min(parity_steps, TRIAL_STEPS))
    return best, [dict.fromkeys(COLUMNS) | asdict(trial) | line for trial, line in lines.items()]


def _right(
    attempt: Callable[..., dict], lines: dict[Settings, dict], end: float, parity_steps: int
) -> Settings:
    """Return the fastest settings that agree with float64, and complete the outcomes in the
    trials' lines."""
    faster = [trial for trial, line in lines.items() if line["outcome"] == "faster"]
    taken = Settings()
    for trial in reversed(faster):
        begun, line = time.monotonic(), lines[trial]
        if trial != faster[-1] and begun >= end:
            break
        line |= {"outcome": "taken"} | attempt(_parity, trial, parity_steps)
        line["seconds"] += time.monotonic() - begun
        if line["outcome"] == "taken":
            taken = trial
            break
    for trial in faster:
        if lines[trial]["outcome"] == "faster":  # not compared with float64
            lines[trial]["outcome"] = "no time left" if taken == Settings() else "not fastest"
    return taken


def promised(trials: list[dict]) -> float:
    """Return the search's speed-up of its choice over the reference's settings; 1 if nothing was
    faster."""
    return next((trial["ratio"] for trial in trials if trial["outcome"] == "taken"), 1.0)


def _attempt(build: Callable, ready: dict, stage: Callable, trial: Settings, other: object) -> dict:
    """Return the result of a trial's stage, as columns of its line; a device or framework may
    not support it."""
    try:
        return stage(build, ready, trial, other)
    except Exception as error:  # a missing compiler or kernel may raise any error
        return {"outcome": "unsupported", "reason": failures.refusal(error)["message"]}


def _attempt_in_process(
    end: float, build: Callable, stage: Callable, trial: Settings, other: object
) -> dict:
    """Return what `_attempt` does, from its own process: an operation that the device lacks may
    abort the process."""
    seconds = max(LEAST_SECONDS, end - time.monotonic())
    task = build, {}, stage, trial, other
    result, failed = launch.call(f"{__name__}:{_attempt.__name__}", *task, seconds=seconds)
    if failed is None:
        return result
    if failed.is_late:
        return {"outcome": "no time left", "reason": f"did not end in {seconds:.0f} s"}
    return {"outcome": "unsupported", "reason": failures.anonymous(failed.message)[:300]}


def _gain(build: Callable, ready: dict, trial: Settings, best: Settings) -> dict:
    """Return a trial's speed-up over the best settings so far, from the fastest of windows that
    alternate.

    Other load on a machine makes windows slower, never faster.
    """
    for old in ready.keys() - {best}:
        del ready[old]
    for settings in (best, trial):
        if settings not in ready:
            ready[settings] = _ready(build, settings)
    pairs = [(_seconds(*ready[best], count=1), _seconds(*ready[trial], count=1))]
    seconds, tried = pairs[0]
    if (
        tried * HOPELESS < seconds or trial.compiled or trial.fused
    ):  # either may be compiled again in its second step
        num_steps = max(1, round(TRIAL_SECONDS / seconds))
        if num_steps > 1:
            pairs.clear()
        while len(pairs) < NUM_PAIRS:
            pairs.append(
                (_seconds(*ready[best], count=num_steps), _seconds(*ready[trial], count=num_steps))
            )
    old, new = map(min, zip(*pairs, strict=True))
    return {"ratio": old / new}


def _ready(build: Make, settings: Settings) -> tuple[Workload, Iterator]:
    """Return a workload that has taken its first step, and its further batches."""
    workload = build(settings=settings)
    batches = endless(workload)
    _seconds(workload, batches, 1)
    return workload, batches


def _seconds(workload: Workload, batches: Iterator, count: int) -> float:
    """Return the seconds of `count` steps, on batches loaded beforehand."""
    return train_window(workload, NO_SENSOR, list(itertools.islice(batches, count)))["seconds"]


def _parity(build: Callable, ready: dict, trial: Settings, num_steps: int) -> dict:
    """Return an outcome if a comparison of fresh weights with float64 fails, else nothing."""
    workload = build(settings=trial)
    names = dict.fromkeys(
        ("session", "run_id", "study", "point", "machine"), "search"
    )  # its rows are discarded
    names |= {"schema_version": records.SCHEMA_VERSION, "source": "measured"}
    with temporary.folder() as folder:
        verdict = parity.check(workload, Run(folder, "search", names), num_steps)
    return {} if verdict.passed else {"outcome": "parity failed", "reason": verdict.reason}


def _warm_up(workload: Workload) -> None:
    """Build and compile a workload by some steps, off the clock; its loader ends with this
    function."""
    train = trainer(workload)
    for step in range(WARM_UP_STEPS):
        if train(1)["seconds"] > TRIAL_SECONDS and step:  # the first step builds and compiles
            break


def alternate(run: Run, workloads: dict[str, Workload], seconds: float, **stated: float) -> None:
    """Append windows of both workloads in turn, of equal length, so that a slow machine slows
    both alike.

    Args:
        run: stores the rows, with these settings.
        workloads: by REFERENCE and TUNED.
        seconds: the least length of a window; 0: CONFIRM_SECONDS.
    """
    for workload in workloads.values():
        _warm_up(workload)
    longest = max(
        seconds or CONFIRM_SECONDS,
        *(sensors.open_sensor(each.device).least_seconds for each in workloads.values()),
    )
    num_steps = {
        side: steps_lasting(longest, trainer(workload)) for side, workload in workloads.items()
    }
    for side, visit in itertools.groupby(ORDER):
        workload = workloads[side]
        train = trainer(workload, sensors.open_sensor(workload.device))
        columns = workload.description()
        if columns.get("num_workers"):  # so that the loader is ahead as in the middle of an epoch
            train(num_steps[side])
        for _ in visit:
            settings = run.settings_with(side=side, **stated)
            run.append(**columns, **train(num_steps[side]), settings=settings)
        del train  # ends this side's loader processes before the other side's start


def _before(run: Run) -> tuple[str, Settings, list[dict]] | None:
    """Return what an earlier run of the same point and session chose, with its settings and the
    trials."""
    session = run.common["session"]
    for run_id, manifest in manifests.read_all(run.folder).items():
        if "tuning" in manifest and set(records.read(run.folder / f"{run_id}.csv")["session"]) == {
            session
        }:
            tuning = manifest["tuning"]
            return tuning["chosen"], Settings(**tuning["settings"]), manifest["trials"]
    return None
