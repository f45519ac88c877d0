"""Rows made of the record's figures, in the schema that measured rows have."""

import json
import re

import numpy
import pandas

from benchbook.machine.libraries import FRAMEWORKS
from benchbook.record import chips, ledger, networks
from benchbook.rows import records

DEVICES = {"CPU": "cpu", "TPU": "tpu"}
ENERGY = {"GPU": ("nvml", "board"), "CPU": ("rapl", "package")}  # by how a boundary begins: boards, or a package
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
SOURCES = {"exact": "published", "approximate": "published", "derived": "derived"}
MODELS = {"gemm_peak": "matmul", "gemm": "matmul", "memory_bandwidth": "copy"}


def rows() -> pandas.DataFrame:
    """Return the record's figures as rows; a figure that no column holds (money, a boundary of its own) has none.

    Refused figures have none either. A rate is the row's samples_per_second, a time its seconds, a matrix product one
    sample of so many operations in one second. What the row's columns do not hold stands in its settings: the mark,
    the note, the printed precision and the chip's printed name.
    """
    figures = ledger.read()
    made = [row for line in figures[figures["refused"] == ""].to_dict("records") if (row := _row(line))]
    for index, row in enumerate(made):
        row["index"] = index
    table = pandas.DataFrame(made).reindex(columns=records.COLUMNS)
    return records.validate(table, "the record")


def _row(line: dict) -> dict | None:
    measures = _measures(line)
    if measures is None:
        return None
    details = json.loads(line["settings"])
    named = networks.canonical(str(details["model"])) if details.get("model") else None
    batch = line["batch_size"] * (line["device_count"] or 1)
    kept = details | {"metric": line["metric"], "precision_printed": line["precision"], "note": line["note"]}
    kept |= {"mark": line["mark"], "framework_printed": line["framework"], "device_printed": line["device"]}
    return {
        "schema_version": records.SCHEMA_VERSION,
        "session": "published",
        "run_id": f"record-{_name(line['article'])}",
        "study": line["study"],
        "variant": "reference",
        "point": _point(line, named),
        "machine": _name(line["machine"] or line["chip"]),
        "chip": line["chip"],
        "source": SOURCES[line["origin"]],
        "reference": f"{line['article']}; {line['source']}",
        "device": _device(line),
        "device_name": line["chip"],
        "device_count": _whole(line["device_count"]),
        "framework": _framework(line["framework"]),
        "framework_version": line["framework"],
        "precision": line["computed"],
        "model": named or MODELS.get(line["metric"]),
        "dataset": details.get("dataset") or line["data"],
        "batch_size": _whole(batch),
        "image_size": _whole(line["image_size"]),
        "settings": kept,
        "repeat": 0,
        "status": "ok",
    } | measures


def _measures(line: dict) -> dict | None:
    """Return phase and measures of a figure, in the schema's units; None where no column holds it."""
    value, metric, details = line["value"], line["metric"], json.loads(line["settings"])
    if metric in MODELS:
        measure = "bytes_per_sample" if metric == "memory_bandwidth" else "flops_per_sample"
        amount = value * (1e9 if metric == "memory_bandwidth" else 1e12)
        return {"phase": "calibrate", "samples": 1, "seconds": 1.0, measure: amount}
    phase = {"inference": "evaluate"}.get(line["phase"], line["phase"])
    if metric == "energy_per_image":
        boundary = next((kind for begin, kind in ENERGY.items() if begin in str(details.get("energy_boundary"))), None)
        if boundary is None:
            return None
        return dict(zip(("energy_method", "energy_boundary"), boundary, strict=True)) | {
            "phase": phase, "samples": 1, "energy_joules": value,
        }  # fmt: skip
    if line["unit"] == "img/s":
        return {"phase": phase, "samples_per_second": value}
    if metric.startswith("time_") or metric == "total_run_time":
        samples = _whole(line["batch_size"]) if metric == "time_per_step" else None
        return {"phase": phase, "seconds": value * SECONDS[line["unit"]], "samples": samples}
    if metric == "peak_gpu_memory":
        return {"phase": phase, "peak_memory_bytes": round(value * 1e9), "memory_method": "as printed"}
    return None


def _device(line: dict) -> str | None:
    """Return the schema's kind of device; None for accelerators that it has no kind for."""
    if line["device"] in DEVICES:
        return DEVICES[line["device"]]
    vendor = chips.table()["vendor"].get(line["chip"])
    torch = _framework(line["framework"]) == "torch"
    if vendor == "Apple":
        return "mps" if torch else "metal"
    return "cuda" if vendor == "NVIDIA" or (vendor == "AMD" and torch) else None


def _framework(printed: str) -> str | None:
    text = printed.lower()
    if "torch 7" in text:
        return None
    return next((name for name in FRAMEWORKS if name in text), None)


def _point(line: dict, network: str | None) -> str:
    parts = [network or line["metric"], line["chip"], line["computed"] or line["precision"], line["metric"]]
    parts += [f"{line['device_count']:g}x"] if line["device_count"] > 0 else []
    return "-".join(_name(part) for part in parts if part)


def _name(part: object) -> str:
    """Return a part of a name as `layout.check_name` allows it."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", str(part)).strip("_")


def _whole(number: float) -> int | None:
    return None if number is None or numpy.isnan(number) or number % 1 else int(number)
