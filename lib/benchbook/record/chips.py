"""Chips: one list of their names, with the other names that rows, prices and articles use, and what is printed of each.

A name is read by its words: vendor and series ("NVIDIA", "Tesla", "GeForce") do not count, nor do order, case and
punctuation, so that "Tesla V100-SXM2-16GB" and "NVIDIA V100 16GB SXM2" are one chip.
"""

import difflib
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy
import pandas

from benchbook.machine import layout

TF32_SINCE = 2020.35  # NVIDIA's Ampere and later; earlier chips have no such units
SERIES = {"nvidia", "tesla", "geforce", "corporation", "graphics", "gpu", "gpus", "processor", "chip"}
VENDORS = {"apple", "google", "amd", "intel", "huawei"}
# The chips that predictions are shown for.
SHOWN = ("Apple M1", "Apple M1 Max", "Apple M3 Max", "NVIDIA P100", "NVIDIA T4", "NVIDIA V100", "NVIDIA RTX 3090")
SHOWN += ("NVIDIA A100", "NVIDIA RTX 4090", "NVIDIA H100 80GB SXM", "NVIDIA H200 141GB SXM", "NVIDIA RTX 5090")


class UnknownChip(ValueError):
    """No chip has that name; the message lists the nearest names."""


@functools.cache
def table() -> pandas.DataFrame:
    """Return what is printed of each chip.

    Returns:
        Columns: chip, product (what a chip's sizes and boards have in common: all V100 are one), aliases (separated by
        "|"), vendor, architecture, released (a date), cores (shading units), fp32_tflops, fp16_tflops (of the
        matrix units, dense, where it has them, else of the shaders), matrix_tflops (of the matrix units, dense, 16 bits
        multiplied and added up in 32; missing where it has none), memory_gb, bandwidth_gb_s, tdp_watts,
        launch_price_usd, source. What no source told is missing.
    """
    text = dict.fromkeys(("chip", "product", "vendor", "architecture", "released", "source"), "str")
    printed = pandas.read_csv(layout.published() / "record" / "chips.csv", dtype=text | {"aliases": "str"})
    return printed.fillna({"aliases": ""}).set_index("chip", drop=False).rename_axis(None)


def resolve(name: str) -> str:
    """Return the one name of the chip that goes by this name.

    Raises:
        UnknownChip: no chip does.
    """
    names = _names()
    words = _words(name)
    if words in names:
        return names[words]
    written = {" ".join(key): chip for key, chip in names.items()}
    near = difflib.get_close_matches(" ".join(words), written, n=5, cutoff=0.5)
    nearest = list(dict.fromkeys(written[key] for key in near))
    hint = f"; the nearest names: {', '.join(nearest)}" if nearest else ""
    raise UnknownChip(f"chip {name!r} is not in the list{hint}; `benchbook chips` lists them")


def listed(name: object) -> str:
    """Return the one name of a chip that is in the list; empty for any other, and for what is no name."""
    return _names().get(_words(name), "") if isinstance(name, str) else ""


def canonical(name: str | None) -> str | None:
    """Return the one name of a chip, or the name itself where it is in no list, as that of a new CPU."""
    return listed(name) or (name if isinstance(name, str) else None)


@functools.cache
def specification(name: str) -> Mapping:
    """Return what is printed of one chip: the columns of `table` that are not missing.

    Raises:
        UnknownChip: no chip goes by that name.
    """
    return MappingProxyType(table().loc[resolve(name)].dropna().to_dict())


@functools.cache
def product(name: str) -> str:
    """Return what a chip has in common with its other sizes and boards; of a chip in no list, its name."""
    chip = canonical(name)
    return table()["product"].get(chip, chip)


@functools.cache
def peak(chip: str, precision: str | None) -> float:
    """Return the printed peak of a chip in a precision, TFLOP/s; NaN where none was printed.

    TF32 runs at half the rate of 16 bits. Of a chip without matrix units none is known for 16 bits.
    """
    if chip not in table().index or not isinstance(precision, str):
        return numpy.nan
    printed = table().loc[chip]
    half = numpy.nan
    if not numpy.isnan(printed["matrix_tflops"]):
        half = numpy.fmax(printed["matrix_tflops"], printed["fp16_tflops"])
    rates = {"fp32": printed["fp32_tflops"], "tf32": half / 2}
    return float(rates.get(precision, half))


@functools.cache
def has_tf32(chip: str) -> bool:
    """Return whether a chip has units for TF32."""
    printed = table()
    return chip in printed.index and printed.loc[chip, "vendor"] == "NVIDIA" and released(chip) >= TF32_SINCE


@functools.cache
def released(chip: str) -> float:
    """Return when a chip came out, as a year with its fraction; NaN where no source told."""
    date = pandas.to_datetime(table()["released"].get(chip), errors="coerce")
    return numpy.nan if pandas.isna(date) else date.year + date.day_of_year / 366


def search(text: str = "") -> pandas.DataFrame:
    """Return the chips whose name or other names hold all words of a text, as `table` has them; all without a text."""
    printed = table()
    names = (printed["chip"] + "|" + printed["aliases"]).str.lower()
    for word in text.lower().split():
        names = names[names.str.contains(word, regex=False)]
    return printed.loc[names.index]


@functools.cache
def _names() -> dict[tuple[str, ...], str]:
    """Return each chip by the words of its name and of its other names.

    Raises:
        ValueError: two chips go by one name.
    """
    names = {}
    for chip in table().to_dict("records"):
        for name in [chip["chip"], *filter(None, chip["aliases"].split("|"))]:
            words = _words(name)
            if names.setdefault(words, chip["chip"]) != chip["chip"]:
                raise ValueError(f"chips.csv: {name!r} is both {names[words]} and {chip['chip']}")
    return names


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name that tell chips apart, sorted; "RTX3090" and "RTX 3090" have the same."""
    plain = re.sub(r"\((r|tm)\)|®|™", " ", name.lower())
    words = re.findall(r"[a-z]+|\d+", plain)
    return tuple(sorted(word for word in words if word not in SERIES | VENDORS))
