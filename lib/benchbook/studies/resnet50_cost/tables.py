"""Tables of the ResNet-50 study: throughput by batch, and by number of devices; `resnet50_money` has what it costs."""

import numpy
import pandas

from benchbook import articles, records, roofline, statistics, verdicts

NAME = "resnet50_cost"
_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "precision", "batch_size"]
ALIKE = ["machine", "device", "framework", "variant", "source", "dataset", "precision", "image_size"]
_COUNTS = ["image_size", "device_count", "node_count"]
_STATED = ["price_per_hour", "purchase_price", "electricity_per_kwh"]


def points(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return one line per point: images a second and the share of the measured ceiling, or how it ended.

    Of two points that are alike the one that measured more images counts. The share is against the ceiling of one
    device, calibrated in the same session, times the number of devices; processes on a CPU share its cores, and its
    ceiling. Published rates stand with their rounding.

    Args:
        rows: measured and published ones, and those of calibration.
        conditions: from `condition.samples`, for the verdicts; None where there are none.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, precision, batch_size, image_size,
        device_count, node_count, images_per_second, low, high, num_windows, verdict, efficiency, energy_per_sample,
        price_per_hour, purchase_price, electricity_per_kwh (as the run states them), status, message.
    """
    study = rows[rows["study"] == NAME]
    printed = study[(study["source"] != "measured") & study["samples_per_second"].notna()]
    lines = [_printed(row) for row in printed.to_dict("records")]
    measured = study[study["source"] == "measured"]
    summary = verdicts.summarise(measured, conditions)
    reached = roofline.efficiency(summary, rows).set_index(["machine", "point"])["efficiency"].to_dict()
    lines += [_measured(point, reached) for point in summary.to_dict("records")]
    columns = [*_KEPT, *_COUNTS, "images_per_second", "low", "high", "num_windows", "verdict", "efficiency"]
    columns += ["energy_per_sample", *_STATED, "status", "message"]
    table = pandas.DataFrame(lines, columns=[*columns, "num_samples"])
    numbers = ["images_per_second", "low", "high", "efficiency", "energy_per_sample", *_STATED]
    table = table.astype(dict.fromkeys(numbers, float))
    alike = [*ALIKE, "batch_size", "device_count", "node_count"]
    table = table.sort_values("num_samples", kind="stable").drop_duplicates(alike, keep="last")
    return table.sort_values(alike)[columns].reset_index(drop=True)


def batches(table: pandas.DataFrame, swapped: frozenset = frozenset()) -> pandas.DataFrame:
    """Return the largest batch that trained, the smallest that memory did not hold, and the fastest.

    Args:
        table: from `points`.
        swapped: (machine, batch_size) of points whose machine swapped meanwhile; they do not count as held.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, device_count, largest_batch,
        out_of_memory_batch (missing where every batch fitted), fastest_batch, images_per_second.
    """
    key = [*(name for name in ALIKE if name != "source"), "device_count"]
    lines = []
    for values, group in table[table["source"] == "measured"].groupby(key, dropna=False, sort=True):
        held = group[group["images_per_second"].notna() & group["status"].isin(records.TRAINED)]
        held = held[[(line["machine"], line["batch_size"]) not in swapped for line in held.to_dict("records")]]
        beyond = group.loc[group["status"] == "out_of_memory", "batch_size"]
        line = dict(zip(key, values, strict=True)) | {"out_of_memory_batch": beyond.min() if len(beyond) else None}
        if len(held):
            fastest = held.loc[held["images_per_second"].idxmax()]
            line |= {"largest_batch": held["batch_size"].max(), "fastest_batch": fastest["batch_size"]}
            line["images_per_second"] = fastest["images_per_second"]
        lines.append(line)
    found = ["largest_batch", "out_of_memory_batch", "fastest_batch", "images_per_second"]
    return pandas.DataFrame(lines, columns=[*key, *found])


def scaling(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how the rate of several devices compares with that of one.

    A point of several is held against one device with the same images each (weak), or, without such a point, with the
    same batch (strong). Devices are ideally n times as fast as one; processes on one CPU share its cores, and are
    ideally as fast as one process that has them all.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, device_count, node_count,
        batch_size, kind (weak, strong), ratio (rate over that of one), efficiency (ratio over the ideal), low, high,
        num_windows (of the one with fewer), verdict (of the one that is worse off).
    """
    known = table[(table["source"] == "measured") & table["images_per_second"].notna() & table["status"].eq("ok")]
    ones = {
        (*_identity(line), line["batch_size"]): line for line in known[known["device_count"] == 1].to_dict("records")
    }
    lines = []
    for line in known[known["device_count"] > 1].to_dict("records"):
        choices = {"weak": line["batch_size"] // line["device_count"], "strong": line["batch_size"]}
        kind = next((name for name, size in choices.items() if (*_identity(line), size) in ones), None)
        if kind is None:
            continue
        one = ones[(*_identity(line), choices[kind])]
        ideal = 1 if line["device"] == "cpu" else line["device_count"]
        ratio = line["images_per_second"] / one["images_per_second"]
        bounds = {"low": line["low"] / one["high"] / ideal, "high": line["high"] / one["low"] / ideal}
        judged = {"verdict": verdicts.worse(line["verdict"], one["verdict"])}
        judged["num_windows"] = min(line["num_windows"], one["num_windows"])
        lines.append(line | {"kind": kind, "ratio": ratio, "efficiency": ratio / ideal} | bounds | judged)
    names = [name for name in ALIKE if name != "source"]
    names += ["device_count", "node_count", "batch_size", "kind", "ratio", "efficiency", "low", "high"]
    names += ["num_windows", "verdict"]
    return pandas.DataFrame(lines, columns=names)


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say, in a sentence with its numbers."""
    line = statistics.summarise(rows).iloc[0]
    devices = int(rows["device_count"].max())
    where = f"{line['variant']}, {line['framework']}, {devices} x {line['device']}, {line['dataset']}"
    rate = f"a median of {line['samples_per_second']:,.1f} images a second over {line['num_windows']} windows"
    accuracy = f"; test accuracy {line['accuracy']:.1%}" if pandas.notna(line["accuracy"]) else ""
    joules = line["energy_per_sample"]
    energy = f"; {joules:.3g} J an image" if pandas.notna(joules) else "; its joules cannot be read here"
    return f"This run ({where}, batch {line['batch_size']}) trained on {rate}{accuracy}{energy}."


def _measured(point: dict, reached: dict) -> dict:
    told, share = point["settings"], reached.get((point["machine"], point["point"]), numpy.nan)
    share = share if point["device"] == "cpu" else share / point["device_count"]
    kept = (*_KEPT, *_COUNTS, "low", "high", "num_windows", "verdict", "energy_per_sample")
    return {
        **{name: point[name] for name in kept if name in point},
        **{name: told.get(name) or numpy.nan for name in _STATED},
        **{name: point[name] for name in ("status", "message", "num_samples")},
        "source": "measured",
        "images_per_second": point["samples_per_second"],
        "efficiency": share,
    }


def _printed(row: dict) -> dict:
    low, high = articles.bounds(row, "samples_per_second")
    told = {name: row[name] for name in (*_KEPT, *_COUNTS, "status", "message")}
    return told | {"images_per_second": row["samples_per_second"], "low": low, "high": high, "num_samples": 0}


def _identity(line: dict) -> tuple:
    return tuple(line[name] for name in ALIKE)
