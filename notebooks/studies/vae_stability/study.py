"""Results of the autoencoder study: whether the loss diverges, and whether steps agree with
float64."""

import numpy
import pandas

from benchbook.judging import agreement, statistics
from benchbook.rows import records
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.charts.plots import Points
from benchbook.studies.results import quantities
from benchbook.studies.results import tables as shared
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.study import Study

NAME = "vae_stability"
BATCH_SIZE = 128  # the article's
LOWEST, HIGHEST = 50.0, 2000.0  # of the axis of losses; the article's log has one of 184 million
# The article's log prints the loss of every tenth batch, beginning with the first. Compared steps
# count from 1.
PRINTED_STEPS = {
    1: "first_loss",
    11: "loss_after_10_steps",
    21: "loss_after_20_steps",
    31: "loss_after_30_steps",
}


def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss per image by images seen, for each point's last session and for the
    published log.

    A window's loss is the mean of its steps, drawn at the window's middle; several runs give
    their median. Each step that was compared with float64 is a window of one batch, like each
    line of the published log.

    Returns:
        Columns: machine, chip, device, variant, loader (loader, resident, first steps), source,
        dataset, framework_version, epoch, images_seen, loss (missing where it was not finite),
        low, high (over runs), num_runs, status.
    """
    both = pandas.concat([evidence.counting(NAME), evidence.printed(NAME)], ignore_index=True)
    steps = records.having(both, phase=["train", "parity"], precision="fp32", repeat=0)
    windows = statistics.with_settings(
        steps.dropna(subset="samples"), ["data_resident", "images_seen_in_epoch"]
    )
    loader = windows["data_resident"].map(lambda resident: "resident" if resident else "loader")
    # The lines of a log are not consecutive windows; each says how many images of its epoch came
    # before it.
    logged = windows["images_seen_in_epoch"].astype(float) + windows["samples"] / 2
    logged += (windows["epoch"] - 1) * windows["dataset_samples"]
    loss = windows["loss"].astype(float)
    windows = windows.assign(
        loader=loader.astype(object).mask(windows["phase"] == "parity", "first steps"),
        images_seen=logged.fillna(
            shared.images_seen(windows, ["machine", "point", "run_id", "phase"])
        ),
        loss=loss.where(numpy.isfinite(loss)),
    )
    described = "machine chip device variant loader source dataset framework_version epoch"
    key = described.split()
    table = shared.over_runs(windows, [*key, "images_seen"], "loss")
    return table[[*key, "images_seen", "loss", "low", "high", "num_runs", "status"]]


def claimed(evidence: Evidence) -> list[dict]:
    """Return whether the article's run diverges on an accelerator and trains on the CPU, and an
    accelerator's losses.

    The losses belong to the steps that the article printed. They are taken from the steps
    compared with float64 at the article's batch size. A loss at given weights and data has no
    interval; several runs give their median.
    """
    values, article = [], {"dataset": "mnist", "precision": "fp32"}
    trained = evidence.measured
    trained = records.having(trained, study=NAME, phase="train", variant="reference", **article)
    for (_, is_cpu), windows in trained.groupby(["machine", trained["device"] == "cpu"]):
        diverged = (windows["status"] == "diverged").groupby(windows["run_id"]).any()
        name, happened = ("cpu_trained", ~diverged) if is_cpu else ("diverged", diverged)
        values.append(quantities.event(windows.iloc[0].to_dict(), name, happened))
    steps = agreement.steps(evidence.counting(NAME))
    steps = records.having(steps, step=[*PRINTED_STEPS], samples=BATCH_SIZE, **article)
    steps = steps[steps["device"].ne("cpu")].dropna(subset="loss")
    for (_, step), rows in steps.groupby(["machine", "step"], sort=True):
        values.append(
            quantities.exact(
                rows.iloc[0].to_dict(), PRINTED_STEPS[step], float(rows["loss"].median())
            )
        )
    return values


def pictures(rows: dict[str, numpy.ndarray]) -> Drawing:
    """Draw test images, their reconstructions and samples of the prior; see `plan.Plan.measure`."""
    images, reconstructions = rows["test image"], rows["reconstruction"]
    broken = sum(not numpy.isfinite(picture).all() for picture in reconstructions)
    if broken:
        title = f"{broken} of {len(images)} reconstructions are not numbers"
    else:
        error = numpy.abs(reconstructions - images).mean(dtype=float)
        title = f"Reconstructed pixels are {error:.3f} off on average (0 is white, 1 is black)"
    return Drawing.of_pictures(rows, title, cmap="gray_r", vmin=0, vmax=1)


ANSWER = Template(
    "The loss of an image is {number}{bounds} after {images_seen:,.0f} images on {place}",
    "loss",
    by="images_seen",
    usual={"dataset": "mnist"},
)
STUDY = Study(
    name=NAME,
    title="Variational autoencoder",
    article="Chinese PyTorch blog post, 2022",
    claim="vae-diverges",
    quantity="loss",
    unit="nats/image",
    by_accelerator=True,
    charts=(
        Points(
            "vae-loss",
            table=losses,
            title=ANSWER,
            x="images_seen",
            by=["source", "machine", "device", "loader", "dataset"],
            label=("loader", "dataset"),
            xlabel="images seen",
            ylabel="loss per image",
            highest=HIGHEST,
            look={"xscale": "log", "yscale": "log", "ylim": (LOWEST, HIGHEST)},
        ),
    ),
    quantities=claimed,
)
