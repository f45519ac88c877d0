"""One process of a group, as torchrun starts it: `python -m benchbook.measuring.parallel.rank FOLDER`."""

import importlib
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchbook.frameworks.devices import Device, Group
from benchbook.machine import processes
from benchbook.measuring import protocol
from benchbook.measuring.protocol import Plan
from benchbook.measuring.runs import Run
from benchbook.rows import marker

WATCH_SECONDS = 1.0


class RankRun(Run):
    """The run as a process of a group knows it: the kernel keeps marker, failure and manifest.

    Attributes:
        state: where the first process says how far it is.
    """

    state: Path | None = None

    def mark(self) -> None:
        """Tell the kernel the phase, the columns and the conditions so far."""
        if self.state is not None:
            state = {"phase": self.phase, "common": self.common, "conditions": self.manifest.get("conditions", [])}
            marker.replace(self.state, json.dumps(state))

    def fail(self, status: str, message: str) -> None:
        """Leave the failure's row to the kernel, which hears of it by this process's end."""


def main() -> None:
    """Build the workload, warm up and measure as the folder's job says; tell the folder of an error."""
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    task = json.loads((folder / "job.json").read_text())
    _end_with(int(os.environ["BENCHBOOK_KERNEL"]))
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _work(task, folder, rank, Path(scratch))
    except BaseException as error:
        failure = {"rank": rank, "name": type(error).__name__, "message": str(error)}
        marker.replace(folder / f"error-{rank}.json", json.dumps(failure))
        raise


def _work(task: dict, folder: Path, rank: int, scratch: Path) -> None:
    from benchbook.frameworks.torch import replicas

    job = task["job"]
    group = replicas.join(Device(**job["device"]), job["timeout_seconds"])
    device = _device(job, group)
    # Whoever is not the first measures as well, so that all do the same; its rows are thrown away.
    record = RankRun(Path(task["folder"]) if rank == 0 else scratch, task["run_id"], task["common"])
    record.state = folder / "state.json" if rank == 0 else None
    record.manifest = {"conditions": []} if rank == 0 else {}
    record.describe(**device.backend.software())
    module, name = job["build"].split(":")
    with record.during("setup"):
        workload = getattr(importlib.import_module(module), name)(device=device, group=group, **job["options"])
    protocol.warm_up(workload, record, job["num_warmup_steps"])
    protocol.measure_windows(workload, record, Plan(**job["plan"]))
    record.mark()
    replicas.leave()


def _device(job: dict, group: Group) -> Device:
    """Return this process's device; the first one's energy counter covers all of them."""
    device = Device(**job["device"])
    covered = job["device_count"] if group.rank == 0 else 0
    index = device.index if device.is_cpu else int(os.environ["LOCAL_RANK"])
    return replace(device, index=index, count=covered)


def _end_with(process: int) -> None:
    """End this process when another one is gone: whoever started the group may be killed."""
    processes.when_gone(process, lambda: os._exit(1), WATCH_SECONDS)


if __name__ == "__main__":
    main()
