"""Every study's plan: what it refuses, before any framework is imported; its loaders and
learning rates in torch."""

import dataclasses
import importlib
import math
import pickle

import numpy
import pytest
import yaml

from benchbook.datasets import Collection, Dataset, Pictures, Text
from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, Group
from benchbook.machine import identity
from benchbook.running import profiles
from benchbook.studies.experiments import parameters
from benchbook.studies.mobilenetv2_energy import plan as mobilenetv2
from made import small
from made.small import PLANS, TEXT
from made.small import images as images_of


def masks(side: int) -> Dataset:
    return Dataset("masks", *[numpy.zeros((20, side, side), numpy.uint8)] * 4)


# Of a single study: what does not fit together, or does not fit the data.
REFUSED = """
- [mobilenetv2_energy, {batch_size: 21}, "batch_size 21; allowed: up to 20"]
- [segmentation_scaling, {batch_size: 21}, "batch_size 21; allowed: up to 20"]
- [simclr_epochs, {batch_size: 21}, "batch_size 21; allowed: 2 to 20"]
- [gpt_tokens, {sequence_length: 65}, "sequence_length 65; allowed: 0 to 64"]
- [gpt_tokens, {lora_rank: 129}, "lora_rank 129; allowed: 0 to 128"]
- [gpt_tokens, {dataset: null}, "dataset None; allowed: a text"]
- [gpt_tokens, {model: nanogpt_char}, "sequence_length 256; allowed with .*: below"]
"""


def plan(study: str, framework: str | None = None, **choices):
    device = Device("cpu", "a processor", framework or PLANS[study].FRAMEWORKS[0])
    needed = {"weights", "image_size"}  # no download; the size of the data
    own = {name: value for name, value in PLANS[study].SMALLEST.items() if name in needed}
    return PLANS[study](
        **{"dataset": small.data(study), "device": device, "batch_size": 8} | own | choices
    )


def test_words_and_multiples_are_refused_by_name():
    for study, name, value in (
        ("vae_stability", "parity_precisions", "fp32 fp33"),
        ("resnet50_cost", "precision", "float16"),
        ("gpt_tokens", "ladder", "fused fast"),
        ("segmentation_scaling", "image_size", 192),
        ("simclr_epochs", "num_workers", -2),
    ):
        with pytest.raises(ValueError, match=rf"^{study}: {name} is {value!r}; allowed: "):
            parameters.check(study, {name: value})


@pytest.mark.parametrize(("study", "choices", "message"), yaml.safe_load(REFUSED))
def test_what_one_study_refuses(study, choices, message):
    for framework in PLANS[study].FRAMEWORKS:
        with pytest.raises(ValueError, match=message):
            plan(study, framework, **choices)


def test_a_batch_that_devices_cannot_share_is_refused():
    """torch's devices have a process each, those of JAX are all in one."""
    two = Device("cpu", "a processor", "jax", count=2)
    for choices in ({"framework": "torch", "group": Group(0, 2)}, {"device": two}):
        with pytest.raises(ValueError, match="batch_size 3; allowed on 2 devices: a multiple of 2"):
            plan("resnet50_cost", batch_size=3, **choices)


CHIPS = {"cuda": "NVIDIA A100", "mps": "Apple M3", "metal": "Apple M3", "tpu": "TPU v2"}


def large(study: str, given: dict):
    """Return data with at least 1,024 samples for a point of a profile; None if it trains on
    synthetic ones."""
    if given.get("dataset") == "synthetic":
        return None
    if study == "gpt_tokens":
        return Text("text", *[numpy.resize(TEXT.train, 10_000)] * 2, TEXT.characters)
    if study == "segmentation_scaling":
        return Dataset("masks", *[numpy.zeros((1024, *[given["image_size"]] * 2), numpy.uint8)] * 4)
    images = images_of((28, 28) if given["dataset"] in ("mnist", "digits") else (32, 32, 3), 1050)
    if study == "resnet50_cost":
        return Collection("pictures", *[Pictures(images.train_images, images.train_labels)] * 2, 3)
    return images


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper", "full"])
def test_every_point_of_a_profile_is_one_that_its_study_builds_on_every_device(
    profile, monkeypatch
):
    small.has(monkeypatch, small.EVERY, 8)
    monkeypatch.setattr(
        mobilenetv2, "choose", lambda kind, *rest: (kind, {})
    )  # would download them
    for point in profiles.read(profile):
        given, study = point.parameters, point.study
        if study in PLANS:
            count = given.get("device_count", 1) if point.framework == "jax" else 1
            kind = given["device"]
            device = Device(
                kind, CHIPS.get(kind, "a chip"), point.framework, count=count, capability=8.0
            )
            device.check_precision(given.get("precision", "fp32"))
            names = {field.name for field in dataclasses.fields(PLANS[study])} - {
                "dataset",
                "device",
                "settings",
            }
            own = {name: value for name, value in given.items() if name in names}
            PLANS[study](large(study, given), device, **own)


@pytest.mark.parametrize("chip", ["Apple M1 Pro", "Apple M2"])
def test_a_step_of_more_tokens_than_products_hold_is_unsupported(chip):
    with pytest.raises(
        NotImplementedError, match="128; allowed: up to 127; beyond 32766 tokens a step"
    ):
        plan("gpt_tokens", model="nanogpt_char", batch_size=128, device=Device("mps", chip))


@pytest.mark.parametrize("study", PLANS)
def test_a_framework_that_a_study_is_not_written_in_and_resident_data_of_the_article_are_refused(
    study,
):
    for framework in set(devices.FRAMEWORKS) - set(PLANS[study].FRAMEWORKS):
        with pytest.raises(NotImplementedError, match=f"{framework} with .*; allowed: "):
            plan(study, framework)
    assert plan(study).variant == "reference"
    with pytest.raises(
        ValueError, match="data_resident True; allowed: False with variant reference"
    ):
        plan(study, data_resident=True)


# Study, variant, device, workers that are chosen, workers that are had, and the sampler.
LOADERS = """
mnist_speedup reference  cpu   5 0 Sequential
mnist_speedup reference  mps   5 1 Random
mnist_speedup reference  cuda  5 1 Random
mnist_speedup controlled cpu   5 5 Random
mnist_speedup controlled cuda  5 5 Random
vae_stability reference  cpu   5 0 Random
vae_stability reference  cuda  5 1 Random
vae_stability controlled cpu   5 5 Random
simclr_epochs reference  cpu   5 8 Random
simclr_epochs controlled mps   5 5 Random
simclr_epochs controlled cuda -1 3 Random
"""  # -1: one for each core


@pytest.mark.parametrize("line", LOADERS.strip().splitlines())
def test_loaders_are_the_articles_with_reference_and_as_chosen_with_controlled(monkeypatch, line):
    study, variant, kind, chosen, had, sampler = line.split()
    num_workers, workers = int(chosen), int(had)
    network = importlib.import_module(f"benchbook.studies.{study}.network_torch")
    monkeypatch.setattr(
        network.Network, "to", lambda self, *place: self
    )  # of devices that are not here
    monkeypatch.setattr(network, "flops_per_sample", lambda *given: 0.0)
    monkeypatch.setattr(identity, "usable_cores", lambda: 3)
    chosen = {"device": Device(kind, "a chip"), "variant": variant, "num_workers": num_workers}
    assert (plan(study, **chosen).workers, plan(study, **chosen).shuffles) == (
        workers,
        sampler == "Random",
    )
    unloaded = (
        {"variant": "tuned"}
        if study == "simclr_epochs"
        else {"variant": "controlled", "data_resident": True}
    )
    assert plan(study, num_workers=5, **unloaded).workers == 0
    if study == "vae_stability":  # which takes the images of MNIST's loaders
        return
    made = small.build(study, **chosen)
    train, test, is_simclr = made.train_batches(0), made.test_batches(), study == "simclr_epochs"
    for loader in (train, test, made.bank_batches() if is_simclr else test):
        pinned = kind == "cuda" and not is_simclr  # MPS has no pinned memory
        assert (loader.num_workers, loader.pin_memory) == (workers, pinned)
        assert len(pickle.loads(pickle.dumps(loader.dataset))) == len(
            loader.dataset
        )  # a spawned worker gets it
    assert (train.batch_size, train.drop_last, type(train.sampler).__name__) == (
        8,
        is_simclr,
        f"{sampler}Sampler",
    )
    assert test.batch_size == {"mnist_speedup": 1000}.get(study, 8)
    assert made.description()["num_workers"] == workers


@pytest.mark.parametrize(
    ("study", "options", "expected"),
    [
        ("mnist_speedup", {}, [1.0, 1.0, 0.7, 0.7]),
        ("vae_stability", {}, [1e-3] * 4),
        (
            "simclr_epochs",
            {"batch_size": 4},
            [0.001875] * 2 + [0.001875 * (1 + math.cos(math.pi / 200)) / 2] * 2,
        ),
        ("gpt_tokens", {}, [1e-3 * (step + 1) / 101 for step in range(4)]),
    ],
)
def test_the_learning_rate_follows_the_epochs_or_the_steps(study, options, expected):
    made = small.build(study, Device("cpu", "a processor"), **options)
    fresh = made.snapshot()
    for _ in range(2):  # from fresh weights, and from restored ones
        rates = []
        for place in range(4):
            rates.append({group["lr"] for group in made.optimizer.param_groups})
            made.step(next(iter(made.batches(made.epoch))))
            if place % 2:
                made.end_epoch()
        assert [*map(list, rates)] == [[pytest.approx(rate)] for rate in expected]
        made.restore(fresh)
