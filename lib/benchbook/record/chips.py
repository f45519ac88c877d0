"""Chips: each chip's canonical name, its aliases in rows, prices and articles, and its published
specifications.

Names are compared by their words. Vendor and series ("NVIDIA", "Tesla", "GeForce"), order, case
and punctuation do not
matter: "Tesla V100-SXM2-16GB" and "NVIDIA V100 16GB SXM2" are one chip.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from typing import TYPE_CHECKING

import numpy

from benchbook.machine import layout
from benchbook.record import words
from benchbook.rows import networks

if TYPE_CHECKING:
    import pandas

TRADEMARKS = re.compile(r"\((r|tm)\)|®|™", re.IGNORECASE)
TF32_SINCE = 2020.35  # year of NVIDIA's Ampere; earlier chips have no TF32 units
CONTRADICTION = 1.1  # factor between rates of one chip above which they contradict one another
PEAKS = ["fp32_tflops", "fp16_tflops", "matrix_tflops"]
SERIES = {
    "nvidia",
    "tesla",
    "geforce",
    "corporation",
    "graphics",
    "gpu",
    "gpus",
    "processor",
    "chip",
}
# What people write for a chip or around it, and what stands in its place: clouds, computers, and
# memory that belongs to no name. They are tried one after the other, until a chip is found.
AROUND = (
    (r"^(google )?colab$", "t4"),
    (r"^(mac ?book( (pro|air))?|imac|mac( mini| studio| pro)?)$", "apple m"),
    (
        r"\b(mac ?book( (pro|air))?( 1[3-6])?|imac|mac ?mini|mac (studio|pro)|air|(google )?colab|kaggle)\b",
        "",
    ),
    (r"\b\d+ ?gb\b", ""),
)
VENDORS = {"apple", "google", "amd", "intel", "huawei"}


class UnknownChip(ValueError):
    """No chip has this name, or several have its words; the message lists them, or the nearest
    names."""


@functools.cache
def table() -> pandas.DataFrame:
    """Return the published specifications of each chip.

    Returns:
        Columns: chip, product (shared by a chip's memory sizes and boards: all V100 are one
        product), aliases (separated by "|"), vendor, architecture, released (a date), cores
        (shading units), fp32_tflops, fp16_tflops (dense; of the matrix units if the chip has
        them, else of the shaders), matrix_tflops (dense; 16-bit products summed in 32 bits;
        missing without matrix units), memory_gb, bandwidth_gb_s, tdp_watts, launch_price_usd,
        source. A figure that no source gives is missing.
    """
    import pandas

    text = dict.fromkeys(("chip", "product", "vendor", "architecture", "released", "source"), "str")
    printed = pandas.read_csv(
        layout.published() / "record" / "chips.csv", dtype=text | {"aliases": "str"}
    )
    return printed.fillna({"aliases": ""}).set_index("chip", drop=False).rename_axis(None)


def resolve(name: str) -> str:
    """Return the canonical name of a chip: the one of this name, else the only one that has all
    its words; without the computer's and the memory's words, where they hide it.

    The start page (start.js) reads a typed name by the same rules.

    Raises:
        UnknownChip: no chip has this name, or several have its words.
    """
    without = lambda text, rule: re.sub(*rule, text).strip()  # noqa: E731
    for text in itertools.accumulate(AROUND, without, initial=name.lower().strip()):
        if own := listed(text):
            return own
        if several := [line["chip"] for line in words.chips(text)] if text else []:
            break
    if len(several) == 1:
        return several[0]
    if several:
        raise UnknownChip(f"chip {name!r} names several; allowed: one of {', '.join(several)}")
    written = {" ".join(key): chip for key, chip in names().items()}
    near = difflib.get_close_matches(" ".join(_words(name)), written, n=5, cutoff=0.5)
    nearest = list(dict.fromkeys(written[key] for key in near))
    hint = f"; the nearest names: {', '.join(nearest)}" if nearest else ""
    raise UnknownChip(f"chip {name!r} is not in the list{hint}; `benchbook chips` lists them")


def listed(name: object) -> str:
    """Return the canonical name of a chip in the list; empty for any other chip or value."""
    return names().get(_words(name), "") if isinstance(name, str) else ""


def canonical(name: str | None) -> str | None:
    """Return the canonical name of a chip; a chip that is not in the list, such as a new CPU,
    keeps its name."""
    return listed(name) or (name if isinstance(name, str) else None)


@functools.cache
def specification(name: str) -> pandas.Series:
    """Return a chip's published specifications: the columns of `table` that are not missing.

    Raises:
        UnknownChip: no chip has this name.
    """
    return table().loc[resolve(name)].dropna()


@functools.cache
def product(name: str) -> str:
    """Return the product that a chip is a size or board of; for a chip that is not in the list,
    its name."""
    chip = canonical(name)
    return table()["product"].get(chip, chip)


@functools.cache
def peak(chip: str, precision: str | None) -> float:
    """Return the published peak of a chip in a precision, TFLOP/s; NaN if no source gives it.

    TF32 has half the peak of 16 bits. The peak in 16 bits is unknown for a chip without matrix
    units.
    """
    if chip not in table().index or not isinstance(precision, str):
        return numpy.nan
    fp32, fp16, matrix = table().loc[chip, PEAKS].astype(float)
    half = numpy.nan if numpy.isnan(matrix) else numpy.fmax(matrix, fp16)
    return float({"fp32": fp32, "tf32": half / 2}.get(precision, half))


def largest_batches(
    network: networks.Network, chip: str, precision: str, gigabytes: float | None = None
) -> dict[float, tuple[int, int, str]]:
    """Return the range of the largest batch size that fits, by gigabytes of memory; empty if
    something is unknown.

    The text says who compiled a training step of that size (`benchmarks/compiled.py`); it is
    empty where none did.

    Args:
        network: its activations are counted with flash attention.
        chip: its name; an Apple chip's memory is shared with the computer.
        precision: one of `records.PRECISIONS`.
        gigabytes: another memory than the chip's own, such as a computer's for its CPU.
    """
    own = specification(chip).get("memory_gb") if gigabytes is None and listed(chip) else None
    size, unified = gigabytes or own, own is not None and chip.startswith("Apple")
    if gigabytes is None and (
        compiled := _compiled().get((chip, network, networks.family(precision)))
    ):
        return {size: compiled}
    if gigabytes is None and table()["vendor"].get(chip) == "Google":
        return {}  # the counts are of torch's memory, and a TPU's compiler computes some of it again
    batches = network.largest_batches(size, precision, unified) if size else None
    return {size: (*batches, "")} if batches else {}


@functools.cache
def _compiled() -> dict[tuple[str, networks.Network, str], tuple[int, int, str]]:
    """Return the largest batch that was compiled, twice, and by which compiler, by chip, network
    and family."""
    import pandas

    lines = pandas.read_csv(layout.published() / "record" / "compiled.csv").dropna(
        subset="peak_bytes"
    )
    return {
        (line.chip, networks.describe(line.work), networks.family(line.precision)): (
            *[int(line.batch_size)] * 2,
            f", with momentum, {line.source}",
        )
        for line in lines.sort_values("batch_size").itertuples()
    }


@functools.cache
def has_tf32(chip: str) -> bool:
    """Return whether a chip has units for TF32."""
    return table()["vendor"].get(chip) == "NVIDIA" and released(chip) >= TF32_SINCE


@functools.cache
def has_matrix_units_alone(chip: str) -> bool:
    """Return whether a chip has matrix units and no published rate in fp32, as TPUs; such chips
    are sold in boards."""
    matrix, fp32 = (table()[name].get(chip, numpy.nan) for name in ("matrix_tflops", "fp32_tflops"))
    return not numpy.isnan(matrix) and bool(numpy.isnan(fp32))


@functools.cache
def released(chip: str) -> float:
    """Return a chip's release date as a decimal year; NaN if no source gives it."""
    import pandas

    date = pandas.to_datetime(table()["released"].get(chip))
    return numpy.nan if pandas.isna(date) else date.year + date.day_of_year / 366


@functools.cache
def contradiction(chip: str) -> str:
    """Return how a chip's published rates in 16 bits contradict one another; empty if they do not.

    Sums in 32 bits are no faster than sums in 16 bits, and matrix units no slower than the
    shaders in fp32.
    """
    fp32, fp16, matrix = table().loc[chip, PEAKS].astype(float)
    if not (matrix > CONTRADICTION * fp16 or fp32 > CONTRADICTION * matrix):
        return ""
    rates = f"fp32 {fp32:g}, fp16 {fp16:g}, matrix {matrix:g} TFLOP/s"
    return f"{chip}: its published rates contradict one another ({rates})"


@functools.cache
def names() -> dict[tuple[str, ...], str]:
    """Return the canonical names by the words of each name and alias."""
    listed = table()[["chip", "aliases"]].itertuples(index=False)
    return {
        _words(name): chip
        for chip, aliases in listed
        for name in (chip, *aliases.split("|"))
        if name
    }


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name that distinguish chips, sorted; "RTX3090" and "RTX 3090" have
    the same."""
    words = re.findall(r"[a-z]+|\d+", TRADEMARKS.sub(" ", name).lower())
    return tuple(sorted(word for word in words if word not in SERIES | VENDORS))
