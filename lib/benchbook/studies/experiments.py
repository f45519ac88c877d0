"""The calls of a study's notebook: begin a run, load data, build, try, measure, explore other settings."""

import functools
import inspect
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pandas
from IPython.display import DisplayHandle, Markdown, display

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import wording
from benchbook.judging.parity import Agreement
from benchbook.machine import layout, libraries
from benchbook.measuring import failures, parity, protocol, runs, tuned
from benchbook.measuring.window import window, windows_lasting
from benchbook.measuring.writer import Run
from benchbook.studies import figures
from benchbook.studies.datasets import Collection
from benchbook.studies.plan import StudyPlan
from benchbook.studies.study import Drawing, Evidence

DRAWN_EVERY_SECONDS = 1.0  # a figure takes about 0.1 s
EXPLORED_SECONDS = 1.0  # length of the window at each explored setting
CURVE = ["samples", "loss", "samples_per_second"]
DESCRIBED = ("batch_size", "image_size", "precision", "device_count")  # in the row of a run that fails, too


@dataclass
class Trial:
    """The notebook's own training loop: its batches, and a figure of loss and throughput that is drawn meanwhile.

    Attributes:
        batches: epoch after epoch.
        seconds: of training so far, without the time for drawing.
        table: a line for each call of `add`: samples seen so far, loss and samples_per_second.
    """

    batches: Iterator
    seconds: float = 0.0
    table: pandas.DataFrame = field(default_factory=lambda: pandas.DataFrame(columns=CURVE))
    _shown: DisplayHandle | None = None
    _drawn_at: float = -DRAWN_EVERY_SECONDS

    def add(self, loss: float, samples: int, seconds: float) -> None:
        """Add some steps: the loss of the last one, the samples and seconds of all. Redraw the figure if it is due."""
        self.seconds += seconds
        seen = self.table["samples"].max() if len(self.table) else 0
        self.table.loc[len(self.table)] = [seen + samples, loss, samples / seconds]
        if time.monotonic() - self._drawn_at >= DRAWN_EVERY_SECONDS:
            self.show()

    def show(self) -> None:
        """Draw the figure, in place of the previous one."""
        if self._shown:
            self._shown.update(self)
        else:
            self._shown = display(self, display_id=True)
        self._drawn_at = time.monotonic()

    def __str__(self) -> str:
        """Return the last line of the table in words."""
        samples, loss, rate = self.table.iloc[-1]
        return f"{wording.number(rate)} samples a second, loss {loss:.4g} after {samples:,.0f} samples"

    __repr__ = __str__

    def _repr_png_(self) -> bytes:
        with figures.style():
            figure, axes = figures.canvas(2.8, panels=2)
            for part, name in zip(axes, CURVE[1:], strict=True):
                part.plot(self.table["samples"], self.table[name], "o-", color=figures.MACHINES[0], markersize=3)
                part.set(xlabel="samples seen", ylabel=name.replace("_", " "))
            axes[0].set_title(str(self))
            axes[1].set_ylim(bottom=0)
        return figures.render(figure)


@dataclass
class Experiment:
    """One run of a study, as the cells of its notebook use it.

    Attributes:
        parameters: see `begin`.
        device: the training device, with its framework.
        run: writes the rows.
        workload: from `build`; the windows time its `step`, which the notebook's own loop may call too.
        make: makes such a workload with fresh weights; takes changed choices and `settings`.
        settings: of that workload.
        has_begun: whether the workload's first step has its row.
        agreement: with float64, from `compare`.
    """

    parameters: dict
    device: Device
    run: Run
    workload: Workload | None = None
    make: functools.partial | None = field(default=None, repr=False)
    settings: Settings = field(default_factory=Settings)
    has_begun: bool = False
    agreement: Agreement | None = None

    try_seconds = property(lambda self: self.parameters["try_seconds"], doc="Seconds that the notebook's loop trains.")
    whole_epochs = property(lambda self: self.plan(evaluate_each_epoch=False).whole_epochs, doc="Windows are epochs.")

    def __str__(self) -> str:
        """Return device, software and point in one line."""
        common = self.run.common
        software = f"{libraries.WORDS[common['framework']]} {common['framework_version']}"
        return f"{self.device.name} ({self.device.kind}), {software}. Point: {common['point']}"

    def load(self, make: Callable[..., Any], *given: Any) -> Any:
        """Return the data set that a function makes of these arguments; its time becomes a row of phase `setup`.

        The function also gets the parameters data_root and allow_embedded if the notebook has them. It returns None for
        synthetic data.
        """
        named = {name: self.parameters[name] for name in ("data_root", "allow_embedded") if name in self.parameters}
        with self.run.during("setup"):
            with window(self.device) as timed:
                data = make(*given, **named)
            named = {"dataset": getattr(data, "name", given[0]), "dataset_samples": getattr(data, "num_samples", None)}
            self.run.append(**named, **timed.columns())
        return data

    def build(
        self, plan: type[StudyPlan], data: Any, first_step: Callable | None = protocol.first_step, **choices: Any
    ) -> Workload:
        """Return the workload of the parameters. Its first step becomes a row of phase `compile` and is undone.

        For `tuned`, a search first tries settings on this device, and keeps each that is faster and passes parity. Then
        windows of the chosen settings and of the reference alternate. If the chosen ones are not faster, the reference
        is measured. See `benchbook.measuring.tuned`.

        Args:
            plan: of the study; the parameters named like its fields become its choices.
            data: from `load`.
            first_step: takes the workload and the run; None if another process measures.
            choices: replace parameters; `settings` are those of a point that is not tuned.
        """
        known = {each.name for each in fields(plan)} - {"dataset", "device", "variant"}
        choices = {name: value for name, value in self.parameters.items() if name in known} | choices
        self.settings = choices.pop("settings", Settings(self.parameters.get("precision", Settings.precision)))
        plain = {name: value for name, value in choices.items() if name not in tuned.ONLY_TUNED}
        reference = functools.partial(plan.build, data, self.device, **plain)
        self.make = functools.partial(plan.build, data, self.device, **choices, variant=self.parameters["variant"])
        if self.parameters["variant"] == "tuned":
            self._search(reference, plan.candidates(self.device))
        with self.run.during("setup"):
            self.workload = self.make(settings=self.settings)
        if first_step:
            first_step(self.workload, self.run)
        self.has_begun = first_step is protocol.first_step
        return self.workload

    def _search(self, reference: functools.partial, changes: list[dict] | None) -> None:
        """Set `make` and `settings` to the fastest settings found, or to the reference if none are faster."""
        given, trial = self.parameters, self.make
        limits = {"search_seconds": given["search_seconds"], "parity_steps": given["num_parity_steps"]}
        limits |= {"window_seconds": given["window_seconds"], "plain": self.settings, "changes": changes}
        if most := given.get("trial_batch_size"):  # per device
            size = min(self.make.keywords["batch_size"], most * self.device.count)
            data = None if isinstance(self.make.args[0], Collection) else self.make.args[0]  # decoding takes longer
            trial = functools.partial(self.make.func, data, self.device, **(self.make.keywords | {"batch_size": size}))
        choice = tuned.choose(self.run, self.device, self.make, reference, trial=trial, **limits)
        display(choice.trials)
        print(choice)
        self.make, self.settings = choice.build, choice.settings

    def source(self, *parts: Callable) -> Markdown:
        """Return the code of these classes and functions, and of the training step."""
        parts = [*parts, *self.workload.step_functions()]
        code = "\n\n".join(textwrap.dedent(inspect.getsource(part)) for part in parts)
        return Markdown(f"```python\n{code}\n```")

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Yield a trial with batches to train on; afterwards the workload is restored."""
        with protocol.restoring(self.workload) as batches:
            trial = Trial(batches)
            yield trial
        if trial.seconds:
            trial.show()

    def wait(self, output: Any) -> None:
        """Wait until the device has computed an output; read the clock only afterwards."""
        self.device.backend.synchronize(self.device, output)

    def compare(self, precisions: Iterable[str] = ("",)) -> Agreement:
        """Compare the first steps with float64 in each precision ("" is the workload's); return the worst agreement."""
        num_steps = self.parameters["num_parity_steps"]
        agreements = [parity.check(self.workload, self.run, num_steps, precision) for precision in precisions]
        self.agreement = min(agreements, key=lambda agreement: agreement.passed)
        return self.agreement

    def measure(self, precisions: Iterable[str] = ("",), **amount: Any) -> pandas.DataFrame:
        """Compare the first steps with float64, warm up, and measure the windows of the budget, one row each.

        Args:
            precisions: see `compare`.
            amount: further fields of `protocol.Plan`.

        Returns:
            The run's rows.
        """
        self.compare(precisions)
        protocol.warm_up(self.workload, self.run, self.parameters["num_warmup_steps"], self.has_begun)
        if minutes := self.parameters.get("sustained_minutes"):
            return protocol.measure_minutes(self.workload, self.run, minutes)
        return protocol.measure_windows(self.workload, self.run, self.plan(**amount))

    def plan(self, **amount: Any) -> protocol.Plan:
        """Return the windows to measure: the budget, changed by `amount`."""
        known = {each.name for each in fields(protocol.Plan)}
        return protocol.Plan(**{name: value for name, value in self.parameters.items() if name in known} | amount)

    def end(self, every_study: bool = False) -> Evidence:
        """End the run; return this machine's rows, of this study or of all, and the published rows."""
        self.run.end()
        print(f"Rows: {self.run.path.relative_to(layout.outputs())}")
        return Evidence.of_machine(self.run.common["machine"], "" if every_study else self.run.common["study"])

    def explore(self, **choice: Iterable) -> Drawing | None:
        """Draw the rate at several values of one choice, such as batch_size=[16, 64] or precision=["fp32", "bf16"].

        Each value trains for about a second and writes no row. None if the budget's `explore` is False.
        """
        if not self.parameters["explore"]:
            print("Skipped: explore is False in the budget.")
            return None
        [(name, values)] = choice.items()
        table = pandas.DataFrame([{name: value} | self._explored(name, value) for value in values])
        with figures.style():
            figure, axes = figures.canvas(1.2 + 0.4 * len(table))
            bars = axes.barh(table[name].astype(str), table["samples_per_second"].fillna(0), color=figures.MACHINES[0])
            axes.bar_label(bars, table["text"], padding=4)
            axes.invert_yaxis()
            axes.set(xlabel="samples per second, one window", ylabel=name.replace("_", " "))
            axes.set_title(f"{self.device.name}: throughput by {name.replace('_', ' ')}")
        return Drawing(figure, table, "Bars of throughput")

    def _explored(self, name: str, value: Any) -> dict:
        """Return the rate at a value and the text after its bar, which may be an error of the device or framework."""
        settings, changed = self.settings, {name: value}
        if hasattr(settings, name):
            settings, changed = replace(settings, **changed), {}
        try:
            workload = self.make(**changed, settings=settings)
            rate = next(windows_lasting(workload, EXPLORED_SECONDS))["samples_per_second"]
            return {"samples_per_second": rate, "text": wording.number(rate)}
        except Exception as error:  # frameworks raise anything for what a device lacks
            return {"samples_per_second": None, "text": textwrap.shorten(failures.refusal(error)["message"], 70)}


def begin(study: str, parameters: dict) -> Experiment:
    """Begin a run of a study.

    Args:
        study: its name.
        parameters: from `profiles.collect`, including the keys of the budget.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has.
    """
    framework, count = devices.choose_framework(parameters.get("framework", "torch")), parameters.get("device_count", 1)
    devices.split_cpu(framework, count)
    device = devices.pick(parameters["device"], framework)
    run = runs.start(study, parameters, device)
    run.describe(**{name: parameters[name] for name in DESCRIBED if name in parameters})
    with run.during("setup"):
        return Experiment(parameters, devices.with_count(device, count), run)
