"""The calls of a study's notebook: begin, load data, build and try a step, measure in processes,
explore settings.

In JupyterLab and VS Code the kernel computes on the device that is measured, so that a reader
can try the step there. Otherwise, in `make study` and plain papermill, the kernel leaves every
device to the measuring processes, and imports no framework.
"""

import ast
import base64
import copy
import functools
import gc
import inspect
import io
import linecache
import os
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy
import pandas
from IPython import get_ipython
from IPython.display import DisplayHandle, display
from tqdm import tqdm

from benchbook import frameworks
from benchbook.frameworks import devices, survey
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.judging import wording
from benchbook.judging.agreement import Agreement, verdict
from benchbook.machine import contention, context, layout, libraries
from benchbook.machine import identity as machine
from benchbook.machine.kinds import KINDS
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import failures, protocol, runs, trials
from benchbook.measuring.window import steps_lasting, trainer
from benchbook.measuring.writer import Run
from benchbook.rows import records
from benchbook.studies.charts import figures
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.checks import CHECKS
from benchbook.studies.experiments import process
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.experiments.parameters import (
    BUDGET,
    budget,
    check,
    declared,
    plan_of,
    point_name,
    require_names,
)
from benchbook.studies.experiments.process import Process
from benchbook.studies.results.evidence import Evidence

DRAWN_EVERY_SECONDS = 1.0  # a figure takes about 0.1 s
EXPLORED_SECONDS = 1.0  # length of the window at each explored setting
CURVE = ["samples", "loss", "rate"]
PROGRESS = "{desc}: {n_fmt} windows [{elapsed}{postfix}]"
WINDOWS = ("train", "calibrate")  # the phases of windows that count

if (shell := get_ipython()) and "JPY_SESSION_NAME" in os.environ:
    shell.InteractiveTB.set_mode("Minimal")  # an error is a line, as `%xmode Minimal` makes it


@dataclass
class Trial:
    """The notebook's own training loop: its batches, and a figure of loss and throughput that is
    drawn meanwhile.

    Attributes:
        batches: epoch after epoch.
        unit, size: what the rate counts, and how many of it are in a sample.
        task: see `StudyPlan.TASK`.
        seconds: of training so far, without the time for drawing.
        table: a line for each call of `add`: samples seen so far, loss and rate.
    """

    batches: Iterator
    unit: str = "images"
    size: float = 1.0
    task: tuple[int, str] = (0, "")
    seconds: float = 0.0
    table: pandas.DataFrame = field(default_factory=lambda: pandas.DataFrame(columns=CURVE))
    _shown: DisplayHandle | None = None
    _drawn_at: float = -DRAWN_EVERY_SECONDS

    def add(self, loss: float, samples: int, seconds: float) -> None:
        """Add some steps: the loss of the last one, the samples and seconds of all. Redraw the
        figure if it is due."""
        self.seconds += seconds
        seen = self.table["samples"].max() if len(self.table) else 0
        self.table.loc[len(self.table)] = [seen + samples, loss, self.size * samples / seconds]
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
        rate = f"{wording.number(rate)} {self.unit} a second{in_task(rate, self.task)}"
        return f"{rate}, loss {loss:.4g} after {samples:,.0f} samples"

    __repr__ = __str__

    def _repr_png_(self) -> tuple[bytes, dict]:
        with figures.style():
            figure, axes = figures.canvas(2.8, panels=2)
            for part, name in zip(axes, CURVE[1:], strict=True):
                part.plot(
                    self.table["samples"],
                    self.table[name],
                    "o-",
                    color=figures.MACHINES[0],
                    markersize=3,
                )
                part.set(xlabel="samples seen", ylabel=name)
            axes[0].set_title(str(self))
            axes[1].set_ylabel(f"{self.unit} a second")
            axes[1].set_ylim(bottom=0)
        return figures.render(figure), {"alt": f"Loss and throughput while training: {self}."}


class PointFailed(RuntimeError):
    """No process of a point measured a window; each has a row with the reason."""


@dataclass
class Experiment(Process):
    """One point of a study, as the cells of its notebook use it. Rows of the kernel itself are
    discarded.

    Attributes:
        measurement: the processes that measure the point.
        attended: whether a user tries the step in this kernel, so that it computes.
        cells: the notebook's parameters as `begin` found them.
        outputs: the folder of the rows then; empty: the checkout's.
        data: from `prepare`.
        has_failed: whether the last `prepare` failed.
    """

    measurement: Measurement | None = None
    attended: bool = False
    cells: dict = field(default_factory=dict)
    outputs: str = ""
    data: Any = field(default=None, repr=False)
    has_failed: bool = False

    study_plan = property(
        lambda self: plan_of(self.measurement.study), doc="The class of the study's plan."
    )

    @property
    def try_seconds(self) -> float:
        """Return how many seconds the notebook's own loop trains."""
        return self.attended * self.parameters["try_seconds"]

    def __str__(self) -> str:
        """Return device, framework and point in one line."""
        word = libraries.WORDS[self.device.framework]
        return f"{self.device.name} ({self.device.kind}), {word}. Point: {self.measurement.folder.name}"

    def prepare(self, data: Any, network: type | None = None) -> Workload | None:
        """Return the workload of the parameters, to try its step here; None in an unattended run.

        Args:
            data: from the plan's `load`.
            network: a class of the notebook in place of the study's `Network` (torch, not
            tuned). It is measured and
                compared with itself in float64; its rows are temporary, and their verdict says so.

        Raises:
            ValueError: this is a run of `make study`, which measures the published network.
        """
        if network and context.current().supervisor:
            raise ValueError(
                f"network {network.__name__}; allowed in `make study`: none, since its rows are published"
            )
        self._require_cells()
        self.workload = self.make = None
        self.network, self.data, self.has_failed = network, data, True
        gc.collect()
        workload = None
        if self.attended:
            try:
                workload = self.study_plan.start(self, data)
            except Exception as error:
                self.workload = self.make = None
                if not network or isinstance(error, devices.DeviceUnavailable):
                    raise
                raise NetworkRefused(f"{network.__name__}: {_in_cell(error, network)}") from None
        self.has_failed = False
        if network is not self.measurement.network:
            context.change(outputs=str(runs.scratch()) if network else self.outputs)
            self.measurement.session, self.measurement.network = runs.new_id(), network
            vars(self.measurement).pop("folder", None)
        if network:
            print(f"{network.__name__} is yours: its rows are temporary, and no report shows them.")
        if workload:
            print(f"{workload.num_parameters():,} parameters; {workload.settings}")
        return workload

    def _require_cells(self) -> None:
        """Raise ValueError if the notebook's parameters are no longer those of `begin`."""
        names = _names()
        for name, begun in self.cells.items():
            if (now := names.get(name, begun)) != begun:
                raise ValueError(
                    f"{name} is {now!r} above, {begun!r} here: run the set-up cell again"
                )

    def _require_network(self) -> None:
        """Raise ValueError if the last `prepare` failed, or the notebook's parameters changed."""
        self._require_cells()
        if self.has_failed:
            raise ValueError("the network was not prepared: change its cell, and run it again")

    def _search(self, reference: functools.partial, changes: list[dict] | None) -> None:
        """Search nothing: a process of the measurement does."""

    def source(self, *names: str) -> "Source":
        """Return the code of the study's network, by the names of classes and functions, and of
        the training step.

        A name that is not defined in this framework's network is left out.
        """
        framework, given = self.device.framework, self.parameters
        library = libraries.FRAMEWORKS[framework].library
        network = Path(inspect.getfile(self.study_plan)).with_name(f"network_{library}.py")
        training = (Path(frameworks.__file__).parent / framework / "training.py").read_text(
            encoding="utf-8"
        )
        text = network.read_text(encoding="utf-8")
        if self.network:
            text, names = "".join(linecache.getlines(_file(self.network))), [self.network.__name__]
        parts = [code(text, name) for name in names]
        is_plain = self.study_plan.PLAIN_STEP and given["variant"] != "tuned"
        is_plain &= not PRECISIONS[given.get("precision", "fp32")].autocast
        steps = [*(["plain_step"] if is_plain else []), "train_step", "step"]
        parts.append(next(filter(None, (code(training, name) for name in steps))))
        return Source("\n\n".join(filter(None, parts)))

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """Yield a trial with batches to train on; afterwards the workload is restored."""
        self._require_network()
        if self.attended and self.workload is None:
            raise ValueError("no network is here: run the cell with `experiment.prepare` again")
        with protocol.restoring(self.workload) if self.attended else nullcontext(()) as batches:
            trial = Trial(batches, *unit(self.workload), self.study_plan.TASK)
            yield trial
        if trial.seconds:
            trial.show()

    def wait(self, output: Any) -> None:
        """Wait until the device has computed an output; read the clock only afterwards."""
        self.device.backend.synchronize(self.device, output)

    def measure(self) -> pandas.DataFrame:
        """Measure the point in fresh processes, one after the other, and return their rows.

        Each measures the windows of the budget; one after the first compares the first steps with
        float64. A search comes first, and compares. If this was cut short, the next call
        continues. An interrupt of the cell ends the process under way.

        Raises:
            PointFailed: no window was measured.
        """
        self._require_network()
        if self.is_temporary:
            keep = "they cannot be kept" if self.network else "`experiment.keep()` keeps them"
            print(f"The rows of this measurement are temporary: {keep}.")
        self.workload = self.make = None  # the processes need the memory
        gc.collect()
        # Nothing is left if the study's note of the point's end was lost, or if the cell runs again.
        if not context.current().supervisor and not self.measurement.left():
            self.measurement.session = runs.new_id()
        check = "comparison with float64"
        if self.parameters.get("variant") == "tuned":
            check = f"search and {check}"
        words = {process.CHECK: check}
        with tqdm(file=sys.stdout, bar_format=PROGRESS) as bar:

            def show(number: int, row: dict) -> None:
                if number and "place" in row:  # a process that others disturbed is measured again
                    words[number] = f"process {row['place']} of at most {self.measurement.count}"
                bar.set_postfix_str(row["phase"], False)
                bar.update(row["phase"] in WINDOWS)
                bar.set_description_str(row.get("line", words[number]))

            def on_wait() -> None:  # a search or a comparison takes minutes without a row
                if self.attended:
                    bar.refresh()

            try:
                self.measurement.measure(show, on_wait)
            except KeyboardInterrupt:
                text = "interrupted; the rows so far are there: run the cell again to continue"
                raise KeyboardInterrupt(text) from None
            if self.attended and "unavailable" in self.measurement.finished().values():
                print(
                    "This kernel holds the device, so that it measures here, once: a range. For an interval, restart"
                )
                print("the kernel, and run all cells with try_seconds 0 in the budget.")
                self.measurement.session, self.measurement.in_kernel = runs.new_id(), True
                self.measurement.measure(show)
        rows = self.measurement.rows()
        if not (rows["phase"].isin(WINDOWS) & rows["samples_per_second"].notna()).any():
            failed = records.without_refusals(rows[rows["phase"].ne("parity")])
            failed = failed[failed["status"].ne("ok")]
            reasons = [f"{row.status}: {row.message}" for row in failed.itertuples()]
            if not reasons:
                reasons = [f"training does not agree with float64: {self.agreement.reason}"]
            raise PointFailed(wording.joined(reasons))
        return rows

    def pictures(self, draw: Callable[[dict[str, numpy.ndarray]], Drawing]) -> Drawing | None:
        """Return the drawing of the pictures that the first process saved; None if it failed
        before."""
        packed = base64.b64decode(self.measurement.manifest().get("pictures", ""))
        return draw(dict(numpy.load(io.BytesIO(packed)))) if packed else None

    @property
    def agreement(self) -> Agreement:
        """Return the agreement with float64 in the precision of the windows, which is compared
        first."""
        rows = self.measurement.rows()
        compared = rows[rows["phase"] == "parity"]
        compared = compared[compared["run_id"] == compared["run_id"].max()]
        return verdict(compared[compared["precision"].isin(compared["precision"].head(1))])

    def end(self) -> Evidence:
        """Return the rows of this point's last session, and the published rows; print where the
        former are."""
        own = self.measurement
        if seconds := own.manifest().get("first_call_seconds"):
            print(f"A process needs {seconds:g} s from its start to the end of its first step.")
        print(f"Session {own.session}; rows: {own.folder.relative_to(layout.outputs())}")
        if self.is_temporary and not self.network:
            print("They are temporary. To keep them, run: experiment.keep()")
        return Evidence.of_machine(own.machine, f"{own.study}/{own.folder.name}", own.session)

    @property
    def is_temporary(self) -> bool:
        """Return whether the rows are in a folder that no report reads."""
        return bool(self.network or (is_attended() and context.current().outputs))

    def keep(self) -> None:
        """Copy the temporary rows of this kernel to the checkout's, where 90_aggregate and `make
        report` find them as this computer's.

        Raises:
            ValueError: they are of a network of the notebook.
            PackError: they are no rows that may be kept; the message names the file.
        """
        if self.network:
            name = self.network.__name__
            raise ValueError(f"the rows are of {name}; allowed: those of the study's own network")
        machine = self.measurement.machine
        if self.is_temporary:
            temporary = layout.runs(machine)
            with context.changed(outputs=""):
                CHECKS.add(temporary)
        with context.changed(outputs=""):
            print(f"Kept: {layout.runs(machine)}. Run 90_aggregate or `make report` to see them.")

    def explore(self, **choice: Iterable) -> Drawing | None:
        """Draw the rate at several values of one choice, such as batch_size=[16, 64] or
        precision=["fp32", "bf16"].

        Each value trains for about a second and writes no row. None in an unattended run.

        Raises:
            ValueError: a name or a value is not allowed; nothing was tried.
        """
        if not self.attended or not self.parameters["explore"]:
            print("Skipped: the run is unattended, or explore is False in the budget.")
            return None
        self._require_network()
        name, values = self._choice(choice)
        if self.make is None:  # `measure` has freed the workload
            data = self.study_plan.load(self) if self.data is None else self.data
            self.study_plan.start(self, data)
        for value in values:
            self._require_plan(name, value)
        with tqdm(values, name, file=sys.stdout) as bar:
            table = pandas.DataFrame([{name: value} | self._explored(name, value) for value in bar])
        with figures.style():
            figure, axes = figures.canvas(1.2 + 0.4 * len(table))
            bars = axes.barh(
                table[name].astype(str),
                table["rate"].fillna(0),
                color=figures.MACHINES[0],
            )
            axes.bar_label(bars, table["text"], padding=4)
            axes.invert_yaxis()
            rates = f"{unit(self.workload)[0]} a second, one window"
            axes.set(xlabel=rates, ylabel=name.replace("_", " "))
            axes.set_title(f"{self.device.name}: throughput by {name.replace('_', ' ')}")
        return Drawing(figure, table, "Bars of throughput")

    def _choice(self, choice: dict[str, Iterable]) -> tuple[str, list]:
        """Return the choice to explore and its values.

        Raises:
            ValueError: see `explore`.
        """
        if len(choice) != 1:
            given = ", ".join(choice) or "none"
            raise ValueError(f"explore got {given}; allowed: one, such as batch_size=[16, 64]")
        [(name, values)] = choice.items()
        study, known = self.measurement.study, declared(self.measurement.study)
        switches = {each.name for each in fields(Settings)}
        varied = known.keys() - budget(study).keys() - {*self.study_plan.FIXED}
        require_names("explore has no choice", choice, dict.fromkeys(sorted(varied | switches)))
        values = list(values) if isinstance(values, list | tuple | range) else [values]
        for value in values:
            if name in known:
                check(study, {name: value})
            elif name != "precision" and not isinstance(value, bool):
                raise ValueError(f"{name} {value!r}; allowed: True, False")
            elif name == "precision" and value not in trials.PRECISIONS:
                raise ValueError(f"precision {value!r}; allowed: {', '.join(trials.PRECISIONS)}")
        return name, values

    def _with(self, name: str, value: Any) -> functools.partial:
        """Return what makes the workload with another value of a choice."""
        if hasattr(self.settings, name):
            return functools.partial(self.make, settings=replace(self.settings, **{name: value}))
        return functools.partial(self.make, **{name: value}, settings=self.settings)

    def _require_plan(self, name: str, value: Any) -> None:
        """Raise ValueError if a value does not fit the point's other choices, or the data."""
        made = self._with(name, value)
        with suppress(NotImplementedError):  # the device's: its bar says so
            self.study_plan(*made.args, **made.keywords)

    def _explored(self, name: str, value: Any) -> dict:
        """Return the rate at a value and the text after its bar, which may be an error of the
        device or framework."""
        try:
            workload = self._with(name, value)()
            train = trainer(workload)
            train(1)  # builds kernels
            num_steps, before = steps_lasting(EXPLORED_SECONDS, train), contention.cpu_seconds()
            found = train(num_steps)
            others, _ = contention.shares(before, contention.cpu_seconds(), found["seconds"])
            rate = found["samples_per_second"] * unit(workload)[1]
            text = wording.number(rate) + in_task(rate, self.study_plan.TASK)
            if others > contention.OTHERS_SHARE:
                text += f"\nothers took {others:.0%} of the CPU"  # a long line leaves no axes
            return {"rate": rate, "text": text}
        except Exception as error:  # frameworks raise anything for what a device lacks
            text = textwrap.fill(textwrap.shorten(failures.refusal(error)["message"], 70), 40)
            return {"rate": None, "text": text}


def is_attended() -> bool:
    """Return whether a user runs the cells: in JupyterLab or VS Code, and not in a study's run."""
    return not context.current().supervisor and any(
        name.startswith(("JPY_SESSION_NAME", "VSCODE_")) for name in os.environ
    )


def begin(study: str, parameters: dict) -> Experiment:
    """Begin a point of a study. In JupyterLab and VS Code, its rows go to a temporary folder.

    Args:
        study: its name.
        parameters: from `profiles.collect`, including the keys of the budget.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has.
    """
    context.change(failed_downloads={})  # they are tried again
    attended = is_attended() and parameters.get("try_seconds", 0) > 0
    if is_attended() and not (context.current().outputs or "BENCHBOOK_OUTPUTS" in os.environ):
        own = str(layout.sessions())  # rows that are kept later are the reader's
        context.change(outputs=tempfile.mkdtemp(prefix="benchbook-"), sessions=own)
    this, session = machine.identify(), context.current().session or runs.new_id()
    if attended:
        here = process.begin(study, parameters, drafts=True)
    else:
        kind = parameters["device"]
        framework = devices.choose_framework(parameters.get("framework", "torch"))
        if kind in KINDS:  # a process asks the framework
            picked = Device(
                kind, this.chip if kind == "cpu" else next(iter(this.accelerators), kind), framework
            )
        else:
            picked = survey.device(kind, framework)
        given = process.with_device(parameters, picked)
        own = runs.identity(study, point_name(study, given), session, this.name, given)
        here = Process(given, picked, Run(runs.scratch(), session, own))
    measurement = Measurement(study, this.name, here.parameters, session)
    shown = {name: value for name, value in _names().items() if name in {*declared(study), BUDGET}}
    more = {"cells": copy.deepcopy(shown), "outputs": context.current().outputs}
    return Experiment(**vars(here), measurement=measurement, attended=attended, **more)


def unit(workload: Workload | None) -> tuple[str, float]:
    """Return what a rate of a workload counts, and how many of it are in a sample."""
    columns = getattr(workload, "columns", {})
    if length := columns.get("sequence_length"):
        return "tokens", float(length)
    return ("images" if columns.get("image_size") else "samples"), 1.0


def in_task(rate: float, task: tuple[int, str]) -> str:
    """Return the time of a study's task at a rate, in brackets; nothing without a task."""
    samples, words = task
    return f" ({wording.duration(samples / rate)} {words})" if samples else ""


@dataclass(frozen=True)
class Source:
    """Code as a notebook shows it. JupyterLab would break long lines of Markdown inside words."""

    text: str

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"

    def _repr_html_(self) -> str:
        from pygments import formatters, highlight, lexers

        style = "white-space: pre; word-break: normal; overflow-x: auto; font-size: 12px"
        form = formatters.HtmlFormatter(noclasses=True, prestyles=style)
        return highlight(self.text, lexers.PythonLexer(), form)


class NetworkRefused(ValueError):
    """A network of the notebook cannot be trained in this study."""


def _names() -> dict:
    """Return the names of the notebook that runs here; none outside of one."""
    return getattr(get_ipython(), "user_ns", {})


def _file(network: type) -> str:
    """Return the file, or the cell, that defines a class."""
    written = [each for each in vars(network).values() if inspect.isfunction(each)]
    return written[0].__code__.co_filename if written else ""


def _in_cell(error: Exception, network: type) -> str:
    """Return an error in a line, with its place in the cell of the network."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    places = [
        part.lineno
        for part in traceback.extract_tb(error.__traceback__)
        if part.filename == _file(network)
    ]
    return f"{text} (line {places[-1]} of its cell)" if places else text


def code(text: str, name: str) -> str:
    """Return the source of a class or function in a file's text, without its indentation; empty
    if there is none."""
    kinds = ast.FunctionDef | ast.ClassDef
    found = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds) and node.name == name
    ]
    return textwrap.dedent(ast.get_source_segment(text, found[0], padded=True)) if found else ""
