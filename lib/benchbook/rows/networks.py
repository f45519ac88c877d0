"""Networks: one list of their names, and the operations and the memory that training takes."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy
import pandas

from benchbook.machine import layout

# Bytes for each parameter: the weight, its gradient and Adam's two moments; autocast adds a copy of two bytes.
STATE_BYTES = {"fp32": 16.0, "half": 18.0}
# Times the counted float32 activations, and of a device's memory what training can have: the driver, its context and
# gaps between blocks take the rest. `python benchmarks/fit_memory.py peaks` fits ACTIVATIONS.
ACTIVATIONS = {"fp32": 0.91, "half": 0.40}
USABLE = 0.9
MEMORY_ERROR = "counted; measured peaks of three other networks are 0 to 12 % higher"
MEMORIES = (8, 16, 24, 48, 80)  # gigabytes shown if the device's memory is unknown


@dataclass(frozen=True)
class Network:
    """The operations and the memory that training a network takes.

    Attributes:
        name: its one name.
        image_size: pixels of a side, at which the operations were counted or asked for.
        sequence_length: tokens of a sequence, for a network of these; samples are then sequences.
        flops_per_sample: operations of a training step for a sample, 2 for a multiply-add; None where nobody counted.
        parameters: weights; None where nobody counted.
        activation_bytes: that backward needs of a sample in float32; None where nobody counted.
    """

    name: str
    image_size: float | None = None
    sequence_length: float | None = None
    flops_per_sample: float | None = None
    parameters: float | None = None
    activation_bytes: float | None = None

    def memory_bytes(self, batch_size: float, precision: str) -> float | None:
        """Return the bytes that Adam's weights, gradients, moments and activations take; None if not counted.

        Args:
            batch_size: samples in a step.
            precision: one of `records.PRECISIONS`; bf16 and fp16 are taken for autocast.
        """
        if self.parameters is None or self.activation_bytes is None:
            return None
        kind = _kind(precision)
        return STATE_BYTES[kind] * self.parameters + batch_size * ACTIVATIONS[kind] * self.activation_bytes

    def largest_batches(self, gigabytes: Iterable[float], precision: str) -> dict[float, int]:
        """Return the most samples of a step by the memory of a device, 0 for none; empty if not counted."""
        state, one = self.memory_bytes(0, precision), self.memory_bytes(1, precision)
        if state is None:
            return {}
        return {size: max(0, int((USABLE * size * 2**30 - state) // (one - state))) for size in gigabytes}

    @classmethod
    def from_peak(cls, name: str, parameters: float, peak_bytes: float, batch_size: float, precision: str) -> "Network":
        """Return a network with the activations that a measured peak leaves beside its weights and their state."""
        kind = _kind(precision)
        kept = (peak_bytes - STATE_BYTES[kind] * parameters) / batch_size / ACTIVATIONS[kind]
        return cls(name, parameters=parameters, activation_bytes=kept if kept > 0 else None)


def batches_text(batches: dict[float, int]) -> str:
    """Return batches by gigabytes as a sentence shows them: 48 in 16 GB, 110 in 24 GB."""
    return ", ".join(f"{batch:,} in {size:g} GB" for size, batch in batches.items())


def _kind(precision: str) -> str:
    return "fp32" if precision in ("fp32", "tf32") else "half"


@functools.cache
def table() -> pandas.DataFrame:
    """Return the networks whose operations were counted.

    Returns:
        Columns: network, aliases (separated by "|"), image_size or sequence_length, layers and width (of a transformer
        of tokens), flops_per_sample (forward and backward, at that size), parameters, activation_bytes (of a sample
        in float32, counted by `python benchmarks/fit_memory.py`; attention in one operation), source.
    """
    listed = pandas.read_csv(layout.published() / "record" / "networks.csv")
    return listed.fillna({"aliases": ""}).set_index("network", drop=False)


def canonical(name: str) -> str:
    """Return the one name of a network, or the given name if its operations are not counted."""
    return _lines().get(_key(name), {"network": name})["network"]


@functools.cache
def describe(name: str, image_size: float | None = None, sequence_length: float | None = None) -> Network:
    """Return the demand of a network at an image size or sequence length; the default is the size it was counted at.

    Operations of convolutions and of patches grow with the area of the image. A token takes 6N operations, and 12LdT
    in attention: N weights, L layers of width d, T tokens. Activations grow with the image's area, or with the tokens.
    """
    line = _lines().get(_key(name))
    if line is None:
        return Network(name, image_size, sequence_length)
    flops, parameters, kept = (float(line[name]) for name in ("flops_per_sample", "parameters", "activation_bytes"))
    if numpy.isnan(line["sequence_length"]):
        size = image_size or float(line["image_size"])
        larger = (size / float(line["image_size"])) ** 2
        sizes, flops = (size, None), flops * larger
    else:
        counted, attention = line["sequence_length"], 12 * line["layers"] * line["width"]
        length = float(sequence_length or counted)
        larger = length / counted
        sizes, flops = (None, length), length * (flops / counted + attention * (length - counted))
    return Network(line["network"], *sizes, flops, parameters, None if numpy.isnan(kept) else kept * larger)


SPOKEN = {
    "gpt2_124m": "GPT-2 small",
    "mnist_cnn": "the MNIST network",
    "mobilenet_v2": "MobileNetV2",
    "mobilenetv2_frozen": "MobileNetV2's last layer",
    "nanogpt_char": "nanoGPT's character model",
    "nanogpt_char_small": "nanoGPT's small character model",
    "resnet50": "ResNet-50",
    "simclr_resnet18": "SimCLR's ResNet-18",
    "unet_triangles": "the segmentation U-Net",
    "vae": "the autoencoder",
}


def spoken(name: str) -> str:
    """Return a network's title, such as `ResNet-50`, from its name."""
    return SPOKEN.get(canonical(name), name)


@functools.cache
def _lines() -> dict[str, dict]:
    """Return the lines of `table` by every name of their network, in small letters and digits alone."""
    return {
        _key(name): line
        for line in table().to_dict("records")
        for name in [line["network"], *filter(None, line["aliases"].split("|"))]
    }


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
