"""The published rates of images that predictions learn from.

A line has what its rate may depend on: who published it, what was trained, and the chip's
specifications in this precision, see `chip_figures`. Its `speed` is the logarithm of images a
second.
"""

import functools
import json
import math
import re

import numpy
import pandas

from benchbook.machine.precisions import PRECISIONS
from benchbook.record import articles, chips
from benchbook.rows import networks

RECORD, ARTICLES = "the record", "the articles of our studies"
SIZES = ("image_size", "sequence_length")
PRINTED = (
    "published",
    "digitised",
    "secondary",
)  # without derived figures, which are not measurements
BATCH = 64.0  # if none is stated
MOST = 8  # chips of a board
FEWEST_PRODUCTS = 5
SHORTEST = 1e11  # operations of the smallest step that is used of articles: 10 ms at 10 TFLOP/s
HALF, PLAIN_HALF = "half", "half without matrix units"
FAMILIES = {"fp32": "32 bits", "half": "16 bits", "unknown": "the precision of its source"}


def family_of(precision: object) -> str:
    """Return the family of a precision, a key of FAMILIES; TF32 counts as fp32, as in most
    publications."""
    if not isinstance(precision, str):
        return "unknown"
    return "fp32" if precision in ("fp32", "tf32") else HALF


@functools.cache
def usable() -> pandas.DataFrame:
    """Return the figures of the record and of our studies' articles that are not refused.

    Returns:
        The columns of `articles.read`, and: origin (RECORD or ARTICLES), product, family (a key
        of FAMILIES), rounding (half a unit of the last printed digit, relative).
    """
    figures = pandas.concat(
        [articles.read().assign(origin=RECORD), of_articles().assign(origin=ARTICLES)],
        ignore_index=True,
    )
    figures = figures[figures["refused"].eq("")].reset_index(drop=True)
    products, families = figures["chip"].map(chips.product), figures["computed"].map(family_of)
    rounding = figures["value"].map(articles.half_unit) / figures["value"]
    return figures.assign(product=products, family=families, rounding=rounding)


@functools.cache
def year(article: str) -> float:
    """Return the year of an article by the list of sources, else the last one in its name; NaN
    without."""
    known = articles.sources().set_index("article")["date"]
    if article in known.index:
        return float(known[article])
    named = re.findall(r"\b20\d\d\b", article)
    return float(named[-1]) if named else math.nan


@functools.cache
def images() -> pandas.DataFrame:
    """Return the usable published rates of training on images with one device.

    Chips that are sold in boards alone, such as TPUs, are rated by whole trainings on at most
    MOST of them, per chip.

    Returns:
        The columns of `articles.read` and of `chip_figures`, and: speed, origin (RECORD or
        ARTICLES), work (network with image size), no_update (1 if no optimizer ran, else 0).
    """
    figures = usable().copy()
    boards = figures["chip"].map(chips.has_matrix_units_alone) & figures["device_count"].le(MOST)
    boards &= figures["metric"].eq("throughput_wall_clock") & figures["unit"].eq("img/s")
    figures["rate"] = figures["rate"].mask(boards, figures["value"] / figures["device_count"])
    alone = figures["device_count"].eq(1) | boards
    figures = figures[figures["rate"].gt(0) & alone & figures["sequence_length"].isna()]
    # Padded samples are shorter than their printed length; activations that are computed twice are
    # more work.
    other = figures["details"].map(lambda own: bool(own.get("padded") or own.get("recomputed")))
    is_listed = figures["chip"].isin(chips.table().index) & figures["computed"].notna()
    figures = figures[~other & is_listed].reset_index(drop=True)
    known = [chip_figures(*each) for each in figures[["chip", "computed"]].to_numpy()]
    lines = figures.assign(**pandas.DataFrame(known))
    lines = lines[lines["peak"].notna() & lines["bandwidth"].notna()].fillna({"batch_size": BATCH})
    framework = lines["framework"].str.extract(r"([A-Za-z]+)")[0].str.lower()
    work = pandas.Series(map(work_name, lines["network"], lines["image_size"]), lines.index)
    lines = lines.assign(
        speed=numpy.log(lines["rate"].astype(float)),
        framework=framework,
        work=work,
        no_update=[float("none" in str(own.get("optimizer"))) for own in lines["details"]],
    )
    is_large = (lines["flops_per_sample"] * lines["batch_size"]).ge(SHORTEST)
    return lines[is_large | lines["origin"].eq(RECORD)].reset_index(drop=True)


def of_articles() -> pandas.DataFrame:
    """Return the training rates in articles that are not in the record, as figures of the record.

    If a publication printed both training alone and a total, training alone is used. A rate of a
    TPU's board counts for one chip as well.
    """
    rows = articles.rows().fillna({"device_count": 1})
    printed = rows["reference"].str.partition(";")
    rates = rows["samples_per_second"].fillna(rows["samples"] / rows["seconds"])
    rows = rows.assign(rate=rates, article=printed[0], place=printed[2].str.strip())
    is_named = rows["device"].notna() & rows["model"].notna()
    is_printed = rows["source"].isin(PRINTED) & ~printed[0].isin(articles.read()["article"])
    trained = rows["phase"].isin(["train", "total"]) & rows["status"].eq("ok") & rows["rate"].gt(0)
    kept = rows[(is_named & is_printed & trained).fillna(False)]
    boards = kept[kept["device"].eq("tpu") & kept["device_count"].between(2, MOST)]
    of_chip = boards.assign(rate=boards["rate"] / boards["device_count"], device_count=1)
    kept = pandas.concat([kept, of_chip]).sort_values("phase", ascending=False, kind="stable")
    kept = kept.drop_duplicates(["reference", "machine", "point", "device_count"])
    return articles.described(pandas.DataFrame(map(_as_figure, kept.to_dict("records"))))


def _as_figure(row: dict) -> dict:
    given = row["settings"] or {}
    trains_all = given.get("trainable", True)  # else the last layer alone
    usual = networks.describe(row["model"] if trains_all else f"{row['model']}_frozen")
    settings = {"model": usual.name, "phase": "train", "data": row["dataset"]}
    settings |= {"device_count": row["device_count"]}
    settings |= {"optimizer": given.get("optimizer")}
    sizes = {name: row[name] if pandas.notna(row[name]) else getattr(usual, name) for name in SIZES}
    settings |= sizes | {
        "batch_size": row["batch_size"] if pandas.notna(row["batch_size"]) else None
    }
    chip = row["device_name"]
    framework = {"torch": "pytorch"}.get(row["framework"], row["framework"])
    named = {
        "article": row["article"],
        "machine": row["machine"],
        "source": row["place"],
        "note": "",
    }
    chip = processor(chip if chips.listed(chip) else row["chip"], row["device"])
    named |= {"chip": chip, "framework": framework}
    precision = row["precision"] if pandas.notna(row["precision"]) else "fp32"
    named |= {"precision": "fp32 (not stated)" if precision == "fp32" else precision}
    return named | {
        "metric": "throughput",
        "unit": "img/s",
        "value": row["rate"],
        "settings": json.dumps(settings),
    }


def processor(chip: str, device: str) -> str:
    """Return the canonical name of what computes; a Mac's chip is listed for its GPU."""
    is_other = device == "cpu" and chips.listed(chip)
    return chips.canonical(f"{chip} CPU" if is_other else chip)


def work_name(network: str, image_size: float) -> str:
    """Return a network with its image size, if that is known."""
    return f"{network}, {image_size:g} px" if image_size > 0 else network


@functools.cache
def chip_figures(chip: str, precision: str) -> dict:
    """Return a chip's product, vendor, family (of precisions), and the logarithms of its peak,
    bandwidth and fp32 peak.

    The last three are NaN if no source gives them. If the fp32 peak of a chip was never
    published, as for TPUs, that of its matrix units divided by the median ratio of other chips
    stands for it in 16 bits.

    Args:
        chip: its canonical name.
        precision: a name of PRECISIONS.
    """
    printed, of = chips.table().loc[chip], PRECISIONS[precision].family
    fp32, matrix = printed["fp32_tflops"], printed["matrix_tflops"]
    if of == HALF and math.isnan(fp32):
        fp32 = matrix / float(
            (chips.table()["matrix_tflops"] / chips.table()["fp32_tflops"]).median()
        )
    if of == HALF and math.isnan(matrix):
        of, matrix = PLAIN_HALF, printed["fp16_tflops"]
    units = {"fp32": fp32, "tf32": matrix / 2}.get(of, matrix)
    figures = {
        "peak": numpy.fmax(fp32, units),
        "bandwidth": printed["bandwidth_gb_s"],
        "fp32": fp32,
    }
    known = {"product": printed["product"], "vendor": printed["vendor"], "family": of}
    return known | {name: math.log(value) for name, value in figures.items()}
