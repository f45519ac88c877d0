"""Batches that cannot fit into memory are not tried; torch's share of a Mac's memory is set in
its processes alone."""

import dataclasses
import os
import re

import pytest
import yaml

from benchbook.machine import context, identity, kinds, launch, layout, nvidia
from benchbook.rows import networks, records
from benchbook.running import profiles, series, session
from benchbook.running.profiles import Point
from made.small import has

with pytest.MonkeyPatch.context() as patch:
    has(patch, {"torch": ("mps",)})
    PAPER = profiles.read("paper", "resnet50_cost gpt_tokens")


def points(study="resnet50_cost", variant="reference"):
    own = [each for each in PAPER if each.study == study and each.parameters["variant"] == variant]
    own = [each for each in own if each.parameters.get("model", "gpt2_124m") == "gpt2_124m"]
    return {
        each.parameters["batch_size"]: each for each in own if not each.parameters.get("lora_rank")
    }


def resized(point: Point, **parameters) -> Point:
    return dataclasses.replace(point, parameters=point.parameters | parameters)


def test_after_a_batch_that_did_not_fit_larger_ones_of_its_series_are_not_tried(monkeypatch):
    monkeypatch.setattr(series, "memory_bytes", lambda kind: None)
    own = points()
    assert "batch_size 128 did not fit" in series.too_large(own[256], [own[128], own[512]])
    assert not series.too_large(own[64], [own[128]])
    assert not series.too_large(own[256], [resized(own[128], variant="tuned")])
    assert not series.too_large(own[256], [resized(own[128], precision="amp_fp16")])


@pytest.mark.parametrize(("study", "largest"), [("resnet50_cost", 64), ("gpt_tokens", 4)])
def test_on_8_gb_batches_that_the_memory_model_refuses_are_not_tried(monkeypatch, study, largest):
    monkeypatch.setattr(series, "memory_bytes", lambda kind: 8 * 2**30)
    tried = [size for size, point in points(study).items() if not series.too_large(point, [])]
    assert largest <= max(tried) < 4 * largest
    assert min(tried) == 1


GB = 2**30
MEMORY = {
    "cpu": ([], 8 * GB),
    "mps": ([], int(networks.UNIFIED * 8 * GB) - GB),
    "metal": ([], int(networks.UNIFIED * 8 * GB) - GB),
    "cuda": ([("NVIDIA L4", 24 * GB), ("NVIDIA T4", 16 * GB)], 16 * GB),
    "cuda, GB10": ([("NVIDIA GB10", None)], 8 * GB),
    "cuda, Orin": ([], 8 * GB),
    "rocm": ([("NVIDIA T4", 16 * GB)], None),
    "tpu": ([], None),
}


@pytest.mark.parametrize("name", MEMORY)
def test_the_memory_of_a_device_is_its_own_or_its_part_of_the_computers(monkeypatch, name):
    cards, expected = MEMORY[name]
    monkeypatch.setattr(nvidia, "kinds", lambda: cards)
    monkeypatch.setattr(identity, "memory_bytes", lambda: 8 * GB)
    assert series.memory_bytes(name.partition(",")[0]) == expected


# Points of the profile `paper` on a Mac with so many GB, and whether they are tried there.
AIR = """
8  mobilenetv2_energy   {image_size: 128, batch_size: 64, trainable: true, framework: tensorflow}  true
8  mobilenetv2_energy   {image_size: 196, batch_size: 64, trainable: true, framework: tensorflow}  true
8  mobilenetv2_energy   {image_size: 224, batch_size: 64, trainable: true, framework: tensorflow}  false
8  mobilenetv2_energy   {image_size: 224, batch_size: 64, trainable: false, framework: tensorflow} true
16 mobilenetv2_energy   {image_size: 256, batch_size: 64, trainable: true, framework: tensorflow}  true
8  segmentation_scaling {image_size: 512, batch_size: 16, framework: tensorflow} false
8  segmentation_scaling {image_size: 512, batch_size: 1, framework: tensorflow}  true
8  segmentation_scaling {image_size: 128, batch_size: 16, framework: tensorflow} true
8  segmentation_scaling {image_size: 512, batch_size: 64, width: 0.25, framework: tensorflow} true
16 segmentation_scaling {image_size: 512, batch_size: 16, framework: tensorflow} true
16 segmentation_scaling {image_size: 512, batch_size: 32, framework: tensorflow} false
"""


@pytest.mark.parametrize("line", AIR.strip().splitlines())
def test_a_mac_tries_what_does_not_swap(monkeypatch, line):
    gigabytes, study, given, is_tried = re.fullmatch(r"(\d+) +(\w+) +({.*}) +(\w+)", line).groups()
    monkeypatch.setattr(identity, "memory_bytes", lambda: int(gigabytes) * GB)
    chosen = yaml.safe_load(given) | {"device": "metal", "variant": "reference"}
    refused = series.too_large(Point(study, "p", chosen, 60), [])
    assert (not refused) == (is_tried == "true"), refused


@pytest.mark.parametrize("gigabytes", [8, 16])
def test_a_plan_counts_no_point_that_is_not_tried(monkeypatch, outputs, command, gigabytes):
    has(monkeypatch, {"tensorflow": ("metal",)})
    monkeypatch.setattr(identity, "memory_bytes", lambda: gigabytes * GB)
    words = "mobilenetv2_energy", "--device", "metal", "--machine", "air"
    status, said = command("plan", "--profile", "paper", "--studies", *words)
    assert status == 0
    assert ("Not tried, for want of memory: 2 points." in said) == (gigabytes == 8), said
    assert ("224 px" in said) == (gigabytes == 16)


def test_a_session_writes_a_row_for_a_batch_that_it_does_not_try(outputs, monkeypatch):
    own = points()
    large = resized(own[512], device="cpu")
    context.change(session="a-session")
    monkeypatch.setattr(series, "memory_bytes", lambda kind: 2**30)
    assert session.Session([large], "desk").run() == []
    assert session.is_done(layout.state("desk") / large.study / large.name)
    (row,) = records.merge(layout.runs("desk")).to_dict("records")
    assert row["status"] == "out_of_memory"
    assert row["message"].startswith("not tried")


def watermarks() -> dict:
    """Answer as torch's allocator does, which refuses a low mark above the high one."""
    low, high = (os.environ.get(f"PYTORCH_MPS_{name}_WATERMARK_RATIO") for name in ("LOW", "HIGH"))
    if float(low or 1.4) > float(high or 1.7):
        raise ValueError(f"invalid low watermark ratio {low}")
    return {"low": low, "high": high}


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        ({}, ("0.9", "1.0")),
        ({"HIGH": "1.5"}, (None, "1.5")),
        ({"LOW": "0.5", "HIGH": "0.6"}, ("0.5", "0.6")),
    ],
)
def test_a_process_on_mps_takes_no_more_than_metal_recommends_unless_the_user_says_so(
    tmp_path, monkeypatch, own, seen
):
    for name in ("LOW", "HIGH"):
        monkeypatch.delenv(f"PYTORCH_MPS_{name}_WATERMARK_RATIO", raising=False)
    for name, value in own.items():
        monkeypatch.setenv(f"PYTORCH_MPS_{name}_WATERMARK_RATIO", value)
    before, added = dict(os.environ), kinds.environment("mps", os.environ)
    result, failed = launch.call(f"{__name__}:watermarks", log=tmp_path / "log", variables=added)
    if seen == (None, "1.5"):  # torch's own low mark of 1.4 is below
        assert result == {"low": None, "high": "1.5"}
    else:
        assert (result["low"], result["high"]) == seen
    assert failed is None
    assert dict(os.environ) == before
    assert kinds.environment("tpu", {}) == {}
