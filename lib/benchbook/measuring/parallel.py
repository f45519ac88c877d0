"""Measure a workload on several devices: torchrun starts one process per device, and rank 0 writes the rows.

Each process has a replica of the network and a part of every batch; gradients are averaged. torchrun starts it as
`python -m benchbook.measuring.parallel FOLDER`. If a process dies, or exceeds the time that the others wait, all
processes are killed and the run fails.
"""

import importlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.machine import identity, processes
from benchbook.measuring import failures, protocol
from benchbook.measuring.protocol import Plan
from benchbook.measuring.writer import Run
from benchbook.rows import marker, records

TIMEOUT_SECONDS = 300.0  # a process waits this long for others, which may compile or read a large data set
WATCH_SECONDS = 1.0
LOOPBACK = {"Linux": "lo", "Darwin": "lo0"}


class RankFailed(RuntimeError):
    """A process of the group failed or was killed."""


@dataclass(frozen=True)
class Job:
    """The work of every process of a group.

    Attributes:
        build: a function, as "module:name", that makes a workload from a device, a group and the options.
        options: its other arguments, as JSON can hold them.
        device: the first device; each process has one of this kind.
        device_count: the number of processes.
        plan: how much to measure.
        num_warmup_steps: see `protocol.warm_up`.
        timeout_seconds: how long a process waits for the others before it fails.

    Raises:
        ValueError: the plan's length depends on a clock, which differs between processes.
        NotImplementedError: torchrun does not support this framework or kind of device.
        DeviceUnavailable: this machine has fewer devices.
    """

    build: str
    device: Device
    device_count: int
    plan: Plan
    options: dict = field(default_factory=dict)
    num_warmup_steps: int = 10
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if self.plan.window_seconds:  # each process would use its own clock
            raise ValueError(f"window_seconds {self.plan.window_seconds}; allowed on several devices: 0")
        if self.device.framework != "torch" or self.device.features.group_backend is None:
            where = f"{self.device.framework} on {self.device.kind}"
            having = " or ".join(name for name, kind in devices.KINDS.items() if kind.group_backend)
            raise NotImplementedError(f"device_count {self.device_count} with {where}; allowed: torch on {having}")
        available = self.device.backend.count(self.device)
        if self.device_count > available:
            raise DeviceUnavailable(f"device_count {self.device_count} on this host; allowed: up to {available}")


def measure(job: Job, record: Run) -> pandas.DataFrame:
    """Warm up and measure in one process per device; rank 0 appends the rows.

    Args:
        job: what to measure.
        record: the run that stores the rows, also that of a failure.

    Returns:
        This run's rows.

    Raises:
        MemoryError, NotImplementedError: a process lacked memory or an operation.
        RankFailed: a process failed or died for another reason.
    """
    record.describe(device_count=job.device_count)
    log = record.folder / f"{record.run_id}.ranks.log"
    with record.during("setup"), tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        task = {"job": asdict(job), "run_id": record.run_id, "common": record.common, "folder": str(record.folder)}
        (folder / "job.json").write_text(json.dumps(task))
        failed = _run_all(job, folder, log)
        # Take over the last state of rank 0: its phase, its columns, and the condition at its windows.
        state = json.loads((folder / "state.json").read_text()) if (folder / "state.json").exists() else {}
        record.phase = state.get("phase", record.phase)
        record.common |= state.get("common", {})
        record.manifest.setdefault("conditions", []).extend(state.get("conditions", ()))
        record.forget_indices()
        if failed:
            raise _error(folder, log)
    return records.read(record.path)


def _run_all(job: Job, folder: Path, log: Path) -> bool:
    """Run torchrun to its end and kill what is left of its processes; return whether it failed.

    Source: https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.device_count}"]
    words += ["--local-addr=127.0.0.1"]  # a host's own name may not resolve
    words += ["-m", "benchbook.measuring.parallel", str(folder)]
    variables = os.environ | {"BENCHBOOK_KERNEL": str(os.getpid())}  # each process ends when this one does
    if job.device.is_cpu:
        variables["OMP_NUM_THREADS"] = str(max(1, identity.usable_cores() // job.device_count))
    if platform.system() in LOOPBACK:
        variables["GLOO_SOCKET_IFNAME"] = LOOPBACK[platform.system()]
    with log.open("w") as file:
        torchrun = subprocess.Popen(words, stdout=file, stderr=file, env=variables)
        try:
            return bool(torchrun.wait())
        finally:
            processes.kill(processes.tree(torchrun.pid))
            torchrun.wait()


def _error(folder: Path, log: Path) -> Exception:
    """Return why the group failed, as an exception whose type gives the row's status."""
    errors = [json.loads(path.read_text()) for path in sorted(folder.glob("error-*.json"))]
    statuses = [failures.status_of(error["name"], error["message"]) for error in errors]
    messages = [f"rank {error['rank']}: {error['name']}: {error['message']}" for error in errors]
    for status, kind in (("out_of_memory", MemoryError), ("unsupported", NotImplementedError)):
        if status in statuses:
            return kind(messages[statuses.index(status)])
    killed = re.search(r"failed \(exitcode: -(\d+)\)", log.read_text(errors="replace"))  # the first process that died
    ended = [f"a rank was ended by {signal.Signals(int(killed[1])).name}"] if killed else []
    return RankFailed("; ".join(ended + messages[:2]) or "a rank died")


class RankRun(Run):
    """The run within a process of a group: marker, failure row and manifest are left to the kernel.

    Attributes:
        state: the file to which rank 0 writes its progress; None for other ranks.
    """

    state: Path | None = None

    def mark(self) -> None:
        """Write the phase, the columns and the conditions so far, for the kernel."""
        if self.state is not None:
            state = {"phase": self.phase, "common": self.common, "conditions": self.manifest.get("conditions", [])}
            marker.write_atomically(self.state, json.dumps(state))

    def fail(self, status: str, message: str) -> None:
        """Do nothing: the kernel writes the failure row when this process ends."""


def main() -> None:
    """Build the workload, warm up and measure, as the folder's job says; write an error to the folder."""
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    # End this process if the kernel is killed.
    processes.when_gone(int(os.environ["BENCHBOOK_KERNEL"]), lambda: os._exit(1), WATCH_SECONDS)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _measure_rank(json.loads((folder / "job.json").read_text()), folder, rank, Path(scratch))
    except BaseException as error:
        failure = {"rank": rank, "name": type(error).__name__, "message": str(error)}
        marker.write_atomically(folder / f"error-{rank}.json", json.dumps(failure))
        raise


def _measure_rank(task: dict, folder: Path, rank: int, scratch: Path) -> None:
    from benchbook.frameworks.torch import replicas

    job = task["job"]
    group = replicas.join(Device(**job["device"]), job["timeout_seconds"])
    device = _device_of_rank(job, rank)
    # All ranks do the same work; the rows of ranks above 0 are discarded.
    record = RankRun(Path(task["folder"]) if rank == 0 else scratch, task["run_id"], task["common"])
    record.state = folder / "state.json" if rank == 0 else None
    record.manifest = {"conditions": []} if rank == 0 else {}
    record.describe(**device.backend.software(device))
    module, name = job["build"].split(":")
    with record.during("setup"):
        workload = getattr(importlib.import_module(module), name)(device=device, group=group, **job["options"])
    protocol.warm_up(workload, record, job["num_warmup_steps"])
    protocol.measure_windows(workload, record, Plan(**job["plan"]))
    record.mark()
    replicas.leave()


def _device_of_rank(job: dict, rank: int) -> Device:
    """Return this rank's device; the energy counter of rank 0 covers the devices of all ranks."""
    device = Device(**job["device"])
    index = device.index if device.is_cpu else int(os.environ["LOCAL_RANK"])
    return replace(device, index=index, count=job["device_count"] if rank == 0 else 0)


if __name__ == "__main__":
    main()
