"""Studies on a real Slurm of two nodes on the loopback address: their order, jobs that Slurm ends, and continuing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import slurm_cluster
import toy
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
  points:
    - {variant: [reference, controlled], device: cpu}
tot:
  time_limit_minutes: 2
  points:
    - {variant: reference, device: cpu}
"""
SECONDS = 900


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
    return folder


class Desk:
    """Studies of the project's copy, whose rows are in a folder of their own."""

    def __init__(self, project: Path, outputs: Path) -> None:
        self.project, self.outputs = project, outputs

    def submit(self, studies: str = "tot", **settings: str) -> str:
        """Submit the jobs of a study, and return what the command says."""
        path = os.pathsep.join([str(self.project / "lib"), os.environ.get("PYTHONPATH", "")])
        environment = environment_of_tests() | {"BENCHBOOK_OUTPUTS": str(self.outputs), "PYTHONPATH": path} | settings
        words = ("study", "--executor", "slurm", "--profile", "cluster", "--studies", studies, "--machine", "desk")
        command = [sys.executable, "-m", "benchbook", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> str:
        """Wait until no job is left, and return the logs of all."""
        slurm_cluster.wait_for(lambda: not slurm_cluster.call("squeue", "--noheader"), SECONDS)
        return "".join(path.read_text() for path in sorted(self.outputs.glob("slurm/*.log")))

    def rows(self):
        return records.merge(records.find(self.outputs / "runs" / "desk")).sort_values(["started_at", "run_id"])

    def has_measured(self, count: int) -> bool:
        """Return whether so many kernels came past their warm-up, where one that hangs waits."""
        rows = [path.read_text() for path in self.outputs.glob("runs/desk/tot/*/*.csv")]
        return sum(",warmup," in text for text in rows) == count

    def job(self) -> str:
        """Return the id of the job that runs."""
        return slurm_cluster.call("squeue", "--noheader", "--states=running", "--format=%i").split()[0]


@pytest.fixture
def desk(cluster, project, tmp_path):
    yield Desk(project, tmp_path)
    slurm_cluster.call("scancel", "--full", "--signal=KILL", "--user=root")
    slurm_cluster.wait_for(lambda: not slurm_cluster.call("squeue", "--noheader"), 60)


def test_studies_are_jobs_side_by_side_and_the_command_that_is_repeated_measures_nothing_twice(desk):
    said = desk.submit("calibrate toy tot")
    assert "toy: job " in said
    assert "tot: job " in said
    desk.submit("calibrate tot")  # while the first jobs wait or run
    logs = desk.end()
    rows = desk.rows()
    assert set(rows["status"]) == {"ok"}, logs
    runs = rows.drop_duplicates("run_id").groupby("study").size()
    assert runs.to_dict() == {"calibrate": 2, "tot": 1, "toy": 2}
    assert rows["session"].nunique() == 2  # one for each study, on a node of its own, with its calibration
    of_session = rows.groupby("session")["study"].apply(lambda names: sorted(set(names))).tolist()
    assert sorted(of_session) == [["calibrate", "tot"], ["calibrate", "toy"]]
    first = rows[rows["study"] == "toy"].drop_duplicates("run_id")
    assert first["variant"].tolist() == ["reference", "controlled"]
    calibrated = rows[(rows["study"] == "calibrate") & (rows["session"] == first["session"].iloc[0])]
    assert calibrated["started_at"].max() < first["started_at"].min()
    nodes = slurm_cluster.call("squeue", "--noheader", "--states=all", "--format=%N").split()
    assert set(nodes) == set(slurm_cluster.NODES)
    assert len(list(desk.outputs.glob("slurm/*.log"))) == 3
    assert not list(desk.outputs.rglob("*.running"))
    assert (desk.outputs / "report" / "index.html").is_file()


def take_the_node(desk, cluster) -> None:
    slurm_cluster.call(
        "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--time=1", "--output=/dev/null", "--wrap=sleep 5"
    )


def fail_the_node(desk, cluster) -> None:
    node = slurm_cluster.call("squeue", "--noheader", "--job", desk.job(), "--format=%N").strip()
    slurm_cluster.fail_node(cluster, node)


FAULTS = {  # a time limit ends a job as scancel does, a minute later
    "CANCELLED": (lambda desk, cluster: slurm_cluster.call("scancel", desk.job()), "stopped by SIGTERM"),
    "NODE_FAIL": (fail_the_node, "the process that measured was gone"),
    "PREEMPTED": (take_the_node, "stopped by SIGTERM"),
}


def test_what_slurm_ends_leaves_a_row_and_the_same_command_continues(desk, cluster):
    for count, (name, (act, _)) in enumerate(FAULTS.items(), start=1):
        desk.submit(TOY_HANGS="reference", SBATCH_PARTITION="all")
        slurm_cluster.wait_for(lambda count=count: desk.has_measured(count), SECONDS)
        job = desk.job()
        act(desk, cluster)
        desk.end()
        assert slurm_cluster.call("squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T").strip() == name
        for node in slurm_cluster.call("sinfo", "--noheader", "--states=down", "--Node", "--format=%N").split():
            slurm_cluster.mend_node(node)
    desk.submit()
    logs = desk.end()
    rows = desk.rows()
    assert rows["run_id"].nunique() == len(FAULTS) + 1, logs
    assert rows["session"].nunique() == 1
    failed = rows[rows["status"] != "ok"].sort_values("run_id")
    assert failed[["phase", "status"]].to_numpy().tolist() == [["warmup", "interrupted"]] * len(FAULTS)
    # On a slow computer Slurm kills what it ends before the reason is written; the next start writes the row then.
    for message, (_, reason) in zip(failed["message"], FAULTS.values(), strict=True):
        assert message in (reason, "the process that measured was gone")
    assert (rows.loc[~rows["run_id"].isin(failed["run_id"]), "phase"] == "train").sum() == 2
    assert not list(desk.outputs.rglob("*.running"))
