"""Your own network: it is measured as it computes, and errors name what does not fit."""

import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from unittest import mock

import numpy
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.machine import layout
from benchbook.measuring import calibration, parity, window
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.rows import records
from benchbook.studies.your_network import loading, sizes
from benchbook.studies.your_network import plan as your_network
from fakes import run

CPU = devices.pick("cpu")
CODE = """
        import time, numpy, torch, torch.utils.checkpoint
        from torch import nn

        def network(num_classes, width=8):
            convolution = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))

        class LightningModule(nn.Linear):
            # Lightning's class has this name.

            def __init__(self):
                super().__init__(2, 2)

        class Maker:
            @classmethod
            def make(cls):
                return words()

        class Recurrent(nn.Module):
            # Labels each word, with dropout between its layers.

            def __init__(self):
                super().__init__()
                self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(8, 10)
                self.layers = nn.LSTM(4, 8, num_layers=2, dropout=0.5, batch_first=True)

            def forward(self, text):
                return self.head(self.layers(self.embedding(text))[0])

        class Checkpointed(nn.Module):
            # Computes its hidden layer again in the backward pass, with its dropout.

            def __init__(self, reentrant=False):
                super().__init__()
                self.embedding, self.head, self.reentrant = nn.Embedding(10, 4), nn.Linear(4, 10), reentrant
                self.hidden = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5))

            def forward(self, text):
                hidden = self.embedding(text)
                hidden = torch.utils.checkpoint.checkpoint(self.hidden, hidden, use_reentrant=self.reentrant)
                return self.head(hidden)

        class Clamped(torch.autograd.Function):
            # Straight through: the gradient is not that of the value.

            @staticmethod
            def forward(context, hidden):
                return hidden.clamp(-0.1, 0.1)

            @staticmethod
            def backward(context, gradient):
                return gradient

        class Straight(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)

            def forward(self, text):
                return self.head(Clamped.apply(self.embedding(text)))

        class Own(nn.Module):
            # Returns a loss of its own: alone, or next to its logits.

            def __init__(self, alone=False):
                super().__init__()
                self.embedding, self.alone = nn.Embedding(10, 10), alone

            def forward(self, text, labels):
                logits = self.embedding(text)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                return loss if self.alone else (logits, loss)

        def labelled(batch_size, seed):
            random = numpy.random.default_rng(seed)
            return [random.integers(10, size=(batch_size, 3)), random.integers(10, size=(batch_size, 3))]

        def with_labels(batch_size, seed):
            text, labels = labelled(batch_size, seed)
            return {"text": text, "labels": labels}

        def words():
            return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 1))

        def mean_square(outputs, target):
            return ((outputs[:, 0] - target) ** 2).mean()

        def make_batch(batch_size, seed):
            random = numpy.random.default_rng(seed)
            return random.integers(10, size=(batch_size, 3)), random.random(batch_size)

        def columns(batch_size, seed):
            text, targets = make_batch(batch_size, seed)
            return text, targets[:, None]

        def short(batch_size, seed):
            return numpy.zeros((batch_size - 1, 3)), numpy.zeros(batch_size)

        def unlimited(batch_size, seed):
            return {"input": numpy.zeros((64, 3), int)}, numpy.zeros(64)

        def alone(batch_size, seed):
            return numpy.zeros((batch_size, 3))

        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 10

            def __getitem__(self, number):
                time.sleep(0.002)
                return numpy.full((3,), number), 1.0

        def slow(batch_size):
            return torch.utils.data.DataLoader(Slow(), batch_size)

        def generated(batch_size):
            yield from slow(batch_size)

        def of_eight(batch_size):
            return slow(8)

        def empty(batch_size):
            return []

        def letters(batch_size, seed):
            return numpy.array(["a"] * batch_size), numpy.zeros(batch_size)

        def nothing():
            return None

        def fails():
            raise KeyError("planted")

        def squares(outputs, target):
            return (outputs[:, 0] - target) ** 2

        def of_nothing(outputs, target):
            return mean_square(outputs, target) / 0

        number = 3
"""


@pytest.fixture
def own(tmp_path):
    """Write a user's file; return a function from a callable's name in it to the full name."""
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(CODE))
    return lambda name: f"{path}:{name}"


def plan(**choices):
    return your_network.Plan(CPU, **{"image_size": 16, "num_classes": 4, "batch_size": 4} | choices)


def text(own, **choices) -> dict:
    return {"network": own("words"), "example": own("make_batch"), "loss": own("mean_square")} | choices


def test_a_network_on_images_is_trained_checked_and_goes_back(own, tmp_path):
    workload = your_network.build(plan(network=own("network"), arguments="width=6"))
    described = workload.description()
    assert described["model"] == "mine.py:network 11d1a5"
    assert described["dataset_samples"] == 4 * len(list(workload.batches(0))) == 4 * 16
    assert described["flops_per_sample"] == 2 * 16 * 16 * 27 * 6 * 2 + 3 * 2 * 6 * 4
    assert parity.check(workload, run(tmp_path), 3).passed
    record = run(tmp_path / "steps")
    before = your_network.check(workload, record)
    assert your_network.check(workload, record) == pytest.approx(before, rel=1e-6)
    assert records.read(record.path)["samples_per_second"].gt(0).tolist() == [True, True]


def test_rounding_to_half_is_no_fault_and_a_fault_is_none_of_rounding(tmp_path):
    few = {"network": "torchvision.models:mobilenet_v3_small", "image_size": 64, "batch_size": 8}
    workload = your_network.build(plan(**few))
    right = parity.check(workload, run(tmp_path / "right"), 1, "amp_bf16")
    assert right.passed, right.reason
    workload.optimizer.param_groups[0]["momentum"] = 0.0
    still = parity.check(workload, run(tmp_path / "still"), 1, "amp_bf16")
    assert "off the optimiser's" in still.reason


NETWORKS, EXAMPLES = layout.root() / "benchmarks" / "networks.py", layout.root() / "docs" / "examples"
DRAWS = "draws at random"
DETECTION = "torchvision.models.detection:"
PRETRAINED = "weights=None, weights_backbone=None, num_classes=4"


@pytest.mark.parametrize(
    ("network", "choices", "fault"),
    [
        ("lora", {}, ""),
        ("lora", {"precision": "amp_bf16"}, ""),
        ("spectral", {"optimizer": "adamw"}, ""),
        ("random_features", {}, ""),
        ("half", {"says": "bf16"}, ""),
        ("function", {}, ""),
        ("function", {"arguments": "name='rounded'"}, ""),
        ("function", {"arguments": "name='reversed'"}, ""),
        ("lazy", {}, ""),
        ("library", {}, ""),
        ("heads", {}, ""),
        ("gpt", {"example": "text"}, ""),
        ("gpt", {"example": "text", "precision": "amp_bf16"}, ""),
        ("gpt", {"example": "text", "arguments": "fused=False"}, ""),
        ("noisy", {}, DRAWS),
        ("casting", {}, "F.linear"),
        ("sparse", {"example": "bag"}, ""),
        ("graph", {"example": "graph_batch", "batch_size": 40}, ""),
        (f"{EXAMPLES}/transformer.py:transformer", {"example": "make_batch", "loss": "next_character"}, ""),
        pytest.param(f"{EXAMPLES}/unet.py:unet", {"example": "make_batch", "loss": "loss"}, "", marks=pytest.mark.slow),
        (f"{DETECTION}ssdlite320_mobilenet_v3_large", {"example": "boxes", "arguments": PRETRAINED}, ""),
        ("torchvision.models:googlenet", {"image_size": 64, "arguments": "init_weights=False, num_classes=10"}, ""),
    ],
    ids=str,
)
def test_what_networks_have_is_compared_as_it_is_computed(network, choices, fault, tmp_path):
    named = {"num_classes": 10} | choices | {"network": network if ":" in network else f"{NETWORKS}:{network}"}
    precision, says = named.pop("precision", "fp32"), named.pop("says", choices.get("precision", "fp32"))
    file = NETWORKS if "torchvision" in network else named["network"].rpartition(":")[0]
    named |= {choice: f"{file}:{named[choice]}" for choice in ("example", "loss") if choice in named}
    workload = your_network.build(plan(**named), Settings(precision))
    record = run(tmp_path)
    your_network.check(workload, record)
    verdict = parity.check(workload, record, 1)
    assert (fault in verdict.reason, verdict.passed) == (True, not fault)
    rows = records.read(record.path)
    assert set(rows["precision"]) == {says}
    assert rows["flops_per_sample"].gt(0).all()
    assert set(records.without_refusals(rows)["status"]) <= {"ok"}  # an undecided result is not a failure


@pytest.mark.parametrize(
    ("network", "choices"),
    [
        ("Recurrent", {}),
        ("Checkpointed", {}),
        ("Checkpointed", {"arguments": "reentrant=True"}),
        ("Straight", {}),
        ("Own", {"example": "with_labels"}),
        ("Own", {"example": "with_labels", "arguments": "alone=True"}),
        ("Maker.make", {"example": "make_batch", "loss": "torch.nn:MSELoss"}),
    ],
)
def test_what_people_write_is_measured_and_compared(own, tmp_path, network, choices):
    named = {"network": own(network), "num_classes": 10} | choices
    named["example"] = own(choices.get("example", "labelled"))
    if named.get("loss"):
        named["example"] = own("columns")
    workload = your_network.build(plan(**named))
    your_network.check(workload, run(tmp_path / "step"))
    verdict = parity.check(workload, run(tmp_path), 3)
    assert verdict.passed, verdict.reason


def test_networks_of_one_callables_name_are_different_work():
    names = [
        ("timm:create_model", "model_name='resnet18'"),
        ("timm:create_model", "model_name='resnet50'"),
        ("/home/somebody/one.py:Net", ""),
        ("two.py:Net", ""),
        ("package.two:Net", ""),
    ]
    found = [your_network.identity(*name) for name in names]
    assert len(set(found)) == len(names)
    assert found[2] == "one.py:Net"


def test_any_batch_and_loss_can_be_described(own, tmp_path):
    workload = your_network.build(plan(**text(own, optimizer="adam", learning_rate=0.05)))
    assert parity.check(workload, run(tmp_path), 3).passed
    batches = list(workload.batches(0))
    losses = [workload.mean_loss([workload.step(batch)]) for batch in batches * 4]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("loader", ["slow", "generated"])
def test_a_loader_is_trained_on_and_its_wait_counts(own, tmp_path, loader):
    workload = your_network.build(plan(**text(own, example="", loader=own(loader))))
    batches = [list(workload.batches(epoch)) for epoch in range(2)]
    assert [len(epoch) for epoch in batches] == [2, 2]  # of four samples each; the last two samples are no batch
    assert batches[0][1][0].tolist() == [[number] * 3 for number in range(4, 8)]
    assert workload.description()["dataset"] == "loader"
    assert parity.check(workload, run(tmp_path), 3).passed
    assert window.train_window(workload, NO_SENSOR, workload.batches(0))["input_seconds"] >= 2 * 4 * 0.002


def test_a_plan_goes_to_the_process_of_a_trial_that_does_not_know_the_users_file(own, monkeypatch):
    chosen = plan(**text(own))
    batch = next(chosen.batches(0))
    sent = pickle.dumps(chosen)
    loading._run.cache_clear()
    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in own("words")])
    for part, same in zip(batch, next(pickle.loads(sent).batches(0)), strict=True):
        numpy.testing.assert_array_equal(part, same)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"network": "OWN:number"}, "number is not callable"),
        ({"network": "OWN:nothing"}, "returns a builtins.NoneType; allowed: torch.nn.Module"),
        ({"network": "OWN:fails"}, r"network .*, called with \(\), raised KeyError: 'planted'"),
        ({"network": "OWN:network", "arguments": "depth=2"}, "called with .*depth=2.* raised TypeError"),
        ({"network": "OWN:network", "channels": 1}, r"a step of mine.py:network on a batch of \(float32 .* raised"),
        ({"network": "OWN:words", "example": "OWN:make_batch"}, "^network .* allowed with num_classes 4"),
        ({"example": "OWN:short"}, r"shape \((3|1), 3\) for batch_size (4|2); allowed: \((4|2), ...\)"),
        ({"example": "OWN:unlimited", "batch_size": 32}, "returns 64 inputs for 2 and for 32 samples; allowed"),
        ({"network": "OWN:LightningModule"}, "is a LightningModule, whose training_step is not run here"),
        ({"network": "OWN:network.nothing"}, "network.nothing is not in it; it has of_nothing"),
        ({"example": "OWN:alone"}, r"returns a ndarray; allowed: \(inputs, target\)"),
        ({"example": "OWN:letters"}, "returns an array of <U1; allowed: numbers"),
        ({"example": "OWN:nothing"}, r"example .*, called with \((4|2), 1\), raised TypeError"),
        ({"example": "", "loader": "OWN:empty"}, r"loader .* returns inputs of shape \(\) for batch_size"),
        (
            {"example": "", "loader": "OWN:of_eight"},
            r"loader .* of shape \(8, 3\) for batch_size (4|2);",
        ),
        ({"example": "", "loader": "OWN:number"}, "number is not callable"),
        ({"example": "", "loader": "OWN:nothing"}, r"loader .*, called with \((4|2)\), raised TypeError"),
        ({"loader": "OWN:slow"}, "example .* and loader .*; allowed: one of them"),
        ({"loss": "OWN:squares"}, "loss .* returns shape .*allowed: a scalar"),
        ({"loss": "OWN:nothing"}, "a step of mine.py:words on a batch of .* raised TypeError"),
        ({"loss": "OWN:of_nothing"}, "the loss of the first step is (nan|inf); allowed: a finite number"),
        ({"optimizer": "lion"}, "optimizer 'lion'; allowed: sgd, adam, adamw"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said_with_what_is_allowed(own, tmp_path, choices, message):
    named = {
        name: own(value.removeprefix("OWN:")) if str(value).startswith("OWN:") else value
        for name, value in choices.items()
    }
    if "network" not in named:
        named = text(own, **named)
    with pytest.raises(ValueError, match=message):
        your_network.check(your_network.build(plan(**named)), run(tmp_path))


def test_every_batch_size_is_a_row_and_one_that_fails_ends_it(own, tmp_path):
    record, chosen = run(tmp_path), plan(**text(own))

    def build(batch_size: int):
        if batch_size == 16:
            raise MemoryError("out of memory, planted")
        return your_network.build(replace(chosen, batch_size=batch_size), Settings())

    sizes.try_each(build, record, sizes.read("16 2 8 32"), 0.01)
    rows = records.read(record.path)
    assert rows["batch_size"].tolist() == [2, 2, 8, 8, 16]
    assert rows["status"].tolist() == ["ok"] * 4 + ["out_of_memory"]
    assert (rows["samples"][:4] % rows["batch_size"][:4] == 0).all()
    with pytest.raises(ValueError, match="batch_sizes '4 -2'; allowed: whole numbers"):
        sizes.read("4 -2")


def test_products_of_matrices_take_a_tenth_of_the_time_of_training(tmp_path, monkeypatch):
    def multiply(device, record, budget):
        record.append(phase="calibrate", model="matmul", status="unsupported", message=str(budget.window_seconds))

    monkeypatch.setattr(calibration, "measure_arithmetic", multiply)
    given = {"window_seconds": 2.0, "batch_size": 4, "batch_sizes": ""}
    process = mock.Mock(device=CPU, parameters=given, run=run(tmp_path))
    your_network.Plan.measure(process)
    assert records.read(process.run.path)["message"].tolist() == ["0.2"]
    process.is_first = False
    your_network.Plan.measure(process)
    assert len(records.read(process.run.path)) == 1


def test_a_file_is_described_by_name_digest_and_commit_alone(own, tmp_path):
    before = loading.origins({"network": own("words"), "loss": "", "example": "numpy.random:random"})
    assert list(before) == ["network"]
    assert before["network"]["file"] == "mine.py"
    assert before["network"]["commit"] is None
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", tmp_path, *who, *command], check=True)
    kept = loading.origins({"network": own("words")})["network"]
    assert len(kept["commit"]) == 12
    with (tmp_path / "mine.py").open("a") as file:
        file.write("# changed\n")
    changed = loading.origins({"network": own("words")})["network"]
    assert changed["commit"] == f"{kept['commit']}+changed"
    assert changed["sha256"] != kept["sha256"] == before["network"]["sha256"]
