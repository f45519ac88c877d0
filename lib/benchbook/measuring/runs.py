"""Begin a run of a point, continue a run of another process, and end runs whose process is gone."""

import atexit
import uuid
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchbook.frameworks.devices import Device
from benchbook.machine import condition, contention, context, layout, temporary
from benchbook.machine import identity as machine
from benchbook.measuring.writer import Run
from benchbook.rows import marker, points, records, schema


def start(
    study: str,
    point: str,
    parameters: dict,
    device: Device,
    run_id: str = "",
    number: int = 1,
    folder: Path | None = None,
) -> Run:
    """Begin a run of a study: the rows of one process.

    Session and machine are the context's; without a session the run is one of its own.

    Args:
        study, point: their names.
        parameters: of the point, with the device and framework that were picked.
        device: the device that is measured.
        run_id: of the run; empty: a new one.
        number: of the process, see `studies.process`.
        folder: for the rows; None: the point's.
    """
    this = machine.identify()
    folder, run_id = folder or layout.point(this.name, study, point), run_id or new_id()
    recover(folder)
    stated = points.public(
        parameters
    )  # without the data's folder, which is private and changes no result
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
        "process": number,
        "parameters": stated,
        "machine": asdict(this),
        "environment": machine.environment(),
        "library": device.backend.facts(),
        "commit": common["commit"],
        "condition_before": condition.read()
        | ({} if device.is_cpu else {"device_busy": contention.device_busy(device.kind)}),
    }
    run.mark()
    return run


def identity(
    study: str, point: str, run_id: str, machine_name: str, parameters: dict, session: str = ""
) -> dict:
    """Return the columns that identify a row's run; its session is the context's by default,
    else the run itself.

    Raises:
        SchemaError: a value is not allowed in a row; the run could not even write its failure.
    """
    columns = {
        "schema_version": records.SCHEMA_VERSION,
        "session": session or context.current().session or run_id,
        "run_id": run_id,
        "study": study,
        "variant": parameters.get("variant"),
        "point": point,
        "machine": machine_name,
        "source": "measured",
        "device": parameters["device"],
    }
    row = (
        dict.fromkeys(records.COLUMNS)
        | columns
        | {"phase": "setup", "repeat": 0, "index": 0, "status": "ok"}
    )
    records.check_row(row, study)
    return columns


def recover(folder: Path, ending: tuple[str, str] | None = None) -> list[str]:
    """End every run of a point whose process is gone: cut a torn line and write its failure row.

    If its marker is damaged, there is no failure row, and a file without a row is removed.

    Args:
        folder: of the point's rows.
        ending: status and message of the row, if they are known.

    Returns:
        The ids of the runs that were ended.
    """
    ended = []
    for path in sorted(folder.glob("*.running")):
        run = resume(folder, path.stem)
        if (
            run is not None and not marker.is_alive(path) and path.exists()
        ):  # the run may have ended in the meantime
            run.fail(*(ending or ("interrupted", "the process that measured was gone")))
            ended.append(run.run_id)
    for path in folder.glob("*.csv"):  # a marker that was damaged told nothing of its run
        has_ended = any(path.with_suffix(ending).exists() for ending in (".running", ".json"))
        if schema.RUN_ID.fullmatch(path.stem) and path.is_file() and not has_ended:
            records.cut_torn_line(path)
            if path.read_bytes().count(b"\n") < 2:  # a header at most
                path.unlink()
    return ended


def resume(folder: Path, run_id: str) -> Run | None:
    """Return a run of another process, as its marker describes it; None if the run has ended."""
    state = marker.read(folder / f"{run_id}.running")
    if state is None:
        return None
    return Run(
        folder, run_id, state["common"], state["phase"], state["manifest"], ended_by_another=True
    )


def scratch() -> Path:
    """Return a folder for rows that are discarded when this process ends."""
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(temporary.folder())


def new_id() -> str:
    """Return a new run's id: UTC time and eight random hexadecimal digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
