"""What becomes one job of a cluster, what it asks for, and what is made of Slurm's answers."""

import json

import pytest

from benchbook.commands import cli
from benchbook.machine import layout, slurm
from benchbook.measuring import runs
from benchbook.rows import marker
from benchbook.running import cluster, profile_files, profiles
from benchbook.running.profiles import Point
from rows import make_row


def point(study: str, number: int = 1, kernels: int = 1, minutes: int = 10, **parameters) -> Point:
    parameters = {"device": "cpu", "framework": "torch"} | parameters
    return Point(study, f"{study}-{number}", parameters, kernels, 60 * minutes)


def test_a_study_and_the_calibration_it_is_held_against_are_one_job():
    points = [point("calibrate", 1), point("calibrate", 2, framework="jax"), point("calibrate", 3, device="cuda")]
    points += [point("mnist_speedup", 1, kernels=3), point("mnist_speedup", 2, kernels=3, device="cuda")]
    points += [point("resnet50_cost", 1), point("resnet50_cost", 2, device="cuda", device_count=8)]
    made = cluster.groups(points)
    assert {name: [each.name for each in group] for name, group in made.items()} == {
        "mnist_speedup": ["calibrate-1", "calibrate-3", "mnist_speedup-1", "mnist_speedup-2"],
        "resnet50_cost": ["calibrate-1", "calibrate-3", "resnet50_cost-1", "resnet50_cost-2"],
        "calibrate": ["calibrate-2"],
    }
    jobs = cluster.jobs(points, cluster.Site()).set_index("job")
    assert jobs["gpus"].to_dict() == {"mnist_speedup": 1, "resnet50_cost": 8, "calibrate": 0}
    assert jobs.loc["mnist_speedup", "minutes"] == 80 + cluster.MARGIN_MINUTES


def test_a_job_asks_for_a_whole_node_and_for_what_the_site_says():
    group = [point("resnet50_cost", device="cuda", device_count=4, minutes=600)]
    site = cluster.Site(partition="gpu", account="us", gpu_type="a100", max_minutes=90, memory_gib=64)
    asked = {"partition": "gpu", "account": "us", "gres": "gpu:a100:4", "time": 90, "mem": "64G"}
    assert cluster.resources(group, site) == asked
    plain = cluster.resources([point("vae_stability", minutes=30)], cluster.Site())
    assert plain == {"time": 30 + cluster.MARGIN_MINUTES, "mem": 0}  # all of the node's memory


@pytest.fixture
def slurm_has(tmp_path, monkeypatch):
    """Return a function that puts a command of Slurm, of a line of shell, where it is found."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(name: str, line: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)

    return put


@pytest.mark.parametrize("printed", ["17", "17;cluster"])
def test_a_job_is_submitted_with_a_node_of_its_own_and_answered_by_its_id_or_a_refusal(tmp_path, slurm_has, printed):
    slurm_has("sbatch", f'printf "%s\\n" "$@" > {tmp_path}/words; echo "{printed}"')
    group = [point("toy")]
    assert cluster._submit("toy", group, "desk", cluster.Site(qos="long"), tmp_path, "benchbook-1-") == "17"
    words = (tmp_path / "words").read_text().splitlines()
    assert {"--parsable", "--exclusive", "--no-requeue", "--qos=long", "--mem=0"} < set(words)
    assert {"--job-name=benchbook-1-toy", f"--output={tmp_path}/logs/toy-%j.log"} < set(words)
    assert words[-1].endswith(f"-m benchbook.running.cluster {tmp_path}/toy.json desk")
    assert profiles.read_points(tmp_path / "toy.json") == group
    slurm_has("sbatch", "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(slurm.Unreachable, match="invalid partition specified: gpu"):
        slurm.submit([], ["true"])


def test_a_job_fails_where_points_are_left_out_and_nowhere_else(tmp_path, monkeypatch):
    left_out = []
    profiles.write_points(tmp_path / "toy.json", [])
    monkeypatch.setattr("sys.argv", ["cluster", str(tmp_path / "toy.json"), "desk"])
    monkeypatch.setattr(cluster.processes, "stop_on_signals", lambda: None)
    monkeypatch.setattr(cluster.session, "measure", lambda points, name: left_out)
    monkeypatch.setenv("BENCHBOOK_STATE", "")
    cluster.main()
    left_out.append((point("vae_stability"), "OSError: no room"))
    with pytest.raises(SystemExit, match="OSError: no room"):
        cluster.main()


def test_the_example_of_a_site_is_one_and_says_what_its_nodes_have():
    site = cluster.read_site(layout.root() / "sites" / "example.yaml")
    assert (site.partition, site.gpu_type) == ("gpu", "a100")
    assert site.kinds("torch") == site.kinds("jax") == ("cuda", "cpu")
    points = profiles.read("quick", "vae_stability", kinds=site.kinds)
    assert {each.parameters["device"] for each in points} == {"cuda", "cpu"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("partitions: gpu", "line 1: partitions is unknown; allowed: partition, "),
        ("account: us\nmax_minutes: a day", "line 2: max_minutes is 'a day'; allowed: a valid integer"),
        ("max_minutes: 1\nmemory_gib: -1", "line 2: memory_gib is -1; allowed: greater than or equal to 0"),
        ("devices: gpu", "line 1: devices is 'gpu'; allowed: cpu, mps"),
        ("devices: ''", "devices is ''; allowed: cpu, mps"),
        ("- partition", "allowed: a mapping of partition"),
    ],
)
def test_a_wrong_site_is_one_line_with_its_place(tmp_path, content, message):
    (tmp_path / "site.yaml").write_text(content)
    with pytest.raises(profile_files.ProfileError, match=message):
        cluster.read_site(tmp_path / "site.yaml")


def test_a_site_is_for_a_cluster_alone_and_a_cluster_has_a_name(tmp_path):
    assert cluster.choose_site("local", None) is None
    assert cluster.choose_site("slurm", layout.root() / "sites" / "example.yaml").gpu_type == "a100"
    with pytest.raises(ValueError, match="executor 'lsf'; allowed: local, slurm"):
        cluster.choose_site("lsf", None)
    with pytest.raises(ValueError, match=r"site\.yaml with executor local; allowed: executor slurm"):
        cluster.choose_site("local", tmp_path / "site.yaml")
    with pytest.raises(profile_files.ProfileError, match=r"site\.yaml does not exist"):
        cluster.choose_site("slurm", tmp_path / "site.yaml")
    with pytest.raises(ValueError, match="MACHINE=name"):
        cluster.check_name("")


def test_a_study_whose_jobs_end_early_is_one_line_and_the_status_of_points_left_out(outputs, monkeypatch, command):
    def run(points, name, *options):
        raise cluster.Unfinished("not all points are done (vae_stability: job 7 TIMEOUT)")

    monkeypatch.setattr(cluster, "run", run)
    words = ("study", "--executor", "slurm", "--machine", "desk", "--studies", "vae_stability")
    assert command(*words) == (cli.SOME_LEFT_OUT, "not all points are done (vae_stability: job 7 TIMEOUT).\n")


def test_the_plan_of_a_cluster_names_its_jobs_and_what_they_ask_for(tmp_path, outputs, capsys):
    site = tmp_path / "site.yaml"
    site.write_text("devices: cuda cpu\nmax_minutes: 70")
    cli.plan("quick", "calibrate vae_stability", "desk", executor="slurm", site=site)
    printed = capsys.readouterr().out
    assert "profile quick, on desk" in printed
    assert " controlled, GPU, data on the device │" in printed
    job = next(line.split("│") for line in printed.partition("One job each")[2].splitlines() if "vae" in line)
    assert [int(cell) for cell in job[2:4]] == [1, 55]


@pytest.fixture
def scontrol(slurm_has):
    """Let `scontrol` answer a text; without one it is a controller that has forgotten the job."""
    forgotten = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    return lambda text: slurm_has("scontrol", f"echo '{text}'" if text else forgotten)


# What `scontrol show job --oneliner` of Slurm 22.05 printed of such jobs, shortened.
@pytest.mark.parametrize(
    ("answer", "status", "word"),
    [
        ("JobState=COMPLETING Reason=TimeLimit PreemptTime=None", "timeout", "TIMEOUT"),
        ("JobState=COMPLETING Reason=None", "interrupted", "CANCELLED"),
        ("JobState=COMPLETING Reason=None PreemptTime=2026-11-22T15:27:03", "interrupted", "PREEMPTED"),
        ("JobState=NODE_FAIL Reason=NodeDown", "interrupted", "NODE_FAIL"),
    ],
)
def test_a_run_whose_job_slurm_ends_gets_its_reason(scontrol, answer, status, word):
    scontrol(f"JobId=7 JobName=j {answer} Restarts=0 PreemptEligibleTime=2026-11-22T15:27:01 ExitCode=0:15")
    ending = slurm.ending("7")
    assert (ending[0], f"({word})" in ending[1]) == (status, True)


def test_the_run_of_another_job_goes_on_as_long_as_that_job_does(scontrol, tmp_path, monkeypatch):
    run = runs.Run(tmp_path / "point", "20260101T000000Z-1", make_row(), "train")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    run.mark()
    state = json.loads(run.marker.read_text())
    run.marker.write_text(json.dumps(state | {"process": 2**22 + 1}))  # of another host: no process here has it
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    scontrol("JobId=7 JobState=RUNNING Reason=None")
    assert marker.is_alive(run.marker)
    assert runs.recover(run.folder) == []
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "nothing"))  # who does not answer has not said that it is over
        assert marker.is_alive(run.marker)
    scontrol("")
    assert not marker.is_alive(run.marker)
    scontrol("JobId=7 JobState=NODE_FAIL Reason=NodeDown")
    assert runs.recover(run.folder) == [run.run_id]
    assert "its node failed (NODE_FAIL)" in run.path.read_text()
