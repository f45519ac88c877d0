"""Your own network by name: it trains as it computes, and errors name what does not fit."""

import math
import pkgutil
import re
import sys
import textwrap
import time
from dataclasses import replace

import pytest
import torch

from benchbook.commands import measure
from benchbook.frameworks import devices
from benchbook.frameworks.torch import own_network
from benchbook.frameworks.workload import Settings
from benchbook.judging import intervals
from benchbook.loop import loading, networks, results, stretch
from benchbook.loop.networks import Choices
from benchbook.loop.rate import Rate
from benchbook.machine import launch, layout
from benchbook.measuring import failures
from benchbook.measuring.window import window

CODE = """
    import itertools, numpy, torch
    from dataclasses import dataclass
    from torch import nn

    random = numpy.random.default_rng(1)

    def network(num_classes=4, width=8):
        convolution = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))

    def lazy():
        return nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))

    def half():
        return network().to(torch.bfloat16)

    def frozen():
        made = network()
        made[0].requires_grad_(False)
        return made

    @dataclass
    class Output:
        logits: torch.Tensor
        hidden: torch.Tensor

    class Library(nn.Module):
        # Returns an object with logits, as a library's models do.
        def __init__(self):
            super().__init__()
            self.layer = nn.Embedding(10, 10)

        def forward(self, text):
            hidden = self.layer(text)
            return Output(hidden, hidden)

    class Heads(nn.Module):
        # Returns the logits of two heads, as GoogLeNet does.
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(768, 4), nn.Linear(768, 4)

        def forward(self, images):
            flat = images.flatten(1)
            return self.first(flat), self.second(flat)

    class Own(nn.Module):
        # Computes its own loss: alone, or next to its logits.
        def __init__(self, alone=False):
            super().__init__()
            self.embedding, self.alone = nn.Embedding(10, 10), alone

        def forward(self, text, labels):
            logits = self.embedding(text)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            return loss if self.alone else (logits, loss)

    class Graph(nn.Module):
        # Sums what comes over a graph's edges.
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, nodes, edges):
            sent = torch.zeros_like(nodes).index_add(0, edges[1], nodes[edges[0]])
            return self.layer(nodes + sent)

    class Flat(nn.Linear):
        # Returns a number for each picture.
        def __init__(self):
            super().__init__(768, 1)

        def forward(self, images):
            return super().forward(images.flatten(1))[:, 0]

    class LightningModule(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)

    def words():
        return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 1))

    def labelled(batch_size):
        return [tuple(random.integers(10, size=(2, batch_size, 3))) for _ in range(3)]

    def with_labels(batch_size):
        return [dict(zip(("text", "labels"), batch)) for batch in labelled(batch_size)]

    def numbers(batch_size):
        return [(text, random.random((len(text), 1))) for text, _ in labelled(batch_size)]

    def generated(batch_size):
        yield from numbers(batch_size)

    def graph(batch_size):
        edges = random.integers(batch_size, size=(2, 5))
        return [((random.random((batch_size, 3)), edges), random.integers(4, size=batch_size))]

    def alone(batch_size):
        return [numpy.zeros((batch_size, 3))]

    def letters(batch_size):
        return [(["a"] * batch_size, numpy.zeros(batch_size))]

    def empty(batch_size):
        return []

    def nothing(*given):
        return None

    def fails():
        raise KeyError("planted")

    def mean_square(outputs, target):
        return ((outputs - target) ** 2).mean()

    def squares(outputs, target):
        return (outputs - target) ** 2

    number = 3
"""


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(stretch, "WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(stretch, "STRETCH_SECONDS", 0.05)
    monkeypatch.setattr(stretch, "STRETCH_STEPS", 4)


@pytest.fixture
def own(tmp_path):
    """Write a user's file; return a function from a callable's name in it to the full name."""
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(CODE))
    return lambda name: f"{path}:{name}" if name else ""


def choose(own, network, loader="", loss="", **choices) -> Choices:
    small = {"image_size": 16, "batch_size": 4, "device": "cpu"}
    network = network if ":" in network else own(network)
    return Choices(network, **small | {"loader": own(loader), "loss": own(loss)} | choices)


KINDS = [
    ("network", {"arguments": "num_classes=3, width=6"}),
    ("network", {"settings": Settings("amp_bf16", channels_last=True)}),
    ("network", {"settings": Settings("bf16"), "optimizer": "adamw"}),
    ("lazy", {}),
    ("half", {}),
    ("frozen", {"optimizer": "adam"}),
    ("Heads", {}),
    ("Library", {"loader": "labelled"}),
    ("Own", {"loader": "with_labels"}),
    ("Own", {"loader": "with_labels", "arguments": "alone=True"}),
    ("Graph", {"loader": "graph", "batch_size": 9}),
    ("words", {"loader": "numbers", "loss": "mean_square"}),
    ("words", {"loader": "generated", "loss": "mean_square"}),
    ("torchvision.models:shufflenet_v2_x0_5", {"image_size": 64, "arguments": "num_classes=4"}),
]


@pytest.mark.parametrize(("network", "choices"), KINDS, ids=str)
def test_what_people_write_is_trained_and_its_samples_are_counted(own, network, choices):
    chosen = choose(own, network, **choices)
    [rate], ended, losses = networks.run(chosen)
    assert ended == ""
    assert rate.samples == rate.steps * chosen.batch_size
    assert len(set(losses)) == networks.FIRST_LOSSES  # each step changed the weights
    assert all(0 < loss < 1e3 for loss in losses)


def test_a_step_is_the_one_that_a_reader_would_write(own):
    chosen = choose(own, "network", learning_rate=0.1)
    _, _, losses = networks.run(chosen)
    resolved = replace(chosen, network=loading.resolve(own("network"), "network"))
    step, batches = own_network.build(resolved, devices.pick("cpu"))
    torch.manual_seed(1)
    network = loading.resolve(own("network"), "network")().train()
    optimizer, expected = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), []
    for images, labels in batches[: len(losses)]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == expected
    assert step(batches[0]).item() == expected[0]


# A network, its arguments, a loader and a loss, and what is said.
REFUSED = r"""
number => raised TypeError: 'int' object is not callable
nothing => returns a NoneType; allowed: a torch.nn.Module
fails => raised KeyError: 'planted'
network|depth=2 => called with \(depth=2\), raised TypeError
network|num_classes=1 => returns \(2, 1\) .*; allowed: \(n, classes\) without a loader
Flat => returns \(2,\) .*; allowed: \(n, classes\)
LightningModule => is a LightningModule, whose training_step is not run here
words||alone => a batch is a ndarray; allowed: \(inputs, target\)
words||letters => raised (TypeError|ValueError): .*str
words||nothing => None.; allowed: a function of a batch, and batches
words||empty => batches has no batch
words||numbers|squares => scalar outputs
words||numbers|nothing => 'NoneType'
Flat||numbers => raised|allowed without a loss
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_does_not_fit_is_said_with_what_is_allowed(own, line):
    given, message = line.split(" => ")
    network, arguments, loader, loss = (*given.split("|"), "", "", "")[:4]
    with pytest.raises(ValueError, match=message):
        networks.run(choose(own, network, loader, loss, arguments=arguments))


def test_a_file_imports_what_lies_beside_it_before_what_is_installed(tmp_path, monkeypatch):
    for folder, width in (("installed", 1), ("models", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "example_beside.py").write_text(f"WIDTH = {width}")
    text = "from example_beside import WIDTH\n\n\ndef width():\n    return WIDTH"
    (tmp_path / "models" / "net.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    assert loading.resolve(f"{tmp_path / 'models' / 'net.py'}:width", "network")() == 2


def test_a_clock_that_a_network_replaces_is_not_the_windows(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    with window(devices.pick("cpu")) as timed:
        sum(range(10_000))
    assert timed.seconds > 0


def test_a_row_says_of_the_users_code_the_name_of_the_file_alone():
    message = failures.anonymous(
        "network '/data/secret/net.py:resnet' and ~/b/loss.py:mean (a.py:3) C:\\x\\y.py:z"
    )
    assert message == "network 'net.py:resnet' and loss.py:mean (a.py:3) y.py:z"


def rate(speed: float, others: float = 0.0) -> Rate:
    return Rate(speed, 1, 1.0, ((speed, 1.0),), None, None, None, others, "a CPU (cpu, PyTorch)")


@pytest.mark.parametrize(
    ("speeds", "is_known"), [((100,), False), ((100, 101), True), ((100, 150), False)]
)
def test_processes_are_enough_when_they_agree(speeds, is_known):
    assert results.is_known([[rate(speed) for speed in speeds]]) == is_known
    assert not results.is_known([[rate(100), rate(100)], [rate(1)]])


@pytest.mark.parametrize(
    ("device", "is_virtual", "between"),
    [
        ("Intel Xeon (cpu, PyTorch)", True, intervals.VIRTUAL.session),
        ("Intel Xeon (cpu, PyTorch)", False, intervals.UNPAIRED.session),
        ("NVIDIA T4 (cuda, PyTorch)", True, intervals.UNPAIRED.session),
    ],
)
def test_sessions_of_a_virtual_machines_cpu_differ_by_more(device, is_virtual, between):
    rates = [replace(rate(100), device=device)] * 2
    half = math.log(results.Result.of("net", rates, (), is_virtual).high / 100)
    parts = 1.96 * between, intervals.half_widths(0.0, 2)[0]
    assert half == pytest.approx(math.hypot(*parts), rel=1e-3)


def test_a_result_is_kept_and_compared_by_its_name(tmp_path, command):
    one = [results.Result.of("net", [rate(100), rate(104, others=0.9)], [1.0, 0.5])]
    two = [results.Result.of("net", [rate(204), rate(200)])]
    results.write(one, tmp_path / "one.json")
    [kept] = results.read(tmp_path / "one.json")
    assert (kept.name, kept.rates, list(kept.losses)) == ("net", [100.0, 104.0], [1.0, 0.5])
    assert "other programs disturbed 1" in str(kept)
    [(name, ratio)] = results.ratios([kept], two)
    assert name == "net"
    assert (ratio.low < ratio.value < ratio.high, ratio.kind) == (True, intervals.INTERVAL)
    assert ratio.value == pytest.approx((200 * 204 / 100 / 104) ** 0.5)
    results.write(two, tmp_path / "two.json")
    results.write(one, tmp_path / "three.json")
    paths = (str(tmp_path / f"{number}.json") for number in ("one", "two", "three"))
    status, said = command("compare", *paths)
    assert (status, f"net: B is {ratio.value:.3g} times as fast as A (95 %" in said) == (0, True)
    assert "net: C is 1 times as fast as A (" in said
    with pytest.raises(ValueError, match="A has net, B has a, b; allowed: one of the same name"):
        results.ratios(one, [results.Result.of(each, [rate(1)]) for each in "ab"])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="allowed: a file of `benchbook measure --json`"):
        results.read(tmp_path / "other.json")


@pytest.fixture
def call_here(monkeypatch, tmp_path):
    """Let the launcher call functions in this process; return what it is without that."""
    apart = launch.call
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def call(function, *arguments, seconds, log):
        log.touch()
        try:
            return pkgutil.resolve_name(function)(*arguments), None
        except ValueError as error:
            return None, launch.Failed(type(error).__name__, str(error))

    monkeypatch.setattr(launch, "call", call)
    yield apart
    for name in ("own", "broken", "models", "models.small"):
        sys.modules.pop(name, None)


OWN = """
def network(num_classes=10):
    raise RuntimeError("it ran")
"""
APART = ("script.py:net", "inside.py:net")  # code that ends Python, or needs its package
LINES = r"""
no_such_package.models:net => No module named 'no_such_package'; .*make setup EXTRAS
resnet18 => network 'resnet18'; allowed: module:callable, such as torchvision.models:resnet18
nowhere.py:net => raised FileNotFoundError: .*nowhere.py
own.py:netwrok => module 'own' has no attribute 'netwrok'
broken.py:net => broken.py:net' raised SyntaxError
own.py:network --arguments width=open => arguments 'width=open'; allowed: such as
own.py:network --arguments width=8)+_(1 => arguments 'width=8\)\+_\(1'; allowed: such as
own.py:network --loader batches => loader 'batches'; allowed: module:callable
own.py:network --loss nowhere.py:loss => loss '.*nowhere.py:loss' raised FileNotFoundError
own.py:network --optimizer lion => optimizer 'lion'; allowed: sgd, adam, adamw
own.py:network --precision fp8 => precision 'fp8'; allowed: fp64, fp32
own.py:network --processes 0 => processes 0; allowed: 1 to 99
own.py:network --batch-size 0 => batch_size 0; allowed: 1 to
script.py:net => raised SystemExit: 2; put what a script does under `if __name__
inside.py:net => raised ImportError: attempted relative import.*; name a file of a package
models.small:netwrok => module 'models.small' has no attribute 'netwrok'
nowhere.py => script 'nowhere.py' is not a file; allowed: a Python file
"""


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_what_cannot_be_measured_is_refused_in_one_line(
    outputs, tmp_path, monkeypatch, command, call_here, line
):
    options, message = line.split(" => ")
    monkeypatch.chdir(tmp_path)
    if options in APART:
        monkeypatch.setattr(launch, "call", call_here)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("def net(:")
    parse = "import argparse; argparse.ArgumentParser().parse_args(['--epochs'])"
    (tmp_path / "script.py").write_text(parse)
    (tmp_path / "inside.py").write_text("from . import other")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.py").write_text(OWN)
    name, *more = options.split(" --")
    more = [word for option in more for word in f"--{option}".split(" ", 1)]
    status, said = command("measure", name, *more)
    assert status == 2
    assert re.search(message, said)
    assert not layout.runs("desk").exists()


def test_tuned_settings_are_measured_by_turns_in_one_table(
    tmp_path, monkeypatch, command, call_here
):
    seen = []

    def run(choices):
        seen.append(str(choices.settings))
        return [rate(100.0 * len(set(seen)))], "", [2.5, 2.25, 2.0]

    monkeypatch.setattr(networks, "run", run)
    kept = tmp_path / "kept.json"
    status, said = command("measure", "net.py:net", "--tuned", "--json", str(kept))
    assert status == 0
    expected = ["fp32", "amp_bf16", "fp32, channels_last", "fp32, compiled"]
    expected += ["amp_bf16, compiled, channels_last"]
    assert [set(each.split(", ")) for each in dict.fromkeys(seen)] == [
        set(each.split(", ")) for each in expected
    ]
    assert len(seen) == 2 * len(expected)  # two processes agree
    assert said.count("2.5 2.25 2") == len(expected)
    found = results.read(kept)
    assert [each.samples_per_second for each in found] == pytest.approx([100, 200, 300, 400, 500])
    assert found[0].name == "net.py:net, 224 px, batch 32, fp32"  # other sizes are not compared


def test_a_process_that_fails_ends_the_command_with_its_last_words(monkeypatch, command):
    def call(function, *arguments, seconds, log):
        log.write_text("torch.OutOfMemoryError: 3 GiB\n")
        return None, launch.Failed("", "exit status 1")

    monkeypatch.setattr(launch, "call", call)
    status, said = command("measure", "net.py:net")
    assert status == measure.SOME_FAILED
    assert "exit status 1; it last printed: torch.OutOfMemoryError: 3 GiB" in said
