"""Every study's plan: what it refuses, before any framework is imported, and what it says of its loaders."""

import subprocess
import sys

import numpy
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, Group
from benchbook.studies.datasets import Dataset
from small import GREY, PLANS, SMALL


def masks(side: int) -> Dataset:
    return Dataset("masks", *[numpy.zeros((20, side, side), numpy.uint8)] * 4)


DATA = {study: data for study, (data, _) in SMALL.items()}  # 20 images each
BELOW_ONE_WORKER = {"simclr_epochs": 0}  # its -1 is one for each core
# Of a single study.
REFUSED = [
    ("mobilenetv2_energy", {"batch_size": 21}, "batch_size 21; allowed: up to 20"),
    ("segmentation_scaling", {"batch_size": 21}, "batch_size 21; allowed: up to 20"),
    ("simclr_epochs", {"batch_size": 21}, "batch_size 21; allowed: 2 to 20"),
    ("mobilenetv2_energy", {"image_size": 31}, "image_size 31; allowed: 32 or more"),
    ("mobilenetv2_energy", {"learning_rate": 0.0}, "learning_rate 0.0; allowed: above 0"),
    ("mobilenetv2_energy", {"weights": "trained"}, "weights 'trained'; allowed: imagenet, random"),
    ("mobilenetv2_energy", {"dataset": GREY}, "random has no colours; allowed: images of shape"),
    ("segmentation_scaling", {"width": 0.0}, "width 0.0; allowed: above 0"),
    ("segmentation_scaling", {"dataset": GREY}, "allowed: a mask for each image"),
    ("segmentation_scaling", {"dataset": masks(192)}, "image_size 192; allowed: multiples of 128"),
    ("simclr_epochs", {"variant": "tuned", "data_resident": True}, "data_resident True; allowed: False"),
    ("simclr_epochs", {"dataset": GREY}, r"shape \(20, 28, 28\); allowed: \(n, height, width, 3\)"),
    ("resnet50_cost", {"image_size": 16}, "image_size 16; allowed: 32 or more"),
    ("resnet50_cost", {"learning_rate": 0.0}, "learning_rate 0.0; allowed: above 0"),
    ("resnet50_cost", {"schedule_epochs": 0}, "schedule_epochs 0; allowed: above 0"),
    ("resnet50_cost", {"variant": "tuned", "data_resident": True}, "data_resident True; allowed: False"),
    ("gpt_tokens", {"model": "gpt3"}, "model 'gpt3'; allowed: nanogpt_char, nanogpt_char_small, gpt2_124m"),
    ("gpt_tokens", {"sequence_length": 65}, "sequence_length 65; allowed: 0 to 64"),
    ("gpt_tokens", {"lora_rank": -1}, "lora_rank -1; allowed: 0 to 128"),
    ("gpt_tokens", {"dataset": None}, "dataset None; allowed: a text"),
    ("gpt_tokens", {"model": "nanogpt_char"}, "a part is no longer than a sequence of 256 tokens"),
]


def plan(study: str, framework: str | None = None, **choices):
    device = Device("cpu", "a processor", framework or PLANS[study].FRAMEWORKS[0])
    return PLANS[study](**{"dataset": DATA[study], "device": device, "batch_size": 8} | choices)


def test_every_study_that_trains_has_a_plan_whose_defaults_are_checked():
    assert set(PLANS) == set(DATA)
    for study, made in PLANS.items():
        found = plan(study)
        assert (found.variant, found.MODEL == made.MODEL, found.columns()["num_workers"] >= 0) == (
            "reference",
            True,
            True,
        )


@pytest.mark.parametrize("study", PLANS)
def test_choices_that_make_no_sense_are_refused_by_name_and_value(study):
    variants = ", ".join(PLANS[study].VARIANTS)
    workers = BELOW_ONE_WORKER.get(study, -1)
    for choices, message in (
        ({"variant": "fast"}, f"variant 'fast'; allowed: {variants}"),
        ({"data_resident": True}, "data_resident True; allowed: False with variant reference"),
        ({"num_workers": workers}, f"num_workers {workers}; allowed: "),
        ({"batch_size": 0}, "batch_size 0; allowed: 1 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(study, **choices)


@pytest.mark.parametrize(("study", "choices", "message"), REFUSED)
def test_what_one_study_refuses(study, choices, message):
    for framework in PLANS[study].FRAMEWORKS:
        with pytest.raises(ValueError, match=message):
            plan(study, framework, **choices)


def test_a_batch_that_devices_cannot_share_is_refused():
    """torch's devices have a process each, those of Keras are all in one."""
    two = Device("cpu", "a processor", "tensorflow", count=2)
    for choices in ({"framework": "torch", "group": Group(0, 2)}, {"device": two}):
        with pytest.raises(ValueError, match="batch_size 3; allowed on 2 devices: a multiple of 2"):
            plan("resnet50_cost", batch_size=3, **choices)


@pytest.mark.parametrize("study", PLANS)
def test_a_framework_that_a_study_is_not_written_in_is_refused(study):
    for framework in set(devices.FRAMEWORKS) - set(PLANS[study].FRAMEWORKS):
        with pytest.raises(NotImplementedError, match=f"{framework} with .*; allowed: "):
            plan(study, framework)


def test_plans_import_no_framework():
    """Those who plan must not wait for one, nor hold a device."""
    code = "import sys; from benchbook.studies.plan import plans; plans(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert not {"torch", "tensorflow", "jax", "keras", "mlx", "torchvision", "kornia"} & set(loaded)


@pytest.mark.parametrize(
    ("study", "variant", "kind", "workers"),
    [
        ("mnist_speedup", "reference", "cpu", 0),
        ("mnist_speedup", "reference", "mps", 1),
        ("mnist_speedup", "controlled", "cuda", 5),
        ("vae_stability", "reference", "cpu", 0),
        ("vae_stability", "reference", "cuda", 1),
        ("vae_stability", "controlled", "cpu", 5),
        ("simclr_epochs", "reference", "cpu", 8),
        ("simclr_epochs", "controlled", "mps", 5),
        ("simclr_epochs", "tuned", "cuda", 0),
    ],
)
def test_reference_has_the_articles_workers_and_controlled_those_that_are_chosen(study, variant, kind, workers):
    made = plan(study, device=Device(kind, "a chip"), variant=variant, num_workers=5)
    assert made.columns()["num_workers"] == workers
    if study != "simclr_epochs":
        assert plan(study, variant="controlled", data_resident=True, num_workers=5).workers == 0
