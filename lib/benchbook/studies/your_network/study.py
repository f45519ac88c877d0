"""The results of your own network: its speed here, by batch size, and predictions for other chips."""

import pandas

from benchbook.judging import statistics, wording
from benchbook.measuring import support
from benchbook.record import chips, estimate, predict
from benchbook.record.naming import Names
from benchbook.record.predict import Unknown
from benchbook.rows import records
from benchbook.studies.charts import Bars, Points
from benchbook.studies.findings import Sentence
from benchbook.studies.study import Evidence, Study, cached, most_samples
from benchbook.studies.your_network import sizes

NAME = "your_network"
CHIPS = ("Apple M1", "Apple M3 Max", "NVIDIA T4", "NVIDIA RTX 3090", "NVIDIA RTX 4090", "NVIDIA A100")
CHIPS += ("NVIDIA H100 80GB SXM",)
IMAGES = 1_000_000  # samples in the comparison of chips
_KEY = ["machine", "device", "framework", "model", "dataset", "image_size", "batch_size", "precision", "variant"]


@cached
def rates(evidence: Evidence) -> pandas.DataFrame:
    """Return the speed of each measured network and setting, or the status of its failure.

    Returns:
        Columns: machine, device, framework, model, dataset, image_size, batch_size, precision, variant,
        samples_per_second, low, high, interval (its kind), num_windows, verdict, energy_per_sample, flops_per_sample,
        peak_memory_bytes, status, message, point.
    """
    columns = [*_KEY, "samples_per_second", "low", "high", "interval", "num_windows", "verdict", "energy_per_sample"]
    columns += ["flops_per_sample", "peak_memory_bytes", "status", "message", "point", "num_samples"]
    return (
        most_samples(evidence.points(NAME).reindex(columns=columns), [*_KEY, "point"])
        .sort_values(_KEY)
        .drop(columns="num_samples")
        .reset_index(drop=True)
    )


@cached
def batch_sizes(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per batch size of the points that tried several, including the point's own.

    Returns:
        Columns: machine, device, framework, model, precision, variant, point, batch_size, samples_per_second (the
        median of its windows; missing where it failed), low, high (their range), peak_memory_bytes, status, message.
    """
    rows = evidence.measured[evidence.measured["study"] == NAME]
    tried = support.rows_tried(rows, sizes.TRIED)
    own = statistics.newest(rows[rows["phase"].eq("train") & rows["point"].isin(tried["point"])])
    key = ["machine", "device", "framework", "model", "precision", "variant", "point", "batch_size"]
    rate = {"samples_per_second": "median", "low": "min", "high": "max"}
    measures = {name: ("samples_per_second", how) for name, how in rate.items()}
    measures |= {"peak_memory_bytes": ("peak_memory_bytes", "max")}
    measures |= {name: (name, "last") for name in ("status", "message")}
    return pandas.concat([own, tried]).groupby(key, dropna=False, sort=True).agg(**measures).reset_index()


@cached
def elsewhere(evidence: Evidence) -> pandas.DataFrame:
    """Return the time of IMAGES samples here, and predictions for other chips from the network's operations.

    Each network is represented by its fastest point. A network whose operations were not counted has no predictions.

    Returns:
        Columns: model, where (a machine or a chip), source (measured or predicted), device, precision,
        samples_per_second, low, high (a prediction's 90 % interval), interval (the kind of measured bounds), verdict
        and point (of what was measured), hours, dollars (IMAGES at the median rent on record), joules_per_sample (if a
        sensor read them), basis, reason (why there is no prediction).
    """
    own, lines, rate = rates(evidence), [], ["samples_per_second", "low", "high"]
    own = own[own["status"].isin(records.TRAINED) & own["samples_per_second"].notna()]
    for network, points in own.groupby("model", sort=True):
        best = points.sort_values("samples_per_second").iloc[-1].to_dict()
        here = {"model": network, "where": best["machine"], "device": best["device"], "precision": best["precision"]}
        measured = {"source": "measured", "joules_per_sample": best["energy_per_sample"]}
        measured |= {name: best[name] for name in ("interval", "verdict", "point")}
        lines.append(here | measured | {name: best[name] for name in rate})
        if pandas.notna(best["flops_per_sample"]):
            predicted = {"model": network, "source": "predicted", "precision": best["precision"]}
            lines += [predicted | {"where": chip} | _predicted(best, chip) for chip in CHIPS]
    columns = ["model", "where", "source", "device", "precision", *rate, "interval", "verdict", "point", "dollars"]
    columns += ["joules_per_sample", "basis", "reason"]
    table = pandas.DataFrame(lines, columns=columns)
    hours = [estimate.run_hours(1, IMAGES, rate) if rate > 0 else None for rate in table["samples_per_second"]]
    return table.assign(hours=hours)


def batch_sizes_title(table: pandas.DataFrame, names: Names | None = None) -> str:
    """Return the fastest batch size in a table of `batch_sizes`, and the largest one that worked; empty: none tried."""
    worked = table[table["samples_per_second"].notna()]
    if worked.empty:
        return ""
    best = worked.sort_values("samples_per_second").iloc[-1]
    own = worked[worked["point"].eq(best["point"]) & worked["machine"].eq(best["machine"])]
    largest = f"; {own['batch_size'].max():.0f} is the largest that worked" if len(own) > 1 else ""
    most = f"{wording.number(best['samples_per_second'])} samples a second at {best['batch_size']:.0f} samples a step"
    return f"{best['model']} trains up to {most}{largest}"


ELSEWHERE = Sentence(
    "A million samples of {model} take {value} here",
    "No network of your own was measured here yet",
    "hours",
    lambda hours: wording.duration(3600 * hours),
    "least",
    "source == 'measured'",
)


def _predicted(best: dict, chip: str) -> dict:
    known = {name: best[name] for name in ("flops_per_sample", "batch_size", "image_size") if pandas.notna(best[name])}
    numbers = {name: float(number) for name, number in known.items()}
    try:
        rate = predict.rate(predict.Question(chip, precision=best["precision"], **numbers))
    except Unknown as reason:
        return {"reason": str(reason)}
    hourly = estimate.usual_rent(estimate.rental_offers(chips.resolve(chip)))
    dollars = estimate.rent(IMAGES / rate.value, hourly) if hourly else None
    bounds = {"samples_per_second": rate.value, "low": rate.low, "high": rate.high}
    return bounds | {"basis": rate.basis, "dollars": dollars}


def _timed(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the lines of `elsewhere` that have hours, with the bounds of the hours."""
    drawn = table[table["hours"].notna()].reset_index(drop=True)
    images = drawn["hours"] * drawn["samples_per_second"]
    chips = drawn["where"].where(drawn["source"].eq("predicted"), "measured")
    machines = drawn["where"].where(drawn["source"].ne("predicted"))
    return drawn.assign(low=images / drawn["high"], high=images / drawn["low"], chip=chips, machine=machines)


LABEL = ("framework", "precision", "variant")
STUDY = Study(
    name=NAME,
    title="Your network",
    charts=(
        Bars(
            "your-network-elsewhere",
            table=elsewhere,
            lines=_timed,
            title=ELSEWHERE,
            label=("chip", "source"),
            usual={"chip": "measured", "source": "predicted"},
            alike=("model",),
            xlabel=f"hours for {IMAGES:,} samples",
            look={"xscale": "log"},
        ),
        Points(
            "your-network-batch-sizes",
            table=batch_sizes,
            title=batch_sizes_title,
            column="samples_per_second",
            x="batch_size",
            by=["machine", "device", "framework", "model", "precision", "point"],
            label=LABEL,
            alike=("model",),
            tables={"your-network-rates": rates},
            xlabel="samples per step",
            ylabel="samples per second",
            batches=True,
            from_zero=True,
        ),
    ),
)
