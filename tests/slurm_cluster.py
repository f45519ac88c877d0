"""A Slurm cluster of two nodes on the loopback address, as Debian packages it; both nodes are this computer.

It takes root, slurmctld, slurmd, slurm-client and munge. Nodes have no accounting; `urgent` preempts `all`.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

COMMANDS = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
CONFIGURATION = Path("/etc/slurm/slurm.conf")  # where every command looks without SLURM_CONF
NODES = ("first", "second")
SETTINGS = """
ClusterName=loopback
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=first NodeAddr=127.0.0.1 NodeHostname=localhost Port=16818 CPUs=2 RealMemory=20000
NodeName=second NodeAddr=127.0.0.1 NodeHostname=localhost Port=16819 CPUs=2 RealMemory=20000
PartitionName=all Nodes=ALL Default=YES State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL State=UP PriorityTier=10
"""


def missing() -> str:
    """Return why no cluster can be started here; empty where one can."""
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    if absent or os.geteuid() != 0:
        return f"it takes root, and {', '.join(absent)}" if absent else "it takes root"
    return f"{CONFIGURATION} is there: this computer belongs to a cluster" if CONFIGURATION.exists() else ""


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Run a cluster inside a `with` block; its files and logs lie in a folder."""
    (folder / "state").mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    (folder / "slurm.conf").write_text(SETTINGS.format(folder=folder))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    CONFIGURATION.symlink_to(folder / "slurm.conf")
    try:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        call("munged", "--force", *(f"--{name}={folder}/munge.{end}" for name, end in files.items()))
        call("slurmctld")
        for node in NODES:
            start_node(node)
        wait_for(lambda: call("sinfo", "--noheader", "--format=%T").split() == ["idle"], 60)
        yield
    finally:
        for file in folder.glob("*.pid"):
            end(int(file.read_text()))
        CONFIGURATION.unlink()
        del os.environ["SLURM_CONF"]


def start_node(node: str) -> None:
    """Start the daemon of a node."""
    call("slurmd", "-N", node)


def fail_node(folder: Path, node: str) -> None:
    """Kill a node's daemon and all that the cluster runs, as when its power fails; the controller is told at once."""
    steps = [each for each in psutil.process_iter() if name_of(each).startswith("slurmstepd: [")]
    for step in steps:
        for process in [*step.children(recursive=True), step]:
            process.kill()
    end(int((folder / f"slurmd-{node}.pid").read_text()))
    call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")


def mend_node(node: str) -> None:
    """Start a node again that failed, and wait until it takes jobs."""
    start_node(node)
    wait_for(lambda: call("sinfo", "--noheader", "--nodes", node, "--format=%T").split()[0] == "idle", 60)


def call(*command: str) -> str:
    """Return what a command prints; it must not fail."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_for(what, seconds: float) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


def name_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def end(process: int) -> None:
    """Kill a process that has gone to the background, and wait until it is gone."""
    try:
        known = psutil.Process(process)
        known.kill()
        known.wait(10)
    except psutil.NoSuchProcess:
        return
