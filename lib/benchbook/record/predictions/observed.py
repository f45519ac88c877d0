"""Rates of articles' rows and of measured ones, as the record's are laid out in `features`."""

import re

import numpy
import pandas

from benchbook.record import chips, marks, networks
from benchbook.record.predictions.features import (
    ARTICLES,
    BATCH,
    CHIP,
    COLUMNS,
    DATE,
    HERE,
    Unknown,
    chip_figures,
    family,
    reason,
)

PRINTED = ("published", "digitised", "secondary")  # what was derived from a rule is no measurement
# Starting a step takes longer than its arithmetic: such networks tell nothing of larger ones, nor larger ones of them.
TINY = ("mlp", "lenet5", "mnist_cnn", "tiny_vgg", "vae")
SHORTEST = 1e11  # operations of a step of an article's: 10 ms of a chip with 10 TFLOP/s


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
        ceilings: from `rows.ceilings`.
    """
    points = summary[summary["samples_per_second"].notna() & summary["status"].eq("ok")]
    points = points[points["device_count"].fillna(1).eq(1) & ~points["model"].isin(TINY)]
    lines, best = [], best_rates(ceilings)
    for point in points.astype(object).where(points.notna(), None).to_dict("records"):
        reached = reached_by(best.get((point["machine"], point["device"]), {}), point["precision"])
        if reached:
            lines.append(_of_point(point) | reached)
    return pandas.DataFrame(lines, columns=[*COLUMNS, *CHIP])


def asked(point: pandas.DataFrame, ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return one measured point as `measured` has it, to be predicted; of a machine that was not calibrated its chip's
    printed figures stand in.

    Args:
        point: one line of a summary.
        ceilings: from `rows.ceilings`.

    Raises:
        Unknown: neither were its machine's ceilings measured nor is its chip in the list.
    """
    line = point.astype(object).where(point.notna(), None).to_dict("records")[0]
    figures = reached_by(best_rates(ceilings).get((line["machine"], line["device"]), {}), line["precision"])
    if figures is None:
        listed = chips.canonical(line["device_name"]) in chips.table().index and line["device"] != "cpu"
        if not listed:
            raise Unknown(
                f"{line['device_name']} is in no list of chips, and {line['machine']} was not calibrated:"
                " make study STUDIES=calibrate"
            )
        figures = chip_figures(line["device_name"], line["precision"])
    return pandas.DataFrame([_of_point(line) | figures], columns=[*COLUMNS, *CHIP])


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


def reached_by(rates: dict[str, float], precision: str) -> dict[str, float] | None:
    """Return the features of a device from its own rates, see `best_rates`; None where it lacks one."""
    if "fp32" not in rates or "copy" not in rates:
        return None
    fp32, copies = rates["fp32"] / 1e12, rates["copy"] / 1e9
    peak = rates.get(precision.removeprefix("amp_"), rates["fp32"]) / 1e12
    released, memory = DATE / 3, 16.0
    return {
        "peak": float(numpy.log(max(peak, fp32))), "bandwidth": float(numpy.log(copies)),
        "fp32": float(numpy.log(fp32)), "released": released, "memory": float(numpy.log(memory)),
    }  # fmt: skip


def _of_row(row: dict) -> dict | None:
    named = chips.canonical(row["device_name"])
    chip = named if named in chips.table().index else chips.canonical(row["chip"])
    printed = row["precision"] or "fp32"
    computed = "tf32" if printed == "fp32" and chips.has_tf32(chip) else printed
    if reason({"chip": chip or "", "computed": computed, "precision": computed}):
        return None
    settings = row["settings"] or {}
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
        "no_update": float("none" in str(settings.get("optimizer"))),
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
