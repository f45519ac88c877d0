"""What the autoencoder study says: whether the loss diverges, and whether steps agree with float64."""

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook.judging import parity, statistics, wording
from benchbook.record.naming import Names
from benchbook.studies import figures, findings, quantities
from benchbook.studies import tables as shared
from benchbook.studies.charts import Lines
from benchbook.studies.study import Drawing, Evidence, Study

NAME = "vae_stability"
BATCH_SIZE = 128  # the article's
# Its log prints the loss of every tenth batch, the first included; the step compared first is step 1.
PRINTED_STEPS = {1: "first_loss", 11: "loss_after_10_steps", 21: "loss_after_20_steps", 31: "loss_after_30_steps"}
SMALLEST_ERROR = 1e-9  # drawn for no error at all, on an axis that has no zero


def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss per image by images seen, of each point's last session and of what was published.

    A window's loss is its mean, drawn at the window's middle; of several runs it is their median. The steps that were
    compared with float64 are windows of one batch each, as the published ones are.

    Returns:
        Columns: machine, chip, device, variant, loader (loader, resident, first steps), source, dataset,
        framework_version, epoch, images_seen, loss (missing where it was not finite), low, high (over runs),
        num_runs, status.
    """
    both = pandas.concat([evidence.newest(NAME), evidence.printed(NAME)], ignore_index=True)
    windows = both[both["phase"].isin(["train", "parity"]) & (both["precision"] == "fp32") & (both["repeat"] == 0)]
    windows = shared.with_settings(windows[windows["samples"].notna()], ["data_resident", "images_seen_in_epoch"])
    loader = windows["data_resident"].map(lambda resident: "resident" if resident else "loader")
    # A log's lines lie apart and say how far in its epoch they are.
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
    """Return the steps compared with float64, of one run of each device, precision and framework version.

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
    """Return whether the article's run diverged on an accelerator and trained on the CPU, and its first losses.

    The losses are those of an accelerator's single steps that the article printed: of the steps compared with float64,
    of the article's batch. A loss at given weights and data has no interval; of several runs the median counts.
    """
    rows, values = evidence.measured, []
    rows = rows[(rows["study"] == NAME) & (rows["dataset"] == "mnist") & (rows["precision"] == "fp32")]
    trained = statistics.newest(rows[(rows["phase"] == "train") & (rows["variant"] == "reference")])
    for (_, device), windows in trained.groupby(["machine", "device"]):
        diverged = (windows["status"] == "diverged").any()
        name, happened = ("cpu_trained", not diverged) if device == "cpu" else ("diverged", diverged)
        values.append(quantities.exact(windows.iloc[0].to_dict(), name, float(happened)))
    steps = parity.steps(evidence.newest(NAME))
    steps = steps[(steps["dataset"] == "mnist") & (steps["precision"] == "fp32") & (steps["device"] != "cpu")]
    steps = steps[steps["step"].isin(list(PRINTED_STEPS)) & steps["samples"].eq(BATCH_SIZE) & steps["loss"].notna()]
    for (_, step), rows in steps.groupby(["machine", "step"], sort=True):
        values.append(quantities.exact(rows.iloc[0].to_dict(), PRINTED_STEPS[step], float(rows["loss"].median())))
    return values


def pictures(images: numpy.ndarray, reconstructions: numpy.ndarray, samples: numpy.ndarray) -> Drawing:
    """Draw test images, their reconstructions and samples of the prior; pixels 0 to 1, shape (n, height, width)."""
    rows = {"test image": images, "reconstruction": reconstructions, "sample": samples}
    broken = sum(not numpy.isfinite(picture).all() for picture in reconstructions)
    if broken:
        title = f"{broken} of {len(images)} reconstructions are not numbers"
    else:
        error = numpy.abs(reconstructions - images).mean()
        title = f"Reconstructed pixels are {error:.3f} off on average (0 is white, 1 is black)"
    return Drawing.of_pictures(rows, title, cmap="gray_r", vmin=0, vmax=1)


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say about its training, in a sentence with its numbers."""
    trained = rows[rows["phase"] == "train"].iloc[-1]
    tested = rows.loc[rows["phase"] == "evaluate", "loss"].astype(float)
    end = f"epoch {trained['epoch']} ({trained['device']}, {trained['precision']}, {trained['dataset']})"
    if trained["status"] == "diverged":
        return f"The loss was no longer a number in {end}."
    images = rows.loc[rows["phase"] == "train", "samples"].sum()
    test = f"; on test images {tested.iloc[-1]:.2f}" if len(tested) else ""
    return f"After {images:,} images, in {end}, the loss per image was {trained['loss']:.2f}{test}."


def ended(table: pandas.DataFrame, names: Names) -> str:
    """Return where the loss ended on each kind of device."""
    measured = table[table["source"] == "measured"].sort_values("images_seen", kind="stable")
    said = []
    for end in measured.groupby("device").tail(1).sort_values(["status", "device"]).to_dict("records"):
        other = findings.stand_in(end, "mnist")
        where = names.in_sentence(end) + (f" ({other})" if other else "")
        seen = f"in epoch {end['epoch']}" if pandas.notna(end["epoch"]) else f"after {end['images_seen']:,.0f} images"
        value = "NaN" if end["status"] == "diverged" else f"{wording.number(end['loss'])} an image"
        said.append(f"is {value} {seen} on {where}")
    return f"The autoencoder's loss {wording.joined(said) if said else 'was not measured here yet'}"


def diverged(table: pandas.DataFrame, names: Names) -> str:
    """Return how the loss diverged in print; empty where nothing was printed."""
    broken = table[(table["source"] != "measured") & table["status"].eq("diverged")].head(1).to_dict("records")
    said = [f"In the article it diverged on {names.in_sentence(line)}, in epoch {line['epoch']}" for line in broken]
    return "".join(said)


def _parity_title(table: pandas.DataFrame, names: Names) -> str:
    apart = table[table["apart"]].sort_values("step").head(1).to_dict("records")
    if not apart:
        most, steps = table["loss_error"].max(), table["step"].max()
        return f"Losses are within {wording.percent(most)} of float64 for {steps:.0f} steps"
    first = apart[0]
    return f"{names.place(first)}, {first['precision']}: too far from float64 at step {first['step']:.0f}"


def _mark_broken(axes: Axes, curve: pandas.DataFrame, style: dict) -> None:
    """Draw a cross near the top, and the epoch, where a loss was not finite."""
    broken = curve[curve["status"] == "diverged"]
    top = axes.get_xaxis_transform()
    axes.plot(broken["images_seen"], [0.93] * len(broken), "X", color=style["color"], markersize=9, transform=top)
    for line in broken.to_dict("records"):
        words = {"xycoords": top, "textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 8}
        axes.annotate(f"not finite, epoch {line['epoch']}", (line["images_seen"], 0.93), (-9, 0), **words)


def _draw_allowed(axes: Axes, curve: pandas.DataFrame, style: dict) -> None:
    """Draw what error is allowed, and the first step whose error is larger."""
    allowed = {"linestyle": style["fmt"][1:], "color": figures.COLOURS["line"], "linewidth": 1}
    axes.axhline(curve["tolerance"].iloc[0], **allowed)
    for step in curve.loc[curve["apart"], "step"].head(1):
        axes.axvline(step, color=style["color"], linewidth=1)


STUDY = Study(
    name=NAME,
    title="Variational autoencoder",
    article="Chinese PyTorch blog post, 2022",
    dataset="mnist",
    sentences=((losses, ended), (losses, diverged)),
    charts=(
        Lines(
            "vae-loss",
            "Does the loss diverge?",
            "Losses per image of windows, next to the published log; the first steps are single batches, as that log's"
            " lines are.",
            table=losses,
            title=ended,
            x="images_seen",
            column="loss",
            by=["source", "machine", "device", "loader", "dataset"],
            label=("loader", "dataset"),
            usual={"dataset": "mnist"},
            also=_mark_broken,
            xlabel="images seen",
            ylabel="loss per image",
            look={"xscale": "log", "yscale": "log"},
        ),
        Lines(
            "vae-parity",
            "Does a device compute what float64 on a CPU does?",
            "First the autoencoder's steps, then a verdict for every study, device, precision and version that was"
            " compared. Figures of a point that fails are not to be trusted.",
            table=compared_steps,
            lines=lambda table, evidence: table.assign(loss_error=table["loss_error"].clip(lower=SMALLEST_ERROR)),
            title=_parity_title,
            x="step",
            column="loss_error",
            by=["machine", "device", "precision"],
            label=("precision",),
            usual={"precision": ""},
            also=_draw_allowed,
            xlabel="step",
            ylabel="relative error (black: allowed)",
            look={"yscale": "log"},
            tables={"parity": lambda evidence: parity.verdicts(evidence.measured)},
        ),
    ),
    quantities=claimed,
)
