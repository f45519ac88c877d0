"""One execution of a point: its identity, its files, and how it ends.

While a run is under way a marker file, `<run_id>.running`, holds what a failure row needs: identity,
phase and the process. Whoever finds a marker whose process is gone writes the `interrupted` row.
"""

import json
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchbook.frameworks.devices import SHORT_OF_MEMORY, Device
from benchbook.machine import condition, layout
from benchbook.machine import identity as machine
from benchbook.rows import marker, points, records

RESERVED_BYTES = 2**18  # a failure row and a manifest take less


@dataclass
class Run:
    """The rows of one execution of a point.

    Attributes:
        folder: the point's folder.
        run_id: name of this execution; unique in the project.
        common: columns that are the same in every row.
        phase: where the run is now.
        manifest: what does not change within a run, and the machine's condition.
        ended_by_another: whether this stands for a run of another process.
    """

    folder: Path
    run_id: str
    common: dict
    phase: str = "setup"
    manifest: dict = field(default_factory=dict)
    ended_by_another: bool = False
    _indices: Counter | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> Path:
        """Return the CSV that holds the rows."""
        return self.folder / f"{self.run_id}.csv"

    @property
    def marker(self) -> Path:
        """Return the file that exists while the run is under way."""
        return self.folder / f"{self.run_id}.running"

    def describe(self, **columns) -> None:
        """Add columns that every later row shares, such as a workload's description."""
        self.common |= columns
        self.mark()

    def tell(self, **settings) -> None:
        """Add what was chosen during the run to the settings of later rows."""
        self.describe(settings=self.settings_with(**settings))

    def settings_with(self, **more) -> dict:
        """Return the settings of the rows with more, for a row of its own."""
        return self.common.get("settings", {}) | more

    @property
    def reserve(self) -> Path:
        """Return the file that keeps room on the disk for the failure row."""
        return self.folder / f"{self.run_id}.reserve"

    def mark(self) -> None:
        """Write the marker, so that a failure row can be written even by others, and keep room for that row."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.reserve.exists():
            self.reserve.write_bytes(bytes(RESERVED_BYTES))
        state = {"phase": self.phase, "common": self.common, "manifest": self.manifest}
        marker.write(self.marker, state)

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Name the phase of a `with` block; an exception in it becomes a failure row and is raised again."""
        self.phase = phase
        self._sample()
        self.mark()
        try:
            yield
        except BaseException as error:
            name = type(error).__name__
            self.fail(status_of(name, str(error)), f"{name}: {error}")
            raise

    def append(self, *, repeat: int = 0, status: str = "ok", **measures) -> dict:
        """Append one row of the current phase, with the next free index, and return it."""
        row = self.common | {"phase": self.phase, "repeat": repeat, "status": status} | measures
        row["index"] = self._next_index(repeat)
        records.append(self.path, row)
        self._indices[self.phase, repeat] = row["index"] + 1
        if "seconds" in measures:
            self._sample(repeat=repeat, index=row["index"])
        return row

    def fail(self, status: str, message: str) -> None:
        """Append a failure row for the current phase, without measures, and end the run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.reserve.unlink(missing_ok=True)
        records.cut_torn_line(self.path)
        self.append(status=status, message=anonymous(last_line(message))[:2000], started_at=now())
        self.end()

    def end(self) -> None:
        """Complete the manifest and remove the marker: nothing more is to come."""
        if self.manifest:
            self.manifest["condition_after"] = condition.read()
            if not self.ended_by_another:
                self.manifest["process_seconds"] = round(time.time() - psutil.Process().create_time(), 1)
            marker.replace(self.folder / f"{self.run_id}.json", json.dumps(self.manifest, indent=1, sort_keys=True))
        self.marker.unlink(missing_ok=True)
        self.reserve.unlink(missing_ok=True)

    def forget_indices(self) -> None:
        """Count rows anew from the file: another process has appended to it."""
        self._indices = None

    def _sample(self, **window: int) -> None:
        """Keep the machine's condition at one end of a training window; no clock runs here."""
        if self.manifest and self.phase == "train":
            self.manifest.setdefault("conditions", []).append(window | condition.sample())

    def _next_index(self, repeat: int) -> int:
        """Return the next free index; the file is read once, for it may hold rows of the process that died."""
        if self._indices is None:
            there = records.read(self.path) if self.path.exists() and self.path.stat().st_size else None
            self._indices = Counter() if there is None else Counter(zip(there["phase"], there["repeat"], strict=True))
        return self._indices[self.phase, repeat]


def start(study: str, parameters: dict, device: Device) -> Run:
    """Begin a run of a study; every notebook calls this once, in its Setup.

    Session, run and machine come from BENCHBOOK_SESSION, BENCHBOOK_RUN_ID and BENCHBOOK_MACHINE, which
    `make study` sets; without them the run is a session of its own.

    Args:
        study: the study's name.
        parameters: what the notebook declares, from `profiles.collect`.
        device: where it runs.
    """
    this = machine.identify()
    parameters = parameters | {"device": device.kind}
    if "framework" in parameters:
        parameters["framework"] = device.framework
    point = points.point_name(study, parameters)
    folder = layout.point(this.name, study, point)
    recover(folder)
    run_id = os.environ.get("BENCHBOOK_RUN_ID") or new_id()
    stated = points.public(parameters)  # the data's folder is private and changes no result
    common = identity(study, point, run_id, this.name, parameters) | {
        "chip": this.chip,
        "device_name": device.name,
        "device_count": 1,
        "commit": machine.commit(),
        "settings": {name: value for name, value in stated.items() if name not in records.COLUMNS},
        **device.backend.software(device),
    }
    run = Run(folder, run_id, common)
    run.manifest = {
        "run_id": run_id,
        "parameters": stated,
        "machine": machine.as_dictionary(this),
        "environment": machine.environment(),
        "commit": common["commit"],
        "condition_before": condition.read(),
    }
    run.mark()
    return run


def identity(study: str, point: str, run_id: str, machine_name: str, parameters: dict) -> dict:
    """Return the columns that say which run a row belongs to.

    Raises:
        SchemaError: no row may carry them; a run that began with them could never write even its failure.
    """
    columns = {
        "schema_version": records.SCHEMA_VERSION,
        "session": os.environ.get("BENCHBOOK_SESSION") or run_id,
        "run_id": run_id,
        "study": study,
        "variant": parameters.get("variant"),
        "point": point,
        "machine": machine_name,
        "source": "measured",
        "device": parameters["device"],
    }
    row = dict.fromkeys(records.COLUMNS) | columns | {"phase": "setup", "repeat": 0, "index": 0, "status": "ok"}
    records.check_row(row, study)
    return columns


def recover(folder: Path) -> list[str]:
    """End every run of a point whose process is gone: cut a torn line, write its `interrupted` row.

    Returns:
        The ids of the runs that were ended.
    """
    ended = []
    for path in sorted(folder.glob("*.running")):
        run = resume(folder, path.stem)
        if run is not None and not marker.is_alive(path) and path.exists():  # it may have ended well meanwhile
            run.fail(*marker.ending(path))
            ended.append(run.run_id)
    for reserve in folder.glob("*.reserve"):  # a kill between two files, or a full disk, leaves one without its marker
        if not reserve.with_suffix(".running").exists():
            reserve.unlink(missing_ok=True)
    return ended


def resume(folder: Path, run_id: str) -> Run | None:
    """Return a run of another process that has not ended, as its marker describes it; None if it has ended."""
    state = marker.read(folder / f"{run_id}.running")
    if state is None:
        return None
    return Run(folder, run_id, state["common"], state["phase"], state["manifest"], ended_by_another=True)


def status_of(error_name: str, message: str) -> str:
    """Return the status that an exception stands for."""
    if error_name in ("OutOfMemoryError", "MemoryError", "ResourceExhaustedError") or SHORT_OF_MEMORY.search(message):
        return "out_of_memory"
    named = {
        "DeviceUnavailable": "unavailable",
        "FrameworkMissing": "unavailable",
        "DatasetUnavailable": "unavailable",
        "NotImplementedError": "unsupported",
        "KeyboardInterrupt": "interrupted",
    }
    return named.get(error_name, "crashed")


def refusal(error: Exception, most_characters: int = 300) -> dict:
    """Return status and message of a row about a refused trial, which is a result and not a failure of the run."""
    name = type(error).__name__
    status = "out_of_memory" if status_of(name, str(error)) == "out_of_memory" else "unsupported"
    return {"status": status, "message": anonymous(f"{name}: {error}")[:most_characters]}


def anonymous(message: str) -> str:
    """Return a message without colours, with project and home folders shortened: rows are published.

    Of `path/to/file.py:callable`, code of the user's own, the file's name stays, as in a point's parameters.
    """
    message = re.sub(r"\x1b\[[0-9;]*m", "", message)
    message = re.sub(r"[^\s'\"(]*[/\\]([^/\\\s'\"]+\.py:[A-Za-z_])", r"\1", message)
    return message.replace(str(layout.root()), ".").replace(str(Path.home()), "~")


def last_line(message: str) -> str:
    """Return a message without the traceback that it quotes, as a worker's or TensorFlow's: its last line says it.

    The run's log keeps the rest.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip() and "[[{{node" not in line]
    quotes = any(words in message for words in ("(most recent call last)", "in user code:"))
    return lines[-1] if quotes else message


def new_id() -> str:
    """Return a new run's name: UTC time, then eight random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


def now() -> str:
    """Return the time as rows write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
