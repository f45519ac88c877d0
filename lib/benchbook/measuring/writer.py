"""Write the rows of one execution of a point, and its manifest when it ends.

During a run, a marker file `<run_id>.running` holds what a failure row needs: identity, phase
and process.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchbook.machine import condition, context, launch, processes, temporary
from benchbook.measuring import failures
from benchbook.rows import marker, records

if TYPE_CHECKING:
    import pandas


@dataclass
class Run:
    """The rows of one execution of a point.

    Attributes:
        folder: the point's folder.
        run_id: name of this execution; unique in the project.
        common: columns that are the same in every row.
        phase: the current phase.
        manifest: what does not change within a run, and the machine's condition.
        ended_by_another: whether the run belongs to another process, which is gone.
        tell: called with phase, status and rate of each row.
    """

    folder: Path
    run_id: str
    common: dict
    phase: str = "setup"
    manifest: dict = field(default_factory=dict)
    ended_by_another: bool = False
    tell: Callable[[dict], object] = launch.send

    @property
    def path(self) -> Path:
        """Return the CSV that holds the rows."""
        return self.folder / f"{self.run_id}.csv"

    @property
    def marker(self) -> Path:
        """Return the file that exists while the run is under way."""
        return self.folder / f"{self.run_id}.running"

    def rows(self) -> pandas.DataFrame:
        """Return the rows so far."""
        has_begun = self.path.exists() and self.path.stat().st_size
        return records.read(self.path) if has_begun else records.merge([])

    def describe(self, **columns) -> None:
        """Add columns that every later row shares, such as a workload's description."""
        self.common |= columns
        self.mark()

    def add_settings(self, **settings) -> None:
        """Add settings to every later row, such as a choice made during the run."""
        self.describe(settings=self.settings_with(**settings))

    def settings_with(self, **more) -> dict:
        """Return the settings of the rows with more, for a single row."""
        return self.common.get("settings", {}) | more

    def mark(self) -> None:
        """Write the marker, so that another process can write the failure row."""
        process = psutil.Process()
        state = {"process": process.pid, "birth": processes.birth(process)}
        state |= {"supervisor": context.current().supervisor, "job": os.environ.get(marker.JOB, "")}
        state |= {name: getattr(self, name) for name in ("phase", "common", "manifest")}
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary.write(self.marker, json.dumps(state))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Name the phase of a `with` block; an exception in it becomes a failure row and is
        raised again."""
        self.phase = phase
        self._sample()
        self.mark()
        try:
            yield
        except BaseException as error:
            name = type(error).__name__
            text = f"{name}: {error}"
            if isinstance(error, KeyboardInterrupt):
                text = "stopped by an interrupt"
            self.fail(failures.status_of(name, str(error)), text)
            raise

    def append(
        self,
        *,
        repeat: int = 0,
        status: str = "ok",
        awake_seconds: float | None = None,
        energy_parts: dict | None = None,
        **measures,
    ) -> dict:
        """Append one row of the current phase, with the next free index, and return it.

        Args:
            repeat, status, measures: columns of the row.
            awake_seconds: the window's length by the clock of the manifest's samples, with which
            rows are compared.
            energy_parts: for the manifest, see `sensors.Energy`.
        """
        row = self.common | {"phase": self.phase, "repeat": repeat, "status": status} | measures
        row["index"] = self._indices[self.phase, repeat]
        # Before the row is written: an interrupt in between would give its index to another one.
        self._indices[self.phase, repeat] = row["index"] + 1
        records.append(self.path, row)
        self.tell({name: row.get(name) for name in ("phase", "status", "samples_per_second")})
        if "seconds" in measures:
            window = {"index": row["index"], "window_awake_seconds": awake_seconds}
            self._sample(repeat=repeat, energy_parts=energy_parts, **window)
        return row

    def fail(self, status: str, message: str) -> None:
        """Append a failure row for the current phase, without measures, and end the run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        records.cut_torn_line(self.path)
        self.append(
            status=status,
            message=failures.anonymous(failures.last_line(message))[:2000],
            started_at=now(),
        )
        self.end()

    def end(self) -> None:
        """Complete the manifest and remove the marker: the run is over."""
        if self.manifest:
            self.manifest["condition_after"] = condition.read()
            if not self.ended_by_another:
                self.manifest["process_seconds"] = round(processes.age(), 1)
            text = json.dumps(self.manifest, indent=1, sort_keys=True)
            temporary.write(self.folder / f"{self.run_id}.json", text)
        self.marker.unlink(missing_ok=True)

    def _sample(self, **window: Any) -> None:
        """Add the machine's condition at one end of a training window to the manifest, off the
        clock."""
        if self.manifest and self.phase == "train":
            self.manifest.setdefault("conditions", []).append(window | condition.sample())

    @functools.cached_property
    def _indices(self) -> Counter:
        """Return the next free index by phase and repeat; the file may hold rows of a process
        that died."""
        if not (self.path.exists() and self.path.stat().st_size):
            return Counter()
        there = self.rows()
        return Counter(zip(there["phase"], there["repeat"], strict=True))


def now() -> str:
    """Return the time as rows write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
