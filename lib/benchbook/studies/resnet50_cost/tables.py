"""Tables of the ResNet-50 study: images a second by batch and by number of devices; `money` has what it costs."""

import numpy
import pandas

from benchbook.judging import intervals, verdicts
from benchbook.judging.intervals import Interval
from benchbook.record import articles
from benchbook.rows import ceilings, records
from benchbook.studies import quantities
from benchbook.studies.study import Evidence, longest, once

NAME = "resnet50_cost"
GLOBAL_BATCH_SIZE, NUM_DEVICES = 1024, 4  # of the article's claims about rates
SWAPPED = "swap"  # the code of a verdict's reason where the machine swapped
ALIKE = ["machine", "device", "framework", "variant", "source", "dataset", "precision", "image_size"]

_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "precision", "batch_size"]
_COUNTS = ["image_size", "device_count"]
_STATED = ["price_per_hour", "purchase_price", "electricity_per_kwh"]
_BOUNDS = ["low", "high", "interval", "num_windows", "verdict"]
_ENERGY = ["energy_per_sample", "energy_method", "energy_boundary"]
_MEASURES = ["images_per_second", *_BOUNDS, "efficiency", *_ENERGY]
_SETTING = [name for name in ALIKE if name != "source"]


@once
def points(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per point: images a second and the share of the measured ceiling, or how it ended.

    Of two points that are alike the one that measured more images counts. The share is against the ceiling of one
    device, calibrated in the same session, times the number of devices; processes on a CPU share its cores, and its
    ceiling. Published rates stand with their rounding.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, precision, batch_size, image_size,
        device_count, images_per_second, low, high, interval (kind of these bounds), num_windows, verdict,
        efficiency, energy_per_sample, energy_method, energy_boundary, price_per_hour, purchase_price,
        electricity_per_kwh (as the run states them), status, message.
    """
    printed = evidence.published[evidence.published["study"] == NAME]
    printed = printed[printed["samples_per_second"].notna()]
    measured = evidence.points(NAME)
    shares = ceilings.efficiency(measured, evidence.ceilings).set_index(["machine", "point"])["efficiency"].to_dict()
    lines = [_printed(row) for row in printed.to_dict("records")]
    lines += [
        _measured(point, shares.get((point["machine"], point["point"]), numpy.nan))
        for point in measured.to_dict("records")
    ]
    columns = [*_KEPT, *_COUNTS, *_MEASURES, *_STATED, "status", "message"]
    table = pandas.DataFrame(lines, columns=[*columns, "num_samples"])
    numbers = ["images_per_second", "low", "high", "efficiency", "energy_per_sample", *_STATED]
    table = table.astype(dict.fromkeys(numbers, float))
    alike = [*ALIKE, "batch_size", "device_count"]
    return longest(table, alike).sort_values(alike)[columns].reset_index(drop=True)


def trained(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines of `points` that have a rate and did not fail."""
    return table[table["images_per_second"].notna() & table["status"].eq("ok")]


def batches(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the largest batch that trained, the smallest that memory did not hold, and the fastest.

    Where the machine swapped meanwhile, memory did not hold the batch.

    Args:
        table: from `points`.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, device_count, largest_batch,
        out_of_memory_batch (missing where every batch fitted), fastest_batch, images_per_second.
    """
    key = [*_SETTING, "device_count"]
    measured = table.loc[table["source"] == "measured", [*key, "batch_size", "images_per_second", "status", "verdict"]]
    held_there = measured["images_per_second"].notna() & measured["status"].isin(records.TRAINED)
    held_there &= ~measured["verdict"].map(lambda verdict: verdicts.has(verdict, SWAPPED)).astype(bool)
    lines = []
    for values, group in measured.groupby(key, dropna=False, sort=True):
        held = group[held_there[group.index]]
        beyond = group.loc[group["status"] == "out_of_memory", "batch_size"]
        line = dict(zip(key, values, strict=True)) | {"out_of_memory_batch": beyond.min() if len(beyond) else None}
        if len(held):
            fastest = held.loc[held["images_per_second"].idxmax()]
            line |= {"largest_batch": held["batch_size"].max(), "fastest_batch": fastest["batch_size"]}
            line["images_per_second"] = fastest["images_per_second"]
        lines.append(line)
    measures = ["largest_batch", "out_of_memory_batch", "fastest_batch", "images_per_second"]
    return pandas.DataFrame(lines, columns=[*key, *measures])


def scaling(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how the rate of several devices compares with that of one.

    A point of several is held against one device with the same images each (weak), or, without such a point, with the
    same batch (strong). Devices are ideally n times as fast as one; processes on one CPU share its cores, and are
    ideally as fast as one process that has them all.

    Args:
        table: from `points`.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, device_count, batch_size,
        kind (weak, strong), ratio (rate over that of one), efficiency (ratio over the ideal), low, high,
        num_windows (of the one with fewer), verdict (of the one that is worse off).
    """
    measured = trained(table[table["source"] == "measured"]).to_dict("records")
    ones = {(*_setting(line), line["batch_size"]): line for line in measured if line["device_count"] == 1}
    lines = []
    for several in measured:
        count, batch_size = several["device_count"], several["batch_size"]
        for kind, size in {"weak": batch_size // count, "strong": batch_size}.items() if count > 1 else ():
            if (*_setting(several), size) in ones:
                lines.append(several | {"kind": kind} | _scaled(several, ones[(*_setting(several), size)]))
                break
    names = [*_SETTING, "device_count", "batch_size", "kind", "ratio", "efficiency", "low", "high"]
    return pandas.DataFrame(lines, columns=[*names, "num_windows", "verdict"])


def rates(evidence: Evidence) -> list[dict]:
    """Return as quantities the measured rates of as many devices and images a step as the article had."""
    measured = evidence.points(NAME)
    alike = (measured["device_count"] == NUM_DEVICES) & (measured["batch_size"] == GLOBAL_BATCH_SIZE)
    measured = measured[alike.fillna(False) & (measured["status"] == "ok") & measured["samples_per_second"].notna()]
    names = {"synthetic": "synthetic_rate", "imagenet": "real_rate"}
    return [
        quantities.between(point | {"source": "measured"}, names[point["dataset"]], "samples_per_second")
        for point in measured[measured["dataset"].isin(list(names))].to_dict("records")
    ]


def _measured(point: dict, share: float) -> dict:
    settings = point["settings"]
    kept = (*_KEPT, *_COUNTS, *_BOUNDS, *_ENERGY)
    return {
        **{name: point[name] for name in kept if name in point},
        **{name: settings.get(name) or numpy.nan for name in _STATED},
        **{name: point[name] for name in ("status", "message", "num_samples")},
        "source": "measured",
        "images_per_second": point["samples_per_second"],
        "efficiency": share if point["device"] == "cpu" else share / point["device_count"],
    }


def _printed(row: dict) -> dict:
    low, high = articles.bounds(row, "samples_per_second")
    kept = {name: row[name] for name in (*_KEPT, *_COUNTS, "status", "message")}
    return kept | {"images_per_second": row["samples_per_second"], "low": low, "high": high, "num_samples": 0}


def _scaled(several: dict, one: dict) -> dict:
    """Return what several devices reach of their ideal, beside one device."""
    ideal = 1 if several["device"] == "cpu" else several["device_count"]
    ratio = intervals.divide(*(Interval.of(line, "images_per_second") for line in (several, one)))
    return {
        "ratio": ratio.value,
        "efficiency": ratio.value / ideal,
        "low": ratio.low / ideal,
        "high": ratio.high / ideal,
        "num_windows": min(several["num_windows"], one["num_windows"]),
        "verdict": verdicts.worse(several["verdict"], one["verdict"]),
    }


def _setting(line: dict) -> tuple:
    return tuple(line[name] for name in ALIKE)
