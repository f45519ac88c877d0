"""Measure a point in fresh processes, one after the other; see `process` for what each of them
does."""

import functools
import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas

from benchbook.judging import intervals, statistics, verdicts
from benchbook.machine import (
    condition,
    contention,
    context,
    identity,
    kinds,
    launch,
    layout,
    sessions,
)
from benchbook.measuring import failures, runs
from benchbook.measuring.writer import Run
from benchbook.rows import manifests, points, records
from benchbook.studies.experiments import process
from benchbook.studies.experiments.parameters import point_name
from benchbook.studies.experiments.process import CHECK

# JAX's folder of compiled programs. Source:
# https://docs.jax.dev/en/latest/persistent_compilation_cache.html
PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
ENDING = (
    "unsupported",
    "unavailable",
    "out_of_memory",
)  # the next process would end in the same way
WAITING = "waiting"  # in the place of a row's phase, before a process
MOST_FAILURES = 2  # in a row, of other kinds


class State(NamedTuple):
    """How far the measurement of a point is.

    Attributes:
        left: the numbers of the processes that may still run; none if the point is over.
        ended: number and status of each run that has ended, the oldest first; not the interrupted.
        num_counted: the processes that have measured and count.
        lost: seconds of waits and of disturbed processes.
        patience: seconds for which to wait for a calm machine now.
    """

    left: list[int]
    ended: dict[str, tuple[int, str]]
    num_counted: int
    lost: float
    patience: float


@dataclass
class Measurement:
    """The processes of one point in one session.

    Attributes:
        study, machine: their names.
        parameters: of the notebook, with the device and framework that were picked.
        session: its name; a measurement that was cut short continues under the same name.
        in_kernel: measure in this process, which holds the device.
        patience: seconds that the point may lose to others; None: `contention.patience`.
        network: see `Process`.
    """

    study: str
    machine: str
    parameters: dict
    session: str
    in_kernel: bool = False
    patience: float | None = None
    network: type | None = None

    @functools.cached_property
    def folder(self) -> Path:
        """Return the folder of the point's rows, which stays though the notebook may be edited
        meanwhile."""
        return layout.point(self.machine, self.study, point_name(self.study, self.parameters))

    @property
    def programs(self) -> Path:
        """Return the folder of what the first measuring process compiled; it is in the point's
        state."""
        return layout.state(self.machine) / self.study / self.folder.name / "programs"

    @property
    def count(self) -> int:
        """Return the most processes that measure windows."""
        return 1 if self.in_kernel else self.parameters.get("num_processes", 1)

    def rows(self) -> pandas.DataFrame:
        """Return this session's rows of the point."""
        rows = records.gather(self.folder, lambda line: None)
        return rows[rows["session"] == self.session].reset_index(drop=True)

    def manifest(self) -> dict:
        """Return the manifest of the first process that measures windows; empty without it."""
        described = manifests.read_all(self.folder)
        own = (described.get(run, {}) for run in self.rows()["run_id"].unique())
        return next((manifest for manifest in own if manifest.get("process") == 1), {})

    def finished(self) -> dict[int, str]:
        """Return the status of each process that has ended, by its number, the oldest first; not
        the interrupted.

        The status of CHECK is `diverged` if training does not agree with float64.
        """
        return dict(self.state().ended.values())

    def left(self) -> list[int]:
        """Return the numbers of the processes that may still run; none if the point is over."""
        return self.state().left

    def state(self) -> "State":
        """Return what the point's rows and manifests tell, so that a killed measurement
        continues alike.

        The point is over when the processes' part of half its interval is narrow enough, or
        after the most processes. A process that something outside disturbed does not count,
        until the point has lost its patience.
        """
        rows, described, given = self.rows(), manifests.read_all(self.folder), self.parameters
        ended, conditions = {}, condition.samples(described)
        for run_id, own in rows.groupby("run_id", sort=True):
            manifest, statuses = described.get(run_id, {}), records.without_refusals(own)["status"]
            agrees = {True: "ok", False: "diverged"}.get(manifest.get("agrees"))
            status = agrees or next(
                iter(statuses[statuses != "ok"].iloc[::-1]), "ok"
            )  # the last that is not ok
            if status != "interrupted":
                ended[run_id] = manifest.get("process", 1), status
        done, judged = dict(ended.values()), verdicts.runs(rows, conditions)
        disturbed = set(judged.loc[judged["is_disturbed"], "run_id"])
        lost = sum(max(0.0, described[run].get("process_seconds") or 0.0) for run in disturbed)
        lost += sum(described.get(run, {}).get("waited_seconds") or 0.0 for run in ended)
        allowed = contention.patience() if self.patience is None else self.patience
        patience = 0.0 if self.in_kernel else max(0.0, allowed - lost)
        runs = [run for run, (number, _) in ended.items() if number != CHECK]
        counted = [run for run in runs if run not in disturbed] if patience else runs
        counting = rows if patience else verdicts.counting(rows, judged)
        trained = [run for run in counted if ended[run][1] in records.TRAINED]
        windows = statistics.timed_windows(counting[counting["run_id"].isin(trained)])
        part = intervals.processes_part(windows["samples_per_second"], windows["run_id"])
        is_known = windows["run_id"].nunique() >= given.get("fewest_processes", self.count)
        is_known &= part <= given.get("processes_part", 0)
        # Without steps to compare and without a search, there is no CHECK.
        checks = given.get("num_parity_steps") or given.get("variant") == "tuned"
        last = max(done, default=0)
        further = range(last + 1, last + 1 + self.count - len(counted))
        left = [] if is_known else list(further)
        if checks and CHECK not in done:
            is_after_one = (
                not done and given.get("variant") != "tuned"
            )  # the first number waits for none
            left.insert(1 if is_after_one else 0, CHECK)
        if is_over(done):
            left = []
        patience = patience if disturbed.intersection(runs[-1:]) else 0.0
        return State(left, ended, len(counted), lost, patience)

    def measure(
        self,
        on_row: Callable[[int, dict], None] = lambda number, row: None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the processes that are left. One that fails adds a row; the next one may run all
        the same.

        After a process that others disturbed, this waits for a calm machine.

        Args:
            on_row: called with a process's number and with phase, status and rate of each row
            that it writes; at its start with its place among those that count.
            on_wait: called twice a second.
        """
        sessions.remember(self.session)
        runs.recover(self.folder)
        first_id, run_id = (
            context.current().run_id,
            "",
        )  # the executed notebook has the name of this run
        while (state := self.state()).left and (
            not run_id or run_id in state.ended
        ):  # else it was interrupted
            number = state.left[0]
            on_row(number, {"phase": "start", "place": state.num_counted + 1})
            run_id = first_id if first_id and number != CHECK else runs.new_id()
            first_id = None if run_id == first_id else first_id
            with context.changed(session=self.session, machine=self.machine):
                self._run(number, run_id, state.patience, on_row, on_wait)
        if not state.left:
            shutil.rmtree(self.programs, ignore_errors=True)

    def _run(
        self, number: int, run_id: str, patience: float, on_row: Callable, on_wait: Callable
    ) -> None:
        """Run one process, after a wait for a calm machine; write its failure if it could not."""
        waited = contention.wait_until_calm(
            patience,
            self.parameters["device"],
            lambda line: on_row(number, {"phase": WAITING, "line": line}),
        )
        given, folder = self.parameters, self.folder
        count = (
            given.get("device_count", 1)
            if given.get("framework", "torch") == "torch" and number != CHECK
            else 1
        )
        if self.in_kernel and count == 1:
            tell = functools.partial(on_row, number)
            with suppress(Exception):  # its row is written
                process.run(self.study, given, run_id, number, network=self.network, tell=tell)
            return
        variables = kinds.environment(given["device"], os.environ)
        if given["device"] == "cpu" and count > 1:
            variables["OMP_NUM_THREADS"] = str(max(1, identity.usable_cores() // count))
        if number == 1:  # what an earlier session compiled
            shutil.rmtree(self.programs, ignore_errors=True)
        if (
            number != CHECK
            and kinds.KINDS[given["device"]].shares_programs
            and PROGRAMS not in os.environ
        ):
            variables[PROGRAMS] = str(self.programs)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{run_id}.log"
        _, failed = launch.call(
            f"{process.__name__}:{process.run.__name__}",
            *(self.study, given, run_id, number, waited, self.network),
            log=log,
            seconds=context.current().process_seconds or math.inf,
            variables=variables,
            num_ranks=count,
            on_message=functools.partial(on_row, number),
            on_wait=on_wait,
        )
        if failed:
            self.fail(number, run_id, *failures.of_process(failed))
        if log.exists() and not log.stat().st_size:
            log.unlink()

    def fail(self, number: int, run_id: str, status: str, message: str) -> None:
        """Write the failure row of a process, unless it wrote its own."""
        sessions.remember(self.session)
        run = runs.resume(self.folder, run_id)
        if run is None:  # it wrote its own, or failed before its first row
            runs.recover(self.folder)
            if (self.folder / f"{run_id}.csv").exists():
                return
            own = (
                self.study,
                self.folder.name,
                run_id,
                self.machine,
                self.parameters,
                self.session,
            )
            manifest = {
                "run_id": run_id,
                "process": number,
                "parameters": points.public(self.parameters),
            }
            run = Run(
                self.folder, run_id, runs.identity(*own), manifest=manifest, ended_by_another=True
            )
        run.fail(status, message)


def is_over(done: dict[int, str]) -> bool:
    """Return whether a point ends with these processes: the next one would fail as well, or has
    nothing to measure."""
    statuses = list(done.values())
    failed = [status not in records.TRAINED for status in statuses]
    if done.get(CHECK, "ok") != "ok" or not set(statuses).isdisjoint(ENDING):
        return True
    return any(
        all(failed[place : place + MOST_FAILURES])
        for place in range(len(failed) - MOST_FAILURES + 1)
    )
