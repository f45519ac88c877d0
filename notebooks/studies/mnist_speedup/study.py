"""Results of the MNIST study: seconds per epoch, the accelerator's speed-up, the input's share,
the cost of a step."""

from operator import itemgetter

import pandas

from benchbook.judging import confirmation, statistics
from benchbook.rows import records
from benchbook.studies.charts.plots import Bars
from benchbook.studies.mnist_speedup.plan import Plan
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
from benchbook.studies.study import Study

NAME = "mnist_speedup"
BATCH_SIZE = 64  # the article's
PLACE = ["machine", "device", "framework", "dataset"]
EPOCH = ArticleEpoch(
    study=NAME,
    dataset="mnist",
    train_images=Plan.TASK[0],
    evaluated_images=10_000,
    unit="seconds",
    ways=("loader", ("reference", "equal loader", "resident", *confirmation.TUNED_NAMES)),
    described=("framework", "batch_size"),
    setup_phases=("setup", "compile"),
)


@cached
def epochs(evidence: Evidence) -> pandas.DataFrame:
    """Return the seconds of what the article timed: data set-up, one training epoch and the test.

    Returns:
        The columns of `ArticleEpoch.table`, batch_size and loader (reference, equal loader,
        resident, or a name from `confirmation.name`).
    """
    printed = evidence.printed(NAME, phase="total").assign(loader="reference")
    return EPOCH.table(evidence, _points(evidence), printed)


def speedups(times: pandas.DataFrame) -> pandas.DataFrame:
    """Return, per machine, framework and loader, how many times faster the accelerator's epoch
    is than the CPU's.

    Args:
        times: from `epochs`.

    Returns:
        Columns: machine, device (the accelerator's), framework, variant, loader, source,
        dataset, speedup, low, high, interval (its kind), num_windows (the smaller number),
        verdict (the worse one).
    """
    alike = itemgetter("machine", "framework", "variant", "loader", "dataset", "source")
    trained = times["status"].eq("ok") & times["seconds"].notna()
    times = times[trained & times["batch_size"].eq(BATCH_SIZE)].to_dict("records")
    on_cpu = {alike(line): line for line in times if line["device"] == "cpu"}
    lines = []
    for line in (line for line in times if line["device"] != "cpu"):
        if base := on_cpu.get(alike(line)):
            faster = shared.ratio(base, line, "seconds")
            lines.append(line | faster | {"speedup": faster["ratio"]})
    columns = [
        "machine",
        "device",
        "framework",
        "variant",
        "loader",
        "source",
        "dataset",
        "speedup",
        *shared.MEASURED,
    ]
    return pandas.DataFrame(lines, columns=columns)


def shares(evidence: Evidence) -> pandas.DataFrame:
    """Return how much of a training step is input, for each loader at the article's batch size.

    Returns:
        The columns of `input_shares`, framework and loader. A point is compared with the
        resident point of the same machine, device, framework and data set.
    """
    points = _points(evidence)
    points = points[points["batch_size"] == BATCH_SIZE]
    resident = points[points["loader"] == "resident"].set_index(PLACE)[[*RATE, "verdict"]]
    loops = points[points["loader"].isin(["reference", "equal loader"])]
    return input_shares(loops, resident, PLACE, ("framework", "loader"))


def step_times(evidence: Evidence) -> pandas.DataFrame:
    """Return the resident step's time by batch size, split into a fixed part and a part per image.

    Returns:
        Columns: machine, device, framework, dataset, batch_size, seconds_per_step, low, high,
        interval, num_windows, verdict, status, fixed_seconds, seconds_per_image, misfit
        (distance of the fitted line from this step time, as a fraction of it). Machines with
        fewer than two batch sizes are left out.
    """
    resident, splits = records.having(_points(evidence), loader="resident"), []
    for _, group in resident.dropna(subset="seconds_per_step").groupby(PLACE, sort=True):
        if group["batch_size"].nunique() > 1:
            fixed, per_image = statistics.fit_step_time(
                group["batch_size"], group["seconds_per_step"]
            )
            fitted = fixed + per_image * group["batch_size"]
            parts = {"fixed_seconds": fixed, "seconds_per_image": per_image}
            times = shared.inverse(
                group, "samples_per_second", "seconds_per_step", group["batch_size"]
            )
            misfit = abs(fitted / group["seconds_per_step"] - 1)
            split = group.assign(
                batch_size=group["batch_size"].astype(int), misfit=misfit, **times, **parts
            )
            splits.append(split.sort_values("batch_size"))
    columns = [*PLACE, "batch_size", "seconds_per_step", *shared.MEASURED, "status"]
    columns += ["fixed_seconds", "seconds_per_image", "misfit"]
    return (
        pandas.concat(splits, ignore_index=True)[columns]
        if splits
        else pandas.DataFrame(columns=columns)
    )


@cached
def _points(evidence: Evidence) -> pandas.DataFrame:
    """Return the study's measured points with their loader; of equal points the one that
    measured more images."""
    points = statistics.with_settings(evidence.points(NAME), ["data_resident"])
    controlled = points["data_resident"].map(
        lambda resident: "resident" if resident else "equal loader"
    )
    points = points.assign(
        loader=points["variant"].where(points["variant"] != "controlled", controlled)
    )
    return statistics.speaking(points, [*PLACE, "batch_size", "loader"])


ANSWER = EPOCH.template("MNIST", framework="torch", batch_size=BATCH_SIZE)
LABEL = ("loader", "framework", "dataset")
STUDY = Study(
    name=NAME,
    title="MNIST",
    article="Chinese PyTorch blog post, 2022",
    claim="mnist-m1-speedup",
    quantity=EPOCH.unit,
    unit="seconds/epoch",
    by_accelerator=True,
    charts=(
        Bars(
            "mnist-epochs",
            table=epochs,
            title=ANSWER,
            parts=EPOCH.parts,
            label=(*LABEL, "batch_size"),
            xlabel="seconds for data set-up, one training epoch and the test",
            tables={"mnist-step-time": step_times},
        ),
        Bars(
            "mnist-speedup",
            table=lambda evidence: speedups(epochs(evidence)),
            title=Template(
                "{place} is {number} times as fast as its CPU{bounds}",
                "speedup",
                "times",
                equal=1,
                same="{place} is about as fast as its CPU ({low} to {high} times)",
            ),
            reference=1,
            xlabel="CPU seconds / accelerator seconds, same machine",
            label=LABEL,
        ),
        Bars(
            "mnist-input-share",
            table=shares,
            lines=lambda table, evidence: table[table["share"].notna()].rename(columns=BOUNDS),
            title=share_template("The loader"),
            ticks="{x:.0%}",
            reference=0,
            xlabel="share of training time that ready batches would save",
            label=LABEL,
        ),
    ),
    quantities=lambda evidence: EPOCH.quantities(
        records.having(epochs(evidence), framework="torch", batch_size=BATCH_SIZE), "seconds"
    ),
)
