"""A tuned point: search for the fastest settings, hold what was chosen against the reference, and measure the faster.

The first kernel of a point in a session searches and confirms; those that follow take its choice over, so that all
windows of a point are of one setting, and the time is spent once.

Where the C library can be told to keep what a step frees, it is, before the search and for all of such a kernel: it
cannot be told to go back. So the reference's windows that decide have it as well, and what is confirmed leaves out what
it brings; with two networks in one process, either alone might be the one whose memory is given back in each step.
"""

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass

import pandas

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import confirmation, intervals
from benchbook.judging.confirmation import REFERENCE, TUNED
from benchbook.judging.intervals import NO_HISTORY, History, Interval
from benchbook.measuring import measure, protocol, search
from benchbook.measuring.runs import Run
from benchbook.rows import manifests, records

ORDER = (REFERENCE, TUNED, TUNED, REFERENCE) * 3
WINDOW_SECONDS = 2.0  # where the plan does not say
ONLY_TUNED = ("data_resident", "joint_views")  # parameters that the reference does not have


@dataclass(frozen=True)
class Choice:
    """What a tuned point measures.

    Attributes:
        chosen: TUNED, or REFERENCE where nothing faster was found.
        build: makes the workload to measure, from its settings.
        settings: those that the search chose, or the reference's.
        trials: see `search.Outcome`.
        confirmed: tuned over reference; None where it was taken over from an earlier kernel, or a window diverged.
    """

    chosen: str
    build: Callable[..., Workload]
    settings: Settings
    trials: pandas.DataFrame
    confirmed: Interval | None

    @property
    def is_tuned(self) -> bool:
        """Return whether tuned was confirmed to be faster."""
        return self.chosen == TUNED

    def __str__(self) -> str:
        """Return what came of the search, as a notebook prints it."""
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
) -> Choice:
    """Return what a tuned point measures, and tell the run: what was tried, what it promised, and what was chosen.

    Args:
        run: of the point; it takes the rows of the windows that decide.
        device: where both compute.
        tuned: makes the point's workload with fresh weights, called with settings=...
        reference: the same for the study's reference, with as many images in a step.
        search_seconds, parity_steps: of the search, see `search.fastest`.
        window_seconds: how long a window that decides lasts, at least; 0: WINDOW_SECONDS.
        trial: what the search tries in place of `tuned`: smaller batches, say.
        plain: the reference's settings.

    Raises:
        ValueError: no time for a search.
    """
    if devices.can_keep_memory(device):
        devices.keep_memory()
    builds = {REFERENCE: reference, TUNED: tuned}
    chosen, settings, trials, confirmed = _chosen_before(run) or (None, None, None, None)
    if chosen is None:
        with run.during("setup"):
            make = trial or tuned
            outcome = search.fastest(lambda some: make(settings=some), device, search_seconds, parity_steps)
        with run.during(confirmation.PHASE):
            workloads = {REFERENCE: reference(settings=plain), TUNED: tuned(settings=outcome.settings)}
            _alternate(run, workloads, window_seconds or WINDOW_SECONDS, outcome.promised)
        confirmed, trials = confirmation.ratio(records.read(run.path), _history(run, device)), outcome.trials
        faster = confirmation.is_faster(confirmed)
        chosen, settings = (TUNED, outcome.settings) if faster else (REFERENCE, plain)
    choice = Choice(chosen, builds[chosen], settings, trials, confirmed)
    _tell(run, choice, device)
    return choice


def _alternate(run: Run, workloads: dict[str, Workload], seconds: float, promised: float) -> None:
    """Append windows of both workloads, of as many steps each, in turn: what slows the machine slows both."""
    for workload in workloads.values():
        search.warm(workload)
    num_steps = max(_steps_lasting(seconds, workload) for workload in workloads.values())
    for side, visit in itertools.groupby(ORDER):
        workload = workloads[side]
        sensor, batches = measure.open_sensor(workload.device), protocol.endless(workload)
        stream = protocol.started(batches)
        columns = workload.description()
        if columns.get("num_workers"):  # whoever prepares batches ahead is as far ahead as in the middle of an epoch
            protocol.train_window(workload, sensor, itertools.islice(stream, num_steps))
        for _ in visit:
            window = protocol.train_window(workload, sensor, itertools.islice(stream, num_steps))
            run.append(**columns, **window, settings=run.settings_with(side=side, promised=promised))
        batches.close()


def _steps_lasting(seconds: float, workload: Workload) -> int:
    sensor, batches = measure.NoSensor(), protocol.endless(workload)
    num_steps = protocol.steps_lasting(
        seconds, lambda count: protocol.train_window(workload, sensor, itertools.islice(batches, count))["seconds"]
    )
    batches.close()
    return num_steps


def _history(run: Run, device: Device) -> History:
    """Return how much kernels differed on this device, from calibration and the runs of this study."""
    folder = run.folder.parent
    files = [path for part in (folder.parent / "calibrate", folder) for path in records.find(part)]
    rows = records.gather(files, lambda line: None)
    machine = run.common["machine"]
    return intervals.histories(rows).get((intervals.RATE, machine, device.kind), NO_HISTORY)


def _tell(run: Run, choice: Choice, device: Device) -> None:
    """Say in later rows what was chosen, and in the manifest what was tried."""
    # Precision and compiler are columns of the rows; the rest is a setting, where there was a choice.
    names = {"channels_last", "fused", "autotuned", "graphs"} & search.candidates(device).keys()
    stated = {name: getattr(choice.settings, name) for name in sorted(names)}
    if devices.can_keep_memory(device):
        stated |= {"keeps_memory": True}  # whatever was chosen
    if not choice.is_tuned:
        stated |= {name: False for name in ONLY_TUNED if name in run.settings_with()}
    run.manifest["tuning"] = {"chosen": choice.chosen, "settings": asdict(choice.settings)}
    run.tell(choice.trials.to_dict("records"), chosen=choice.chosen, **stated)


def _chosen_before(run: Run) -> tuple[str, Settings, pandas.DataFrame, None] | None:
    """Return what an earlier run of the same point and session chose and tried, if there was one."""
    session = run.common["session"]
    for run_id, manifest in manifests.every(run.folder).items():
        if "tuning" in manifest and set(records.read(run.folder / f"{run_id}.csv")["session"]) == {session}:
            kept = manifest["tuning"]
            trials = pandas.DataFrame(manifest["trials"], columns=search.COLUMNS)
            return kept["chosen"], Settings(**kept["settings"]), trials, None
    return None
