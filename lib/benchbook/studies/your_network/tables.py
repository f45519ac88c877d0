"""Tables of somebody's own network: its rates, its batch sizes, and what other chips would take for it."""

import datetime

import pandas

from benchbook.measuring import support
from benchbook.record import estimate
from benchbook.rows import records
from benchbook.studies import input_shares
from benchbook.studies.study import Evidence, longest, once
from benchbook.studies.your_network import sizes

NAME = "your_network"
CHIPS = ("Apple M1", "Apple M3 Max", "NVIDIA T4", "NVIDIA RTX 3090", "NVIDIA RTX 4090", "NVIDIA A100")
CHIPS += ("NVIDIA H100 80GB SXM",)
HELD_OUT = "predicted without it"
IMAGES = 1_000_000  # that the chips are compared by
_KEY = ["machine", "device", "framework", "model", "dataset", "image_size", "batch_size", "precision", "variant"]


@once
def rates(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per measured network and setting: samples a second, or how it ended.

    Returns:
        Columns: machine, device, framework, model, dataset, image_size, batch_size, precision, variant,
        samples_per_second, low, high, interval (its kind), num_windows, verdict, energy_per_sample, flops_per_sample,
        peak_memory_bytes, status, message, point.
    """
    columns = [*_KEY, "samples_per_second", "low", "high", "interval", "num_windows", "verdict", "energy_per_sample"]
    columns += ["flops_per_sample", "peak_memory_bytes", "status", "message", "point", "num_samples"]
    points = evidence.points(NAME)
    rows = evidence.measured[evidence.measured["study"].eq(NAME) & evidence.measured["phase"].eq("train")]
    peaks = rows.groupby(["machine", "point"])["peak_memory_bytes"].max()
    points = points.join(peaks, on=["machine", "point"]).reindex(columns=columns)
    return longest(points, [*_KEY, "point"]).sort_values(_KEY).drop(columns="num_samples").reset_index(drop=True)


@once
def batch_sizes(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per batch size that was tried.

    Returns:
        Columns: machine, device, framework, model, precision, variant, point, batch_size, samples_per_second (the
        median of its windows; missing where it failed), low, high (their range), peak_memory_bytes, status, message.
    """
    tried = support.rows_tried(evidence.measured[evidence.measured["study"] == NAME], sizes.TRIED)
    key = ["machine", "device", "framework", "model", "precision", "variant", "point", "batch_size"]
    measures = {
        "samples_per_second": ("samples_per_second", "median"),
        "low": ("samples_per_second", "min"),
        "high": ("samples_per_second", "max"),
        "peak_memory_bytes": ("peak_memory_bytes", "max"),
        "status": ("status", "last"),
        "message": ("message", "last"),
    }
    return tried.groupby(key, dropna=False, sort=True).agg(**measures).reset_index()


@once
def shares(evidence: Evidence) -> pandas.DataFrame:
    """Return how much of a training step is the input of images that are loaded; see `input_shares.table`."""
    points = evidence.points(NAME)
    return input_shares.beside_ready(evidence, points[points["num_workers"].gt(0).fillna(False)])


@once
def elsewhere(evidence: Evidence) -> pandas.DataFrame:
    """Return what IMAGES samples take here, and what other chips are predicted to take from the network's operations.

    Beside what was measured stands what would have been predicted of this machine: the record is asked without its chip
    and without anything that was measured here, so that it says how far such predictions may be trusted. Only networks
    whose operations were counted are predicted; the fastest point of each counts here.

    Returns:
        Columns: model, where (a machine or a chip), source (measured, HELD_OUT of this machine, or predicted), device,
        precision, samples_per_second, low, high (a prediction's 90 %), hours, dollars (IMAGES at the median rent on
        record), joules_per_sample (where a sensor read them, or the record has the chip's power), basis, reason (why
        there is no prediction).
    """
    own = rates(evidence)
    own = own[own["status"].isin(records.TRAINED) & own["samples_per_second"].notna()]
    lines = []
    for _, points in own.groupby("model", sort=True):
        best = points.sort_values("samples_per_second").iloc[-1]
        place = {"model": best["model"], "where": best["machine"]} | best[["device", "precision"]].to_dict()
        measured = best[["samples_per_second", "low", "high"]].to_dict()
        measured |= {"joules_per_sample": best["energy_per_sample"]}
        lines.append(place | {"source": "measured"} | measured)
        if pandas.notna(best["flops_per_sample"]):
            lines.append(place | {"source": HELD_OUT} | _held_out(evidence, best))
            lines += [{"model": best["model"]} | line for line in _predicted(evidence, best.to_dict())]
    columns = ["model", "where", "source", "device", "precision", "samples_per_second", "low", "high", "dollars"]
    columns += ["joules_per_sample", "basis", "reason"]
    table = pandas.DataFrame(lines, columns=columns)
    return table.assign(
        hours=[estimate.run_hours(1, IMAGES, rate) if rate > 0 else None for rate in table["samples_per_second"]]
    )


def _held_out(evidence: Evidence, best: pandas.Series) -> dict:
    from benchbook.record.predictions import judging  # imports scipy, which takes a second
    from benchbook.record.predictions.features import Unknown

    points = evidence.points(NAME)
    point = points[points["machine"].eq(best["machine"]) & points["point"].eq(best["point"])]
    try:
        judged = judging.judge_measured(point, evidence.ceilings)
    except Unknown as reason:
        return {"reason": str(reason)}
    return {"samples_per_second": judged["predicted"]} | {name: judged[name] for name in ("low", "high", "basis")}


def _predicted(evidence: Evidence, point: dict) -> list[dict]:
    # What learns from the record imports scipy, which takes a second.
    from benchbook.record.predictions import money
    from benchbook.record.predictions.features import Unknown
    from benchbook.record.predictions.question import Question
    from benchbook.studies import prediction_tables as learned

    forecaster, lines = learned.learn(evidence), []
    for chip in CHIPS:
        question = Question(
            chip,
            precision=point["precision"],
            flops_per_sample=float(point["flops_per_sample"]),
            batch_size=float(point["batch_size"]),
            image_size=None if pandas.isna(point["image_size"]) else float(point["image_size"]),
            images=IMAGES,
        )
        line = {"where": chip, "source": "predicted", "precision": point["precision"]}
        try:
            answer = forecaster.ask(question, datetime.date.today())
            rate, joules = answer.rate, answer.joules_per_image
            line |= {"samples_per_second": rate.value, "low": rate.low, "high": rate.high, "basis": rate.basis}
            line |= {"dollars": money.usual(answer.rented)["dollars"].median() if len(answer.rented) else None}
            line |= {"joules_per_sample": None if joules is None else joules.value}
        except Unknown as reason:
            line |= {"reason": str(reason)}
        lines.append(line)
    return lines
