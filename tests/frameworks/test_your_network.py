"""A network of the user's own, in every framework: it is measured as it computes, and what does not fit is said."""

import importlib
import pickle
import subprocess
import sys
import textwrap

import numpy
import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.machine import layout
from benchbook.measuring import parity, support
from benchbook.rows import records
from benchbook.studies.datasets import Dataset
from benchbook.studies.your_network import loading, sizes
from benchbook.studies.your_network import workload as your_network
from fakes import run
from processes import FRAMEWORK

pytestmark = pytest.mark.frameworks("torch", "tensorflow", "jax", slow=("jax",))
CPU = devices.pick("cpu", FRAMEWORK)
IS_KERAS = FRAMEWORK != "torch"
CODE = {
    "torch": """
        import numpy, torch
        from torch import nn

        def network(num_classes, width=8):
            convolution = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))

        def words():
            return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 1))

        class Casting(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.dense = nn.Embedding(10, 4), nn.Linear(12, 1)

            def forward(self, text):
                return self.dense(self.embedding(text).flatten(1).float())

        def casting():
            return Casting()

        class Attending(nn.Module):
            # Attention that drops out by layers and, where a share is asked for, by a function.
            def __init__(self, share):
                super().__init__()
                self.embedding, self.dense, self.share = nn.Embedding(10, 4), nn.Linear(12, 1), share
                self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True)

            def forward(self, text):
                hidden = self.layer(self.embedding(text)).flatten(1)
                return self.dense(nn.functional.dropout(hidden, self.share, self.training))

        def attending(share=0.0):
            return Attending(share)

        def mean_square(outputs, target):
            return ((outputs[:, 0] - target) ** 2).mean()

        def squares(outputs, target):
            return (outputs[:, 0] - target) ** 2

        def of_nothing(outputs, target):
            return mean_square(outputs, target) / 0
    """,
    "keras": """
        import keras, numpy
        from keras import layers

        def network(num_classes, width=8):
            images = layers.Input((16, 16, 3))
            hidden = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(images))
            pooled = layers.GlobalAveragePooling2D()(layers.ReLU()(hidden))
            return keras.Model(images, layers.Dense(num_classes)(pooled))

        def words():
            text = layers.Input((3,), dtype="int32")  # JAX has no int64
            return keras.Model(text, layers.Dense(1)(layers.Flatten()(layers.Embedding(10, 4)(text))))

        class Single(layers.Layer):
            def call(self, hidden):
                if keras.backend.backend() == "jax":
                    from jax import lax
                    return lax.add(hidden, lax.full_like(hidden, 1.0, dtype="float32"))
                import tensorflow
                return tensorflow.raw_ops.AddV2(x=hidden, y=tensorflow.ones_like(hidden, "float32"))

        def casting():
            text = layers.Input((3,), dtype="int32")
            hidden = layers.Flatten()(layers.Embedding(10, 4)(text))
            return keras.Model(text, layers.Dense(1)(Single()(hidden)))

        def attending(share=0.0):
            text = layers.Input((3,), dtype="int32")
            hidden = layers.Embedding(10, 4)(text)
            inside = keras.Sequential([layers.Dense(4), layers.Dropout(0.3), layers.GaussianNoise(share)])
            hidden = inside(layers.MultiHeadAttention(2, 4, dropout=0.3)(hidden, hidden))
            return keras.Model(text, layers.Dense(1)(layers.Flatten()(hidden)))

        def softened():
            images = layers.Input((16, 16, 3))
            return keras.Model(images, layers.Dense(4, activation="softmax")(layers.Flatten()(images)))

        def mean_square(outputs, target):
            return keras.ops.mean((outputs[:, 0] - target) ** 2)

        def squares(outputs, target):
            return (outputs[:, 0] - target) ** 2

        def of_nothing(outputs, target):
            return mean_square(outputs, target) / 0
    """,
}
SHARED = """
        def make_batch(batch_size, seed):
            random = numpy.random.default_rng(seed)
            return random.integers(10, size=(batch_size, 3)), random.random(batch_size)

        def short(batch_size, seed):
            return numpy.zeros((batch_size - 1, 3)), numpy.zeros(batch_size)

        def alone(batch_size, seed):
            return numpy.zeros((batch_size, 3))

        def letters(batch_size, seed):
            return numpy.array(["a"] * batch_size), numpy.zeros(batch_size)

        def nothing():
            return None

        def fails():
            raise KeyError("planted")

        number = 3
"""


# The operation by which a framework refuses to mix precisions, as its message or the line that called it names it.
REFUSED = {"torch": "F.linear", "tensorflow": "AddV2", "jax": "add"}


@pytest.fixture
def own(tmp_path):
    """Write a user's file; return what names one of its callables."""
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(CODE["keras" if IS_KERAS else "torch"]) + textwrap.dedent(SHARED))
    return lambda name: f"{path}:{name}"


def plan(dataset: str = "synthetic", **choices):
    few = {"image_size": 16, "num_classes": 4, "batch_size": 4, "num_workers": 0}
    return your_network.plan(CPU, "reference", dataset, "", **few | choices)


def text(own, **choices) -> dict:
    return {"network": own("words"), "example": own("make_batch"), "loss": own("mean_square")} | choices


def test_a_network_on_images_is_trained_checked_and_goes_back(own, tmp_path):
    workload = your_network.build(plan(network=own("network"), arguments="width=6"))
    described = workload.description()
    assert described["model"] == "network"
    assert described["flops_per_sample"] == 2 * 16 * 16 * 27 * 6 * 2 + 3 * 2 * 6 * 4
    assert parity.check(workload, run(tmp_path), 3).passed
    before = your_network.check(workload)
    assert your_network.check(workload) == pytest.approx(before, rel=1e-6)
    assert workload.evaluate().metric is None  # of random labels there is none


def test_an_operation_that_float64_lacks_leaves_the_network_unproven_and_is_named(own, tmp_path):
    record = run(tmp_path)
    verdict = parity.check(your_network.build(plan(**text(own, network=own("casting")))), record, 1)
    assert not verdict.passed
    assert verdict.num_steps == 0
    [row] = importlib.import_module("benchbook.rows.records").read(record.path).to_dict("records")
    assert row["status"] == "unsupported"
    assert REFUSED[FRAMEWORK] in row["message"]
    assert row["message"] in verdict.reason


@pytest.mark.skipif(IS_KERAS, reason="the networks are torchvision's")
def test_rounding_to_half_is_no_fault_and_a_fault_is_none_of_rounding(tmp_path):
    few = {"network": "torchvision.models:mobilenet_v3_small", "image_size": 64, "batch_size": 8}
    workload = your_network.build(plan(**few))
    right = parity.check(workload, run(tmp_path / "right"), 1, "amp_bf16")
    assert right.passed, right.reason
    workload.optimizer.param_groups[0]["momentum"] = 0.0
    still = parity.check(workload, run(tmp_path / "still"), 1, "amp_bf16")
    assert "off the optimiser's" in still.reason


def test_dropout_within_layers_is_put_off_and_back_on(own, tmp_path):
    workload = your_network.build(plan(**text(own, network=own("attending"))))
    verdict = parity.check(workload, run(tmp_path), 3)
    assert verdict.passed, verdict.reason
    assert dropping(workload) == [True] * (2 if IS_KERAS else 4)


def dropping(workload) -> list[bool]:
    """Return of each layer for dropout whether it drops anything in training."""
    if IS_KERAS:
        from benchbook.frameworks.keras.runtime import dropouts

        return [layer.rate > 0 for layer in dropouts(workload.network.model)]
    from benchbook.frameworks.torch.parity import random_layers

    return [layer.training for layer in random_layers(workload.model)]


@pytest.mark.skipif(IS_KERAS, reason="the examples are torch's")
@pytest.mark.parametrize(
    ("name", "loss"), [("transformer", "next_character"), pytest.param("unet", "loss", marks=pytest.mark.slow)]
)
def test_the_examples_compute_what_float64_does(name, loss, tmp_path):
    file = layout.root() / "docs" / "examples" / f"{name}.py"
    names = {"network": name, "example": "make_batch", "loss": loss}
    workload = your_network.build(plan(**{choice: f"{file}:{named}" for choice, named in names.items()}))
    verdict = parity.check(workload, run(tmp_path), 1)
    assert verdict.passed, verdict.reason


def test_a_network_that_draws_otherwise_is_unproven(own, tmp_path):
    record = run(tmp_path)
    workload = your_network.build(plan(**text(own, network=own("attending"), arguments="share=0.5")))
    verdict = parity.check(workload, record, 3)
    assert (verdict.passed, verdict.num_steps) == (False, 0)
    assert "draws at random" in verdict.reason


def test_any_batch_and_loss_can_be_described(own, tmp_path):
    workload = your_network.build(plan(**text(own, optimizer="adam", learning_rate=0.05)))
    assert parity.check(workload, run(tmp_path), 3).passed
    batches = list(workload.batches(0))
    losses = [workload.mean_loss([workload.step(batch)]) for batch in batches * 4]
    assert losses[-1] < losses[0] / 2
    assert workload.evaluate().samples == 4 * workload.batch_size


def test_a_plan_goes_to_the_process_of_a_trial_that_does_not_know_the_users_file(own, monkeypatch):
    chosen = plan(**text(own))
    batch = next(chosen.batches(0))
    sent = pickle.dumps(chosen)
    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in own("words")])
    for part, same in zip(batch, next(pickle.loads(sent).batches(0)), strict=True):
        numpy.testing.assert_array_equal(part, same)


def test_images_of_a_data_set_have_the_size_and_channels_that_were_asked_for(own, monkeypatch, tmp_path):
    pixels = numpy.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=numpy.uint8)
    data = Dataset("grey", pixels, numpy.arange(12) % 4, pixels, numpy.arange(12) % 4)
    monkeypatch.setattr(your_network.datasets, "load", lambda name, root: data)
    chosen = plan("mnist", network=own("network"))
    images, labels = chosen._load(data.train_images, data.train_labels, numpy.array([3]))
    assert images.shape == ((1, 16, 16, 3) if IS_KERAS else (1, 3, 16, 16))
    assert images.max() == pytest.approx(pixels[3].max() / 255)
    assert labels.tolist() == [3]
    with pytest.raises(ValueError, match="num_classes 3; allowed with grey: 4 or more"):
        plan("mnist", network=own("network"), num_classes=3)
    workload = your_network.build(chosen)
    assert workload.evaluate().metric == "top1"
    assert workload.description()["dataset_samples"] == 12
    record, fresh = run(tmp_path), workload.snapshot()
    record.describe(**workload.description())
    support.measure_resident(workload, record, sizes.steps_held(next(chosen.batches(0)), 2))
    workload.restore(fresh)
    losses = [workload.mean_loss([workload.step(batch) for batch in workload.batches(0)][:2])]
    rows = records.read(record.path)
    assert set(rows["samples"]) == {8}
    assert rows["loss"][0] == pytest.approx(losses[0], rel=1e-5)  # the batches that a loader brings


def test_batches_that_lie_ready_take_no_more_than_their_share_of_memory():
    batch = numpy.zeros((4, 2**24), numpy.uint8), numpy.zeros(4)
    assert sizes.steps_held(batch, 3) == 3
    assert sizes.steps_held(batch, 100) == 15
    assert sizes.steps_held((numpy.broadcast_to(numpy.uint8(0), (2**31,)),), 100) == 1


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"network": "OWN:number"}, "number is no callable"),
        ({"network": "OWN:nothing"}, "returns a builtins.NoneType; allowed with framework"),
        ({"network": "OWN:fails"}, r"network .*, called with \(\), raised KeyError: 'planted'"),
        ({"network": "OWN:network", "arguments": "depth=2"}, "called with .*depth=2.* raised TypeError"),
        ({"network": "OWN:network", "channels": 1}, r"a step of network on a batch of \(float32 .* raised"),
        ({"network": "OWN:words", "example": "OWN:make_batch"}, "^network .* allowed with num_classes 4"),
        ({"example": "OWN:short"}, r"shape \(3, 3\) for batch_size 4; allowed: shapes \(4, ...\)"),
        ({"example": "OWN:alone"}, r"returns a ndarray; allowed: \(inputs, target\)"),
        ({"example": "OWN:letters"}, "returns an array of <U1; allowed: numbers"),
        ({"example": "OWN:nothing"}, r"example .*, called with \(4, 1\), raised TypeError"),
        ({"loss": "OWN:squares"}, "loss .* returns shape .*allowed: a scalar"),
        ({"loss": "OWN:nothing"}, "a step of words on a batch of .* raised TypeError"),
        ({"loss": "OWN:of_nothing"}, "the loss of the first step is (nan|inf); allowed: a finite number"),
        ({"optimizer": "lion"}, "optimizer 'lion'; allowed: sgd, adam, adamw"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said_with_what_is_allowed(own, choices, message):
    named = {
        name: own(value.removeprefix("OWN:")) if str(value).startswith("OWN:") else value
        for name, value in choices.items()
    }
    if "network" not in named:
        named = text(own, **named)
    with pytest.raises(ValueError, match=message):
        your_network.check(your_network.build(plan(**named)))


@pytest.mark.skipif(not IS_KERAS, reason="a softmax at the end of a torch network cannot be told")
def test_probabilities_are_no_logits(own):
    with pytest.raises(ValueError, match="ends in a softmax; allowed without a loss: logits"):
        your_network.build(plan(network=own("softened")))


def test_every_batch_size_is_a_row_and_one_that_fails_ends_it(own, tmp_path):
    record, chosen = run(tmp_path), plan(**text(own))

    def build(batch_size: int):
        if batch_size == 16:
            raise MemoryError("out of memory, planted")
        return your_network.build(chosen.of_size(batch_size), Settings())

    sizes.try_each(build, record, sizes.read("16 2 8 32"), 0.01)
    rows = importlib.import_module("benchbook.rows.records").read(record.path)
    assert rows["batch_size"].tolist() == [2, 2, 8, 8, 16]
    assert rows["status"].tolist() == ["ok"] * 4 + ["out_of_memory"]
    assert (rows["samples"][:4] % rows["batch_size"][:4] == 0).all()
    with pytest.raises(ValueError, match="batch_sizes '4 -2'; allowed: whole numbers"):
        sizes.read("4 -2")


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
