"""One process of a point: it builds the step from the parameters, and compares it with float64
or measures windows.

Windows of one process agree better than processes of one point, so a point is measured in
several processes, one after the other; see `notebook.Experiment.measure`. Process 0 searches for
settings, if the point is tuned, and compares the first steps with float64; else it runs after
process 1. Processes from 1 on measure windows; the first of them also evaluates. Each writes a
run of its own. How is said by the study's `Plan`: `load` returns the data, `start` the workload,
and `measure` measures.
"""

import base64
import functools
import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy

from benchbook.datasets import EMBEDDED, Collection
from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, Group
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import confirmation
from benchbook.judging.agreement import Agreement
from benchbook.machine import identity, kinds, launch, processes
from benchbook.measuring import parity, protocol, runs, tuned
from benchbook.measuring.writer import Run
from benchbook.studies.experiments.parameters import plan_of, point_name

CHECK = 0  # the number of the process that compares with float64
GROUP_SECONDS = (
    300.0  # a rank waits this long for others, which may compile or read a large data set
)
DESCRIBED = (
    "batch_size",
    "image_size",
    "precision",
    "device_count",
)  # in the row of a run that fails, too


@dataclass
class Process:
    """One process of a point, as a study's `load`, `build` and `measure` use it.

    Attributes:
        parameters: of the notebook, with the keys of its budget.
        device: where it computes, with its framework.
        run: writes the rows.
        number: CHECK, or the number of the measuring process, from 1.
        group: the processes that train together, each with one device.
        workload: from `build`; the windows time its `step`.
        make: makes such a workload with fresh weights; takes changed choices and `settings`.
        settings: of that workload.
        network: a user's class in place of the study's `Network`; None: the study's.
    """

    parameters: dict
    device: Device
    run: Run
    number: int = 1
    group: Group = field(default_factory=Group)
    workload: Workload | None = None
    make: functools.partial | None = field(default=None, repr=False)
    settings: Settings = field(default_factory=Settings)
    network: type | None = None

    is_first = property(
        lambda self: self.number == 1, doc="Whether what is measured once is measured here."
    )
    whole_epochs = property(
        lambda self: self.amount(evaluate_each_epoch=False).whole_epochs, doc="Windows are epochs."
    )

    def load(self, make: Callable[..., Any], *given: Any) -> Any:
        """Return the data set that a function makes of these arguments; its time becomes a row
        of phase `setup`.

        The function also gets the parameters data_root and allow_embedded if the notebook has
        them. It returns None for synthetic data.
        """
        named = {
            name: self.parameters[name]
            for name in ("data_root", "allow_embedded")
            if name in self.parameters
        }
        with self.run.during("setup"):
            started = time.perf_counter()
            data = make(*given, **named)
            seconds = time.perf_counter() - started
            named = {
                "dataset": getattr(data, "name", given[0]),
                "dataset_samples": getattr(data, "num_samples", None),
            }
            if given[0] in EMBEDDED and named["dataset"] != given[0]:
                self.run.add_settings(replaced={given[0]: named["dataset"]})
            self.run.append(**named, seconds=seconds)
        return data

    def build(self, plan: Any, data: Any, **choices: Any) -> Workload:
        """Return the workload of the parameters. Its first step becomes a row of phase `compile`
        and is undone.

        For `tuned`, process CHECK first searches for settings that are faster and pass parity;
        the others take over its choice. Then windows of the chosen settings and of the reference
        alternate. If the chosen ones are not faster, the reference is measured. See
        `benchbook.measuring.tuned`.

        Args:
            plan: of the study; the parameters named like its fields become its choices.
            data: from `load`.
            choices: replace parameters; `settings` are those of a point that is not tuned.
        """
        known = {each.name for each in fields(plan)} - {"dataset", "device", "variant"}
        choices = {
            name: value for name, value in self.parameters.items() if name in known
        } | choices
        choices |= {"group": self.group} if "group" in known else {}
        if self.network:
            choices["network_class"] = self.network
            self.run.add_settings(replaced={"the study's network": f"your {self.network.__name__}"})
        self.settings = choices.pop(
            "settings", Settings(self.parameters.get("precision", Settings.precision))
        )
        plain = {name: value for name, value in choices.items() if name not in tuned.ONLY_TUNED}
        reference = functools.partial(plan.build, data, self.device, **plain)
        self.make = functools.partial(
            plan.build, data, self.device, **choices, variant=self.parameters["variant"]
        )
        if self.parameters["variant"] == "tuned":
            self._search(reference, plan.candidates(self.device))
        with self.run.during("setup"):
            self.workload = self.make(settings=self.settings)
        protocol.first_step(self.workload, self.run)
        self.run.manifest["first_call_seconds"] = round(processes.age(), 1)
        return self.workload

    def _search(self, reference: functools.partial, changes: list[dict] | None) -> None:
        """Set `make` and `settings` to the fastest settings found, or to the reference if none
        are faster."""
        trial = self.make
        if most := self.parameters.get("trial_batch_size"):  # per device
            size = min(trial.keywords["batch_size"], most * self.device.count)
            data = (
                None if isinstance(trial.args[0], Collection) else trial.args[0]
            )  # decoding is slow
            trial = functools.partial(
                trial.func, data, self.device, **trial.keywords | {"batch_size": size}
            )
        self.make, self.settings = tuned.choose(
            self.run,
            self.device,
            self.make,
            reference,
            trial=trial,
            plain=self.settings,
            changes=changes,
            given=self.parameters,
        )

    def alternate(self, settings: Settings) -> None:
        """Append windows of the workload that alternate with those of the same one in other
        settings, and undo them; see `confirmation.ratio`."""
        with self.run.during(confirmation.PHASE), protocol.restoring(self.workload):
            sides = confirmation.REFERENCE, confirmation.TUNED
            workloads = dict(zip(sides, (self.make(settings=settings), self.workload), strict=True))
            tuned.alternate(self.run, workloads, self.parameters["window_seconds"])

    def compare(self) -> Agreement:
        """Compare the first steps with float64; return the agreement in the workload's own
        precision.

        The parameter parity_precisions may name further precisions, separated by blanks.
        """
        own = self.workload.description()["precision"]
        others = [
            name for name in self.parameters.get("parity_precisions", "").split() if name != own
        ]
        steps = self.parameters["num_parity_steps"]
        agreement = parity.check(self.workload, self.run, steps)
        for name in others:
            parity.check(self.make(settings=Settings(name)), self.run, steps)
        return agreement

    def measure(self, **changed: Any) -> None:
        """Warm up, and measure the windows of the budget, one row each; the first process also
        evaluates.

        Args:
            changed: see `amount`.
        """
        seconds = protocol.warm_up(
            self.workload, self.run, self.parameters["num_warmup_steps"], has_begun=True
        )
        if minutes := self.parameters.get("sustained_minutes"):
            protocol.measure_minutes(self.workload, self.run, minutes)
        else:
            amount = self.amount(**{"evaluates": self.is_first} | changed)
            # After the windows that confirm, `tuned` was slower for about a second of steps; the
            # search adds them.
            known = 0.0 if self.parameters["variant"] == "tuned" else seconds
            protocol.measure_windows(self.workload, self.run, amount, known)

    def save_pictures(self, rows: dict[str, numpy.ndarray]) -> None:
        """Keep rows of pictures, by name, in the run's manifest; `Experiment.pictures` draws
        them."""
        packed = io.BytesIO()
        numpy.savez_compressed(packed, **rows)
        self.run.manifest["pictures"] = base64.b64encode(packed.getvalue()).decode()

    def amount(self, **changed: Any) -> protocol.Amount:
        """Return the windows to measure: those of the budget, with some fields of
        `protocol.Amount` changed."""
        known = {each.name for each in fields(protocol.Amount)}
        if (
            self.group.size > 1
        ):  # ranks with clocks of their own would disagree on the number of steps
            changed |= {"window_seconds": 0.0}
        return protocol.Amount(
            **{name: value for name, value in self.parameters.items() if name in known} | changed
        )


def with_device(parameters: dict, device: Device) -> dict:
    """Return a point's parameters with the kind and the framework of the device that was picked."""
    return (
        parameters
        | {"device": device.kind}
        | ({"framework": device.framework} if "framework" in parameters else {})
    )


def begin(
    study: str, parameters: dict, run_id: str = "", number: int = 1, drafts: bool = False
) -> Process:
    """Begin a process of a point, on the device that its parameters name; a rank of torchrun
    joins its group.

    Args:
        study: its name.
        parameters: from `profiles.collect`, including the keys of the budget.
        run_id: of its run; empty: a new one.
        number: see `Process`.
        drafts: its rows are discarded, as are those of all ranks but the first.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has.
    """
    framework = devices.choose_framework(parameters.get("framework", "torch"))
    count = parameters.get("device_count", 1)
    devices.split_cpu(framework, count)
    device, group = devices.pick(parameters["device"], framework), Group()
    if "RANK" in os.environ:
        from benchbook.frameworks.torch import replicas

        group = replicas.join(device, GROUP_SECONDS)
        index = device.index if device.is_cpu else int(os.environ["LOCAL_RANK"])
        device = replace(
            device, index=index, count=0 if group.rank else count
        )  # rank 0 reads the energy of all
    folder = runs.scratch() if drafts or group.rank else None
    parameters = with_device(parameters, device)
    run = runs.start(
        study, point_name(study, parameters), parameters, device, run_id, number, folder
    )
    run.describe(**{name: parameters[name] for name in DESCRIBED if name in parameters})
    with run.during("setup"):
        return Process(parameters, devices.with_count(device, count), run, number, group)


def run(
    study: str,
    parameters: dict,
    run_id: str,
    number: int,
    waited: float = 0.0,
    network=None,
    tell: Callable[[dict], object] = launch.send,
) -> None:
    """Do the work of one process of a point, and write its run; `launch.call` calls this.

    Args:
        study, parameters, run_id, number: see `begin`.
        waited: the seconds for which the measurement waited for a calm machine before.
        network, tell: see `Process` and `Run`.

    Raises:
        Exception: whatever ended the work; its row is written.
    """
    process = begin(study, parameters, run_id, number)
    process.run.tell, process.network = tell, network
    process.run.manifest["waited_seconds"] = round(waited, 1)
    if kinds.keeps_memory():
        process.run.add_settings(keeps_memory=True)
    plan = plan_of(study)
    plan.start(process, plan.load(process))
    if number != CHECK:
        plan.measure(process)
    else:
        agreement = process.compare()
        process.run.manifest["agrees"] = (
            agreement.passed or not agreement.num_steps
        )  # else it is unproven
    if process.group.size > 1:
        from benchbook.frameworks.torch import replicas

        replicas.leave()
    begun = process.run.manifest["environment"]
    # With the versions that were imported; frameworks set further variables.
    process.run.manifest["environment"] = identity.environment() | {"variables": begun["variables"]}
    process.run.end()
