"""Networks: one list of their names, and how many operations training them takes for an image or a sequence."""

import functools
from dataclasses import dataclass

import numpy
import pandas

from benchbook.machine import layout


@dataclass(frozen=True)
class Network:
    """What a network's training takes.

    Attributes:
        name: its one name.
        image_size: pixels of a side, at which the operations were counted or asked for.
        sequence_length: tokens of a sequence, for a network of these; samples are then sequences.
        flops_per_sample: operations of a training step for a sample, 2 for a multiply-add; None where nobody counted.
    """

    name: str
    image_size: float | None = None
    sequence_length: float | None = None
    flops_per_sample: float | None = None


@functools.cache
def table() -> pandas.DataFrame:
    """Return the networks whose operations were counted.

    Returns:
        Columns: network, aliases (separated by "|"), image_size or sequence_length, layers and width (of a transformer
        of tokens), flops_per_sample (forward and backward, at that size), parameters, source.
    """
    listed = pandas.read_csv(layout.published() / "record" / "networks.csv")
    return listed.fillna({"aliases": ""}).set_index("network", drop=False)


def canonical(name: str) -> str:
    """Return the one name of a network, or the name itself where nobody counted its operations."""
    return _names().get(_key(name), name)


def describe(name: str, image_size: float | None = None, sequence_length: float | None = None) -> Network:
    """Return what training a network takes at an image size or sequence length; without one, at that of its count.

    Operations of convolutions and of patches grow with the area of the image. A token takes 6N operations, and 12LdT
    in attention: N weights, L layers of width d, T tokens.
    """
    chosen = canonical(name)
    line = _counted().get(chosen)
    if line is None:
        return Network(chosen, image_size, sequence_length)
    flops = float(line["flops_per_sample"])
    if numpy.isnan(line["sequence_length"]):
        size = image_size or float(line["image_size"])
        return Network(chosen, size, None, flops * (size / float(line["image_size"])) ** 2)
    counted, attention = line["sequence_length"], 12 * line["layers"] * line["width"]
    length = float(sequence_length or counted)
    return Network(chosen, None, length, length * (flops / counted + attention * (length - counted)))


SPOKEN = {
    "mnist_cnn": "the MNIST network",
    "mobilenet_v2": "MobileNetV2",
    "mobilenetv2_frozen": "MobileNetV2's last layer",
    "resnet50": "ResNet-50",
    "simclr_resnet18": "SimCLR's ResNet-18",
    "unet_triangles": "the segmentation U-Net",
    "vae": "the autoencoder",
}


def spoken(name: str) -> str:
    """Return what a network is called for people, given its name: `ResNet-50`."""
    return SPOKEN.get(canonical(name), name)


@functools.cache
def _counted() -> dict[str, dict]:
    return table().to_dict("index")


@functools.cache
def _names() -> dict[str, str]:
    names = {}
    for line in table().to_dict("records"):
        names |= {_key(name): line["network"] for name in [line["network"], *filter(None, line["aliases"].split("|"))]}
    return names


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
