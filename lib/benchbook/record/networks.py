"""Networks: one list of their names, and how many operations training them takes for an image."""

import functools
from dataclasses import dataclass

import pandas

from benchbook.machine import layout

STUDIES = {"resnet50_cost": "resnet50"}  # others are among the other names


@dataclass(frozen=True)
class Network:
    """What a network's training takes.

    Attributes:
        name: its one name.
        image_size: pixels of a side, at which the operations were counted or asked for.
        flops_per_sample: operations of a training step for an image, 2 for a multiply-add; None where nobody counted.
    """

    name: str
    image_size: float | None = None
    flops_per_sample: float | None = None


@functools.cache
def table() -> pandas.DataFrame:
    """Return the networks whose operations were counted.

    Returns:
        Columns: network, aliases (separated by "|"), image_size, flops_per_sample (forward and backward), parameters,
        source.
    """
    return pandas.read_csv(layout.published() / "record" / "networks.csv", keep_default_na=False).set_index(
        "network", drop=False
    )


def canonical(name: str) -> str:
    """Return the one name of a network, or the name itself where nobody counted its operations."""
    return _names().get(_key(name), name)


def describe(name: str, image_size: float | None = None) -> Network:
    """Return what training a network takes at an image size; without one, at the size it was counted at.

    Operations of convolutions and of patches grow with the area of the image.
    """
    chosen = canonical(name)
    line = _counted().get(chosen)
    if line is None:
        return Network(chosen, image_size)
    size = image_size or float(line["image_size"])
    scale = (size / float(line["image_size"])) ** 2
    return Network(chosen, size, float(line["flops_per_sample"]) * scale)


@functools.cache
def _counted() -> dict[str, dict]:
    return table().to_dict("index")


@functools.cache
def _names() -> dict[str, str]:
    names = {_key(study): network for study, network in STUDIES.items()}
    for line in table().to_dict("records"):
        names |= {_key(name): line["network"] for name in [line["network"], *filter(None, line["aliases"].split("|"))]}
    return names


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
