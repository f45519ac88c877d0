"""Planted faults of the timed work that the clock does not show: a run with one of them must not end as ok."""

import pytest
import torch

import plants
from benchbook.frameworks import devices
from benchbook.judging import statistics, verdicts
from benchbook.measuring import audit, parity, protocol
from benchbook.measuring.protocol import Plan
from benchbook.rows import records
from benchbook.studies import datasets
from benchbook.studies.mnist_speedup.plan import Plan as Mnist
from benchbook.studies.mobilenetv2_energy.plan import Plan as MobileNetV2
from fakes import run
from processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("tensorflow", "jax"))
DEVICE = devices.pick("cpu", FRAMEWORK)
SHORT = ("counted twice", "the first half of large batches dropped", "evaluated in training mode")  # one of each count


def build():
    """Return a workload with about twenty batches in an epoch, each larger than those that parity compares."""
    if FRAMEWORK == "torch":
        digits = datasets.load("digits")
        return Mnist.build(digits, DEVICE, "controlled", data_resident=True, batch_size=72)
    shapes = datasets.load("shapes")
    shapes = shapes.with_tests(64)
    return MobileNetV2.build(shapes, DEVICE, image_size=32, batch_size=24, num_workers=0, trainable=True)


def reasons(workload, folder):
    """Return what is wrong with the rows of a run, measured as notebooks do."""
    record = run(folder)
    parity.check(workload, record, 1, cache=folder)
    protocol.warm_up(workload, record, 2)
    protocol.measure_windows(workload, record, Plan(num_windows=2, samples_per_window=16 * workload.batch_size))
    return [
        reason
        for found in verdicts.training(statistics.newest(records.merge([record.path]))).values()
        for reason in found
    ]


def test_a_true_run_is_ok(framework, tmp_path):
    assert reasons(build(), tmp_path) == []


def test_a_single_test_image_is_no_fault(framework, tmp_path):
    workload = build()
    batch = next(iter(workload.test_batches()))
    workload.test_batches = lambda: iter([tuple(part[:1] for part in batch)])
    assert {name for name, *_ in reasons(workload, tmp_path)} <= {"guessing"}  # about that image


def test_a_loader_too_slow_for_its_time_is_asked_for_one_batch(framework, monkeypatch):
    monkeypatch.setattr(audit, "LOADER_SECONDS", 0.0)
    workload = build()
    counts, images, batch = audit._count_loaded(workload)
    assert counts["audited_samples"] == len(images) == len(batch[0]) == workload.batch_size


@pytest.mark.skipif(FRAMEWORK != "torch", reason="a loss is rounded alike in every framework")
def test_images_that_are_learnt_to_a_loss_of_zero_are_no_fault():
    workload = build()
    images, labels = (part.clone() for part in next(iter(workload.batches(0))))
    images[:, 0, 0, 0] = -1  # a corner with the label, for the images at both ends and their possible replacements
    images[[0, 1, -2, -1], 0, 0, 0] = torch.tensor([1.0, 2, 3, 4])
    labels[[0, 1, -2, -1]] = torch.tensor([1, 2, 3, 4])
    labels[2:-2] = 0

    def network(images):
        named = images[:, :1, 0, 0] == torch.arange(10)
        return torch.log_softmax(workload.model(images) + 1e4 * named, dim=1)

    workload.network = network
    assert audit._count_unused(workload, workload.snapshot(), (images, labels)) == 0


@pytest.mark.parametrize(
    "plant", [pytest.param(name, marks=[pytest.mark.slow] * (name not in SHORT)) for name in plants.OF_WORK]
)
def test_a_fault_of_the_work_is_found(framework, tmp_path, plant):
    workload = build()
    plants.OF_WORK[plant](workload)
    found = reasons(workload, tmp_path)
    print(plant, found)
    assert found
