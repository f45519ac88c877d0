"""Every torch workload as on a device that is not here; test_cases.py runs this file in a
process per kind."""

import itertools
import os

import impostor
import mps_operators
import numpy
import pytest
import torch

from benchbook.frameworks import devices
from benchbook.measuring import parity, protocol, tuned
from benchbook.measuring.protocol import Amount
from benchbook.studies.vae_stability import network_torch as vae_network
from made.fakes import run
from made.small import GREY, build_either_way

KIND = os.environ["BENCHBOOK_TEST_KIND"]
STUDIES = ("mnist_speedup", "vae_stability", "mobilenetv2_energy", "simclr_epochs", "resnet50_cost")


@pytest.fixture(scope="module", autouse=True)
def _registered():
    impostor.register(KIND)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    torch.manual_seed(0)
    with impostor.present(monkeypatch, "6.4" if KIND == "rocm" else None):
        yield devices.pick("best")


def test_devices_do_not_mix(device):
    there, here = torch.ones(2, device=device.torch_type), torch.ones(2)
    with pytest.raises(RuntimeError, match="two devices"):
        there + here
    with pytest.raises(RuntimeError, match="two devices"):
        torch.stack([there.sum(), torch.tensor(1.0)])  # what ResNet-50's evaluation did
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(2, device=device.torch_type, generator=torch.Generator())
    assert (there + torch.tensor(1.0)).cpu().tolist() == [2, 2]  # one number may come along


@pytest.mark.skipif(KIND != "mps", reason="only MPS has none")
def test_mps_has_no_float64(device):
    with pytest.raises(TypeError, match="float64"):
        torch.zeros(2, device=KIND, dtype=torch.float64)
    with pytest.raises(TypeError, match="float64"):
        torch.zeros(2, device=KIND).double()


@pytest.mark.parametrize(
    "wait",
    [
        lambda there: there.sum().item(),
        lambda there: bool((there > 0).all()),
        lambda there: there.cpu(),
        lambda there: there[there > 0],
        lambda there: there.copy_(torch.ones(2)),
    ],
)
def test_what_makes_the_host_wait_is_written_down(device, wait):
    there = torch.ones(2, device=device.torch_type)
    impostor.Impostor.waits.clear()
    there * 2 + there.mean()
    assert impostor.Impostor.waits == []
    wait(there)
    assert impostor.Impostor.waits


BIG = (
    () if os.environ.get("BENCHBOOK_TEST_LOADERS") == "all" else ("simclr_epochs", "resnet50_cost")
)
SEARCHED = ("mnist_speedup",) if BIG else ("mnist_speedup", "mobilenetv2_energy")


@pytest.mark.filterwarnings(
    "ignore:'pin_memory' argument is set as true:UserWarning"
)  # pinning is out of reach
@pytest.mark.parametrize(
    ("study", "resident"),
    [(study, resident) for study in STUDIES for resident in (True, False) if study not in BIG],
)
def test_a_study_is_checked_warmed_up_measured_restored_and_evaluated(
    study, resident, device, tmp_path
):
    workload = build_either_way(study, device, resident)
    assert {part.device.type for part in workload.model.parameters()} == {impostor.NAME}
    record = run(tmp_path)
    if resident:  # the step is the same
        verdict = parity.check(workload, record, 1)
        assert verdict.passed, verdict.reason
    protocol.warm_up(workload, record, 1)
    plan = Amount(num_repeats=2, num_windows=1, samples_per_window=2 * workload.batch_size)
    protocol.measure_windows(workload, record, plan)
    rows = record.rows()
    trained = rows[rows["phase"] == "train"]
    assert trained["loss"].iloc[0] == pytest.approx(
        trained["loss"].iloc[1], rel=1e-4
    )  # from the same fresh weights
    assert set(rows["status"]) == {"ok"}
    assert (rows["phase"] == "evaluate").sum() == 2
    assert set(rows["memory_method"].dropna()) <= {f"{KIND}_allocator_peak"}


@pytest.mark.parametrize("study", STUDIES)
def test_no_step_makes_the_host_wait_for_the_device(study, device):
    workload = build_either_way(study, device)
    batches = [workload.to_device(batch) for batch in itertools.islice(workload.batches(0), 3)]
    workload.step(batches[0])  # the first one may build something
    impostor.Impostor.waits.clear()
    losses = [workload.step(batch) for batch in batches[1:]]
    assert impostor.Impostor.waits == []
    assert numpy.isfinite(workload.mean_loss(losses))
    assert workload.evaluate().samples > 0


@pytest.mark.parametrize("study", SEARCHED)
def test_a_search_tries_what_the_device_has(study, device, monkeypatch):
    monkeypatch.setattr(tuned, "TRIAL_SECONDS", 0.0)
    # Another process has no impostor; test_tuned.py has that one.
    monkeypatch.setattr(
        tuned, "_attempt_in_process", lambda end, build, *given: tuned._attempt(build, {}, *given)
    )
    changes = [{"precision": "tf32"}] * (KIND == "cuda") + [{"channels_last": True}]
    _, trials = tuned.fastest(
        lambda settings: build_either_way(study, device, settings=settings), device, 60, 1, changes
    )
    assert {trial["outcome"] for trial in trials} <= {"taken", "not faster", "not fastest"}, trials
    assert trials[-1]["channels_last"]


def test_drawn_images_come_back_to_the_host(device):
    workload = build_either_way("vae_stability", device)
    assert [part.shape for part in vae_network.draw_images(workload, GREY, 2).values()] == [
        (2, 28, 28)
    ] * 3


@pytest.mark.skipif(KIND != "mps", reason="a table of MPS")
def test_every_operation_that_the_studies_used_has_a_kernel_on_mps(device):
    table = set(mps_operators.TABLE.read_text().split())
    build_either_way("vae_stability", device).evaluate()
    assert len(impostor.Impostor.used) > 10  # over a hundred, where the whole file ran
    assert impostor.Impostor.used - table == set()
