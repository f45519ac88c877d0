"""The published rates that predictions learn from: one table of observations from the record and the articles.

An observation has what its rate may depend on: who published it, what was trained, in which precision, and the chip's
specifications. `observation` makes those of every source, and that of a question.
"""

import contextlib
import functools
import json
import math
import re

import numpy
import pandas

from benchbook.record import articles, chips
from benchbook.rows import networks

RECORD, ARTICLES = "the record", "the articles of our studies"
SWITCHES = ("attention", "vocabulary", "data", "cudnn", "compiled", "suite_version", "block", "power_limit_watts")
SWITCHES += ("memory_format", "optimizer")
SIZES = ("image_size", "sequence_length")
FEATURES = ["peak", "bandwidth", "fp32", "released"]  # of a chip; logarithms, but `released` is years / 3
COLUMNS = ["publication", "setting", "work", "network", "image_size", "sequence_length", "precision", "family"]
COLUMNS += ["framework", "chip", "origin", "product", "vendor", "rate", "batch_size", "date", "loader", "no_update"]
COLUMNS += ["flops_per_sample", "source", *FEATURES]
DATE, BATCH = 2021.0, 64.0  # year and batch size if none are stated
DEFAULTS = {"batch_size": BATCH, "date": DATE, "loader": 0.0, "no_update": 0.0, "framework": ""}
PRINTED = ("published", "digitised", "secondary")  # without derived figures, which are not measurements
# Networks whose steps take longer to start than to compute: their rates do not predict larger networks, nor vice versa.
TINY = ("mlp", "lenet5", "mnist_cnn", "nanogpt_char_small", "tiny_vgg", "vae")
MOST = 8  # chips of a board, and devices of a machine; no publication on record compares more with one
SHORTEST = 1e11  # operations of the smallest step that is used from articles: 10 ms at 10 TFLOP/s
FP32, TF32, HALF, PLAIN_HALF = "fp32", "tf32", "half", "half without matrix units"


class Unknown(ValueError):
    """The record lacks something that a prediction needs; the message names it."""


@functools.cache
def published() -> pandas.DataFrame:
    """Return all usable published rates: those of the record, and those of articles that are not in the record."""
    figures, rows = articles.read(), articles.rows()
    listed = rows["reference"].str.partition(";")[0].isin(figures["article"])
    tables = [of_record(figures)[0], of_articles(rows[~listed])]
    # As objects, because pandas 2.2 warns about columns that are empty in one of the tables.
    return pandas.concat([table.astype(object) for table in tables], ignore_index=True).infer_objects()


def of_record(figures: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.Series]:
    """Return the usable single-device training rates of the record, and the reasons why the others are not usable.

    Chips that are sold in boards alone, such as TPUs, are rated by whole trainings on at most MOST of them, per chip.

    Args:
        figures: from `record.read`.

    Returns:
        The table, by the figure's line, with columns: publication, setting (chips are compared within it: publication,
        network, size, precision, framework, data and other stated switches), work (network with image size or sequence
        length), network, image_size (pixels), sequence_length (tokens), precision (of the arithmetic), family (of
        precisions: FP32 or another), framework, chip, origin (the record or articles), product, vendor, rate (images or
        sequences a second), batch_size, date (a year), loader (1 if a loader ran, else 0), no_update (1 if no optimizer
        ran, else 0), flops_per_sample (missing if not counted), source, and FEATURES. The reasons, by the figure's
        line.
    """
    boards = figures["chip"].map(chips.has_matrix_units_alone) & figures["device_count"].le(MOST)
    boards &= figures["metric"].eq("throughput_wall_clock") & figures["unit"].eq("img/s")
    figures = figures.assign(rate=figures["rate"].mask(boards, figures["value"] / figures["device_count"]))
    rates, lines, reasons = figures[figures["rate"].gt(0) & (figures["device_count"].eq(1) | boards)], {}, {}
    for place, figure in zip(rates.index, _lines(rates), strict=True):
        try:
            lines[place] = _of_figure(figure)
        except (Unknown, chips.UnknownChip) as reason:
            reasons[place] = str(reason).partition("; ")[0]
    return pandas.DataFrame(lines.values(), columns=COLUMNS, index=list(lines)), pandas.Series(reasons, dtype="str")


def of_articles(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates in articles' rows, with the columns of `of_record`.

    If a publication printed both training alone and a total, training alone is used. CPUs are left out, because their
    specifications are not in the list, and so is work that is too small to keep a chip busy.

    Args:
        rows: published rows of all studies; derived figures are left out.
    """
    kept = rows[rows["source"].isin(PRINTED) & rows["phase"].isin(["train", "total"]) & rows["status"].eq("ok")]
    counts = kept["device_count"].astype("Float64").fillna(1)
    alone = counts.eq(1) | (kept["device"].eq("tpu") & counts.le(MOST))
    kept = kept.assign(device_count=counts)[kept["device"].ne("cpu").fillna(False) & alone]
    kept = kept[~kept["model"].isin(TINY) & kept["model"].notna()]
    rates = kept["samples_per_second"].fillna(kept["samples"] / kept["seconds"]) / kept["device_count"]
    kept = kept.assign(rate=rates.astype("Float64"))[rates.notna()].sort_values("phase", ascending=False, kind="stable")
    lines = []
    for row in _lines(kept.drop_duplicates(["reference", "machine", "point"])):
        with contextlib.suppress(Unknown, chips.UnknownChip):
            lines.append(_of_article(row))
    table = pandas.DataFrame(lines, columns=COLUMNS)
    return table[~(table["flops_per_sample"].astype(float) * table["batch_size"] < SHORTEST)]


def shares_of_peak(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the share of a chip's published peak that each training of a language model reaches.

    Rates of several devices count for each device. FP8 is left out: its peak is another.

    Args:
        figures: from `record.read`.

    Returns:
        The lines of figures with the columns of `chip_figures`, and share: the logarithm of the share of `peak`, which
        for 16 bits is that of products summed in 32 bits.
    """
    kept = figures[figures["refused"].eq("") & figures["phase"].eq("train") & figures["computed"].notna()]
    kept = kept[kept["chip"].isin(chips.table().dropna(subset="bandwidth_gb_s").index)]
    details = kept["settings"].map(json.loads)
    kept = kept[~details.map(lambda each: bool(each.get("padded") or each.get("recomputed")))]
    modelled = kept["unit"].eq("TFLOP/s/chip") | (kept["sequence_length"].gt(0) & kept["rate"].gt(0))
    kept = kept[modelled & kept["share_of_peak"].gt(0) & ~kept["network"].isin(TINY)]
    reached = numpy.log(kept["share_of_peak"].astype(float) * list(map(chips.peak, kept["chip"], kept["computed"])))
    figures = [chip_figures(*line) for line in zip(kept["chip"], kept["computed"], strict=True)]
    figures = pandas.DataFrame(figures, index=kept.index).drop(columns="chip")
    return kept.drop(columns="precision").join(figures).assign(share=reached - figures["peak"])


def observation(figures: dict, work: dict, **known) -> dict:
    """Return a line of the table; an unknown column has its value from DEFAULTS, or None.

    Args:
        figures: of the chip, see `chip_figures`.
        work: see `work_of`.
        known: further columns.
    """
    stated = {name: value for name, value in known.items() if value is not None}
    return dict.fromkeys(COLUMNS) | DEFAULTS | figures | work | stated


def work_of(network: str, image_size: float | None, sequence_length: float | None = None) -> dict:
    """Return a line's work, network, image_size, sequence_length and flops_per_sample (None if not counted)."""
    operations = networks.describe(network, image_size, sequence_length).flops_per_sample
    work = f"{network}, {image_size:g} px" if image_size else network
    work = f"{network}, {sequence_length:,.0f} tokens" if sequence_length else work
    sizes = {"image_size": image_size, "sequence_length": sequence_length}
    return {"work": work, "network": network, "flops_per_sample": operations} | sizes


def family(precision: str) -> str:
    """Return the family of a precision of arithmetic: FP32, TF32 or HALF."""
    return precision if precision in (FP32, TF32) else HALF


@functools.cache
def chip_figures(chip: str, precision: str) -> dict:
    """Return a line's chip, precision, product, vendor, family and FEATURES.

    If its fp32 peak was never published, as for TPUs, that of its matrix units divided by the median ratio of other
    chips stands for it in 16 bits.

    Args:
        chip: any of its names.
        precision: one of `records.PRECISIONS`.

    Raises:
        UnknownChip: no chip has this name.
        Unknown: its peak or bandwidth was not published; the message names it.
    """
    printed, of = chips.specification(chip), family(precision)
    chip, matrix, bandwidth = (printed.get(name) for name in ("chip", "matrix_tflops", "bandwidth_gb_s"))
    fp32 = printed.get("fp32_tflops")
    if of == HALF and matrix and not fp32:
        fp32 = matrix / float((chips.table()["matrix_tflops"] / chips.table()["fp32_tflops"]).median())
    missing = [name for name, value in (("fp32 figure", fp32), ("bandwidth", bandwidth)) if not value]
    if missing:
        raise Unknown(f"{chip}: no {' and no '.join(missing)} was published (chips.csv)")
    if of == HALF and not matrix:
        of, matrix = PLAIN_HALF, printed.get("fp16_tflops")
    units = {FP32: 0.0, TF32: (matrix or 0.0) / 2}.get(of, matrix or 0.0)
    logs = {"peak": max(fp32, units), "bandwidth": bandwidth, "fp32": fp32}
    known = {"chip": chip, "precision": precision, "product": printed["product"], "vendor": printed["vendor"]}
    known |= {"family": of, "released": float(numpy.nan_to_num(chips.released(chip), nan=DATE)) / 3}
    return known | {name: math.log(value) for name, value in logs.items()}


def _of_figure(figure: dict) -> dict:
    """Return a figure of the record as an observation.

    Raises:
        Unknown, UnknownChip: it cannot be used; the message says why.
    """
    details, (size, length) = json.loads(figure["settings"] or "{}"), (_positive(figure[name]) for name in SIZES)
    work, computed = work_of(figure["network"], size, length), figure["computed"]
    for reason, wrong in (
        (figure["refused"], figure["refused"]),
        (f"precision {figure['precision'] or 'not stated'}", computed is None),
        ("samples are shorter than the printed length", details.get("padded")),
        ("activations are computed a second time, which is more work", details.get("recomputed")),
        ("a network of sequences whose operations were not counted", length and not work["flops_per_sample"]),
    ):
        if wrong:
            raise Unknown(reason)
    framework = re.sub(r"\W+", " ", re.sub(r"\d[\w.+]*", "", figure["framework"])).strip().lower()
    switches = [f"{name} {details[name]}" for name in SWITCHES if name in details]
    return observation(
        chip_figures(figure["chip"], computed),
        work,
        publication=figure["publication"],
        setting=" | ".join([figure["article"], work["work"], computed, framework, *switches]),
        framework=framework.partition(" ")[0],
        rate=figure["rate"],
        batch_size=_positive(figure["batch_size"]),
        date=_positive(figure["date"]),
        loader=float(not str(details.get("data", "synthetic")).startswith(("synthetic", "not stated"))),
        no_update=float("none" in str(details.get("optimizer"))),
        source=articles.citation(figure),
        origin=RECORD,
    )


def _of_article(row: dict) -> dict:
    """Return an article's row as an observation.

    Raises:
        Unknown, UnknownChip: the figures of its chip are unknown.
    """
    chip = chips.listed(row["device_name"]) or chips.canonical(row["chip"]) or ""
    printed = row["precision"] or "fp32"
    computed = "tf32" if printed == "fp32" and chips.has_tf32(chip) else printed
    publication, point = row["reference"].partition(";")[0], row["point"].removesuffix(f"-{row['device']}")
    stated = re.findall(r"\b(20\d\d)\b", publication)
    frozen = row["study"] == "mobilenetv2_energy"  # only the last layer of the network is trained
    network = networks.canonical(row["study"] if frozen else row["model"])
    usual = networks.describe(network)
    return observation(
        chip_figures(chip, computed),
        work_of(network, *(float(row[name]) if row.get(name) else getattr(usual, name) for name in SIZES)),
        framework={"torch": "pytorch"}.get(row["framework"], row["framework"]),
        publication=publication,
        setting=" | ".join([publication, point, row["phase"], computed]),
        rate=float(row["rate"]),
        batch_size=float(row["batch_size"]) if row["batch_size"] else None,
        date=float(stated[-1]) if stated else None,
        loader=float(row["dataset"] != "synthetic"),
        no_update=float("none" in str((row["settings"] or {}).get("optimizer"))),
        flops_per_sample=row.get("flops_per_sample") or None,
        source=row["reference"],
        origin=ARTICLES,
    )


def _positive(value: float | None) -> float | None:
    return value if value and value > 0 else None


def _lines(table: pandas.DataFrame) -> list[dict]:
    """Return the lines of a table, with None for what is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
