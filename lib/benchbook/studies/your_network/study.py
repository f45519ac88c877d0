"""The results of your own network: its speed here by batch size, and predictions for other
chips."""

import pandas

from benchbook.judging import statistics, wording
from benchbook.record import chips, predict, prices
from benchbook.record.predict import Unknown
from benchbook.rows import records
from benchbook.studies.charts.plots import Bars, Points
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.results.tables import inverse
from benchbook.studies.study import Study

NAME = "your_network"
CHIPS = (
    "Apple M1",
    "Apple M3 Max",
    "NVIDIA T4",
    "NVIDIA RTX 3090",
    "NVIDIA RTX 4090",
    "NVIDIA A100",
)
CHIPS += ("NVIDIA H100 80GB SXM",)
IMAGES = 1_000_000  # samples in the comparison of chips
_SETTINGS = ["channels", "loader", "loss", "optimizer"]
# Points that agree in these differ in their batch size alone.
_WORK = [
    "machine",
    "device",
    "framework",
    "model",
    "precision",
    "variant",
    "dataset",
    "image_size",
    *_SETTINGS,
]
_KEY = [*_WORK, "batch_size"]


@cached
def rates(evidence: Evidence) -> pandas.DataFrame:
    """Return the speed of each measured network and setting, or the status of its failure.

    Returns:
        Columns: machine, device, framework, model, precision, variant, dataset, image_size,
        channels, loader, loss, optimizer, batch_size, samples_per_second, low, high, interval
        (its kind), num_windows, verdict, energy_per_sample, flops_per_sample, peak_memory_bytes,
        status, message, point.
    """
    columns = [
        *_KEY,
        "samples_per_second",
        "low",
        "high",
        "interval",
        "num_windows",
        "verdict",
        "energy_per_sample",
    ]
    columns += ["flops_per_sample", "peak_memory_bytes", "status", "message", "point"]
    points = statistics.with_settings(evidence.points(NAME), _SETTINGS)
    return points.reindex(columns=columns).sort_values(_KEY, ignore_index=True)


@cached
def elsewhere(evidence: Evidence) -> pandas.DataFrame:
    """Return the time of IMAGES samples here, and predictions for other chips, if the record has
    the network.

    Each network is represented by its fastest point.

    Returns:
        Columns: model, where (a machine or a chip), source (measured or predicted), device,
        precision, samples_per_second, low, high (a prediction's 90 % interval), interval (the
        kind of measured bounds), verdict and point (of what was measured), hours, dollars
        (IMAGES at the median rent on record), joules_per_sample (if a sensor read them), basis,
        reason (why there is no prediction).
    """
    own = rates(evidence)
    own = own[own["status"].isin(records.TRAINED) & own["samples_per_second"].notna()]
    best = (
        own.sort_values("samples_per_second")
        .drop_duplicates("model", keep="last")
        .sort_values("model")
    )
    measured = best.rename(columns={"machine": "where", "energy_per_sample": "joules_per_sample"})
    predicted = [_predicted(line, chip) for line in best.to_dict("records") for chip in CHIPS]
    columns = [
        "model",
        "where",
        "source",
        "device",
        "precision",
        "samples_per_second",
        "low",
        "high",
        "interval",
    ]
    columns += ["verdict", "point", "dollars", "joules_per_sample", "basis", "reason"]
    lines = [*measured.assign(source="measured").to_dict("records"), *predicted]
    table = pandas.DataFrame(lines, columns=columns)
    return table.assign(hours=IMAGES / table["samples_per_second"].astype(float) / 3600)


def batch_sizes_title(
    table: pandas.DataFrame, evidence: Evidence | None = None, study: str = ""
) -> str:
    """Return the fastest of several batch sizes in a table of `rates`, and the largest that
    worked; else nothing."""
    worked = table[table["samples_per_second"].notna()]
    works = worked.groupby(_WORK, dropna=False)
    several = worked[works["batch_size"].transform("nunique") > 1]
    if several.empty:
        return ""
    best = several.loc[several["samples_per_second"].astype(float).idxmax()]
    own = worked[works.ngroup() == works.ngroup()[best.name]]
    most = f"{wording.number(best['samples_per_second'])} samples a second at {best['batch_size']:.0f} samples a step"
    return f"{best['model']} trains up to {most}; {own['batch_size'].max():.0f} is the largest that worked"


def _predicted(best: dict, chip: str) -> dict:
    line = {
        "model": best["model"],
        "where": chip,
        "source": "predicted",
        "precision": best["precision"],
    }
    names = ("flops_per_sample", "batch_size", "image_size")
    numbers = {name: float(best[name]) for name in names if pandas.notna(best[name])}
    try:
        rate = predict.rate(predict.Question(chip, best["model"], best["precision"], **numbers))
    except Unknown as reason:
        return line | {"reason": str(reason)}
    hourly = prices.usual_rent(chips.resolve(chip))
    dollars = prices.rent(IMAGES / rate.value, hourly) if hourly else None
    bounds = {"samples_per_second": rate.value, "low": rate.low, "high": rate.high}
    return line | bounds | {"basis": rate.basis, "dollars": dollars}


def _timed(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the lines of `elsewhere` that have hours, with the bounds of the hours."""
    drawn = table[table["hours"].notna()].reset_index(drop=True)
    chips = drawn["where"].where(drawn["source"].eq("predicted"), "measured")
    machines = drawn["where"].where(drawn["source"].ne("predicted"))
    hours = inverse(drawn, "samples_per_second", "hours", IMAGES / 3600)
    return drawn.assign(**hours, chip=chips, machine=machines)


MILLION = Template(
    "{number}{bounds} to train {model} on a million samples on {place}",
    "No network of your own was measured here yet",
    "hours",
    "hours",
    "least",
)
LABEL = ("framework", "precision", "variant")
STUDY = Study(
    name=NAME,
    title="Your network",
    quantity="hours",
    unit="hours/million samples",
    priced=(1, ""),
    charts=(
        Bars(
            "your-network-elsewhere",
            table=elsewhere,
            lines=_timed,
            title=MILLION,
            label=("chip", "source"),
            usual={"chip": "measured", "source": "predicted"},
            alike=("model",),
            xlabel=f"hours for {IMAGES:,} samples",
            look={"xscale": "log"},
        ),
        Points(
            "your-network-batch-sizes",
            table=rates,
            title=batch_sizes_title,
            column="samples_per_second",
            x="batch_size",
            by=_WORK,
            label=LABEL,
            alike=("model",),
            xlabel="samples per step",
            ylabel="samples per second",
            batches=True,
            from_zero=True,
        ),
    ),
)
