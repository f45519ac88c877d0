"""Measure a workload on several devices: torchrun starts a process for each, and the first of them writes the rows.

If one of them dies, or takes longer than the others wait, all are ended and the run fails; none is left behind.
"""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas

from benchbook import devices, machine, processes, records, runs, slurm
from benchbook.devices import Device, DeviceUnavailable
from benchbook.protocol import Plan
from benchbook.runs import Run

TIMEOUT_SECONDS = 300.0  # that a process waits for the others: the slowest may compile, or read a large data set
POLL_SECONDS = 0.2
LOOPBACK = {"Linux": "lo", "Darwin": "lo0"}


class RankFailed(RuntimeError):
    """A process of the group failed, or was ended."""


@dataclass(frozen=True)
class Job:
    """What every process of a group does.

    Attributes:
        build: a function, as "module:name", from a device, a group and the options to a workload.
        options: its other arguments, as JSON can hold them.
        device: what each process has one of.
        device_count: processes, on all nodes.
        node_count: nodes; each has as many devices as the others.
        plan: how much to measure.
        num_warmup_steps: see `protocol.warm_up`.
        rendezvous: host:port of the first node; empty: the nodes of this Slurm job, if it has so many, which srun
            reaches; else all nodes are agents on this host.
        timeout_seconds: how long a process waits for the others before it fails.

    Raises:
        ValueError: counts that do not fit, or a plan that each process would judge by its own clock.
        NotImplementedError: a kind of device, or a framework, that torchrun cannot serve.
        DeviceUnavailable: this machine has fewer devices.
    """

    build: str
    device: Device
    device_count: int
    plan: Plan
    options: dict = field(default_factory=dict)
    node_count: int = 1
    num_warmup_steps: int = 10
    rendezvous: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if self.node_count < 1 or self.device_count < self.node_count or self.device_count % self.node_count:
            raise ValueError(
                f"device_count {self.device_count} on node_count {self.node_count}; allowed: a multiple of the nodes"
            )
        for name in ("widest_interval", "window_seconds"):  # each process would go by its own clock
            if getattr(self.plan, name):
                raise ValueError(f"{name} {getattr(self.plan, name)}; allowed on several devices: 0")
        if self.device.framework != "torch" or self.device.features.group_backend is None:
            where = f"{self.device.framework} on {self.device.kind}"
            having = " or ".join(name for name, kind in devices.KINDS.items() if kind.group_backend)
            raise NotImplementedError(f"device_count {self.device_count} with {where}; allowed: torch on {having}")
        there = devices.count(self.device)
        needed = self.device_count if self.on_one_host else self.per_node
        if needed > there:
            raise DeviceUnavailable(f"device_count {needed} on this host; allowed: up to {there}, as it has")

    @property
    def per_node(self) -> int:
        """Return the processes on a node."""
        return self.device_count // self.node_count

    @property
    def by_slurm(self) -> bool:
        """Return whether the nodes are those of this Slurm job."""
        return not self.rendezvous and 1 < self.node_count <= slurm.num_nodes()

    @property
    def on_one_host(self) -> bool:
        """Return whether all nodes are agents on this host."""
        return not self.rendezvous and not self.by_slurm


def measure(job: Job, record: Run) -> pandas.DataFrame:
    """Warm up and measure in a process for each device; the first one appends the rows.

    Args:
        job: what to do.
        record: the run that takes the rows, and the failure's if there is one.

    Returns:
        This run's rows.

    Raises:
        RankFailed: a process failed or died; MemoryError and NotImplementedError where that was why.
    """
    record.describe(device_count=job.device_count, node_count=job.node_count)
    with record.during("setup"), ExitStack() as cleanup:
        folder = _folder(record)
        cleanup.callback(_remove, folder)
        task = {"job": asdict(job), "run_id": record.run_id, "common": record.common, "folder": str(record.folder)}
        (folder / "job.json").write_text(json.dumps(task))
        with (record.folder / f"{record.run_id}.ranks.log").open("w") as log:
            failed = _run(job, folder, record.run_id, log)
        _take_over(record, folder)
        if failed:
            raise _error(folder, record.folder / f"{record.run_id}.ranks.log")
    return records.read(record.path)


def command(job: Job, folder: Path, run_id: str, endpoint: str) -> list[str]:
    """Return the command of one node's agent.

    Source: https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    options = {
        "nnodes": job.node_count,
        "nproc-per-node": job.per_node,
        "max-restarts": 0,
        "monitor-interval": 0.1,
        "rdzv-id": run_id,
        "rdzv-backend": "c10d",
        "rdzv-endpoint": endpoint,
        "rdzv-conf": f"join_timeout={job.timeout_seconds:.0f}",
    }
    if endpoint.startswith("127."):
        options["local-addr"] = "127.0.0.1"  # a host's own name may lead nowhere
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "torch.distributed.run", *words, "-m", "benchbook.parallel.rank", str(folder)]


def _run(job: Job, folder: Path, run_id: str, log) -> bool:
    """Run the agents of this host to their end; return whether one failed. None is left running."""
    endpoint = job.rendezvous or f"{slurm.own_address() if job.by_slurm else '127.0.0.1'}:{_free_port()}"
    words = command(job, folder, run_id, endpoint)
    if job.rendezvous:
        print("On every other node, with this folder shared:\n" + " ".join(words), flush=True)
    if job.by_slurm:
        words = [*slurm.on_every_node(job.node_count), *words]
    agents, environment = [], _environment(job, loopback=endpoint.startswith("127."))
    try:
        while len(agents) < (job.node_count if job.on_one_host else 1):
            agents.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment))
        while any(agent.poll() is None for agent in agents):
            if any(agent.poll() for agent in agents):
                return True
            time.sleep(POLL_SECONDS)
        return any(agent.returncode for agent in agents)
    finally:
        for agent in agents:
            processes.kill(processes.family(agent.pid))
            agent.wait()


def _environment(job: Job, loopback: bool) -> dict[str, str]:
    """Return the variables of the agents: cores are shared out, and each process on this host ends with this one."""
    here = job.device_count if job.on_one_host else job.per_node
    inherited = slurm.without_step(os.environ) if job.by_slurm else dict(os.environ)
    variables = inherited | {"BENCHBOOK_KERNEL": f"{os.getpid()} {platform.node()}"}
    if job.device.is_cpu:
        variables["OMP_NUM_THREADS"] = str(max(1, machine.usable_cores() // here))
    if loopback and platform.system() in LOOPBACK:
        variables["GLOO_SOCKET_IFNAME"] = LOOPBACK[platform.system()]
    return variables


def _take_over(record: Run, folder: Path) -> None:
    """Go on with what the first process knew last: its phase, its columns, and the condition at its windows."""
    state = json.loads((folder / "state.json").read_text()) if (folder / "state.json").exists() else {}
    record.phase = state.get("phase", record.phase)
    record.common |= state.get("common", {})
    record.manifest.setdefault("conditions", []).extend(state.get("conditions", ()))
    record.forget_indices()


def _error(folder: Path, log: Path) -> Exception:
    """Return why the group failed, as an exception that stands for the row's status."""
    errors = [json.loads(path.read_text()) for path in sorted(folder.glob("error-*.json"))]
    statuses = [runs.status_of(error["name"], error["message"]) for error in errors]
    for status, kind in (("out_of_memory", MemoryError), ("unsupported", NotImplementedError)):
        if status in statuses:
            error = errors[statuses.index(status)]
            return kind(f"rank {error['rank']}: {error['name']}: {error['message']}")
    killed = re.search(r"failed \(exitcode: -(\d+)\)", log.read_text(errors="replace"))  # the first one's end
    messages = "; ".join(f"rank {error['rank']}: {error['name']}: {error['message']}" for error in errors[:2])
    ended = f"a rank was ended by {signal.Signals(int(killed[1])).name}" if killed else ""
    return RankFailed("; ".join(part for part in (ended, messages) if part) or "a rank died")


def _folder(record: Run) -> Path:
    """Return a new folder for what the processes tell each other, beside the rows: other nodes may share it."""
    folder = record.folder / f"{record.run_id}.ranks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]
