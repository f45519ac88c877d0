"""Tables of the autoencoder study: the loss by images seen, and steps beside the same steps in float64."""

import numpy
import pandas

from benchbook.judging import parity, statistics
from benchbook.studies import curves, quantities
from benchbook.studies.study import Evidence

NAME = "vae_stability"
BATCH_SIZE = 128  # the article's
# Its log prints the loss of every tenth batch, the first included; the step compared first is step 1.
PRINTED_STEPS = {1: "first_loss", 11: "loss_after_10_steps", 21: "loss_after_20_steps", 31: "loss_after_30_steps"}


def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss per image by images seen, of each point's last session and of what was published.

    A window's loss is its mean, and stands at the window's middle; of several runs it is their median. The steps that
    were compared with float64 are windows of one batch each, as the published ones are.

    Returns:
        Columns: machine, chip, device, variant, loader (loader, resident, first steps), source, dataset,
        framework_version, epoch, images_seen, loss (missing where it was not finite), low, high (over runs),
        num_runs, status.
    """
    rows = evidence.rows[(evidence.rows["study"] == NAME) & evidence.rows["phase"].isin(["train", "parity"])]
    rows = rows[(rows["precision"] == "fp32") & (rows["repeat"] == 0)]
    measured = rows["source"] == "measured"
    windows = pandas.concat([statistics.newest(rows[measured]), rows[~measured]], ignore_index=True)
    windows = windows[windows["samples"].notna()]  # a failure has none
    loss = windows["loss"].astype(float)
    windows = windows.assign(
        loader=[_loader(row) for row in windows.to_dict("records")],
        images_seen=_images_seen(windows),
        loss=loss.where(numpy.isfinite(loss)),
    )
    key = ["machine", "chip", "device", "variant", "loader", "source", "dataset", "framework_version", "epoch"]
    table = curves.over_runs(windows, [*key, "images_seen"], "loss", status=("status", curves.worst))
    return table[[*key, "images_seen", "loss", "low", "high", "num_runs", "status"]]


def compared_steps(evidence: Evidence) -> pandas.DataFrame:
    """Return the steps compared with float64, of one run of each device, precision and framework version.

    Returns:
        Columns: machine, device, precision, framework_version, dataset, step, loss, reference_loss, loss_error,
        tolerance, apart.
    """
    steps = parity.steps(statistics.newest(evidence.measured[evidence.measured["study"] == NAME]))
    steps = steps[steps["step"].notna()]
    key = ["machine", "device", "precision", "framework_version", "dataset"]
    last = steps.groupby(key, dropna=False)["run_id"].transform("max")
    columns = [*key, "step", "loss", "reference_loss", "loss_error", "tolerance", "apart"]
    return steps.loc[steps["run_id"] == last, columns].sort_values([*key, "step"]).reset_index(drop=True)


def events(evidence: Evidence) -> list[dict]:
    """Return whether the article's run diverged on an accelerator, and whether it did not on the CPU."""
    rows = evidence.measured
    study = rows[(rows["study"] == NAME) & (rows["dataset"] == "mnist") & (rows["precision"] == "fp32")]
    study = statistics.newest(study[(study["phase"] == "train") & (study["variant"] == "reference")])
    events = []
    for (_, device), windows in study.groupby(["machine", "device"]):
        diverged = (windows["status"] == "diverged").any()
        name, happened = ("cpu_trained", not diverged) if device == "cpu" else ("diverged", diverged)
        events.append(quantities.exact(windows.iloc[0].to_dict(), name, float(happened)))
    return events


def step_losses(evidence: Evidence) -> list[dict]:
    """Return as quantities the losses of an accelerator's single steps that the article printed.

    They are those of the steps compared with float64, of the article's batch. A loss at given weights and data has no
    interval; of several runs the median counts.
    """
    steps = parity.steps(statistics.newest(evidence.measured[evidence.measured["study"] == NAME]))
    steps = steps[(steps["dataset"] == "mnist") & (steps["precision"] == "fp32") & (steps["device"] != "cpu")]
    steps = steps[steps["step"].isin(list(PRINTED_STEPS)) & steps["samples"].eq(BATCH_SIZE) & steps["loss"].notna()]
    return [
        quantities.exact(rows.iloc[0].to_dict(), PRINTED_STEPS[step], float(rows["loss"].median()))
        for (_, step), rows in steps.groupby(["machine", "step"], sort=True)
    ]


def _loader(row: dict) -> str:
    if row["phase"] == "parity":
        return "first steps"
    return "resident" if row["settings"].get("data_resident") else "loader"


def _images_seen(windows: pandas.DataFrame) -> pandas.Series:
    """Return the images seen at the middle of each window; a log's lines lie apart and say how far in its epoch."""
    settings = [settings.get("images_seen_in_epoch") for settings in windows["settings"]]
    logged = pandas.Series(settings, windows.index, dtype=float) + windows["samples"] / 2
    logged += (windows["epoch"] - 1) * windows["dataset_samples"]
    return logged.fillna(curves.middles(windows, ["machine", "point", "run_id", "phase"]))
