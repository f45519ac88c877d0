"""Results of the SimCLR study: minutes per epoch, the input's share, accuracy, which precisions
and compilers work."""

import numpy
import pandas

from benchbook.judging import confirmation, intervals, statistics
from benchbook.machine.precisions import PRECISIONS
from benchbook.measuring import trials
from benchbook.rows import records
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.charts.plots import Bars, Points
from benchbook.studies.results import quantities
from benchbook.studies.results import tables as shared
from benchbook.studies.results.answers import Template
from benchbook.studies.results.epochs import (
    BOUNDS,
    RATE,
    ArticleEpoch,
    input_shares,
    share_template,
)
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.simclr_epochs.plan import BATCH_SIZE, EPOCHS, Plan
from benchbook.studies.study import Study, Task

NAME = "simclr_epochs"
EPOCH = ArticleEpoch(
    study=NAME,
    dataset="cifar10",
    train_images=Plan.TASK[0],
    evaluated_images=50_000 + 10_000,  # those that vote and those that are classified
    unit="minutes",
    ways=("variant", ("reference", "controlled", *confirmation.TUNED_NAMES)),
    described=("precision", "compiled", "batch_size"),
)


@cached
def epochs(evidence: Evidence) -> pandas.DataFrame:
    """Return the minutes of the article's epoch: training on CIFAR-10 once, and the
    nearest-neighbour evaluation.

    Only windows that are whole epochs include the start of a loader's workers.

    Returns:
        The columns of `ArticleEpoch.table`, precision, compiled and batch_size.
    """
    printed = evidence.printed(NAME, phase="total", source="published")
    single = statistics.with_settings(printed, ["epochs"])["epochs"].fillna(1).eq(1)
    return EPOCH.table(evidence, _points(evidence), printed[single])


def shares(evidence: Evidence) -> pandas.DataFrame:
    """Return the share of a step that is input (making, awaiting and moving views); see
    `epochs.input_shares`.

    Each run took a few steps on ready batches; their bounds are a range.
    """
    points = _points(evidence)
    tried = trials.rows_tried(
        evidence.measured[evidence.measured["study"] == NAME], trials.RESIDENT
    )
    rates = (
        tried.groupby(statistics.POINT_KEY)["samples_per_second"]
        .agg(["median", "min", "max"])
        .astype(float)
    )
    ready = rates.set_axis(RATE[:3], axis=1).assign(interval=intervals.RANGE)
    return input_shares(points, ready, statistics.POINT_KEY)


@cached
def support_matrix(evidence: Evidence) -> pandas.DataFrame:
    """Return which precisions each device supports, with and without the compiler.

    Returns:
        One line per machine, study, device, framework version, compiler and precision, of the
        last run that tried: chip, dataset, batch_size, status, samples_per_second, speedup (over
        fp32 without the compiler in the same run), low, high (range over windows), num_windows,
        message.
    """
    tried = trials.rows_tried(evidence.measured, trials.MATRIX)
    key = ["machine", "chip", "study", "device", "framework_version"]
    tried = tried[tried["run_id"] == tried.groupby(key, dropna=False)["run_id"].transform("max")]
    tried = tried.astype({"samples_per_second": float})
    lines = []
    for _, run in tried.groupby(key, dropna=False, sort=True):
        plain = run[
            (run["precision"] == trials.PRECISIONS[0]) & ~run["compiled"].fillna(True).astype(bool)
        ]
        base = float(plain["samples_per_second"].median())
        for (compiled, _), windows in run.groupby(["compiled", "precision"], sort=False):
            failed, rates = windows[windows["status"] != "ok"], windows["samples_per_second"]
            line = (
                (failed if len(failed) else windows).iloc[0].to_dict()
            )  # a failed window decides the status
            line |= {"compiled": bool(compiled), "samples_per_second": None}
            if failed.empty:
                measures = {
                    "speedup": rates.median() / base,
                    "low": rates.min() / base,
                    "high": rates.max() / base,
                }
                line |= measures | {
                    "samples_per_second": rates.median(),
                    "num_windows": len(windows),
                }
            lines.append(line)
    columns = [
        *key,
        "dataset",
        "batch_size",
        "compiled",
        "precision",
        "status",
        "samples_per_second",
        "speedup",
    ]
    return pandas.DataFrame(lines, columns=[*columns, "low", "high", "num_windows", "message"])


def accuracies(evidence: Evidence) -> pandas.DataFrame:
    """Return the nearest-neighbour accuracy by epochs trained.

    Returns:
        Columns: machine, chip, device, variant, source, dataset, epochs (may be a fraction),
        accuracy (median over seeds and runs), low, high (least and most), num_runs.
    """
    printed = evidence.printed(NAME, source="published", batch_size=BATCH_SIZE)
    printed = printed.dropna(subset="accuracy")
    printed = statistics.with_settings(printed, ["epochs"])
    key = ["machine", "chip", "device", "variant", "source", "dataset", "epochs"]
    rows = printed.to_dict("records") + _evaluations(evidence.counting(NAME)).to_dict("records")
    table = pandas.DataFrame(rows, columns=[*key, "accuracy", "run_id"]).astype({"epochs": float})
    return shared.over_runs(table, key, "accuracy")


def claimed(evidence: Evidence) -> list[dict]:
    """Return the seconds of 1, 2 and 200 epochs, accuracy, peak memory, how busy an accelerator
    was (utilisation) and what it refused, for claims.

    The time of one epoch is multiplied by 2 and by 200. Accuracy is measured after the article's
    200 epochs. amp_refused, compile_refused and half_trained, 1 or 0, concern the precisions
    that were tried.
    """
    table, values = records.having(epochs(evidence), batch_size=BATCH_SIZE), []
    for count, words in ((1, "epoch"), (2, "two_epochs"), (200, "200_epochs")):
        times = table.assign(**{name: table[name] * count for name in (EPOCH.unit, "low", "high")})
        values += EPOCH.quantities(times, f"{words}_seconds")
    article = {"variant": "reference", "dataset": "cifar10", "batch_size": BATCH_SIZE}
    rows = evidence.counting(NAME, **article)
    for _, machine in rows[rows["device"].ne("cpu")].groupby("machine", sort=True):
        head, tested = machine.iloc[0].to_dict(), _evaluations(machine)
        last = tested.loc[tested["epochs"].round() == EPOCHS, "accuracy"].tolist()
        values += [quantities.of_runs(head, "knn_accuracy", last)] if last else []
        busy = statistics.with_settings(trials.rows_tried(machine, trials.BUSY), ["busy"])["busy"]
        values += [quantities.of_runs(head, "utilisation", busy)] if len(busy) else []
        memory = records.having(machine, phase="train", device="cuda")
        memory = memory["peak_memory_bytes"].dropna()
        values += (
            [quantities.exact(head, "peak_memory_bytes", float(memory.max()))]
            if len(memory)
            else []
        )
    cells = records.having(support_matrix(evidence), study=NAME).assign(source="measured")
    cells = cells[cells["device"].ne("cpu")]
    for _, own in cells.groupby("machine", sort=True):
        eager, works = ~own["compiled"].astype(bool), own["status"] == "ok"
        mixed = own["precision"].map(lambda name: bool(PRECISIONS[name].autocast))
        half = own["precision"].map(lambda name: PRECISIONS[name].family == "half")
        tried = {
            "amp_refused": (eager & mixed, False),
            "compile_refused": (~eager, False),
            "half_trained": (eager & ~mixed & half, True),
        }
        for name, (those, wanted) in tried.items():
            if those.any():
                values.append(
                    quantities.exact(own.iloc[0].to_dict(), name, works[those].any() == wanted)
                )
    return values


def pairs(first: numpy.ndarray, second: numpy.ndarray) -> Drawing:
    """Draw two views of each image, one above the other; pixels 0 to 1, shape (n, height, width,
    3)."""
    apart = numpy.abs(first - second).mean()
    title = f"Two views of {len(first)} images; their pixels are {apart:.2f} apart on average"
    return Drawing.of_pictures({"first view": first, "second view": second}, title)


def reading(evidence: Evidence) -> str:
    """Return a sentence on the input's share; empty if no steps on ready batches were timed."""
    saved = shares(evidence).rename(columns=BOUNDS)
    return SHARE(saved, evidence) if saved["share"].notna().any() else ""


def _evaluations(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the evaluations in some rows, each with the epochs that its run and repeat had
    trained before it."""
    run = ["machine", "point", "run_id", "repeat"]
    samples = rows["samples"].where(rows["phase"] == "train").fillna(0)
    seen = samples.groupby([rows[name] for name in run]).cumsum()
    epochs = seen / (rows["dataset_samples"] // rows["batch_size"] * rows["batch_size"])
    tested = rows.assign(epochs=epochs.astype(float))[
        (rows["phase"] == "evaluate") & rows["accuracy"].notna()
    ]
    tested = tested.sort_values(run, kind="stable")
    return tested.assign(variant=[confirmation.name(row) for row in tested.to_dict("records")])


def _points(evidence: Evidence) -> pandas.DataFrame:
    """Return measured points; of like points the one that speaks."""
    alike = ["machine", "device", "dataset", "variant", "batch_size"]
    return statistics.speaking(evidence.points(NAME), alike)


def _not_baseline(cells: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the study's lines of `support_matrix` but for plain fp32."""
    own = records.having(cells, study=NAME).assign(interval=intervals.RANGE)
    return own[own["precision"].ne("fp32") | own["compiled"].astype(bool)]


ANSWER = EPOCH.template("SimCLR", precision="fp32", batch_size=BATCH_SIZE)
SHARE = share_template("Making two views of each image")
STUDY = Study(
    name=NAME,
    title="SimCLR",
    article="Lightly, 2023",
    claim="simclr-gpu-epoch",
    quantity=EPOCH.unit,
    unit="minutes/epoch",
    charts=(
        Bars(
            "simclr-epochs",
            table=epochs,
            title=ANSWER,
            parts=EPOCH.parts,
            label=("variant", "precision", "dataset", "batch_size"),
            xlabel="minutes for one epoch of CIFAR-10's size and its nearest-neighbour evaluation",
            tables={"simclr-input-share": shares},
        ),
        Points(
            "simclr-accuracy",
            table=accuracies,
            title=Template(
                "Accuracy reaches {number}{bounds} after {epochs:.3g} epochs on {place}",
                "accuracy",
                "%",
            ),
            x="epochs",
            by=["source", "machine", "device", "variant", "dataset"],
            label=("variant",),
            alike=("dataset",),
            xlabel="epochs trained",
            ylabel="nearest-neighbour accuracy",
            ticks="{x:.0%}",
            look={"xscale": "log", "ylim": (0, 1)},
        ),
        Bars(
            "support",
            table=support_matrix,
            lines=_not_baseline,
            alike=("dataset", "batch_size"),
            title=Template(
                "On {place} {compiled} {precision} is {number} times as fast as plain fp32{bounds}",
                "speedup",
                "times",
                equal=1,
                same="On {place} {compiled} {precision} is about as fast as plain fp32 ({low} to {high} times)",
            ),
            label=("framework_version", "precision", "compiled"),
            xlabel="times as fast as fp32 without the compiler",
            reference=1,
        ),
    ),
    quantities=claimed,
    tasks=(
        Task(
            "simclr",
            "SimCLR, 200 epochs",
            "A ResNet-18 learns from two views of each of 50,000 CIFAR-10 images, with the article's test. Nothing is"
            " predicted: fewer than five chips have published rates.",
            EPOCHS * (50_000 // BATCH_SIZE * BATCH_SIZE),
            NAME,
            NAME,
            EPOCHS,
        ),
    ),
)
