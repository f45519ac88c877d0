"""What a training rate may depend on: a line for each rate, with its chip's figures and its work's."""

import functools
import json
import re

import numpy
import pandas

from benchbook import chips, networks, record
from benchbook.record import marks

HERE = "measured here"
TOLD = ("data", "cudnn", "compiled", "suite_version", "block", "power_limit_watts", "memory_format", "optimizer")
COLUMNS = ["publication", "setting", "work", "network", "image_size", "precision", "family", "framework", "chip"]
COLUMNS += ["origin", "product", "vendor", "rate", "batch_size", "date", "loader", "no_update", "flops_per_sample"]
COLUMNS += ["source"]
CHIP = ["peak", "bandwidth", "fp32", "released", "memory"]  # the first four, and memory, as logarithms or years / 3
PRINTED = ("published", "digitised", "secondary")  # what was derived from a rule is no measurement
# Starting a step takes longer than its arithmetic: such networks tell nothing of larger ones, nor larger ones of them.
TINY = ("mlp", "lenet5", "mnist_cnn", "tiny_vgg", "vae")
SHORTEST = 1e11  # operations of a step of an article's: 10 ms of a chip with 10 TFLOP/s
RECORD, ARTICLES = "the record", "the articles of our studies"
BATCH, DATE = 64.0, 2021.0  # where none was told
MATRIX = ("Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell 2.0")  # with matrix units


class Unknown(ValueError):
    """Something is outside what the record knows; the message names what is missing."""


def observations(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of a ledger that something can be concluded from.

    Args:
        figures: from `record.read`.

    Returns:
        Columns: origin (the record, articles, or measured here), publication, setting (what within a publication is
        compared chip by chip: network, size, precision, framework, data and the switches it told), work (network and
        image size), network, image_size (pixels), precision (as computed), family (of precisions: fp32, tf32, half),
        framework, chip, product, vendor, rate (images a second), batch_size, date (a year), loader, no_update (1 where
        a loader ran, where no optimizer did), flops_per_sample (missing where nobody counted), source, and the features
        of `CHIP`. What lacks a precision or the figures of its chip is left out; `refusals` tells of it.
    """
    usable = figures[usable_rates(figures)]
    usable = usable[[not _reason(line) for line in usable.to_dict("records")]]
    lines = [_line(line) for line in usable.to_dict("records")]
    return pandas.DataFrame(lines, columns=[*COLUMNS, *CHIP], index=usable.index)


def of_rows(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of articles' rows, as `observations` has them.

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
    plain = kept.astype(object).where(kept.notna(), None)
    lines = [line for row in plain.to_dict("records") if (line := _of_row(row))]
    table = pandas.DataFrame(lines, columns=[*COLUMNS, *CHIP])
    return table[~(table["flops_per_sample"].astype(float) * table["batch_size"] < SHORTEST)]


def measured(summary: pandas.DataFrame, ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rates that were measured here, as `observations` has them, of machines that were calibrated.

    What a machine was measured to reach on matrix products and on copies takes the place of what is printed of its
    chip. A CPU, or a chip in no list, is a product of its own.

    Args:
        summary: measured points, from `statistics.summarise`.
        ceilings: from `roofline.ceilings`.
    """
    points = summary[summary["samples_per_second"].notna() & summary["status"].eq("ok")]
    points = points[points["device_count"].fillna(1).eq(1) & ~points["model"].isin(TINY)]
    lines = []
    for point in points.astype(object).where(points.notna(), None).to_dict("records"):
        reached = reached_by(ceilings, point["machine"], point["device"], point["precision"])
        if reached:
            lines.append(_of_point(point) | reached)
    return pandas.DataFrame(lines, columns=[*COLUMNS, *CHIP])


def reached_by(ceilings: pandas.DataFrame, machine: str, device: str, precision: str) -> dict[str, float] | None:
    """Return the features of a machine's device from its last calibration; None where it has none."""
    own = ceilings[ceilings["machine"].eq(machine) & ceilings["device"].eq(device)].sort_values("session")
    own = own.drop_duplicates(["model", "precision", "framework"], keep="last")
    products = own[own["model"].eq("matmul")].groupby("precision")["rate"].max() / 1e12
    copies = own.loc[own["model"].eq("copy"), "rate"].max() / 1e9
    if "fp32" not in products or numpy.isnan(copies):
        return None
    peak = products.get(precision.removeprefix("amp_"), products["fp32"])
    fp32, released, memory = products["fp32"], DATE / 3, 16.0
    return {
        "peak": float(numpy.log(max(peak, fp32))), "bandwidth": float(numpy.log(copies)),
        "fp32": float(numpy.log(fp32)), "released": released, "memory": float(numpy.log(memory)),
    }  # fmt: skip


def usable_rates(figures: pandas.DataFrame) -> pandas.Series:
    """Return which figures are rates of training on one device that do not contradict themselves."""
    return figures["rate"].gt(0) & figures["device_count"].eq(1) & figures["refused"].eq("")


def refusals(figures: pandas.DataFrame) -> pandas.Series:
    """Return why a single-device training rate cannot be used, by the figure's line; those that can are left out."""
    rates = figures[figures["rate"].gt(0) & figures["device_count"].eq(1)]
    own = pandas.Series([_reason(line) for line in rates.to_dict("records")], index=rates.index, dtype="str")
    reasons = rates["refused"].where(rates["refused"].ne(""), own)
    return reasons[reasons != ""]


def chip_figures(chip: str, precision: str) -> dict[str, float]:
    """Return the features of a chip in a precision: logarithms of TFLOP/s, of GB/s and of GB, and years.

    Raises:
        UnknownChip: no chip goes by that name.
        Unknown: peak, bandwidth or memory is not printed; the message names it.
    """
    return _chip_figures(chips.resolve(chip), family(precision))


@functools.cache
def _chip_figures(chip: str, of: str) -> dict[str, float]:
    printed = chips.table().loc[chip]
    missing = [name for name in ("fp32_tflops", "bandwidth_gb_s") if numpy.isnan(printed[name])]
    if missing:
        raise Unknown(f"of {chip} no {' and no '.join(missing)} is printed in chips.csv")
    fp32, half = printed["fp32_tflops"], max(printed["fp32_tflops"], half_rate(chip))
    peak = {"fp32": fp32, "tf32": max(fp32, half / 2), "half": half}[of]
    year, memory = marks.released(chip), printed["memory_gb"]
    return {
        "peak": numpy.log(peak),
        "bandwidth": numpy.log(printed["bandwidth_gb_s"]),
        "fp32": numpy.log(fp32),
        "released": (DATE if numpy.isnan(year) else year) / 3,
        "memory": numpy.log(16.0 if numpy.isnan(memory) else memory),
    }


@functools.cache
def half_rate(chip: str) -> float:
    """Return the rate of a chip's matrix units in 16 bits, adding up in 32, TFLOP/s.

    Where that of the shaders alone was read, though the chip has matrix units, their ratio to fp32 is the median of
    its architecture; a chip without such units (Turing's GTX has none) has the rate of its shaders.
    """
    printed = chips.table()
    matrix = printed["bf16_tflops"].fillna(printed["fp16_tflops"].where(printed["fp16_rate"].eq("matrix")))
    if not numpy.isnan(matrix[chip]):
        return float(matrix[chip])
    line = printed.loc[chip]
    if line["architecture"] not in MATRIX or "GTX" in chip:
        return float(numpy.nan_to_num(line["fp16_tflops"]))
    ratios = (matrix / printed["fp32_tflops"])[printed["architecture"].eq(line["architecture"])]
    return float(ratios.median() * line["fp32_tflops"])


def family(precision: str) -> str:
    """Return the family of a precision: fp32, tf32 or half."""
    return precision if precision in ("fp32", "tf32") else "half"


def _reason(line: dict) -> str:
    if not isinstance(line["computed"], str):
        return f"precision {line['precision'] or 'not told'}"
    try:
        chip_figures(line["chip"], line["computed"])
    except (Unknown, chips.UnknownChip) as error:
        return str(error).partition("; ")[0]
    return ""


def _line(line: dict) -> dict:
    told = json.loads(line["settings"] or "{}")
    framework = re.sub(r"\W+", " ", re.sub(r"\d[\w.+]*", "", line["framework"])).strip().lower()
    size = line["image_size"] if line["image_size"] > 0 else None
    work = f"{line['network']}, {size:g} px" if size else line["network"]
    switches = [f"{name} {told[name]}" for name in TOLD if name in told]
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
        "loader": float(not str(told.get("data", "synthetic")).startswith(("synthetic", "not stated"))),
        "no_update": float("none" in str(told.get("optimizer"))),
        "flops_per_sample": networks.describe(line["network"], size).flops_per_sample,
        "source": record.citation(line),
        "origin": RECORD,
    } | chip_figures(line["chip"], line["computed"])


def _of_row(row: dict) -> dict | None:
    named = chips.canonical(row["device_name"])
    chip = named if named in chips.table().index else chips.canonical(row["chip"])
    printed = row["precision"] or "fp32"
    computed = "tf32" if printed == "fp32" and marks.has_tf32(chip) else printed
    if _reason({"chip": chip or "", "computed": computed, "precision": computed}):
        return None
    told = row["settings"] or {}
    publication = row["reference"].partition(";")[0]
    point = row["point"].removesuffix(f"-{row['device']}")
    line = _work(row) | {
        "publication": publication,
        "setting": " | ".join([publication, point, row["phase"], computed]),
        "precision": computed,
        "family": family(computed),
        "framework": {"torch": "pytorch"}.get(row["framework"], row["framework"] or ""),
        "chip": chip,
        "product": chips.table().loc[chip, "product"],
        "vendor": chips.table().loc[chip, "vendor"],
        "batch_size": float(row["batch_size"] or BATCH),
        "date": _year(publication),
        "loader": float(row["dataset"] != "synthetic"),
        "no_update": float("none" in str(told.get("optimizer"))),
        "source": row["reference"],
        "origin": ARTICLES,
    }
    return line | chip_figures(chip, computed)


def _of_point(point: dict) -> dict:
    named = chips.canonical(point["device_name"])
    listed = named in chips.table().index and point["device"] != "cpu"
    return _work(point | {"rate": point["samples_per_second"]}) | {
        "publication": HERE,
        "setting": " | ".join([HERE, point["study"], point["point"]]),
        "precision": point["precision"],
        "family": family(point["precision"]),
        "framework": {"torch": "pytorch"}.get(point["framework"], point["framework"]),
        "chip": named if listed else point["machine"],
        "product": chips.product(named) if listed else f"{point['machine']} {point['device']}",
        "vendor": chips.table().loc[named, "vendor"] if listed else "CPU",
        "batch_size": float(point["batch_size"] or BATCH),
        "date": DATE,
        "loader": float(point["dataset"] != "synthetic"),
        "no_update": 0.0,
        "source": HERE,
        "origin": HERE,
    }


def _work(row: dict) -> dict:
    """Return what was trained, and how fast."""
    frozen = row["study"] == "mobilenetv2_energy"  # the same network, trained in its last layer alone
    network = networks.canonical(row["study"] if frozen else row["model"])
    size = float(row["image_size"]) if row["image_size"] else None
    counted = networks.describe(network, size)
    shown = size or counted.image_size
    return {
        "work": f"{network}, {shown:g} px" if shown else network,
        "network": network,
        "image_size": shown,
        "rate": float(row["rate"]),
        "flops_per_sample": row.get("flops_per_sample") or counted.flops_per_sample,
    }


def _year(publication: str) -> float:
    stated = re.findall(r"\b(20\d\d)\b", publication)
    return float(stated[-1]) if stated else DATE
