"""The jobs that a study on a cluster submits, and runs of other jobs; test_slurm.py has a real
Slurm."""

import json
import shlex

import pytest
import yaml

from benchbook.machine import context, sessions
from benchbook.measuring import runs
from benchbook.rows import marker
from benchbook.running import cluster
from made.rows import make_row

STUDY = (
    "study",
    "--executor",
    "slurm",
    "--profile",
    "smoke",
    "--device",
    "cpu",
    "--machine",
    "desk",
)


@pytest.fixture
def slurm_has(tmp_path, monkeypatch):
    """Return a function that puts a command of Slurm, of a line of shell, where it is found."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(name: str, line: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)

    return put


def test_each_study_is_a_job_with_its_calibration_on_a_node_of_its_own(
    tmp_path, outputs, slurm_has, command, monkeypatch
):
    monkeypatch.setenv("BENCHBOOK_STUDIES", str(tmp_path))
    slurm_has(
        "sbatch",
        f'printf "%s\\n" "$@" >> {tmp_path}/words; echo "Welcome. 3 jobs wait"; echo "17;cluster"',
    )
    status, said = command(
        *STUDY, "--studies", "calibrate vae_stability mnist_speedup", "--retry", "--deadline", "60"
    )
    assert status == 0
    folder = tmp_path / "slurm"
    assert f"mnist_speedup: job 17, log {folder}/mnist_speedup-17.log" in said
    words = (tmp_path / "words").read_text().splitlines()
    assert (
        words.count("--exclusive")
        == words.count("--dependency=singleton")
        == words.count("--no-requeue")
        == 2
    )
    names = ["--job-name=benchbook-desk-vae_stability", "--job-name=benchbook-desk-mnist_speedup"]
    assert [word for word in words if word.startswith("--job-name")] == names
    wraps = [
        shlex.split(word.removeprefix("--wrap=")) for word in words if word.startswith("--wrap")
    ]
    assert [wrap[wrap.index("--studies") + 1] for wrap in wraps] == [
        "calibrate vae_stability",
        "calibrate mnist_speedup",
    ]
    assert {"--state", f"{folder}/vae_stability", "--retry", "desk"} < set(wraps[0])
    assert f"BENCHBOOK_STUDIES={tmp_path}" in wraps[1]  # for where sbatch exports nothing


@pytest.mark.parametrize(
    ("device", "variables", "shares"),
    yaml.safe_load("""
- [all, {}, false]
- [cuda, {}, false]
- [all, {SBATCH_GPUS: "a100:1"}, false]
- [cpu, {SBATCH_GRES: "gpu:1"}, false]
- [cuda, {SBATCH_GPUS: "a100:1"}, true]
- [cuda, {SBATCH_GRES: "gpu:1"}, true]
- [cpu, {SBATCH_EXCLUSIVE: user}, true]
"""),
)
def test_one_gpu_of_a_node_does_not_take_the_node(
    device, variables, shares, tmp_path, outputs, slurm_has, monkeypatch
):
    for name in cluster.GPUS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    slurm_has("sbatch", f'printf "%s\n" "$@" > {tmp_path}/words; echo 17')
    cluster.submit("smoke", "mnist_speedup", "", device, [])
    words = (tmp_path / "words").read_text().splitlines()
    assert {"--exclusive", "--mem=0"} & set(words) == (set() if shares else {*cluster.WHOLE})
    assert f"--device {device} " in words[-1]


def test_the_command_of_a_job_runs_the_study_with_a_state_of_its_own(
    tmp_path, outputs, slurm_has, command
):
    runs_it = 'case $word in --wrap=*) sh -c "${word#--wrap=}" > "$0.log" 2>&1 ;; esac'
    slurm_has("sbatch", f"for word; do {runs_it}; done; echo 17")
    assert command(*STUDY, "--studies", "mnist_speedup", "--deadline", "0")[0] == 0
    assert "it measures the points that were left out" in (tmp_path / "sbatch.log").read_text()
    assert (tmp_path / "slurm" / "mnist_speedup" / "desk" / ".session").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {
        "sbatch",
        "sbatch.log",
        "slurm",
    }  # no state here, no report


def test_what_a_job_measures_is_the_readers_though_its_state_is_its_own(outputs):
    with context.changed(state=str(outputs / "slurm" / "vae_stability")):
        sessions.remember("of-a-job")
    assert sessions.own() == {"of-a-job"}


def test_what_slurm_refuses_is_one_line_and_a_wrong_choice_submits_no_job(
    tmp_path, outputs, slurm_has, monkeypatch, command
):
    slurm_has(
        "sbatch",
        f"touch {tmp_path}/asked; echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1",
    )
    for options, expected in (
        (("--studies", "mnist"), "has no study 'mnist'; allowed: "),
        (("--machine", "a/b"), "machine name 'a/b'; allowed: "),
        (("--executor", "lsf"), "executor 'lsf'; allowed: local, slurm"),
    ):
        status, said = command(*STUDY, *options)
        assert (status, said.count("\n"), expected in said) == (2, 1, True)
    assert not (tmp_path / "asked").exists()
    refused = (2, "error: calibrate: sbatch: error: invalid partition specified: gpu\n")
    assert command(*STUDY, "--studies", "calibrate") == refused
    (tmp_path / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch is not here; allowed: a host that has Slurm's commands" in command(*STUDY)[1]


def test_the_run_of_another_job_goes_on_as_long_as_that_job_does(slurm_has, tmp_path, monkeypatch):
    run = runs.Run(tmp_path / "point", "20260101T000000Z-1", make_row(), "train")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    run.mark()
    state = json.loads(run.marker.read_text())
    run.marker.write_text(
        json.dumps(state | {"process": 2**22 + 1})
    )  # of another host: no process here has it
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    for answer in (
        "echo RUNNING",
        "echo COMPLETING",
        "echo 'Unable to contact slurm controller' >&2; exit 1",
    ):
        slurm_has("squeue", answer)
        assert marker.is_alive(run.marker)
    slurm_has("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert not marker.is_alive(run.marker)
    slurm_has("squeue", "true")
    assert runs.recover(run.folder) == [run.run_id]
    assert "the process that measured was gone" in run.path.read_text()
