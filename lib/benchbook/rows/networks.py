"""Networks: their names, and the operations and memory that training takes."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from benchbook.machine import layout

if TYPE_CHECKING:
    import pandas

# Bytes per parameter: the weight, its gradient and Adam's two moments; autocast adds a copy of two
# bytes.
STATE_BYTES = {"fp32": 16.0, "half": 18.0}
# Measured over counted float32 activations; `python benchmarks/fit_memory.py peaks` fits these
# factors.
ACTIVATIONS = {"fp32": 0.89, "half": 0.39}
USABLE = (
    0.9  # share of a device's memory; the driver, its context and gaps between blocks take the rest
)
# Highest measured peaks over the count: of three networks for images, and of GPT-2 small with flash
# attention (22.51 GB with 32 sequences: github:rasbt/LLMs-from-scratch
# ch05/10_llm-training-speed/README.md).
MOST_OVER_COUNT = {"images": 1.12, "tokens": 1.94}
# Share of a Mac's memory that its GPU may use: 10.67 of 16 GB on an M4 (github:exo-explore/exo pull
# #1672), and up to 107.5 of 128 GB (github:antirez/ds4 pull #893).
UNIFIED = 0.667


@dataclass(frozen=True)
class Network:
    """The operations and memory that training a network takes. Uncounted quantities are None.

    Attributes:
        name: its canonical name.
        image_size: pixels per side of the images.
        sequence_length: tokens per sequence, if the samples are sequences.
        flops_per_sample: operations per sample in a training step, 2 for a multiply-add.
        parameters: the number of weights.
        activation_bytes: float32 activations per sample that backward needs.
    """

    name: str
    image_size: float | None = None
    sequence_length: float | None = None
    flops_per_sample: float | None = None
    parameters: float | None = None
    activation_bytes: float | None = None

    def memory_bytes(self, batch_size: float, precision: str) -> float | None:
        """Return the bytes of weights, gradients, Adam's moments and activations; None if not
        counted.

        Args:
            batch_size: samples in a step.
            precision: one of `records.PRECISIONS`; bf16 and fp16 count as autocast.
        """
        if self.parameters is None or self.activation_bytes is None:
            return None
        kind = family(precision)
        return (
            STATE_BYTES[kind] * self.parameters
            + batch_size * ACTIVATIONS[kind] * self.activation_bytes
        )

    def largest_batches(
        self, gigabytes: float, precision: str, unified: bool = False
    ) -> tuple[int, int] | None:
        """Return the least and the most that the largest batch may be, 0 if no sample fits; None
        if not counted.

        Activations take the counted memory, or as much more as the highest measured peak.

        Args:
            gigabytes: of a device's memory.
            precision: one of `records.PRECISIONS`.
            unified: the memory is a Mac's, and its GPU may use a part of it.
        """
        state, one = self.memory_bytes(0, precision), self.memory_bytes(1, precision)
        if state is None:
            return None
        over = MOST_OVER_COUNT["tokens" if self.sequence_length else "images"]
        room = USABLE * (UNIFIED if unified else 1.0) * 2**30 * gigabytes - state
        return tuple(max(0, int(room // (factor * (one - state)))) for factor in (over, 1.0))


def family(precision: str) -> str:
    """Return in which family a precision takes memory: fp32, or half (16 bits)."""
    return "fp32" if precision in ("fp32", "tf32") else "half"


@functools.cache
def table() -> pandas.DataFrame:
    """Return the networks with counted operations.

    Returns:
        Columns: network, title (empty: its name), aliases (separated by "|"), image_size or
        sequence_length, layers and width (of a transformer of tokens), flops_per_sample (forward
        and backward, at that size), parameters, activation_bytes (per sample in float32, counted
        by `python benchmarks/fit_memory.py`; attention counts as one operation), source.
    """
    import pandas

    listed = pandas.read_csv(layout.published() / "record" / "networks.csv")
    return listed.fillna({"aliases": "", "title": ""}).set_index("network", drop=False)


def canonical(name: str) -> str:
    """Return the canonical name of a network, or the given name if its operations are not
    counted."""
    return _lines().get(_key(name), {"network": name})["network"]


@functools.cache
def describe(
    name: str, image_size: float | None = None, sequence_length: float | None = None
) -> Network:
    """Return a network at an image size or sequence length; the default is the size of its count
    in `table`.

    Operations of convolutions and patches grow with the image's area. A token takes 6N
    operations plus 12LdT for attention, with N weights, L layers of width d and T tokens.
    Activations grow with the image's area, or with the tokens.
    """
    line = _lines().get(_key(name))
    if line is None:
        return Network(name, image_size, sequence_length)
    names = ("flops_per_sample", "parameters", "activation_bytes")
    flops, parameters, activations = (float(line[name]) for name in names)
    if numpy.isnan(line["sequence_length"]):
        size = image_size or float(line["image_size"])
        scale = (size / float(line["image_size"])) ** 2
        sizes, flops = (size, None), flops * scale
    else:
        counted, attention = line["sequence_length"], 12 * line["layers"] * line["width"]
        length = float(sequence_length or counted)
        scale = length / counted
        sizes, flops = (None, length), length * (flops / counted + attention * (length - counted))
    scaled = None if numpy.isnan(activations) else activations * scale
    return Network(line["network"], *sizes, flops, parameters, scaled)


def title(name: str) -> str:
    """Return a network's title, such as `ResNet-50`, from any of its names; other names are
    returned unchanged."""
    return _lines().get(_key(name), {}).get("title") or name


@functools.cache
def _lines() -> dict[str, dict]:
    """Return the lines of `table` by each name of a network, reduced to lower-case letters and
    digits."""
    return {
        _key(name): line
        for line in table().to_dict("records")
        for name in [line["network"], *filter(None, line["aliases"].split("|"))]
    }


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())
