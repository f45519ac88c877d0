"""GPT on MLX: torch's function from torch's first weights, steps that float64 confirms, and
planted faults."""

import dataclasses

import pytest

from benchbook import datasets
from benchbook.frameworks.devices import Device
from benchbook.measuring import parity
from benchbook.studies.gpt_tokens import plan as gpt
from made.fakes import run

pytestmark = pytest.mark.frameworks("mlx")
SMALL = "nanogpt_char_small"


@pytest.fixture(autouse=True)
def _with_biases(framework, monkeypatch):
    monkeypatch.setitem(gpt.SHAPES, SMALL, dataclasses.replace(gpt.SHAPES[SMALL], has_biases=True))


def build(words="", framework="mlx", **options):
    sizes = {
        "batch_size": 4,
        "sequence_length": 16,
        "data_resident": True,
        "settings": gpt.read_settings(words),
    }
    device = Device("cpu", "a CPU", framework)
    return gpt.Plan.build(datasets.load("excerpt"), device, "controlled", **sizes | options)


def passes(workload, folder):
    return parity.check(workload, run(folder), 2).passed


@pytest.mark.parametrize("words", ["", "amp_bf16", "fused_attention compiled"])
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_steps_are_those_of_float64(words, lora_rank, tmp_path):
    assert passes(build(words, lora_rank=lora_rank), tmp_path)


@pytest.mark.parametrize("name", ["no mask", "no clipping", "no rise"])
def test_a_planted_fault_fails(name, tmp_path, monkeypatch):
    import mlx.core as mx

    workload, own = build("fused_attention"), mx.fast.scaled_dot_product_attention
    if name == "no mask":
        monkeypatch.setattr(
            mx.fast,
            "scaled_dot_product_attention",
            lambda *given, mask, **more: own(*given, **more),
        )
    elif name == "no clipping":
        workload.max_norm = 0.0
    else:  # the first steps' rates instead of those after the warm-up
        monkeypatch.setattr(type(workload), "advance_schedule", lambda self, count: None)
    assert not passes(workload, tmp_path)


def test_what_mlx_lacks_is_refused():
    with pytest.raises(
        NotImplementedError, match="allowed with MLX: precision, compiled, fused_attention"
    ):
        build("padded")
    with pytest.raises(
        NotImplementedError, match=r"fused_attention with dropout .* on MLX; allowed: dropout 0"
    ):
        build("fused_attention", model="nanogpt_char")
