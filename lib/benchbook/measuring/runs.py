"""Begin a run of a point, take over one of another process, and end those whose process is gone."""

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path

from benchbook.frameworks.devices import Device
from benchbook.machine import condition, layout
from benchbook.machine import identity as machine
from benchbook.measuring.writer import Run
from benchbook.rows import marker, points, records


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


def new_id() -> str:
    """Return a new run's name: UTC time, then eight random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
