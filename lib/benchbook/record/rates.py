"""The rates that predictions learn from: one table of observations from the record, articles and measured machines.

An observation has what its rate may depend on: who published it, what was trained, in which precision, and the chip's
figures. `observation` makes those of every source, and that of a question.
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

HERE, RECORD, ARTICLES = "measured here", "the record", "the articles of our studies"
SWITCHES = ("attention", "vocabulary", "data", "cudnn", "compiled", "suite_version", "block", "power_limit_watts")
SWITCHES += ("memory_format", "optimizer")
SIZES = ("image_size", "sequence_length")
FEATURES = ["peak", "bandwidth", "fp32", "released", "memory"]  # of a chip; logarithms, but `released` is years / 3
COLUMNS = ["publication", "setting", "work", "network", "image_size", "sequence_length", "precision", "family"]
COLUMNS += ["framework", "chip", "origin", "product", "vendor", "rate", "batch_size", "date", "loader", "no_update"]
COLUMNS += ["flops_per_sample", "source", *FEATURES]
DATE, MEMORY = 2021.0, 16.0  # the year and gigabytes if none are stated
DEFAULTS = {"batch_size": 64.0, "date": DATE, "loader": 0.0, "no_update": 0.0, "framework": ""}
PRINTED = ("published", "digitised", "secondary")  # without derived figures, which are not measurements
# Networks whose steps take longer to start than to compute: their rates do not predict larger networks, nor vice versa.
TINY = ("mlp", "lenet5", "mnist_cnn", "nanogpt_char_small", "tiny_vgg", "vae")
SHORTEST = 1e11  # operations of the smallest step that is used from articles: 10 ms at 10 TFLOP/s
FP32, TF32, HALF, PLAIN_HALF = "fp32", "tf32", "half", "half without matrix units"


class Unknown(ValueError):
    """The record lacks something that a prediction needs; the message names it."""


@functools.cache
def of_publications() -> pandas.DataFrame:
    """Return all published rates: those of the record, and those of articles that are not in the record."""
    figures, rows = articles.read(), articles.rows()
    listed = rows["reference"].str.partition(";")[0].isin(figures["article"])
    return concat(of_record(figures)[0], of_articles(rows[~listed]))


def concat(*rates: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return tables of rates as one."""
    # As objects, because pandas 2.2 warns about columns that are empty in one of the tables.
    tables = [table.astype(object) for table in rates if table is not None]
    return pandas.concat(tables, ignore_index=True).infer_objects()


def of_record(figures: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.Series]:
    """Return the usable single-device training rates of a ledger, and the reasons why the others are not usable.

    Args:
        figures: from `record.read`.

    Returns:
        The table, by the figure's line, with columns: publication, setting (chips are compared within it: publication,
        network, size, precision, framework, data and other stated switches), work (network with image size or sequence
        length), network, image_size (pixels), sequence_length (tokens), precision (of the arithmetic), family (of
        precisions: FP32 or another), framework, chip, origin (the record, articles, or measured here), product, vendor,
        rate (images or sequences a second), batch_size, date (a year), loader (1 if a loader ran, else 0), no_update (1
        if no optimizer ran, else 0), flops_per_sample (missing if not counted), source, and FEATURES. The reasons, by
        the figure's line.
    """
    rates, lines, reasons = figures[figures["rate"].gt(0) & figures["device_count"].eq(1)], {}, {}
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
    kept = kept[kept["device"].ne("cpu").fillna(False) & kept["device_count"].fillna(1).eq(1)]
    kept = kept[~kept["model"].isin(TINY) & kept["model"].notna()]
    rates = kept["samples_per_second"].fillna(kept["samples"] / kept["seconds"])
    kept = kept.assign(rate=rates.astype("Float64"))[rates.notna()].sort_values("phase", ascending=False, kind="stable")
    lines = []
    for row in _lines(kept.drop_duplicates(["reference", "machine", "point"])):
        with contextlib.suppress(Unknown, chips.UnknownChip):
            lines.append(_of_article(row))
    table = pandas.DataFrame(lines, columns=COLUMNS)
    return table[~(table["flops_per_sample"].astype(float) * table["batch_size"] < SHORTEST)]


def of_points(summary: pandas.DataFrame, ceilings: pandas.DataFrame, to_predict: bool = False) -> pandas.DataFrame:
    """Return the rates of measured points on calibrated machines, with the columns of `of_record`.

    The machine's measured rates of matrix products and copies replace the published figures of its chip. A CPU, or a
    chip that is not in the list, is a product of its own.

    Args:
        summary: measured points, from `statistics.summarise`.
        ceilings: from `rows.ceilings`.
        to_predict: the points are targets of a prediction: none is left out, and for a machine that was not calibrated
            the published figures of its chip are used.

    Raises:
        Unknown: a target's machine was not calibrated, and its chip is not in the list.
    """
    timed = summary["samples_per_second"].notna() & summary["status"].eq("ok") & ~summary["model"].isin(TINY)
    alone = summary["device_count"].astype(float).fillna(1).eq(1)
    best, lines = best_rates(ceilings), []
    for point in _lines(summary if to_predict else summary[timed & alone]):
        machine, device, named = point["machine"], point["device"], _listed(point)
        known = {"precision": point["precision"], "chip": machine, "product": f"{machine} {device}", "vendor": "CPU"}
        if named:
            known |= {"chip": named, "product": chips.product(named), "vendor": chips.specification(named)["vendor"]}
        figures = measured_figures(best, point)
        if figures is None and to_predict:
            if not named:
                raise Unknown(
                    f"{point['device_name']} is not in the list of chips, and {machine} was not calibrated;"
                    " calibrate it with: make study STUDIES=calibrate"
                )
            figures = chip_figures(named, point["precision"])
        if figures:
            known |= {"rate": float(point["samples_per_second"]), "publication": HERE, "source": HERE, "origin": HERE}
            lines.append(_of_row(point, figures, setting=" | ".join([HERE, point["study"], point["point"]]), **known))
    return pandas.DataFrame(lines, columns=COLUMNS)


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


@functools.cache
def chip_figures(chip: str, precision: str, to_predict: bool = False) -> dict:
    """Return a line's chip, precision, product, vendor, family and FEATURES.

    Args:
        chip: any of its names.
        precision: one of `records.PRECISIONS`.
        to_predict: the chip is the target of a prediction. If its fp32 peak was never published, as for TPUs, a
            prediction in 16 bits uses the peak of its matrix units divided by `usual_ratio`.

    Raises:
        UnknownChip: no chip has this name.
        Unknown: its peak or bandwidth was not published; the message names it.
    """
    printed, family = chips.specification(chip), precision if precision in (FP32, TF32) else HALF
    chip, matrix, bandwidth = (printed.get(name) for name in ("chip", "matrix_tflops", "bandwidth_gb_s"))
    fp32 = printed.get("fp32_tflops")
    if to_predict and family == HALF and matrix and not fp32:
        fp32 = matrix / usual_ratio()
    missing = [name for name, value in (("fp32 figure", fp32), ("bandwidth", bandwidth)) if not value]
    if missing:
        raise Unknown(f"{chip}: no {' and no '.join(missing)} was published (chips.csv)")
    if family == HALF and not matrix:
        family, matrix = PLAIN_HALF, printed.get("fp16_tflops")
    units = {FP32: 0.0, TF32: (matrix or 0.0) / 2}.get(family, matrix or 0.0)
    year, memory = numpy.nan_to_num(chips.released(chip), nan=DATE), printed.get("memory_gb", MEMORY)
    known = {"chip": chip, "precision": precision, "product": printed["product"], "vendor": printed["vendor"]}
    return known | _features(family, max(fp32, units), bandwidth, fp32, year, memory)


@functools.cache
def usual_ratio() -> float:
    """Return the median over chips of the matrix units' peak divided by the fp32 peak."""
    printed = chips.table()
    return float((printed["matrix_tflops"] / printed["fp32_tflops"]).median())


def best_rates(ceilings: pandas.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Return the best rates over frameworks in the last calibration of each device, by machine and device.

    Returns:
        For each device, the rates of matrix products by precision (FLOP/s), and the rate of copies (B/s) as `copy`.
    """
    last = ceilings.sort_values("session")
    last = last.drop_duplicates(["machine", "device", "model", "precision", "framework"], keep="last")
    last = last.assign(work=last["precision"].mask(last["model"].eq("copy"), "copy"))
    last = last[last["model"].isin(["matmul", "copy"])]
    best = last.groupby(["machine", "device", "work"])["rate"].max().unstack()
    return {place: rates.dropna().to_dict() for place, rates in best.iterrows()}


def measured_figures(best: dict[tuple[str, str], dict[str, float]], point: dict) -> dict | None:
    """Return family and FEATURES of a point's device in its precision; None without a precision or such rates.

    Args:
        best: from `best_rates`.
        point: with machine, device and precision.
    """
    rates, precision = best.get((point["machine"], point["device"]), {}), point["precision"]
    if "fp32" not in rates or "copy" not in rates or not isinstance(precision, str):
        return None
    fp32 = rates["fp32"]
    peak = max(fp32, rates.get(precision.removeprefix("amp_"), fp32))
    half = HALF if peak > 1.5 * fp32 else PLAIN_HALF  # matrix units are much faster
    family = precision if precision in (FP32, TF32) else half
    return _features(family, peak / 1e12, rates["copy"] / 1e9, fp32 / 1e12)


def _features(family: str, peak: float, bandwidth: float, fp32: float, year: float = DATE, memory: float = MEMORY):
    logs = {"peak": peak, "bandwidth": bandwidth, "fp32": fp32, "memory": memory}
    return {"family": family, "released": year / 3} | {name: math.log(value) for name, value in logs.items()}


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
    chip = _listed(row) or chips.canonical(row["chip"]) or ""
    printed = row["precision"] or "fp32"
    computed = "tf32" if printed == "fp32" and chips.has_tf32(chip) else printed
    publication, point = row["reference"].partition(";")[0], row["point"].removesuffix(f"-{row['device']}")
    stated = re.findall(r"\b(20\d\d)\b", publication)
    return _of_row(
        row,
        chip_figures(chip, computed),
        publication=publication,
        setting=" | ".join([publication, point, row["phase"], computed]),
        rate=float(row["rate"]),
        date=float(stated[-1]) if stated else None,
        no_update=float("none" in str((row["settings"] or {}).get("optimizer"))),
        source=row["reference"],
        origin=ARTICLES,
    )


def _of_row(row: dict, figures: dict, **known) -> dict:
    """Return a row, or a measured point, as an observation; `figures` are those of its chip."""
    frozen = row["study"] == "mobilenetv2_energy"  # only the last layer of the network is trained
    network = networks.canonical(row["study"] if frozen else row["model"])
    usual = networks.describe(network)
    work = work_of(network, *(float(row[name]) if row.get(name) else getattr(usual, name) for name in SIZES))
    known |= {"flops_per_sample": row.get("flops_per_sample") or None, "loader": float(row["dataset"] != "synthetic")}
    known |= {"batch_size": float(row["batch_size"]) if row["batch_size"] else None}
    return observation(figures, work, framework={"torch": "pytorch"}.get(row["framework"], row["framework"]), **known)


def _listed(row: dict) -> str:
    """Return the canonical name of a row's device; empty for a CPU, or a chip that is not in the list."""
    return "" if row["device"] == "cpu" else chips.listed(row["device_name"])


def _positive(value: float | None) -> float | None:
    return value if value and value > 0 else None


def _lines(table: pandas.DataFrame) -> list[dict]:
    """Return the lines of a table, with None for what is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
