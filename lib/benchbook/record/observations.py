"""What a training rate may depend on: a line for each rate of the record, of articles and of machines measured here."""

import functools
import json
import re

import numpy
import pandas

from benchbook import record
from benchbook.record import chips, networks

HERE, RECORD, ARTICLES = "measured here", "the record", "the articles of our studies"
TOLD = ("data", "cudnn", "compiled", "suite_version", "block", "power_limit_watts", "memory_format", "optimizer")
CHIP = ["peak", "bandwidth", "fp32", "released", "memory"]  # logarithms; of `released` years / 3
COLUMNS = ["publication", "setting", "work", "network", "image_size", "precision", "family", "framework", "chip"]
COLUMNS += ["origin", "product", "vendor", "rate", "batch_size", "date", "loader", "no_update", "flops_per_sample"]
COLUMNS += ["source", *CHIP]
BATCH, DATE, MEMORY = 64.0, 2021.0, 16.0  # where none was stated
PRINTED = ("published", "digitised", "secondary")  # what was derived from a rule is no measurement
# Starting a step takes longer than its arithmetic: such networks tell nothing of larger ones, nor larger ones of them.
TINY = ("mlp", "lenet5", "mnist_cnn", "tiny_vgg", "vae")
SHORTEST = 1e11  # operations of a step of an article's: 10 ms of a chip with 10 TFLOP/s
FP32, TF32, HALF, PLAIN_HALF = "fp32", "tf32", "half", "half without matrix units"
FAMILIES = (FP32, TF32, HALF, PLAIN_HALF)


class Unknown(ValueError):
    """Something is outside what the record knows; the message names what is missing."""


def of_record(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of a ledger that something can be concluded from.

    Args:
        figures: from `record.read`.

    Returns:
        Columns: origin (the record, articles, or measured here), publication, setting (what within a publication is
        compared chip by chip: network, size, precision, framework, data and the switches it names), work (network and
        image size), network, image_size (pixels), precision (as computed), family (of precisions, see FAMILIES),
        framework, chip, product, vendor, rate (images a second), batch_size, date (a year), loader, no_update (1 where
        a loader ran, where no optimizer did), flops_per_sample (missing where nobody counted), source, and the features
        of CHIP. What lacks a precision or the figures of its chip is left out; `refusals` tells of it.
    """
    usable = figures[figures["rate"].gt(0) & figures["device_count"].eq(1) & figures["refused"].eq("")]
    usable = usable[[not reason(line) for line in usable.to_dict("records")]]
    lines = [_of_figure(line) for line in usable.to_dict("records")]
    return pandas.DataFrame(lines, columns=COLUMNS, index=usable.index)


def refusals(figures: pandas.DataFrame) -> pandas.Series:
    """Return why a single-device training rate cannot be used, by the figure's line; those that can are left out."""
    rates = figures[figures["rate"].gt(0) & figures["device_count"].eq(1)]
    own = pandas.Series([reason(line) for line in rates.to_dict("records")], index=rates.index, dtype="str")
    reasons = rates["refused"].where(rates["refused"].ne(""), own)
    return reasons[reasons != ""]


def of_articles(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of articles' rows, as `of_record` lays them out.

    Where a publication printed training alone and a total, training alone counts. CPUs have no printed figures; of
    what is too small to keep a chip busy nothing is concluded.

    Args:
        rows: published ones, of all studies; what was derived is left out.
    """
    kept = rows[rows["source"].isin(PRINTED) & rows["phase"].isin(["train", "total"]) & rows["status"].eq("ok")]
    kept = kept[kept["device"].ne("cpu").fillna(False) & kept["device_count"].fillna(1).eq(1)]
    kept = kept[~kept["model"].isin(TINY) & kept["model"].notna()]
    rates = kept["samples_per_second"].fillna(kept["samples"] / kept["seconds"])
    kept = kept.assign(rate=rates.astype("Float64"))[rates.notna()].sort_values("phase", ascending=False, kind="stable")
    kept = kept.drop_duplicates(["reference", "machine", "point"])
    lines = [line for row in _plain(kept) if (line := _of_row(row))]
    table = pandas.DataFrame(lines, columns=COLUMNS)
    return table[~(table["flops_per_sample"].astype(float) * table["batch_size"] < SHORTEST)]


def of_points(summary: pandas.DataFrame, ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rates that were measured here, as `of_record` lays them out, of machines that were calibrated.

    What a machine was measured to reach on matrix products and on copies takes the place of what is printed of its
    chip. A CPU, or a chip in no list, is a product of its own.

    Args:
        summary: measured points, from `statistics.summarise`.
        ceilings: from `rows.ceilings`.
    """
    points = summary[summary["samples_per_second"].notna() & summary["status"].eq("ok")]
    points = points[points["device_count"].fillna(1).eq(1) & ~points["model"].isin(TINY)]
    best = best_rates(ceilings)
    lines = [
        _of_point(point) | reached
        for point in _plain(points)
        if (reached := reached_by(best.get((point["machine"], point["device"]), {}), point["precision"]))
    ]
    return pandas.DataFrame(lines, columns=COLUMNS)


def of_point(point: pandas.DataFrame, ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return one measured point as `of_points` has it, to be predicted; of a machine that was not calibrated its chip's
    printed figures stand in.

    Args:
        point: one line of a summary.
        ceilings: from `rows.ceilings`.

    Raises:
        Unknown: neither were its machine's ceilings measured nor is its chip in the list.
    """
    (line,) = _plain(point)
    figures = reached_by(best_rates(ceilings).get((line["machine"], line["device"]), {}), line["precision"])
    if figures is None:
        listed = chips.canonical(line["device_name"]) in chips.table().index and line["device"] != "cpu"
        if not listed:
            raise Unknown(
                f"{line['device_name']} is in no list of chips, and {line['machine']} was not calibrated:"
                " make study STUDIES=calibrate"
            )
        figures = chip_figures(line["device_name"], line["precision"])
    return pandas.DataFrame([_of_point(line) | figures], columns=COLUMNS)


def chip_figures(chip: str, precision: str, asked: bool = False) -> dict:
    """Return the features of a chip in a precision: its family, logarithms of TFLOP/s, GB/s and GB, and years / 3.

    Args:
        chip: by any of its names.
        precision: one of `records.PRECISIONS`.
        asked: of a chip that is asked about, not learnt from: where its peak of fp32 was never published, as of TPUs,
            that of its matrix units, divided by `usual_ratio`, tells enough of 16 bits.

    Raises:
        UnknownChip: no chip goes by that name.
        Unknown: peak or bandwidth was not published; the message names it.
    """
    return _chip_figures(chips.resolve(chip), precision if precision in (FP32, TF32) else HALF, asked)


@functools.cache
def _chip_figures(chip: str, family: str, asked: bool) -> dict:
    printed = chips.table().loc[chip]
    fp32, matrix = printed["fp32_tflops"], printed["matrix_tflops"]
    if asked and family == HALF and numpy.isnan(fp32) and matrix > 0:
        fp32 = matrix / usual_ratio()
    said = {"fp32 figure": fp32, "bandwidth": printed["bandwidth_gb_s"]}
    missing = [name for name, value in said.items() if numpy.isnan(value)]
    if missing:
        raise Unknown(f"of {chip} no {' and no '.join(missing)} was published (chips.csv)")
    if family == HALF and numpy.isnan(matrix):
        family, matrix = PLAIN_HALF, printed["fp16_tflops"]
    peak = fp32 if family == FP32 else numpy.fmax(fp32, matrix / 2 if family == TF32 else matrix)
    year = chips.released(chip)
    return {
        "family": family,
        "peak": numpy.log(peak),
        "bandwidth": numpy.log(printed["bandwidth_gb_s"]),
        "fp32": numpy.log(fp32),
        "released": (DATE if numpy.isnan(year) else year) / 3,
        "memory": numpy.log(MEMORY if numpy.isnan(printed["memory_gb"]) else printed["memory_gb"]),
    }


@functools.cache
def usual_ratio() -> float:
    """Return how many times its fp32 peak a chip's matrix units usually reach: the median where both were published."""
    printed = chips.table()
    return float((printed["matrix_tflops"] / printed["fp32_tflops"]).median())


def best_rates(ceilings: pandas.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Return what devices reached in their last calibration, the best of frameworks, by machine and device.

    Returns:
        Of each the rates of matrix products by precision (FLOP/s), and that of copies (B/s) as `copy`.
    """
    last = ceilings.sort_values("session")
    last = last.drop_duplicates(["machine", "device", "model", "precision", "framework"], keep="last")
    last = last.assign(work=last["precision"].mask(last["model"].eq("copy"), "copy"))
    last = last[last["model"].isin(["matmul", "copy"])]
    best: dict[tuple[str, str], dict[str, float]] = {}
    for (machine, device, work), rate in last.groupby(["machine", "device", "work"])["rate"].max().items():
        best.setdefault((machine, device), {})[work] = rate
    return best


def reached_by(rates: dict[str, float], precision: str) -> dict | None:
    """Return the features of a device from its own rates, see `best_rates`; None where it lacks one."""
    if "fp32" not in rates or "copy" not in rates:
        return None
    fp32 = rates["fp32"]
    peak = max(fp32, rates.get(precision.removeprefix("amp_"), fp32))
    half = HALF if peak > 1.5 * fp32 else PLAIN_HALF  # products of matrix units are much faster
    return {
        "family": precision if precision in (FP32, TF32) else half,
        "peak": float(numpy.log(peak / 1e12)),
        "bandwidth": float(numpy.log(rates["copy"] / 1e9)),
        "fp32": float(numpy.log(fp32 / 1e12)),
        "released": DATE / 3,
        "memory": float(numpy.log(MEMORY)),
    }


def reason(line: dict) -> str:
    """Return why a rate cannot be used: its precision or its chip's figures are not stated; empty where they are."""
    if not isinstance(line["computed"], str):
        return f"precision {line['precision'] or 'not stated'}"
    try:
        chip_figures(line["chip"], line["computed"])
    except (Unknown, chips.UnknownChip) as error:
        return str(error).partition("; ")[0]
    return ""


def work_of(network: str, image_size: float | None) -> dict:
    """Return what is trained: work, network, image_size, flops_per_sample (None where nobody counted)."""
    counted = networks.describe(network, image_size)
    work = f"{network}, {image_size:g} px" if image_size else network
    operations = counted.flops_per_sample
    return {"work": work, "network": network, "image_size": image_size, "flops_per_sample": operations}


def _of_figure(line: dict) -> dict:
    details = json.loads(line["settings"] or "{}")
    framework = re.sub(r"\W+", " ", re.sub(r"\d[\w.+]*", "", line["framework"])).strip().lower()
    work = work_of(line["network"], line["image_size"] if line["image_size"] > 0 else None)
    switches = [f"{name} {details[name]}" for name in TOLD if name in details]
    printed = chips.table().loc[line["chip"]]
    return work | {
        "publication": line["publication"],
        "setting": " | ".join([line["article"], work["work"], line["computed"], framework, *switches]),
        "precision": line["computed"],
        "framework": framework.partition(" ")[0],
        "chip": line["chip"],
        "product": printed["product"],
        "vendor": printed["vendor"],
        "rate": line["rate"],
        "batch_size": line["batch_size"] if line["batch_size"] > 0 else BATCH,
        "date": line["date"] if line["date"] > 0 else DATE,
        "loader": float(not str(details.get("data", "synthetic")).startswith(("synthetic", "not stated"))),
        "no_update": float("none" in str(details.get("optimizer"))),
        "source": record.citation(line),
        "origin": RECORD,
    } | chip_figures(line["chip"], line["computed"])  # fmt: skip


def _of_row(row: dict) -> dict | None:
    named = chips.canonical(row["device_name"])
    chip = named if named in chips.table().index else chips.canonical(row["chip"])
    printed = row["precision"] or "fp32"
    computed = "tf32" if printed == "fp32" and chips.has_tf32(chip) else printed
    if reason({"chip": chip or "", "computed": computed, "precision": computed}):
        return None
    publication = row["reference"].partition(";")[0]
    point = row["point"].removesuffix(f"-{row['device']}")
    stated = re.findall(r"\b(20\d\d)\b", publication)
    return _trained(row) | {
        "publication": publication,
        "setting": " | ".join([publication, point, row["phase"], computed]),
        "precision": computed,
        "chip": chip,
        "product": chips.table().loc[chip, "product"],
        "vendor": chips.table().loc[chip, "vendor"],
        "rate": float(row["rate"]),
        "date": float(stated[-1]) if stated else DATE,
        "no_update": float("none" in str((row["settings"] or {}).get("optimizer"))),
        "source": row["reference"],
        "origin": ARTICLES,
    } | chip_figures(chip, computed)  # fmt: skip


def _of_point(point: dict) -> dict:
    named = chips.canonical(point["device_name"])
    listed = named in chips.table().index and point["device"] != "cpu"
    return _trained(point) | {
        "publication": HERE,
        "setting": " | ".join([HERE, point["study"], point["point"]]),
        "precision": point["precision"],
        "chip": named if listed else point["machine"],
        "product": chips.product(named) if listed else f"{point['machine']} {point['device']}",
        "vendor": chips.table().loc[named, "vendor"] if listed else "CPU",
        "rate": float(point["samples_per_second"]),
        "date": DATE,
        "no_update": 0.0,
        "source": HERE,
        "origin": HERE,
    }


def _trained(row: dict) -> dict:
    """Return what a row trained, on which input and with which framework."""
    frozen = row["study"] == "mobilenetv2_energy"  # the same network, trained in its last layer alone
    network = networks.canonical(row["study"] if frozen else row["model"])
    size = float(row["image_size"]) if row["image_size"] else networks.describe(network).image_size
    work = work_of(network, size)
    return work | {
        "flops_per_sample": row.get("flops_per_sample") or work["flops_per_sample"],
        "framework": {"torch": "pytorch"}.get(row["framework"], row["framework"] or ""),
        "batch_size": float(row["batch_size"] or BATCH),
        "loader": float(row["dataset"] != "synthetic"),
    }


def _plain(table: pandas.DataFrame) -> list[dict]:
    """Return the lines of a table, with None for what is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
