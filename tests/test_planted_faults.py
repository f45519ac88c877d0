"""Faults of training in the studies' own networks are found, and right runs are not called wrong:
minutes for each study."""

import pytest

from benchbook import datasets
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.frameworks.workload import Settings
from benchbook.judging import verdicts
from benchbook.measuring import parity, protocol
from benchbook.studies.gpt_tokens import plan as gpt
from benchbook.studies.mnist_speedup import plan as mnist
from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
from benchbook.studies.resnet50_cost import plan as resnet50
from benchbook.studies.simclr_epochs import plan as simclr
from made import plants
from made.fakes import CPU

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_sensor")]
SCALER = "a scaler that hides an overflow"
OF_CONVOLUTIONS = {"untrained convolutions", "convolutions without gradients"}
SGD, LABELS = {"no momentum", "no weight decay"}, {"rolled labels"}
STATISTICS = {"moving statistics that stay"}
# Each study, and the faults that its training cannot have, because it lacks the part.
STUDIES = {
    "mnist_speedup": SGD | STATISTICS,
    "simclr_epochs": LABELS,
    "mobilenetv2_energy": SGD,
    "resnet50_cost": LABELS,
    "gpt_tokens": LABELS
    | STATISTICS
    | OF_CONVOLUTIONS
    | {"no momentum", "a ReLU left out", SCALER},
}
LATER = "all but the last layer frozen after the comparison"
EVERY = plants.EVERY | plants.OF_LARGE_BATCHES | {LATER: plants.frozen_below_the_head}
FAULTS = [(study, name) for study, lacks in STUDIES.items() for name in EVERY.keys() - lacks]


def build(study: str, seed: int = 0, precision: str = "fp32") -> TorchWorkload:
    """Return a study's workload at a small size; a part of each batch is compared with float64."""
    chosen = {"seed": seed, "settings": Settings(precision), "parity_batch_size": 8}
    resident = {"data_resident": True, "num_workers": 0}
    images = datasets.shapes(8, 1, size=32, seed=seed)
    if study == "mnist_speedup":
        digits = datasets.load("digits")
        return mnist.Plan.build(digits, CPU, "tuned", batch_size=16, **resident, **chosen)
    if study == "simclr_epochs":
        return simclr.Plan.build(images, CPU, "tuned", batch_size=16, **chosen)
    if study == "mobilenetv2_energy":
        options = {"trainable": True, "image_size": 64, "batch_size": 32, "weights": "random"}
        return mobilenetv2.Plan.build(images, CPU, "tuned", **options, **resident, **chosen)
    if study == "gpt_tokens":
        return gpt.Plan.build(gpt.Plan.find("excerpt"), CPU, "controlled", batch_size=12, **chosen)
    return resnet50.Plan.build(None, CPU, "tuned", image_size=64, batch_size=16, **chosen)


@pytest.mark.parametrize(("study", "name"), sorted(FAULTS))
def test_a_fault_of_a_studys_training_is_found(study, name, record):
    workload = build(study, precision="amp_fp16" if "scaler" in name else "fp32")
    if name != LATER:
        EVERY[name](workload)
        verdict = parity.check(workload, record, 1)
        assert (verdict.passed, verdict.reason.startswith("unsupported")) == (False, False)
        return
    protocol.first_step(workload, record)
    assert parity.check(workload, record, 1).passed
    EVERY[name](workload)
    amount = protocol.Amount(num_windows=2, samples_per_window=workload.batch_size, evaluates=False)
    protocol.measure_windows(workload, record, amount)
    assert verdicts.summarise(record.rows())["verdict"].item().text(verdicts.WRONG)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("study", STUDIES)
def test_a_right_run_is_not_called_wrong(study, seed, record):
    verdict = parity.check(build(study, seed, ("fp32", "amp_bf16")[seed % 2]), record, 1)
    assert verdict.passed, verdict.reason
