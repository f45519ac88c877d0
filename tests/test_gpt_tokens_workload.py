"""GPT: sizes, schedule, operations, the same function in all settings, and faults that parity
must find."""

import dataclasses
import functools
import math

import pandas
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchbook import datasets
from benchbook.frameworks.devices import Device
from benchbook.frameworks.torch.runtime import flops_per_sample
from benchbook.frameworks.workload import Settings
from benchbook.judging import confirmation
from benchbook.measuring import parity
from benchbook.record import articles, claims
from benchbook.studies.experiments.process import Process
from benchbook.studies.gpt_tokens import network_torch, study
from benchbook.studies.gpt_tokens import plan as gpt
from benchbook.studies.gpt_tokens.network_torch import Attention, LoraLinear, Network
from benchbook.studies.results import quantities
from benchbook.studies.results.evidence import Evidence
from made.fakes import CPU, run
from made.rows import make_rows, windows

SMALL = "nanogpt_char_small"
pytestmark = pytest.mark.usefixtures("own_random_state", "no_sensor")


@pytest.fixture(scope="module")
def text():
    return datasets.load("excerpt")


@pytest.fixture
def with_biases(monkeypatch):
    """Give the small network biases, as in GPT-2."""
    monkeypatch.setitem(gpt.SHAPES, SMALL, dataclasses.replace(gpt.SHAPES[SMALL], has_biases=True))


def small(text, *words: str, **options):
    """Return the small network on short sequences, with the settings in these words."""
    sizes = {
        "batch_size": 4,
        "sequence_length": 32,
        "data_resident": True,
        "settings": gpt.read_settings(" ".join(words)),
    }
    return gpt.Plan.build(text, CPU, "controlled", **sizes | options)


@pytest.mark.parametrize(
    ("model", "options", "parameters", "trained"),
    [
        ("gpt2_124m", {}, 124_439_808, 124_439_808),  # as transformers counts GPT-2
        (
            "gpt2_124m",
            {"lora_rank": 8},
            124_734_720,
            294_912,
        ),  # as PEFT counts its default for GPT-2, at rank 8
        (
            "nanogpt_char",
            {},
            10_745_088,
            10_745_088,
        ),  # nanoGPT prints 10.65M, without the 98,304 of positions
        (SMALL, {}, 804_096, 804_096),  # nanoGPT prints 0.80M
    ],
)
def test_a_network_has_as_many_parameters_as_others_count_and_operations_as_torch_counts(
    text, model, options, parameters, trained
):
    shape = gpt.SHAPES[model]
    whole = (
        None
        if shape.vocabulary
        else dataclasses.replace(text, characters="".join(map(chr, range(65))))
    )
    made = gpt.Plan(whole, CPU, model=model, sequence_length=min(shape.context, 256), **options)
    with torch.device("meta"):
        network = Network(made)
    assert sum(part.numel() for part in network.parameters()) == parameters
    assert sum(part.numel() for part in network.parameters() if part.requires_grad) == trained
    counted = flops_per_sample(
        network, torch.zeros(2, made.length, dtype=torch.long, device="meta")
    )
    assert network_torch.counts(made, network)["flops_per_sample"] == pytest.approx(
        counted, rel=0.02
    )


def test_the_learning_rate_rises_and_falls_as_nanogpt_has_it(text):
    made = gpt.Plan(text, CPU)
    expected = {
        0: 1e-3 / 101,
        99: 1e-3 * 100 / 101,
        100: 1e-3,
        1050: 5.5e-4,
        2000: 1e-4,
        5000: 1e-4,
    }
    assert {step: made.rate(step) for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize("words", ["", "fused_attention"])
def test_attention_drops_at_random_in_training_alone(text, monkeypatch, words):
    monkeypatch.setitem(gpt.SHAPES, SMALL, dataclasses.replace(gpt.SHAPES[SMALL], dropout=0.5))
    workload = small(text, *words.split())
    attention, parts = workload.model.blocks[0].attention, torch.randn(3, 2, 4, 32, 32)
    assert not torch.equal(attention.mix(*parts), attention.mix(*parts))
    workload.model.eval()
    assert torch.equal(attention.mix(*parts), attention.mix(*parts))


def test_the_test_has_each_token_once(text):
    batches = [*small(text).test_batches()]
    inputs = torch.cat([batch[0].flatten() for batch in batches])
    assert inputs.tolist() == text.test[: len(inputs)].tolist()
    assert 0 < len(text.test) - len(inputs) <= 33
    assert small(text, num_test_sequences=3).evaluate().samples == 3


def passes(workload, folder) -> bool:
    return parity.check(workload, run(folder), 2).passed


@pytest.mark.parametrize("words", ["", "amp_bf16", "fused_attention padded fused"])
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_every_setting_is_the_same_function_and_passes(
    text, tmp_path, with_biases, words, lora_rank
):
    plain, made = (
        small(text, *each, lora_rank=lora_rank).description() for each in ([], words.split())
    )
    assert {**made, "precision": "fp32", "settings": ""} == {**plain, "settings": ""}
    assert passes(small(text, *words.split(), lora_rank=lora_rank), tmp_path)


def later(diagonal):
    def plant(workload, monkeypatch):
        for block in workload.model.blocks:
            block.attention.masked = torch.ones(64, 64).triu(diagonal).bool()

    return plant


def optimizing(**values):
    def plant(workload, monkeypatch):
        for group in workload.optimizer.param_groups:
            group.update(values)

    return plant


def unscaled(workload, monkeypatch):
    right = Attention.explicit
    for block in workload.model.blocks:

        def mix(query, key, value, own=block.attention):
            return right(own, query * query.shape[-1] ** 0.5, key, value)

        monkeypatch.setattr(block.attention, "mix", mix)


def untied(workload, monkeypatch):
    own, last = F.linear, workload.model.tokens.weight

    def detached(hidden, weight, *rest):
        return own(hidden, weight.detach() if weight is last else weight, *rest)

    monkeypatch.setattr(network_torch.F, "linear", detached)


FAULTS = {
    "mask off by one": later(2),
    "no mask": later(64),
    "no 1/sqrt(d)": unscaled,
    "decayed biases": optimizing(weight_decay=0.1),
    "no decay": optimizing(weight_decay=0.0),
    "no clipping": lambda workload, monkeypatch: setattr(workload, "max_norm", 0.0),
    "other momentum": optimizing(betas=(0.5, 0.99)),
    "no gradient by the last layer": untied,
    "another learning rate": lambda workload, _: setattr(
        workload.scheduler, "lr_lambdas", [lambda step: 0.5] * 2
    ),
}


@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_fails(text, tmp_path, with_biases, monkeypatch, plant):
    workload = small(text, "amp_bf16")  # whose tolerances are the wider ones
    plant(workload, monkeypatch)
    assert not passes(workload, tmp_path)


def test_adapters_of_half_their_size_fail(text, tmp_path, monkeypatch):
    adapted = small(text, lora_rank=4)

    def half(self, hidden):
        whole = nn.Linear.forward(self, hidden)
        return whole + F.linear(F.linear(hidden, self.down), self.up) / 2

    monkeypatch.setattr(LoraLinear, "forward", half)
    assert not passes(adapted, tmp_path)


def test_random_tokens_are_one_batch_of_sequences(monkeypatch):
    monkeypatch.setitem(gpt.SHAPES, SMALL, dataclasses.replace(gpt.SHAPES[SMALL], vocabulary=65))
    made = small(None, steps_per_epoch=3)
    first, *others = made.batches(0)
    assert [len(others), *first[0].shape] == [2, 4, 32]
    assert all(torch.equal(first[0], other[0]) for other in others)
    assert torch.equal(first[0][:, 1:], first[1][:, :-1])
    assert (float(made.step(first)), made.evaluate().samples) == (
        pytest.approx(math.log(65), abs=0.2),
        4,
    )


def test_only_an_m1_and_an_m2_are_refused_steps_of_more_tokens_than_their_products_hold(text):
    for device in (
        Device("mps", "Apple M3"),
        Device("cpu", "Apple M1"),
        Device("cuda", "NVIDIA A100"),
    ):
        assert gpt.Plan(text, device, model="nanogpt_char", batch_size=128).batch_size == 128


def test_what_a_search_tries_is_a_transformers():
    tried = [
        next(iter(change))
        for change in gpt.Plan.candidates(Device("cuda", "NVIDIA A100", capability=8.0))
    ]
    assert tried == ["precision"] * 3 + ["fused_attention", "padded", "fused", "compiled", "graphs"]


def test_windows_with_a_setting_alternate_with_those_without_and_change_nothing(text, tmp_path):
    make = functools.partial(
        gpt.Plan.build, text, CPU, "controlled", batch_size=2, sequence_length=8
    )
    process = Process({"window_seconds": 0.001}, CPU, run(tmp_path), make=make)
    process.workload = make(settings=gpt.read_settings("fused"))
    batch = next(process.workload.batches(0))
    before = [part.copy() for part in process.workload.trained_weights()]
    process.alternate(Settings())
    rows = process.run.rows()
    assert [settings["side"][0] for settings in rows["settings"]] == list("rttrrttr")
    assert confirmation.ratio(rows).kind == "range"  # one process
    again = process.workload.trained_weights()
    assert all((old == new).all() for old, new in zip(before, again, strict=True))
    assert process.workload.num_samples(batch) == 2


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_claimed_step_of_the_ladder_is_confirmed_by_windows_that_alternate(is_paired):
    """Five processes measure exactly the claimed 2.21 times, at rates of their own."""
    common = {"study": "gpt_tokens", "variant": "controlled", "device": "cuda"}
    common |= {"device_name": "NVIDIA A100", "model": "gpt2_124m", "dataset": "synthetic"}
    common |= {"framework": "torch", "sequence_length": 1024, "batch_size": 8, "phase": "train"}
    rows, sides = [], {"reference": 1.0, "tuned": 2.21}
    for place, rate in enumerate((9.0, 10.0, 11.0, 12.0, 13.0)):
        for words, factor in zip(("", "tf32"), sides.values(), strict=True):
            own = {"point": f"p{words}", "run_id": f"{words}{place}", "settings": {"ladder": words}}
            own |= {"precision": words or "fp32"}
            rows += windows([rate * factor] * 2, **common | own)
        if is_paired:
            for index, (side, factor) in enumerate(sides.items()):
                stated = {"ladder": "tf32", "side": side}
                paired = {"phase": "confirm", "index": index, "settings": stated}
                rows += windows([rate * factor], **common | own | paired)
    evidence = Evidence(pandas.concat([make_rows(rows), articles.rows()], ignore_index=True))
    lines = claims.table(claims.read(), quantities.gather(evidence, [study.STUDY]))
    lines = lines[lines["id"].eq("gpt-ladder-tf32") & lines["source"].eq("measured")]
    assert lines["verdict"].tolist() == [claims.CONFIRMED if is_paired else claims.UNDECIDED]
    assert lines["value"].tolist() == pytest.approx([2.21])
