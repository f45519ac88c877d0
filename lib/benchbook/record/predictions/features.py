"""What a training rate may depend on: a line for each rate, with its chip's figures and its work's."""

import functools
import json
import re

import numpy
import pandas

from benchbook import record
from benchbook.record import chips, marks, networks

HERE = "measured here"
TOLD = ("data", "cudnn", "compiled", "suite_version", "block", "power_limit_watts", "memory_format", "optimizer")
COLUMNS = ["publication", "setting", "work", "network", "image_size", "precision", "family", "framework", "chip"]
COLUMNS += ["origin", "product", "vendor", "rate", "batch_size", "date", "loader", "no_update", "flops_per_sample"]
COLUMNS += ["source"]
CHIP = ["peak", "bandwidth", "fp32", "released", "memory"]  # the first four, and memory, as logarithms or years / 3
RECORD, ARTICLES = "the record", "the articles of our studies"
BATCH, DATE = 64.0, 2021.0  # where none was stated
MATRIX = ("Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell 2.0")  # with matrix units


class Unknown(ValueError):
    """Something is outside what the record knows; the message names what is missing."""


def observations(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of a ledger that something can be concluded from.

    Args:
        figures: from `record.read`.

    Returns:
        Columns: origin (the record, articles, or measured here), publication, setting (what within a publication is
        compared chip by chip: network, size, precision, framework, data and the switches it names), work (network and
        image size), network, image_size (pixels), precision (as computed), family (of precisions: fp32, tf32, half),
        framework, chip, product, vendor, rate (images a second), batch_size, date (a year), loader, no_update (1 where
        a loader ran, where no optimizer did), flops_per_sample (missing where nobody counted), source, and the features
        of `CHIP`. What lacks a precision or the figures of its chip is left out; `refusals` tells of it.
    """
    usable = figures[usable_rates(figures)]
    usable = usable[[not reason(line) for line in usable.to_dict("records")]]
    lines = [_line(line) for line in usable.to_dict("records")]
    return pandas.DataFrame(lines, columns=[*COLUMNS, *CHIP], index=usable.index)


def usable_rates(figures: pandas.DataFrame) -> pandas.Series:
    """Return which figures are rates of training on one device that do not contradict themselves."""
    return figures["rate"].gt(0) & figures["device_count"].eq(1) & figures["refused"].eq("")


def refusals(figures: pandas.DataFrame) -> pandas.Series:
    """Return why a single-device training rate cannot be used, by the figure's line; those that can are left out."""
    rates = figures[figures["rate"].gt(0) & figures["device_count"].eq(1)]
    own = pandas.Series([reason(line) for line in rates.to_dict("records")], index=rates.index, dtype="str")
    reasons = rates["refused"].where(rates["refused"].ne(""), own)
    return reasons[reasons != ""]


def chip_figures(chip: str, precision: str, asked: bool = False) -> dict[str, float]:
    """Return the features of a chip in a precision: logarithms of TFLOP/s, of GB/s and of GB, and years.

    Args:
        chip: by any of its names.
        precision: one of `records.PRECISIONS`.
        asked: of a chip that is asked about, not learnt from: where its peak of fp32 was never published, as of TPUs,
            that of its matrix units, divided by `usual_ratio`, tells enough of 16 bits.

    Raises:
        UnknownChip: no chip goes by that name.
        Unknown: peak or bandwidth was not published; the message names it.
    """
    return _chip_figures(chips.resolve(chip), family(precision), asked)


@functools.cache
def _chip_figures(chip: str, of: str, asked: bool) -> dict[str, float]:
    printed = chips.table().loc[chip]
    fp32, half = printed["fp32_tflops"], half_rate(chip)
    if asked and of == "half" and numpy.isnan(fp32) and half > 0:
        fp32 = half / usual_ratio()
    said = {"fp32 figure": fp32, "bandwidth": printed["bandwidth_gb_s"]}
    missing = [name for name, value in said.items() if numpy.isnan(value)]
    if missing:
        raise Unknown(f"of {chip} no {' and no '.join(missing)} was published (chips.csv)")
    half = max(fp32, half)
    peak = {"fp32": fp32, "tf32": max(fp32, half / 2), "half": half}[of]
    year, memory = chips.released(chip), printed["memory_gb"]
    return {
        "peak": numpy.log(peak),
        "bandwidth": numpy.log(printed["bandwidth_gb_s"]),
        "fp32": numpy.log(fp32),
        "released": (DATE if numpy.isnan(year) else year) / 3,
        "memory": numpy.log(16.0 if numpy.isnan(memory) else memory),
    }


@functools.cache
def usual_ratio() -> float:
    """Return how many times its fp32 peak a chip usually reaches in 16 bits: the median where both were published."""
    printed = chips.table()["fp32_tflops"]
    rates = pandas.Series({chip: half_rate(chip) for chip in printed.index})
    return float((rates / printed)[rates > 0].median())


def half_rate(chip: str) -> float:
    """Return a chip's dense rate in 16 bits, TFLOP/s: that of its matrix units, else of its shaders; 0 where neither."""
    printed = chips.table().loc[chip]
    return float(numpy.nan_to_num(numpy.nanmax([printed["matrix_tflops"], printed["fp16_tflops"] if numpy.isnan(printed["matrix_tflops"]) else 0.0])))


def family(precision: str) -> str:
    """Return the family of a precision: fp32, tf32 or half."""
    return precision if precision in ("fp32", "tf32") else "half"


def reason(line: dict) -> str:
    """Return why a rate cannot be used: its precision or its chip's figures are not stated; empty where they are."""
    if not isinstance(line["computed"], str):
        return f"precision {line['precision'] or 'not stated'}"
    try:
        chip_figures(line["chip"], line["computed"])
    except (Unknown, chips.UnknownChip) as error:
        return str(error).partition("; ")[0]
    return ""


def _line(line: dict) -> dict:
    details = json.loads(line["settings"] or "{}")
    framework = re.sub(r"\W+", " ", re.sub(r"\d[\w.+]*", "", line["framework"])).strip().lower()
    size = line["image_size"] if line["image_size"] > 0 else None
    work = f"{line['network']}, {size:g} px" if size else line["network"]
    switches = [f"{name} {details[name]}" for name in TOLD if name in details]
    printed = chips.table().loc[line["chip"]]
    return {
        "publication": line["publication"],
        "setting": " | ".join([line["article"], work, line["computed"], framework, *switches]),
        "work": work,
        "network": line["network"],
        "image_size": size,
        "precision": line["computed"],
        "family": family(line["computed"]),
        "framework": framework.partition(" ")[0],
        "chip": line["chip"],
        "product": printed["product"],
        "vendor": printed["vendor"],
        "rate": line["rate"],
        "batch_size": line["batch_size"] if line["batch_size"] > 0 else BATCH,
        "date": line["date"] if line["date"] > 0 else DATE,
        "loader": float(not str(details.get("data", "synthetic")).startswith(("synthetic", "not stated"))),
        "no_update": float("none" in str(details.get("optimizer"))),
        "flops_per_sample": networks.describe(line["network"], size).flops_per_sample,
        "source": record.citation(line),
        "origin": RECORD,
    } | chip_figures(line["chip"], line["computed"])
