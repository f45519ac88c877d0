"""Results of the autoencoder study: whether the loss diverges, and whether steps agree with float64."""

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook.judging import parity, statistics, wording
from benchbook.record.naming import Names
from benchbook.studies import figures, findings, quantities
from benchbook.studies import tables as shared
from benchbook.studies.charts import Lines
from benchbook.studies.study import Drawing, Evidence, Study
from benchbook.studies.vae_stability import plan

NAME = "vae_stability"
BATCH_SIZE = 128  # the article's
# The article's log prints the loss of every tenth batch, beginning with the first. Compared steps count from 1.
PRINTED_STEPS = {1: "first_loss", 11: "loss_after_10_steps", 21: "loss_after_20_steps", 31: "loss_after_30_steps"}
SMALLEST_ERROR = 1e-9  # an error of 0 is drawn here, because a logarithmic axis has no 0


def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss per image by images seen, for each point's last session and for the published log.

    A window's loss is the mean of its steps, drawn at the window's middle; several runs give their median. Each step
    that was compared with float64 is a window of one batch, like each line of the published log.

    Returns:
        Columns: machine, chip, device, variant, loader (loader, resident, first steps), source, dataset,
        framework_version, epoch, images_seen, loss (missing where it was not finite), low, high (over runs),
        num_runs, status.
    """
    both = pandas.concat([evidence.newest(NAME), evidence.printed(NAME)], ignore_index=True)
    windows = both[both["phase"].isin(["train", "parity"]) & (both["precision"] == "fp32") & (both["repeat"] == 0)]
    windows = shared.with_settings(windows[windows["samples"].notna()], ["data_resident", "images_seen_in_epoch"])
    loader = windows["data_resident"].map(lambda resident: "resident" if resident else "loader")
    # The lines of a log are not consecutive windows; each says how many images of its epoch came before it.
    logged = windows["images_seen_in_epoch"].astype(float) + windows["samples"] / 2
    logged += (windows["epoch"] - 1) * windows["dataset_samples"]
    loss = windows["loss"].astype(float)
    windows = windows.assign(
        loader=loader.astype(object).mask(windows["phase"] == "parity", "first steps"),
        images_seen=logged.fillna(shared.images_seen(windows, ["machine", "point", "run_id", "phase"])),
        loss=loss.where(numpy.isfinite(loss)),
    )
    key = ["machine", "chip", "device", "variant", "loader", "source", "dataset", "framework_version", "epoch"]
    table = shared.over_runs(windows, [*key, "images_seen"], "loss")
    return table[[*key, "images_seen", "loss", "low", "high", "num_runs", "status"]]


def compared_steps(evidence: Evidence) -> pandas.DataFrame:
    """Return the steps compared with float64, from the last run of each device, precision and framework version.

    Returns:
        Columns: machine, device, precision, framework_version, dataset, step, loss, reference_loss, loss_error,
        tolerance, apart.
    """
    steps = parity.steps(evidence.newest(NAME))
    steps = steps[steps["step"].notna()]
    key = ["machine", "device", "precision", "framework_version", "dataset"]
    last = steps.groupby(key, dropna=False)["run_id"].transform("max")
    columns = [*key, "step", "loss", "reference_loss", "loss_error", "tolerance", "apart"]
    return steps.loc[steps["run_id"] == last, columns].sort_values([*key, "step"]).reset_index(drop=True)


def claimed(evidence: Evidence) -> list[dict]:
    """Return whether the article's run diverges on an accelerator and trains on the CPU, and an accelerator's losses.

    The losses belong to the steps that the article printed. They are taken from the steps compared with float64 at the
    article's batch size. A loss at given weights and data has no interval; several runs give their median.
    """
    rows, values = evidence.measured, []
    rows = rows[(rows["study"] == NAME) & (rows["dataset"] == "mnist") & (rows["precision"] == "fp32")]
    trained = statistics.newest(rows[(rows["phase"] == "train") & (rows["variant"] == "reference")])
    for (_, is_cpu), windows in trained.groupby(["machine", trained["device"] == "cpu"]):
        diverged = (windows["status"] == "diverged").any()
        name, happened = ("cpu_trained", not diverged) if is_cpu else ("diverged", diverged)
        values.append(quantities.exact(windows.iloc[0].to_dict(), name, float(happened)))
    steps = parity.steps(evidence.newest(NAME))
    steps = steps[(steps["dataset"] == "mnist") & (steps["precision"] == "fp32") & (steps["device"] != "cpu")]
    steps = steps[steps["step"].isin(list(PRINTED_STEPS)) & steps["samples"].eq(BATCH_SIZE) & steps["loss"].notna()]
    for (_, step), rows in steps.groupby(["machine", "step"], sort=True):
        values.append(quantities.exact(rows.iloc[0].to_dict(), PRINTED_STEPS[step], float(rows["loss"].median())))
    return values


def pictures(encoded: dict[str, str]) -> Drawing:
    """Draw test images, their reconstructions and samples of the prior, from a manifest; see `plan.encode`."""
    rows = {name: plan.decode(text) for name, text in encoded.items()}
    images, reconstructions = rows["test image"], rows["reconstruction"]
    broken = sum(not numpy.isfinite(picture).all() for picture in reconstructions)
    if broken:
        title = f"{broken} of {len(images)} reconstructions are not numbers"
    else:
        error = numpy.abs(reconstructions - images).mean()
        title = f"Reconstructed pixels are {error:.3f} off on average (0 is white, 1 is black)"
    return Drawing.of_pictures(rows, title, cmap="gray_r", vmin=0, vmax=1)


def reading(rows: pandas.DataFrame) -> str:
    """Return a sentence on one run's training: the images seen, the epoch and the loss."""
    trained = rows[rows["phase"] == "train"]
    tested = rows.loc[rows["phase"] == "evaluate", "loss"].astype(float)
    last = trained.iloc[-1]
    end = f"epoch {last['epoch']} ({last['device']}, {last['precision']}, {last['dataset']})"
    if last["status"] == "diverged":
        return f"The loss was not finite in {end}."
    test = f", and {tested.iloc[-1]:.2f} on test images" if len(tested) else ""
    return f"After {trained['samples'].sum():,} images, in {end}, the loss per image was {last['loss']:.2f}{test}."


def last_losses(table: pandas.DataFrame, names: Names) -> str:
    """Return a sentence with the last loss on each kind of device."""
    measured = table[table["source"] == "measured"].sort_values("images_seen", kind="stable")
    parts = []
    for end in measured.groupby("device").tail(1).sort_values(["status", "device"]).to_dict("records"):
        other = findings.stand_in(end, "mnist")
        where = names.in_sentence(end) + (f" ({other})" if other else "")
        seen = f"in epoch {end['epoch']}" if pandas.notna(end["epoch"]) else f"after {end['images_seen']:,.0f} images"
        value = "NaN" if end["status"] == "diverged" else f"{wording.number(end['loss'])} an image"
        parts.append(f"is {value} {seen} on {where}")
    return f"The autoencoder's loss {wording.joined(parts) if parts else 'was not measured here yet'}"


def published_divergence(table: pandas.DataFrame, names: Names) -> str:
    """Return a sentence on where the published loss diverged; empty without such a row."""
    diverged = table[(table["source"] != "measured") & table["status"].eq("diverged")].to_dict("records")
    places = [f"{names.in_sentence(line)}, in epoch {line['epoch']}" for line in diverged[:1]]
    return f"In the article it diverged on {places[0]}" if places else ""


def _parity_title(table: pandas.DataFrame, names: Names) -> str:
    apart = table[table["apart"]].sort_values("step").head(1).to_dict("records")
    if not apart:
        most, steps = table["loss_error"].max(), table["step"].max()
        return f"Losses are within {wording.percent(most)} of float64 for {steps:.0f} steps"
    first = apart[0]
    return f"{names.place(first)}, {first['precision']}: too far from float64 at step {first['step']:.0f}"


def _mark_diverged(axes: Axes, curve: pandas.DataFrame, style: dict) -> None:
    """Draw a cross near the top, and the epoch, where a loss was not finite."""
    diverged = curve[curve["status"] == "diverged"]
    top = axes.get_xaxis_transform()
    axes.plot(diverged["images_seen"], [0.93] * len(diverged), "X", color=style["color"], markersize=9, transform=top)
    for line in diverged.to_dict("records"):
        words = {"xycoords": top, "textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 8}
        axes.annotate(f"not finite, epoch {line['epoch']}", (line["images_seen"], 0.93), (-9, 0), **words)


def _draw_tolerance(axes: Axes, curve: pandas.DataFrame, style: dict) -> None:
    """Draw the largest error that is allowed, and the first step with a larger one."""
    allowed = {"linestyle": style["fmt"][1:], "color": figures.COLOURS["line"], "linewidth": 1}
    axes.axhline(curve["tolerance"].iloc[0], **allowed)
    for step in curve.loc[curve["apart"], "step"].head(1):
        axes.axvline(step, color=style["color"], linewidth=1)


STUDY = Study(
    name=NAME,
    title="Variational autoencoder",
    article="Chinese PyTorch blog post, 2022",
    dataset="mnist",
    sentences=((losses, last_losses), (losses, published_divergence)),
    charts=(
        Lines(
            "vae-loss",
            "Does the loss diverge?",
            "Each window's loss per image, next to the published log. The first steps are single batches, like the"
            " lines of that log.",
            table=losses,
            title=last_losses,
            x="images_seen",
            column="loss",
            by=["source", "machine", "device", "loader", "dataset"],
            label=("loader", "dataset"),
            usual={"dataset": "mnist"},
            also=_mark_diverged,
            xlabel="images seen",
            ylabel="loss per image",
            look={"xscale": "log", "yscale": "log"},
        ),
        Lines(
            "vae-parity",
            "Does a device compute what float64 on a CPU does?",
            "The figure has the autoencoder's steps; the table has a verdict for every study, device, precision and"
            " version that was compared. Do not trust the figures of a point that fails.",
            table=compared_steps,
            lines=lambda table, evidence: table.assign(loss_error=table["loss_error"].clip(lower=SMALLEST_ERROR)),
            title=_parity_title,
            x="step",
            column="loss_error",
            by=["machine", "device", "precision"],
            label=("precision",),
            usual={"precision": ""},
            also=_draw_tolerance,
            xlabel="step",
            ylabel="relative error (black: allowed)",
            look={"yscale": "log"},
            tables={"parity": lambda evidence: parity.verdicts(evidence.measured)},
        ),
    ),
    quantities=claimed,
)
