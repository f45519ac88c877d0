"""Studies on a real Slurm on the loopback address, as Debian packages it: their order, a job
that ends, and continuing.

It takes root, slurmctld, slurmd, slurm-client and munge. test_cluster.py has the options, and
what Slurm says.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchbook.rows import records
from made import toy
from made.processes import environment_of_tests, wait_for

CONFIGURATION = Path("/etc/slurm/slurm.conf")  # where every command looks without SLURM_CONF
ABSENT = [
    name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None
]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        bool(ABSENT) or os.geteuid() != 0, reason=f"it takes root and {', '.join(ABSENT)}"
    ),
    pytest.mark.skipif(
        CONFIGURATION.exists(),
        reason=f"{CONFIGURATION} is there: this computer belongs to a cluster",
    ),
]
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
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=first NodeAddr=127.0.0.1 NodeHostname=localhost Port=16818 CPUs=2 RealMemory=20000
NodeName=second NodeAddr=127.0.0.1 NodeHostname=localhost Port=16819 CPUs=2 RealMemory=20000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def call(*command: str) -> str:
    """Return what a command prints; it must not fail."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def cluster(tmp_path):
    """Run a cluster of two nodes, both this computer."""
    folder = tmp_path / "slurm"
    (folder / "state").mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "slurm.conf").write_text(SETTINGS.format(folder=folder))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    CONFIGURATION.symlink_to(folder / "slurm.conf")
    try:
        files = {
            "key-file": "key",
            "socket": "socket",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        call(
            "munged", "--force", *(f"--{name}={folder}/munge.{end}" for name, end in files.items())
        )
        call("slurmctld")
        for node in ("first", "second"):
            call("slurmd", "-N", node)
        wait_for(lambda: call("sinfo", "--noheader", "--format=%T").split() == ["idle"])
        yield
        call("scancel", "--full", "--signal=KILL", "--user=root")
    finally:
        for file in folder.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        CONFIGURATION.unlink()
        del os.environ["SLURM_CONF"]


def test_studies_are_jobs_one_that_ends_leaves_a_row_and_the_same_command_continues(
    cluster, tmp_path
):
    project, outputs = tmp_path / "project", tmp_path / "outputs"
    toy.copy_project(project)
    path = os.pathsep.join([str(project / "lib"), os.environ.get("PYTHONPATH", "")])

    def submit(studies: str, **settings: str) -> None:
        environment = (
            environment_of_tests()
            | {"BENCHBOOK_OUTPUTS": str(outputs), "PYTHONPATH": path}
            | settings
        )
        words = (
            "study",
            "--executor",
            "slurm",
            "--profile",
            "smoke",
            "--studies",
            studies,
            "--machine",
            "desk",
        )
        command = [sys.executable, "-m", "benchbook", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"{studies.split()[-1]}: job " in done.stdout

    def logs() -> str:
        wait_for(lambda: not call("squeue", "--noheader"))
        return "".join(path.read_text() for path in sorted(outputs.glob("slurm/*.log")))

    submit("calibrate toy", TOY_HANGS="reference")
    wait_for(
        lambda: any(
            ",warmup," in path.read_text() for path in outputs.glob("runs/desk/toy/*/*.csv")
        )
    )
    job = call("squeue", "--noheader", "--states=running", "--format=%i").split()[0]
    call("scancel", job)
    logs()
    assert (
        call("squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T").strip()
        == "CANCELLED"
    )
    for _ in range(2):  # the second job waits for the first, and measures nothing twice
        submit("calibrate toy")
    said = logs()
    rows = records.merge(outputs / "runs" / "desk").sort_values(["started_at", "run_id"])
    failed = rows[rows["status"] != "ok"]
    assert failed[["phase", "status"]].to_numpy().tolist() == [["warmup", "interrupted"]], said
    # On a slow computer Slurm kills what it ends before the reason is written; the next start
    # writes the row then.
    assert failed["message"].item() in ("stopped by SIGTERM", "the process that measured was gone")
    whole = rows[~rows["run_id"].isin(failed["run_id"])].drop_duplicates("run_id")
    assert whole.groupby("study").size().to_dict() == {"calibrate": 1, "toy": 2}, said
    assert rows["session"].nunique() == 1
    yours = (outputs / "state" / "sessions.csv").read_text()  # the report calls these yours
    assert all(session in yours for session in rows["session"].unique())
    assert not list(outputs.rglob("*.running"))
    assert (outputs / "report" / "index.html").is_file()
