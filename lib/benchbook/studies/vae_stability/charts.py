"""Tables and charts of the autoencoder study: loss by images seen, steps beside float64, pictures."""

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import figures, parity, statistics

SMALLEST_ERROR = 1e-9  # drawn for no error at all, on an axis that has no zero
LINES = ("-", "--", ":", "-.")  # one for each precision of a device


def loss_curves(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the loss per image by images seen, of each point's last session and of what was published.

    A window's loss is its mean, and stands at the window's middle; of several runs it is their median. The steps that
    were compared with float64 are windows of one batch each, as the published ones are.

    Returns:
        Columns: machine, chip, device, variant, loader (loader, resident, first steps), source, dataset,
        framework_version, epoch, images_seen, loss (missing where it was not finite), low, high (over runs),
        num_runs, status.
    """
    study = rows[(rows["study"] == "vae_stability") & (rows["precision"] == "fp32") & (rows["repeat"] == 0)]
    study = study[study["phase"].isin(["train", "parity"])]
    measured = statistics.newest(study[study["source"] == "measured"])
    windows = pandas.concat([measured, study[study["source"] != "measured"]], ignore_index=True)
    windows = windows[windows["samples"].notna()].copy()  # a failure has none
    windows["loader"] = ["resident" if settings.get("data_resident") else "loader" for settings in windows["settings"]]
    windows.loc[windows["phase"] == "parity", "loader"] = "first steps"
    # A log's lines lie apart: they say themselves how much of the epoch was done.
    logged = [settings.get("images_seen_in_epoch") for settings in windows["settings"]]
    logged = pandas.Series(logged, windows.index, dtype=float)
    before = windows.groupby(["machine", "point", "run_id", "phase"])["samples"].cumsum() - windows["samples"]
    logged += (windows["epoch"] - 1) * windows["dataset_samples"]
    windows["images_seen"] = logged.fillna(before.astype(float)) + windows["samples"] / 2
    windows["loss"] = windows["loss"].astype(float).where(numpy.isfinite(windows["loss"].astype(float)))
    kept = ["machine", "chip", "device", "variant", "loader", "source", "dataset", "framework_version"]
    groups = windows.groupby([*kept, "epoch", "images_seen"], dropna=False, sort=True)
    spread = {"low": ("loss", "min"), "high": ("loss", "max"), "num_runs": ("run_id", "nunique")}
    return groups.agg(loss=("loss", "median"), **spread, status=("status", _worst)).reset_index()


def parity_curves(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the steps compared with float64, of one run of each device, precision and framework version.

    Returns:
        Columns: machine, device, precision, framework_version, dataset, step, loss, reference_loss, loss_error,
        tolerance, apart.
    """
    study = rows[(rows["study"] == "vae_stability") & (rows["source"] == "measured")]
    compared = parity.steps(statistics.newest(study))
    compared = compared[compared["step"].notna()]
    key = ["machine", "device", "precision", "framework_version", "dataset"]
    last = compared.groupby(key, dropna=False)["run_id"].transform("max")
    columns = [*key, "step", "loss", "reference_loss", "loss_error", "tolerance", "apart"]
    return compared.loc[compared["run_id"] == last, columns].sort_values([*key, "step"]).reset_index(drop=True)


def draw_losses(axes: Axes, curves: pandas.DataFrame) -> None:
    """Draw the loss over images seen, both on logarithmic axes; a cross marks where it stopped being a number."""
    key = ["source", "machine", "device", "loader", "dataset"]
    for (source, *_), curve in curves.groupby(key, sort=True):
        first = curve.iloc[0]
        shade = figures.colour(first["device"]) if source == "measured" else figures.COLOURS["published"]
        dash = {"loader": "-", "resident": "--", "first steps": ":"}[first["loader"]]
        axes.plot(curve["images_seen"], curve["loss"], dash, marker="o", color=shade, label=_label(curve))
        axes.vlines(curve["images_seen"], curve["low"], curve["high"], color=shade, linewidth=1)
        broken = curve[curve["status"] == "diverged"]
        height = curves["loss"].max() * 3
        axes.plot(broken["images_seen"], [height] * len(broken), "X", color=shade, markersize=9)
        for line in broken.to_dict("records"):
            axes.annotate(f"not finite, epoch {line['epoch']}", (line["images_seen"], height), (0, 9), **_ABOVE)
    axes.set(xscale="log", yscale="log", xlabel="images seen", ylabel="loss per image")
    axes.margins(y=0.15)
    axes.grid(visible=True)
    axes.legend(fontsize=8) if len(curves) else None
    axes.set_title(losses_title(curves))


def losses_title(curves: pandas.DataFrame) -> str:
    """Return what the loss chart shows, in a sentence with its numbers."""
    published = curves[curves["source"] != "measured"]
    known = "nothing published"
    if len(published):
        start, peak = published["loss"].iloc[0], published["loss"].max()
        known = f"published on {published['device'].iloc[0]}: {start:.1f} to {peak:.2g}"
        known += ", then NaN" if (published["status"] == "diverged").any() else ""
    measured = curves[curves["source"] == "measured"]
    if measured.empty:
        return f"Loss: nothing measured here yet; {known}"
    ends = measured.sort_values("images_seen", kind="stable").groupby("device").tail(1)
    return f"Loss: {'; '.join(_end(line) for line in ends.sort_values('device').to_dict('records'))}; {known}"


def draw_step_losses(axes: Axes, compared: pandas.DataFrame) -> None:
    """Draw each step's loss on the device over the same step's in float64, which is grey and wide."""
    for (_, device, precision), curve in compared.groupby(["machine", "device", "precision"], sort=True):
        axes.plot(curve["step"], curve["reference_loss"], color=figures.COLOURS["published"], linewidth=5, alpha=0.6)
        axes.plot(
            curve["step"], curve["loss"], _dash(compared, precision), color=figures.colour(device), label=precision
        )
    axes.set(xlabel="step", ylabel="loss per image")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=True)
    axes.set_title("Same weights, batches and noise (grey: float64)")


def draw_parity(axes: Axes, compared: pandas.DataFrame) -> None:
    """Draw how far each step's loss is from float64's, and where it is first farther than allowed."""
    for (_, device, precision), curve in compared.groupby(["machine", "device", "precision"], sort=True):
        dash, shade = _dash(compared, precision), figures.colour(device)
        errors = curve["loss_error"].clip(lower=SMALLEST_ERROR)
        axes.plot(curve["step"], errors, dash, marker=".", color=shade, label=f"{device}, {precision}")
        axes.axhline(curve["tolerance"].iloc[0], linestyle=dash, color=figures.COLOURS["line"], linewidth=1)
        for step in curve.loc[curve["apart"], "step"].head(1):
            axes.axvline(step, color=shade, linewidth=1)
    axes.set(xlabel="step", ylabel="relative error (black: allowed)", yscale="log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=True)
    axes.legend(fontsize=8) if len(compared) else None
    axes.set_title(parity_title(compared))


def parity_title(compared: pandas.DataFrame) -> str:
    """Return what the parity chart shows, in a few words with their numbers."""
    if compared.empty:
        return "Nothing compared with float64 yet"
    apart = compared[compared["apart"]]
    if apart.empty:
        return (
            f"Within tolerance for {compared['step'].max():.0f} steps; at most {compared['loss_error'].max():.1g} off"
        )
    first = apart.sort_values("step").iloc[0]
    return f"{first['device']}, {first['precision']}: apart at step {first['step']:.0f}"


def draw_images(axes: Axes, images: numpy.ndarray, reconstructions: numpy.ndarray, samples: numpy.ndarray) -> None:
    """Draw test images, their reconstructions and samples of the prior, a row each.

    Args:
        axes: where to draw.
        images, reconstructions, samples: pixels 0 to 1, shape (n, height, width).
    """
    rows = {"test image": images, "reconstruction": reconstructions, "sample": samples}
    axes.imshow(numpy.vstack([numpy.hstack(row) for row in rows.values()]), cmap="gray_r", vmin=0, vmax=1)
    height = images.shape[1]
    axes.set(xticks=[])
    axes.set_yticks([height * (position + 0.5) for position in range(len(rows))], list(rows))
    axes.spines[:].set_visible(False)
    broken = sum(not numpy.isfinite(picture).all() for picture in reconstructions)
    error = numpy.abs(reconstructions - images).mean()
    axes.set_title(
        f"{broken} of {len(images)} reconstructions are not numbers"
        if broken
        else f"Reconstructed pixels are {error:.3f} off on average (0 is white, 1 is black)"
    )


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


_ABOVE = {"textcoords": "offset points", "ha": "right", "fontsize": 8}


def _worst(statuses: pandas.Series) -> str:
    return "diverged" if (statuses == "diverged").any() else "ok"


def _end(end: dict) -> str:
    stand_in = "" if end["dataset"] == "mnist" else f" ({end['dataset']})"
    where = f"in epoch {end['epoch']}" if pandas.notna(end["epoch"]) else f"after {end['images_seen']:.0f} images"
    if end["status"] == "diverged":
        return f"{end['device']} not finite {where}{stand_in}"
    return f"{end['device']} {end['loss']:.1f} {where}{stand_in}"


def _dash(compared: pandas.DataFrame, precision: str) -> str:
    return LINES[sorted(compared["precision"].unique()).index(precision) % len(LINES)]


def _label(curve: pandas.DataFrame) -> str:
    line, runs = curve.iloc[0], curve["num_runs"].max()
    if line["source"] != "measured":
        return f"{line['machine']}, {line['device']}, torch {line['framework_version']}, {line['source']}"
    stand_in = "" if line["dataset"] == "mnist" else f", {line['dataset']}"
    counted = f", n={len(curve)}" + (f", range of {runs} runs" if runs > 1 else "")
    return f"{line['machine']}, {line['device']}, {line['loader']}{stand_in}{counted}"
