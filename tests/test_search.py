"""The search for the fastest settings: it takes what is faster and right, and nothing else."""

import os
import time
from dataclasses import replace

import numpy
import pytest
import torch

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings
from benchbook.measuring import parity, search
from benchbook.measuring.parity import reference
from benchbook.studies import datasets
from benchbook.studies.mnist_speedup import workload as mnist

CPU = Device("cpu", "a test's CPU")
SECONDS = {"fp32": 0.004, "amp_bf16": 0.001, "amp_fp16": 0.0005}
CHOICES = {"precision": ("amp_bf16", "amp_fp16"), "channels_last": (True,), "compiled": (True,)}


class Sleeper:
    """A workload whose step sleeps for as long as its settings say."""

    def __init__(self, settings: Settings) -> None:
        if settings.compiled:
            raise RuntimeError("no compiler here")
        self.settings, self.device, self.batch_size, self.epoch = settings, CPU, 1, 0
        self.seconds = SECONDS[settings.precision] * (1.5 if settings.channels_last else 1)

    def enter(self):
        pass

    def snapshot(self):
        return None

    def restore(self, state):
        pass

    def end_epoch(self):
        self.epoch += 1

    def batches(self, epoch):
        return iter([None] * 50)

    def num_samples(self, batch):
        return 1

    def step(self, batch):
        time.sleep(self.seconds)
        return 0.0

    def mean_loss(self, losses):
        return 0.0


@pytest.fixture
def judged(monkeypatch):
    """Let parity fail for float16 alone, and windows be short; return the settings that were compared."""
    compared = []

    def check(workload, record, num_steps, kept):
        compared.append(workload.settings)
        return parity.Verdict(workload.settings.precision != "amp_fp16", "planted", num_steps)

    monkeypatch.setattr(parity, "check", check)
    monkeypatch.setattr(search, "WINDOW_SECONDS", 0.02)
    return compared


def test_what_is_faster_and_right_is_taken_and_the_rest_is_told(judged):
    found = search.fastest(Sleeper, CPU, 60, choices=CHOICES)
    assert found.settings == Settings(precision="amp_bf16")
    outcomes = found.trials[["precision", "channels_last", "compiled", "outcome"]].to_numpy().tolist()
    assert outcomes == [
        ["amp_bf16", False, False, "taken"],
        ["amp_fp16", False, False, "parity failed"],  # though it is the fastest
        ["amp_bf16", True, False, "not faster"],
        ["amp_bf16", False, True, "unsupported"],
    ]
    assert found.trials["ratio"].iloc[0] > 1
    assert found.promised == found.trials["ratio"].iloc[0]  # what was not taken promises nothing
    assert Settings("amp_bf16", channels_last=True) not in judged  # what is slower is not worth float64
    assert "no compiler here" in found.trials["reason"].iloc[-1]


FASTER, SAME = (1.2, 1.0, 1.0, 1.2), (1.0, 1.0, 1.0, 1.0)
DISTURBED, LUCKY = (1.2, 1.5, 1.5, 1.2), (1.5, 1.0, 1.0, 1.5)


@pytest.mark.parametrize(
    ("blocks", "gain"),
    [
        ((FASTER, FASTER, FASTER), 1.2),
        ((FASTER, FASTER, DISTURBED), 1.2),
        ((FASTER, DISTURBED, DISTURBED), 0.8),
        ((SAME, LUCKY, LUCKY), 1.0),
    ],
)
def test_a_gain_is_clear_in_most_blocks_and_in_the_fastest_windows(judged, monkeypatch, blocks, gain):
    assert search.gain(numpy.array(blocks)) == pytest.approx(gain)
    monkeypatch.setattr(search, "_times", lambda best, trial: numpy.array(blocks))
    found = search.fastest(Sleeper, CPU, 60, choices={"channels_last": (True,)})
    assert found.settings.channels_last == (gain > 1)
    assert found.trials["outcome"].tolist() == ["taken" if gain > 1 else "not faster"]


def test_a_setting_that_is_far_slower_is_given_up_after_a_few_steps(judged, monkeypatch):
    monkeypatch.setattr(search, "WINDOW_SECONDS", 0.2)
    workloads = []

    class Counting(Sleeper):
        def __init__(self, settings):
            super().__init__(settings)
            self.seconds, self.steps = (0.02 if settings.channels_last else 0.004), 0
            workloads.append(self)

        def step(self, batch):
            self.steps += 1
            return super().step(batch)

    found = search.fastest(Counting, CPU, 60, choices={"channels_last": (True,)})
    assert found.trials["outcome"].tolist() == ["not faster"]
    assert found.trials["ratio"].iloc[0] < search.HOPELESS
    assert workloads[1].steps < 20  # a window of 0.2 s would have 50


def test_a_search_that_its_first_network_outlasts_keeps_the_reference_settings(judged):
    found = search.fastest(Sleeper, CPU, 1e-6, choices=CHOICES)
    assert found.settings == Settings()
    assert set(found.trials["outcome"]) == {"no time left"}
    assert found.promised == 1.0


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_tuned_without_a_search_is_refused(judged, seconds):
    with pytest.raises(ValueError, match=f"search_seconds {seconds}; allowed: above 0"):
        search.fastest(Sleeper, CPU, seconds, choices=CHOICES)


def test_the_limit_counts_parity_and_no_trial_begins_that_would_outlast_it(judged, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(search.time, "monotonic", lambda: now[0])

    def check(workload, record, num_steps, kept):
        now[0] += 70.0
        return parity.Verdict(True, "planted", num_steps)

    monkeypatch.setattr(parity, "check", check)
    found = search.fastest(Sleeper, CPU, 120, choices={"precision": ("amp_bf16", "amp_fp16"), "channels_last": (True,)})
    assert found.trials["outcome"].tolist() == ["taken", "no time left", "no time left"]


def test_the_reference_of_parity_is_computed_once_for_all_trials(monkeypatch):
    """And says the same as one of its own for each: a gradient off by a tenth still fails."""
    digits = datasets.load("digits")
    few = replace(digits, train_images=digits.train_images[:64], train_labels=digits.train_labels[:64])
    references, begin = [], reference.Torch.__init__

    def count(self, *given):
        references.append(given)
        begin(self, *given)

    def build(settings):
        workload = mnist.build(few, CPU, "tuned", data_resident=True, batch_size=16, settings=settings)
        if settings.channels_last:
            workload.model.dense2.weight.register_hook(lambda gradient: 1.1 * gradient)
        return workload

    monkeypatch.setattr(reference.Torch, "__init__", count)
    monkeypatch.setattr(search, "_times", lambda best, trial: numpy.array([FASTER]))
    found = search.fastest(build, CPU, 60, 3, {"channels_last": (True,), "autotuned": (True,)})
    assert found.trials["outcome"].tolist() == ["parity failed", "taken"], found.trials["reason"].tolist()
    assert len(references) == 1


def test_a_trial_that_ends_its_process_ends_neither_the_search_nor_the_point(monkeypatch):
    """As Metal's assertions do; the kind of device says that this may happen, and its trials go apart."""
    monkeypatch.setitem(devices.KINDS, "cpu", replace(devices.KINDS["cpu"], aborts=True))
    digits = datasets.load("digits")
    few = replace(digits, train_images=digits.train_images[:64], train_labels=digits.train_labels[:64])

    def build(settings):  # as in a notebook's cell: pickle alone could not send it
        if settings.channels_last:
            os.abort()
        return mnist.build(few, CPU, "controlled", data_resident=True, batch_size=16, settings=settings)

    result = search.fastest(build, CPU, 60, 1, {"channels_last": (True,), "precision": ("tf32",)})
    outcomes = result.trials.set_index(["channels_last", "precision"])
    assert outcomes["outcome"].iloc[0] == "unsupported"
    assert outcomes["outcome"].iloc[1] in ("not faster", "parity failed")  # a CPU has no tf32
    assert "signal 6" in outcomes.loc[(True, "fp32"), "reason"]
    assert result.settings == Settings()


@pytest.mark.parametrize(
    ("kind", "framework"),
    [
        ("cpu", "torch"),
        ("cuda", "torch"),
        ("mps", "torch"),
        ("metal", "tensorflow"),
        ("cpu", "tensorflow"),
        ("tpu", "jax"),
    ],
)
def test_every_candidate_is_another_setting_than_the_reference(kind, framework):
    for name, values in search.candidates(Device(kind, "a chip", framework)).items():
        assert getattr(Settings(), name) not in values
        assert len(set(values)) == len(values) > 0


def test_a_cpu_that_only_imitates_bfloat16_is_not_asked_to(monkeypatch):
    for does in (True, False):
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda does=does: does, raising=False)
        assert ("precision" in search.candidates(CPU)) == does
        assert "precision" in search.candidates(Device("cuda", "a GPU"))
