"""A study on a real Slurm of two nodes on the loopback address: its order, the jobs that Slurm ends, and continuing."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slurm_cluster
import toy
from benchbook.machine import identity
from benchbook.rows import records
from processes import environment_of_tests

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"no Slurm: {slurm_cluster.missing()}"),
]
PROFILE = """
calibrate:
  time_limit_minutes: 2
  parameters: {budget: {num_windows: 1, window_seconds: 0.01, matrix_sizes: "64 128", copy_mebibytes: 1}}
  points:
    - {framework: torch, device: cpu}
toy:
  time_limit_minutes: 2
  num_kernels: 2
  points:
    - {variant: [reference, controlled], device: cpu}
tot:
  time_limit_minutes: 2
  points:
    - {variant: reference, device: cpu}
"""
GPU_PROFILE = """
toy:
  time_limit_minutes: 2
  points:
    - {variant: reference, device: cuda}
"""
RUN = """
import sys
from pathlib import Path
from benchbook.running import cluster, profiles
from benchbook.machine import processes
processes.stop_on_signals()
cluster.LOOK_SECONDS = 1.0
site = cluster.read_site(Path(sys.argv[1]))
try:
    lines = cluster.run(profiles.read(sys.argv[3], sys.argv[2], kinds=site.kinds), "desk", site, sys.argv[4] == "retry")
except cluster.Unfinished as error:
    sys.exit(f"UNFINISHED {error}")
except processes.Stopped as stop:
    sys.exit(stop.status)
print(lines[["machine", "study", "variant", "status"]])
"""
SECONDS = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm", numbered=True)
    with slurm_cluster.running(folder):
        yield folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with two toy studies, `toy` and `tot`, and a profile of both and their calibration."""
    folder = tmp_path_factory.mktemp("project")
    toy.copy_project(folder)
    studies, notebooks = folder / "lib" / "benchbook" / "studies", folder / "notebooks"
    shutil.copytree(studies / "toy", studies / "tot")
    for source, target in (
        (studies / "toy" / "study.py", studies / "tot" / "study.py"),
        (notebooks / "50_toy.ipynb", notebooks / "51_tot.ipynb"),
    ):
        target.write_text(
            source.read_text().replace('"toy"', '"tot"').replace("'toy'", "'tot'").replace('\\"toy', '\\"tot')
        )
    (notebooks / "profiles" / "cluster.yaml").write_text(PROFILE)
    (notebooks / "profiles" / "gpu.yaml").write_text(GPU_PROFILE)
    return folder


class Desk:
    """A study called `desk` of the project's copy, its rows in a folder of its own."""

    def __init__(self, project: Path, outputs: Path) -> None:
        self.project, self.outputs, self.process = project, outputs, None
        self.machine = f"desk-{identity.fingerprint()[:4]}"

    def start(
        self, studies: str = "tot", site: str = "", profile: str = "cluster", retry: str = "", **settings: str
    ) -> subprocess.Popen:
        """Start the process that submits; `site` is YAML."""
        (self.outputs / "site.yaml").write_text(f"devices: cpu\n{site}" if "devices" not in site else site)
        path = os.pathsep.join([str(self.project / "lib"), os.environ.get("PYTHONPATH", "")])
        environment = environment_of_tests() | {"BENCHBOOK_OUTPUTS": str(self.outputs), "PYTHONPATH": path} | settings
        words = [sys.executable, "-c", RUN, str(self.outputs / "site.yaml"), studies, profile, retry]
        with (self.outputs / "log").open("a") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
        return self.process

    def end(self) -> tuple[int, str]:
        """Return its exit status and its output."""
        return self.process.wait(SECONDS), (self.outputs / "log").read_text()

    def rows(self):
        folder = self.outputs / "runs" / self.machine
        return records.merge(records.find(folder)).sort_values(["started_at", "run_id"])

    def measures(self) -> bool:
        """Return whether a kernel is past its warm-up, where one that hangs waits."""
        rows = [path.read_text() for path in self.outputs.glob("runs/*/tot/*/*.csv")]
        return any(",warmup," in text for text in rows)

    def job(self) -> str:
        """Return the id of the job that runs."""
        return slurm_cluster.call("squeue", "--noheader", "--states=running", "--format=%i").split()[0]


@pytest.fixture
def desk(cluster, project, tmp_path):
    made = Desk(project, tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    slurm_cluster.call("scancel", "--full", "--signal=KILL", "--user=root")
    slurm_cluster.wait_for(lambda: not slurm_cluster.call("squeue", "--noheader"), 60)


def test_a_study_is_a_job_that_keeps_the_order_and_holds_its_own_calibration(desk):
    desk.start("calibrate toy tot")
    status, text = desk.end()
    assert status == 0, text
    assert text.count(" COMPLETED, ") == 2
    rows = desk.rows()
    assert set(rows["status"]) == {"ok"}
    assert set(rows["machine"]) == {desk.machine}
    assert rows["session"].nunique() == 2  # one for each study, on a node of its own
    assert rows.groupby("session")["study"].apply(lambda names: sorted(set(names))).tolist() in (
        [["calibrate", "toy"], ["calibrate", "tot"]],
        [["calibrate", "tot"], ["calibrate", "toy"]],
    )
    first = rows[rows["study"] == "toy"].drop_duplicates("run_id")
    assert first["variant"].tolist() == ["reference", "controlled", "controlled", "reference"]
    calibrated = rows[(rows["study"] == "calibrate") & (rows["session"] == first["session"].iloc[0])]
    assert calibrated["started_at"].max() < first["started_at"].min()
    nodes = slurm_cluster.call("squeue", "--noheader", "--states=all", "--format=%N").split()
    assert set(nodes) == set(slurm_cluster.NODES)
    logs = [path.read_text() for path in desk.outputs.glob("slurm/desk/logs/*.log")]
    assert len(logs) == 2
    assert sum("kernel 2 of 2" in text for text in logs) == 1


def test_gpus_are_asked_for_and_a_failed_point_is_run_again_where_that_is_asked_for(desk):
    """The cluster counts GPUs that are not there: the job has one, and the kernel has none."""
    site = "gpu_type: a100\ndevices: cuda cpu\n"
    desk.start("toy", site, profile="gpu")
    slurm_cluster.wait_for(lambda: "job" in (slurm_cluster.call("squeue", "--noheader", "--format=job %i")), SECONDS)
    job = slurm_cluster.call("squeue", "--noheader", "--format=%i").split()[0]
    assert "gpu:a100:1" in slurm_cluster.call("scontrol", "show", "job", job)
    assert desk.end()[0] == 0
    assert desk.rows()["status"].tolist() == ["unavailable"]
    desk.start("toy", site, profile="gpu")
    assert desk.end()[0] == 0
    assert len(desk.rows()) == 1
    desk.start("toy", site, profile="gpu", retry="retry")
    assert desk.end()[0] == 0
    assert desk.rows()["status"].tolist() == ["unavailable"] * 2


def take_the_node(desk, cluster) -> None:
    slurm_cluster.call(
        "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--time=1", "--output=/dev/null", "--wrap=sleep 5"
    )


def fail_the_node(desk, cluster) -> None:
    node = slurm_cluster.call("squeue", "--noheader", "--job", desk.job(), "--format=%N").strip()
    slurm_cluster.fail_node(cluster, node)


FAULTS = {
    "CANCELLED": (lambda desk, cluster: slurm_cluster.call("scancel", desk.job()), "interrupted", "it was cancelled"),
    "TIMEOUT": (lambda desk, cluster: None, "timeout", "its time limit was over"),
    "NODE_FAIL": (fail_the_node, "interrupted", "its node failed"),
    "PREEMPTED": (take_the_node, "interrupted", "a job of higher priority took its node"),
}


def test_a_kernel_that_takes_more_memory_than_its_job_has_is_out_of_memory(desk):
    desk.start(site="memory_gib: 2\n", TOY_FILLS="3", TOY_HANGS="reference")
    assert desk.end()[0] == 1
    failed = desk.rows().query("status != 'ok'")
    assert failed["status"].tolist() == ["out_of_memory"]
    assert "it took more memory than the job was given (OUT_OF_MEMORY)" in failed["message"].item()


def test_a_study_that_is_stopped_cancels_its_jobs(desk):
    desk.start(TOY_HANGS="reference")
    slurm_cluster.wait_for(desk.measures, SECONDS)
    desk.process.terminate()
    assert desk.end()[0] == 128 + signal.SIGTERM
    assert not slurm_cluster.call("squeue", "--noheader")
    failed = desk.rows().query("status != 'ok'")
    assert failed["status"].tolist() == ["interrupted"]
    assert "(CANCELLED)" in failed["message"].item()
    assert not list(desk.outputs.rglob("*.running"))


@pytest.mark.parametrize("name", list(FAULTS))
def test_what_slurm_ends_leaves_a_row_that_says_why(desk, cluster, name):
    act, status, reason = FAULTS[name]
    desk.start(site="max_minutes: 1\n" if name == "TIMEOUT" else "partition: all\n", TOY_HANGS="reference")
    slurm_cluster.wait_for(lambda: desk.process.poll() is not None or desk.measures(), SECONDS)
    job = desk.job()
    act(desk, cluster)
    ended, text = desk.end()
    assert ended == 1, text
    assert f" {name}, " in text.partition("UNFINISHED")[2]
    assert f"tot: job {job} {name}, 0 of 1 points done" in text
    rows = desk.rows()
    failed = rows[rows["status"] != "ok"]
    assert failed[["phase", "status"]].to_numpy().tolist() == [["warmup", status]]
    assert f"{reason} ({name})" in failed["message"].item()
    assert not list(desk.outputs.rglob("*.running"))
    for node in slurm_cluster.call("sinfo", "--noheader", "--states=down", "--Node", "--format=%N").split():
        slurm_cluster.mend_node(node)
    if name == "CANCELLED":  # the same command continues
        desk.start()
        assert desk.end()[0] == 0, (desk.outputs / "log").read_text()
        again = desk.rows()
        assert again["session"].nunique() == 1
        assert again["run_id"].nunique() == 2
        assert set(again.loc[again["run_id"] != failed["run_id"].item(), "status"]) == {"ok"}


def test_the_submitting_process_is_killed_and_its_jobs_are_taken_over(desk):
    desk.start()
    slurm_cluster.wait_for(lambda: list(desk.outputs.glob("runs/*/tot/*/*.running")), SECONDS)
    job = desk.job()
    desk.process.kill()
    desk.process.wait()
    desk.start()
    status, text = desk.end()
    assert status == 0, text
    assert f"Waiting for jobs of a session that was cut short: {job}" in text
    rows = desk.rows()
    assert set(rows["status"]) == {"ok"}
    assert rows["run_id"].nunique() == 1
    assert [path.name for path in desk.outputs.glob("slurm/desk/logs/*")] == [f"tot-{job}.log"]
