"""Every study's workload at its smallest, of random data: for their contract, and for
accelerators not there."""

import dataclasses
import functools
import importlib
from collections.abc import Callable

import numpy
import yaml

from benchbook import studies
from benchbook.datasets import Collection, Dataset, Pictures, Text, triangles
from benchbook.frameworks import devices, survey
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import SGD, Plain
from benchbook.machine.kinds import KINDS
from benchbook.studies.experiments.plan import StudyPlan

EVERY = {
    name: tuple(kind for kind in KINDS if name in KINDS[kind].frameworks)
    for name in devices.FRAMEWORKS
}
PLANS = {
    name: importlib.import_module(f"benchbook.studies.{name}.plan").Plan
    for name in studies.names()
    if name != "calibrate"
}


def has(monkeypatch, kinds: dict[str, tuple[str, ...]], count: int = 1) -> None:
    """Let this computer have these frameworks with their kinds of device, and so many of each
    accelerator."""
    answers = {
        name: survey.Answer(tuple(Device(kind, "a chip") for kind in own))
        for name, own in kinds.items()
    }
    monkeypatch.setattr(devices, "installed", lambda: tuple(kinds))
    monkeypatch.setattr(survey, "ask", lambda name: dataclasses.replace(answers[name], count=count))


def images(shape: tuple[int, ...], count: int = 26, num_tests: int = 6) -> Dataset:
    """Return images of random pixels, of three classes."""
    pixels = numpy.random.default_rng(0).integers(0, 256, (count, *shape), dtype=numpy.uint8)
    train, labels = count - num_tests, numpy.arange(count) % 3
    return Dataset("random", pixels[:train], labels[:train], pixels[train:], labels[train:])


GREY, COLOURED = images((28, 28)), images((16, 16, 3))
PICTURES = Collection("random", *(Pictures(COLOURED.train_images, COLOURED.train_labels),) * 2, 3)
TOKENS = numpy.random.default_rng(3).integers(0, 65, 10_000, dtype=numpy.uint8)
TEXT = Text(
    "random", TOKENS[:-100], TOKENS[-100:], "".join(map(chr, range(65)))
)  # 6 sequences of 16 in the test
# The data of a study that has one of these; images of other studies are drawn as their plan says.
DATA = {"mnist": GREY, "cifar10": COLOURED, "tinyshakespeare": TEXT, "digits": GREY}


def data(study: str):
    """Return random data for a study: 20 training samples, and 6 for tests."""
    plan = PLANS[study]
    if plan.find is not StudyPlan.find:
        return PICTURES
    own = next((DATA[name] for name in plan.DATASETS if name in DATA), None)
    return own or triangles(20, 6, size=plan.SMALLEST["image_size"])


# Of resident data, or synthetic, and of a loader.
WAYS = yaml.safe_load("""
mnist_speedup: [{variant: tuned, data_resident: true}, {}]
vae_stability: [{data_resident: true}, {}]
mobilenetv2_energy: [{data_resident: true}, {variant: reference}]
simclr_epochs: [{parity_batch_size: 4}, {variant: controlled, num_workers: 1}]
segmentation_scaling: [{data_resident: true, width: 0.05}, {variant: reference, width: 0.05}]
resnet50_cost: [{image_size: 64, batch_size: 2, parity_batch_size: 4, data: null},
  {image_size: 64, batch_size: 2, parity_batch_size: 4}]
""")


def build(study: str, device: Device | str, **options):
    """Build a study's workload on a device, or a framework's CPU; `data` in the options replaces
    the random data."""
    workers = {} if study == "simclr_epochs" else {"num_workers": 0}
    options = {"data": data(study), "batch_size": 8} | workers | PLANS[study].SMALLEST | options
    device = device if isinstance(device, Device) else devices.pick("cpu", device)
    return PLANS[study].build(options.pop("data"), device, **options)


@functools.cache
def made(study: str, device: Device | str):
    """Return what `build` does, once in a process: a test that trains it restores it."""
    return build(study, device)


def build_either_way(study: str, device: Device, resident: bool = True, **options):
    """Build a study's workload in steps of four or two images; resident: without a loader."""
    return build(study, device, **{"batch_size": 4} | WAYS[study][not resident] | options)


def keras_model(trainable: bool = True, dropout: float = 0.3, is_separable: bool = False):
    """Return a convolution, which may be frozen, a batch norm, a ReLU, dropout and a dense layer
    in Keras.

    A separable convolution may stand before the batch norm.
    """
    import keras

    pixels = keras.Input((6, 6, 3))
    convolution = keras.layers.Conv2D(4, 3, use_bias=False)
    hidden, convolution.trainable = convolution(pixels), trainable
    hidden = keras.layers.SeparableConv2D(4, 3)(hidden) if is_separable else hidden
    hidden = keras.layers.BatchNormalization(momentum=0.9)(hidden)
    hidden = keras.layers.Flatten()(keras.layers.ReLU()(hidden))
    return keras.Model(pixels, keras.layers.Dense(3)(keras.layers.Dropout(dropout)(hidden)))


def keras_workload(
    device: Device, batches: Callable, tests: list, labels: Callable | None = None, **options
):
    """Return a workload with a momentum and a rate that falls, around the network above or that
    of the options.

    Batches are of eight images; float64 compares four, and a whole one.
    """
    from benchbook.frameworks.keras.runtime import import_keras
    from benchbook.frameworks.keras.training import KerasWorkload, cross_entropy

    optimizers, make_model = (
        import_keras(device.framework).optimizers,
        options.get("make_model", keras_model),
    )
    decayed = optimizers.schedules.ExponentialDecay
    made = {
        "make_model": make_model,
        "make_optimizer": lambda: optimizers.SGD(decayed(0.1, 1, 0.99), momentum=0.9),
        "columns": {"model": "tiny", "dataset": "random", "dataset_samples": 48},
        "plain": Plain(
            make_model,
            cross_entropy,
            lambda: SGD(lambda step: 0.1 * 0.99**step, momentum=0.9, rate_in_momentum=True),
            batch_size=4,
            labels=labels,
        ),
    }
    made |= {
        "device": device,
        "batch_size": 8,
        "train_batches": batches,
        "test_batches": lambda: tests,
    }
    return KerasWorkload(**made | options)
