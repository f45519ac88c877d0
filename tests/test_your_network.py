"""Your own network: it is measured as it computes, and errors name what does not fit."""

import textwrap
from unittest import mock

import pytest
import torch

from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.machine import layout
from benchbook.measuring import calibration, parity, protocol, window
from benchbook.measuring.sensors import NO_SENSOR
from benchbook.rows import records
from benchbook.studies.your_network import loading
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

        class Flat(nn.Linear):
            # Returns a number for each picture.

            def __init__(self):
                super().__init__(3 * 16 * 16, 1)

            def forward(self, images):
                return super().forward(images.flatten(1))[:, 0]

        class Halves(nn.Flatten):
            # Returns two outputs that are no logits, as an autoencoder does.

            def forward(self, images):
                return super().forward(images).split([300, 468], 1)

        def pictures(batch_size):
            return [(random.random((batch_size, 3, 16, 16)), random.random(batch_size))]

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

        class Own(nn.Module):
            # Returns a loss of its own: alone, or next to its logits.

            def __init__(self, alone=False):
                super().__init__()
                self.embedding, self.alone = nn.Embedding(10, 10), alone

            def forward(self, text, labels):
                logits = self.embedding(text)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                return loss if self.alone else (logits, loss)

        class Coin(nn.Module):
            # Leaves its middle layer out of half of its steps.

            def __init__(self):
                super().__init__()
                self.first, self.middle, self.last = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 10)

            def forward(self, text):
                hidden = self.first(text)
                return self.last(hidden + self.middle(hidden) if torch.rand(()) < 0.5 else hidden)

        class Scaled(Coin):
            # Divides by the largest size so far, as a quantised network does; wrong ones divide by their own.

            def __init__(self, wrong=False):
                super().__init__()
                self.wrong = wrong
                self.register_buffer("largest", torch.tensor(0.1))

            def forward(self, text, return_loss=True):
                hidden = self.first(text)
                self.largest.copy_(torch.maximum(1.1 * self.largest, hidden.detach().abs().max()))
                is_wrong = self.wrong and hidden.dtype == torch.float32
                logits = self.last(hidden / (2 if is_wrong else 1) / self.largest)
                return nn.functional.cross_entropy(logits.flatten(0, 1), text.flatten()) if return_loss else logits

        random = numpy.random.default_rng(1)

        def flagged(batch_size):
            return [{"return_loss": True, "text": text} for text, _ in labelled(batch_size)]

        def labelled(batch_size):
            shape = (4, 2, batch_size, 3)
            return [list(batch) for batch in random.integers(10, size=shape)]

        def with_labels(batch_size):
            return [dict(zip(("text", "labels"), batch)) for batch in labelled(batch_size)]

        def words():
            return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 1))

        def mean_square(outputs, target):
            return ((outputs[:, 0] - target) ** 2).mean()

        def make_batches(batch_size):
            return [(random.integers(10, size=(batch_size, 3)), random.random(batch_size)) for _ in range(4)]

        def columns(batch_size):
            return [(text, targets[:, None]) for text, targets in make_batches(batch_size)]

        def short(batch_size):
            return make_batches(batch_size - 1)

        def unlimited(batch_size):
            return [({"input": numpy.zeros((64, 3), int)}, numpy.zeros(64))]

        def alone(batch_size):
            return [numpy.zeros((batch_size, 3))]

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

        def letters(batch_size):
            return [(["a"] * batch_size, numpy.zeros(batch_size))]

        def nothing(*given):
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


def build(settings=Settings(), **choices):  # noqa: B008 (it is immutable)
    return your_network.Plan.build(
        None, CPU, settings=settings, **{"image_size": 16, "batch_size": 4} | choices
    )


def text(own, **choices) -> dict:
    return {
        "network": own("words"),
        "loader": own("make_batches"),
        "loss": own("mean_square"),
    } | choices


def test_a_network_on_images_is_trained_checked_and_goes_back(own, tmp_path):
    workload = build(network=own("network"), arguments="num_classes=4, width=6")
    described = workload.description()
    assert described["model"] == "mine.py:network e99b88"
    assert described["flops_per_sample"] == 2 * 16 * 16 * 27 * 6 * 2 + 3 * 2 * 6 * 4
    labels = {int(label) for _, target in workload.batches(0) for label in target}
    assert labels <= set(range(4))  # the network's classes
    assert parity.check(workload, run(tmp_path), 3).passed
    record = run(tmp_path / "steps")
    protocol.first_step(workload, record)
    protocol.first_step(workload, record)
    losses = record.rows()["loss"]
    assert losses.iloc[0] == pytest.approx(losses.iloc[1], rel=1e-6)


def test_rounding_to_half_is_no_fault_and_a_fault_is_none_of_rounding(tmp_path):
    few = {"arguments": "num_classes=4", "image_size": 64, "batch_size": 8}
    workload = build(network="torchvision.models:mobilenet_v3_small", **few)
    right = parity.check(workload, run(tmp_path / "right"), 1, "amp_bf16")
    assert right.passed, right.reason
    workload.optimizer.param_groups[0]["momentum"] = 0.0
    still = parity.check(workload, run(tmp_path / "still"), 1, "amp_bf16")
    assert "off the optimiser's" in still.reason


NETWORKS, EXAMPLES = (
    layout.root() / "benchmarks" / "networks.py",
    layout.root() / "docs" / "examples",
)
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
        ("function", {"arguments": "num_classes=10, name='rounded'"}, ""),
        ("function", {"arguments": "num_classes=10, name='reversed'"}, ""),
        ("lazy", {}, ""),
        ("library", {}, ""),
        ("heads", {}, ""),
        ("gpt", {"loader": "text"}, ""),
        ("gpt", {"loader": "text", "precision": "amp_bf16"}, ""),
        ("gpt", {"loader": "text", "arguments": "fused=False"}, ""),
        ("noisy", {}, DRAWS),
        ("casting", {}, "F.linear"),
        ("sparse", {"loader": "bag"}, ""),
        ("graph", {"loader": "graph_batch", "batch_size": 40}, ""),
        (
            f"{EXAMPLES}/transformer.py:transformer",
            {"loader": "make_batches", "loss": "next_character"},
            "",
        ),
        pytest.param(
            f"{EXAMPLES}/unet.py:unet",
            {"loader": "make_batches", "loss": "loss"},
            "",
            marks=pytest.mark.slow,
        ),
        (
            f"{DETECTION}ssdlite320_mobilenet_v3_large",
            {"loader": "boxes", "arguments": PRETRAINED},
            "",
        ),
        (
            "torchvision.models:googlenet",
            {"image_size": 64, "arguments": "init_weights=False, num_classes=10"},
            "",
        ),
    ],
    ids=str,
)
def test_what_networks_have_is_compared_as_it_is_computed(network, choices, fault, tmp_path):
    named = {"arguments": "" if "loader" in choices else "num_classes=10"} | choices
    named |= {"network": network if ":" in network else f"{NETWORKS}:{network}"}
    precision, says = (
        named.pop("precision", "fp32"),
        named.pop("says", choices.get("precision", "fp32")),
    )
    file = NETWORKS if "torchvision" in network else named["network"].rpartition(":")[0]
    named |= {choice: f"{file}:{named[choice]}" for choice in ("loader", "loss") if choice in named}
    workload = build(Settings(precision), **named)
    record = run(tmp_path)
    protocol.first_step(workload, record)
    verdict = parity.check(workload, record, 1)
    assert (fault in verdict.reason, verdict.passed) == (True, not fault)
    rows = record.rows()
    assert set(rows["precision"]) == {says}
    assert rows["flops_per_sample"].gt(0).all()
    assert set(records.without_refusals(rows)["status"]) <= {
        "ok"
    }  # an undecided result is not a failure


@pytest.mark.parametrize(
    ("network", "choices"),
    [
        ("Recurrent", {}),
        ("Checkpointed", {}),
        ("Checkpointed", {"arguments": "reentrant=True"}),
        ("Own", {"loader": "with_labels"}),
        ("Own", {"loader": "with_labels", "arguments": "alone=True"}),
        ("Maker.make", {"loader": "columns", "loss": "torch.nn:MSELoss"}),
        ("Scaled", {"loader": "flagged"}),
    ],
)
def test_what_people_write_is_measured_and_compared(own, tmp_path, network, choices):
    small = {
        "parity_batch_size": 2,
        "network": own(network),
        "loader": own(choices.get("loader", "labelled")),
    }
    workload = build(**choices | small)
    protocol.first_step(workload, run(tmp_path / "step"))
    verdict = parity.check(workload, run(tmp_path), 3)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize(
    ("network", "choices", "reason"),
    [
        ("Coin", {"loader": "labelled"}, DRAWS),
        ("Scaled", {"loader": "flagged", "arguments": "wrong=True"}, "buffers"),
    ],
)
def test_a_network_that_cannot_repeat_a_step_is_never_called_wrong(
    own, tmp_path, network, choices, reason
):
    workload, found = (
        build(**choices | {"network": own(network), "loader": own(choices["loader"])}),
        [],
    )
    for seed in range(8):
        torch.manual_seed(seed)
        found.append(parity.check(workload, run(tmp_path / str(seed)), 3))
    assert all(verdict.passed or reason in verdict.reason for verdict in found)
    assert not all(verdict.passed for verdict in found)


def test_a_file_imports_what_lies_beside_it_before_what_is_installed(tmp_path, monkeypatch):
    for folder, width in (("installed", 1), ("models", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "example_beside.py").write_text(f"WIDTH = {width}")
    (tmp_path / "models" / "net.py").write_text(
        "from example_beside import WIDTH\n\n\ndef width():\n    return WIDTH"
    )
    monkeypatch.syspath_prepend(tmp_path / "installed")
    assert loading.resolve(f"{tmp_path / 'models' / 'net.py'}:width", "network")() == 2


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


@pytest.mark.parametrize("loader", ["slow", "generated"])
def test_a_loader_is_trained_on_and_its_wait_counts(own, tmp_path, loader):
    workload = build(**text(own, loader=own(loader)))
    batches = [list(workload.batches(epoch)) for epoch in range(2)]
    assert [len(epoch) for epoch in batches] == [
        2,
        2,
    ]  # of four samples each; the last two samples are no batch
    assert batches[0][1][0].tolist() == [[number] * 3 for number in range(4, 8)]
    assert workload.description()["dataset"] == "loader"
    assert parity.check(workload, run(tmp_path), 3).passed
    assert (
        window.train_window(workload, NO_SENSOR, workload.batches(0))["input_seconds"]
        >= 2 * 4 * 0.002
    )


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"network": "OWN:number"},
            r"network .*, called with \(\), raised TypeError: 'int' object is not callable",
        ),
        ({"network": "OWN:nothing"}, "returns a NoneType; allowed: a torch.nn.Module"),
        ({"network": "OWN:fails"}, r"network .*, called with \(\), raised KeyError: 'planted'"),
        (
            {"network": "OWN:network", "arguments": "depth=2"},
            "called with .*depth=2.* raised TypeError",
        ),
        (
            {"network": "OWN:network", "arguments": "num_classes=4", "channels": 1},
            "given random images, raised .* 3 channels",
        ),
        (
            {"network": "OWN:network", "arguments": "num_classes=1"},
            r"returns \(2, 1\); allowed: \(n, classes\)",
        ),
        ({"network": "OWN:Flat"}, r"returns \(2,\); allowed: \(n, classes\)"),
        ({"network": "OWN:Halves"}, r"returns \(2, 300\), \(2, 468\); allowed: \(n, classes\)"),
        ({"network": "OWN:Flat", "loader": "OWN:pictures"}, "allowed without a loss: logits"),
        (
            {"network": "OWN:LightningModule"},
            "is a LightningModule, whose training_step is not run here",
        ),
        (
            {"network": "OWN:network.nothing"},
            "AttributeError: 'function' object has no attribute 'nothing'",
        ),
        (
            {"loader": "OWN:short"},
            r"called with \(2\), .* batches have 1 in their first input; allowed: 2 samples",
        ),
        (
            {"loader": "OWN:unlimited", "batch_size": 32},
            "batches have 64 in their first input; allowed: 2 samples",
        ),
        ({"loader": "OWN:of_eight"}, "batches have 2, 8 in their first input"),
        ({"loader": "OWN:alone"}, r"a batch is a ndarray; allowed: \(inputs, target\)"),
        ({"loader": "OWN:letters"}, "raised (TypeError|ValueError): .*str"),
        (
            {"loader": "OWN:nothing"},
            "loader .* raised TypeError: 'NoneType' object is not iterable",
        ),
        ({"loader": "OWN:empty"}, "batches have nothing in their first input"),
        ({"loader": "OWN:number"}, "'int' object is not callable"),
        ({"loss": "OWN:squares"}, "scalar outputs"),
        ({"loss": "OWN:nothing"}, "'NoneType'"),
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
    with pytest.raises((ValueError, RuntimeError, AttributeError), match=message):
        protocol.first_step(build(**named), run(tmp_path))


def test_a_loss_that_is_no_number_is_a_result(own, tmp_path):
    workload, record = build(**text(own, loss=own("of_nothing"))), run(tmp_path)
    protocol.first_step(workload, record)
    assert record.rows()["status"].tolist() == ["diverged"]


def test_products_of_matrices_take_a_tenth_of_the_time_of_training(tmp_path, monkeypatch):
    def multiply(device, record, budget):
        record.append(
            phase="calibrate",
            model="matmul",
            status="unsupported",
            message=str(budget["window_seconds"]),
        )

    monkeypatch.setattr(calibration, "measure_arithmetic", multiply)
    given = {"window_seconds": 2.0, "seed": 0}
    process = mock.Mock(device=CPU, parameters=given, run=run(tmp_path))
    your_network.Plan.measure(process)
    assert process.run.rows()["message"].tolist() == ["0.2"]
    process.is_first = False
    your_network.Plan.measure(process)
    assert len(process.run.rows()) == 1


def test_a_file_is_described_by_its_digest_alone(own, tmp_path):
    names = {"network": own("words"), "loss": "", "loader": "numpy.random:random"}
    before = loading.digests(names)
    assert list(before) == ["network"]
    with (tmp_path / "mine.py").open("a") as file:
        file.write("# changed\n")
    assert loading.digests(names) != before
